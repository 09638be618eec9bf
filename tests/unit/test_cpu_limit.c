// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Who has the CPUs that a process waits for, by what it and the machine use, and what the kernel counts of a quota. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "include/resource_records.h"
#include "tests/unit/build_job.h"
#include "user/analysis/resources/cpu_limit.h"

#define S 1000000000ull

enum { PID = 7 };

/* One a second, of a process that uses 0.2 CPUs. */
static struct job *job_of_samples(size_t cnt)
{
	struct job *job = job__new();

	add_target(job, PID, ROLE_MAIN, -1);
	for (uint64_t i = 0; i < cnt; i++) {
		const struct rec_resources rec = {.hdr = {.type = REC_RESOURCES, .size = sizeof(rec)},
						  .time_ns = (1 + i) * S,
						  .pid = PID,
						  .user_ns = i * S / 5};
		assert_int_equal(add_copy(job, &rec), 0);
	}
	return job;
}

/* On a machine of so many CPUs; of PID, which uses 0.2, and PID + 1, which uses one if it is `busy`. */
static enum cpu_holder holder_of(uint32_t cpus, uint32_t allowed, uint64_t milli_cpus, bool busy)
{
	const struct rec_machine machine = {
		.hdr = {.type = REC_MACHINE, .size = sizeof(machine)}, .time_ns = S, .pid = PID, .processors = cpus};
	const struct rec_limits limits = {.hdr = {.type = REC_LIMITS, .size = sizeof(limits)},
					  .pid = PID,
					  .processors = allowed,
					  .milli_cpus = milli_cpus};
	struct job *job = job_of_samples(20);
	struct cpu_limit limit;

	assert_int_equal(add_copy(job, &machine), 0);
	assert_int_equal(add_copy(job, &limits), 0);
	for (uint64_t i = 0; i < 20 && busy; i++) {
		const struct rec_resources rec = {.hdr = {.type = REC_RESOURCES, .size = sizeof(rec)},
						  .time_ns = i * S,
						  .pid = PID + 1,
						  .user_ns = i * S};
		assert_int_equal(add_copy(job, &rec), 0);
	}
	cpu_limit__find(job, PID, 0, 0.5, &limit);
	assert_true(limit.used > (busy ? 1.19 : 0.19) && limit.used < (busy ? 1.21 : 0.21));
	cpu_limit__find(job, PID + (1u << REC_PID_BITS), 0, 0.5, &limit); /* of another machine */
	assert_int_equal(limit.holder, CPU_HELD_UNKNOWN);
	cpu_limit__find(job, PID, 0, 0.5, &limit);
	job__free(job);
	return limit.holder;
}

static void cpus_have_a_holder(void **state)
{
	assert_int_equal(holder_of(8, 0, 0, false), CPU_HELD_OTHERS);
	assert_int_equal(holder_of(8, 8, 200, false), CPU_HELD_QUOTA);
	assert_int_equal(holder_of(8, 8, 500, false), CPU_HELD_OTHERS);
	assert_int_equal(holder_of(8, 1, 0, true), CPU_HELD_ALLOWED);
	assert_int_equal(holder_of(8, 1, 1100, true), CPU_HELD_ALLOWED);
	assert_int_equal(holder_of(8, 2, 1200, true), CPU_HELD_QUOTA);
	assert_int_equal(holder_of(1, 1, 0, true), CPU_HELD_ITSELF);
	assert_int_equal(holder_of(2, 2, 0, true), CPU_HELD_OTHERS);
	assert_int_equal(holder_of(0, 1, 100, true), CPU_HELD_UNKNOWN); /* no machine */
}

/* Workers that are started anew each second use one CPU after the other, not as many as there are workers. */
static void cpus_of_short_processes_are_not_added_up(void **state)
{
	const struct rec_machine machine = {
		.hdr = {.type = REC_MACHINE, .size = sizeof(machine)}, .time_ns = S, .pid = PID, .processors = 8};
	struct job *job = job_of_samples(20);
	struct cpu_limit limit;

	assert_int_equal(add_copy(job, &machine), 0);
	for (uint64_t i = 0; i < 30; i++) {
		const struct rec_resources rec = {.hdr = {.type = REC_RESOURCES, .size = sizeof(rec)},
						  .time_ns = (1 + i / 2 + i % 2) * S,
						  .pid = PID + 1 + i / 2,
						  .user_ns = i % 2 * S};
		assert_int_equal(add_copy(job, &rec), 0);
	}
	cpu_limit__find(job, PID, 0, 0.5, &limit);
	assert_int_equal(limit.holder, CPU_HELD_OTHERS);
	assert_true(limit.used > 0.2 + 14.9 / 19 && limit.used < 0.2 + 15.1 / 19);
	job__free(job);
}

