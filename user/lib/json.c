// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/utf8.h"

/* jansson escapes all that could steer, but for DEL, which only a string can have. */
static int print_part(const char *part, size_t bytes, void *out)
{
	for (const char *del; (del = memchr(part, 0x7f, bytes)); bytes -= del + 1 - part, part = del + 1) {
		fwrite(part, 1, del - part, out);
		fputs("\\u007f", out);
	}
	fwrite(part, 1, bytes, out);
	return 0;
}

int json__print(const json_t *json, size_t flags, FILE *out)
{
	return json_dump_callback(json, print_part, out, flags | JSON_ENSURE_ASCII) ? -ENOMEM : 0;
}

char *json__text(const json_t *json, size_t flags)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	int err = out ? json__print(json, flags, out) : -ENOMEM;

	if ((!out || !fclose(out)) && !err)
		return text;
	free(text);
	return NULL;
}

json_t *json__string(const char *bytes)
{
	/* an invalid byte becomes three */
	size_t room = 3 * strlen(bytes) + 1;
	char *text = malloc(room);
	json_t *string;

	if (!text)
		return NULL;
	utf8__copy(text, room, bytes, room);
	string = json_string_nocheck(text);
	free(text);
	return string;
}
