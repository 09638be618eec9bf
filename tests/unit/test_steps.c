// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Steps in the model: what a step is made of, which are slow, and records that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/build_job.h"
#include "user/analysis/cause/blame.h"
#include "user/analysis/steps/slow.h"
#include "user/analysis/steps/steps.h"
#include "user/report/report.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define MS           1000000ull

enum { PID = 7, TID = 8, OTHER_TID = 9 };
enum { LABEL_DATA = 100, LABEL_STEP, ACTION_SAVE, ACTION_BATCH, BACKWARD, GC_0, GC_2 };
enum { PATH_DATA = 1, PATH_OPTIMIZER, PATH_SAVE, PATH_BACKWARD, PATH_NONE, PATH_EVALUATED };

static void add_boundary(struct job *job, __u64 time_ns, __u64 index, const __u64 *phase_ns)
{
	struct rec_step record = {.hdr = {.type = REC_STEP, .size = sizeof(record)},
				  .time_ns = time_ns,
				  .index = index,
				  .serial = index + 1,
				  .pid = PID,
				  .tid = TID,
				  .rule = STEP_OPTIMIZER};

	if (phase_ns)
		memcpy(record.phase_ns, phase_ns, sizeof(record.phase_ns));
	assert_int_equal(add_copy(job, &record), 0);
}

static void add_wait(struct job *job, __u32 tid, __u64 time_ns, __u64 ns, __u64 path, enum wait_cause cause,
		     __u32 waits)
{
	struct rec_sample record = {.hdr = {.type = REC_SAMPLE, .size = sizeof(record)},
				    .time_ns = time_ns,
				    .weight_ns = ns,
				    .path = path,
				    .pid = PID,
				    .tid = tid,
				    .waits = waits,
				    .syscall = -1,
				    .kind = SAMPLE_WAIT,
				    .cause = cause};

	assert_int_equal(add_copy(job, &record), 0);
}

static void add_pause(struct job *job, __u64 start_ns, __u64 ns, __u64 name)
{
	struct rec_interval record = {.hdr = {.type = REC_INTERVAL, .size = sizeof(record)},
				      .pid = PID,
				      .tid = OTHER_TID,
				      .start_ns = start_ns,
				      .duration_ns = ns,
				      .name = name,
				      .kind = SPAN_GC};

	assert_int_equal(add_copy(job, &record), 0);
}

static void add_path(struct job *job, __u64 id, const struct path_span *spans, __u32 cnt)
{
	struct {
		struct rec_path head;
		struct path_span spans[4];
	} record = {.head = {.hdr = {.type = REC_PATH, .size = sizeof(record.head) + cnt * sizeof(*spans)},
			     .id = id,
			     .span_cnt = cnt}};

	memcpy(record.spans, spans, cnt * sizeof(*spans));
	assert_int_equal(add_copy(job, &record), 0);
}

static struct job *new_job(void)
{
	static const struct path_span spans[][3] = {
		[PATH_DATA] = {{.kind = SPAN_ACTION, .name = ACTION_BATCH}, {.kind = SPAN_LABEL, .name = LABEL_DATA}},
		[PATH_OPTIMIZER] = {{.kind = SPAN_LABEL, .name = LABEL_STEP}, {.kind = SPAN_OP, .name = LABEL_DATA}},
		[PATH_SAVE] = {{.kind = SPAN_LABEL, .name = LABEL_STEP}, {.kind = SPAN_ACTION, .name = ACTION_SAVE}},
		[PATH_BACKWARD] = {{.kind = SPAN_BACKWARD, .name = BACKWARD}, {.kind = SPAN_GC, .name = GC_0}},
		[PATH_EVALUATED] = {{.kind = SPAN_VALIDATION, .name = BACKWARD},
				    {.kind = SPAN_LABEL, .name = LABEL_DATA}},
		[PATH_NONE] = {{.kind = SPAN_USER, .name = LABEL_DATA}, {.kind = SPAN_SYNC, .name = BACKWARD}},
	};
	struct job *job = job__new();

