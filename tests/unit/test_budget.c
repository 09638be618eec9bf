// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A budget holds on average, and lets see as much as it allows (user/session/budget.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "user/session/budget.c"

#define MS    1000000ull
#define S     (1000 * MS)
#define SHARE 0.01

/* A job that pays `share` of its time while it is recorded. */
static struct {
	struct budget_account account;
	uint64_t now_ns, seen_ns, windows, shortest_ns, longest_rest_ns, closed_ns, step_ns;
	double share, most; /* most: spent, of what the time so far allows, after the first rest */
} job;

static void start(double share, uint64_t step_ns)
{
	job.account = (struct budget_account){.earns_from_ns = S};
	job.now_ns = S;
	job.seen_ns = job.windows = job.longest_rest_ns = job.closed_ns = 0;
	job.shortest_ns = UINT64_MAX;
	job.share = share;
	job.step_ns = step_ns;
	job.most = 0;
	budget_account__open(&job.account, 0.5, job.now_ns);
}

static void close_window(void)
{
	uint64_t ns = job.now_ns - job.account.opened_ns;

	job.shortest_ns = ns < job.shortest_ns ? ns : job.shortest_ns;
	if (job.step_ns && ns < 60 * S)
		assert_true(job.account.steps >= 3);
	job.closed_ns = job.now_ns;
	budget_account__rest(&job.account, SHARE, job.now_ns);
	job.windows++;
}

static void open_window(void)
{
	uint64_t ns = job.now_ns - job.closed_ns;

	job.longest_rest_ns = ns > job.longest_rest_ns ? ns : job.longest_rest_ns;
	assert_true(job.account.spent_ns <= SHARE * (job.now_ns - job.account.earns_from_ns));
	budget_account__open(&job.account, (double)rand() / RAND_MAX, job.now_ns);
}

static void run(uint64_t ns)
{
	for (uint64_t end_ns = job.now_ns + ns; job.now_ns < end_ns;) {
		bool open = job.account.opened_ns;

		job.now_ns += 100 * MS;
		if (open) {
			job.seen_ns += 100 * MS;
			job.account.spent_ns += job.share * 100 * MS;
			job.account.makes_steps = job.step_ns;
			if (job.step_ns)
				job.account.steps = (job.now_ns - job.account.opened_ns) / job.step_ns;
			if (budget_account__is_spent(&job.account, SHARE, job.now_ns))
				close_window();
		} else if (budget_account__is_earned(&job.account, SHARE, job.now_ns)) {
			open_window();
		}
	}
}

static double spent(void)
{
	return job.share * job.seen_ns / (job.now_ns - S);
}

static void one_that_pays_less_never_rests(void **state)
{
	(void)state;
	start(0.9 * SHARE, 10 * MS);
	run(3600 * S);
	assert_int_equal(job.windows, 0);
	assert_true(job.seen_ns == 3600 * S);
}

/* On average it pays what it may, and no less: as much as possible is seen. */
static void one_that_pays_more_rests(void **state)
{
	static const double times[] = {1.05, 1.5, 3, 10, 100};

	(void)state;
	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
		start(times[i] * SHARE, 10 * MS);
		run(3600 * S);
		assert_true(spent() <= SHARE);
		assert_true(spent() >= 0.9 * SHARE);
		assert_true(job.shortest_ns >= 1500 * MS);
		assert_true(job.windows > 3600 / (4 * times[i] + 200));
	}
}

/* Windows have steps; but a budget is not for a job of steps that take hours. */
static void windows_have_steps(void **state)
{
	(void)state;
	start(10 * SHARE, 5 * S);
	run(3600 * S);
	assert_true(job.shortest_ns >= 15 * S);
	assert_true(spent() <= SHARE);
	start(10 * SHARE, 300 * S);
	run(7200 * S);
	assert_true(job.shortest_ns >= 60 * S && job.windows > 5);
	assert_true(spent() <= SHARE);
	start(10 * SHARE, 0); /* none at all */
	run(3600 * S);
	assert_true(job.shortest_ns < 5 * S);
}

/* What it did not pay for an hour does not let it pay for minutes. */
static void credit_is_bounded(void **state)
{
	uint64_t seen_ns;

	(void)state;
	start(0, 0);
	run(3600 * S);
	job.share = 10 * SHARE;
	seen_ns = job.seen_ns;
	run(60 * S);
	assert_true(job.seen_ns - seen_ns < 9 * S);
}

static size_t group_cnt(const struct session *s)
{
	size_t known = 0;

	for (uint32_t number = 0; number <= 2000; number++)
		known += find_group(s, number) != NULL;
	assert_int_equal(known, s->budget.groups.cnt);
	return known;
}

/* Jobs come and go: the groups of those that run stay, and the newest of the others. */
static void groups_are_bounded(void **state)
{
	struct target targets[] = {{.group = 1}, {.group = 300}, {.group = 2, .gone = true}};
	struct target *known[] = {&targets[0], &targets[1], &targets[2]};
	struct session *s = calloc(1, sizeof(*s));

	(void)state;
	s->targets = known;
	s->target_cnt = 3;
	for (uint32_t number = 1; number <= 2000; number++) {
		struct budget_group *group = array__add(&s->budget.groups, sizeof(*group));

		*group = (struct budget_group){.number = number};
		forget_groups(s);
		assert_int_equal(group_cnt(s), number < GROUPS_MAX ? number : GROUPS_MAX);
	}
	assert_true(find_group(s, 1) && find_group(s, 300) && find_group(s, 2000));
	assert_false(find_group(s, 2) || find_group(s, 2000 - GROUPS_MAX));
	free(s->budget.groups.items);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_pays_less_never_rests),
		cmocka_unit_test(one_that_pays_more_rests),
		cmocka_unit_test(windows_have_steps),
		cmocka_unit_test(credit_is_bounded),
		cmocka_unit_test(groups_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
