// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CPython's structs in a process's memory. The input is that memory, over and over at every page, so that nearly any word
 * is a pointer to something; its first byte is the version, and the second says how often a read finds other bytes than
 * before.
 */
#include <errno.h>
#include <time.h>

#include "tests/fuzz/fuzz.h"
#include "user/proc/process.h"
#include "user/runtime/python/pycheck.h"
#include "user/runtime/python/pyexact.h"
#include "user/runtime/python/pyframes.h"
#include "user/runtime/python/pylayout.h"
#include "user/runtime/python/pylines.h"
#include "user/runtime/python/pyobject.h"
#include "user/runtime/python/pythread.h"

#define READS_MAX 20000 /* then the process is gone */
#define RUNTIME   0x10
#define PAGE      4096

static uint8_t memory[2 * PAGE]; /* the input, then zeros */
static size_t reads;
static uint8_t moves; /* 0: never */

int __wrap_process__read_memory(pid_t pid, uint64_t address, void *buffer, size_t size);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	return 0;
}

int __wrap_process__read_memory(pid_t pid, uint64_t address, void *buffer, size_t size)
{
	if (++reads > READS_MAX)
		return -ESRCH;
	if (!address || address >> 47)
		return -EFAULT;
	for (size_t i = 0; i < size; i += PAGE)
		memcpy((uint8_t *)buffer + i, memory + address % PAGE, size - i < PAGE ? size - i : PAGE);
	if (moves && size && !(reads % moves))
		((uint8_t *)buffer)[reads % size] ^= 1 << reads % 8;
	return 0;
}

static void read_objects(const struct py_layout *layout, const struct python *python)
{
	struct rec_code code = {
		.hdr = {.type = REC_CODE, .size = sizeof(code)}, .line_table = RUNTIME, .pid = 1, .table_bytes = -1};
	struct py_stack stack = {0};
	struct rec_code *lines;
	char *text;

	py_object__is(1, layout, RUNTIME, "bytes");
	if (!py_object__str(1, layout, RUNTIME, &text)) {
		FUZZ_CHECK(strlen(text) <= 4096 * UTF8_MAX);
		free(text);
	}
	if (!py_lines__complete(layout, &code, &lines)) {
		FUZZ_CHECK(lines->hdr.size >= sizeof(*lines) + lines->line_cnt * sizeof(lines->lines[0]));
		free(lines);
	}
	if (!py_stack__read(1, &python->process, RUNTIME, true, &stack))
		FUZZ_CHECK(stack.frame_cnt <= PY_FRAMES_MAX);
	for (uint32_t i = 0; i < stack.frame_cnt; i++)
		FUZZ_CHECK(strlen(stack.frames[i].file) + strlen(stack.frames[i].name) < 1 << 20);
	py_stack__release(&stack);
}

static void read_threads(const struct py_internals *internals, struct python *python)
{
	const struct process process = {.pid = 1, .nspid = 1};
	const struct thread_word word = {.module = moves % 4, .offset = moves};
	struct py_thread *threads = NULL;
	struct py_internals tried;
	uint64_t words[PY_EXACT_WORDS];
	int cnt;

	py_check__debug_offsets(1, RUNTIME, internals);
	py_offsets__read(1, RUNTIME, internals->layout.minor, internals, &tried);
	if (py_walk__resolve(1, RUNTIME, internals, python->walk))
		return;
	cnt = py_thread__list(1, RUNTIME, python->walk, &threads);
	py_thread__of(1, 1, python->process.tss_offset, threads, cnt < 0 ? 0 : cnt);
	free(threads);
	py_thread__interpreters(1, RUNTIME, python->walk);
	py_thread__find_tss(1, RUNTIME, internals, python->walk, NULL);
	py_thread__find_tss(1, RUNTIME, internals, python->walk, &word);
	python->process.gil_address = py_thread__find_gil(1, RUNTIME, internals, python->walk);
	py_thread__gil_holder(1, python);
	py_exact__recursion_limit(&process, python);
	py_exact__safe_depth(&process, python);
	py_exact__words(&process, python, 8, words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct py_internals *internals;
	struct python python = {.runtime = RUNTIME, .started = true};

	if (size < 2)
		return 0;
	internals = py_internals__find(PY_MINOR_MIN + data[0] % (PY_MINOR_MAX - PY_MINOR_MIN + 1), data[0] & 128);
	internals = internals ?: py_internals__find(PY_MINOR_MIN, false);
	moves = data[1];
	memset(memory, 0, sizeof(memory));
	memcpy(memory, data + 2, size - 2 < PAGE ? size - 2 : PAGE);
	reads = 0;
	python.process = (struct py_process){.layout = internals->layout,
					     .code_type = RUNTIME,
					     .tss_offset = 784,
					     .gil_bytes = internals->gil_bytes};
	snprintf(python.version, sizeof(python.version), "3.%d.1", internals->layout.minor);
	memcpy(python.walk, internals->walk, sizeof(python.walk));
	read_objects(&internals->layout, &python);
	read_threads(internals, &python);
	return 0;
}
