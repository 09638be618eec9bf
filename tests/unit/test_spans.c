// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The packed timeline: what was packed comes back to the nanosecond, in how few bytes, and nothing that is done to a
 * record does harm.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <zlib.h>

#include "user/recording/spans.h"

/* Records as the sink got them, each in memory of its own, so that a sanitizer sees a read beyond it. */
struct records {
	struct rec_spans *items[4096];
	size_t cnt, bytes;
	int err; /* the sink's answer */
};

static int keep(const struct rec_hdr *record, void *ctx)
{
	struct records *records = ctx;

	assert_int_equal(record->type, REC_SPANS);
	assert_int_equal(record->size % 8, 0);
	assert_true(records->cnt < 4096);
	records->items[records->cnt++] = memcpy(malloc(record->size), record, record->size);
	records->bytes += record->size;
	return records->err;
}

static void drop(struct records *records)
{
	for (size_t i = 0; i < records->cnt; i++)
		free(records->items[i]);
	*records = (struct records){0};
}

static uint64_t random_state = 1;

/* xorshift64 */
static uint64_t draw(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

static uint64_t draw_below(uint64_t limit)
{
	return draw() % limit;
}

static void assert_same(const struct rec_span *got, const struct rec_span *want)
{
	assert_memory_equal(got, want, sizeof(*want));
}

static struct rec_span make(uint32_t pid, uint32_t tid, uint64_t start, uint64_t duration)
{
	return (struct rec_span){.hdr = {.type = REC_SPAN, .size = sizeof(struct rec_span)},
				 .pid = pid,
				 .tid = tid,
				 .start_ns = start,
				 .duration_ns = duration,
				 .name = 1,
				 .sequence = -1,
				 .kind = SPAN_OP};
}

/* Anything that a field can hold, often its ends. */
static uint64_t wild(void)
{
	static const uint64_t ends[] = {0, 1, 0x7f, 0x80, INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX - 1, UINT64_MAX};

	return draw_below(3) ? draw() >> draw_below(64) : ends[draw_below(sizeof(ends) / sizeof(*ends))];
}

static void test_round_trip_of_anything(void **state)
{
	static struct rec_span in[3][3 * SPANS_MAX], out[SPANS_MAX];
	struct records records = {0};
	struct spans_encoder *encoder = spans_encoder__new(keep, &records);
	size_t in_cnt[3] = {0}, out_cnt[3] = {0};

	for (size_t i = 0; i < 3 * SPANS_MAX; i++) {
		size_t thread = draw_below(3);
		struct rec_span *span = &in[thread][in_cnt[thread]++];

		*span = make(thread == 2 ? 8 : 7, 100 + (thread == 1), wild(), wild());
		span->name = wild();
		span->group = wild();
		span->sequence = wild();
		span->kind = wild();
		span->depth = wild();
		assert_int_equal(spans_encoder__add(encoder, span), 0);
	}
	assert_int_equal(spans_encoder__flush(encoder), 0);
	for (size_t r = 0; r < records.cnt; r++) {
		size_t thread = records.items[r]->pid == 8 ? 2 : records.items[r]->tid - 100, cnt;

		assert_int_equal(spans__decode(records.items[r], out, &cnt), 0);
		for (size_t i = 0; i < cnt; i++)
			assert_same(&out[i], &in[thread][out_cnt[thread]++]);
	}
	assert_memory_equal(in_cnt, out_cnt, sizeof(in_cnt));
	spans_encoder__free(encoder);
	drop(&records);
}

/*
 * A step of a small model as the kernel would tell it: 160 spans of 40 names and 60 groups in a fixed order, three
 * levels deep, with durations and gaps that vary by a quarter and, now and then, a delay.
 */
struct model {
	struct rec_span *out;
	size_t cnt;
	uint64_t now, sequence;
};

static uint64_t vary(uint64_t ns)
{
	return ns - ns / 4 + draw_below(ns / 2 + 1) + (draw_below(200) ? 0 : draw_below(50000));
}

static void emit(struct model *m, unsigned int op, unsigned int depth, unsigned int *left)
{
	struct rec_span *span;
	uint64_t start = m->now, nodes = m->sequence;

	m->now += vary(400);
	for (unsigned int child = 0; depth < 2 && child < op % 3 && *left > 1; child++) {
		--*left;
		emit(m, op * 7 + child * 13 + 1, depth + 1, left);
		m->now += vary(300);
	}
	m->now += vary(1000 + op * 37 % 9000);
	span = &m->out[m->cnt++];
	*span = make(7, 7, start, m->now - start);
	span->name = 0x9e3779b97f4a7c15 * (op % 40 + 1);
	span->group = 0xbf58476d1ce4e5b9 * (op % 60 + 1);
	span->sequence = depth ? -1 : (int64_t)nodes;
	span->depth = depth;
	m->sequence += !depth && op % 2;
}

static size_t training(struct rec_span *out, unsigned int steps)
{
	struct model m = {.out = out, .now = 123456789012345};

	for (unsigned int step = 0; step < steps; step++) {
		for (unsigned int left = 160, op = 0; left; op++) {
			left--;
			emit(&m, op, 0, &left);
			m.now += vary(2000);
		}
	}
	return m.cnt;
}

static void test_bytes_per_operator(void **state)
{
	enum { STEPS = 500 };
	struct rec_span *in = calloc(STEPS * 160, sizeof(*in)), *out = calloc(SPANS_MAX, sizeof(*out));
	struct records records = {0};
	struct spans_encoder *encoder = spans_encoder__new(keep, &records);
	size_t cnt = training(in, STEPS), seen = 0;
	clock_t start = clock(), packed;

	assert_int_equal(cnt, STEPS * 160);
	for (size_t i = 0; i < cnt; i++)
		assert_int_equal(spans_encoder__add(encoder, &in[i]), 0);
	assert_int_equal(spans_encoder__flush(encoder), 0);
	packed = clock();
	for (size_t r = 0; r < records.cnt; r++) {
		size_t got;

		assert_int_equal(spans__decode(records.items[r], out, &got), 0);
		for (size_t i = 0; i < got; i++)
			assert_same(&out[i], &in[seen++]);
	}
	assert_int_equal(seen, cnt);
	print_message("%zu spans: %.2f bytes and %.0f ns each, %.0f ns to unpack\n", cnt, (double)records.bytes / cnt,
		      (packed - start) * 1e9 / CLOCKS_PER_SEC / cnt, (clock() - packed) * 1e9 / CLOCKS_PER_SEC / cnt);
	assert_true(records.bytes < 10 * cnt);
	spans_encoder__free(encoder);
	drop(&records);
	free(out);
	free(in);
}

static void test_many_threads(void **state)
{
	enum { THREADS = 300, EACH = 5 };
	struct rec_span *out = calloc(SPANS_MAX, sizeof(*out));
	struct records records = {0};
	struct spans_encoder *encoder = spans_encoder__new(keep, &records);
	size_t seen[THREADS] = {0}, cnt;

	for (uint32_t i = 0; i < EACH; i++) {
		for (uint32_t t = 0; t < THREADS; t++) {
			struct rec_span span = make(1, t, 1000 * i, t);

			assert_int_equal(spans_encoder__add(encoder, &span), 0);
		}
	}
	assert_int_equal(spans_encoder__flush(encoder), 0);
	assert_int_equal(spans_encoder__flush(encoder), 0);
	for (size_t r = 0; r < records.cnt; r++) {
		assert_int_equal(spans__decode(records.items[r], out, &cnt), 0);
		for (size_t i = 0; i < cnt; i++)
			assert_int_equal(out[i].start_ns, 1000 * seen[out[i].tid]++);
	}
	for (size_t t = 0; t < THREADS; t++)
		assert_int_equal(seen[t], EACH);
	spans_encoder__free(encoder);
	drop(&records);
	free(out);
}

static void test_sink_fails(void **state)
{
	struct records records = {.err = -ENOSPC};
	struct spans_encoder *encoder = spans_encoder__new(keep, &records);
	struct rec_span span = make(1, 1, 1, 1);

	for (size_t i = 1; i < SPANS_MAX; i++)
		assert_int_equal(spans_encoder__add(encoder, &span), 0);
	assert_int_equal(spans_encoder__add(encoder, &span), -ENOSPC);
	assert_int_equal(spans_encoder__flush(encoder), 0);
	assert_int_equal(spans_encoder__add(encoder, &span), 0);
	assert_int_equal(spans_encoder__flush(encoder), -ENOSPC);
	assert_int_equal(spans_encoder__add(encoder, &span), 0);
	spans_encoder__free(encoder); /* with a span inside */
	spans_encoder__free(NULL);
	drop(&records);
}

/* ---- damage ---- */

static const struct rec_spans *small_record(struct records *records)
{
	struct spans_encoder *encoder = spans_encoder__new(keep, records);
	struct rec_span spans[160];
	size_t cnt = training(spans, 1);

	for (size_t i = 0; i < cnt; i++)
		assert_int_equal(spans_encoder__add(encoder, &spans[i]), 0);
	assert_int_equal(spans_encoder__flush(encoder), 0);
	spans_encoder__free(encoder);
	assert_int_equal(records->cnt, 1);
	return records->items[0];
}

/* A record around a payload of any bytes, in memory that ends where it ends. */
static struct rec_spans *wrap(const struct rec_spans *like, const void *payload, size_t bytes)
{
	size_t size = sizeof(*like) + bytes;
	struct rec_spans *record = malloc(size);

	*record = *like;
	record->hdr.size = size;
	record->bytes = bytes;
	memcpy(record->payload, payload, bytes);
	return record;
}

static int decode_deflated(const struct rec_spans *like, const unsigned char *plain, size_t plain_bytes,
			   struct rec_span *out, size_t *cnt)
{
	uLongf bytes = compressBound(plain_bytes);
	unsigned char *payload = malloc(bytes);
	struct rec_spans *record;
	int err;

	assert_int_equal(compress2(payload, &bytes, plain, plain_bytes, 1), Z_OK);
	record = wrap(like, payload, bytes);
	err = spans__decode(record, out, cnt);
	free(record);
	free(payload);
	return err;
}

static void test_cut_at_every_byte(void **state)
{
	struct records records = {0};
	const struct rec_spans *whole = small_record(&records);
	struct rec_span *out = calloc(SPANS_MAX, sizeof(*out));
	unsigned char plain[1 << 16];
	uLongf plain_bytes = sizeof(plain);
	size_t cnt;

	for (size_t bytes = 0; bytes <= whole->bytes; bytes++) {
		struct rec_spans *record = wrap(whole, whole->payload, bytes);

		assert_int_equal(spans__decode(record, out, &cnt), bytes == whole->bytes ? 0 : -EBADMSG);
		record->bytes++;
		assert_int_equal(spans__decode(record, out, &cnt), -EBADMSG);
		free(record);
	}
	/* What zlib's checksum would not let through. */
	assert_int_equal(uncompress(plain, &plain_bytes, whole->payload, whole->bytes), Z_OK);
	for (size_t bytes = 0; bytes <= plain_bytes + 1; bytes++) {
		int err = decode_deflated(whole, plain, bytes, out, &cnt);

		assert_int_equal(err, bytes == plain_bytes ? 0 : -EBADMSG);
		assert_int_equal(cnt, err ? 0 : whole->span_cnt);
	}
	free(out);
	drop(&records);
}

static void test_flipped_bytes(void **state)
{
	static const unsigned char flips[] = {0x01, 0x41, 0x80, 0xff};
	struct records records = {0};
	const struct rec_spans *whole = small_record(&records);
	struct rec_span *out = calloc(SPANS_MAX, sizeof(*out));
	unsigned char plain[1 << 16];
	uLongf plain_bytes = sizeof(plain);
	size_t cnt, sound = 0;

	assert_int_equal(uncompress(plain, &plain_bytes, whole->payload, whole->bytes), Z_OK);
	for (size_t at = 0; at < 4 * plain_bytes; at++) {
		int err;

		plain[at / 4] ^= flips[at % 4];
		err = decode_deflated(whole, plain, plain_bytes, out, &cnt);
		plain[at / 4] ^= flips[at % 4];
		assert_true(err == 0 || err == -EBADMSG);
		sound += !err;
	}
	assert_true(sound > 0); /* most times are as good as others */
	for (size_t at = 0; at < 4 * whole->hdr.size; at++) {
		struct rec_spans *record = wrap(whole, whole->payload, whole->bytes);

		if (at / 4 < record->hdr.size && at / 4 >= sizeof(record->hdr))
			((unsigned char *)record)[at / 4] ^= flips[at % 4];
		spans__decode(record, out, &cnt);
		free(record);
	}
	free(out);
	drop(&records);
}

static void test_absurd_counts(void **state)
{
	struct rec_spans like = {.hdr = {.type = REC_SPANS}, .span_cnt = SPANS_MAX};
	struct rec_span *out = calloc(SPANS_MAX, sizeof(*out));
	size_t cnt, bomb_bytes = 64 << 20;
	unsigned char *zeros = calloc(1, bomb_bytes);

	/* Tags, times, durations; a dictionary of one name that is 0, its indexes; the same for groups; depths. */
	static unsigned char plain[6 * SPANS_MAX + 18];

	plain[3 * SPANS_MAX] = plain[4 * SPANS_MAX + 9] = 1;
	assert_int_equal(decode_deflated(&like, plain, sizeof(plain), out, &cnt), 0);
	assert_int_equal(cnt, SPANS_MAX);
	plain[3 * SPANS_MAX] = 0; /* an index into nothing */
	assert_int_equal(decode_deflated(&like, plain, sizeof(plain), out, &cnt), -EBADMSG);
	memset(plain + 3 * SPANS_MAX, 0xff, 9); /* 2^63 names */
	assert_int_equal(decode_deflated(&like, plain, sizeof(plain), out, &cnt), -EBADMSG);
	for (size_t i = 0; i < 4; i++) {
		static const uint32_t cnts[] = {0, SPANS_MAX + 1, INT32_MAX, UINT32_MAX};

		like.span_cnt = cnts[i];
		assert_int_equal(decode_deflated(&like, plain, sizeof(plain), out, &cnt), -EBADMSG);
	}
	like.span_cnt = SPANS_MAX;
	assert_int_equal(decode_deflated(&like, zeros, bomb_bytes, out, &cnt), -EBADMSG);
	free(zeros);
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip_of_anything), cmocka_unit_test(test_bytes_per_operator),
		cmocka_unit_test(test_many_threads),           cmocka_unit_test(test_sink_fails),
		cmocka_unit_test(test_cut_at_every_byte),      cmocka_unit_test(test_flipped_bytes),
		cmocka_unit_test(test_absurd_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
