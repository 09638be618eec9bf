// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which boundaries end steps: by which rule, of which thread, and what is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/build_job.h"
#include "user/analysis/steps/steps.h"
#include "user/model/boundaries.h"
#include "user/model/processes.h"
#include "user/model/samples.h"

#define MS 1000000ull

enum { PID = 7, TID = 8, OTHER_TID = 9 };

/* A thread that makes boundaries; what it does since the last one is in `other` and `backward`. */
struct maker {
	__u32 tid, serial;
	__u64 index[STEP__COUNT];
	__u64 last_ns;
};

static struct {
	bool cleared; /* a zero_grad is before the next boundary */
	struct job *job;
	struct maker makers[2];
	struct steps *steps;
} made;

static int setup(void **state)
{
	(void)state;
	made.job = job__new();
	made.cleared = false;
	made.makers[0] = (struct maker){.tid = TID};
	made.makers[1] = (struct maker){.tid = OTHER_TID};
	made.steps = NULL;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	steps__free(made.steps);
	job__free(made.job);
	return 0;
}

/* The next boundary of a thread; `lost`: it is not in the recording. */
static void boundary(struct maker *maker, __u64 time_ns, enum step_rule rule, bool lost)
{
	struct rec_step record = {.hdr = {.type = REC_STEP, .size = sizeof(record)},
				  .time_ns = time_ns,
				  .index = ++maker->index[rule],
				  .pid = PID,
				  .tid = maker->tid,
				  .serial = ++maker->serial,
				  .rule = rule};
	__u64 ns = maker->last_ns ? time_ns - maker->last_ns : 0;

	record.phase_ns[PHASE_OPTIMIZER] = made.cleared ? 1000 : 0;
	record.phase_ns[PHASE_OTHER] = ns / 4 - record.phase_ns[PHASE_OPTIMIZER];
	record.phase_ns[PHASE_BACKWARD] = ns - ns / 4;
	maker->last_ns = time_ns;
	if (!lost)
		assert_int_equal(add_copy(made.job, &record), 0);
}

static void at(__u64 time_ms, enum step_rule rule)
{
	boundary(&made.makers[0], time_ms * MS, rule, false);
}

static void other_at(__u64 time_ms, enum step_rule rule)
{
	boundary(&made.makers[1], time_ms * MS, rule, false);
}

/* What the job says; its steps follow each other from start_ms, 0: with holes; each of length_ms. NULL: there are none. */
static const struct step_track *expect(uint32_t rule, __u64 cnt, __u64 start_ms, __u64 length_ms, __u64 lost)
{
	const struct step_track *track;
	size_t track_cnt;

	steps__free(made.steps);
	made.steps = steps__new(made.job);
	track = steps__tracks(made.steps, &track_cnt);
	assert_int_equal(track_cnt, cnt > 0);
	if (!cnt)
		return NULL;
	assert_int_equal(track->rule, rule);
	assert_int_equal(track->step_cnt, cnt);
	assert_int_equal(track->lost, lost);
	for (size_t i = 0; i < track->step_cnt; i++) {
		assert_int_equal(step__ns(&track->steps[i]), length_ms * MS);
		if (!start_ms)
			continue;
		assert_int_equal(track->steps[i].start_ns, (start_ms + i * length_ms) * MS);
		assert_int_equal(track->steps[i].phase_ns[PHASE_OTHER] + track->steps[i].phase_ns[PHASE_BACKWARD] +
					 track->steps[i].phase_ns[PHASE_OPTIMIZER],
				 length_ms * MS);
	}
	assert_int_equal(track->misfit_ns, 0);
	return track;
}

static void expect_window(__u64 steps, uint32_t rule)
{
	uint64_t found;
	uint32_t found_rule;

	boundaries__count(made.job, &found, &found_rule);
	assert_int_equal(found, steps);
	assert_int_equal(found_rule, rule);
}

