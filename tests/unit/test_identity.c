/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who a process is, read from its memory: dicts and modules of real interpreters against what those say of themselves;
 * the environment as a process has changed it; what its main thread says it is for; which one is a fork of which.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/children.h"
#include "tests/pythons.h"
#include "user/identity/job_id.h"
#include "user/identity/program.h"
#include "user/proc/environ.h"
#include "user/runtime/python/pydict.h"

/* Prints addresses: of a module's variables, of a dict in it and its first key and value; then how long that dict is. */
static const char script[] =
	"import json.decoder, os, signal, sys\n"
	"os.environ['RANK'] = '5'\n"
	"os.environ['LONG'] = 'x' * 20000\n"
	"del os.environ['GONE']\n"
	"pairs = {i: str(i) for i in range(1000)}\n"
	"del pairs[0], pairs[500]\n"
	"mixed = {'a' * 63: 1, 'b': 2, '\\u00e9': 3, 4: 5, 'c' * 64: 6}\n"
	"class Thing: pass\n"
	"thing, other = Thing(), Thing()\n"
	"thing.x = other.x = 1\n"
	"module = sys.modules['json.decoder']\n"
	"module.pairs, module.mixed = pairs, mixed\n"
	"key = next(iter(pairs))\n"
	"print(id(vars(module)), id(pairs), id(key), id(pairs[key]), id(mixed['b']), id(mixed['a' * 63]))\n"
	"sys.stdout.flush()\n"
	"signal.pause()\n";

struct job {
	pid_t pid;
	struct process process;
	struct python python;
	FILE *from;
};

static void job__start(struct job *job, const char *interpreter, const char *code)
{
	setenv("GONE", "1", 1);
	setenv("STAYS", "as it was", 1);
	setenv("RANK", "7", 1);
	job->pid = start_printing((const char *const[]){interpreter, "-c", code, NULL}, &job->from);
}

static void job__look(struct job *job)
{
	assert_int_equal(process__read(job->pid, &job->process), 0);
	assert_int_equal(python__find(&job->process, &job->python, NULL), 0);
}

static void job__stop(struct job *job)
{
	fclose(job->from);
	process__release(&job->process);
	end_child(job->pid);
}

static bool is_decoder(const char *module)
{
	return !strcmp(module, "json.decoder");
}

static bool is_prefix(const char *module)
{
	return !strcmp(module, "json.decode");
}

static void test_dicts(void **state)
{
	uint64_t module, pairs, key, value, b, a, found;
	struct py_dict_entry entries[3];
	const struct py_layout *layout;
	char longest[65] = "";
	struct job job;
	int64_t cnt;

	job__start(&job, *state, script);
	assert_int_equal(fscanf(job.from, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
				&module, &pairs, &key, &value, &b, &a),
			 6);
	job__look(&job);
	layout = &job.python.process.layout;
	assert_int_equal(py_module__variables(job.pid, &job.python, "json.decoder", &found), 0);
	assert_int_equal(found, module);
	assert_int_equal(py_module__variables(job.pid, &job.python, "json.decoders", &found), -ENOENT);
	assert_int_equal(py_module__variables(job.pid, &job.python, "json.decode", &found), -ENOENT);
	cnt = 0;
	assert_int_equal(py_modules__any(job.pid, &job.python, is_prefix, &cnt), 0);
	assert_true(cnt > 10);
	assert_int_equal(py_modules__any(job.pid, &job.python, is_decoder, &cnt), 0); /* there is no new one */
	cnt--;
	assert_int_equal(py_modules__any(job.pid, &job.python, is_decoder, &cnt), 1);
	assert_int_equal(py_dict__find(job.pid, layout, module, "pairs", &found), 0);
	assert_int_equal(found, pairs);
	assert_int_equal(py_dict__len(job.pid, layout, pairs), 998);
	assert_int_equal(py_dict__entries(job.pid, layout, pairs, entries, 3), 3);
	assert_int_equal(entries[0].key, key);
	assert_int_equal(entries[0].value, value);
	assert_int_equal(py_dict__find(job.pid, layout, pairs, "1", &found), -ENOENT);
	assert_int_equal(py_dict__find(job.pid, layout, module, "mixed", &found), 0);
	memset(longest, 'a', 63);
	assert_int_equal(py_dict__find(job.pid, layout, found, "b", &value), 0);
	assert_int_equal(value, b);
	assert_int_equal(py_dict__find(job.pid, layout, found, longest, &value), 0);
	assert_int_equal(value, a);
	memset(longest, 'c', 64);
	assert_int_equal(py_dict__find(job.pid, layout, found, longest, &value), -EINVAL);
	assert_int_equal(py_dict__len(job.pid, layout, key), -EINVAL);
	assert_int_equal(py_dict__entries(job.pid, layout, key, entries, 3), -EINVAL);
	assert_true(py_dict__entries(job.pid, layout, 16, entries, 3) < 0);
	job__stop(&job);
}