/* What another job of the same recording uses is not this one's; what its own ranks and children use is. */
static void another_job_uses_its_own(void **state)
{
	enum { OWN_RANK = 20, OTHER, ITS_CHILD };
	const struct rec_machine machine = {
		.hdr = {.type = REC_MACHINE, .size = sizeof(machine)}, .time_ns = S, .pid = PID, .processors = 8};
	const struct rec_target child = {.hdr = {.type = REC_TARGET, .size = sizeof(child)},
					 .pid = ITS_CHILD,
					 .parent_pid = OTHER,
					 .role = ROLE_CHILD,
					 .rank = -1};
	struct rec_job rec = {.hdr = {.type = REC_JOB, .size = sizeof(rec)}, .meets = "127.0.0.1 29500"};
	struct job *job = job_of_samples(20);
	struct cpu_limit limit;

	add_target(job, PID, ROLE_MAIN, 0);
	add_target(job, OWN_RANK, ROLE_MAIN, 1);
	add_target(job, OTHER, ROLE_MAIN, 1);
	assert_int_equal(add_copy(job, &child), 0);
	assert_int_equal(add_copy(job, &machine), 0);
	for (uint32_t i = 0; i < 3; i++) {
		rec.pid = (const uint32_t[]){PID, OWN_RANK, OTHER}[i];
		rec.meets[strlen(rec.meets) - 1] = i == 2 ? '1' : '0';
		assert_int_equal(add_copy(job, &rec), 0);
	}
	for (uint64_t i = 0; i < 60; i++) {
		const struct rec_resources used = {.hdr = {.type = REC_RESOURCES, .size = sizeof(used)},
						   .time_ns = (1 + i / 3) * S,
						   .pid = OWN_RANK + i % 3,
						   .user_ns = i / 3 * S};
		assert_int_equal(add_copy(job, &used), 0);
	}
	cpu_limit__find(job, PID, 0, 0.5, &limit);
	assert_true(limit.used > 1.19 && limit.used < 1.21);
	job__free(job);
}

/* On 4 CPUs, with a quota of 0.5 and others of it above. */
static struct job *job_with_quota(uint32_t own_milli_cpus)
{
	const struct rec_machine machine = {
		.hdr = {.type = REC_MACHINE, .size = sizeof(machine)}, .time_ns = S, .pid = PID, .processors = 4};
	const struct rec_limits limits = {
		.hdr = {.type = REC_LIMITS, .size = sizeof(limits)}, .pid = PID, .milli_cpus = own_milli_cpus};
	struct job *job = job_of_samples(20);

	assert_int_equal(add_copy(job, &machine), 0);
	assert_int_equal(add_copy(job, &limits), 0);
	return job;
}

static void add_throttle(struct job *job, uint32_t above, uint64_t time_ns, uint64_t periods, uint64_t throttled,
			 uint64_t throttled_ns)
{
	const struct rec_throttle rec = {.hdr = {.type = REC_THROTTLE, .size = sizeof(rec)},
					 .time_ns = time_ns,
					 .pid = PID,
					 .above = above,
					 .group = 100 - above,
					 .milli_cpus = above ? 2000 : 500,
					 .periods = periods,
					 .throttled = throttled,
					 .throttled_ns = throttled_ns};

	assert_int_equal(add_copy(job, &rec), 0);
}

/* The first thread of PID waited for a CPU, and that process had it. */
static void add_ran(struct job *job, uint32_t ran_pid, uint64_t ns)
{
	static uint64_t time_ns = S;
	const struct rec_sample rec = {.hdr = {.type = REC_SAMPLE, .size = sizeof(rec)},
				       .time_ns = time_ns += S / 100,
				       .weight_ns = ns,
				       .pid = PID,
				       .tid = PID,
				       .waits = 1,
				       .syscall = -1,
				       .kind = SAMPLE_WAIT,
				       .cause = CAUSE_RUN_QUEUE,
				       .ran_pid = ran_pid};

	assert_int_equal(add_copy(job, &rec), 0);
}

static const char *text_of(struct job *job, double waits, enum cpu_holder holder)
{
	static char text[2 * CPU_LIMIT_TEXT];
	struct cpu_limit limit;

	assert_int_equal(cpu_limit__find(job, PID, 0, waits, &limit), 0);
	assert_int_equal(limit.holder, holder);
	cpu_limit__text(&limit, text);
	job__free(job);
	return text;
}

