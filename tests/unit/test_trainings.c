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

#include "user/cmd/targets.h"
#include "user/identity/trainings.c"

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
static struct training *add_process(pid_t pid, pid_t parent, const char *command, const char *rank)
{
	struct training *t = &rows[table.cnt++];

	t->process.pid = pid;
	t->process.parent = parent;
	t->process.start_time = pid;
	snprintf(t->process.command, sizeof(t->process.command), "%s", command);
	t->rank = (struct rank_id){rank__parse(rank), *rank ? RANK_ENVIRON : RANK_NONE};
	t->program = PROGRAM_SCRIPT;
	memcpy(t->exec_id, &table.cnt, sizeof(table.cnt));
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
	SET(t, id.cgroup, path);
	job_id__find_container(&t->id);
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
	relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 0);
	assert_string_equal(selected(NULL), "none");
	assert_string_equal(selected("x"), "none");
}

/* A program that it is, and no other than its parent where it is a fork. */
static struct training *is_program(struct training *t, enum program program, const struct training *fork_of)
{
	t->program = program;
	if (fork_of)
		memcpy(t->exec_id, fork_of->exec_id, sizeof(t->exec_id));
	return t;
}

/* What each process is: "T" a trainer, "W3" a worker of the row 3, "H3" a helper of it, "L" a launcher, "-" none. */
static const char *roles(void)
{
	static char text[ROWS_MAX * 8];
	size_t used = 0;

	for (size_t i = 0; i < table.cnt; i++) {
		const struct training *of = trainings__pid(&table, rows[i].of);

		used += snprintf(text + used, sizeof(text) - used, "%s%c", i ? " " : "", "TWHL-"[rows[i].role]);
		if (of)
			used += snprintf(text + used, sizeof(text) - used, "%zd", of - rows);
	}
	return text;
}

static void test_workers_are_no_targets(void **state)
{
	struct training *trainer = add_process(10, 1, "python train.py", "");

	is_program(add_process(11, 10, "python train.py", ""), PROGRAM_WORKER, trainer);
	is_program(add_process(12, 10, "python -c spawn_main(7)", ""), PROGRAM_WORKER, NULL);
	is_program(add_process(13, 10, "a title", ""), PROGRAM_CHILD, trainer); /* such as an environment of RL */
	is_program(add_process(14, 10, "python train.py", ""), PROGRAM_SCRIPT, trainer); /* os.fork() */
	is_program(add_process(15, 10, "python train.py", ""), PROGRAM_UNKNOWN, NULL);
	is_program(add_process(16, 10, "python -c multiprocessing", ""), PROGRAM_UNKNOWN, NULL);
	relate(&table);
	assert_string_equal(roles(), "T W0 W0 W0 W0 W0 W0");
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_int_equal(rows[0].workers, 6);
	assert_string_equal(selected(NULL), "10");
}

/* forkserver may have torch itself; what it starts for the trainer has it as its parent. */
static void test_forkserver(void **state)
{
	struct training *server;

	add_process(10, 1, "python train.py", "");
	server = is_program(add_process(11, 10, "python -c from multiprocessing.forkserver import main", ""),
			    PROGRAM_HELPER, NULL);
	is_program(add_process(12, 11, "python -c ...", ""), PROGRAM_WORKER, server);
	is_program(add_process(13, 11, "python -c ...", ""), PROGRAM_CHILD, server);
	relate(&table);
	assert_string_equal(roles(), "T H0 W0 W0");
	assert_int_equal(rows[0].workers, 2);
}

/* What maps torch is no training process by that. */
static void test_helpers(void **state)
{
	struct training *pool;

	add_process(10, 1, "python train.py", "");
	is_program(add_process(11, 10, "torch_shm_manager", ""), PROGRAM_NATIVE, NULL);
	pool = is_program(add_process(12, 10, "python compile_worker", ""), PROGRAM_HELPER, NULL);
	is_program(add_process(13, 12, "python compile_worker", ""), PROGRAM_HELPER, pool);
	is_program(add_process(20, 1, "serve", ""), PROGRAM_NATIVE, NULL);
	relate(&table);
	assert_string_equal(roles(), "T H0 H0 H0 -");
	assert_string_equal(selected(NULL), "10");
	assert_int_equal(trainings__job_cnt(&table), 1);
}

