// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Packed steps: what comes back is what went in, within the promised bounds; sums do not drift; hostile blocks do no harm. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/recording/step_blocks.h"

#define MS 1000000ull

static uint64_t seed = 1;

static uint64_t chance(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

/* ---- what comes out ---- */

struct sink {
	uint64_t bytes, blocks, raw;
	struct rec_step *steps;
	size_t cnt, room;
	struct rec_steps *block; /* the last one */
};

static void keep(struct sink *sink, const struct rec_step *step)
{
	if (sink->cnt == sink->room) {
		sink->room = sink->room ? 2 * sink->room : 4096;
		sink->steps = realloc(sink->steps, sink->room * sizeof(*sink->steps));
	}
	sink->steps[sink->cnt++] = *step;
}

static int take(const struct rec_hdr *record, void *ctx)
{
	static struct rec_step steps[STEP_BLOCK_MAX];
	struct sink *sink = ctx;
	size_t cnt;

	assert_int_equal(record->size % 8, 0);
	sink->bytes += record->size;
	if (record->type == REC_STEP) {
		sink->raw++;
		keep(sink, (const void *)record);
		return 0;
	}
	assert_int_equal(record->type, REC_STEPS);
	sink->blocks++;
	assert_int_equal(steps__decode(record, steps, &cnt), 0);
	for (size_t i = 0; i < cnt; i++)
		keep(sink, &steps[i]);
	sink->block = realloc(sink->block, record->size);
	memcpy(sink->block, record, record->size);
	return 0;
}

static void sink__release(struct sink *sink)
{
	free(sink->steps);
	free(sink->block);
}

/* ---- what goes in ---- */

static void set_step(struct rec_step *step, const struct rec_step *before, const uint64_t *phases)
{
	*step = (struct rec_step){.hdr = {.type = REC_STEP, .size = sizeof(*step)},
				  .time_ns = before ? before->time_ns : 1000 * MS,
				  .index = before ? before->index + 1 : 1,
				  .pid = 7,
				  .tid = 8,
				  .rule = STEP_LOADER_OPTIMIZER,
				  .serial = before ? before->serial + 1 : 1};
	for (int p = 0; p < PHASE__COUNT; p++) {
		step->phase_ns[p] = phases[p];
		step->time_ns += phases[p];
	}
}

/* About ns, as measured on a machine that does other things too: a narrow peak, and a long tail. */
static uint64_t noisy(uint64_t ns)
{
	uint64_t noise = 0;

	for (int i = 0; i < 4; i++)
		noise += chance(ns / 50 + 1);
	return ns + noise - ns / 25 + (chance(20) ? 0 : chance(ns));
}

static void make_step(struct rec_step *step, const struct rec_step *before, uint64_t ns)
{
	uint64_t phases[PHASE__COUNT] = {[PHASE_OTHER] = noisy(ns / 14),
					 [PHASE_DATA] = noisy(ns / 14),
					 [PHASE_FORWARD] = noisy(ns * 3 / 8),
					 [PHASE_BACKWARD] = noisy(ns * 2 / 7),
					 [PHASE_OPTIMIZER] = noisy(ns * 3 / 16)};

	set_step(step, before, phases);
	step->forward_ns = before && before->forward_ns ? step->phase_ns[PHASE_OTHER] / 2 : 0;
}

static void add(struct step_packer *packer, const struct rec_step *steps, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		assert_int_equal(step_packer__add(packer, &steps[i].hdr), 0);
}

static void pack(const struct rec_step *steps, size_t cnt, struct sink *sink)
{
	struct step_packer *packer = step_packer__new(take, sink);

	*sink = (struct sink){0};
	add(packer, steps, cnt);
	assert_int_equal(step_packer__flush(packer), 0);
	step_packer__free(packer);
	assert_int_equal(sink->cnt, cnt);
}

static uint64_t difference(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* As step_blocks.h says. */
static void check(const struct rec_step *steps, const struct sink *sink)
{
	int64_t drift[PHASE__COUNT] = {0};

	for (size_t i = 1; i < sink->cnt; i++) {
		const struct rec_step *was = &steps[i], *is = &sink->steps[i];
		uint64_t ns = was->time_ns - was[-1].time_ns, sum = 0, others = 0;

		assert_int_equal(is->serial, was->serial);
		assert_int_equal(is->index, was->index);
		assert_int_equal(is->rule, was->rule);
		assert_true(is->time_ns <= was->time_ns && was->time_ns - is->time_ns <= ns / STEP_FINENESS);
		assert_true(difference(is->time_ns - is[-1].time_ns, ns) <= ns / STEP_FINENESS);
		for (int p = 0; p < PHASE__COUNT; p++) {
			uint64_t off = difference(is->phase_ns[p], was->phase_ns[p]);

			sum += is->phase_ns[p];
			drift[p] += is->phase_ns[p] - was->phase_ns[p];
			others += off > ns * STEP_COARSER / STEP_FINENESS * (p == PHASE_OTHER ? 2 : 1);
			assert_true(off <= ns * (STEP_PARTS - 1) * STEP_COARSER / STEP_FINENESS);
			assert_true(llabs(drift[p]) <= (long long)(4 * MS));
			assert_true(was->phase_ns[p] || !is->phase_ns[p]);
		}
		assert_true(others <= 1);
		assert_int_equal(sum, is->time_ns - is[-1].time_ns);
		assert_true(is->forward_ns <= is->phase_ns[PHASE_OTHER]);
		if (ns >= STEP_EXACT_NS)
			assert_memory_equal(is, was, sizeof(*is));
	}
}

/* ---- tests ---- */

static void test_small_and_right(void **state)
{
	size_t cnt = 20000;
	struct rec_step *steps = calloc(cnt, sizeof(*steps));
	struct sink sink;

	for (size_t i = 0; i < cnt; i++)
		make_step(&steps[i], i ? &steps[i - 1] : NULL, 400000);
	pack(steps, cnt, &sink);
	check(steps, &sink);
	assert_int_equal(sink.raw, 0);
	assert_true(sink.bytes < 3 * cnt); /* noise of all its phases alike: it takes more than a real loop's */
	assert_memory_equal(&sink.steps[cnt - 1].time_ns, &steps[cnt - 1].time_ns, 8);
	sink__release(&sink);
	free(steps);
}

/* Those of 0.4 ms, with some of any duration among them, and a forward. */
static void test_mixed(void **state)
{
	static const uint64_t kinds[] = {400000, 400000, 400000, 400000, 3000, 90000, 2 * MS, 6 * MS, 300 * MS, 20};
	struct rec_step *steps = calloc(30000, sizeof(*steps));
	struct sink sink;

	for (size_t i = 0; i < 30000; i++)
		make_step(&steps[i], i ? &steps[i - 1] : NULL, kinds[chance(i < 10000 ? 4 : 10)]);
	for (size_t i = 5000; i < 15000; i++)
		steps[i].forward_ns = steps[i].phase_ns[PHASE_OTHER] - chance(steps[i].phase_ns[PHASE_OTHER] / 8 + 1);
	pack(steps, 30000, &sink);
	check(steps, &sink);
	sink__release(&sink);
	free(steps);
}

/* What few steps have, long ones and short ones, no other step has: a compile, a collection. */
static void test_rare_phases(void **state)
{
	struct rec_step *steps = calloc(5000, sizeof(*steps));
	uint64_t was = 0, is = 0;
	struct sink sink;

	for (size_t i = 0; i < 5000; i++) {
		make_step(&steps[i], i ? &steps[i - 1] : NULL, 400000);
		if (i % 10 == 7) {
			steps[i].phase_ns[PHASE_COMPILE] = i % 100 == 7 ? 90 * MS + chance(MS) : 20000 + chance(30000);
			steps[i].time_ns += steps[i].phase_ns[PHASE_COMPILE];
		}
		was += steps[i].phase_ns[PHASE_COMPILE];
	}
	pack(steps, 5000, &sink);
	check(steps, &sink);
	for (size_t i = 0; i < 5000; i++)
		is += sink.steps[i].phase_ns[PHASE_COMPILE];
	assert_int_equal(is, was);
	sink__release(&sink);
	free(steps);
}

static void test_slow_are_exact(void **state)
{
	struct rec_step steps[200];
	struct sink sink;

	for (size_t i = 0; i < 200; i++)
		make_step(&steps[i], i ? &steps[i - 1] : NULL, 20 * MS);
	pack(steps, 200, &sink);
	assert_memory_equal(sink.steps, steps, sizeof(steps));
	assert_true(sink.blocks >= 3 && !sink.raw && sink.bytes < sizeof(steps) / 6);
	sink__release(&sink);
}

/* Also where the part that takes what the others leave is often not there. */
static void test_no_drift(void **state)
{
	struct step_packer *packer;
	struct rec_step step, before;
	uint64_t phases[PHASE__COUNT], was[PHASE__COUNT] = {0}, is[PHASE__COUNT] = {0};
	struct sink sink = {0};
	size_t cnt = 0;

	packer = step_packer__new(take, &sink);
	for (size_t i = 0; i < 2000000; i++) {
		for (int p = 0; p < PHASE__COUNT; p++)
			phases[p] = p < 4 && (p != 2 || i % 3) ? 40000 + chance(3000) + 50000 * (p == 2) : 0;
		set_step(&step, i ? &before : NULL, phases);
		for (int p = 0; p < PHASE__COUNT; p++)
			was[p] += phases[p];
		assert_int_equal(step_packer__add(packer, &step.hdr), 0);
		before = step;
		cnt += sink.cnt;
		for (size_t k = 0; k < sink.cnt; k++)
			for (int p = 0; p < PHASE__COUNT; p++)
				is[p] += sink.steps[k].phase_ns[p];
		sink.cnt = 0;
	}
	assert_int_equal(step_packer__flush(packer), 0);
	for (size_t k = 0; k < sink.cnt; k++)
		for (int p = 0; p < PHASE__COUNT; p++)
			is[p] += sink.steps[k].phase_ns[p];
	assert_int_equal(cnt + sink.cnt, 2000000);
	assert_int_equal(sink.steps[sink.cnt - 1].time_ns, step.time_ns);
	for (int p = 0; p < PHASE__COUNT; p++)
		assert_true(difference(is[p], was[p]) < 10000);
	step_packer__free(packer);
	sink__release(&sink);
}

/* A merge packs steps again. */
static void test_packed_again(void **state)
{
	static struct rec_step steps[9000];
	struct sink once, twice;

	for (size_t i = 0; i < 9000; i++)
		make_step(&steps[i], i ? &steps[i - 1] : NULL, 400000);
	pack(steps, 9000, &once);
	pack(once.steps, 9000, &twice);
	for (size_t i = 1; i < 9000; i++)
		assert_true(difference(twice.steps[i].time_ns, steps[i].time_ns) <=
			    2 * (steps[i].time_ns - steps[i - 1].time_ns) / STEP_FINENESS);
	assert_int_equal(twice.steps[8999].time_ns, steps[8999].time_ns);
	sink__release(&once);
	sink__release(&twice);
}

/* What does not fit comes as it went. */
static void test_odd(void **state)
{
	struct rec_step steps[70];
	struct sink sink;

	for (size_t i = 0; i < 70; i++)
		make_step(&steps[i], i ? &steps[i - 1] : NULL, 10 * MS);
	steps[10].hdr.flags = REC_ENDED;
	steps[20].forward_ns = steps[20].phase_ns[PHASE_OTHER] + 1;
	steps[30].phase_ns[PHASE_DATA] = UINT64_MAX;
	steps[31].phase_ns[PHASE_DATA] = UINT64_MAX / 2;
	steps[35].time_ns = 0;
	steps[40].rule = STEP_BACKWARD;
	steps[45].index += 2;
	for (size_t i = 50; i < 70; i++)
		steps[i].serial += 5;
	steps[55].phase_ns[PHASE_DATA]++;
	steps[60].time_ns = UINT64_MAX;
	pack(steps, 70, &sink);
	assert_memory_equal(sink.steps, steps, sizeof(steps));
	assert_true(sink.raw >= 7 && sink.blocks >= 3);
	sink__release(&sink);
}

/* More threads than are packed at a time; each has all its steps in the end. */
static void test_threads(void **state)
{
	enum { THREADS = 100, STEPS = 60 };
	static struct rec_step steps[THREADS][STEPS];
	struct sink sink = {0};
	struct step_packer *packer = step_packer__new(take, &sink);
	size_t next[THREADS] = {0};

	for (int k = 0; k < STEPS; k++) {
		for (int t = 0; t < THREADS; t++) {
			make_step(&steps[t][k], k ? &steps[t][k - 1] : NULL, 10 * MS);
			steps[t][k].tid = 100 + t;
			add(packer, &steps[t][k], 1);
		}
	}
	assert_int_equal(step_packer__flush(packer), 0);
	assert_int_equal(sink.cnt, THREADS * STEPS);
	for (size_t i = 0; i < sink.cnt; i++) {
		uint32_t t = sink.steps[i].tid - 100;

		assert_memory_equal(&sink.steps[i], &steps[t][next[t]++], sizeof(sink.steps[i]));
	}
	step_packer__free(packer);
	sink__release(&sink);
}

static int fails(const struct rec_hdr *record, void *ctx)
{
	return -ENOSPC;
}

static void test_error_of_sink(void **state)
{
	struct step_packer *packer = step_packer__new(fails, NULL);
	struct rec_step steps[10];

	for (size_t i = 0; i < 10; i++)
		make_step(&steps[i], i ? &steps[i - 1] : NULL, 400000);
	add(packer, steps, 10);
	assert_int_equal(step_packer__flush(packer), -ENOSPC);
	step_packer__free(packer);
	step_packer__free(NULL);
}

/* ---- hostile ---- */

static void make_block(struct sink *sink)
{
	static struct rec_step steps[300];

	for (size_t i = 0; i < 300; i++)
		make_step(&steps[i], i ? &steps[i - 1] : NULL, 400000);
	pack(steps, 300, sink);
}

static void test_impossible(void **state)
{
	static struct rec_step out[STEP_BLOCK_MAX];
	struct sink sink;
	struct rec_steps was;
	size_t cnt;

	make_block(&sink);
	was = *sink.block;
#define REFUSED(change)                                                                 \
	do {                                                                            \
		sink.block->change;                                                     \
		assert_int_equal(steps__decode(&sink.block->hdr, out, &cnt), -EBADMSG); \
		assert_int_equal(cnt, 0);                                               \
		memcpy(sink.block, &was, sizeof(was));                                  \
	} while (0)
	REFUSED(hdr.size = sizeof(was) - 8);
	REFUSED(hdr.size = 8);
	REFUSED(step_cnt = STEP_BLOCK_MAX + 1);
	REFUSED(step_cnt = UINT32_MAX);
	REFUSED(step_cnt = was.bytes + 1);
	REFUSED(bytes = was.hdr.size);
	REFUSED(bytes = UINT32_MAX);
	REFUSED(bytes = 4);
	REFUSED(parts |= 1u << STEP_PARTS);
	REFUSED(parts = 0);
	REFUSED(rest = STEP_PARTS);
	REFUSED(rest = UINT32_MAX);
	REFUSED(bytes = 301); /* ends early */
	assert_int_equal(steps__decode(&sink.block->hdr, out, &cnt), 0);
	assert_int_equal(cnt, 300);
	sink__release(&sink);
}

/* Any bytes: refused, or steps that add up. */
static void test_fuzz(void **state)
{
	static struct rec_step out[STEP_BLOCK_MAX];
	struct sink sink;
	size_t cnt, sound = 0;

	make_block(&sink);
	for (int turn = 0; turn < 20000; turn++) {
		size_t size = sink.block->hdr.size;
		unsigned char *copy = malloc(size);

		memcpy(copy, sink.block, size);
		for (uint64_t n = 1 + chance(8); n; n--)
			copy[sizeof(struct rec_hdr) + chance(size - sizeof(struct rec_hdr))] = chance(256);
		if (turn % 2)
			((struct rec_steps *)copy)->step_cnt = 1 + chance(20);
		if (turn % 2)
			for (size_t i = sizeof(struct rec_steps); i < size; i++)
				copy[i] = chance(turn % 4 > 1 ? 256 : 2);
		if (!steps__decode((const void *)copy, out, &cnt))
			sound++;
		for (size_t i = 0; i < cnt; i++) {
			uint64_t sum = 0;

			for (int p = 0; p < PHASE__COUNT; p++)
				sum += out[i].phase_ns[p];
			assert_true(sum < (uint64_t)STEP_PARTS << STEP_PART_BITS);
			assert_true(!i || out[i].time_ns - out[i - 1].time_ns == sum);
		}
		free(copy);
	}
	assert_true(sound > 100 && sound < 20000);
	sink__release(&sink);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_and_right),
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_rare_phases),
		cmocka_unit_test(test_slow_are_exact),
		cmocka_unit_test(test_no_drift),
		cmocka_unit_test(test_packed_again),
		cmocka_unit_test(test_odd),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_error_of_sink),
		cmocka_unit_test(test_impossible),
		cmocka_unit_test(test_fuzz),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
