// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Packs spans into REC_SPANS and unpacks them; spans.h describes the encoding. One thread owns an
 * encoder.
 */
#include "user/recording/spans.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "user/lib/compare.h"

#define BATCH_MAX      64               /* threads packed at the same time: 16 MB at most */
#define PLAIN_MAX      (SPANS_MAX * 64) /* a span takes at most 16 bytes in the dictionaries and 40 in the columns */
#define VARINT_MAX     10
#define TAG_AROUND     1
#define TAG_SEQUENCE   2
#define TAG_KIND_SHIFT 2
#define DEFLATE_LEVEL  1 /* the rest is noise: level 9 saves 2 % */
#define RECENT_IDS     256

struct span_batch {
	uint32_t pid, tid;
	size_t cnt;
	struct rec_span *spans; /* array of SPANS_MAX */
};

struct spans_encoder {
	int (*sink)(const struct rec_hdr *record, void *ctx);
	void *ctx;
	struct span_batch batches[BATCH_MAX];
	size_t batch_cnt;
	size_t last; /* the batch that took the last span */
	uint64_t ids[SPANS_MAX];
	unsigned char plain[PLAIN_MAX];
	struct rec_spans *record;
	size_t record_room; /* for the record's payload */
};

static uint64_t zigzag(uint64_t value)
{
	return value << 1 ^ -(value >> 63);
}

static uint64_t unzigzag(uint64_t value)
{
	return value >> 1 ^ -(value & 1);
}

static uint64_t rec_span__end_ns(const struct rec_span *span)
{
	return span->start_ns + span->duration_ns;
}

/* ---- packing ---- */

static unsigned char *put_leb128(unsigned char *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = value | 0x80;
	*at++ = value;
	return at;
}

static uint64_t id_at(const struct rec_span *span, size_t field)
{
	uint64_t id;

	memcpy(&id, (const char *)span + field, sizeof(id));
	return id;
}

/* Collects the distinct ids of a field, sorted, in `ids`. Returns their number. */
static size_t collect_ids(uint64_t *ids, const struct span_batch *batch, size_t field)
{
	uint64_t recent[RECENT_IDS];
	size_t all = 0, cnt = 0;

	/*
	 * A step repeats few names, so this cache of recent ids keeps most of them out of the sort.
	 * Each slot starts with an id of another slot, which never matches.
	 */
	for (size_t i = 0; i < RECENT_IDS; i++)
		recent[i] = i + 1;
	for (size_t i = 0; i < batch->cnt; i++) {
		uint64_t id = id_at(&batch->spans[i], field), *slot = &recent[id % RECENT_IDS];

		if (*slot != id)
			*slot = ids[all++] = id;
	}
	qsort(ids, all, sizeof(*ids), compare__u64);
	for (size_t i = 0; i < all; i++)
		if (!cnt || ids[i] != ids[cnt - 1])
			ids[cnt++] = ids[i];
	return cnt;
}

static unsigned char *put_ids(unsigned char *at, uint64_t *ids, const struct span_batch *batch, size_t field)
{
	size_t cnt = collect_ids(ids, batch, field);

	at = put_leb128(at, cnt);
	memcpy(at, ids, cnt * sizeof(*ids));
	at += cnt * sizeof(*ids);
	for (size_t i = 0; i < batch->cnt; i++) {
		uint64_t id = id_at(&batch->spans[i], field), *found;

		found = bsearch(&id, ids, cnt, sizeof(*ids), compare__u64);
		at = put_leb128(at, found - ids);
	}
	return at;
}

/*
 * Is the span's end nearer than its start to the end of the span before? Then the span before lies
 * inside this one.
 */
static bool is_around(const struct rec_span *span, uint64_t before)
{
	return zigzag(rec_span__end_ns(span) - before) < zigzag(span->start_ns - before);
}

static unsigned char *put_times(unsigned char *at, const struct span_batch *batch, uint64_t base)
{
	uint64_t before = base;

	for (size_t i = 0; i < batch->cnt; i++) {
		const struct rec_span *span = &batch->spans[i];

		at = put_leb128(at,
				zigzag((is_around(span, before) ? rec_span__end_ns(span) : span->start_ns) - before));
		before = rec_span__end_ns(span);
	}
	for (size_t i = 0; i < batch->cnt; i++)
		at = put_leb128(at, batch->spans[i].duration_ns);
	return at;
}

static unsigned char *put_tags(unsigned char *at, const struct span_batch *batch, uint64_t base)
{
	uint64_t before = base;

	for (size_t i = 0; i < batch->cnt; i++) {
		const struct rec_span *span = &batch->spans[i];

		at = put_leb128(at, span->kind << TAG_KIND_SHIFT | (span->sequence != -1 ? TAG_SEQUENCE : 0) |
					    (is_around(span, before) ? TAG_AROUND : 0));
		before = rec_span__end_ns(span);
	}
	return at;
}

