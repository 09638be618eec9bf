// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What record --until sees as a slow step and as a stall. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/resource_records.h"
#include "user/analysis/live/trigger.h"

#define MS  1000000ull
#define S   (1000 * MS)
#define PID 10

static struct trigger *trigger;
static uint64_t now_ns, boundaries;
static uint32_t pid;

static void start(struct trigger_options options)
{
	trigger__free(trigger);
	trigger = trigger__new(&options);
	assert_non_null(trigger);
	now_ns = 1000 * S;
	boundaries = 0;
	pid = PID;
}

static int tear_down(void **state)
{
	trigger__free(trigger);
	trigger = NULL;
	return 0;
}

static const struct trigger_event *look(void)
{
	return trigger__check(trigger, now_ns);
}

/* A step of so many ms, of which some are validation. */
static void step_with(uint64_t ms, uint64_t validation_ms)
{
	struct rec_step step = {.hdr = {.type = REC_STEP, .size = sizeof(step)}, .pid = pid, .tid = pid};

	step.time_ns = now_ns += ms * MS;
	step.index = ++boundaries;
	step.rule = STEP_OPTIMIZER;
	step.phase_ns[PHASE_VALIDATION] = validation_ms * MS;
	assert_int_equal(trigger__add(trigger, &step.hdr, now_ns), 0);
}

static void step(uint64_t ms)
{
	step_with(ms, 0);
}

/* The first boundary begins the first step. */
static void steps(int cnt, uint64_t ms)
{
	for (int i = 0; i < cnt; i++)
		step(ms);
}

/* The process rests, from now on or, if it has `rested_ms`, until now. */
static void rest(uint64_t rested_ms)
{
	struct rec_rest rest = {.hdr = {.type = REC_REST, .size = sizeof(rest)}, .pid = pid, .cnt = 1};

	rest.from_ns = now_ns - rested_ms * MS;
	rest.to_ns = rested_ms ? now_ns : 0;
	assert_int_equal(trigger__add(trigger, &rest.hdr, now_ns), 0);
}

static void snapshot(uint64_t calls)
{
	struct rec_agg agg = {
		.hdr = {.type = REC_AGG, .size = sizeof(agg)}, .key = {.pid = pid}, .val = {.calls = calls}};

	assert_int_equal(trigger__add(trigger, &agg.hdr, now_ns), 0);
	assert_int_equal(trigger__add(trigger, NULL, now_ns), 0);
}

static const struct trigger_options slow = {.on = {[TRIGGER_SLOW] = true}}, stall = {.on = {[TRIGGER_STALL] = true}};

/* Twice as long as the longest, once there are enough; a step exactly twice as long is not. */
static void test_slow(void **state)
{
	start(slow);
	steps(TRIGGER_STEPS_MIN, 100); /* one step less than that */
	step(5000);
	assert_false(look()->seen);
	start(slow);
	steps(TRIGGER_STEPS_MIN + 1, 100);
	step(200);
	assert_false(look()->seen);
	step(401);
	assert_true(look()->seen);
	assert_int_equal(look()->kind, TRIGGER_SLOW);
	assert_int_equal(look()->pid, PID);
	assert_int_equal(look()->step, TRIGGER_STEPS_MIN + 3);
	assert_int_equal(look()->duration_ns, 401 * MS);
	assert_int_equal(look()->median_ns, 100 * MS);
	assert_int_equal(look()->longest_ns, 200 * MS);
	step(9000); /* the first event stays */
	assert_int_equal(look()->duration_ns, 401 * MS);
}

/* What comes again and again is no event; what was last so long ago that it is no longer known is one. */
static void test_rhythm(void **state)
{
	start(slow);
	for (int i = 0; i < 4 * TRIGGER_STEPS; i++)
		step(i % 50 == 10 ? 1000 : 100);
	assert_false(look()->seen);
	steps(TRIGGER_STEPS, 100);
	step(1000);
	assert_true(look()->seen);
}

