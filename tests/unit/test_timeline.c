// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The timeline: what nests becomes a track, what does not another one, and a node is linked to the operator that made
 * it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/analysis/timeline/timeline.h"
#include "user/recording/spans.h"

static int add_record(const struct rec_hdr *record, void *timeline)
{
	return timeline__add(timeline, record);
}

static struct timeline *build(size_t span_max, const struct rec_span *spans, size_t cnt)
{
	struct timeline *timeline = timeline__new(span_max);
	struct spans_encoder *encoder = spans_encoder__new(add_record, timeline);

	for (size_t i = 0; i < cnt; i++)
		assert_int_equal(spans_encoder__add(encoder, &spans[i]), 0);
	assert_int_equal(spans_encoder__flush(encoder), 0);
	spans_encoder__free(encoder);
	assert_int_equal(timeline__build(timeline), 0);
	return timeline;
}

static struct rec_span make(enum span_kind kind, uint32_t tid, uint64_t start, uint64_t end, int64_t sequence)
{
	return (struct rec_span){.pid = 1,
				 .tid = tid,
				 .start_ns = start,
				 .duration_ns = end - start,
				 .name = 1,
				 .sequence = sequence,
				 .kind = kind};
}

#define BUILD(span_max, spans) build(span_max, spans, sizeof(spans) / sizeof(*(spans)))

static void test_tracks(void **state)
{
	const struct rec_span spans[] = {
		make(SPAN_OP, 7, 20, 30, -1),     make(SPAN_OP, 7, 30, 40, -1),      make(SPAN_ACTION, 7, 10, 50, -1),
		make(SPAN_STEP, 7, 0, 45, 3),     make(SPAN_FORWARD, 7, 12, 35, -1), make(SPAN_ACTION, 7, 48, 60, -1),
		make(SPAN_ACTION, 3, 0, 100, -1),
	};
	struct timeline *timeline = BUILD(100, spans);
	size_t cnt;
	const struct timeline_track *tracks = timeline__tracks(timeline, &cnt);

	assert_int_equal(cnt, 3);
	assert_int_equal(tracks[0].tid, 3);
	assert_int_equal(tracks[1].span_cnt, 3);
	assert_int_equal(tracks[1].spans[0].start_ns, 10);
	assert_int_equal(tracks[1].spans[0].depth, 0);
	assert_int_equal(tracks[1].spans[2].depth, 1);
	assert_int_equal(tracks[2].lane, 1);
	assert_int_equal(tracks[2].span_cnt, 3);
	assert_int_equal(tracks[2].spans[0].sequence, 3);
	assert_int_equal(tracks[2].spans[1].depth, 1);
	assert_int_equal(tracks[2].spans[2].start_ns, 48);
	assert_int_equal(tracks[2].spans[2].depth, 0);
	assert_int_equal(timeline__left_out(timeline), 0);
	timeline__free(timeline);
}

static void test_flows(void **state)
{
	const struct rec_span
		spans[] =
			{
				make(SPAN_OP, 7, 11, 18, 5), /* inside the next one, begins last: the maker of node 5 */
				make(SPAN_OP, 7, 10, 20, 5),   make(SPAN_OP, 7, 30, 40, 6),
				make(SPAN_NODE, 9, 52, 58, 5), make(SPAN_EVALUATE, 9, 50, 60, 5),
				make(SPAN_NODE, 9, 62, 68, 5), /* a second pass: the operator has its node already */
				make(SPAN_NODE, 9, 70, 80, 7), /* made before the window */
				make(SPAN_OP, 7, 90, 95, 7),
			};
	struct timeline *timeline = BUILD(100, spans);
	size_t cnt;
	const struct timeline_track *tracks = timeline__tracks(timeline, &cnt);
	const struct timeline_span *forward = tracks[0].spans, *backward = tracks[1].spans;

	assert_int_equal(cnt, 2);
	assert_int_equal(forward[0].flow, 0);
	assert_int_equal(forward[1].flow, 1);
	assert_int_equal(backward[0].flow, 0);
	assert_int_equal(backward[0].forward_tid, 7);
	assert_int_equal(backward[1].flow, 1);
	assert_int_equal(backward[1].forward_tid, 7);
	assert_int_equal(forward[2].flow + forward[3].flow + backward[2].flow + backward[3].flow, 0);
	timeline__free(timeline);
}

/* Two threads with the same numbers, and a third that runs the nodes of one of them. */
static void test_flows_of_threads(void **state)
{
	const struct rec_span spans[] = {
		make(SPAN_OP, 7, 10, 20, 5),   make(SPAN_OP, 8, 15, 25, 5),   make(SPAN_OP, 8, 26, 28, 6),
		make(SPAN_NODE, 7, 40, 45, 5), make(SPAN_NODE, 8, 30, 35, 5), make(SPAN_NODE, 9, 50, 55, 6),
	};
	struct timeline *timeline = BUILD(100, spans);
	size_t cnt;
	const struct timeline_track *tracks = timeline__tracks(timeline, &cnt);

	assert_int_equal(cnt, 3);
	for (size_t i = 0; i < 2; i++) {
		const struct timeline_span *own = tracks[i].spans, *node = &own[tracks[i].span_cnt - 1];

		assert_int_not_equal(own->flow, 0);
		assert_int_equal(own->flow, node->flow);
		assert_int_equal(node->forward_tid, tracks[i].tid);
	}
	assert_int_equal(tracks[2].spans[0].flow, tracks[1].spans[1].flow);
	assert_int_equal(tracks[2].spans[0].forward_tid, 8);
	timeline__free(timeline);
}

static void test_bounds(void **state)
{
	enum { CNT = 2 * TIMELINE_DEPTH_MAX };
	struct rec_spans malformed = {.hdr = {.type = REC_SPANS, .size = sizeof(malformed)}, .span_cnt = 5};
	struct rec_hdr short_record = {.type = REC_SPANS, .size = sizeof(short_record)};
	struct rec_span *spans = calloc(CNT, sizeof(*spans));
	struct timeline *timeline;
	size_t cnt, kept = 0;
	const struct timeline_track *tracks;

	for (size_t i = 0; i < CNT; i++)
		spans[i] = make(SPAN_OP, 7, CNT - i, CNT + i, -1);
	timeline = build(CNT - 10, spans, CNT);
	tracks = timeline__tracks(timeline, &cnt);
	for (size_t t = 0; t < cnt; t++)
		for (size_t i = 0; i < tracks[t].span_cnt; i++, kept++)
			assert_true(tracks[t].spans[i].depth < TIMELINE_DEPTH_MAX);
	assert_int_equal(kept, CNT - 10);
	assert_int_equal(timeline__left_out(timeline), 10);
	timeline__free(timeline);

	spans[0].kind = SPAN_NONE;
	spans[1].kind = SPAN__COUNT;
	spans[2].duration_ns = UINT64_MAX;
	timeline = timeline__new(10);
	assert_int_equal(timeline__add(timeline, &malformed.hdr), 0);
	assert_int_equal(timeline__add(timeline, &short_record), 0);
	assert_int_equal(timeline__left_out(timeline), 2);
	timeline__free(timeline);
	timeline = build(CNT, spans, 4);
	assert_int_equal(timeline__left_out(timeline), 3);
	timeline__free(timeline);
	timeline__free(NULL);
	free(spans);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tracks),
		cmocka_unit_test(test_flows),
		cmocka_unit_test(test_flows_of_threads),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
