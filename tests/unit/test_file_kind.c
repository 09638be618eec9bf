/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which files are of one kind (user/report/io_rows.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "user/report/io_rows.h"

static void expect(const char *path, const char *wanted)
{
	char *kind;

	assert_int_equal(file_kind__of(path, &kind), 0);
	if (wanted) {
		assert_non_null(kind);
		assert_string_equal(kind, wanted);
	} else {
		assert_null(kind);
	}
	free(kind);
}

static void test_made_up(void **state)
{
	(void)state;
	expect("/dev/shm/torch_15293_987354471_4", "/dev/shm/torch_*");
	expect("/dev/shm/psm_0a1b2c3d", "/dev/shm/psm_*");
	expect("/tmp/tmpab12_d3x", "/tmp/tmp*");
	expect("/data/tmpab12_d3x.ckpt", "/data/tmp*.ckpt");
	expect("/tmp/tmpab12_d3x/logs/metrics.csv", "/tmp/tmp*/logs/metrics.csv");
	expect("/tmp/pymp-1a2b3c4d/listener-7", "/tmp/pymp-*/listener-7");
	expect("/tmp/torch-shm-dir-aB3xYz/manager.sock", "/tmp/torch-shm-dir-*/manager.sock");
	expect("/tmp/torchinductor_me/ab/cabx.py", "/tmp/torchinductor_me/*");
	expect("/tmp/part-0017.bin", "/tmp/part-*.bin");
	expect("/var/tmp/sort.Xa8bZq", "/var/tmp/sort.*");
	expect("memfd:pages", "memfd:pages");
}

static void test_deleted(void **state)
{
	(void)state;
	expect("/tmp/x (deleted)", "/tmp/* (deleted)");
	expect("/tmp/#10993730 (deleted)", "/tmp/* (deleted)");
	expect("/data/a b (deleted)", "/data/* (deleted)");
	expect("/tmp/tmpab12_d3x/f (deleted)", "/tmp/tmp*/* (deleted)");
	expect("gone (deleted)", NULL);
}

static void test_own(void **state)
{
	(void)state;
	expect("/data/shard-0017.tar", NULL);
	expect("/tmp/notes.txt", NULL);
	expect("/tmp/data/shard-0017.tar", NULL);
	expect("/data/tmpfiles/a", NULL);
	expect("/data/torch_model.pt", NULL);
	expect("/tmp/torchinductor_me", NULL);
	expect("/", NULL);
	expect("", NULL);
	expect(" (deleted)", NULL);
	expect("/ (deleted)", NULL);
	expect("/tmp/torchinductor_me/", "/tmp/torchinductor_me/*");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made_up),
		cmocka_unit_test(test_deleted),
		cmocka_unit_test(test_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