static void test_environ_now(void **state)
{
	char rank[16], gone[16], stays[16], none[16] = "before", length[20001], line[256];
	const struct environ_value wanted[] = {{"RANK", rank, sizeof(rank)},
					       {"GONE", gone, sizeof(gone)},
					       {"STAYS", stays, sizeof(stays)},
					       {"NONE", none, sizeof(none)},
					       {"LONG", length, sizeof(length)}};
	struct job job;

	job__start(&job, *state, script);
	assert_non_null(fgets(line, sizeof(line), job.from));
	job__look(&job);
	assert_int_equal(process__environs_now(&job.process, wanted, 5), 0);
	assert_string_equal(rank, "5");
	assert_string_equal(gone, "");
	assert_string_equal(stays, "as it was");
	assert_string_equal(none, "");
	assert_int_equal(strlen(length), 20000);
	assert_int_equal(rank__read(&job.process, &job.python).number, 5);
	assert_int_equal(rank__read(&job.process, NULL).number, 5);
	assert_int_equal(process__environs(job.pid, wanted, 5), 0);
	assert_string_equal(rank, "7");
	assert_string_equal(gone, "1");
	job__stop(&job);
}

/* ---- programs ---- */

/* A function of a file: what it waits in says what the program is for. */
static const char in_function[] = "import signal, sys\n"
				  "source = 'def %s():\\n print(1, flush=True)\\n signal.pause()'\n"
				  "exec(compile(source, '%s', 'exec'), globals())\n"
				  "def script():\n"
				  "    %s()\n"
				  "script()\n";

static void expect_program(const char *interpreter, const char *code, enum program program)
{
	struct job job;
	char line[16];

	job__start(&job, interpreter, code);
	assert_non_null(fgets(line, sizeof(line), job.from));
	job__look(&job);
	assert_string_equal(program__name(program__read(&job.process, &job.python)), program__name(program));
	job__stop(&job);
}

static void test_programs(void **state)
{
	static const struct {
		const char *function, *file;
		enum program program;
	} cases[] = {
		{"main", "train.py", PROGRAM_SCRIPT},
		{"_worker_loop", "/lib/torch/utils/data/_utils/worker.py", PROGRAM_WORKER},
		{"_worker_loop", "/lib/torchdata/stateful_dataloader/worker.py", PROGRAM_WORKER},
		{"_worker_loop", "worker.py", PROGRAM_SCRIPT},
		{"other", "/lib/torch/utils/data/_utils/worker.py", PROGRAM_SCRIPT},
		{"_wrap", "/lib/torch/multiprocessing/spawn.py", PROGRAM_RANK},
		{"join", "/lib/torch/multiprocessing/spawn.py", PROGRAM_LAUNCHER},
		{"main", "/lib/torch/distributed/run.py", PROGRAM_LAUNCHER},
		{"main", "/home/mytorch/distributed/run.py", PROGRAM_SCRIPT},
		{"run", "/lib/torch/distributed/launcher/api.py", PROGRAM_LAUNCHER},
		{"main", "/lib/torch/_inductor/compile_worker/__main__.py", PROGRAM_HELPER},
	};
	char code[1024];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(code, sizeof(code), in_function, cases[i].function, cases[i].file, cases[i].function);
		expect_program(*state, code, cases[i].program);
	}
	expect_program(
		*state,
		"import signal\n"
		"exec(compile('print(1, flush=True)\\nsignal.pause()', '/lib/torch/__init__.py', 'exec'), globals())\n",
		PROGRAM_IMPORTS);
	/* The main thread decides, whatever others do. */
	expect_program(*state,
		       "import signal, subprocess, threading\n"
		       "p = subprocess.Popen(['sleep', '60'])\n"
		       "threading.Thread(target=p.wait, daemon=True).start()\n"
		       "print(1, flush=True)\n"
		       "signal.pause()\n",
		       PROGRAM_SCRIPT);
}

/* ---- forks ---- */