/* The first step of each epoch of 1,000 is long: an event twice, and then none, until it is far longer, or one comes in between. */
static void test_epochs(void **state)
{
	start(slow);
	steps(101, 100); /* the first of which begins one */
	for (int epoch = 1; epoch <= 12; epoch++) {
		step(epoch == 10 ? 9000 : 4000 + epoch);
		assert_int_equal(look()->seen, epoch <= 2 || epoch == 10);
		if (look()->seen)
			trigger__take(trigger);
		steps(500, 100);
		if (epoch == 11) {
			step(2000);
			assert_true(look()->seen);
			trigger__take(trigger);
		}
		steps(epoch == 11 ? 498 : 499, 100);
		assert_false(look()->seen);
	}
}

/* Steps of a millisecond of which one takes 50 are no event. */
static void test_short(void **state)
{
	start(slow);
	steps(TRIGGER_STEPS, 1);
	step(101);
	assert_false(look()->seen);
	steps(TRIGGER_STEPS, 1);
	step(102);
	assert_true(look()->seen);
}

static void test_given_time(void **state)
{
	start((struct trigger_options){.on = {[TRIGGER_SLOW] = true}, .ns = {[TRIGGER_SLOW] = 2 * S}});
	steps(100, 100);
	step(1000);
	step(2000);
	assert_false(look()->seen);
	step(2001);
	assert_true(look()->seen);
	assert_int_equal(look()->longest_ns, 2 * S);
}

/* With two steps only: a given time needs no others. */
static void test_first_step(void **state)
{
	start((struct trigger_options){.on = {[TRIGGER_SLOW] = true}, .ns = {[TRIGGER_SLOW] = 2 * S}});
	step(1);
	step(3000);
	assert_true(look()->seen);
	assert_int_equal(look()->median_ns, 0);
}

static void test_validation_is_not_slow(void **state)
{
	start(slow);
	steps(TRIGGER_STEPS_MIN + 1, 100);
	step_with(60000, 59800);
	assert_false(look()->seen);
	step_with(60000, 59300);
	assert_true(look()->seen);
	assert_int_equal(look()->duration_ns, 700 * MS);
}

/* A boundary by a worse rule within the step has the validation. */
static void test_validation_before_another_boundary(void **state)
{
	struct rec_step other = {.hdr = {.type = REC_STEP, .size = sizeof(other)}, .pid = pid, .tid = pid};

	start(slow);
	steps(TRIGGER_STEPS_MIN + 1, 100);
	other.rule = STEP_BACKWARD;
	other.index = 1;
	other.time_ns = now_ns + 59000 * MS;
	other.phase_ns[PHASE_VALIDATION] = 58900 * MS;
	assert_int_equal(trigger__add(trigger, &other.hdr, now_ns), 0);
	step(59050);
	assert_false(look()->seen);
}

/* A minute, or ten steps where these are longer. */
static void test_stall(void **state)
{
	start(stall);
	now_ns += 1000 * S;
	assert_false(look()->seen); /* without a step: it does not train yet */
	steps(10, 100);
	now_ns += 60 * S;
	assert_false(look()->seen);
	now_ns += 1;
	assert_true(look()->seen);
	assert_int_equal(look()->kind, TRIGGER_STALL);
	assert_int_equal(look()->step, 10);
	assert_int_equal(look()->duration_ns, 60 * S + 1);
	start(stall);
	steps(10, 10000);
	now_ns += 100 * S;
	assert_false(look()->seen);
	now_ns += 1;
	assert_true(look()->seen);
}

/* Nobody knows what it does in a rest; afterwards the time counts from there. */
static void test_rest(void **state)
{
	(void)state;
	start(stall);
	steps(20, 1000);
	rest(0);
	now_ns += 3600 * S;
	assert_false(look()->seen);
	rest(3600 * 1000);
	now_ns += 59 * S;
	assert_false(look()->seen);
	now_ns += 2 * S;
	assert_int_equal(look()->kind, TRIGGER_STALL);
}

/* A step in a rest, by its ticks; 0: the first of a rest, which ends no step. */
static void tick(uint64_t ms)
{
	struct rec_step step = {.hdr = {.type = REC_STEP, .size = sizeof(step)}, .pid = pid, .tid = pid};

	step.time_ns = now_ns += ms * MS;
	step.rule = STEP_TICK;
	step.phase_ns[PHASE_OTHER] = ms * MS;
	assert_int_equal(trigger__add(trigger, &step.hdr, now_ns), 0);
}