/* A DataLoader, backward, an optimizer: one boundary by each worse rule before the best shows. */
static void test_plain(void **state)
{
	at(10, STEP_LOADER);
	at(14, STEP_BACKWARD);
	for (__u64 i = 0; i < 10; i++)
		at(15 + 10 * i, STEP_LOADER_OPTIMIZER);
	expect(STEP_LOADER_OPTIMIZER, 9, 15, 10, 0);
	expect_window(10, STEP_LOADER_OPTIMIZER);
}

/* Backwards at 10 ms, 20 ms, ...; a zero_grad is behind each `every`th; the first boundary has had one before. */
static void accumulate(__u64 cnt, __u64 every, __u64 lost)
{
	for (__u64 i = 1; i <= cnt; i++) {
		made.cleared = i % every == 1 || every == 1;
		boundary(&made.makers[0], 10 * i * MS, STEP_BACKWARD, i == lost);
	}
}

/* By hand: gradients are cleared behind each 4th backward, which ends the step. */
static void test_cleared_after_four(void **state)
{
	const struct step_track *track;

	accumulate(41, 4, 0);
	track = expect(STEP_ZERO_GRAD, 9, 40, 40, 0);
	for (size_t i = 1; i < track->step_cnt; i++)
		assert_int_equal(track->steps[i].index, track->steps[i - 1].index + 1);
	expect_window(10, STEP_ZERO_GRAD);
}

/* A step that lacks a backward is lost, and no other. */
static void test_cleared_after_four_with_a_loss(void **state)
{
	accumulate(41, 4, 22);
	expect(STEP_ZERO_GRAD, 8, 0, 40, 1);
	expect_window(10 + 1, STEP_ZERO_GRAD);
}

/* Each backward has one behind it, or none has: each is a step. */
static void test_cleared_each_time(void **state)
{
	accumulate(20, 1, 0);
	expect(STEP_BACKWARD, 19, 10, 10, 0);
	expect_window(20, STEP_BACKWARD);
}

static void test_never_cleared(void **state)
{
	accumulate(20, 100, 0);
	expect(STEP_BACKWARD, 19, 10, 10, 0);
}

/* Two are no rule; and what comes once in many backwards, now and then, is none either. */
static void test_rarely_cleared(void **state)
{
	accumulate(30, 12, 0);
	expect(STEP_BACKWARD, 29, 10, 10, 0);
}

static void test_cleared_now_and_then(void **state)
{
	static const __u64 at_index[] = {1, 18, 70, 90, 160};

	for (__u64 i = 1, k = 0; i <= 170; i++) {
		made.cleared = k < 5 && i == at_index[k];
		k += made.cleared;
		boundary(&made.makers[0], 10 * i * MS, STEP_BACKWARD, false);
	}
	expect(STEP_BACKWARD, 169, 10, 10, 0);
}

/* An optimizer decides, whatever was accumulated. */
static void test_cleared_with_optimizer(void **state)
{
	for (__u64 i = 1; i <= 40; i++) {
		made.cleared = i % 4 == 1;
		at(10 * i, STEP_BACKWARD);
		made.cleared = true;
		if (i % 4 == 0)
			at(10 * i + 5, STEP_OPTIMIZER);
	}
	expect(STEP_OPTIMIZER, 9, 45, 40, 0);
}

/* By hand, with a DataLoader: phases of boundaries by worse rules are in the steps. */
static void test_by_hand(void **state)
{
	const struct step_track *track;

	for (__u64 i = 0; i < 8; i++) {
		at(10 + 10 * i, STEP_LOADER);
		at(16 + 10 * i, STEP_BACKWARD);
	}
	track = expect(STEP_BACKWARD, 7, 16, 10, 0);
	assert_int_equal(track->steps[6].phase_ns[PHASE_BACKWARD], 4500000 + 3000000);
	assert_int_equal(track->steps[6].index, 8);
	expect_window(8, STEP_BACKWARD);
}

