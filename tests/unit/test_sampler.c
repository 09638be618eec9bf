/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the sampler knows of a process ends with its program: after an exec, addresses are those of another one. And what it knows of
 * threads that wait.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "tests/unit/library.h"

#include "user/runtime/python/pythread.h"

/* Threads of processes that are looked at. */
static size_t looks;

static int list_none(pid_t pid, const struct python *python, struct py_thread **out)
{
	looks++;
	*out = NULL;
	return 0;
}

/* The CPUs that are online, and their timers. */
static const char *online;
static size_t timers_started, timers_stopped;

static int read_online(const char *path, size_t most, char **out, size_t *size)
{
	assert_string_equal(path, "/sys/devices/system/cpu/online");
	*out = strdup(online);
	*size = strlen(online);
	return 0;
}

static int open_timer(void)
{
	timers_started++;
	return 0;
}

static struct bpf_link *attach_timer(const struct bpf_program *program, int fd)
{
	return (struct bpf_link *)&online;
}

static int stop_timer(struct bpf_link *link)
{
	timers_stopped += link != NULL;
	return 0;
}

static int set_periods(const struct bpf_map *map, const void *key, size_t key_bytes, const void *periods, size_t bytes,
		       uint64_t flags)
{
	return 0;
}

#define py_thread__list_still          list_none
#define proc__slurp_path               read_online
#define syscall(...)                   open_timer()
#define bpf_program__attach_perf_event attach_timer
#define bpf_link__destroy              stop_timer
#define bpf_map__update_elem           set_periods
#include "user/session/sources/samples.c"

static char other[sizeof(library)];

static int build(void **state)
{
	(void)state;
	if (!mkdtemp(dir) || !write_text("f.c", "int first(int x) { return x * 3; }\n") ||
	    !write_text("g.c", "int second(int x) { return x * 5; }\n"))
		return -1;
	compile("f.so", "-O1 f.c", library);
	compile("g.so", "-O1 g.c", other);
	return 0;
}

static const char *text_in(struct symbols *symbols, const char *path, const char *name)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *text;

	assert_non_null(handle);
	text = symbols__user(symbols, getpid(), (uintptr_t)dlsym(handle, name));
	return text ? text : "";
}

static void test_another_program(void **state)
{
	struct samples samples = {.sampler = calloc(1, sizeof(*samples.sampler))};
	struct session s = {.state[SOURCE_SAMPLES] = &samples};
	struct target t = {.process.pid = getpid()};
	struct symbols *symbols = symbols__new();

	(void)state;
	if (!library[0])
		skip(); /* no compiler */
	samples.sampler->symbols = symbols;
	assert_string_equal(text_in(symbols, library, "first"), "first (f.so)");
	/* What is mapped since would be looked for once a second, and what replaces it more seldom; now it is at once. */
	assert_non_null(source_samples.on_exec);
	source_samples.on_exec(&s, &t);
	assert_string_equal(text_in(symbols, other, "second"), "second (g.so)");
	assert_ptr_equal(source_samples.on_exit, source_samples.on_exec);
	free_sampler(&s);
}

/* ---- threads that wait ---- */

static struct waiting_thread seen[3];
static struct sampler sampler;
static struct samples samples;
static struct session session;
static struct target a, b, *targets[] = {&a, &b};

static int begin(void **state)
{
	(void)state;
	seen[0] = (struct waiting_thread){.pid = 1, .tid = 1};
	seen[1] = (struct waiting_thread){.pid = 2, .tid = 2};
	seen[2] = (struct waiting_thread){.pid = 1, .tid = 3};
	sampler = (struct sampler){.symbols = symbols__new(), .waiting = {seen, 3}};
	samples = (struct samples){.sampler = &sampler};
	session = (struct session){.state[SOURCE_SAMPLES] = &samples, .targets = targets, .target_cnt = 2};
	a = (struct target){.process.pid = 1, .has_python = true};
	b = (struct target){.process.pid = 2, .has_python = true};
	looks = 0;
	return 0;
}

