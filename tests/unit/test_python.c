/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * python__find and the layout table, against real interpreters that the test starts, and against what those say of
 * themselves by ctypes; refusals against this program's own forks, which pose as a static CPython by the symbols below.
 * The thread pointer comes from ptrace, which python__find does without.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/records.h"
#include "tests/children.h"
#include "tests/pythons.h"
#include "user/runtime/python/pycheck.h"
#include "user/runtime/python/python.h"

#define LABEL "\xc3\xa9tape \xe2\x89\xa5 3" /* a str of 2-byte characters */

static const char script[] =
	"import sys, threading, time, types\n"
	"def counting(name, limit):\n"
	"    for i in range(limit):\n"
	"        yield name\n"
	"def sleep_there():\n"
	"    while True:\n"
	"        time.sleep(60)\n"
	"class Stepper:\n"
	"    def __next__(self):\n"
	"        return 1\n"
	"def facts():\n"
	"    print('version', '%d.%d.%d' % sys.version_info[:3] + 't' * ('t' in sys.abiflags))\n"
	"    print('fresh', hex(id(fresh)))\n"
	"    print('started', hex(id(started)))\n"
	"    print('label', hex(id(sys.argv[1])))\n"
	"    try:\n"
	"        import ctypes\n"
	"    except ImportError:\n"
	"        return\n"
	"    longer = object.__basicsize__ - 16\n"
	"    word = lambda address: ctypes.c_uint64.from_address(address).value\n"
	"    symbol = lambda name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value\n"
	"    get = ctypes.pythonapi.PyThreadState_Get\n"
	"    get.restype = ctypes.c_void_p\n"
	"    print('gen_type', hex(symbol('PyGen_Type')))\n"
	"    print('next', hex(word(word(id(next) + longer + 16) + 8)))\n" /* PyCFunctionObject.m_ml->ml_meth */
	"    print('throw', hex(word(word(id(types.GeneratorType.throw) + longer + 40) + 8)))\n" /* PyMethodDescrObject.d_method */
	"    print('iternext', hex(word(id(Stepper) + longer + 224)))\n"             /* tp_iternext, slot 28 */
	"    print('code_end', hex(word(id(type(facts.__code__)) + longer + 48)))\n" /* tp_dealloc */
	"    print('eval', hex(symbol('_PyEval_EvalFrameDefault')))\n"
	"    print('tstate', hex(get()))\n"
	"def spin_here(label):\n"
	"    print('done', flush=True)\n"
	"    while True:\n"
	"        pass\n"
	"fresh = counting('a fresh one', 3)\n"
	"started = counting(sys.argv[1], 3)\n"
	"next(started)\n"
	"threading.Thread(target=sleep_there, daemon=True).start()\n"
	"time.sleep(0.05)\n" /* the thread sleeps now, too */
	"facts()\n"
	"spin_here(sys.argv[1])\n";

/* ---- an interpreter that spins ---- */

struct facts {
	char version[16];
	uint64_t fresh, started, label, gen_type, next, throw_, iternext, code_end, eval, tstate; /* 0: not told */
};

struct child {
	pid_t pid;
	char file[64]; /* the script's */
	struct facts facts;
};

static void child__read_facts(struct child *child, FILE *from)
{
	const struct {
		const char *name;
		uint64_t *value;
	} fields[] = {
		{"fresh", &child->facts.fresh},       {"started", &child->facts.started},
		{"gen_type", &child->facts.gen_type}, {"next", &child->facts.next},
		{"throw", &child->facts.throw_},      {"iternext", &child->facts.iternext},
		{"eval", &child->facts.eval},         {"tstate", &child->facts.tstate},
		{"label", &child->facts.label},       {"code_end", &child->facts.code_end},
	};
	char line[128], name[16], value[32];

	while (fgets(line, sizeof(line), from) && sscanf(line, "%15s %31s", name, value) == 2) {
		if (!strcmp(name, "version"))
			snprintf(child->facts.version, sizeof(child->facts.version), "%.15s", value);
		for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
			if (!strcmp(name, fields[i].name))
				*fields[i].value = strtoull(value, NULL, 16);
		}
	}
}

