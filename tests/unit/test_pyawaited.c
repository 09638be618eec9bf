// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * On what threads of real interpreters wait, each in a way of its own, against what the program says that it waits on:
 * a queue without code in Python, or anything else.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/children.h"
#include "tests/pythons.h"
#include "user/proc/deputy.h"
#include "user/proc/task.h"
#include "user/runtime/python/pyawaited.h"
#include "user/runtime/python/pythread.h"

#define LOOKS 200

/*
 * A line a thread: its id; the name of its function, which says on what it waits, in which the innermost frame is; its
 * first line.
 */
static const char script[] =
	"import _thread, os, signal, threading, time\n"
	"from _queue import SimpleQueue\n"
	"empty, lock, free, full = SimpleQueue(), _thread.allocate_lock(), _thread.allocate_lock(), SimpleQueue()\n"
	"lock.acquire()\n"
	"class Model:\n"
	"    def __call__(self, *batch): pass\n"
	"model = Model()\n"
	"def take(*all): pass\n"
	"def queue_get():\n"
	"    empty.get()\n"
	"def queue_get_with_time():\n"
	"    empty.get(timeout=10000)\n"
	"def queue_in_arguments_of_a_function():\n"
	"    take(1, [2], empty.get())\n"
	"def queue_in_arguments_of_a_method(self=model):\n"
	"    self.__call__(empty.get())\n"
	"def queue_in_a_loop():\n"
	"    for i in range(3):\n"
	"        a = i, empty.get(True, None)\n"
	"def queue_iterated():\n"
	"    for item in iter(empty.get, None):\n"
	"        pass\n"
	"def queue_bound():\n"
	"    get = empty.get\n"
	"    get()\n"
	"def queue_beside_locals():\n"
	"    a, b, c = lock, lock.acquire, empty\n"
	"    c.get()\n"
	"def acquire_plain():\n"
	"    lock.acquire()\n"
	"def other_with():\n"
	"    with lock:\n"
	"        pass\n"
	"def acquire_bound():\n"
	"    acquire = lock.acquire\n"
	"    acquire()\n"
	"def acquire_behind_a_deep_get():\n"
	"    full.put(1)\n"
	"    take(1, 2, 3, 4, full.get())\n"
	"    lock.acquire()\n"
	"def other_with_behind_a_deep_get():\n"
	"    full.put(1)\n"
	"    take(1, 2, 3, 4, full.get(timeout=10))\n"
	"    with lock:\n"
	"        pass\n"
	"def acquire_behind_a_get():\n"
	"    full.put(1)\n"
	"    full.get()\n"
	"    lock.acquire()\n"
	"def other_behind_a_bound_get():\n"
	"    full.put(1)\n"
	"    get = full.get\n"
	"    take(1, 2, get())\n"
	"    with lock:\n"
	"        pass\n"
	"def other_with_while_iterating():\n"
	"    full.put(1)\n"
	"    for item in iter(full.get, None):\n"
	"        with lock:\n"
	"            pass\n"
	"def queue_in_with_file():\n"
	"    with open('/dev/null') as file:\n"
	"        empty.get()\n"
	"def acquire_while_iterating():\n"
	"    full.put(1)\n"
	"    for item in iter(full.get, None):\n"
	"        lock.acquire()\n"
	"def other_in_with():\n"
	"    with free:\n"
	"        lock.acquire(True, -1)\n"
	"def acquire_beside_locals():\n"
	"    a, b, c = empty, empty.get, full\n"
	"    lock.acquire()\n"
	"threads = [(name, f) for name, f in list(globals().items()) if name.startswith(('queue_', 'other_', "
	"'acquire_'))]\n"
	"told = []\n"
	"def run(name, f):\n"
	"    os.write(1, b'%d %s %d\\n' % (_thread.get_native_id(), name.encode(), f.__code__.co_firstlineno))\n"
	"    told.append(name)\n"
	"    f()\n"
	"for each in threads:\n"
	"    threading.Thread(target=run, args=each, daemon=True).start()\n"
	"while len(told) < len(threads):\n"
	"    time.sleep(0.001)\n"
	"os.write(1, b'0 end 0\\n')\n"
	"signal.pause()\n";

/* Reads a thread that waits, until it has waited all the time. */
static void read_waiting(pid_t pid, pid_t tid, const struct python *python, struct py_awaited *out)
{
	struct py_thread *states, *state;
	uint64_t runs, after;
	pid_t nstid;
	int cnt = -1, err = 0;

	do {
		usleep(1000);
		if (task__waits(pid, tid, &nstid, &runs))
			continue;
		cnt = py_thread__list(pid, python->runtime, python->walk, &states);
		if (cnt < 0)
			continue;
		state = py_thread__of(pid, nstid, python->process.tss_offset, states, cnt);
		err = state ? py_awaited__read(pid, &python->process, state->tstate, out) : -EAGAIN;
		free(states);
	} while (cnt < 0 || err || task__waits(pid, tid, &nstid, &after) || runs != after);
}

