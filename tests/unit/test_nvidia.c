// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The files of NVIDIA's kernel driver as machines with a GPU have them, quoted from the web. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "user/runtime/cuda/cuda.h"

static FILE *file_of(const char *text)
{
	FILE *file = fmemopen((void *)text, strlen(text), "r");

	assert_non_null(file);
	return file;
}

static void expect_version(const char *text, const char *expected)
{
	FILE *file = file_of(text);
	char version[32] = "";

	assert_int_equal(nvidia__version(file, version, sizeof(version)), expected ? 0 : -ENODATA);
	assert_string_equal(version, expected ? expected : "");
	fclose(file);
}

static void test_version(void **state)
{
	(void)state;
	expect_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  384.81  Wed Aug 17 22:24:07 PDT 2016\n"
		       "GCC version:  gcc version 4.8.5 20150623 (Red Hat 4.8.5-4) (GCC)\n",
		       "384.81");
	expect_version(
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build  (abuild@host)  "
		"Thu Jul 11 12:00:00 UTC 2024\nGCC version:  gcc version 7.5.0 (SUSE Linux) \n",
		"555.42.06");
	expect_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  515.65.01  Wed Mar 16 11:24:05 UTC 2022\n",
		       "515.65.01");
	expect_version("NVRM version: none\n", NULL);
	expect_version("GCC version:  gcc version 12.2.0 (GCC)\n", NULL);
}

static void expect_restricts(const char *text, int expected)
{
	FILE *file = file_of(text);

	assert_int_equal(nvidia__restricts_profiling(file), expected);
	fclose(file);
}

static void test_restricts_profiling(void **state)
{
	(void)state;
	expect_restricts("ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 1\nPreserveVideoMemoryAllocations: 1\n", 1);
	expect_restricts("ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 0\nPreserveVideoMemoryAllocations: 1\n", 0);
	expect_restricts("NVreg_RestrictProfilingToAdminUsers: 1\n", 1);
	expect_restricts("ModifyDeviceFiles: 1\nRegistryDwords: \"\"\n", -ENODATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_restricts_profiling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
