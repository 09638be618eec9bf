// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What was installed into a folder: RECORD files as pip writes them, and as nobody should. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/session/sources/packages.c"

static char folder[] = "/tmp/test_packages.XXXXXX";

static int make_folder(void **state)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

/* Makes the metadata of a distribution; text NULL: without RECORD. */
static void add_record(const char *distribution, const char *text, size_t bytes)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s.dist-info", folder, distribution);
	assert_int_equal(mkdir(path, 0700), 0);
	if (!text)
		return;
	strcat(path, "/RECORD");
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

static void assert_found(const char *expected)
{
	char *names;

	assert_int_equal(find_installed(getpid(), folder, &names), 0);
	assert_string_equal(names, expected);
	free(names);
}

static void expect(const char *text, const char *expected)
{
	make_folder(NULL);
	add_record("some-1.0", text, strlen(text));
	assert_found(expected);
	remove_folder(NULL);
}

static void what_pip_writes(void **state)
{
	expect("their_texts/__init__.py,sha256=pEsz,31\n"
	       "their_texts/deep/er/x.py,sha256=pEsz,31\n"
	       "their_texts/__pycache__/__init__.cpython-311.pyc,,\n"
	       "some-1.0.dist-info/RECORD,,\n"
	       "some-1.0.dist-info/METADATA,sha256=ab,9\n"
	       "__pycache__/six.cpython-311.pyc,,\n"
	       "six.py,sha256=4721,34549\n"
	       "libs.so/x.so,,\n"
	       "_C.cpython-311-x86_64-linux-gnu.so,sha256=1,2\n"
	       "bin/their-command,sha256=99,200\n"
	       "../../bin/their-command,sha256=99,200\n"
	       "../share/man/their.1,,\n"
	       "/etc/their.conf,sha256=1,2\n",
	       "their_texts/\nsix.py\nlibs.so/\n");
	expect("", "");
	expect("\n\n,,\n/,\n.,,\n..,,\n", "");
}

static void names_in_quotes(void **state)
{
	expect("\"their_texts/a, b.py\",sha256=pEsz,31\n"
	       "\"with \"\"quotes\"\"/x.py\",,\n" /* no name of a package: it ends at the quote */
	       "\"a,b.py\",sha256=1,2\n"
	       "\"../x/y.py\",,\n"
	       "\"/etc/x.py\",,\n"
	       "\"\n"
	       "\"open/x.py,,\n",
	       "their_texts/\na,b.py\nopen/\n");
}

static void the_last_line_may_be_cut(void **state)
{
	expect("one/x.py,sha256=1,2\ntwo/x.py,sha2", "one/\n");
	expect("one/x.py", "");
}

static void names_that_are_none(void **state)
{
	char text[2 * 512 + 64];
	size_t at = sprintf(text, "one/x.py,,\n");

	memset(text + at, 'a', 512);
	strcpy(text + at + 512, "/x.py,,\ntwo/x.py,,\n");
	expect(text, "one/\ntwo/\n");
	make_folder(NULL);
	add_record("zero-1", "o\0ne/x.py,,\ntwo/x.py,,\n", 23);
	assert_found("two/\n");
	remove_folder(NULL);
}

/* Far more than is read at once, all of one package but the last; a line longer than what is read at once; and far more than is read. */
static void long_ones(void **state)
{
	size_t bytes = 3u << 20, at = 0;
	char *text = malloc(bytes + 64);

	while (at < bytes)
		at += sprintf(text + at, "torch/file_%zu.py,,\n", at);
	at += sprintf(text + at, "torchgen/x.py,,\n");
	make_folder(NULL);
	add_record("torch-2", text, at);
	assert_found("torch/\ntorchgen/\n");
	remove_folder(NULL);
	memset(text, 'x', 200000);
	sprintf(text + 200000, "/a.py,,\nlast/x.py,,\n");
	make_folder(NULL);
	add_record("line-2", text, strlen(text));
	assert_found("last/\n");
	remove_folder(NULL);
	free(text);
}

static void many_names(void **state)
{
	char *text = malloc(1 << 20), *names;
	size_t at = 0, lines = 0;

	for (int i = 0; i < 20000; i++)
		at += sprintf(text + at, "package_%d/x.py,,\n", i);
	make_folder(NULL);
	add_record("many-1", text, at);
	assert_int_equal(find_installed(getpid(), folder, &names), 0);
	for (char *c = names; *c; c++)
		lines += *c == '\n';
	assert_int_equal(lines, 256);
	free(names);
	remove_folder(NULL);
	free(text);
}

/* What is no file, or leads out of the folder; and no metadata. */
static void not_a_file(void **state)
{
	char path[256], outside[256];
	char *names;
	FILE *file;

	make_folder(NULL);
	add_record("good-1", "good/x.py,,\n", 12);
	add_record("empty-1", NULL, 0);
	add_record("fifo-1", NULL, 0);
	snprintf(path, sizeof(path), "%s/fifo-1.dist-info/RECORD", folder);
	assert_int_equal(mkfifo(path, 0600), 0); /* to open it for reading would wait */
	add_record("folder-1", NULL, 0);
	snprintf(path, sizeof(path), "%s/folder-1.dist-info/RECORD", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(outside, sizeof(outside), "%s.outside", folder);
	file = fopen(outside, "w");
	fputs("stolen/x.py,,\n", file);
	fclose(file);
	add_record("link-1", NULL, 0);
	snprintf(path, sizeof(path), "%s/link-1.dist-info/RECORD", folder);
	assert_int_equal(symlink(outside, path), 0);
	add_record("loop-1", NULL, 0);
	snprintf(path, sizeof(path), "%s/loop-1.dist-info/RECORD", folder);
	assert_int_equal(symlink("RECORD", path), 0);
	add_record("tty-1", NULL, 0);
	snprintf(path, sizeof(path), "%s/tty-1.dist-info/RECORD", folder);
	assert_int_equal(symlink("/dev/tty", path), 0);
	snprintf(path, sizeof(path), "%s/file.dist-info", folder);
	fclose(fopen(path, "w"));
	assert_found("good/\n");
	unlink(outside);
	remove_folder(NULL);
	assert_true(find_installed(getpid(), folder, &names) == -ENOENT);
	assert_true(find_installed(getpid(), "tmp", &names) == -EINVAL);
	assert_true(find_installed(getpid(), "", &names) == -EINVAL);
	assert_true(find_installed(getpid(), "/proc/self/status", &names) == -ENOTDIR);
	assert_int_not_equal(find_installed(0x7fffffff, "/", &names), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_pip_writes),
		cmocka_unit_test(names_in_quotes),
		cmocka_unit_test(the_last_line_may_be_cut),
		cmocka_unit_test(names_that_are_none),
		cmocka_unit_test(long_ones),
		cmocka_unit_test(many_names),
		cmocka_unit_test(not_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