static void test_exec_id(void **state)
{
	uint8_t mine[EXEC_ID_BYTES], other[EXEC_ID_BYTES];
	pid_t pid = fork_child();

	if (pid == 0)
		for (;;)
			pause();
	assert_int_equal(program__exec_id(getpid(), mine), 0);
	assert_int_equal(program__exec_id(pid, other), 0);
	assert_memory_equal(mine, other, sizeof(mine));
	end_child(pid);
	assert_true(program__exec_id(pid, other) < 0);
	pid = start_program("sleep", (const char *const[]){"sleep", "60", NULL}, NULL);
	assert_int_equal(program__exec_id(pid, other), 0);
	assert_memory_not_equal(mine, other, sizeof(mine));
	end_child(pid);
}

/* ---- ranks ---- */

static struct rank_id rank_with(const char *const environment[])
{
	struct process process;
	struct rank_id rank;
	pid_t pid;

	pid = start_program("sleep", (const char *const[]){"sleep", "60", NULL}, environment);
	assert_int_equal(process__read(pid, &process), 0);
	rank = rank__read(&process, NULL);
	process__release(&process);
	end_child(pid);
	return rank;
}

#define EXPECT_RANK(expected, from, ...)                               \
	do {                                                           \
		const char *const environment[] = {__VA_ARGS__, NULL}; \
		struct rank_id rank = rank_with(environment);          \
		assert_int_equal(rank.number, expected);               \
		assert_int_equal(rank.source, from);                   \
	} while (0)

static void test_ranks(void **state)
{
	EXPECT_RANK(3, RANK_ENVIRON, "RANK=3", "LOCAL_RANK=1", "NODE_RANK=1", "SLURM_PROCID=2");
	EXPECT_RANK(-1, RANK_NONE, "RANK=x");
	EXPECT_RANK(-1, RANK_NONE, "LOCAL_RANK=3");
	EXPECT_RANK(3, RANK_LOCAL_RANK, "LOCAL_RANK=3", "NODE_RANK=0");
	EXPECT_RANK(-1, RANK_NONE, "LOCAL_RANK=3", "NODE_RANK=2");
	EXPECT_RANK(11, RANK_LOCAL_RANK, "LOCAL_RANK=3", "NODE_RANK=2", "LOCAL_WORLD_SIZE=4");
	EXPECT_RANK(-1, RANK_NONE, "LOCAL_RANK=4", "NODE_RANK=2", "LOCAL_WORLD_SIZE=4");
	EXPECT_RANK(-1, RANK_NONE, "LOCAL_RANK=1", "NODE_RANK=2147483647", "LOCAL_WORLD_SIZE=2147483647");
	EXPECT_RANK(6, RANK_SLURM, "SLURM_PROCID=6", "SLURM_LOCALID=0", "PMI_RANK=1");
	EXPECT_RANK(7, RANK_MPI, "OMPI_COMM_WORLD_RANK=7");
	EXPECT_RANK(8, RANK_MPI, "PMI_RANK=8", "PMIX_RANK=");
}

static void test_parse(void **state)
{
	static const char *const wrong[] = {"",   "x",  "0x1", "1 ",         " 1",
					    "-1", "+1", "1.0", "2147483648", "99999999999999999999"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(rank__parse(wrong[i]), -1);
	assert_int_equal(rank__parse("0"), 0);
	assert_int_equal(rank__parse("007"), 7);
	assert_int_equal(rank__parse("2147483647"), INT32_MAX);
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction test;
	} of_python[] = {
		{"test_dicts", test_dicts}, {"test_environ_now", test_environ_now}, {"test_programs", test_programs}};
	const size_t per_python = sizeof(of_python) / sizeof(*of_python);
	struct CMUnitTest tests[3 + 3 * PYTHON_MAX] = {cmocka_unit_test(test_exec_id), cmocka_unit_test(test_ranks),
						       cmocka_unit_test(test_parse)};
	char *pythons[PYTHON_MAX], names[3 * PYTHON_MAX][256];
	size_t python_cnt = find_pythons(pythons);
	int failed;

	for (size_t i = 0; i < per_python * python_cnt; i++) {
		snprintf(names[i], sizeof(names[i]), "%s %s", of_python[i % per_python].name, pythons[i / per_python]);
		tests[3 + i] = (struct CMUnitTest){.name = names[i],
						   .test_func = of_python[i % per_python].test,
						   .initial_state = pythons[i / per_python]};
	}
	if (python_cnt == 0)
		print_message("[  SKIPPED ] no CPython found: set STEPFLAME_PYTHONS\n");
	failed = _cmocka_run_group_tests("identity", tests, 3 + per_python * python_cnt, NULL, NULL);
	for (size_t i = 0; i < python_cnt; i++)
		free(pythons[i]);
	return failed;
}