	add_text(job, LABEL_DATA, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__");
	add_text(job, LABEL_STEP, "Optimizer.step#SGD.step");
	add_text(job, ACTION_SAVE, "save_checkpoint");
	add_text(job, ACTION_BATCH, "run_training_batch");
	add_text(job, BACKWARD, "backward");
	add_text(job, GC_0, "gc generation 0");
	add_text(job, GC_2, "gc generation 2");
	for (__u64 path = PATH_DATA; path <= PATH_EVALUATED; path++)
		add_path(job, path, spans[path], 2);
	return job;
}

static const struct step_track *only_track(struct steps *steps)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(steps, &cnt);

	assert_int_equal(cnt, 1);
	return tracks;
}

/* What holds of every step, whatever the records say. */
static void check_sums(const struct step_track *track)
{
	uint64_t total = 0;

	for (size_t i = 0; i < track->step_cnt; i++) {
		const struct step *step = &track->steps[i];
		uint64_t phases[PHASE__COUNT] = {0}, sum = 0;

		assert_true(step->end_ns > step->start_ns);
		assert_true(!i || step->start_ns >= track->steps[i - 1].end_ns);
		for (uint32_t p = 0; p < step->part_cnt; p++) {
			const struct step_part *part = &step->parts[p];

			assert_true(part->ns > 0);
			assert_true(!p || part->phase > part[-1].phase || part->cause > part[-1].cause);
			phases[part->phase] += part->ns;
		}
		for (int p = 0; p < PHASE__COUNT; p++) {
			assert_int_equal(phases[p], step->phase_ns[p]);
			sum += phases[p];
		}
		assert_int_equal(sum, step__ns(step));
		assert_true(step->gc_ns <= step__ns(step));
		assert_int_equal(step_track__at(track, step->start_ns), i);
		assert_int_equal(step_track__at(track, step->end_ns - 1), i);
		total += sum;
	}
	assert_int_equal(total, track->total_ns);
}

static void check_part(const struct step *step, enum phase phase, unsigned int cause, uint64_t ns)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < step->part_cnt; i++)
		if (step->parts[i].phase == phase && step->parts[i].cause == cause)
			found += step->parts[i].ns;
	assert_int_equal(found, ns);
}

/* ---- what a step is made of ---- */

