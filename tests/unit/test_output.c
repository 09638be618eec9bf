// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What stepflame writes to, and what it does not, by a path (user/lib/output.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/lib/output.h"

#define OTHER 12345 /* a user id */

static char dir[] = "/tmp/stepflame_output_XXXXXX";

static int set_up(void **state)
{
	return !mkdtemp(dir) || chdir(dir);
}

static int tear_down(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void expect_text(const char *path, const char *text)
{
	char found[64] = "";
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	assert_non_null(fgets(found, sizeof(found), f));
	fclose(f);
	assert_string_equal(found, text);
}

/* Files that have not got their names. */
static int count_temporaries(void)
{
	DIR *folder = opendir(".");
	struct dirent *entry;
	int cnt = 0;

	while ((entry = readdir(folder)))
		cnt += !strncmp(entry->d_name, ".stepflame", 10);
	closedir(folder);
	return cnt;
}

static void write_new(const char *path)
{
	struct output out;

	assert_int_equal(output__check(path, &out), 0);
	assert_int_equal(output__open(path, &out), 0);
	assert_int_equal(write(out.fd, "new", 3), 3);
	assert_int_equal(count_temporaries(), 0); /* nothing that a kill would leave */
	close(out.fd);
	assert_int_equal(output__keep(&out), 0);
	output__release(&out);
	assert_int_equal(count_temporaries(), 0);
}

static void expect_refused(const char *path, int err)
{
	struct output out;

	assert_int_equal(output__check(path, &out), err);
	assert_int_equal(output__open(path, &out), err);
	assert_int_equal(!out.refused, err != -EPERM);
	assert_int_equal(out.fd, -1);
	assert_int_equal(count_temporaries(), 0);
}

static void need_root(void)
{
	if (geteuid()) {
		print_message("only root gives files away\n");
		skip();
	}
}

static void test_replaced(void **state)
{
	struct output out;
	struct stat st;

	put("file", "old");
	assert_int_equal(link("file", "hard"), 0);
	assert_int_equal(output__open("file", &out), 0);
	expect_text("file", "old");
	close(out.fd);
	output__release(&out); /* not kept */
	expect_text("file", "old");
	write_new("file");
	expect_text("file", "new");
	expect_text("hard", "old");
	assert_int_equal(stat("file", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	expect_refused("none/file", -ENOENT);
	expect_refused("file/file", -ENOTDIR);
	expect_refused(".", -EISDIR);
	expect_refused("..", -EISDIR);
	expect_refused("/", -EISDIR);
	expect_refused("", -EISDIR);
}

static void test_links(void **state)
{
	put("victim", "old");
	assert_int_equal(symlink("victim", "link"), 0);
	assert_int_equal(symlink("none", "dangling"), 0);
	assert_int_equal(symlink("loop", "loop"), 0);
	assert_int_equal(mkdir("folder", 0700), 0);
	assert_int_equal(symlink("folder", "own"), 0);
	expect_refused("link", -EPERM);
	expect_refused("dangling", -EPERM);
	expect_refused("loop", -EPERM);
	expect_refused("loop/file", -ELOOP);
	expect_text("victim", "old");
	assert_int_equal(access("none", F_OK), -1);
	/* A folder may be a link of the user's. */
	write_new("own/../own//file");
	expect_text("folder/file", "new");
	need_root();
	assert_int_equal(lchown("own", OTHER, OTHER), 0);
	expect_refused("own/file2", -EPERM);
	expect_refused("own/", -EPERM);
	setenv("SUDO_UID", "12345", 1);
	write_new("own/file2");
	unsetenv("SUDO_UID");
}

static void test_other_users(void **state)
{
	need_root();
	assert_int_equal(mkdir("shared", 0700), 0);
	assert_int_equal(chmod("shared", 01777), 0);
	put("shared/theirs", "old");
	assert_int_equal(chown("shared/theirs", OTHER, OTHER), 0);
	expect_refused("shared/theirs", -EPERM);
	expect_text("shared/theirs", "old");
	/* What has the name in a folder of one user's is there because that user wants it. */
	assert_int_equal(chmod("shared", 0755), 0);
	write_new("shared/theirs");
	assert_int_equal(mkdir("their", 0700), 0);
	put("their/file", "old");
	assert_int_equal(chown("their", OTHER, OTHER), 0);
	assert_int_equal(chown("their/file", OTHER, OTHER), 0);
	write_new("their/file");
	assert_int_equal(mkfifo("fifo", 0666), 0);
	assert_int_equal(chown("fifo", OTHER, OTHER), 0);
	expect_refused("fifo", -EPERM);
	assert_int_equal(symlink("/dev/null", "device"), 0);
	write_new("device");
	assert_int_equal(lchown("device", OTHER, OTHER), 0);
	expect_refused("device", -EPERM);
}

static void test_as_they_are(void **state)
{
	char text[4] = "", path[32];
	int reader, ends[2];

	write_new("/dev/null");
	assert_int_equal(mkfifo("own_fifo", 0600), 0);
	reader = open("own_fifo", O_RDONLY | O_NONBLOCK);
	write_new("own_fifo");
	assert_int_equal(read(reader, text, sizeof(text)), 3);
	assert_string_equal(text, "new");
	close(reader);
	assert_int_equal(pipe(ends), 0);
	snprintf(path, sizeof(path), "/dev/fd/%d", ends[1]);
	write_new(path);
	assert_int_equal(read(ends[0], text, sizeof(text)), 3);
	close(ends[0]);
	close(ends[1]);
	assert_true(output__is_stdout("-"));
	assert_true(output__is_stdout("/dev/stdout"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_other_users),
		cmocka_unit_test(test_as_they_are),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
