/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python reading code on real interpreters: a child defines Lightning's Profiler.profile and loops in files of
 * Lightning's names, says where its objects are, and waits; the probe program reads its memory. Interpreters: the
 * colon-separated STEPFLAME_PYTHONS, else those of pyenv and the system's. Those not there are not tested.
 */
#include "tests/bpf/native/job.h"

#include <sys/stat.h>

#include "tests/children.h"
#include "tests/pythons.h"

#define SP STACK

/* Where the files are: of ASCII, and with characters of two bytes. */
static const char *const folders[] = {"/tmp/stepflame-live-XXXXXX", "/tmp/stepflame-\xe4\xb8\xad-XXXXXX"};

static const char profiler[] =
	"from contextlib import contextmanager\n"
	"class Profiler:\n"
	"    @contextmanager\n"
	"    def profile(self, action_name):\n"
	"        try:\n"
	"            yield action_name\n"
	"        finally:\n"
	"            pass\n"
	"def profile(self, action_name):\n" /* a generator that is none of Lightning's, by file only */
	"    yield\n";

/* Functions that call what they are given; what calls what is said in the script. */
static const char *const loops[][2] = {
	{"loops/fetchers.py", "def __next__(wait): wait()\n"},
	{"user/loader.py", "def more(f, *rest): return [g(*rest) for g in [f]]\n"},
	{"loops/training_epoch_loop.py", "def advance(f, *rest): return f(*rest)\n"},
	{"loops/evaluation_loop.py",
	 "def run(f, *rest): return max([1], key=lambda _: f(*rest) or 1)\n"}, /* through C */
	{"loops/prediction_loop.py", "def run(f, *rest): return f(*rest)\n"},
	{"loops/fit_loop.py", "def advance(f, *rest): return f(*rest)\n"},
	{"trainer/trainer.py", "def _test_impl(f, *rest): return f(*rest)\n"},
};

static const char script[] =
	"import os, sys, threading\n"
	"here = sys.argv[1]\n"
	"def load(path):\n"
	"    scope = {}\n"
	"    path = os.path.join(here, path)\n"
	"    with open(path) as f:\n"
	"        exec(compile(f.read(), path, 'exec'), scope)\n"
	"    return scope\n"
	"def say(name, value):\n"
	"    print(name, hex(value), flush=True)\n"
	"scope = load('profilers/profiler.py')\n"
	"p = scope['Profiler']()\n"
	"names = ['[Strategy]SingleDevice.training_step', '\\xe9tape', '\\u4e2d\\u6587', '\\U0001f525 x', 'long ' * "
	"200]\n"
	"fresh = [p.profile(n) for n in names]\n"
	"begun = [p.profile(n) for n in names]\n"
	"for b in begun: b.__enter__()\n"
	"for f in fresh: say('fresh', id(f.gen))\n"
	"for b in begun: say('begun', id(b.gen))\n"
	"done = p.profile('done'); gen = done.gen; done.__enter__(); done.__exit__(None, None, None)\n"
	"say('done', id(gen))\n"
	"plain = (i for i in range(3))\n"
	"say('plain', id(plain))\n"
	"class CombinedLoader:\n"
	"    def __next__(self): pass\n"
	"loader = CombinedLoader()\n"
	"say('loader', id(loader))\n"
	"try:\n"
	"    import ctypes\n"
	"    state = ctypes.pythonapi.PyThreadState_Get\n"
	"    state.restype = ctypes.c_void_p\n"
	"    state()\n"
	"except ImportError:\n"
	"    state = None\n"
	"def thread(*calls):\n"
	"    def wait():\n"
	"        say('tstate', state())\n"
	"        ready.release()\n"
	"        threading.Event().wait()\n"
	"    first, *rest = [load(path)[name] for path, name in reversed(calls)]\n"
	"    threading.Thread(target=first, args=(*rest, wait), daemon=True).start()\n"
	"    ready.acquire()\n"
	"ready = threading.Semaphore(0)\n"
	"fetch, user, train, val, predict, fit, test = [\n"
	"    ('loops/fetchers.py', '__next__'), ('user/loader.py', 'more'), ('loops/training_epoch_loop.py', "
	"'advance'),\n"
	"    ('loops/evaluation_loop.py', 'run'), ('loops/prediction_loop.py', 'run'), ('loops/fit_loop.py', "
	"'advance'),\n"
	"    ('trainer/trainer.py', '_test_impl')]\n"
	"if state:\n"
	"    thread(fetch, user, train, fit)\n"
	"    thread(fetch, val, train, fit)\n"
	"    thread(fetch, user, user, val, test)\n"
	"    thread(fetch, predict)\n"
	"    thread(fetch, fit)\n"
	"    thread(user)\n"
	"print('end', 0, flush=True)\n"
	"threading.Event().wait()\n";