static void child__start(struct child *child, const char *python)
{
	FILE *from;
	int fd;

	memset(child, 0, sizeof(*child));
	snprintf(child->file, sizeof(child->file), "/tmp/stepflame-python-XXXXXX");
	fd = mkstemp(child->file);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, script, sizeof(script) - 1), sizeof(script) - 1);
	close(fd);
	child->pid = start_printing((const char *const[]){python, "-Xutf8", child->file, LABEL, NULL}, &from);
	child__read_facts(child, from); /* up to "done", which has no value */
	fclose(from);
	assert_true(child->facts.version[0]);
}

static void child__stop(struct child *child)
{
	end_child(child->pid);
	unlink(child->file);
}

/* ---- reading Python objects by the layout ---- */

static uint64_t word(pid_t pid, uint64_t address)
{
	uint64_t value = 0;

	assert_int_equal(process__read_memory(pid, address, &value, sizeof(value)), 0);
	return value;
}

/* A str as UTF-8, at most 255 characters. */
static void read_str(pid_t pid, const struct py_layout *layout, uint64_t address, char *text)
{
	uint64_t length = word(pid, address + layout->str_length);
	uint32_t state = (uint32_t)word(pid, address + layout->str_state);
	uint32_t kind = state >> layout->str_kind_shift & ((1u << layout->str_kind_bits) - 1);
	bool ascii = state >> layout->str_ascii_shift & 1;

	assert_true(state >> layout->str_compact_shift & 1);
	assert_true(length < 256);
	address += ascii ? layout->str_ascii_data : layout->str_compact_data;
	for (uint64_t i = 0; i < length; i++, address += kind) {
		uint32_t c = 0;

		assert_int_equal(process__read_memory(pid, address, &c, kind), 0);
		if (c >= 0x800)
			*text++ = (char)(0xe0 | c >> 12);
		if (c >= 0x80)
			*text++ = (char)(c >= 0x800 ? 0x80 | (c >> 6 & 63) : 0xc0 | c >> 6);
		*text++ = (char)(c >= 0x80 ? 0x80 | (c & 63) : c);
	}
	*text = 0;
}

struct frame {
	char file[1024], name[1024];
	uint64_t local; /* the first */
};

static void read_frame(pid_t pid, const struct py_layout *layout, uint64_t frame, struct frame *out)
{
	uint64_t code = word(pid, frame + layout->frame_code) & ~(uint64_t)layout->ref_mask;

	read_str(pid, layout, word(pid, code + layout->code_filename), out->file);
	read_str(pid, layout, word(pid, code + layout->code_name), out->name);
	out->local = word(pid, frame + layout->frame_locals) & ~(uint64_t)layout->ref_mask;
}

static uint64_t next_frame(pid_t pid, const struct py_layout *layout, uint64_t frame)
{
	int8_t owner;

	while (frame && layout->frame_owner_c >= 0) {
		assert_int_equal(process__read_memory(pid, frame + layout->frame_owner, &owner, 1), 0);
		if (owner < layout->frame_owner_c)
			break;
		frame = word(pid, frame + layout->frame_previous);
	}
	return frame;
}

/* The thread state by py_process alone, as the BPF side will read it, for a thread whose thread pointer is known. */
static uint64_t read_tstate(pid_t pid, const struct py_process *py, uint64_t tp)
{
	switch (py->tstate_where) {
	case PY_TSTATE_GLOBAL:
		return word(pid, py->tstate_address);
	case PY_TSTATE_TLS:
		return word(pid, tp + py->tstate_address);
	case PY_TSTATE_DTV:
		return word(pid, word(pid, word(pid, tp + 8) + 16ul * py->tls_module) + py->tstate_address);
	default:
		return 0;
	}
}

static uint64_t stop_and_read_tstate(const struct child *child, const struct py_process *py)
{
	struct user_regs_struct regs;

	assert_int_equal(ptrace(PTRACE_SEIZE, child->pid, 0, 0), 0);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, child->pid, 0, 0), 0);
	assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
	assert_int_equal(ptrace(PTRACE_GETREGS, child->pid, 0, &regs), 0);
	return read_tstate(child->pid, py, regs.fs_base);
}

