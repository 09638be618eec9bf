/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which processes are one job, and which of them a name means: tables of processes that are made up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "user/cmd/trainings.h"

#define ROWS_MAX 300
#define ID_A     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID_B     "0123ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

static struct training rows[ROWS_MAX];
static struct trainings table;

static int set_up(void **state)
{
	memset(rows, 0, sizeof(rows));
	table = (struct trainings){.items = rows};
	return 0;
}

/* Adds a process; a parent that is in the table is its nearest ancestor with torch. */
static struct training *add(pid_t pid, pid_t parent, const char *command, const char *rank)
{
	struct training *t = &rows[table.cnt++];

	t->process.pid = pid;
	t->process.parent = parent;
	t->process.start_time = pid;
	snprintf(t->process.command, sizeof(t->process.command), "%s", command);
	snprintf(t->rank, sizeof(t->rank), "%s", rank);
	for (size_t i = 0; i + 1 < table.cnt; i++)
		if (rows[i].process.pid == parent)
			t->above = parent;
	return t;
}

static void set(char *field, size_t size, const char *text)
{
	snprintf(field, size, "%s", text);
}

#define SET(t, field, text) set((t)->field, sizeof((t)->field), text)

static void in_cgroup(struct training *t, const char *path)
{
	SET(t, cgroup, path);
	training__find_container(t);
}

/* The pids that a name selects, "12 34"; else the error. */
static const char *selected(const char *name)
{
	static char text[4096];
	struct pids pids = {.cnt = 0};
	int err = trainings__select(&table, name, &pids);
	size_t used = 0;

	if (err == -ESRCH || err == -ENOTUNIQ)
		return err == -ESRCH ? "none" : "several";
	assert_int_equal(err, 0);
	for (size_t i = 0; i < pids.cnt; i++)
		used += snprintf(text + used, sizeof(text) - used, "%s%d", i ? " " : "", pids.pid[i]);
	return text;
}

static void test_nothing(void **state)
{
	trainings__relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 0);
	assert_string_equal(selected(NULL), "none");
	assert_string_equal(selected("x"), "none");
}

static void test_workers_are_no_targets(void **state)
{
	add(10, 1, "python train.py", "");
	add(11, 10, "python train.py", "");                                           /* forked */
	add(12, 10, "python -c from multiprocessing.spawn import spawn_main(7)", ""); /* spawned */
	trainings__relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_int_equal(rows[0].workers, 2);
	assert_true(rows[1].child && rows[2].child && !rows[0].launcher);
	assert_string_equal(selected(NULL), "10");
}

/* torchrun's environment is that of its caller; its ranks have a run of their own or "none". */
static void test_ranks_are_one_job(void **state)
{
	add(10, 1, "torchrun train.py", "");
	add(11, 10, "python train.py", "0");
	add(12, 10, "python train.py", "1");
	add(13, 12, "python train.py", "1"); /* a DataLoader's worker of rank 1 */
	trainings__relate(&table);
	assert_true(rows[0].launcher && !rows[1].child && rows[3].child);
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_string_equal(selected(NULL), "12 11");
}

/* Also where what started them has no torch; two programs that one shell started are two jobs. */
static void test_jobs_of_one_parent(void **state)
{
	add(11, 5, "python train.py", "0");
	add(12, 5, "python train.py", "1");
	add(21, 6, "python one.py", "");
	add(22, 6, "python two.py", "");
	trainings__relate(&table);
	assert_int_equal(rows[1].job, 0);
	assert_int_equal(trainings__job_cnt(&table), 3);
	assert_string_equal(selected(NULL), "22 21 12 11");
}

/* What a program with torch has started is recorded before that, which would take it for its child. */
static void test_programs_of_a_program(void **state)
{
	add(10, 1, "python sweep.py", "");
	add(11, 10, "python train.py", "");
	trainings__relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_string_equal(selected(NULL), "11 10");
}

