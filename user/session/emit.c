// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Passes records to the sink, and makes names and notes as records. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "include/name_hash.h"
#include "user/lib/clock.h"
#include "user/session/state.h"

#define NAMES_KEPT (1u << 18) /* a program may make up any number */
#define NOTES_MAX  64         /* of one form: a file or a process of its own may be behind each */

uint64_t session__now_ns(void)
{
	return clock__ns(CLOCK_MONOTONIC);
}

int session__emit(struct session *s, const struct rec_hdr *record)
{
	int err = s->sink(record, s->sink_ctx);

	if (!err && s->keeps_names && record && record->type == REC_NAME && s->names.by_id.items.cnt < NAMES_KEPT)
		err = names__add(&s->names, (const void *)record);
	if (err && !s->sink_err)
		s->sink_err = err;
	return s->sink_err;
}

/* Size of a buffer for one REC_NAME, in 64-bit words. */
#define NAME_WORDS ((sizeof(struct rec_name) + REC_NAME_MAX) / 8)

static const struct rec_name *make_name_record(const char *text, uint64_t *buffer)
{
	struct rec_name *rec = (void *)buffer;
	const uint64_t *words = (void *)rec->text;
	size_t whole = strlen(text), bytes = whole < REC_NAME_MAX ? whole : REC_NAME_MAX, word_cnt = (bytes + 7) / 8;
	uint64_t hash = name_hash__seed(NAME_UTF8, whole);

	memset(buffer, 0, 8 * NAME_WORDS);
	memcpy(rec->text, text, bytes);
	for (size_t i = 0; i < word_cnt; i++)
		hash = name_hash__add(hash, words[i]);
	rec->hdr = (struct rec_hdr){.type = REC_NAME, .size = sizeof(*rec) + 8 * word_cnt};
	rec->id = name_hash__end(hash);
	rec->cut = whole > bytes;
	rec->bytes = bytes;
	rec->whole_bytes = whole;
	return rec;
}

uint64_t session__name_id(const char *text)
{
	uint64_t buffer[NAME_WORDS];

	return make_name_record(text, buffer)->id;
}

uint64_t session__emit_name(struct session *s, const char *text)
{
	uint64_t buffer[NAME_WORDS];
	const struct rec_name *rec = make_name_record(text, buffer);

	session__emit(s, &rec->hdr);
	return rec->id;
}

static bool is_one_too_many(struct session *s, const char *form)
{
	struct note_kind *kinds = s->note_kinds.items, *kind = NULL;

	for (size_t i = 0; i < s->note_kinds.cnt && !kind; i++)
		if (kinds[i].form == form)
			kind = &kinds[i];
	if (!kind) {
		kind = array__add(&s->note_kinds, sizeof(*kind));
		if (kind)
			*kind = (struct note_kind){.form = form};
	}
	return kind && kind->cnt++ >= NOTES_MAX;
}

void session__note_left_out(struct session *s)
{
	const struct note_kind *kinds = s->note_kinds.items;
	uint64_t left_out = 0;

	for (size_t i = 0; i < s->note_kinds.cnt; i++)
		left_out += kinds[i].cnt > NOTES_MAX ? kinds[i].cnt - NOTES_MAX : 0;
	if (left_out)
		session__note(s, "%" PRIu64 " more notes, of which there were %d of the same form before, are left out",
			      left_out, NOTES_MAX);
}

void session__note(struct session *s, const char *fmt, ...)
{
	uint64_t buffer[64] = {0};
	struct rec_note *rec = (void *)buffer;
	va_list ap;

	if (is_one_too_many(s, fmt))
		return;
	va_start(ap, fmt);
	vsnprintf(rec->text, sizeof(buffer) - sizeof(*rec), fmt, ap);
	va_end(ap);
	rec->bytes = strlen(rec->text);
	rec->hdr = (struct rec_hdr){.type = REC_NOTE, .size = sizeof(*rec) + ((rec->bytes + 7) & ~7u)};
	session__emit(s, &rec->hdr);
}