/* With ticks, a stall begins in the rest; and its steps are those of before, but not slow ones, since they may have validated. */
static void test_ticks(void **state)
{
	(void)state;
	start(stall);
	tick(0); /* nothing is known of the process */
	steps(20, 1000);
	rest(0);
	tick(0);
	tick(1000);
	now_ns += 30 * S;
	rest(32 * 1000);
	now_ns += 29 * S;
	assert_false(look()->seen);
	now_ns += 2 * S;
	assert_int_equal(look()->kind, TRIGGER_STALL);
	assert_int_equal(look()->duration_ns, 61 * S);
	trigger__take(trigger);
	tick(1000); /* it goes on, and stands still again */
	now_ns += 61 * S;
	assert_int_equal(look()->kind, TRIGGER_STALL);

	start(slow);
	steps(TRIGGER_STEPS_MIN + 1, 100);
	rest(0);
	tick(0);
	tick(5000);
	assert_false(look()->seen);

	start((struct trigger_options){.on = {[TRIGGER_SLOWER] = true}});
	steps(2000, 100);
	rest(0);
	tick(0);
	for (int i = 0; i < 600 && !look()->seen; i++)
		tick(130);
	assert_int_equal(look()->kind, TRIGGER_SLOWER);
	assert_int_equal(look()->duration_ns, 130 * MS);
	assert_int_equal(look()->step, 2000);
}

/* Actions that end, as in validation, are no stall. */
static void test_active(void **state)
{
	start(stall);
	steps(10, 100);
	for (int i = 1; i < 10; i++) {
		now_ns += 30 * S;
		snapshot(i);
		assert_false(look()->seen);
	}
	now_ns += 30 * S;
	snapshot(9);
	assert_false(look()->seen);
	now_ns += 31 * S;
	snapshot(9);
	assert_true(look()->seen);
	assert_int_equal(look()->duration_ns, 61 * S);
}

static void add_job(uint32_t of, const char *name, const char *meets)
{
	struct rec_job job = {.hdr = {.type = REC_JOB, .size = sizeof(job)}, .pid = of};

	strcpy(job.name, name);
	strcpy(job.meets, meets);
	assert_int_equal(trigger__add(trigger, &job.hdr, now_ns), 0);
}

/* Two processes, of whose jobs these are the names, make steps; then the second one ends actions alone, for two minutes. */
static void two_of_which_one_acts(const char *first, const char *second, const char *meets)
{
	uint64_t begin_ns;

	start(stall);
	begin_ns = now_ns;
	add_job(PID, first, meets);
	add_job(PID + 1, second, meets);
	for (pid = PID; pid <= PID + 1; pid++) {
		boundaries = 0;
		now_ns = begin_ns + (pid - PID) * S;
		steps(10, 100);
	}
	pid = PID + 1;
	for (int i = 1; i <= 8 && !look()->seen; i++) {
		now_ns += 15 * S;
		snapshot(i);
	}
}

/* One rank evaluates, and the others wait for it. When it stands still, too, all do; of another job, or one without a name, nothing is known. */
static void test_waits_for_rank(void **state)
{
	two_of_which_one_acts("run", "run", "");
	assert_false(look()->seen);
	now_ns += 61 * S;
	snapshot(8);
	assert_true(look()->seen);
	two_of_which_one_acts("", "", "127.0.0.1 29500");
	assert_false(look()->seen);
	two_of_which_one_acts("run", "other", "");
	assert_true(look()->seen && look()->pid == PID);
	two_of_which_one_acts("", "", "");
	assert_true(look()->seen);
}

/* Of a job whose processes step on their own, as in a container, one stands still while the other goes on. */
static void test_stands_alone(void **state)
{
	start(stall);
	add_job(PID, "box", "");
	add_job(PID + 1, "box", "");
	steps(10, 100);
	boundaries = 0;
	pid = PID + 1;
	steps(600, 100);
	assert_false(look()->seen);
	steps(10, 100);
	assert_true(look()->seen && look()->pid == PID);
}

