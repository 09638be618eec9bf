/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ELF reading, compared with what the compiler was told. The method tables are those of whichever CPython is installed
 * (a stripped static one and a shared one both count); their truth is that interpreter's symbol table where it has one.
 */
#include <elf.h>
#include <errno.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/library.h"
#include "user/elf/functions.h"
#include "user/runtime/python/interpreter.h"

static char packed[sizeof(library)];

/* A method table and a slot table of CPython's shape, and pointers of each kind of relocation. */
static const char fixture[] =
	"struct method { const char *name; void *fn; int flags; const char *doc; };\n"
	"struct slot { const char *name; int offset; void *fn; void *wrap; const char *doc; };\n"
	"static int a(void) { return 1; } static int b(void) { return 2; } int exported(void) { return 3; } int data = "
	"7;\n"
	"static int c(void) { return 4; }\n"
	"extern int undefined_one(void);\n"
	"struct method methods[] = {{\"first\", a, 1, 0}, {\"step_next\", b, 1, 0}, {\"next\", b, 0x80, 0}, {0}};\n"
	"struct method twice[] = {{\"twice\", a, 4, 0}, {\"twice\", b, 4, 0}, {\"same\", c, 4, 0}, {\"same\", c, 4, "
	"0}, {0}};\n"
	"struct slot slots[] = {{\"__next__\", 0xe0, c, a, 0}, {\"__iter__\", 0xd8, a, a, 0}};\n"
	"void *pointers[] = {&data, exported, undefined_one, a};\n"
	"long plain = 0x1122334455667788;\n"
	"int is_a(void *p) { return p == (void *)a; }\n";

static int build(void **state)
{
	if (!mkdtemp(dir) || !write_text("f.c", fixture))
		return -1;
	compile("f.so", "-O1 -Wl,--build-id=0x00ff10a5 f.c", library);
	compile("p.so", "-O1 -Wl,-z,pack-relative-relocs f.c", packed);
	return 0;
}

static uint64_t vaddr_of(const struct elf *elf, const char *name)
{
	struct elf_symbol symbol;

	assert_int_equal(elf__symbol(elf, name, &symbol), 0);
	return symbol.vaddr;
}

static void test_refused(void **state)
{
	struct elf *elf;
	char path[sizeof(library)];

	assert_int_equal(elf__new(in_dir("f.c", path), &elf), -ENOEXEC);
	assert_int_equal(elf__new(dir, &elf), -ENOEXEC);
	assert_int_equal(elf__new("/dev/null", &elf), -ENOEXEC);
	assert_int_equal(elf__new(in_dir("none", path), &elf), -ENOENT);
	elf__free(NULL);
}

static void test_basics(void **state)
{
	struct elf *elf = open_library();
	struct elf_symbol symbol;
	struct function_range range;
	uint64_t offset, vaddr;
	size_t have;

	assert_string_equal(elf__build_id(elf), "00ff10a5");
	assert_int_equal(elf__symbol(elf, "exported", &symbol), 0);
	assert_true(symbol.function && symbol.size);
	assert_true(elf__is_code(elf, symbol.vaddr));
	assert_false(elf__is_code(elf, vaddr_of(elf, "data")));
	assert_int_equal(elf__symbol(elf, "undefined_one", &symbol), -ENOENT);
	assert_int_equal(elf__symbol(elf, "exported", &symbol), 0);
	assert_int_equal(functions__at(elf, symbol.vaddr + symbol.size - 1, &range), 0);
	assert_int_equal(range.start, symbol.vaddr);
	assert_int_equal(range.end, symbol.vaddr + symbol.size);
	assert_int_equal(range.frame, 0);
	/* The file holds the bytes at the offset. */
	assert_int_equal(elf__offset(elf, vaddr_of(elf, "plain"), &offset), 0);
	assert_int_equal(elf__vaddr(elf, offset, &vaddr), 0);
	assert_int_equal(vaddr, vaddr_of(elf, "plain"));
	FILE *f = fopen(library, "r");
	int64_t value = 0;
	assert_true(f && !fseek(f, offset, SEEK_SET) && fread(&value, 8, 1, f) == 1);
	fclose(f);
	assert_int_equal(value, 0x1122334455667788);
	assert_memory_equal(elf__bytes(elf, vaddr, 8, &have), &value, 8);
	assert_int_equal(have, 8);
	assert_null(elf__bytes(elf, UINT64_MAX - 3, 8, &have));
	assert_int_equal(elf__offset(elf, 1ULL << 60, &offset), -ENOENT);
	elf__free(elf);
}

