/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks over Python stacks (bpf/pystack.h) in real interpreters: a child's threads wait in stacks of all shapes, it says by sys._current_frames
 * what these are, and the walker reads its memory, as it is and with bytes wrong. Interpreters: see tests/pythons.h.
 */
#include "native/seen.h"

#include "native/random.h"
#include "tests/children.h"
#include "tests/pythons.h"
#include "user/target/pylines.h"

#define FRAMES_MAX 1024
#define MANY       3000 /* lines of a long function */

static const char script[] =
	"import asyncio, os, sys, threading, time\n"
	"source, sink = os.pipe()\n"
	"def wait():\n"
	"    os.read(source, 1)\n"
	"def plain(): wait()\n"
	"def through_c(): sorted([1], key=lambda _: [wait() for _ in range(1)])\n"
	"def recursive(n): recursive(n - 1) if n else wait()\n"
	"def some(): recursive(40)\n"
	"def deep(): recursive(600)\n"
	"def inner():\n"
	"    yield 1\n"
	"    wait()\n"
	"def outer():\n"
	"    yield from inner()\n"
	"def generators():\n"
	"    for _ in outer():\n"
	"        pass\n"
	"async def awaited(): wait()\n"
	"async def task(): await awaited()\n"
	"def tasks(): asyncio.new_event_loop().run_until_complete(task())\n"
	"class Callable:\n"
	"    def __call__(self, *args):\n"
	"        return self.__private()\n"
	"    def __private(self):\n"
	"        class Body:\n"
	"            x = (\n"
	"                wait(),\n"
	"                2,\n"
	"            )\n"
	"class Made:\n"
	"    def __init__(self, last):\n"
	"        if last: wait()\n"
	"def makes():\n" /* often: from 3.12 on the interpreter then puts a frame of its own between */
	"    for i in range(200): Made(i == 199)\n"
	"def special(): list(map(Callable(), [1]))\n"
	"def far():\n"
	"    x = 1\n" /* MANY lines go here */
	"    %s\n"
	"    wait()\n"
	"wide = '\\n' * 70000 + 'def \\u00e9tape(wait):\\n    return \\u6b65\\u9aa4(wait)\\ndef "
	"\\u6b65\\u9aa4(wait):\\n    wait()\\n'\n"
	"scope = {}\n"
	"exec(compile(wide, '/tmp/mod\\u00fcl \\U0001f525.py', 'exec'), scope)\n"
	"def not_ascii(): scope['\\u00e9tape'](wait)\n"
	"long_ = 'n' * 700\n"
	"exec('def %%s(wait): wait()' %% long_, scope)\n"
	"def long_name(): scope[long_](wait)\n"
	"sys.setrecursionlimit(5000)\n"
	"threading.stack_size(64 << 20)\n"
	"functions = [plain, through_c, some, deep, generators, tasks, special, makes, far, not_ascii, long_name]\n"
	"threads = [threading.Thread(target=f, daemon=True) for f in functions]\n"
	"def frames_of(thread):\n"
	"    frame, out = sys._current_frames()[thread.ident], []\n"
	"    while frame:\n"
	"        code = frame.f_code\n"
	"        name = getattr(code, 'co_qualname', code.co_name)\n"
	"        out.append((code.co_filename, name, code.co_firstlineno, frame.f_lineno, frame.f_lasti))\n"
	"        frame = frame.f_back\n"
	"    return out\n"
	"for t in threads: t.start()\n"
	"before, now = None, 1\n"
	"while before != now or any(f[0][1] != 'wait' for f in now):\n"
	"    time.sleep(0.1)\n"
	"    before, now = now, [frames_of(t) for t in threads]\n"
	"out = open(1, 'w', encoding='utf-8', closefd=False)\n"
	"for thread, frames in zip(threads, now):\n"
	"    print(thread.ident, len(frames), sep='\\t', file=out)\n"
	"    for frame in frames: print(*frame, sep='\\t', file=out)\n"
	"print('end', file=out, flush=True)\n"
	"os.read(source, 1)\n";

struct told_frame {
	char file[128], name[1024];
	u32 first_line;
	s32 line;
	s64 offset;
};

static struct {
	struct stack_room room;
	struct told_frame frames[FRAMES_MAX];
	u32 stacks, shown;
	u32 large; /* line tables of more than a function of usual length has */
} live;

/* A name as a report has it. */
static void expect_name(const char *text, const char *whole)
{
	char cut[REC_NAME_MAX + 32];

	snprintf(cut, sizeof(cut), "%.*s... (%zu bytes)", REC_NAME_MAX, whole, strlen(whole));
	assert_string_equal(text, strlen(whole) > REC_NAME_MAX ? cut : whole);
}

static s32 line_of(const struct py_layout *py, const struct code *code, u32 offset)
{
	struct rec_code *complete = NULL;
	s32 line;
	u32 i = 0;

	for (const struct rec_code *rec; (rec = record(REC_CODE, i)); i++) {
		if (rec->file != code->file || rec->name != code->name || rec->first_line != code->first_line)
			continue;
		live.large += rec->table_bytes > CODE_TABLE_LARGE;
		assert_int_equal(py_lines__complete(py, rec, &complete), 0);
		line = py_lines__at(complete->lines, complete->line_cnt, rec->first_line, offset);
		free(complete);
		return line;
	}
	fail();
	return 0;
}

