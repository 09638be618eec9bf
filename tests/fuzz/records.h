/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Makes records that refer to each other: few processes, names and instants, by the descriptors of their fields, and an
 * end of words or text. Counts mostly say how long that is.
 */
#ifndef STEPFLAME_TESTS_FUZZ_RECORDS_H
#define STEPFLAME_TESTS_FUZZ_RECORDS_H

#include <zlib.h>

#include "tests/fuzz/fuzz.h"
#include "user/recording/descriptors.h"

#define RECORD_MAX 8192 /* struct rec_dropped_steps has some 4 KB */
#define END_MAX    128  /* bytes behind the struct */

struct record_random {
	uint64_t state;
};

static inline uint64_t below(struct record_random *random, uint64_t limit)
{
	random->state ^= random->state << 13;
	random->state ^= random->state >> 7;
	random->state ^= random->state << 17;
	return random->state % limit;
}

static const char *const record_texts[] = {
	"[LightningModule]Net.training_step",
	"enumerate(DataLoader)#_Iter.__next__",
	"Optimizer.step#SGD.step",
	"aten::add.Tensor",
	"\x1b]0;title\x07\x1b[2J",
	"\xc2\x9b"
	"31m\x9b"
	"31m\x7f",
	"</script><script>alert(1)<!--",
	"a;b c\nd\re\tf,\"g\"'h'&amp;",
	"=cmd|' /C calc'!A0",
	"\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\xd8\x9c\xe2\x80\x8f",
	"\xff\xfe\xed\xa0\x80\xf4\x90\x80\x80",
	"/a/very/long/path/\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e/e\xcc\x81\xcc\x81\xcc\x81/file.py",
	"",
	"_ZN2at6native13reduce_kernelILi512ELi1EEEvT1_",
	"%s%n%x\\u202e",
	"lost_names",
};

static inline void put_random_text(struct record_random *random, uint8_t *out, size_t bytes)
{
	const char *text = record_texts[below(random, sizeof(record_texts) / sizeof(*record_texts))];

	memset(out, 0, bytes);
	memcpy(out, text, strlen(text) < bytes ? strlen(text) : bytes);
	if (bytes && !below(random, 8))
		out[below(random, bytes)] = below(random, 256);
}

static inline uint64_t random_number(struct record_random *random, enum field_kind kind)
{
	switch (kind) {
	case FIELD_ID:
		return below(random, 12);
	case FIELD_PID:
	case FIELD_TID:
		return 1 + below(random, 3);
	case FIELD_TIME:
		return 1000000000 + below(random, 64) * 1000000;
	default:
		switch (below(random, 8)) {
		case 0:
			return below(random, UINT64_MAX);
		case 1:
			return UINT64_MAX >> below(random, 64);
		case 2:
			return below(random, 100000000);
		default:
			return below(random, 9);
		}
	}
}

static inline bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), want = strlen(end);

	return length >= want && !strcmp(text + length - want, end);
}

/* The end of a REC_SPANS: columns of small numbers, deflated. Returns its bytes. */
static inline size_t put_random_spans(struct record_random *random, uint8_t *out, uint32_t *cnt)
{
	uint8_t plain[64];
	uLongf bytes = END_MAX;

	*cnt = 1 + below(random, 3);
	for (size_t i = 0; i < sizeof(plain); i++)
		plain[i] = below(random, 9);
	return compress2(out, &bytes, plain, sizeof(plain) - below(random, 40), 0) == Z_OK ? bytes : 0;
}

/* Returns the size of a new record, a multiple of 8, at most RECORD_MAX. */
static inline size_t put_random_record(struct record_random *random, uint8_t *out)
{
	uint16_t type = 1 + below(random, REC__COUNT - 1);
	const struct record_descriptor *d = record_descriptor__of(type);
	size_t end = below(random, 3) ? below(random, END_MAX / 8) * 8 : 0, size = (d->bytes + end + 7) & ~7ul;
	struct rec_hdr header = {.type = type};
	bool text = type == REC_NAME || type == REC_NOTE;
	uint32_t span_cnt = 0;

	memset(out, 0, RECORD_MAX);
	for (size_t at = d->bytes; !text && at + 8 <= size; at += 8)
		*(uint64_t *)(out + at) = random_number(random, FIELD_ID);
	if (text)
		put_random_text(random, out + d->bytes, end);
	if (type == REC_SPANS) {
		end = put_random_spans(random, out + d->bytes, &span_cnt);
		size = (d->bytes + end + 7) & ~7ul;
	}
	for (size_t i = 0; i < d->field_cnt; i++) {
		const struct record_field *field = &d->fields[i];
		uint8_t *at = out + field->offset;

		if (field->kind == FIELD_TEXT) {
			put_random_text(random, at, field->bytes);
			continue;
		}
		for (uint16_t k = 0; k < field->cnt; k++, at += field->bytes) {
			uint64_t value = random_number(random, field->kind);

			if (below(random, 16) && ends_with(field->name, "bytes"))
				value = end ?: value;
			else if (below(random, 16) && ends_with(field->name, "_cnt"))
				value = span_cnt ?: type == REC_STACK || type == REC_PATH ? end / 16 : end / 8;
			memcpy(at, &value, field->bytes);
		}
	}
	header.size = size;
	memcpy(out, &header, sizeof(header));
	return size;
}

#endif