static void test_parts(void **state)
{
	static const __u64 phases[PHASE__COUNT] = {
		[PHASE_DATA] = 4 * MS, [PHASE_OPTIMIZER] = 2 * MS, [PHASE_CHECKPOINT] = MS, [PHASE_OTHER] = 3 * MS};
	struct job *job = new_job();
	const struct step_track *track;
	struct steps *steps;

	add_boundary(job, 10 * MS, 0, NULL);
	add_boundary(job, 20 * MS, 1, phases);
	add_boundary(job, 29 * MS, 2, phases);
	add_wait(job, TID, 13 * MS, 2 * MS, PATH_DATA, CAUSE_POLL, 1);
	add_wait(job, TID, 13 * MS, MS, PATH_DATA, CAUSE_RUN_QUEUE, 1);
	add_wait(job, TID, 14 * MS, MS / 2, PATH_DATA, CAUSE_POLL, 1);
	add_wait(job, TID, 18 * MS, MS / 4, PATH_SAVE, CAUSE_FSYNC, 9);
	add_wait(job, TID, 18 * MS, MS / 4, PATH_OPTIMIZER, CAUSE_FSYNC, 1);
	add_wait(job, TID, 19 * MS, MS / 4, PATH_NONE, CAUSE_SLEEP, 1);
	/* Another thread, before the first step, and behind the last. */
	add_wait(job, OTHER_TID, 13 * MS, MS, PATH_DATA, CAUSE_POLL, 1);
	add_wait(job, TID, 9 * MS, MS, PATH_DATA, CAUSE_POLL, 1);
	add_wait(job, TID, 29 * MS, MS, PATH_DATA, CAUSE_POLL, 1);
	/* Longer than the step was old, and short ones that were met late; more than the phase has. */
	add_wait(job, TID, 21 * MS, 3 * MS, PATH_DATA, CAUSE_SLEEP, 1);
	add_wait(job, TID, 22 * MS, 5 * MS, PATH_SAVE, CAUSE_LOCK, 100);
	steps = steps__new(job);
	track = only_track(steps);
	check_sums(track);
	assert_int_equal(track->pid, PID);
	assert_int_equal(track->tid, TID);
	assert_int_equal(track->rule, STEP_OPTIMIZER);
	assert_true(track->has_phases);
	assert_int_equal(track->step_cnt, 2);
	assert_int_equal(track->steps[0].index, 1);
	check_part(&track->steps[0], PHASE_DATA, CAUSE_POLL, 5 * MS / 2);
	check_part(&track->steps[0], PHASE_DATA, CAUSE_RUN_QUEUE, MS);
	check_part(&track->steps[0], PHASE_DATA, CAUSE_NONE, MS / 2);
	check_part(&track->steps[0], PHASE_CHECKPOINT, CAUSE_FSYNC, MS / 4);
	check_part(&track->steps[0], PHASE_OPTIMIZER, CAUSE_FSYNC, MS / 4);
	check_part(&track->steps[0], PHASE_OTHER, CAUSE_GPU_SYNC, MS / 4);
	check_part(&track->steps[1], PHASE_DATA, CAUSE_SLEEP, MS);
	check_part(&track->steps[1], PHASE_CHECKPOINT, CAUSE_LOCK, MS);
	/* The second step's phases are 1 ms too long for it. */
	assert_int_equal(track->misfit_ns, 2 * MS + 4 * MS + MS);
	assert_int_equal(step_track__at(track, 9 * MS), -1);
	assert_int_equal(step_track__at(track, 29 * MS), -1);
	steps__free(steps);
	job__free(job);
}

static void test_phases(void **state)
{
	static const enum phase expected[] = {[PATH_DATA] = PHASE_DATA,       [PATH_OPTIMIZER] = PHASE_OPTIMIZER,
					      [PATH_SAVE] = PHASE_CHECKPOINT, [PATH_BACKWARD] = PHASE_BACKWARD,
					      [PATH_NONE] = PHASE_OTHER,      [PATH_EVALUATED] = PHASE_VALIDATION};
	struct job *job = new_job();
	struct steps *steps;

	for (__u64 path = PATH_DATA; path <= PATH_EVALUATED; path++)
		add_wait(job, TID, path, 1, path, CAUSE_POLL, 1);
	steps = steps__new(job);
	for (size_t i = 0; i < COUNT(expected) - 1; i++) {
		struct sample sample = samples__get(job__samples(job), i);

		assert_int_equal(steps__phase(steps, sample.path), expected[i + 1]);
	}
	assert_int_equal(steps__phase(steps, 0), PHASE_OTHER);
	assert_string_equal(phase__name(PHASE_DATA), "data");
	steps__free(steps);
	job__free(job);
}

/* Of a recording that knows no phases, waits are in the one that there is. */
static void test_no_phases(void **state)
{
	struct job *job = new_job();
	const struct step_track *track;
	struct steps *steps;

	add_boundary(job, 10 * MS, 4, NULL);
	add_boundary(job, 20 * MS, 5, NULL);
	add_wait(job, TID, 13 * MS, 2 * MS, PATH_DATA, CAUSE_POLL, 1);
	steps = steps__new(job);
	track = only_track(steps);
	check_sums(track);
	assert_false(track->has_phases);
	assert_int_equal(track->misfit_ns, 0);
	check_part(&track->steps[0], PHASE_OTHER, CAUSE_POLL, 2 * MS);
	check_part(&track->steps[0], PHASE_OTHER, CAUSE_NONE, 8 * MS);
	steps__free(steps);
	job__free(job);
}

