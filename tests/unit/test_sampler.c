/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the sampler knows of a process ends with its program: after an exec, addresses are those of another one. And what it knows of
 * threads that wait.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

#define py_thread__list_still list_none
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_program),
		cmocka_unit_test_setup_teardown(test_waits_are_over, begin, finish),
		cmocka_unit_test_setup_teardown(test_group, begin, finish),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