static void test_ended(void **state)
{
	struct rec_proc end = {.hdr = {.type = REC_PROC, .size = sizeof(end)}, .event = PROC_EXIT, .pid = pid};

	start(stall);
	steps(10, 100);
	assert_int_equal(trigger__add(trigger, &end.hdr, now_ns), 0);
	now_ns += 1000 * S;
	assert_false(look()->seen);
	steps(2, 100); /* another process with its pid */
	now_ns += 1000 * S;
	assert_true(look()->seen);
}

/* What is kept is the time before the step in progress, and then before the event. */
static void test_before(void **state)
{
	struct rec_proc end = {.hdr = {.type = REC_PROC, .size = sizeof(end)}, .event = PROC_EXIT, .pid = pid};
	uint64_t begin_ns;

	start(slow);
	assert_int_equal(trigger__before(trigger, now_ns), now_ns);
	steps(TRIGGER_STEPS_MIN + 1, 100);
	begin_ns = now_ns;
	assert_int_equal(trigger__before(trigger, begin_ns + 50 * S), begin_ns);
	assert_int_equal(trigger__before(trigger, begin_ns + TRIGGER_KEPT_NS), begin_ns + TRIGGER_KEPT_NS);
	step(100 * 1000);
	assert_true(look()->seen);
	assert_int_equal(look()->start_ns, begin_ns);
	assert_int_equal(trigger__before(trigger, begin_ns + 500 * S), begin_ns);
	start(stall);
	steps(10, 100);
	begin_ns = now_ns;
	now_ns += 61 * S;
	assert_true(look()->seen);
	assert_int_equal(trigger__before(trigger, now_ns), begin_ns);
	start(stall);
	steps(10, 100);
	assert_int_equal(trigger__add(trigger, &end.hdr, now_ns), 0);
	assert_int_equal(trigger__before(trigger, now_ns + S), now_ns + S);
}

static void end(int status)
{
	struct rec_proc end = {.hdr = {.type = REC_PROC, .size = sizeof(end)}, .event = PROC_EXIT, .pid = pid};

	end.exit_code = status;
	end.time_ns = now_ns;
	assert_int_equal(trigger__add(trigger, &end.hdr, now_ns), 0);
}

/* Signals with which a person or a scheduler ends a job are no bad end, nor is exit status 0. */
static void test_end(void **state)
{
	const struct trigger_options options = {.on = {[TRIGGER_END] = true}};

	start(options);
	end(SIGKILL); /* has made no step */
	assert_false(look()->seen);
	for (int i = 0; i < 3; i++) {
		steps(10, 100);
		end((int[]){0, SIGINT, SIGTERM}[i]);
		assert_false(look()->seen);
	}
	steps(10, 100);
	end(SIGKILL);
	assert_true(look()->seen);
	assert_int_equal(look()->kind, TRIGGER_END);
	assert_int_equal(look()->status, SIGKILL);
	assert_int_equal(look()->start_ns, now_ns);
	start(options);
	steps(10, 100);
	end(1 << 8); /* exit status 1 */
	assert_true(look()->seen);
}

/* A process that ends after an event is gone, too: it does not stand still later. */
static void test_end_after_event(void **state)
{
	start((struct trigger_options){.on = {true, true, true, true, true}});
	steps(TRIGGER_STEPS, 100);
	step(1000);
	assert_true(look()->seen);
	end(SIGKILL);
	trigger__take(trigger);
	assert_int_equal(look()->kind, TRIGGER_END);
	trigger__take(trigger);
	now_ns += 1000 * S;
	assert_false(look()->seen);
}

static void expect_taken(enum trigger_kind kind, uint32_t pid_of_it)
{
	assert_true(look()->seen);
	assert_int_equal(look()->kind, kind);
	assert_int_equal(look()->pid, pid_of_it);
	trigger__take(trigger);
}

/* What happens while another event waits is an event all the same: one of each kind of a process. */
static void test_several(void **state)
{
	uint64_t begin_ns;

	start((struct trigger_options){.on = {true, true, true, true, true}});
	steps(TRIGGER_STEPS, 100);
	begin_ns = now_ns;
	step(1000);
	step(5000);
	pid = PID + 1;
	steps(10, 100);
	end(SIGKILL);
	pid = PID;
	end(1 << 8);
	assert_int_equal(trigger__before(trigger, now_ns), begin_ns);
	assert_int_equal(look()->duration_ns, 1000 * MS);
	expect_taken(TRIGGER_SLOW, PID);
	assert_int_equal(trigger__before(trigger, now_ns + S), now_ns);
	expect_taken(TRIGGER_END, PID + 1);
	expect_taken(TRIGGER_END, PID);
	assert_false(look()->seen);
}