static void test_pauses(void **state)
{
	struct job *job = new_job();
	const struct step_track *track;
	struct steps *steps;

	for (__u64 i = 0; i < 4; i++)
		add_boundary(job, (10 + 10 * i) * MS, i, NULL);
	add_pause(job, 12 * MS, MS, GC_0);
	add_pause(job, 14 * MS, 2 * MS, GC_2);
	add_pause(job, 29 * MS, 3 * MS, GC_0);
	add_pause(job, 5 * MS, 2 * MS, GC_2);
	add_pause(job, 39 * MS, UINT64_MAX, GC_2);
	steps = steps__new(job);
	track = only_track(steps);
	check_sums(track);
	assert_int_equal(track->steps[0].gc_ns, 3 * MS);
	assert_int_equal(track->steps[0].gc_generation, 2);
	assert_int_equal(track->steps[1].gc_ns, MS);
	assert_int_equal(track->steps[1].gc_generation, 0);
	assert_int_equal(track->steps[2].gc_ns, 3 * MS);
	assert_int_equal(track->steps[2].gc_generation, 2);
	steps__free(steps);
	job__free(job);
}

/* ---- which boundaries make steps ---- */

static void test_boundaries(void **state)
{
	struct rec_step other = {.hdr = {.type = REC_STEP, .size = sizeof(other)},
				 .time_ns = 15 * MS,
				 .index = 1,
				 .pid = PID + 1,
				 .tid = OTHER_TID,
				 .rule = STEP_OPTIMIZER};
	struct job *job = new_job();
	const struct step_track *track;
	struct steps *steps;
	size_t cnt;

	add_target(job, PID, ROLE_MAIN, 0);
	add_target(job, PID + 1, ROLE_WORKER, -1);
	/* By another thread, out of order, twice, with two lost, and at the same time. */
	other.pid = PID;
	add_copy(job, &other);
	add_boundary(job, 30 * MS, 2, NULL);
	add_boundary(job, 10 * MS, 0, NULL);
	add_boundary(job, 20 * MS, 1, NULL);
	add_boundary(job, 30 * MS, 2, NULL);
	add_boundary(job, 60 * MS, 5, NULL);
	add_boundary(job, 60 * MS, 6, NULL);
	add_boundary(job, 70 * MS, 7, NULL);
	other.pid = PID + 1;
	add_copy(job, &other);
	other.rule = STEP_NONE;
	add_copy(job, &other);
	assert_int_equal(job__malformed(job), 1);
	steps = steps__new(job);
	track = only_track(steps);
	check_sums(track);
	assert_int_equal(track->step_cnt, 3);
	assert_int_equal(track->lost, 2);
	assert_int_equal(track->steps[2].index, 7);
	assert_int_equal(track->steps[2].start_ns, 60 * MS);
	steps__free(steps);
	job__forget_samples(job);
	steps = steps__new(job);
	steps__tracks(steps, &cnt);
	assert_int_equal(cnt, 0);
	steps__free(steps);
	job__free(job);
}

/* ---- which are slow ---- */

/* `noise` percent of each, either way. */
static uint64_t noisy(uint64_t ns, uint64_t noise)
{
	return ns * (100 - noise) / 100 + next_random() % (ns * 2 * noise / 100 + 1);
}

static size_t count_slow(uint64_t *durations, size_t cnt, const struct slow_rule *rule)
{
	size_t slow = 0;

	for (size_t i = 0; i < cnt; i++)
		slow += durations[i] > rule->limit_ns;
	return slow;
}