/* Stops the spinning thread, and reads its stack: spin_here, called by the module. */
static void expect_stack(const struct child *child, const struct py_process *py)
{
	const struct py_layout *layout = &py->layout;
	struct frame frames[2];
	uint64_t tstate, frame;
	char label[1024];

	/* It may have been stopped while it had let go of the GIL, and then has no current state. */
	for (int i = 0; (tstate = stop_and_read_tstate(child, py)) == 0 && i < 100; i++) {
		assert_int_equal(ptrace(PTRACE_DETACH, child->pid, 0, 0), 0);
		usleep(2000);
	}
	assert_true(tstate != 0);
	if (child->facts.tstate)
		assert_int_equal(tstate, child->facts.tstate);
	frame = word(child->pid, tstate + layout->tstate_frame);
	if (layout->tstate_cframe)
		frame = word(child->pid, frame + layout->cframe_current);
	for (int i = 0; i < 2; i++) {
		frame = next_frame(child->pid, layout, frame);
		assert_true(frame != 0);
		read_frame(child->pid, layout, frame, &frames[i]);
		frame = word(child->pid, frame + layout->frame_previous);
	}
	assert_int_equal(next_frame(child->pid, layout, frame), 0);
	read_str(child->pid, layout, frames[0].local, label);
	assert_int_equal(ptrace(PTRACE_DETACH, child->pid, 0, 0), 0);

	assert_string_equal(frames[0].name, "spin_here");
	assert_string_equal(frames[0].file, child->file);
	assert_string_equal(label, LABEL);
	assert_string_equal(frames[1].name, "<module>");
	assert_string_equal(frames[1].file, child->file);
}

static int64_t read_state(pid_t pid, const struct py_layout *layout, uint64_t gen, uint64_t frame)
{
	int8_t byte;
	int32_t value;

	gen = layout->state_in_gen ? gen : frame;
	assert_int_equal(process__read_memory(pid, gen + layout->state_off, &value, sizeof(value)), 0);
	memcpy(&byte, &value, 1);
	assert_true(layout->state_bytes == 1 || layout->state_bytes == 4);
	return layout->state_bytes == 1 ? byte : value;
}

static void expect_generators(const struct child *child, const struct py_layout *layout)
{
	const uint64_t gens[] = {child->facts.fresh, child->facts.started};
	struct frame frame;
	char label[1024];

	for (int i = 0; i < 2; i++) {
		uint64_t at = gens[i] + layout->gen_frame;

		if (!layout->gen_embedded)
			at = word(child->pid, at);
		read_frame(child->pid, layout, at, &frame);
		assert_string_equal(frame.name, "counting");
		read_str(child->pid, layout, frame.local, label);
		assert_string_equal(label, i ? LABEL : "a fresh one");
		assert_int_equal(read_state(child->pid, layout, gens[i], at) == layout->state_created, i == 0);
	}
}

static void test_interpreter(void **state)
{
	struct process process;
	struct python python;
	struct child child;
	struct elf *elf;

	child__start(&child, *state);
	assert_int_equal(process__read(child.pid, &process), 0);
	assert_int_equal(python__find(&process, &python, &elf), 0);
	print_message("  %s: thread state %u:%u:%lld\n", python.version, python.process.tstate_where,
		      python.process.tls_module, (long long)python.process.tstate_address);

	assert_string_equal(python.version, child.facts.version);
	assert_true(python.functions.next && python.functions.throw_ && python.functions.iternext);
	assert_true(python.functions.eval && python.functions.code_end);
	if (child.facts.gen_type) { /* it has ctypes */
		assert_int_equal(python.process.gen_type, child.facts.gen_type);
		assert_int_equal(python.bias + python.functions.next, child.facts.next);
		assert_int_equal(python.bias + python.functions.throw_, child.facts.throw_);
		assert_int_equal(python.bias + python.functions.iternext, child.facts.iternext);
		assert_int_equal(python.bias + python.functions.code_end, child.facts.code_end);
		assert_int_equal(python.bias + python.functions.eval, child.facts.eval);
	}
	expect_stack(&child, &python.process);
	expect_generators(&child, &python.process.layout);

	elf__free(elf);
	process__release(&process);
	child__stop(&child);
}