static void expect_stack(const struct py_layout *py, u32 cnt)
{
	u32 shown = cnt < STACK_FRAMES_MAX ? cnt : STACK_FRAMES_MAX;
	u64 cut = counter(CNT_STACK_CUT), id = stack__of(&live.room, job.proc, (u32)native.memory_pid);
	struct seen seen = seen__read();
	struct stack stack = seen__stack(&seen, id);

	assert_int_equal(stack.cnt, shown);
	assert_int_equal(stack.cut, shown < cnt);
	assert_int_equal(counter(CNT_STACK_CUT), cut + (shown < cnt));
	for (u32 i = 0; i < shown; i++) {
		const struct told_frame *told = &live.frames[i];
		struct code code = seen__code(&seen, &stack.frames[i]);

		assert_string_equal(seen__text(&seen, code.file), told->file);
		expect_name(seen__text(&seen, code.name), told->name);
		assert_int_equal(code.first_line, told->first_line);
		assert_int_equal(stack.frames[i].offset, told->offset);
		assert_int_equal(line_of(py, &code, stack.frames[i].offset), told->line);
	}
	live.stacks++;
	live.shown += shown;
	seen__free(&seen);
}

/* All that was told is told anew. */
static void forget(void)
{
	native.ring_bytes = 0;
	native__forget(&codes);
	native__forget(&names);
	native__forget(&stacks);
	memset(live.room.names.sent, 0, sizeof(live.room.names.sent));
}

/* The same with bytes wrong in what is read: what is sent makes sense, and no more is read than for the longest of stacks. */
static void walk_corrupted(void)
{
	for (u64 i = 0; i < environment("STEPFLAME_ROUNDS", 40); i++) {
		struct seen seen;
		u64 id;

		native.corrupt = random_u64;
		native.reads = 0;
		forget();
		id = stack__of(&live.room, job.proc, (u32)native.memory_pid);
		native.corrupt = NULL;
		assert_true(native.reads < 10 * 2 * STACK_FRAMES_MAX);
		seen = seen__read();
		if (id)
			assert_in_range(seen__stack(&seen, id).cnt, 1, STACK_FRAMES_MAX);
		seen__free(&seen);
	}
	native__forget(&counters);
	forget();
}

static void read_stack(FILE *from, u32 cnt)
{
	static char line[4096];

	assert_true(cnt <= FRAMES_MAX);
	for (u32 i = 0; i < cnt; i++) {
		struct told_frame *f = &live.frames[i];

		assert_non_null(fgets(line, sizeof(line), from));
		assert_int_equal(sscanf(line, "%127[^\t]\t%1023[^\t]\t%u\t%d\t%ld", f->file, f->name, &f->first_line,
					&f->line, (long *)&f->offset),
				 5);
	}
}

static void test_live(void **state)
{
	const char *python = *state;
	char *text, line[128], many[MANY * 10 + 1] = "";
	struct process process;
	struct python found;
	u64 cut = 0, names_cut = 0;
	unsigned long ident;
	FILE *from;
	pid_t pid;
	u32 cnt;

	memset(&live, 0, sizeof(live));
	for (int i = 0; i < MANY; i++)
		strcat(many, "x = 1\n    ");
	assert_true(asprintf(&text, script, many) > 0);
	pid = start_printing((const char *const[]){python, "-Xutf8", "-c", text, NULL}, &from);
	assert_non_null(fgets(line, sizeof(line), from));
	assert_int_equal(process__read(pid, &process), 0);
	assert_int_equal(python__find(&process, &found, NULL), 0);
	assert_true(found.process.tss_offset != 0);
	job__start(found.process.layout.minor);
	seed = environment("STEPFLAME_SEED", 1);
	job.proc->py = found.process;
	native.memory_pid = pid;
	do {
		if (sscanf(line, "%lu\t%u", &ident, &cnt) != 2)
			break;
		read_stack(from, cnt);
		job.task.thread.fsbase = ident; /* pthread_self() */
		expect_stack(&found.process.layout, cnt);
		cut += counter(CNT_STACK_CUT);
		names_cut += counter(CNT_NAME_CUT);
		bpf_map_delete_elem(&counters, &(u32){CNT_STACK_CUT});
		bpf_map_delete_elem(&counters, &(u32){CNT_NAME_CUT});
		expect_counters(CNT__COUNT);
		walk_corrupted();
	} while (fgets(line, sizeof(line), from));
	assert_string_equal(line, "end\n");
	assert_int_equal(live.stacks, 11);
	assert_true(live.shown > STACK_FRAMES_MAX + 100);
	assert_true(live.large > 0);
	assert_int_equal(cut, 1);
	assert_int_equal(names_cut, 1);
	fclose(from);
	end_child(pid);
	process__release(&process);
	free(text);
	job__stop();
}

int main(void)
{
	struct CMUnitTest tests[PYTHON_MAX];
	char *pythons[PYTHON_MAX];
	size_t cnt = find_pythons(pythons);
	int failed = 0;

	for (size_t i = 0; i < cnt; i++)
		tests[i] = (struct CMUnitTest){pythons[i], test_live, NULL, NULL, pythons[i]};
	if (cnt)
		failed = _cmocka_run_group_tests("pystack_live", tests, cnt, NULL, NULL);
	else
		print_message("[  SKIPPED ] no CPython found: set STEPFLAME_PYTHONS\n");
	for (size_t i = 0; i < cnt; i++)
		free(pythons[i]);
	return failed;
}