static void test_slow(void **state)
{
	static const struct {
		size_t cnt, every;
		uint64_t ordinary, slow, noise;
		size_t expected;
	} cases[] = {
		{1000, 1000000, 10 * MS, 0, 30, 0}, /* nothing to find */
		{1000, 37, 10 * MS, 30 * MS, 10, 27},
		{1000, 50, 50000, 10 * 60 * 1000 * MS, 10, 20},
		{1000, 2, 10 * MS, 20 * MS, 5, 500}, /* every second one */
		{999, 2, 10 * MS, 20 * MS, 5, 499},
		{1001, 2, 20 * MS, 10 * MS, 5, 501}, /* the faster ones are fewer */
		{400, 4, 10 * MS, 100 * MS, 20, 100},
		{400, 37, 10 * MS, 13 * MS, 2, 0}, /* not by half */
		{SLOW_MIN_CNT, SLOW_MIN_CNT, 10 * MS, 30 * MS, 1, 1},
		{SLOW_MIN_CNT - 1, 3, 10 * MS, 30 * MS, 1, 0},
		{1, 1, 10 * MS, 30 * MS, 1, 0},
	};

	for (size_t c = 0; c < COUNT(cases); c++) {
		uint64_t *durations = calloc(cases[c].cnt, sizeof(*durations));
		struct slow_rule rule;

		for (size_t i = 0; i < cases[c].cnt; i++)
			durations[i] =
				noisy((i + 1) % cases[c].every ? cases[c].ordinary : cases[c].slow, cases[c].noise);
		rule = slow__rule(durations, cases[c].cnt);
		assert_int_equal(count_slow(durations, cases[c].cnt, &rule), cases[c].expected);
		free(durations);
	}
}

/* Of one kind, however wide: no step of a job whose batches differ is called slow for that. */
static void test_slow_wide(void **state)
{
	uint64_t durations[1000];
	struct slow_rule rule;

	for (size_t i = 0; i < COUNT(durations); i++)
		durations[i] = 10 * MS + next_random() % (20 * MS);
	rule = slow__rule(durations, COUNT(durations));
	assert_int_equal(count_slow(durations, COUNT(durations), &rule), 0);
	for (size_t i = 0; i < COUNT(durations); i++)
		durations[i] = 10 * MS;
	rule = slow__rule(durations, COUNT(durations));
	assert_int_equal(rule.limit_ns, 15 * MS);
	assert_int_equal(rule.median_ns, 10 * MS);
	assert_int_equal(rule.p99_ns, 10 * MS);
	durations[3] = UINT64_MAX;
	rule = slow__rule(durations, COUNT(durations));
	assert_int_equal(rule.max_ns, UINT64_MAX);
	assert_int_equal(count_slow(durations, COUNT(durations), &rule), 1);
}

/* ---- what they are blamed on ---- */

static void check_rhythm(const uint64_t *indexes, const uint64_t *lost_ns, size_t cnt, uint64_t shortest,
			 uint64_t longest)
{
	struct rhythm rhythm = rhythm__find(indexes, lost_ns, cnt, false);

	assert_int_equal(rhythm.shortest, shortest);
	assert_int_equal(rhythm.longest, longest);
}