/*
 * The check must hold for a job of many threads whose frames change all the time: no false alarm in 10 tries, in 100 with STEPFLAME_LONG.
 */
static void test_busy(void **state)
{
	static const char busy[] = "import threading\n"
				   "def f(n):\n"
				   "    return n and f(n - 1)\n"
				   "def g():\n"
				   "    while True:\n"
				   "        f(5)\n"
				   "for i in range(4):\n"
				   "    threading.Thread(target=g, daemon=True).start()\n"
				   "print(1, flush=True)\n"
				   "g()\n";
	const int tries = getenv("STEPFLAME_LONG") ? 100 : 10;
	struct process process;
	struct python python;
	char line[8];
	FILE *from;
	pid_t pid;

	pid = start_printing((const char *const[]){*state, "-c", busy, NULL}, &from);
	assert_non_null(fgets(line, sizeof(line), from)); /* whole: closed earlier, the pipe would break */
	fclose(from);
	for (int i = 0; i < tries; i++) {
		assert_int_equal(process__read(pid, &process), 0);
		assert_int_equal(python__find(&process, &python, NULL), 0);
		process__release(&process);
	}
	end_child(pid);
}

/* ---- a layout that is not the process's ---- */

struct wrong {
	const char *name;
	size_t at; /* of a 16-bit field of struct py_layout */
};

#define WRONG(field)                                      \
	{                                                 \
#field, offsetof(struct py_layout, field) \
	}

/*
 * Each contradicts what is read, however often; the process runs on. Without change the same is taken. (What lies behind
 * co_filename is co_name, another str: nothing contradicts that.)
 */
static void test_wrong_layout(void **state)
{
	static const struct wrong fields[] = {WRONG(frame_code), WRONG(frame_previous), WRONG(code_linetable)};
	const bool all = !getenv("STEPFLAME_GATE"); /* each takes a second: in the gate one of each version */
	struct process process;
	struct python python;
	struct child child;
	struct elf *elf;

	child__start(&child, *state);
	assert_int_equal(process__read(child.pid, &process), 0);
	assert_int_equal(python__find(&process, &python, &elf), 0);
	for (size_t i = 0; i <= sizeof(fields) / sizeof(fields[0]); i++) {
		struct py_internals internals = *py_internals__of(&python.process.layout);
		const struct py_check check = {
			.process = &process,
			.python = &python,
			.elf = elf,
			.internals = &internals,
			.unicode_type = word(child.pid, child.facts.label + internals.layout.object_type)};

		if (i == sizeof(fields) / sizeof(fields[0])) {
			assert_int_equal(py_check__process(&check), 0);
			break;
		}
		if (!all && i != python.process.layout.minor % (sizeof(fields) / sizeof(fields[0])))
			continue;
		*(uint16_t *)((char *)&internals.layout + fields[i].at) += 8;
		if (py_check__process(&check) != -ENOTSUP) {
			print_message("%s\n", fields[i].name);
			fail();
		}
	}
	elf__free(elf);
	process__release(&process);
	child__stop(&child);
}

/* ---- a CPython that is none: the symbols of a static one, whose values a fork sets ---- */

uint64_t Py_Version;
uint64_t _PyRuntime[256];
uint64_t PyGen_Type[64];
uint64_t PyUnicode_Type[64];
uint64_t PyCode_Type[64];
uint64_t PyCell_Type[64];
void _PyEval_EvalFrameDefault(void);

void _PyEval_EvalFrameDefault(void)
{
}

struct pretence {
	uint64_t version;
	const uint64_t *runtime; /* 3 words */
};

static bool pretend(void *arg)
{
	const struct pretence *pretence = arg;

	Py_Version = pretence->version;
	memcpy(_PyRuntime, pretence->runtime, 3 * sizeof(pretence->runtime[0]));
	return true;
}

/* What python__find says of a fork with these values, and the version that it gives. */
static int find_pretender(uint64_t version, const uint64_t runtime[3], char found[16])
{
	struct process process;
	struct python python;
	struct elf *elf = (struct elf *)&process;
	bool done;
	pid_t pid;
	int err;

	pid = start_child(pretend, &(struct pretence){version, runtime}, &done);
	assert_int_equal(process__read(pid, &process), 0);
	err = python__find(&process, &python, &elf);
	assert_null(elf);
	memcpy(found, python.version, 16);
	process__release(&process);
	end_child(pid);
	return err;
}