/* Accumulation: what comes before the first optimizer's step is a part of one that began before the recording. */
static void test_accumulation(void **state)
{
	for (__u64 i = 0; i < 20; i++)
		at(10 + 10 * i, STEP_BACKWARD);
	at(201, STEP_OPTIMIZER);
	expect(STEP_OPTIMIZER, 0, 0, 0, 0);
	expect_window(1, STEP_OPTIMIZER);
	at(401, STEP_OPTIMIZER);
	expect(STEP_OPTIMIZER, 1, 201, 200, 0);
	expect_window(2, STEP_OPTIMIZER);
}

/* While no better rule shows, the one that does is the rule. */
static void test_replaced(void **state)
{
	for (__u64 i = 0; i < 20; i++)
		at(10 + 10 * i, STEP_BACKWARD);
	expect(STEP_BACKWARD, 19, 10, 10, 0);
	expect_window(20, STEP_BACKWARD);
	at(201, STEP_OPTIMIZER);
	at(211, STEP_OPTIMIZER);
	at(221, STEP_OPTIMIZER);
	expect(STEP_OPTIMIZER, 2, 201, 10, 0); /* 190 ms are less than ten times 20 */
	expect_window(3, STEP_OPTIMIZER);
}

/* A minute of the one, and a second of the other. */
static void test_covers_far_more(void **state)
{
	__u64 now_ms = 10;

	for (int i = 0; i < 100; i++, now_ms += 100)
		at(now_ms, STEP_LOADER);
	at(now_ms, STEP_BACKWARD);
	at(now_ms, STEP_LOADER_OPTIMIZER);
	expect(STEP_LOADER, 99, 10, 100, 0);
	for (int i = 0; i < 8; i++)
		at(now_ms += 100, STEP_LOADER_OPTIMIZER);
	/* 900 ms, with the first step: from the last batch before it on */
	expect(STEP_LOADER, 99, 10, 100, 0);
	expect_window(100, STEP_LOADER);
	at(now_ms += 100, STEP_LOADER_OPTIMIZER);
	expect(STEP_LOADER_OPTIMIZER, 9, 10010, 100, 0);
	expect_window(10, STEP_LOADER_OPTIMIZER);
}

/* Batches were not told while it trained: what lies between is not one. */
static void test_trains_between(void **state)
{
	for (__u64 i = 0; i < 50; i++)
		at(10 + 10 * i, STEP_LOADER);
	other_at(505, STEP_BACKWARD);
	for (__u64 i = 0; i < 50; i++)
		at(900 + 10 * i, STEP_LOADER);
	expect(STEP_LOADER, 98, 0, 10, 0);
}

/* Two threads that each make steps: each boundary is its own thread's. */
static void test_threads(void **state)
{
	const struct step_track *track;

	for (__u64 i = 0; i < 30; i++) {
		at(10 + 10 * i, STEP_OPTIMIZER);
		if (i % 3 == 0)
			other_at(11 + 10 * i, STEP_OPTIMIZER);
	}
	track = expect(STEP_OPTIMIZER, 29, 10, 10, 0);
	assert_int_equal(track->tid, TID);
	expect_window(30, STEP_OPTIMIZER);
}

/* What is missing is counted; and no step is told whose phases are not all there. */
static void test_lost(void **state)
{
	for (__u64 i = 0; i < 20; i++)
		boundary(&made.makers[0], (10 + 10 * i) * MS, STEP_OPTIMIZER, i == 5 || i == 6 || i == 12);
	boundary(&made.makers[1], 15 * MS, STEP_OPTIMIZER, true);
	expect(STEP_OPTIMIZER, 17 - 3, 0, 10, 3);
	expect_window(20, STEP_OPTIMIZER);
	/* by another rule */
	job__free(made.job);
	steps__free(made.steps);
	setup(NULL);
	for (__u64 i = 0; i < 20; i++) {
		boundary(&made.makers[0], (10 + 10 * i) * MS, STEP_LOADER, i == 5);
		at(16 + 10 * i, STEP_BACKWARD);
	}
	expect(STEP_BACKWARD, 18, 0, 10, 1);
}