static unsigned char *put_depths_and_sequences(unsigned char *at, const struct span_batch *batch)
{
	uint64_t before = 0;

	for (size_t i = 0; i < batch->cnt; i++) {
		at = put_leb128(at, zigzag(batch->spans[i].depth - before));
		before = batch->spans[i].depth;
	}
	before = 0;
	for (size_t i = 0; i < batch->cnt; i++) {
		if (batch->spans[i].sequence == -1)
			continue;
		at = put_leb128(at, zigzag(batch->spans[i].sequence - before));
		before = batch->spans[i].sequence;
	}
	return at;
}

static size_t pack_batch(struct spans_encoder *encoder, const struct span_batch *batch, uint64_t base)
{
	unsigned char *at = encoder->plain;

	at = put_tags(at, batch, base);
	at = put_times(at, batch, base);
	at = put_ids(at, encoder->ids, batch, offsetof(struct rec_span, name));
	at = put_ids(at, encoder->ids, batch, offsetof(struct rec_span, group));
	at = put_depths_and_sequences(at, batch);
	return at - encoder->plain;
}

static int flush_batch(struct spans_encoder *encoder, struct span_batch *batch)
{
	struct rec_spans *record = encoder->record;
	uLongf bytes = encoder->record_room;
	size_t plain, size;

	if (!batch->cnt)
		return 0;
	*record = (struct rec_spans){
		.pid = batch->pid, .tid = batch->tid, .span_cnt = batch->cnt, .base_ns = batch->spans[0].start_ns};
	plain = pack_batch(encoder, batch, record->base_ns);
	batch->cnt = 0;
	if (compress2(record->payload, &bytes, encoder->plain, plain, DEFLATE_LEVEL) != Z_OK)
		return -ENOMEM; /* the buffer fits the worst case, so only memory can lack */
	size = (sizeof(*record) + bytes + 7) / 8 * 8;
	memset(record->payload + bytes, 0, size - sizeof(*record) - bytes);
	record->bytes = bytes;
	record->hdr = (struct rec_hdr){.type = REC_SPANS, .size = size};
	return encoder->sink(&record->hdr, encoder->ctx);
}

struct spans_encoder *spans_encoder__new(int (*sink)(const struct rec_hdr *record, void *ctx), void *ctx)
{
	struct spans_encoder *encoder = calloc(1, sizeof(*encoder));

	if (!encoder)
		return NULL;
	encoder->sink = sink;
	encoder->ctx = ctx;
	encoder->record_room = compressBound(PLAIN_MAX);
	encoder->record = malloc(sizeof(*encoder->record) + encoder->record_room + 8);
	if (!encoder->record) {
		free(encoder);
		return NULL;
	}
	return encoder;
}

/*
 * Returns the batch of a thread. When all batches are in use, it flushes the longest and reuses it.
 * NULL with *err.
 */
static struct span_batch *batch_of(struct spans_encoder *encoder, uint32_t pid, uint32_t tid, int *err)
{
	struct span_batch *batch = &encoder->batches[encoder->last];

	if (encoder->batch_cnt && batch->pid == pid && batch->tid == tid)
		return batch;
	batch = NULL;
	for (size_t i = 0; i < encoder->batch_cnt; i++) {
		struct span_batch *other = &encoder->batches[i];

		if (other->pid == pid && other->tid == tid) {
			encoder->last = i;
			return other;
		}
		if (!batch || other->cnt > batch->cnt)
			batch = other;
	}
	if (encoder->batch_cnt == BATCH_MAX) {
		*err = flush_batch(encoder, batch);
	} else {
		batch = &encoder->batches[encoder->batch_cnt];
		batch->spans = malloc(SPANS_MAX * sizeof(*batch->spans));
		if (!batch->spans) {
			*err = -ENOMEM;
			return NULL;
		}
		encoder->batch_cnt++;
	}
	batch->pid = pid;
	batch->tid = tid;
	encoder->last = batch - encoder->batches;
	return batch;
}

int spans_encoder__add(struct spans_encoder *encoder, const struct rec_span *span)
{
	int err = 0, full;
	struct span_batch *batch = batch_of(encoder, span->pid, span->tid, &err);

	if (!batch)
		return err;
	batch->spans[batch->cnt++] = *span;
	full = batch->cnt == SPANS_MAX ? flush_batch(encoder, batch) : 0;
	return err ? err : full;
}

int spans_encoder__flush(struct spans_encoder *encoder)
{
	int err = 0;

	for (size_t i = 0; i < encoder->batch_cnt; i++) {
		int got = flush_batch(encoder, &encoder->batches[i]);

		err = err ? err : got;
		free(encoder->batches[i].spans);
		encoder->batches[i].spans = NULL;
	}
	encoder->batch_cnt = 0;
	encoder->last = 0;
	return err;
}