static void test_rhythm(void **state)
{
	static const uint64_t ones[100] = {[0 ... 99] = 1};
	uint64_t indexes[100], lost_ns[100];

	for (size_t i = 0; i < COUNT(indexes); i++)
		indexes[i] = 37 * (i + 1);
	check_rhythm(indexes, ones, COUNT(indexes), 37, 37);
	check_rhythm(indexes, ones, 4, 37, 37);
	check_rhythm(indexes, ones, 3, 0, 0);
	assert_int_equal(rhythm__find(indexes, ones, 3, true).shortest, 37);
	assert_int_equal(rhythm__find(indexes, ones, 2, true).shortest, 0);
	indexes[1]++;
	assert_int_equal(rhythm__find(indexes, ones, 3, true).shortest, 0);
	indexes[1]--;
	check_rhythm(indexes, ones, 0, 0, 0);
	/* Some are missing, and some came between. */
	memmove(indexes + 10, indexes + 20, 80 * sizeof(*indexes));
	check_rhythm(indexes, ones, 90, 37, 37);
	for (size_t i = 0; i < 90; i += 10)
		indexes[i]++;
	check_rhythm(indexes, ones, 90, 37, 37);
	/* All in a row, none, or a rhythm among others that lost little. */
	for (size_t i = 0; i < COUNT(indexes); i++)
		indexes[i] = i + 5;
	check_rhythm(indexes, ones, COUNT(indexes), 0, 0);
	for (size_t i = 0; i < COUNT(indexes); i++)
		lost_ns[i] = indexes[i] % 9 ? 4 : 10;
	check_rhythm(indexes, lost_ns, COUNT(indexes), 9, 9);
	for (size_t i = 0; i < COUNT(indexes); i++)
		indexes[i] = i * i * i + 7 * i;
	check_rhythm(indexes, ones, COUNT(indexes), 0, 0);
	/* Every 37th item, of 4 in a batch. */
	for (size_t i = 0; i < COUNT(indexes); i++)
		indexes[i] = 37 * (i + 1) / 4;
	check_rhythm(indexes, ones, COUNT(indexes), 9, 10);
	/* Every 4th, of which a few lost much more, for another reason. */
	for (size_t i = 0; i < COUNT(indexes); i++) {
		indexes[i] = 4 * (i + 1);
		lost_ns[i] = i == 2 || i == 30 || i == 31 || i == 33 || i == 60 || i == 61 ? 100 : 10;
	}
	check_rhythm(indexes, lost_ns, COUNT(indexes), 4, 4);
	for (size_t i = 0; i < 8; i++)
		indexes[i] = UINT64_MAX - 7 + i;
	check_rhythm(indexes, ones, 8, 0, 0);
}

/* 100 steps of 10 ms; every 10th has 30 ms more of one thing. */
static struct job *job_of_slow(enum phase phase, enum wait_cause cause, __u64 path)
{
	struct job *job = new_job();
	__u64 time_ns = MS;

	add_boundary(job, time_ns, 0, NULL);
	for (__u64 i = 1; i <= 100; i++) {
		__u64 phases[PHASE__COUNT] = {[PHASE_FORWARD] = 5 * MS, [PHASE_BACKWARD] = 4 * MS};
		__u64 more = i % 10 ? 0 : 30 * MS;

		phases[phase] += more;
		time_ns += 10 * MS + more;
		add_boundary(job, time_ns, i, phases);
		if (more && cause)
			add_wait(job, TID, time_ns - MS, more, path, cause, 1);
		if (more && !path)
			add_pause(job, time_ns - more, more, GC_2);
	}
	return job;
}

static void test_blame(void **state)
{
	static const struct {
		enum phase phase;
		enum wait_cause wait;
		__u64 path;
		unsigned int cause;
		int group_phase;
	} cases[] = {
		{PHASE_DATA, CAUSE_DISK_READ, PATH_DATA, CAUSE_DISK_READ, PHASE_DATA},
		{PHASE_OTHER, CAUSE_SLEEP, PATH_SAVE, CAUSE_UNKNOWN, PHASE_OTHER}, /* a wait that fits nowhere */
		{PHASE_CHECKPOINT, CAUSE_FSYNC, PATH_SAVE, BLAME_CHECKPOINT, PHASE_CHECKPOINT},
		{PHASE_VALIDATION, CAUSE_SLEEP, PATH_EVALUATED, BLAME_VALIDATION, PHASE_VALIDATION},
		{PHASE_VALIDATION, CAUSE_NONE, PATH_DATA, BLAME_VALIDATION, PHASE_VALIDATION},
		{PHASE_OPTIMIZER, CAUSE_RUN_QUEUE, PATH_OPTIMIZER, CAUSE_RUN_QUEUE, -1},
		{PHASE_BACKWARD, CAUSE_NONE, 0, BLAME_GC, -1},
		{PHASE_BACKWARD, CAUSE_NONE, PATH_DATA, CAUSE_UNKNOWN,
		 PHASE_BACKWARD}, /* on the CPU, without samples */
	};

	for (size_t c = 0; c < COUNT(cases); c++) {
		struct job *job = job_of_slow(cases[c].phase, cases[c].wait, cases[c].path);
		struct steps *steps = steps__new(job);
		const struct step_track *track = only_track(steps);
		struct blame blame;

		check_sums(track);
		assert_int_equal(blame__new(job, steps, track, &blame), 0);
		assert_int_equal(blame.group_cnt, 1);
		assert_int_equal(blame.groups[0].cause, cases[c].cause);
		assert_int_equal(blame.groups[0].phase, cases[c].group_phase);
		assert_int_equal(blame.groups[0].step_cnt, 10);
		assert_int_equal(blame.groups[0].over_ns, 300 * MS);
		assert_int_equal(blame.groups[0].rhythm.shortest, 10);
		for (size_t i = 0; i < track->slow_cnt; i++)
			assert_int_equal(track->steps[blame.steps[i].step].index, 10 * (i + 1));
		blame__release(&blame);
		steps__free(steps);
		job__free(job);
	}
}