/* A worker without its trainer, which has ended, is no trainer. */
static void test_orphan(void **state)
{
	is_program(add_process(11, 1, "python train.py", ""), PROGRAM_WORKER, NULL);
	relate(&table);
	assert_string_equal(roles(), "W");
	assert_string_equal(selected(NULL), "none");
}

/* Lightning: rank 0 starts the others, with its own command line. */
static void test_rank_that_starts_ranks(void **state)
{
	struct training *rank0 = add_process(10, 1, "python train.py", "0"),
			*rank1 = add_process(11, 10, "python train.py", "1");

	is_program(add_process(12, 10, "python train.py", "0"), PROGRAM_WORKER, rank0);
	is_program(add_process(13, 11, "python train.py", "1"), PROGRAM_WORKER, rank1);
	relate(&table);
	assert_string_equal(roles(), "T T W0 W1");
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_string_equal(selected(NULL), "11 10");
}

/* spawned and forked ones; the numbers are known once they have joined their group */
static void test_spawned_ranks(void **state)
{
	struct training *parent = is_program(add_process(10, 1, "python a.py", ""), PROGRAM_LAUNCHER, NULL);

	is_program(add_process(11, 10, "python -c spawn_main", ""), PROGRAM_RANK, NULL);
	is_program(add_process(12, 10, "python a.py", "1"), PROGRAM_RANK, parent);
	parent = is_program(add_process(20, 1, "python b.py", ""), PROGRAM_WAITS,
			    NULL); /* joins processes that it has made itself */
	is_program(add_process(21, 20, "python -c spawn_main", ""), PROGRAM_CHILD, NULL);
	is_program(add_process(22, 20, "python b.py", ""), PROGRAM_CHILD, parent);
	relate(&table);
	assert_string_equal(roles(), "L T T L T T");
	assert_int_equal(trainings__job_cnt(&table), 2);
}

/* An evaluation that a rank starts has its environment, and is not that rank. */
static void test_inherited_rank(void **state)
{
	add_process(10, 1, "python train.py", "3");
	add_process(11, 10, "python evaluate.py", "3");
	relate(&table);
	assert_string_equal(roles(), "T T");
	assert_int_equal(rows[0].rank.number, 3);
	assert_int_equal(rows[1].rank.number, -1);
}

/* By hand from two shells: they meet at one port, and are ranks. */
static void test_where_ranks_meet(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct training *t = add_process(11 + i, 5 + i, "python a.py", i < 3 ? (i % 2 ? "1" : "0") : "");

		SET(t, id.address, "127.0.0.1");
		SET(t, id.port, i == 2 ? "29501" : "29500");
	}
	relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 3);
	assert_int_equal(rows[1].job, 0);
}

/* torchrun's environment is that of its caller; its ranks have a run of their own or "none". */
static void test_ranks_are_one_job(void **state)
{
	add_process(10, 1, "torchrun train.py", "");
	add_process(11, 10, "python train.py", "0");
	add_process(12, 10, "python train.py", "1");
	is_program(add_process(13, 12, "python train.py", "1"), PROGRAM_WORKER, &rows[2]);
	relate(&table);
	assert_string_equal(roles(), "L T T W2");
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_string_equal(selected(NULL), "12 11");
}

/* Also where what started them has no torch; two programs that one shell started are two jobs. */
static void test_jobs_of_one_parent(void **state)
{
	add_process(11, 5, "python train.py", "0");
	add_process(12, 5, "python train.py", "1");
	add_process(21, 6, "python one.py", "");
	add_process(22, 6, "python two.py", "");
	relate(&table);
	assert_int_equal(rows[1].job, 0);
	assert_int_equal(trainings__job_cnt(&table), 3);
	assert_string_equal(selected(NULL), "22 21 12 11");
}

/* What a program with torch has started is recorded before that, which would take it for its child. */
static void test_programs_of_a_program(void **state)
{
	add_process(10, 1, "python sweep.py", "");
	add_process(11, 10, "python train.py", "");
	relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_string_equal(selected(NULL), "11 10");
}

static void test_runs(void **state)
{
	SET(add_process(11, 5, "python a.py", "0"), id.run, "first");
	SET(add_process(12, 6, "python a.py", "1"), id.run, "first"); /* of another torchrun */
	SET(add_process(13, 7, "python a.py", "0"), id.run, "second");
	relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 2);
	assert_string_equal(selected("first"), "12 11");
	assert_string_equal(selected("second"), "13");
	assert_string_equal(selected("fir"), "none");
}

