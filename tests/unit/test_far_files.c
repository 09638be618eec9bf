// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which mounts have a server: tables of mounts that are made up, as kernels and the hostile write them; and of calls of this process. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/waits.h"
#include "user/proc/far_files.h"

#define MOUNTS                                                                      \
	"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"                  \
	"30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"                     \
	"40 22 0:50 / /data rw,nosuid shared:9 - nfs4 10.0.0.1:/export rw,vers=4\n" \
	"41 40 254:1 / /data/local rw - xfs /dev/vdb rw\n"                          \
	"42 22 0:51 / /my\\040files rw - fuse.sshfs me@host: rw\n"                  \
	"43 22 0:52 / /over rw - fuse a rw\n"                                       \
	"44 22 0:53 / /over rw - tmpfs tmpfs rw\n"

static void expect(const char *path, const char *wanted)
{
	char out[FAR_FILES_BYTES];
	int err = far_files__of_path(path, MOUNTS, out);

	assert_int_equal(err, wanted ? 0 : -ENOENT);
	if (wanted)
		assert_string_equal(out, wanted);
}

static void the_longest_mount_counts(void **state)
{
	expect("/data/train/0.jpg", "/data (nfs4)");
	expect("/data", "/data (nfs4)");
	expect("/data/local/x", NULL);
	expect("/database/x", NULL);
	expect("/my files/x", "/my files (fuse.sshfs)");
	expect("/over/x", NULL); /* a later mount hides it */
	expect("/home/x", NULL);
	expect("data/x", NULL);
	expect("", NULL);
	expect("/data/../home/x", NULL);
	expect("/data/..", NULL);
	expect("/data/..x", "/data (nfs4)");
}

static void tables_may_be_anything(void **state)
{
	static const char *const tables[] = {"",
					     "\n\n",
					     "1 2 3",
					     "1 2 3 / /a",
					     "1 2 3 / /a rw -",
					     "1 2 3 / a rw - nfs x",
					     "1 2 3 / /a rw nfs",
					     " - - - ",
					     "1 2 3 / /a rw - nfsd nfsd rw\n",
					     "1 2 3 / /a rw - fusectl x rw\n"};
	char out[FAR_FILES_BYTES], *text = malloc(20001);

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		assert_int_equal(far_files__of_path("/a/b", tables[i], out), -ENOENT);
	memset(text, 'a', 20000);
	text[20000] = 0;
	memcpy(text, "1 2 3 / /", 9);
	memcpy(text + 19980, " rw - nfs x rw", 14); /* too long for a line */
	assert_int_equal(far_files__of_path("/aaa", text, out), -ENOENT);
	memcpy(text + 1000, " rw - nfs x rw\n", 15); /* too long for a name */
	assert_int_equal(far_files__of_path("/aaa", text, out), -ENOENT);
	text[0] = '/';
	text[1000] = 0;
	assert_int_equal(far_files__of_path(text, MOUNTS, out), -ENOENT);
	free(text);
}

static int ask(long syscall, uint64_t first, uint64_t second, const char *wanted)
{
	const struct task task = {.tid = getpid(), .syscall = syscall, .args = {first, second}};
	char out[FAR_FILES_BYTES], mounts[4096], here[2048];
	int err;

	assert_non_null(getcwd(here, sizeof(here)));
	snprintf(mounts, sizeof(mounts), "%s45 22 0:60 / %s rw - 9p x rw\n", MOUNTS, here);
	err = far_files__of(getpid(), &task, mounts, out);
	if (!err && wanted)
		assert_true(!strncmp(out, wanted, strlen(wanted)));
	return err;
}

/* Paths from the root, from where the process is, from an open folder; and open files. */
static void calls(void **state)
{
	char folder[] = "/tmp/farXXXXXX", *page;
	int fd;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	fd = open(".", O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_int_equal(ask(SYS_OPEN, (uintptr_t) "/data/x", 0, "/data (nfs4)"), 0);
	assert_int_equal(ask(SYS_STAT, (uintptr_t) "x", 0, folder), 0);
	assert_int_equal(ask(SYS_OPENAT, (uint32_t)AT_FDCWD, (uintptr_t) "x", folder), 0);
	assert_int_equal(ask(SYS_NEWFSTATAT, (uint64_t)AT_FDCWD, (uintptr_t) "/data/x", "/data (nfs4)"), 0);
	assert_int_equal(ask(SYS_STATX, fd, (uintptr_t) "", folder), 0);
	assert_int_equal(ask(SYS_GETDENTS64, fd, 0, folder), 0);
	assert_int_equal(ask(SYS_OPENAT, fd, (uintptr_t) "../x", NULL), -ENOENT);
	assert_int_equal(ask(SYS_OPEN, (uintptr_t) "/home/x", 0, NULL), -ENOENT);
	assert_int_equal(ask(SYS_READ, fd, 0, NULL), -ENOENT);
	assert_int_equal(ask(-1, fd, 0, NULL), -ENOENT);
	assert_int_not_equal(ask(SYS_GETDENTS64, 1 << 20, 0, NULL), 0);
	assert_int_not_equal(ask(SYS_GETDENTS64, UINT64_MAX, 0, NULL), 0);
	assert_int_not_equal(ask(SYS_OPEN, 8, 0, NULL), 0);
	page = malloc(10000);
	memset(page, 'a', 10000);
	assert_int_equal(ask(SYS_OPEN, (uintptr_t)page, 0, NULL), -ENAMETOOLONG);
	free(page);
	close(fd);
	assert_int_equal(chdir("/"), 0);
	rmdir(folder);
	for (long i = -5; i < 500; i++)
		if (far_files__is_call(i))
			assert_true(syscall__rule(i) >= RULE_META);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_longest_mount_counts),
		cmocka_unit_test(tables_may_be_anything),
		cmocka_unit_test(calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