/* Every 10th of 100 steps has 13 ms of a checkpoint more, 12 of an evaluation, and 5 of something else. */
static void test_whole(void **state)
{
	struct job *job = new_job();
	struct blame blame;
	struct steps *steps;
	__u64 time_ns = MS;

	add_boundary(job, time_ns, 0, NULL);
	for (__u64 i = 1; i <= 100; i++) {
		__u64 ms = i % 10 ? 0 : MS, phases[PHASE__COUNT] = {10 * MS};

		phases[PHASE_CHECKPOINT] = 13 * ms;
		phases[PHASE_VALIDATION] = 12 * ms;
		time_ns += 10 * MS + 30 * ms;
		add_boundary(job, time_ns, i, phases);
	}
	steps = steps__new(job);
	assert_int_equal(blame__new(job, steps, only_track(steps), &blame), 0);
	assert_int_equal(blame.groups[0].cause, BLAME_CHECKPOINT);
	assert_int_equal(blame.groups[0].cause_ns, 130 * MS);
	blame__release(&blame);
	steps__free(steps);
	job__free(job);
}

static void print_all(struct job *job)
{
	static const struct report_options options[] = {
		{.limit = -1, .per_rank = true}, {.limit = 0, .sort = "index"}, {.json = true, .per_rank = true}};

	for (size_t i = 0; i < COUNT(options); i++) {
		char *text = NULL;
		size_t bytes;
		FILE *out = open_memstream(&text, &bytes);

		assert_int_equal((options[i].json ? report_steps.json : report_steps.text)(job, &options[i], out), 0);
		fclose(out);
		free(text);
	}
}

static void test_fuzz(void **state)
{
	for (int round = 0; round < 500; round++) {
		struct job *job = new_job();
		struct steps *steps;
		size_t cnt;
		const struct step_track *tracks;

		for (int i = 0; i < 100; i++) {
			__u64 phases[PHASE__COUNT], big = next_random() % 20 ? 50 : UINT64_MAX;

			for (int p = 0; p < PHASE__COUNT; p++)
				phases[p] = next_random() % 3 ? 0 : next_random() % big;
			add_boundary(job, next_random() % (20 * big ?: 1), next_random() % 50, phases);
			add_wait(job, TID, next_random() % 1000, next_random() % big, next_random() % 7,
				 next_random() % CAUSE__COUNT, next_random() % 3);
			add_pause(job, next_random() % 1000, next_random() % big, GC_0 + next_random() % 3);
		}
		steps = steps__new(job);
		assert_non_null(steps);
		tracks = steps__tracks(steps, &cnt);
		for (size_t i = 0; i < cnt; i++)
			check_sums(&tracks[i]);
		steps__free(steps);
		print_all(job);
		job__free(job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),     cmocka_unit_test(test_phases),     cmocka_unit_test(test_no_phases),
		cmocka_unit_test(test_pauses),    cmocka_unit_test(test_boundaries), cmocka_unit_test(test_slow),
		cmocka_unit_test(test_slow_wide), cmocka_unit_test(test_rhythm),     cmocka_unit_test(test_blame),
		cmocka_unit_test(test_whole),     cmocka_unit_test(test_fuzz),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
