/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files of options (user/cmd/config.c): what they set, and what is said of each thing that is wrong in them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/cmd/config.h"
#include "user/cmd/session_args.h"

#define S 1000000000ull

enum { OPT_DURATION = 1, OPT_LAST, OPT_FOLDER, OPT_EVENT, OPT_JSON };

static const struct argp_option options[] = {
	{"duration", OPT_DURATION, "TIME", 0, "", 0}, {"last", OPT_LAST, "TIME", 0, "", 0},
	{"folder", OPT_FOLDER, "FOLDER", 0, "", 0},   {"event", OPT_EVENT, "NAME", 0, "", 0},
	{"json", OPT_JSON, NULL, 0, "", 0},           {0},
};

static struct {
	uint64_t last_ns;
	const char *folder, *events[4];
	int event_cnt;
} taken;

static error_t parse(int key, char *arg, struct argp_state *state)
{
	assert_ptr_equal(state->input, &taken);
	switch (key) {
	case OPT_LAST:
		taken.last_ns = session_args__time(state, arg);
		if (taken.last_ns < S)
			argp_error(state, "--last wants 1s or more, not '%s'", arg);
		return 0;
	case OPT_FOLDER:
		taken.folder = arg;
		return 0;
	case OPT_EVENT:
		taken.events[taken.event_cnt++] = arg;
		return 0;
	default:
		fail_msg("key %d", key);
		return 0;
	}
}

static const struct argp test_argp = {.options = options, .parser = parse};
static struct config config;
static char path[] = "/tmp/test_config.XXXXXX";
static char said[8192]; /* on stderr, by the last read */

static void put(const char *text, size_t bytes)
{
	FILE *out = fopen(path, "we");

	assert_non_null(out);
	assert_int_equal(fwrite(text, 1, bytes, out), bytes);
	assert_int_equal(fclose(out), 0);
}

static int read_file(const char *file, bool must_exist)
{
	static const int never[] = {OPT_DURATION, 0};
	int kept = dup(STDERR_FILENO), memory = memfd_create("stderr", 0), err;
	ssize_t got;

	config__free(&config);
	memset(&taken, 0, sizeof(taken));
	config = (struct config){
		.argp = &test_argp, .input = &taken, .section = "watch", .never = never, .many = OPT_EVENT};
	dup2(memory, STDERR_FILENO);
	err = config__read(&config, file, must_exist);
	dup2(kept, STDERR_FILENO);
	got = pread(memory, said, sizeof(said) - 1, 0);
	said[got] = 0;
	close(memory);
	close(kept);
	return err;
}

static int read_text(const char *text)
{
	put(text, strlen(text));
	return read_file(path, true);
}

static void test_good(void **state)
{
	(void)state;
	assert_int_equal(read_text("\xef\xbb\xbf# a comment\n"
				   "; one more\n"
				   "[watch]\r\n"
				   "\n"
				   "last = 10m ; ten minutes\n"
				   "  folder=/a folder/with #1\n"
				   "\tevent = slow=2s\r\n"
				   "event: end"),
			 0);
	assert_string_equal(said, "");
	assert_int_equal(taken.last_ns, 600 * S);
	assert_string_equal(taken.folder, "/a folder/with #1");
	assert_int_equal(taken.event_cnt, 2);
	assert_string_equal(taken.events[0], "slow=2s");
	assert_string_equal(taken.events[1], "end");
	assert_int_equal(read_text("# [watch]\n# last = nothing"), 0);
	assert_int_equal(read_text(""), 0);
}

static void test_absent(void **state)
{
	(void)state;
	assert_int_equal(read_file("/nonexistent/watch.conf", false), 0);
	assert_string_equal(said, "");
	assert_int_equal(read_file("/nonexistent/watch.conf", true), -EINVAL);
	assert_non_null(strstr(said, "cannot use /nonexistent/watch.conf: No such file or directory\n  fix: "));
}

/* "error: FILE:LINE: SAYS", then the fix. */
static void expect(int line, const char *says)
{
	char text[512];
	char *at;

	snprintf(text, sizeof(text), "error: %s:%d: %s\n  fix: ", path, line, says);
	at = strstr(said, text);
	if (!at)
		fail_msg("no '%s' in\n%s", text, said);
}