/* Each word of pointers[], by the symbols that it was initialised with. */
static void test_pointers(void **state)
{
	struct elf *elf = open_library();
	uint64_t table = vaddr_of(elf, "pointers"), value;

	assert_int_equal(elf__pointer(elf, table, &value), 0);
	assert_int_equal(value, vaddr_of(elf, "data"));
	assert_int_equal(elf__pointer(elf, table + 8, &value), 0);
	assert_int_equal(value, vaddr_of(elf, "exported"));
	assert_int_equal(elf__pointer(elf, table + 16, &value), -ENOENT);
	assert_string_equal(elf__slot_symbol(elf, table + 16), "undefined_one");
	assert_int_equal(elf__pointer(elf, table + 24, &value), 0);
	assert_int_equal(value, vaddr_of(elf, "a"));
	assert_int_equal(elf__pointer(elf, vaddr_of(elf, "plain"), &value), 0);
	assert_int_equal(value, 0x1122334455667788);
	elf__free(elf);
}

static void check_tables(const struct elf *elf)
{
	uint64_t vaddr;

	assert_int_equal(elf__method(elf, "next", 0x80, &vaddr), 0);
	assert_int_equal(vaddr, vaddr_of(elf, "b"));
	assert_int_equal(elf__method(elf, "next", 0x81, &vaddr), -ENOENT);
	assert_int_equal(elf__method(elf, "twice", 4, &vaddr), -ENOTUNIQ);
	assert_int_equal(elf__method(elf, "same", 4, &vaddr), 0);
	assert_int_equal(elf__method_in(elf, vaddr_of(elf, "methods"), "first", &vaddr), 0);
	assert_int_equal(vaddr, vaddr_of(elf, "a"));
	assert_int_equal(elf__method_in(elf, vaddr_of(elf, "methods"), "third", &vaddr), -ENOENT);
	assert_int_equal(elf__slot(elf, "__next__", 0xe0, &vaddr), 0);
	assert_int_equal(vaddr, vaddr_of(elf, "c"));
	assert_int_equal(elf__slot(elf, "__next__", 0xd8, &vaddr), -ENOENT);
}

/* With addends in .rela.dyn, and in place (RELR) where the linker can. */
static void test_tables(void **state)
{
	struct elf *elf = open_library();

	check_tables(elf);
	elf__free(elf);
	if (!packed[0]) /* a linker without RELR */
		return;
	assert_int_equal(elf__new(packed, &elf), 0);
	check_tables(elf);
	elf__free(elf);
}

/* The compiler adds to its name: invoke_gc_callback.isra.0 */
static int find_gc_callback(const struct elf_symbol *symbol, void *ctx)
{
	if (strncmp(symbol->name, "invoke_gc_callback", 18) || strstr(symbol->name, ".cold"))
		return 0;
	*(struct elf_symbol *)ctx = *symbol;
	return 1;
}

static void check_gc(const struct elf *elf)
{
	struct elf_symbol symbol;
	struct py_gc gc;

	assert_int_equal(py_gc__find(elf, &gc), 0);
	assert_true(elf__is_code(elf, gc.callback));
	if (elf__each_symbol(elf, find_gc_callback, &symbol))
		assert_int_equal(gc.callback, symbol.vaddr);
}

/* One installed interpreter: what the tables say, and what its symbols say where it is not stripped. */
static void check_interpreter(const char *path)
{
	struct elf *elf;
	struct elf_symbol symbol;
	uint64_t next, iternext;

	if (elf__new(path, &elf))
		return;
	int err = elf__method(elf, "next", 0x80, &next); /* METH_FASTCALL */
	if (!err) {
		assert_true(elf__is_code(elf, next));
		if (!elf__symbol(elf, "builtin_next", &symbol))
			assert_int_equal(next, symbol.vaddr);
		/* offsetof(PyTypeObject, tp_iternext), the same since 3.8 */
		assert_int_equal(elf__slot(elf, "__next__", 0xe0, &iternext), 0);
		if (!elf__symbol(elf, "slot_tp_iternext", &symbol))
			assert_int_equal(iternext, symbol.vaddr);
		check_gc(elf);
		print_message("%s: next at %#lx, slot_tp_iternext at %#lx\n", path, (unsigned long)next,
			      (unsigned long)iternext);
	}
	elf__free(elf);
}

static void test_interpreters(void **state)
{
	static const char *const patterns[] = {
		"/usr/bin/python3.[0-9]*",
		"/usr/lib/x86_64-linux-gnu/libpython3.*.so.1.0",
		"/usr/local/lib/libpython3.*.so.1.0",
		"~/.pyenv/versions/3.*/lib/libpython3.*.so.1.0",
	};
	glob_t found = {0};

	for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		glob(patterns[i], GLOB_TILDE | (i ? GLOB_APPEND : 0), NULL, &found);
	for (size_t i = 0; i < found.gl_pathc; i++)
		check_interpreter(found.gl_pathv[i]);
	if (!found.gl_pathc) {
		globfree(&found);
		print_message("skipped: no CPython found\n");
		skip();
	}
	globfree(&found);
}

/* ---- hostile files ---- */

