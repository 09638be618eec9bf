/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks over Python stacks (bpf/pystack.h) in real interpreters: a child's threads wait in stacks of all shapes, it says by sys._current_frames
 * what these are, and the walker reads its memory, as it is and with bytes wrong. Interpreters: see tests/pythons.h.
 *
 * With STEPFLAME_SAVE_IMAGES=tests/data/pystack what was read is saved there, for test_pystack_images.c.
 */
#include "tests/bpf/native/image.h"

#include "tests/children.h"
#include "tests/pythons.h"

#define MANY 3000 /* lines of a long function */

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

static void test_live(void **state)
{
	const char *python = *state, *images = getenv("STEPFLAME_SAVE_IMAGES");
	char *text, many[MANY * 10 + 1] = "";
	struct process process;
	struct python found;
	FILE *from;
	pid_t pid;

	for (int i = 0; i < MANY; i++)
		strcat(many, "x = 1\n    ");
	assert_true(asprintf(&text, script, many) > 0);
	pid = start_printing((const char *const[]){python, "-Xutf8", "-c", text, NULL}, &from);
	told__read(from);
	assert_int_equal(process__read(pid, &process), 0);
	assert_int_equal(python__find(&process, &found, NULL), 0);
	assert_true(found.process.tss_offset != 0);
	job__start(found.process.layout.minor);
	seed = environment("STEPFLAME_SEED", 1);
	job.proc->py = found.process;
	native.memory_pid = pid;
	if (images)
		image__begin();
	told__expect_all();
	if (images)
		image__end(images, found.version);
	fclose(from);
	end_child(pid);
	process__release(&process);
	free(text);
	told__free();
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