static void test_wrong(void **state)
{
	static const struct {
		const char *line, *says;
	} wrong[] = {
		{"lsat = 10s", "there is no setting 'lsat'; did you mean 'last'?"},
		{"colour = red", "there is no setting 'colour'"},
		{"duration = 10s", "there is no setting 'duration'"},
		{"json = 1", "there is no setting 'json'"},
		{"last = soon", "last: 'soon' is not a time like 10s, 500ms, 2m or 1h"},
		{"last = 10ms", "last: --last wants 1s or more, not '10ms'"},
		{"last = \x1b[31m", "last: '\\x1b[31m' is not a time like 10s, 500ms, 2m or 1h"},
		{"last =", "'last' has no value"},
		{"last", "the line is neither [watch] nor NAME = VALUE"},
		{"= 1", "there is no setting ''"},
		{"[watch", "the line is neither [watch] nor NAME = VALUE"},
		{"[watch]\nfolder = /a\nfolder = /b", NULL},
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		snprintf(text, sizeof(text), "[watch]\n%s\n", wrong[i].line);
		assert_int_equal(read_text(text), -EINVAL);
		if (wrong[i].says)
			expect(2, wrong[i].says);
		else
			expect(4, "'folder' is in line 3, too");
	}
	assert_int_equal(read_text("last = 10s\n[others]\nfolder = /a\n[watch]\nlast = 5s"), -EINVAL);
	expect(1, "'last' is not in the section [watch]");
	expect(3, "'folder' is not in the section [watch]");
}

/* All that is wrong is said at once, and once. */
static void test_all(void **state)
{
	char text[1024], says[64];
	int used, cnt = 0;

	(void)state;
	used = snprintf(text, sizeof(text), "[watch]\nnothing\nlast = x\nfolder = %0300d\nno\n[\nlsat = 1\n", 0);
	assert_int_equal(read_text(text), -EINVAL);
	expect(2, "the line is neither [watch] nor NAME = VALUE");
	expect(3, "last: 'x' is not a time like 10s, 500ms, 2m or 1h");
	expect(5, "the line is neither [watch] nor NAME = VALUE");
	expect(6, "the line is neither [watch] nor NAME = VALUE");
	expect(7, "there is no setting 'lsat'; did you mean 'last'?");
	snprintf(says, sizeof(says), "%s:4: the line has more than ", path);
	assert_non_null(strstr(said, says));
	for (const char *at = said; (at = strstr(at, "error: ")); at++)
		cnt++;
	assert_int_equal(cnt, 6);
	used = 0;
	for (int i = 0; i < 200; i++)
		used += snprintf(text + used, sizeof(text) - used, "bad\n");
	assert_int_equal(read_text(text), -EINVAL); /* not each of many */
}

static void test_files(void **state)
{
	char link[64], *big = malloc(70000);

	(void)state;
	put("[watch]\0last = 1s", 18);
	assert_int_equal(read_file(path, true), -EINVAL);
	assert_non_null(strstr(said, "it is no text"));
	memset(big, '\n', 70000);
	put(big, 64 << 10);
	assert_int_equal(read_file(path, true), 0);
	put(big, (64 << 10) + 1);
	assert_int_equal(read_file(path, true), -EINVAL);
	assert_non_null(strstr(said, "more than 64 KB"));
	free(big);
	put("", 0);
	for (int bit = S_IWOTH; bit <= S_IWGRP; bit *= S_IWGRP / S_IWOTH) {
		assert_int_equal(chmod(path, 0600 | bit), 0);
		assert_int_equal(read_file(path, true), -EINVAL);
		assert_non_null(strstr(said, "others than root may write it\n  fix: as root: chown root FILE"));
	}
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(read_file(path, false), 0);
	if (!geteuid()) {
		assert_int_equal(chown(path, 65534, 0), 0);
		assert_int_equal(read_file(path, true), -EINVAL);
		assert_non_null(strstr(said, "others than root may write it"));
		assert_int_equal(chown(path, 0, 0), 0);
	}
	snprintf(link, sizeof(link), "%s.link", path);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(read_file(link, false), -EINVAL);
	assert_non_null(strstr(said, "it is a symbolic link"));
	unlink(link);
	assert_int_equal(mkfifo(link, 0600), 0); /* nobody writes into it */
	assert_int_equal(read_file(link, true), -EINVAL);
	assert_non_null(strstr(said, "it is no regular file"));
	unlink(link);
	assert_int_equal(read_file("/tmp", true), -EINVAL);
	assert_non_null(strstr(said, "it is no regular file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good), cmocka_unit_test(test_absent), cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_all),  cmocka_unit_test(test_files),
	};
	int failed;

	close(mkstemp(path));
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	config__free(&config);
	unlink(path);
	return failed;
}