/* Counting began anew: what lies between is no step, and nothing is lost. */
static void test_anew(void **state)
{
	for (__u64 i = 0; i < 5; i++)
		at(10 + 10 * i, STEP_JIT);
	made.makers[0].index[STEP_JIT] = 0;
	for (__u64 i = 0; i < 5; i++)
		at(100 + 10 * i, STEP_JIT);
	expect(STEP_JIT, 8, 0, 10, 0);
}

/* Of inferences alone: forward is what would be, if it is one. */
static void test_forward(void **state)
{
	struct rec_step record = {.hdr = {.type = REC_STEP, .size = sizeof(record)}, .pid = PID, .tid = TID};
	const struct step_track *track;

	record.rule = STEP_LOADER;
	for (__u32 i = 1; i <= 4; i++) {
		record.index = record.serial = i;
		record.time_ns = i * 10 * MS;
		record.phase_ns[PHASE_OTHER] = i == 1 ? 0 : 6 * MS;
		record.phase_ns[PHASE_DATA] = i == 1 ? 0 : 4 * MS;
		record.forward_ns = i == 4 ? UINT64_MAX : 5 * MS; /* it lies */
		add_copy(made.job, &record);
	}
	made.steps = steps__new(made.job);
	track = steps__tracks(made.steps, &(size_t){0});
	assert_int_equal(track->step_cnt, 3);
	assert_int_equal(track->steps[1].phase_ns[PHASE_FORWARD], 5 * MS);
	assert_int_equal(track->steps[1].phase_ns[PHASE_OTHER], MS);
	assert_int_equal(track->steps[2].phase_ns[PHASE_FORWARD], 6 * MS);
	assert_int_equal(track->misfit_ns, 0);
	steps__free(made.steps);
	/* it trains */
	record.rule = STEP_OPTIMIZER;
	for (__u32 i = 1; i <= 4; i++) {
		record.index = i;
		record.serial++;
		record.time_ns += 10 * MS;
		record.forward_ns = 0;
		add_copy(made.job, &record);
	}
	made.steps = steps__new(made.job);
	track = steps__tracks(made.steps, &(size_t){0});
	assert_int_equal(track->rule, STEP_OPTIMIZER);
	assert_int_equal(track->steps[0].phase_ns[PHASE_FORWARD], 0);
}

/* A forward that is one only by that rule is in the paths of its samples only then. */
static void test_forward_by_rule(void **state)
{
	struct rec_interval forward = {.hdr = {.type = REC_INTERVAL, .size = sizeof(forward)},
				       .pid = PID,
				       .tid = TID,
				       .start_ns = 20 * MS,
				       .duration_ns = 5 * MS,
				       .name = 100,
				       .kind = SPAN_FORWARD,
				       .rule = STEP_LOADER};
	struct rec_sample sample = {.hdr = {.type = REC_SAMPLE, .size = sizeof(sample)},
				    .time_ns = 22 * MS,
				    .weight_ns = MS,
				    .pid = PID,
				    .tid = TID,
				    .syscall = -1,
				    .kind = SAMPLE_CPU};

	for (int trains = 0; trains < 2; trains++) {
		job__free(made.job);
		setup(NULL);
		add_text(made.job, 100, "forward");
		add_copy(made.job, &sample);
		add_copy(made.job, &forward);
		at(10, trains ? STEP_BACKWARD : STEP_LOADER);
		at(30, trains ? STEP_BACKWARD : STEP_LOADER);
		made.steps = steps__new(made.job);
		assert_int_equal(steps__phase(made.steps, samples__get(job__samples(made.job), 0).path),
				 trains ? PHASE_OTHER : PHASE_FORWARD);
		steps__free(made.steps);
		made.steps = NULL;
	}
}