#define NAMES   5
#define THREADS 6

static struct {
	pid_t pid;
	char folder[64];
	u64 fresh[NAMES], begun[NAMES], done[1], plain[1], loader[1], tstate[THREADS];
	u32 tstate_cnt;
} child;

/* ---- a child ---- */

static void write_file(const char *name, const char *text)
{
	char path[128];
	FILE *to;

	snprintf(path, sizeof(path), "%s/%s", child.folder, name);
	*strrchr(path, '/') = 0;
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%s", child.folder, name);
	to = fopen(path, "w");
	assert_non_null(to);
	fputs(text, to);
	fclose(to);
}

static void child__read(FILE *from)
{
	struct {
		const char *name;
		u64 *values;
		u32 room, cnt;
	} lists[] = {
		{"fresh", child.fresh, NAMES, 0}, {"begun", child.begun, NAMES, 0},
		{"done", child.done, 1, 0},       {"plain", child.plain, 1, 0},
		{"loader", child.loader, 1, 0},   {"tstate", child.tstate, THREADS, 0},
	};
	char line[128], name[16], value[32];

	while (fgets(line, sizeof(line), from) && sscanf(line, "%15s %31s", name, value) == 2) {
		if (!strcmp(name, "end"))
			break;
		for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
			if (strcmp(name, lists[i].name))
				continue;
			assert_true(lists[i].cnt < lists[i].room);
			lists[i].values[lists[i].cnt++] = strtoull(value, NULL, 16);
		}
	}
	child.tstate_cnt = lists[5].cnt;
	assert_true(child.loader[0] && child.begun[NAMES - 1]);
}

struct variant {
	const char *python, *folder;
};

static int child__start(void **state)
{
	const struct variant *variant = *state;
	char path[128];
	FILE *from;

	memset(&child, 0, sizeof(child));
	snprintf(child.folder, sizeof(child.folder), "%s", variant->folder);
	assert_non_null(mkdtemp(child.folder));
	write_file("profilers/profiler.py", profiler);
	write_file("user/main.py", script);
	for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++)
		write_file(loops[i][0], loops[i][1]);
	snprintf(path, sizeof(path), "%s/user/main.py", child.folder);
	child.pid = start_printing((const char *const[]){variant->python, "-Xutf8", path, child.folder, NULL}, &from);
	child__read(from);
	fclose(from);
	return 0;
}

static int child__stop(void **state)
{
	static const char *const inside[] = {"profilers", "loops", "trainer", "user", ""};
	char path[128];

	(void)state;
	end_child(child.pid);
	snprintf(path, sizeof(path), "%s/profilers/profiler.py", child.folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/user/main.py", child.folder);
	unlink(path);
	for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", child.folder, loops[i][0]);
		unlink(path);
	}
	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", child.folder, inside[i]);
		rmdir(path);
	}
	job__stop();
	return 0;
}

/* ---- what is read in it ---- */

/* What PROBE_PY_NEXT does once it has read its argument from memory, which here is the child's. */
static void next_on(u64 gen)
{
	next__object(thread__enter(&job.task, SP), job.proc, JOB_PID, gen, 0);
}

