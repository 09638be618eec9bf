/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Python threads of real interpreters, against what those say of themselves by threading and ctypes, and what the
 * kernel says of a thread that waits.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/children.h"
#include "tests/pythons.h"
#include "user/runtime/python/pythread.h"

#define SPINNER_CNT 3
#define FUTEX_NR    202 /* x86-64 */

/*
 * A line a thread: native thread id, ident, thread state (0 without ctypes); first the one that waits for a lock, then
 * those that spin. Each begins when the one before it has written its line, on a busy machine, too.
 */
static const char script[] = "import os, threading\n"
			     "try:\n"
			     "    import ctypes\n"
			     "    state = ctypes.pythonapi.PyGILState_GetThisThreadState\n"
			     "    state.restype = ctypes.c_void_p\n"
			     "    code_type = ctypes.cast(ctypes.pythonapi.PyCode_Type, ctypes.c_void_p).value\n"
			     "except ImportError:\n"
			     "    state, code_type = (lambda: 0), 0\n"
			     "def tell():\n"
			     "    line = '%d %d %d\\n' % (threading.get_native_id(), threading.get_ident(), state())\n"
			     "    os.write(1, line.encode())\n"
			     "    told.set()\n"
			     "told = threading.Event()\n"
			     "def start(function):\n"
			     "    told.clear()\n"
			     "    threading.Thread(target=function, daemon=True).start()\n"
			     "    told.wait()\n"
			     "lock = threading.Lock()\n"
			     "lock.acquire()\n"
			     "def wait():\n"
			     "    tell()\n"
			     "    lock.acquire()\n"
			     "def spin():\n"
			     "    tell()\n"
			     "    while True:\n"
			     "        pass\n"
			     "print(id(type(tell.__code__)), code_type, flush=True)\n"
			     "start(wait)\n"
			     "for i in range(2):\n"
			     "    start(spin)\n"
			     "spin()\n";

struct told {
	int tid;
	uint64_t ident, tstate;
};

struct job {
	pid_t pid;
	struct process process;
	struct python python;
	struct told waiter, spinners[SPINNER_CNT];
};

static void read_told(FILE *from, struct told *out)
{
	assert_int_equal(fscanf(from, "%d %" SCNu64 " %" SCNu64, &out->tid, &out->ident, &out->tstate), 3);
}

static void job__start(struct job *job, const char *python)
{
	uint64_t type, symbol;
	FILE *from;

	memset(job, 0, sizeof(*job));
	job->pid = start_printing((const char *const[]){python, "-c", script, NULL}, &from);
	assert_int_equal(fscanf(from, "%" SCNu64 " %" SCNu64, &type, &symbol), 2);
	read_told(from, &job->waiter);
	for (int i = 0; i < SPINNER_CNT; i++)
		read_told(from, &job->spinners[i]);
	fclose(from);
	assert_int_equal(process__read(job->pid, &job->process), 0);
	assert_int_equal(python__find(&job->process, &job->python, NULL), 0);
	assert_int_equal(job->python.process.code_type, type);
	if (symbol)
		assert_int_equal(symbol, type);
}

static void job__stop(struct job *job)
{
	process__release(&job->process);
	end_child(job->pid);
}

static void expect_state(const struct job *job, const struct told *told)
{
	struct py_thread *threads;
	uint64_t held = 0;
	int cnt = py_thread__list(job->pid, job->python.runtime, job->python.walk, &threads), found = 0;

	assert_int_equal(cnt, SPINNER_CNT + 1);
	assert_int_equal(process__read_memory(job->pid, told->ident + job->python.process.tss_offset, &held, 8), 0);
	for (int i = 0; i < cnt; i++) {
		if (threads[i].pthread != told->ident)
			continue;
		found++;
		assert_int_equal(threads[i].tstate, held);
		if (told->tstate)
			assert_int_equal(told->tstate, held);
		if (job->python.process.layout.minor >= 11)
			assert_int_equal(threads[i].tid, told->tid);
	}
	assert_int_equal(found, 1);
	free(threads);
}

/* Every thread's word holds its state, whichever has the GIL. */
static void test_states(void **state)
{
	struct job job;
	uint32_t key;

	job__start(&job, *state);
	assert_true(job.python.process.tss_offset != 0);
	key = py_internals__of(&job.python.process.layout)->tss_key;
	if (key) { /* found by the key, not by trying all */
		assert_int_equal(process__read_memory(job.pid, job.python.runtime + key, &key, sizeof(key)), 0);
		assert_int_equal(job.python.process.tss_offset, 0x310 + 16 * key + 8);
	} else {
		assert_true(job.python.process.tss_offset < 0);
	}
	expect_state(&job, &job.waiter);
	for (int i = 0; i < SPINNER_CNT; i++)
		expect_state(&job, &job.spinners[i]);
	job__stop(&job);
}

/* The futex that the thread waits for, 0: none (proc(5), /proc/PID/syscall: number and arguments). */
static uint64_t futex_of(pid_t pid, pid_t tid)
{
	uint64_t address = 0;
	char path[64];
	int number;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
	file = fopen(path, "r");
	assert_non_null(file);
	if (fscanf(file, "%d 0x%" SCNx64, &number, &address) != 2 || number != FUTEX_NR)
		address = 0;
	fclose(file);
	return address;
}

/*
 * Threads that only spin wait for nothing but the GIL, and in a free-threaded build for nothing; the one that waits for a lock does not wait
 * for the GIL.
 */
static void test_gil(void **state)
{
	const struct py_process *py;
	int waits = 0;
	struct job job;

	job__start(&job, *state);
	py = &job.python.process;
	assert_true(py->gil_address && py->gil_bytes);
	for (int i = 0; i < 2000; i++) {
		uint64_t futex = futex_of(job.pid, job.spinners[i % SPINNER_CNT].tid);

		if (futex) {
			assert_in_range(futex, py->gil_address, py->gil_address + py->gil_bytes - 1);
			waits++;
		}
		usleep(100);
	}
	print_message("  %s: tss_offset %d, %d waits for the GIL\n", job.python.version, py->tss_offset, waits);
	assert_true(py_layout__is_free_threaded(&py->layout) ? waits == 0 : waits > 100);
	assert_true(futex_of(job.pid, job.waiter.tid) - py->gil_address >= py->gil_bytes);
	job__stop(&job);
}

int main(void)
{
	struct CMUnitTest tests[2 * PYTHON_MAX];
	char *pythons[PYTHON_MAX], names[2 * PYTHON_MAX][256];
	size_t python_cnt = find_pythons(pythons);
	int failed;

	for (size_t i = 0; i < 2 * python_cnt; i++) {
		snprintf(names[i], sizeof(names[i]), "%s %s", i % 2 ? "test_gil" : "test_states", pythons[i / 2]);
		tests[i] = (struct CMUnitTest){
			.name = names[i], .test_func = i % 2 ? test_gil : test_states, .initial_state = pythons[i / 2]};
	}
	if (python_cnt == 0)
		print_message("[  SKIPPED ] no CPython found: set STEPFLAME_PYTHONS\n");
	failed = _cmocka_run_group_tests("pythread", tests, 2 * python_cnt, NULL, NULL);
	for (size_t i = 0; i < python_cnt; i++)
		free(pythons[i]);
	return failed;
}