static void test_runs(void **state)
{
	SET(add(11, 5, "python a.py", "0"), run, "first");
	SET(add(12, 6, "python a.py", "1"), run, "first"); /* of another torchrun */
	SET(add(13, 7, "python a.py", "0"), run, "second");
	trainings__relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 2);
	assert_string_equal(selected("first"), "12 11");
	assert_string_equal(selected("second"), "13");
	assert_string_equal(selected("fir"), "none");
}

static void test_slurm(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct training *t = add(11 + i, 5 + i, "python a.py", "");

		SET(t, slurm, "4711");
		SET(t, slurm_step, i < 2 ? "0" : i == 2 ? "1" : "");
	}
	trainings__relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 3); /* two steps, and what salloc's shell has started */
	assert_string_equal(selected("4711"), "14 13 12 11");
	assert_string_equal(selected("471"), "none");
}

static void test_containers(void **state)
{
	char name[64];

	in_cgroup(add(11, 5, "python a.py", ""), "/system.slice/docker-" ID_A ".scope");
	in_cgroup(add(12, 5, "python b.py", ""), "/kubepods/pod1234/cri-containerd-" ID_B ".scope/inner");
	in_cgroup(add(13, 5, "python c.py", ""), "/user.slice/" ID_A "0"); /* too long for an id */
	trainings__relate(&table);
	assert_string_equal(rows[0].container, ID_A);
	assert_string_equal(rows[1].container, ID_B);
	assert_string_equal(rows[2].container, "");
	assert_string_equal(training__job_name(&rows[0], name, sizeof(name)), "0123456789ab");
	assert_string_equal(selected(ID_A), "11");
	assert_string_equal(selected("0123f"), "12");
	assert_string_equal(selected("0123"), "several");
	assert_string_equal(selected("012"), "none"); /* too short */
	assert_string_equal(selected("0124"), "none");
	/* what is exactly so called goes before */
	SET(&rows[2], slurm, "0123");
	assert_string_equal(selected("0123"), "13");
}

static void test_cgroups(void **state)
{
	in_cgroup(add(11, 5, "python a.py", ""), "/lab/one");
	in_cgroup(add(12, 5, "python b.py", ""), "/lab/one/more");
	in_cgroup(add(13, 5, "python c.py", ""), "/lab/ones");
	in_cgroup(add(14, 5, "python d.py", ""), "");
	trainings__relate(&table);
	assert_string_equal(selected("/lab/one"), "12 11");
	assert_string_equal(selected("/sys/fs/cgroup/lab/one/"), "12 11");
	assert_string_equal(selected("/lab"), "13 12 11");
	assert_string_equal(selected("/"), "13 12 11");
	assert_string_equal(selected("lab/one"), "none");
	assert_string_equal(selected("/lab/o"), "none");
}

/* Launchers and workers inherit the names of their job, and are no targets by them either. */
static void test_names_select_targets_only(void **state)
{
	for (int i = 0; i < 3; i++)
		in_cgroup(add(10 + i, 9 + i, i ? "python train.py" : "torchrun", i ? "0" : ""), "/job");
	trainings__relate(&table);
	assert_true(rows[0].launcher && rows[2].child);
	assert_string_equal(selected("/job"), "11");
}

static void test_too_many(void **state)
{
	struct pids pids = {.cnt = 0};

	for (int i = 0; i < PIDS_MAX + 1; i++)
		add(1000 + i, 5, "python train.py", "0");
	trainings__relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_int_equal(trainings__select(&table, NULL, &pids), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_nothing, set_up),
		cmocka_unit_test_setup(test_workers_are_no_targets, set_up),
		cmocka_unit_test_setup(test_ranks_are_one_job, set_up),
		cmocka_unit_test_setup(test_jobs_of_one_parent, set_up),
		cmocka_unit_test_setup(test_programs_of_a_program, set_up),
		cmocka_unit_test_setup(test_runs, set_up),
		cmocka_unit_test_setup(test_slurm, set_up),
		cmocka_unit_test_setup(test_containers, set_up),
		cmocka_unit_test_setup(test_cgroups, set_up),
		cmocka_unit_test_setup(test_names_select_targets_only, set_up),
		cmocka_unit_test_setup(test_too_many, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