static int finish(void **state)
{
	(void)state;
	symbols__free(sampler.symbols);
	return 0;
}

/* Who waits no longer is forgotten, when the threads of its process are looked at, or with the process. */
static void test_waits_are_over(void **state)
{
	(void)state;
	source_samples.on_exit(&session, &a);
	assert_int_equal(sampler.waiting.cnt, 1);
	assert_int_equal(seen[0].pid, 2);
	assert_int_equal(waiting__read(&session, &sampler.waiting, NULL), 0);
	assert_int_equal(looks, 2);
	assert_int_equal(sampler.waiting.cnt, 0);
}

/* For a rest, the time of the look is for the threads of the group that rests. */
static void test_group(void **state)
{
	const uint32_t group = 7;

	(void)state;
	b.group = group;
	assert_int_equal(waiting__read(&session, &sampler.waiting, &group), 0);
	assert_int_equal(looks, 1);
	assert_int_equal(sampler.waiting.cnt, 2);
	assert_int_equal(seen[0].pid, 1);
	assert_int_equal(seen[1].pid, 1);
}

static void test_list_of_cpus(void **state)
{
	(void)state;
	assert_true(is_listed("0\n", 0));
	assert_false(is_listed("0\n", 1));
	assert_true(is_listed("0-2,5,8-11\n", 2));
	assert_false(is_listed("0-2,5,8-11\n", 3));
	assert_true(is_listed("0-2,5,8-11\n", 5));
	assert_false(is_listed("0-2,5,8-11\n", 7));
	assert_true(is_listed("0-2,5,8-11\n", 11));
	assert_false(is_listed("0-2,5,8-11\n", 12));
	assert_false(is_listed("", 0));
}

static size_t notes;

static int count_note(const struct rec_hdr *record, void *ctx)
{
	(void)ctx;
	notes += record->type == REC_NOTE;
	return 0;
}

/* A CPU that comes, or comes again, gets a timer. */
static void test_cpu_comes(void **state)
{
	struct sampler *own = calloc(1, sizeof(*own) + 4 * sizeof(own->timers[0]));
	struct timer_period periods[4] = {{0}};
	struct stepflame_bpf skel = {0};

	(void)state;
	session.skel = &skel;
	session.sink = count_note;
	session.options.frequency = 100;
	samples.sampler = own;
	own->cpus = 4;
	own->periods = periods;
	online = "0-2\n";
	look_at_cpus(&session, CPUS_LOOK_NS);
	for (int cpu = 0; cpu < 3; cpu++)
		assert_int_equal(timer__start(&session, cpu), 0);
	timers_started = timers_stopped = notes = 0;
	online = "0,2\n";
	look_at_cpus(&session, 2 * CPUS_LOOK_NS);
	assert_int_equal(timers_started, 0);
	online = "0-3\n";
	look_at_cpus(&session, 2 * CPUS_LOOK_NS + 1); /* too soon */
	assert_int_equal(timers_started, 0);
	look_at_cpus(&session, 3 * CPUS_LOOK_NS);
	assert_int_equal(timers_started, 2);
	assert_int_equal(timers_stopped, 1); /* what was left of that of 1 */
	assert_int_equal(own->timer_cnt, 4);
	assert_int_equal(periods[1].since_ns, 3 * CPUS_LOOK_NS);
	assert_int_equal(periods[3].period_ns, 10000000);
	assert_int_equal(notes, 1);
	look_at_cpus(&session, 4 * CPUS_LOOK_NS);
	assert_int_equal(timers_started, 2);
	free(own->online);
	free(own);
	free(session.note_kinds.items);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_program),
		cmocka_unit_test_setup_teardown(test_waits_are_over, begin, finish),
		cmocka_unit_test_setup_teardown(test_group, begin, finish),
		cmocka_unit_test(test_list_of_cpus),
		cmocka_unit_test_setup_teardown(test_cpu_comes, begin, finish),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