/* Whatever records say, steps do not overlap, and are as long as they are. */
static void test_any(void **state)
{
	for (int round = 0; round < 200; round++) {
		const struct step_track *tracks;
		size_t cnt;

		job__free(made.job);
		setup(NULL);
		for (int i = 0; i < 60; i++) {
			struct rec_step record = {.hdr = {.type = REC_STEP, .size = sizeof(record)}};

			record.time_ns = next_random() % 50 ? next_random() % 1000 : next_random();
			record.index = next_random() % 50 ? i / 6 + next_random() % 2 : next_random();
			record.serial = next_random() % 50 ? i / 6 + next_random() % 2 : next_random();
			record.forward_ns = next_random() % 2000;
			record.pid = PID + next_random() % 2;
			record.tid = TID + next_random() % 2;
			record.rule = next_random() % (STEP__COUNT + 1);
			for (int p = 0; p < PHASE__COUNT; p++)
				record.phase_ns[p] = next_random() % 20 ? next_random() % 500 : next_random();
			add_copy(made.job, &record);
		}
		made.steps = steps__new(made.job);
		tracks = steps__tracks(made.steps, &cnt);
		for (size_t t = 0; t < cnt; t++) {
			for (size_t i = 0; i < tracks[t].step_cnt; i++) {
				const struct step *step = &tracks[t].steps[i];
				uint64_t sum = 0;

				for (int p = 0; p < PHASE__COUNT; p++)
					sum += step->phase_ns[p];
				assert_int_equal(sum, step__ns(step));
				assert_true(step->start_ns < step->end_ns);
				assert_true(!i || step[-1].end_ns <= step->start_ns);
			}
		}
		steps__free(made.steps);
		made.steps = NULL;
	}
}

/* A step in a rest, as user/session/sources/ticks.c makes it. */
static void tick(__u64 time_ms, __u64 ms, __u32 serial)
{
	struct rec_step record = {.hdr = {.type = REC_STEP, .size = sizeof(record), .flags = ms ? 0 : REC_RESTED},
				  .time_ns = time_ms * MS,
				  .index = 100 + serial,
				  .pid = PID,
				  .tid = TID,
				  .serial = 0x80000000 | serial,
				  .rule = STEP_TICK};

	record.phase_ns[PHASE_OTHER] = ms * MS;
	assert_int_equal(add_copy(made.job, &record), 0);
}

/* Those in rests are counted apart, and change nothing of those that were recorded, even if they are far more. */
static void test_ticks(void **state)
{
	struct rest_steps rest_steps;

	(void)state;
	add_target(made.job, PID, ROLE_MAIN, -1);
	for (int i = 1; i <= 5; i++)
		at(10 * i, STEP_OPTIMIZER);
	tick(53, 0, 0);
	for (int i = 1; i <= 99; i++)
		tick(53 + 11 * i, i == 7 ? 300 : 11, i);
	expect(STEP_OPTIMIZER, 4, 10, 10, 0);
	assert_int_equal(job__rest_steps(made.job, PID, &rest_steps), 0);
	assert_int_equal(rest_steps.cnt, 99);
	assert_int_equal(rest_steps.median_ns, 11 * MS);
	assert_int_equal(rest_steps.longest_ns, 300 * MS);
	assert_int_equal(job__rest_steps(made.job, PID + 1, &rest_steps), 0);
	assert_int_equal(rest_steps.cnt, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(plain),
		TEST(by_hand),
		TEST(accumulation),
		TEST(cleared_after_four),
		TEST(cleared_after_four_with_a_loss),
		TEST(cleared_each_time),
		TEST(never_cleared),
		TEST(rarely_cleared),
		TEST(cleared_now_and_then),
		TEST(cleared_with_optimizer),
		TEST(replaced),
		TEST(covers_far_more),
		TEST(trains_between),
		TEST(threads),
		TEST(lost),
		TEST(anew),
		TEST(forward),
		TEST(forward_by_rule),
		TEST(ticks),
		TEST(any),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