/* Appends `bytes` of zeros to a copy of the library, and returns a descriptor for reading and writing. */
static int copy_library(const char *name, size_t bytes)
{
	char path[sizeof(library)], command[512];
	int fd;

	snprintf(command, sizeof(command), "cp %s %s && head -c %zu /dev/zero >> %s", library, in_dir(name, path),
		 bytes, path);
	assert_int_equal(system(command), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* The file is cut while it is mapped: no SIGBUS, and no answer that counts. */
static void test_cut(void **state)
{
	int fd = copy_library("cut.so", 1 << 20), own = dup(fd);
	struct elf_symbol symbol;
	struct elf *elf;

	assert_int_equal(elf__new_fd(own, &elf), 0);
	assert_int_equal(elf__error(elf), 0);
	assert_int_equal(elf__symbol(elf, "exported", &symbol), 0);
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(elf__symbol(elf, "exported", &symbol), -ENOENT);
	elf__is_part(elf, 0);
	elf__mentions(elf, "exported");
	assert_int_equal(elf__error(elf), -ESTALE);
	elf__free(elf);
	close(fd);
}

/* It is written to, and its strings have no end any more. */
static void test_rewritten(void **state)
{
	int fd = copy_library("rewritten.so", 1 << 20);
	struct elf_symbol symbol;
	struct stat st;
	struct elf *elf;
	char *map;

	assert_int_equal(fstat(fd, &st), 0);
	st.st_size &= -4096; /* no rest of a page behind it */
	assert_int_equal(ftruncate(fd, st.st_size), 0);
	map = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(elf__new_fd(dup(fd), &elf), 0);
	memset(map + 4096, 'x', st.st_size - 4096);
	munmap(map, st.st_size);
	assert_int_equal(elf__symbol(elf, "nowhere", &symbol), -ENOENT);
	elf__is_part(elf, 0);
	assert_int_equal(elf__error(elf), -ESTALE);
	elf__free(elf);
	close(fd);
}

/* Holes cost nothing to make, and memory and time to read. */
static void test_sparse(void **state)
{
	static const off_t sizes[] = {65LL << 20, 4LL << 30, 1LL << 40};
	struct elf *elf;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int fd = copy_library("sparse.so", 0);

		assert_int_equal(ftruncate(fd, sizes[i] + (1 << 20)), 0);
		assert_int_equal(elf__new_fd(fd, &elf), -EFBIG);
	}
}

/* A file of `cnt` sections, each of them the same table of relocations, which lies behind the headers. */
static int alias_relocations(size_t cnt, size_t table_bytes)
{
	Elf64_Shdr section = {.sh_type = SHT_RELA,
			      .sh_flags = SHF_ALLOC,
			      .sh_offset = sizeof(Elf64_Ehdr) + cnt * sizeof(section),
			      .sh_size = table_bytes};
	Elf64_Ehdr header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
			     .e_type = ET_DYN,
			     .e_machine = EM_X86_64,
			     .e_version = EV_CURRENT,
			     .e_shoff = sizeof(header),
			     .e_shentsize = sizeof(section),
			     .e_ehsize = sizeof(header),
			     .e_shnum = cnt};
	char path[sizeof(library)], *zeros = calloc(1, table_bytes);
	FILE *f = fopen(in_dir("alias.so", path), "w+");

	assert_true(f && zeros);
	fwrite(&header, sizeof(header), 1, f);
	for (size_t i = 0; i < cnt; i++)
		fwrite(&section, sizeof(section), 1, f);
	fwrite(zeros, table_bytes, 1, f);
	free(zeros);
	assert_int_equal(fclose(f), 0);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static void test_aliases(void **state)
{
	struct rusage before, after;
	struct elf *elf;
	uint64_t value;

	assert_int_equal(elf__new_fd(alias_relocations(65000, 24), &elf), -EFBIG);
	getrusage(RUSAGE_SELF, &before);
	assert_int_equal(elf__new_fd(alias_relocations(4000, 1 << 20), &elf), 0);
	assert_int_equal(elf__pointer(elf, 0x1000, &value), -ENOENT);
	getrusage(RUSAGE_SELF, &after);
	assert_int_equal(elf__error(elf), -EFBIG);
#ifndef __SANITIZE_ADDRESS__ /* it keeps what was freed */
	assert_true(after.ru_maxrss - before.ru_maxrss < 100 << 10);
#endif
	elf__free(elf);
}

/* Questions that each take a walk over all symbols come to an end. */
static void test_work(void **state)
{
	struct elf *elf = open_library();
	struct elf_symbol symbol;
	long walks = 0;

	while (!elf__symbol(elf, "exported", &symbol) && walks < 100000000)
		walks++;
	assert_true(walks > 10000 && walks < 100000000);
	assert_int_equal(elf__error(elf), -EFBIG);
	elf__free(elf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused), cmocka_unit_test(test_basics),       cmocka_unit_test(test_pointers),
		cmocka_unit_test(test_tables),  cmocka_unit_test(test_interpreters), cmocka_unit_test(test_cut),
		cmocka_unit_test(test_sparse),  cmocka_unit_test(test_rewritten),    cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_work),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
