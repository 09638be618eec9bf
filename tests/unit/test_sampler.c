/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the sampler knows of a process's native functions ends with its program: after an exec, addresses are those of another one. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/library.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_program),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