/* A job in bursts uses 0.2 CPUs of 0.5, and yet its quota holds it up; or does not, though it uses it up. */
static void the_kernel_says_whether_it_was_the_quota(void **state)
{
	struct job *job = job_with_quota(500);

	add_throttle(job, 0, S, 1000, 7, 5 * S);
	add_throttle(job, 0, 14 * S, 1130, 136, 5 * S + 5330000000);
	assert_string_equal(text_of(job, 0.5, CPU_HELD_QUOTA), "its own limit of 0.5 CPUs: throttled in 129 of 130 "
							       "periods, 41 % of the time; the job uses 0.2 CPUs");
	job = job_with_quota(200);
	add_throttle(job, 0, S, 0, 0, 0);
	add_throttle(job, 0, 20 * S, 130, 2, S / 100);
	assert_string_equal(text_of(job, 0.5, CPU_HELD_OTHERS),
			    "others have them: this job uses 0.2 CPUs of the 0.2 that "
			    "it may use");
	job = job_with_quota(500); /* a part of it */
	add_throttle(job, 0, S, 0, 0, 0);
	add_throttle(job, 0, 21 * S, 130, 52, 2 * S);
	assert_string_equal(
		text_of(job, 0.5, CPU_HELD_OTHERS),
		"others have them: this job uses 0.2 CPUs of the 0.5 that it may use; also its own limit of 0.5 "
		"CPUs: throttled in 52 of 130 periods, 10 % of the time");
	job = job_with_quota(200); /* as of a recording of an earlier version */
	assert_string_equal(text_of(job, 0.5, CPU_HELD_QUOTA),
			    "its cgroup is limited to 0.2 CPUs, and the job uses 0.2");
}

enum { RANK = 20, ITS_WORKER, WORKER, STRANGER };

/* A rank of the same job, workers of both, and a job beside it. */
static struct job *job_with_neighbours(uint32_t cpus)
{
	const struct rec_machine machine = {
		.hdr = {.type = REC_MACHINE, .size = sizeof(machine)}, .time_ns = S, .pid = PID, .processors = cpus};
	struct rec_target worker = {
		.hdr = {.type = REC_TARGET, .size = sizeof(worker)}, .role = ROLE_WORKER, .rank = -1};
	struct job *job = job_of_samples(20);

	add_target(job, PID, ROLE_MAIN, 0);
	add_target(job, RANK, ROLE_MAIN, 1);
	add_target(job, STRANGER, ROLE_MAIN, -1);
	worker.pid = WORKER, worker.parent_pid = PID;
	assert_int_equal(add_copy(job, &worker), 0);
	worker.pid = ITS_WORKER, worker.parent_pid = RANK;
	assert_int_equal(add_copy(job, &worker), 0);
	assert_int_equal(add_copy(job, &machine), 0);
	return job;
}

static const char *ran_text(struct job *job, enum cpu_holder holder, enum cpu_ran_who most)
{
	static char text[2 * CPU_LIMIT_TEXT];
	struct cpu_limit limit;

	assert_non_null(job__samples(job));
	assert_int_equal(cpu_limit__find(job, PID, 1, 0.5, &limit), 0);
	assert_int_equal(limit.holder, holder);
	assert_int_equal(cpu_ran__most_of_own(&limit.ran), most);
	cpu_limit__text(&limit, text);
	job__free(job);
	return text;
}

/* Whatever the job and the machine use: who ran is known. */
static void who_ran_has_the_cpus(void **state)
{
	struct job *job = job_with_neighbours(1);

	add_ran(job, STRANGER, 60);
	add_ran(job, 4711, 20);
	add_ran(job, PID, 20);
	assert_string_equal(
		ran_text(job, CPU_HELD_OTHERS, CPU_RAN_THREADS),
		"others have them: this job uses 0.2 CPUs of the 1 that it may use; other programs (process 23 "
		"most) ran 80 % of that time, its own threads 20 %");
	job = job_with_neighbours(8);
	add_ran(job, PID, 50);
	add_ran(job, WORKER, 30);
	add_ran(job, ITS_WORKER, 10);
	add_ran(job, RANK, 10);
	add_ran(job, 0, 100);
	assert_string_equal(
		ran_text(job, CPU_HELD_ITSELF, CPU_RAN_THREADS),
		"its own threads and processes have them: they use 0.2 of the machine's 8 CPUs; its own threads "
		"ran 50 % of that time, its child processes 30 %, other ranks 20 %");
	job = job_with_neighbours(8);
	add_ran(job, RANK, 60);
	add_ran(job, REC_PID_HIDDEN, 40);
	assert_string_equal(
		ran_text(job, CPU_HELD_ITSELF, CPU_RAN_RANKS),
		"its own threads and processes have them: they use 0.2 of the machine's 8 CPUs; other ranks ran "
		"60 % of that time, other programs 40 %");
	job = job_with_neighbours(8); /* of more than half of the time it is not known */
	add_ran(job, PID, 49);
	add_ran(job, 0, 51);
	assert_string_equal(ran_text(job, CPU_HELD_OTHERS, CPU_RAN_THREADS),
			    "others have them: this job uses 0.2 CPUs of the 8 that it may use");
}

