// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Spans of the timeline: the input is what a REC_SPANS inflates to, behind its count. What can be unpacked is packed and
 * unpacked again, and becomes tracks, whose spans must nest, and a trace.
 */
#include <jansson.h>
#include <zlib.h>

#include "tests/fuzz/fuzz.h"
#include "user/export/export.h"
#include "user/export/ranks.h"
#include "user/recording/spans.h"

#define PLAIN_MAX 65536

static struct rec_span spans[SPANS_MAX], again[SPANS_MAX];

struct sums {
	size_t cnt;
	uint64_t ns, names;
};

static void add_sums(struct sums *sums, const struct rec_span *span, size_t cnt)
{
	sums->cnt += cnt;
	for (size_t i = 0; i < cnt; i++) {
		sums->ns += span[i].duration_ns;
		sums->names += span[i].name ^ span[i].group ^ (uint64_t)span[i].sequence;
	}
}

static int unpack_again(const struct rec_hdr *record, void *ctx)
{
	size_t cnt;

	FUZZ_CHECK(record->type == REC_SPANS && !spans__decode((const void *)record, again, &cnt));
	add_sums(ctx, again, cnt);
	return 0;
}

static void check_tracks(const struct timeline *timeline)
{
	size_t cnt;
	const struct timeline_track *tracks = timeline__tracks(timeline, &cnt);

	for (size_t i = 0; i < cnt; i++)
		for (size_t k = 1; k < tracks[i].span_cnt; k++) {
			const struct timeline_span *last = &tracks[i].spans[k - 1], *span = last + 1;

			FUZZ_CHECK(last->start_ns <= span->start_ns);
			FUZZ_CHECK(span->start_ns - last->start_ns >= last->duration_ns ||
				   span->start_ns - last->start_ns + span->duration_ns <= last->duration_ns);
		}
}

static void export_timeline(struct timeline *timeline)
{
	const struct export_ranks ranks = {0};
	const struct export_options options = {.name = "fuzz", .ranks = &ranks};
	const struct export_ops *formats[] = {&export_chrome, &export_perfetto};
	struct job *job = job__new();

	for (size_t i = 0; i < 2; i++) {
		char *text = NULL;
		size_t bytes;
		FILE *out = open_memstream(&text, &bytes);
		json_t *json;

		FUZZ_CHECK(!formats[i]->write(job, timeline, &options, out) && !fclose(out));
		if (formats[i] == &export_chrome) {
			json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
			FUZZ_CHECK(json);
			json_decref(json);
		}
		free(text);
	}
	job__free(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t buffer[(sizeof(struct rec_spans) + 2 * PLAIN_MAX) / 8];
	struct rec_spans *record = (void *)buffer;
	uLongf packed_bytes = 2 * PLAIN_MAX - 8;
	struct spans_encoder *encoder;
	struct timeline *timeline;
	struct sums before = {0}, after = {0};
	size_t cnt;

	if (size < 2 || size > PLAIN_MAX || compress2(record->payload, &packed_bytes, data + 2, size - 2, 0) != Z_OK)
		return 0;
	*record = (struct rec_spans){.hdr = {.type = REC_SPANS},
				     .pid = 1,
				     .tid = 1,
				     .span_cnt = data[0] | data[1] << 8,
				     .bytes = packed_bytes,
				     .base_ns = 1u << 30};
	record->hdr.size = (sizeof(*record) + packed_bytes + 7) & ~7u;
	if (spans__decode(record, spans, &cnt))
		return 0;
	add_sums(&before, spans, cnt);
	encoder = spans_encoder__new(unpack_again, &after);
	for (size_t i = 0; i < cnt; i++)
		FUZZ_CHECK(!spans_encoder__add(encoder, &spans[i]));
	FUZZ_CHECK(!spans_encoder__flush(encoder) && !memcmp(&before, &after, sizeof(before)));
	spans_encoder__free(encoder);
	timeline = timeline__new(SPANS_MAX);
	FUZZ_CHECK(!timeline__add(timeline, &record->hdr) && !timeline__build(timeline));
	check_tracks(timeline);
	export_timeline(timeline);
	timeline__free(timeline);
	return 0;
}