/* CPU time of what a look takes at a thread that waits, of us and the deputy. */
static double look_us(pid_t pid, pid_t tid, const struct python *python)
{
	struct py_thread *states, *state;
	struct py_awaited awaited;
	uint64_t runs, begin;
	pid_t nstid;
	int cnt;

	assert_int_equal(task__waits(pid, tid, &nstid, &runs), 0);
	cnt = py_thread__list_still(pid, python, &states);
	assert_true(cnt > 0);
	state = py_thread__of(pid, nstid, python->process.tss_offset, states, cnt);
	assert_non_null(state);
	begin = deputy__cpu_ns();
	for (int i = 0; i < LOOKS; i++) {
		task__waits(pid, tid, &nstid, &runs);
		py_thread__of(pid, nstid, python->process.tss_offset, state, 1);
		py_awaited__read(pid, &python->process, state->tstate, &awaited);
		task__waits(pid, tid, &nstid, &runs);
	}
	begin = deputy__cpu_ns() - begin;
	free(states);
	return begin / 1e3 / LOOKS;
}

static enum awaited_kind kind_of(const char *function)
{
	return !strncmp(function, "queue_", 6)     ? AWAITED_QUEUE
	       : !strncmp(function, "acquire_", 8) ? AWAITED_ACQUIRE
						   : AWAITED_OTHER;
}

static void test_awaited(void **state)
{
	struct process process;
	struct python python;
	pid_t pid, tids[64];
	char names[64][64];
	uint32_t lines[64];
	size_t cnt = 0;
	uint64_t lock = 0;
	FILE *from;

	pid = start_printing((const char *const[]){*state, "-c", script, NULL}, &from);
	while (cnt < 64 && fscanf(from, "%d %63s %u", &tids[cnt], names[cnt], &lines[cnt]) == 3 && tids[cnt])
		cnt++;
	assert_int_equal(cnt, 20);
	assert_int_equal(process__read(pid, &process), 0);
	assert_int_equal(python__find(&process, &python, NULL), 0);
	for (size_t i = 0; i < cnt; i++) {
		struct py_awaited awaited;
		uint32_t first_line = 0;
		char *file = NULL, *name = NULL;

		do { /* it may wait for something else before */
			free(file);
			free(name);
			read_waiting(pid, tids[i], &python, &awaited);
			assert_int_equal(
				py_awaited__name(pid, &python.process, awaited.code, &file, &name, &first_line), 0);
		} while (strcmp(name, names[i]));
		assert_string_equal(file, "<string>");
		assert_int_equal(first_line, lines[i]);
		if (awaited.on != kind_of(name))
			fail_msg("%s: %d", name, awaited.on);
		/* they all wait for one lock */
		if (awaited.on == AWAITED_ACQUIRE) {
			lock = lock ?: awaited.lock;
			assert_true(lock && awaited.lock == lock);
		} else {
			assert_int_equal(awaited.lock, 0);
		}
		free(file);
		free(name);
	}
	print_message("  %s: CPU time of a look: %.0f us\n", python.version, look_us(pid, tids[0], &python));
	/* addresses where there is nothing */
	for (uint64_t address = 0; address < 1ull << 48; address = address * 8 + 1) {
		struct py_awaited awaited;

		assert_int_not_equal(py_awaited__read(pid, &python.process, address, &awaited), 0);
	}
	fclose(from);
	process__release(&process);
	end_child(pid);
}

int main(void)
{
	struct CMUnitTest tests[PYTHON_MAX];
	char *pythons[PYTHON_MAX], names[PYTHON_MAX][256];
	size_t cnt = find_pythons(pythons);
	int failed;

	for (size_t i = 0; i < cnt; i++) {
		snprintf(names[i], sizeof(names[i]), "test_awaited %s", pythons[i]);
		tests[i] =
			(struct CMUnitTest){.name = names[i], .test_func = test_awaited, .initial_state = pythons[i]};
	}
	if (cnt == 0)
		print_message("[  SKIPPED ] no CPython found: set STEPFLAME_PYTHONS\n");
	failed = _cmocka_run_group_tests("pyawaited", tests, cnt, NULL, NULL);
	for (size_t i = 0; i < cnt; i++)
		free(pythons[i]);
	return failed;
}