/* Two jobs whose ranks have the same numbers, or meet elsewhere, are two. */
static void ranks_of_another_job_are_others(void **state)
{
	struct rec_job rec = {.hdr = {.type = REC_JOB, .size = sizeof(rec)}, .pid = PID, .meets = "127.0.0.1 29500"};
	struct job *job = job_with_neighbours(8);

	assert_int_equal(add_copy(job, &rec), 0);
	rec.pid = RANK;
	rec.meets[strlen(rec.meets) - 1] = '1';
	assert_int_equal(add_copy(job, &rec), 0);
	add_ran(job, RANK, 60);
	assert_string_equal(
		ran_text(job, CPU_HELD_OTHERS, CPU_RAN_THREADS),
		"others have them: this job uses 0.2 CPUs of the 8 that it may use; other programs (process 20 "
		"most) ran 100 % of that time");
}

static void of_several_quotas_the_one_that_held_it_up(void **state)
{
	struct job *job = job_with_quota(500);

	for (uint64_t i = 0; i < 20; i++) {
		add_throttle(job, 0, (20 - i) * S, 10 * (20 - i), 0, 0);
		add_throttle(job, 2, (20 - i) * S, 10 * (20 - i), 9 * (20 - i), (20 - i) * S * 2);
	}
	assert_string_equal(text_of(job, 0.8, CPU_HELD_QUOTA),
			    "the limit of 2 CPUs of a cgroup around its own: throttled in 171 of 190 periods, 2 s a "
			    "second, all CPUs together; the job uses 0.2 CPUs");
}

/* Counts that go back, or are more than there can be: nothing is said of them. */
static void counts_may_lie(void **state)
{
	static const uint64_t wrong[][3] = {
		{99, 10, S},         {110, 111, S}, {110, 4, S},     {200, 100, S},
		{200, 100, 100 * S}, {200, 100, 0}, {200, 5, 2 * S}, {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
	struct cpu_throttle throttle;
	size_t said = 0;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct job *job = job_with_quota(500);

		add_throttle(job, 0, S, 100, 5, S);
		add_throttle(job, 0, 20 * S, wrong[i][0], wrong[i][1], wrong[i][2]);
		add_throttle(job, 1, S, 0, 0, 0);
		add_throttle(job, 1, 20 * S, 100, 100, 19 * S);
		said += cpu_throttle__find(job, PID, &throttle);
		assert_int_equal(throttle.periods, 0);
		text_of(job, 0.5, CPU_HELD_OTHERS);
	}
	assert_int_equal(said, 0);
}

static void a_short_look_says_nothing(void **state)
{
	struct job *job = job_with_quota(500);
	struct cpu_throttle throttle;

	assert_false(cpu_throttle__find(job, PID, &throttle));
	add_throttle(job, 0, S, 100, 5, S);
	assert_false(cpu_throttle__find(job, PID, &throttle));
	add_throttle(job, 0, 2 * S, 110, 15, 2 * S);
	assert_false(cpu_throttle__find(job, PID, &throttle));
	add_throttle(job, 0, 4 * S, 110, 15, 2 * S);
	assert_true(cpu_throttle__find(job, PID, &throttle));
	assert_false(cpu_throttle__find(job, PID + 1, &throttle));
	job__free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cpus_have_a_holder),
		cmocka_unit_test(cpus_of_short_processes_are_not_added_up),
		cmocka_unit_test(another_job_uses_its_own),
		cmocka_unit_test(the_kernel_says_whether_it_was_the_quota),
		cmocka_unit_test(who_ran_has_the_cpus),
		cmocka_unit_test(ranks_of_another_job_are_others),
		cmocka_unit_test(of_several_quotas_the_one_that_held_it_up),
		cmocka_unit_test(counts_may_lie),
		cmocka_unit_test(a_short_look_says_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