static void test_slurm(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct training *t = add_process(11 + i, 5 + i, "python a.py", "");

		SET(t, id.slurm, "4711");
		SET(t, id.slurm_step, i < 2 ? "0" : i == 2 ? "1" : "");
	}
	relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 3); /* two steps, and what salloc's shell has started */
	assert_string_equal(selected("4711"), "14 13 12 11");
	assert_string_equal(selected("471"), "none");
}

static void test_containers(void **state)
{
	char name[64];

	in_cgroup(add_process(11, 5, "python a.py", ""), "/system.slice/docker-" ID_A ".scope");
	in_cgroup(add_process(12, 5, "python b.py", ""), "/kubepods/pod1234/cri-containerd-" ID_B ".scope/inner");
	in_cgroup(add_process(13, 5, "python c.py", ""), "/user.slice/" ID_A "0"); /* too long for an id */
	relate(&table);
	assert_string_equal(rows[0].id.container, ID_A);
	assert_string_equal(rows[1].id.container, ID_B);
	assert_string_equal(rows[2].id.container, "");
	assert_string_equal(job_id__name(&rows[0].id, name, sizeof(name)), "0123456789ab");
	assert_string_equal(selected(ID_A), "11");
	assert_string_equal(selected("0123f"), "12");
	assert_string_equal(selected("0123"), "several");
	assert_string_equal(selected("012"), "none"); /* too short */
	assert_string_equal(selected("0124"), "none");
	/* what is exactly so called goes before */
	SET(&rows[2], id.slurm, "0123");
	assert_string_equal(selected("0123"), "13");
}

static void test_cgroups(void **state)
{
	in_cgroup(add_process(11, 5, "python a.py", ""), "/lab/one");
	in_cgroup(add_process(12, 5, "python b.py", ""), "/lab/one/more");
	in_cgroup(add_process(13, 5, "python c.py", ""), "/lab/ones");
	in_cgroup(add_process(14, 5, "python d.py", ""), "");
	relate(&table);
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
		in_cgroup(add_process(10 + i, 9 + i, i ? "python train.py" : "torchrun", i ? "0" : ""), "/job");
	is_program(&rows[2], PROGRAM_WORKER, &rows[1]);
	relate(&table);
	assert_string_equal(roles(), "L T W1");
	assert_string_equal(selected("/job"), "11");
}

static void test_too_many(void **state)
{
	struct pids pids = {.cnt = 0};

	for (int i = 0; i < PIDS_MAX + 1; i++)
		add_process(1000 + i, 5, "python train.py", "0");
	relate(&table);
	assert_int_equal(trainings__job_cnt(&table), 1);
	assert_int_equal(trainings__select(&table, NULL, &pids), -E2BIG);
}

/* Another user says that his process is a rank of somebody's job. */
static void test_other_user(void **state)
{
	struct training *mine = add_process(10, 1, "python train.py", "0"),
			*too = add_process(11, 2, "python train.py", "1"),
			*his = add_process(12, 3, "python train.py", "2");

	for (struct training *t = mine; t <= his; t++) {
		SET(t, id.run, "run");
		SET(t, id.slurm, "7");
		SET(t, id.slurm_step, "0");
		SET(t, id.port, "29500");
		t->process.uid = t == his ? 1001 : 1000;
	}
	relate(&table);
	assert_int_equal(mine->job, too->job);
	assert_int_not_equal(mine->job, his->job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_nothing, set_up),
		cmocka_unit_test_setup(test_workers_are_no_targets, set_up),
		cmocka_unit_test_setup(test_forkserver, set_up),
		cmocka_unit_test_setup(test_helpers, set_up),
		cmocka_unit_test_setup(test_orphan, set_up),
		cmocka_unit_test_setup(test_rank_that_starts_ranks, set_up),
		cmocka_unit_test_setup(test_spawned_ranks, set_up),
		cmocka_unit_test_setup(test_inherited_rank, set_up),
		cmocka_unit_test_setup(test_where_ranks_meet, set_up),
		cmocka_unit_test_setup(test_ranks_are_one_job, set_up),
		cmocka_unit_test_setup(test_jobs_of_one_parent, set_up),
		cmocka_unit_test_setup(test_other_user, set_up),
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