static void test_too_many(void **state)
{
	start((struct trigger_options){.on = {[TRIGGER_END] = true}});
	for (int i = 0; i < TRIGGER_EVENTS_MAX + 3; i++) {
		pid = PID + i;
		steps(2, 100);
		end(SIGSEGV);
	}
	assert_int_equal(look()->unreported, 3);
	for (int i = 0; i < TRIGGER_EVENTS_MAX; i++)
		expect_taken(TRIGGER_END, PID + i);
	assert_false(look()->seen);
}

/* Then the next event is one; the stall that was told is not. */
static void test_take(void **state)
{
	start((struct trigger_options){.on = {true, true, true, true, true}});
	trigger__take(trigger); /* without an event */
	steps(TRIGGER_STEPS, 100);
	now_ns += 61 * S;
	assert_int_equal(look()->kind, TRIGGER_STALL);
	assert_true(look()->seen);
	trigger__take(trigger);
	now_ns += 61 * S;
	assert_false(look()->seen);
	step(1000); /* ends the stall, and is told as the slow step that it is */
	assert_true(look()->seen);
	assert_int_equal(look()->kind, TRIGGER_SLOW);
	trigger__take(trigger);
	now_ns += 61 * S;
	assert_true(look()->seen);
	assert_int_equal(look()->kind, TRIGGER_STALL);
}

/* By 10 % or what is given, in two windows of user/analysis/live/trigger.c. */
static void test_slower(void **state)
{
	struct trigger_options options = {.on = {[TRIGGER_SLOWER] = true}};
	uint64_t begin_ns;

	for (int percent = 0; percent <= 60; percent += 30) {
		options.percent[TRIGGER_SLOWER] = percent;
		start(options);
		steps(1201, 100);
		begin_ns = now_ns;
		steps(140, 150);
		assert_int_equal(look()->seen, percent != 60);
		if (percent == 60)
			continue;
		assert_int_equal(look()->kind, TRIGGER_SLOWER);
		assert_int_equal(look()->start_ns, begin_ns);
		assert_int_equal(look()->step, 1202);
		assert_int_equal(look()->duration_ns, 150 * MS);
		assert_int_equal(look()->median_ns, 100 * MS);
	}
}

static void test_off(void **state)
{
	start(slow);
	steps(100, 100);
	now_ns += 1000 * S;
	assert_false(look()->seen);
	start(stall);
	steps(100, 100);
	step(50000);
	assert_false(look()->seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_slow, tear_down),
		cmocka_unit_test_teardown(test_rhythm, tear_down),
		cmocka_unit_test_teardown(test_epochs, tear_down),
		cmocka_unit_test_teardown(test_short, tear_down),
		cmocka_unit_test_teardown(test_given_time, tear_down),
		cmocka_unit_test_teardown(test_first_step, tear_down),
		cmocka_unit_test_teardown(test_validation_is_not_slow, tear_down),
		cmocka_unit_test_teardown(test_validation_before_another_boundary, tear_down),
		cmocka_unit_test_teardown(test_stall, tear_down),
		cmocka_unit_test_teardown(test_waits_for_rank, tear_down),
		cmocka_unit_test_teardown(test_stands_alone, tear_down),
		cmocka_unit_test_teardown(test_rest, tear_down),
		cmocka_unit_test_teardown(test_ticks, tear_down),
		cmocka_unit_test_teardown(test_active, tear_down),
		cmocka_unit_test_teardown(test_ended, tear_down),
		cmocka_unit_test_teardown(test_before, tear_down),
		cmocka_unit_test_teardown(test_end, tear_down),
		cmocka_unit_test_teardown(test_end_after_event, tear_down),
		cmocka_unit_test_teardown(test_several, tear_down),
		cmocka_unit_test_teardown(test_too_many, tear_down),
		cmocka_unit_test_teardown(test_take, tear_down),
		cmocka_unit_test_teardown(test_slower, tear_down),
		cmocka_unit_test_teardown(test_off, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