static void test_refused(void **state)
{
	uint64_t runtime[3] = {0};
	char version[16];

	assert_int_equal(find_pretender(0x030712f0, runtime, version), -EOPNOTSUPP);
	assert_string_equal(version, "3.7.18");
	assert_int_equal(find_pretender(0x031000a4, runtime, version), -EOPNOTSUPP);
	assert_string_equal(version, "3.16.0a4");
	assert_int_equal(find_pretender(0x020712f0, runtime, version), -EOPNOTSUPP);
	assert_string_equal(version, "");
	/*
	 * a type that is not named "generator"; no _Py_DebugOffsets; those of another version; those of a free-threaded
	 * build
	 */
	assert_int_equal(find_pretender(0x030c00f0, runtime, version), -ENOTSUP);
	assert_string_equal(version, "3.12.0");
	assert_int_equal(find_pretender(0x030d00f0, runtime, version), -ENOTSUP);
	memcpy(runtime, "xdebugpy", 8);
	runtime[1] = 0x030e00f0;
	assert_int_equal(find_pretender(0x030d00f0, runtime, version), -ENOTSUP);
	runtime[1] = 0x030d00f0;
	runtime[2] = 1;
	assert_int_equal(find_pretender(0x030d00f0, runtime, version), -EOPNOTSUPP);
	assert_string_equal(version, "3.13.0t");
}

static void test_no_python(void **state)
{
	struct process process;
	struct python python;
	struct elf *elf = (struct elf *)&process;
	pid_t pid;

	pid = start_program("sleep", (const char *const[]){"sleep", "60", NULL}, NULL);
	assert_int_equal(process__read(pid, &process), 0);
	assert_int_equal(python__find(&process, &python, &elf), -ENOENT);
	assert_null(elf);
	assert_null(python.file);
	process__release(&process);
	end_child(pid);
}

static void test_layouts(void **state)
{
	for (int minor = PY_MINOR_MIN; minor <= PY_MINOR_MAX; minor++) {
		assert_non_null(py_layout__find(minor));
		assert_int_equal(py_layout__find(minor)->minor, minor);
		/*
		 * bpf/python.h reads length, hash and state as three words, and what it wants of a generator or frame
		 * in one buffer
		 */
		assert_int_equal(py_layout__find(minor)->str_state, py_layout__find(minor)->str_length + 16);
		assert_true(py_layout__find(minor)->gen_frame + py_layout__find(minor)->frame_locals + 16 <
			    REC_NAME_MAX);
	}
	assert_null(py_layout__find(PY_MINOR_MIN - 1));
	assert_null(py_layout__find(PY_MINOR_MAX + 1));
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction function;
	} of_each[] = {{"test_interpreter", test_interpreter},
		       {"test_busy", test_busy},
		       {"test_wrong_layout", test_wrong_layout}};
	enum { KINDS = sizeof(of_each) / sizeof(of_each[0]) };
	struct CMUnitTest tests[KINDS * PYTHON_MAX + 3] = {
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_no_python),
	};
	char *pythons[PYTHON_MAX], names[KINDS * PYTHON_MAX][256];
	size_t python_cnt = find_pythons(pythons), cnt = 3;
	int failed;

	for (size_t i = 0; i < KINDS * python_cnt; i++) {
		snprintf(names[i], sizeof(names[i]), "%s %s", of_each[i % KINDS].name, pythons[i / KINDS]);
		tests[cnt++] = (struct CMUnitTest){.name = names[i],
						   .test_func = of_each[i % KINDS].function,
						   .initial_state = pythons[i / KINDS]};
	}
	if (python_cnt == 0)
		print_message("[  SKIPPED ] no CPython found: set STEPFLAME_PYTHONS\n");
	failed = _cmocka_run_group_tests("python", tests, cnt, NULL, NULL);
	for (size_t i = 0; i < python_cnt; i++)
		free(pythons[i]);
	return failed;
}