void spans_encoder__free(struct spans_encoder *encoder)
{
	if (!encoder)
		return;
	for (size_t i = 0; i < encoder->batch_cnt; i++)
		free(encoder->batches[i].spans);
	free(encoder->record);
	free(encoder);
}

/* ---- unpacking ---- */

struct span_input {
	const unsigned char *at, *end;
	bool bad; /* the input ended early, or a value is impossible */
};

static uint64_t span_input__get(struct span_input *in)
{
	uint64_t value = 0;

	for (int shift = 0; shift < 7 * VARINT_MAX && in->at < in->end; shift += 7) {
		unsigned char byte = *in->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
	in->bad = true;
	return 0;
}

static void span_input__get_ids(struct span_input *in, struct rec_span *spans, size_t span_cnt, size_t field)
{
	uint64_t cnt = span_input__get(in);
	const unsigned char *ids = in->at;

	if (in->bad || cnt > (size_t)(in->end - ids) / sizeof(uint64_t)) {
		in->bad = true;
		return;
	}
	in->at += cnt * sizeof(uint64_t);
	for (size_t i = 0; i < span_cnt && !in->bad; i++) {
		uint64_t index = span_input__get(in);

		if (index < cnt)
			memcpy((char *)&spans[i] + field, ids + index * sizeof(uint64_t), sizeof(uint64_t));
		else
			in->bad = true;
	}
}

/* Each column is one loop, so a span holds what the loops of later columns need. */
static void span_input__get_times(struct span_input *in, struct rec_span *spans, size_t cnt, uint64_t base)
{
	uint64_t before = base;

	for (size_t i = 0; i < cnt; i++)
		spans[i].start_ns = unzigzag(span_input__get(in));
	for (size_t i = 0; i < cnt; i++) {
		struct rec_span *span = &spans[i];

		span->duration_ns = span_input__get(in);
		span->start_ns += before;
		if (span->pad & TAG_AROUND)
			span->start_ns -= span->duration_ns;
		before = rec_span__end_ns(span);
	}
}

static void span_input__get_depths_and_sequences(struct span_input *in, struct rec_span *spans, size_t cnt)
{
	uint64_t before = 0;

	for (size_t i = 0; i < cnt; i++) {
		before += unzigzag(span_input__get(in));
		spans[i].depth = before;
	}
	before = 0;
	for (size_t i = 0; i < cnt; i++) {
		if (spans[i].pad & TAG_SEQUENCE)
			before += unzigzag(span_input__get(in));
		spans[i].sequence = spans[i].pad & TAG_SEQUENCE ? (int64_t)before : -1;
		spans[i].pad = 0;
	}
}

static bool unpack_spans(const struct rec_spans *record, struct span_input *in, struct rec_span *spans)
{
	size_t cnt = record->span_cnt;

	for (size_t i = 0; i < cnt; i++) {
		uint64_t tag = span_input__get(in);

		spans[i] = (struct rec_span){.hdr = {.type = REC_SPAN, .size = sizeof(*spans)},
					     .pid = record->pid,
					     .tid = record->tid,
					     .kind = tag >> TAG_KIND_SHIFT,
					     .pad = tag & (TAG_SEQUENCE | TAG_AROUND)};
		if (tag >> TAG_KIND_SHIFT > UINT16_MAX)
			in->bad = true;
	}
	span_input__get_times(in, spans, cnt, record->base_ns);
	span_input__get_ids(in, spans, cnt, offsetof(struct rec_span, name));
	span_input__get_ids(in, spans, cnt, offsetof(struct rec_span, group));
	span_input__get_depths_and_sequences(in, spans, cnt);
	return !in->bad && in->at == in->end;
}

int spans__decode(const struct rec_spans *record, struct rec_span *out, size_t *cnt)
{
	uLongf plain_bytes = PLAIN_MAX;
	unsigned char *plain;
	int err = -EBADMSG, got;

	*cnt = 0;
	if (record->span_cnt > SPANS_MAX || record->bytes > record->hdr.size - sizeof(*record))
		return err;
	plain = malloc(PLAIN_MAX);
	if (!plain)
		return -ENOMEM;
	/* A full buffer stops the inflation of data that would exceed it. */
	got = uncompress(plain, &plain_bytes, record->payload, record->bytes);
	if (got == Z_MEM_ERROR) {
		err = -ENOMEM;
	} else if (got == Z_OK) {
		struct span_input in = {.at = plain, .end = plain + plain_bytes};

		if (unpack_spans(record, &in, out)) {
			*cnt = record->span_cnt;
			err = 0;
		}
	}
	free(plain);
	return err;
}
