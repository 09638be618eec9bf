// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which rests of a process have their steps told, by their ticks (user/session/sources/ticks.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "user/session/sources/ticks.c"

#define MS    1000000ull
#define STEPS 20

static struct session *session;
static struct target target, *targets[] = {&target};
static uint64_t now_ns = 1000 * MS, told, last_index;

static int count_step(const struct rec_hdr *record, void *ctx)
{
	const struct rec_step *step = (const void *)record;

	assert_int_equal(record->type, REC_STEP);
	assert_int_equal(step->rule, STEP_TICK);
	assert_true(step->index > last_index);
	last_index = step->index;
	told++;
	return 0;
}

static int set_up(void **state)
{
	struct ticks *ticks = calloc(1, sizeof(*ticks));

	session = calloc(1, sizeof(*session));
	session->sink = count_step;
	session->options.budget = 0.01;
	session->selftest.hit_ns = 2000;
	session->targets = targets;
	session->target_cnt = 1;
	target.state[SOURCE_TICKS] = ticks;
	ticks->step_cnt = ticks->steps_with[1] = 100; /* one tick a step */
	return 0;
}

static int tear_down(void **state)
{
	free(target.state[SOURCE_TICKS]);
	free(session);
	return 0;
}

/* Steps of so many ms in a window, and then in a rest. Returns how many of the latter are told. */
static uint64_t steps_of_rest(uint64_t step_ns)
{
	struct rec_step tick = {.hdr = {.type = REC_STEP, .size = sizeof(tick)}, .rule = STEP_TICK};

	for (int rests = 0; rests < 2; rests++) {
		target.rest.rests = rests;
		target.rest.cnt += rests;
		target.rest.from_ns = session__now_ns();
		ticks__begin(session, &target, 0, now_ns);
		tick.hdr.flags = rests ? REC_RESTED : 0;
		told = 0;
		for (int i = 0; i < STEPS; i++) {
			tick.time_ns = now_ns += step_ns;
			see_tick(session, &target, &tick);
		}
	}
	source_ticks.tend(session);
	return told;
}

static void pause_leaves_later_rests_known(void **state)
{
	assert_int_equal(steps_of_rest(10 * MS), STEPS);
	target.rest.paused = true;
	source_ticks.tend(session);
	target.rest.paused = false;
	assert_int_equal(steps_of_rest(10 * MS), STEPS);
}

/* Its ticks would cost more than a quarter of the budget for a while. */
static void short_steps_are_not_told(void **state)
{
	assert_int_equal(steps_of_rest(MS / 10), 0);
	assert_int_equal(steps_of_rest(MS / 10), 0);
	assert_int_equal(steps_of_rest(10 * MS), STEPS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(pause_leaves_later_rests_known),
					   cmocka_unit_test(short_steps_are_not_told)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
