// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/utf8.h"

struct name {
	uint64_t id;
	char *text;
	bool lost; /* the recording has no text for the id */
};

static uint32_t next_code_point(const char **at, const char *end, enum name_encoding encoding, int *cut)
{
	size_t width = encoding == NAME_UCS4 ? 4 : encoding == NAME_UCS2 ? 2 : 1;
	uint16_t two;
	uint32_t code;

	if (encoding == NAME_UTF8)
		return utf8__next(at, end, cut);
	if ((size_t)(end - *at) < width) {
		*at = end;
		*cut = 1;
		return UTF8_REPLACEMENT;
	}
	if (width == 4) {
		memcpy(&code, *at, 4);
	} else if (width == 2) {
		memcpy(&two, *at, 2);
		code = two;
	} else {
		code = (unsigned char)**at;
	}
	*at += width;
	return code;
}

char *name__utf8(const char *bytes, size_t len, enum name_encoding encoding, bool cut)
{
	/* The worst case is one byte that becomes U+FFFD, three bytes. */
	const char *at = bytes, *end = bytes + len;
	char *text = malloc(3 * len + sizeof("..."));
	size_t used = 0;

	if (!text)
		return NULL;
	while (at < end) {
		int piece = 0;
		uint32_t code = next_code_point(&at, end, encoding, &piece);

		if (piece && cut && at == end)
			break;
		used += utf8__put(text + used, code ? code : UTF8_REPLACEMENT);
	}
	strcpy(text + used, cut ? "..." : "");
	return text;
}

/* Takes text over; a NULL text means no memory. */
static struct name *insert_name(struct names *names, uint64_t id, char *text, bool lost)
{
	struct name *name = text ? MAP_ADD(&names->by_id, struct name, &id) : NULL;

	if (name)
		*name = (struct name){.id = id, .text = text, .lost = lost};
	else
		free(text);
	return name;
}

/*
 * Adds the length to a truncated name: names that are cut at the same place differ by their
 * lengths, as do their ids. malloc'ed; NULL: no memory.
 */
static char *record_text(const struct rec_name *record)
{
	char *text = name__utf8(record->text, record->bytes, record->encoding, record->cut), *longer;

	if (!text || !record->cut)
		return text;
	if (asprintf(&longer, "%s (%u bytes)", text, record->whole_bytes) < 0)
		longer = NULL;
	free(text);
	return longer;
}

int names__add(struct names *names, const struct rec_name *record)
{
	struct name *name = MAP_FIND(&names->by_id, struct name, &record->id);
	char *text;

	if (name && !name->lost)
		return 0;
	text = record_text(record);
	if (!name)
		return insert_name(names, record->id, text, false) ? 0 : -ENOMEM;
	if (!text)
		return -ENOMEM;
	free(name->text);
	name->text = text;
	name->lost = false;
	return 0;
}

const char *names__find(const struct names *names, uint64_t id)
{
	struct name *name = MAP_FIND(&names->by_id, struct name, &id);

	return name && !name->lost ? name->text : NULL;
}

const char *names__find_or_lost(struct names *names, uint64_t id)
{
	struct name *name = MAP_FIND(&names->by_id, struct name, &id);
	char *text = NULL;

	if (!name) {
		if (asprintf(&text, "(name lost, id %016" PRIx64 ")", id) < 0)
			return NULL;
		name = insert_name(names, id, text, true);
	}
	return name ? name->text : NULL;
}

void names__free(struct names *names)
{
	struct name *all = names->by_id.items.items;

	for (size_t i = 0; i < names->by_id.items.cnt; i++)
		free(all[i].text);
	map__free(&names->by_id);
}
