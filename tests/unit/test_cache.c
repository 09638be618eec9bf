/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The cache of what was found in a file (user/elf/cache.h): it is for that inode with that content, in a folder of our own. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>

#include "tests/unit/library.h"
#include "user/elf/cache.h"

static char cache[sizeof(library)];

static int build(void **state)
{
	if (!mkdtemp(dir) || !write_text("f.c", "int exported(void) { return 3; }\n"))
		return -1;
	compile("f.so", "-O1 -Wl,--build-id=0x00ff10a5 f.c", library);
	in_dir("cache", cache);
	return 0;
}

static void run(const char *format, const char *a, const char *b)
{
	char command[512];

	snprintf(command, sizeof(command), format, a, b);
	assert_int_equal(system(command), 0);
}

static struct elf *open_elf(const char *path)
{
	struct elf *elf;

	assert_int_equal(elf__new(path, &elf), 0);
	return elf;
}

/* Caches the offset of the library's function. */
static void save(const char *path)
{
	struct elf *elf = open_elf(path);
	struct elf_symbol symbol;
	uint64_t offset;
	struct cache_part part = {sizeof(offset), 1, &offset};

	assert_int_equal(elf__symbol(elf, "exported", &symbol), 0);
	assert_int_equal(elf__offset(elf, symbol.vaddr, &offset), 0);
	cache__save(elf, cache, "test", &part, 1);
	elf__free(elf);
}

static bool has(const char *path)
{
	struct elf *elf = open_elf(path);
	struct cache_part part = {.unit = sizeof(uint64_t)};
	int err = cache__load(elf, cache, "test", &part, 1);

	assert_true(err == 0 || err == -ENOENT);
	assert_int_equal(part.cnt, !err);
	cache__release(&part, 1);
	elf__free(elf);
	return !err;
}

static size_t count_files(void)
{
	DIR *d = opendir(cache);
	struct dirent *entry;
	size_t cnt = 0;

	while (d && (entry = readdir(d)))
		cnt += entry->d_name[0] != '.';
	closedir(d);
	return cnt;
}

/* A copy with the same build id, symbols, times and code is another file. */
static void test_copy(void **state)
{
	char copy[sizeof(library)];

	elf__free(open_library());
	assert_false(has(library));
	save(library);
	assert_true(has(library));
	run("cp -p %s %s", library, in_dir("copy.so", copy));
	assert_false(has(copy));
	save(copy);
	assert_true(has(copy) && has(library));
}

static void test_changed(void **state)
{
	static const char *const changes[] = {"touch %s%s", "chmod 0700 %s%s", "chmod 0755 %s%s", "printf x >> %s%s"};
	char path[sizeof(library)];

	elf__free(open_library());
	run("cp %s %s", library, in_dir("changed.so", path));
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		save(path);
		assert_true(has(path));
		run(changes[i], path, "");
		assert_false(has(path));
	}
	/* its content changes, and its time is put back */
	struct timeval times[2] = {{1, 1}, {1, 1}};

	assert_int_equal(utimes(path, times), 0);
	save(path);
	assert_true(has(path));
	assert_int_equal(utimes(path, times), 0);
	assert_false(has(path));
	/* what is found while the file changes is not kept */
	struct elf *elf = open_elf(path);
	uint64_t offset = 0;
	struct cache_part part = {sizeof(offset), 0, &offset};

	run("chmod 0700 %s%s", path, "");
	cache__save(elf, cache, "late", &part, 1);
	assert_int_equal(cache__load(elf, cache, "late", &part, 1), -ENOENT);
	elf__free(elf);
}

static void test_folder(void **state)
{
	char real[sizeof(library)];

	elf__free(open_library());
	save(library);
	assert_true(has(library));
	assert_int_equal(chmod(cache, 0770), 0);
	assert_false(has(library));
	assert_int_equal(chmod(cache, 0700), 0);
	assert_true(has(library));
	if (!geteuid()) {
		assert_int_equal(chown(cache, 65534, -1), 0);
		assert_false(has(library));
		assert_int_equal(chown(cache, 0, -1), 0);
	}
	assert_int_equal(rename(cache, in_dir("real", real)), 0);
	assert_int_equal(symlink(real, cache), 0);
	assert_false(has(library));
	assert_int_equal(unlink(cache), 0);
	assert_int_equal(rename(real, cache), 0);
	assert_true(has(library));
}

/* The folder has bounds: the oldest go. Others' files there stay. */
static void test_bounds(void **state)
{
	elf__free(open_library());
	run("cd %s%s && touch other && for i in $(seq 300); do touch -d \"$i minutes ago\" found-$i; done", cache, "");
	save(library);
	assert_true(has(library));
	assert_int_equal(count_files(), 257);
	run("test -e %s/other -a -e %s/found-1", cache, cache);
}

/* What nobody has used for long goes; what is loaded is used. */
static void test_unused(void **state)
{
	elf__free(open_library());
	save(library);
	run("cd %s%s && touch -d '31 days ago' found-old && touch -d '29 days ago' found-late", cache, "");
	run("touch -d '29 days ago' %s/found-*.test%s", cache, "");
	assert_true(has(library));
	run("test \"$(find %s/found-*.test%s -mtime -1)\"", cache, "");
	save(library);
	run("test ! -e %s/found-old -a -e %s/found-late", cache, cache);
}

/* What was found in a file that is deleted goes when something is found in another one of its file system. */
static void test_deleted(void **state)
{
	char copy[sizeof(library)];
	struct stat st;
	size_t cnt;

	elf__free(open_library());
	if (geteuid() || stat(library, &st) || !major(st.st_dev))
		skip(); /* nobody can say that it is deleted */
	save(library);
	cnt = count_files();
	run("cp -p %s %s", library, in_dir("deleted.so", copy));
	save(copy);
	save(library);
	assert_int_equal(count_files(), cnt + 1);
	assert_true(has(copy));
	assert_int_equal(unlink(copy), 0);
	save(library);
	assert_int_equal(count_files(), cnt);
	assert_true(has(library));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copy),    cmocka_unit_test(test_changed), cmocka_unit_test(test_folder),
		cmocka_unit_test(test_deleted), cmocka_unit_test(test_bounds),  cmocka_unit_test(test_unused),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
