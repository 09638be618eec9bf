/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * getter__*: small libraries that the C compiler makes at test time, with the thread-local variable of CPython in each TLS model of
 * the ABI, are loaded into this process, and the place found must be the one that the library's own code uses. Skipped without `cc`.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/proc/getter.h"
#include "user/proc/process.h"

static const char source[] = "static __thread void *other, *tstate __attribute__((used));\n"
			     "void **place(void) { return &tstate; }\n"
			     "void **place2(void) { return &other; }\n"
			     "void abort(void);\n"
			     "#ifndef VERSION\n#define VERSION \"3.9.1\"\n#endif\n"
			     "#ifdef DEEP\n"
			     "static __attribute__((noinline)) void *inner(void *runtime) { return tstate; }\n"
			     "void *PyThreadState_Get(void) { static long runtime[2] = {-1, -1};\n"
			     "	void *t = inner(runtime); if (!t) abort(); return t; }\n"
			     "#else\n"
			     "void *PyThreadState_Get(void) { if (!tstate) abort(); return tstate; }\n"
			     "#endif\n"
			     "int snprintf(char *, unsigned long, const char *, ...);\n"
			     "const char *Py_GetVersion(void) { static char text[250];\n"
			     "	snprintf(text, 250, \"%.80s (%.80s)\", VERSION, \"main\"); return text; }\n";

struct library {
	char path[64];
	void *handle;
	struct elf *elf;
	uint64_t bias;
	void **(*place)(void);
};

/* Compiles, loads and opens. False when the compiler does not know an option. */
static bool library__new(struct library *lib, const char *flags)
{
	char command[512];
	struct link_map *map;
	FILE *cc;
	int fd;

	strcpy(lib->path, "/tmp/stepflame-pycode-XXXXXX");
	fd = mkstemp(lib->path);
	assert_true(fd >= 0);
	close(fd);
	snprintf(command, sizeof(command), "cc -w -x c -fPIC -shared %s -o %s - 2>/dev/null", flags, lib->path);
	cc = popen(command, "w");
	assert_non_null(cc);
	fwrite(source, 1, sizeof(source) - 1, cc);
	if (pclose(cc)) {
		unlink(lib->path);
		return false;
	}
	lib->handle = dlopen(lib->path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(lib->handle);
	assert_int_equal(dlinfo(lib->handle, RTLD_DI_LINKMAP, &map), 0);
	lib->bias = map->l_addr;
	*(void **)&lib->place = dlsym(lib->handle, "place");
	assert_int_equal(elf__new(lib->path, &lib->elf), 0);
	return true;
}

static void library__free(struct library *lib)
{
	elf__free(lib->elf);
	dlclose(lib->handle);
	unlink(lib->path);
}

/* The place in this thread, by what was found. */
static void *place_here(const struct py_process *py)
{
	uint64_t tp, *dtv;

	__asm__("mov %%fs:0, %0" : "=r"(tp));
	if (py->tstate_where == PY_TSTATE_TLS)
		return (void *)(uintptr_t)(tp + py->tstate_address);
	dtv = *(uint64_t **)(uintptr_t)(tp + 8);
	return (void *)(uintptr_t)(dtv[2 * py->tls_module] + py->tstate_address);
}

struct expectation {
	const struct library *lib;
	const struct py_process *py;
	bool met;
};

static void *expect_place(void *arg)
{
	struct expectation *expectation = arg;
	void *place = expectation->lib->place();

	expectation->met = place_here(expectation->py) == place;
	return NULL;
}

static void expect_model(const char *flags, enum py_tstate_where where)
{
	struct py_process py = {0};
	struct library lib;
	pthread_t thread;

	if (!library__new(&lib, flags)) {
		print_message("cc %s does not work here\n", flags);
		skip();
	}
	assert_int_equal(getter__tstate(lib.elf, getpid(), lib.bias, &py), 0);
	assert_int_equal(py.tstate_where, where);
	for (int i = 0; i < 2; i++) { /* in this thread and in another one */
		struct expectation expectation = {.lib = &lib, .py = &py};

		if (i == 0)
			expect_place(&expectation);
		else
			assert_int_equal(pthread_create(&thread, NULL, expect_place, &expectation), 0);
		if (i == 1)
			pthread_join(thread, NULL);
		assert_true(expectation.met);
	}
	library__free(&lib);
}

static void test_initial_exec(void **state)
{
	expect_model("-O2 -ftls-model=initial-exec", PY_TSTATE_TLS);
}

static void test_initial_exec_canary(void **state)
{
	expect_model("-O2 -ftls-model=initial-exec -fstack-protector-all -fcf-protection", PY_TSTATE_TLS);
}

static void test_global_dynamic(void **state)
{
	expect_model("-O2 -ftls-model=global-dynamic", PY_TSTATE_DTV);
}

static void test_global_dynamic_no_plt(void **state)
{
	expect_model("-O2 -ftls-model=global-dynamic -fno-plt -fstack-protector-all", PY_TSTATE_DTV);
}

static void test_local_dynamic(void **state)
{
	expect_model("-O2 -ftls-model=local-dynamic", PY_TSTATE_DTV);
}

static void test_unoptimised(void **state)
{
	expect_model("-O0", PY_TSTATE_DTV);
}

static void test_inner_function(void **state)
{
	expect_model("-O1 -DDEEP", PY_TSTATE_DTV);
}

/* glibc answers a descriptor of a library that was loaded late by its static TLS reserve or by a dynamic block: both are right. */
static void test_descriptors(void **state)
{
	struct py_process py = {0};
	struct library lib;

	if (!library__new(&lib, "-O2 -mtls-dialect=gnu2")) {
		print_message("cc does not know TLS descriptors\n");
		skip();
	}
	assert_int_equal(getter__tstate(lib.elf, getpid(), lib.bias, &py), 0);
	lib.place();
	assert_ptr_equal(place_here(&py), lib.place());
	print_message("  by way %u\n", py.tstate_where);
	library__free(&lib);
}

static void test_version(void **state)
{
	static const char *const texts[][2] = {
		{"3.9.18", "3.9.18"}, {"3.10.0rc1+", "3.10.0rc1"}, {"3.8.0", "3.8.0"}, {"2.7.18", NULL}, {"3.", NULL}};
	char version[16], flags[64];
	struct library lib;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		snprintf(flags, sizeof(flags), "-O2 '-DVERSION=\"%s\"'", texts[i][0]);
		if (!library__new(&lib, flags))
			skip();
		assert_int_equal(getter__version(lib.elf, getpid(), lib.bias, version, sizeof(version)),
				 texts[i][1] ? 0 : -ENOENT);
		if (texts[i][1])
			assert_string_equal(version, texts[i][1]);
		library__free(&lib);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_initial_exec),   cmocka_unit_test(test_initial_exec_canary),
		cmocka_unit_test(test_global_dynamic), cmocka_unit_test(test_global_dynamic_no_plt),
		cmocka_unit_test(test_local_dynamic),  cmocka_unit_test(test_unoptimised),
		cmocka_unit_test(test_inner_function), cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