static void expect_actions(void)
{
	static const char first[] = "[Strategy]SingleDevice.training_step", second[] = "\xe9tape";
	static const u16 third[] = {0x4e2d, 0x6587};
	static const u32 fourth[] = {0x1f525, ' ', 'x'};
	char fifth[REC_NAME_MAX + 5];
	const struct {
		u32 encoding;
		const void *text;
		u64 bytes;
	} names_[NAMES] = {
		{NAME_LATIN1, first, sizeof(first) - 1}, {NAME_LATIN1, second, sizeof(second) - 1},
		{NAME_UCS2, third, sizeof(third)},       {NAME_UCS4, fourth, sizeof(fourth)},
		{NAME_LATIN1, fifth, REC_NAME_MAX},
	};
	u64 id;

	for (int i = 0; i < REC_NAME_MAX; i += 5)
		memcpy(fifth + i, "long ", 5);
	for (int i = 0; i < NAMES; i++) {
		next_on(child.fresh[i]);
		assert_int_equal(depth(), 1);
		assert_int_equal(names_sent(names_[i].encoding, names_[i].text, names_[i].bytes, &id), 1);
		assert_int_equal(job__thread()->spans[0].name, id);
		action__throw(child.fresh[i], SP);
		assert_int_equal(depth(), 0);
		assert_int_equal(row(SPAN_ACTION, id, 0)->calls, 1);
	}
	expect_counters(CNT_NAME_CUT, 1, CNT__COUNT);
	for (int i = 0; i < NAMES; i++) {
		next_on(child.begun[i]);
		assert_int_equal(counter(CNT_OPEN_AT_START), i + 1);
	}
	next_on(child.plain[0]);
	action__throw(child.plain[0], SP);
	expect_counters(CNT_NAME_CUT, 1, CNT_OPEN_AT_START, NAMES, CNT__COUNT);
	/* one that has ended is not begun again */
	next_on(child.done[0]);
	assert_int_equal(depth(), 0);
}

static void test_live(void **state)
{
	static const int expected[THREADS] = {
		NAME_TRAIN_NEXT, NAME_VAL_NEXT, NAME_TEST_NEXT, NAME_PREDICT_NEXT, -1, -1};
	struct process process;
	struct python python;

	assert_int_equal(process__read(child.pid, &process), 0);
	assert_int_equal(python__find(&process, &python, NULL), 0);
	job__start(python.process.layout.minor);
	job.proc->py = python.process;
	native.memory_pid = child.pid;
	/* the state of a thread that waits is none; the child says it instead */
	job.proc->py.tstate_where = PY_TSTATE_UNKNOWN;
	expect_actions();
	assert_true(is_combined_loader(job.proc, read_u64(child.loader[0] + 8)));
	assert_false(is_combined_loader(job.proc, read_u64(child.plain[0] + 8)));
	if (child.tstate_cnt) {
		bpf_map_delete_elem(&counters, &(u32){CNT_OPEN_AT_START});
		assert_int_equal(child.tstate_cnt, THREADS);
		for (int i = 0; i < THREADS; i++)
			assert_int_equal(fetch_name(job.proc, child.tstate[i]), expected[i]);
		expect_counters(CNT_NAME_CUT, 1, CNT_FRAME_LOST, 1, CNT__COUNT);
	} else {
		print_message("  no ctypes in this interpreter: its frames are not looked at\n");
	}
	process__release(&process);
}

int main(void)
{
	struct CMUnitTest tests[2 * PYTHON_MAX];
	struct variant variants[2 * PYTHON_MAX];
	char *pythons[PYTHON_MAX], names_[2 * PYTHON_MAX][256];
	size_t cnt = find_pythons(pythons);
	int failed = 0;

	for (size_t i = 0; i < 2 * cnt; i++) {
		variants[i] = (struct variant){pythons[i / 2], folders[i % 2]};
		snprintf(names_[i], sizeof(names_[i]), "%s%s", pythons[i / 2], i % 2 ? ", wide paths" : "");
		tests[i] = (struct CMUnitTest){names_[i], test_live, child__start, child__stop, &variants[i]};
	}
	if (cnt)
		failed = _cmocka_run_group_tests("live", tests, 2 * cnt, NULL, NULL);
	else
		print_message("[  SKIPPED ] no CPython found: set STEPFLAME_PYTHONS\n");
	for (size_t i = 0; i < cnt; i++)
		free(pythons[i]);
	return failed;
}
