/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * symbols__*: this process's code, compared with what the dynamic loader, nm and the compiler say; libraries that are
 * stripped, deleted or garbage; processes that end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/children.h"
#include "tests/unit/library.h"
#include "user/proc/symbols.c"

static const char fixture[] =
	"static __attribute__((noinline)) int hidden(int x) { return x * 3 + 1; }\n"
	"int seen(int x) { return hidden(x) + hidden(x + 1); }\n"
	"int __seen(int x) __attribute__((alias(\"seen\")));\n"
	"int templated(int x) __asm__(\"_ZN2at6native12_GLOBAL__N_14copyIfEEvRKNS_6TensorE\");\n"
	"int templated(int x) { return x * 7; }\n"
	"int evil(int x) __asm__(\"EVIL_NAME\"); int evil(int x) { return x * 9; }\n"
	"int far(int x) { return x * 11; }\n"
	"void *hidden_address(void) { return (void *)hidden; }\n"
	/* inner lies in the midst of outer; nothing says how large sizeless is */
	"__asm__(\".globl outer\\n.type outer,@function\\nouter: .skip 16,0x90\\n.type inner,@function\\n\"\n"
	"        \".globl inner\\ninner: .skip 8,0x90\\n.size inner,8\\n.skip 16,0x90\\n.size outer,40\\n\"\n"
	"        \".globl sizeless\\n.type sizeless,@function\\nsizeless: .skip 8,0x90\");\n";

static char whole[sizeof(library)], stripped[sizeof(library)];

static int build(void **state)
{
	if (!mkdtemp(dir) || !write_text("f.c", fixture))
		return -1;
	compile("whole.so", "-O1 f.c", whole);
	compile("stripped.so", "-O1 -s f.c", stripped);
	return 0;
}

static void *load(const char *path)
{
	void *handle = path[0] ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!handle) {
		print_message("skipped: no C compiler (cc) that builds the fixture\n");
		skip();
	}
	return handle;
}

static const char *text_at(struct symbols *symbols, const void *address)
{
	const char *text = symbols__user(symbols, getpid(), (uintptr_t)address);

	return text ? text : "(null)";
}

static const char *text_of(struct symbols *symbols, void *handle, const char *name, size_t more)
{
	const char *address = dlsym(handle, name);

	assert_non_null(address);
	return text_at(symbols, address + more);
}

/* ---- code of this process ---- */

static __attribute__((noinline)) int a_function_of_ours(int x)
{
	return x + 1;
}

static void test_own(void **state)
{
	struct symbols *symbols = symbols__new();
	const char *text = text_at(symbols, (void *)a_function_of_ours);

	assert_string_equal(text, "a_function_of_ours (test_symbols)");
	assert_ptr_equal(text_at(symbols, (void *)a_function_of_ours), text);
	assert_string_equal(text_at(symbols, (char *)getauxval(AT_SYSINFO_EHDR) + 0x400), "[vdso]");
	assert_string_equal(text_at(symbols, &symbols), "(null)");
	assert_string_equal(text_at(symbols, NULL), "(null)");
	assert_string_equal(text_at(symbols, (void *)UINTPTR_MAX), "(null)");
	assert_null(symbols__user(symbols, 0x7ffffff0, 4096));
	assert_null(symbols__user(symbols, -1, 4096));
	symbols__free(symbols);
	symbols__free(NULL);
}

struct counts {
	struct symbols *symbols;
	const struct elf *elf;
	const char *base, *name;
	uint64_t vaddr;
	size_t same;
};

static int is_named(const struct elf_symbol *symbol, void *ctx)
{
	const struct counts *counts = ctx;

	return symbol->vaddr == counts->vaddr && !strcmp(symbol->name, counts->name);
}

/* At the last byte of a function: a name of the function that the loader finds there. */
static int compare_with_loader(const struct elf_symbol *symbol, void *ctx)
{
	struct counts *counts = ctx;
	const char *last = counts->base + symbol->vaddr + symbol->size - 1;
	char name[128], *space;
	Dl_info info;

	if (!symbol->function || !symbol->size || !dladdr(last, &info) || !info.dli_sname)
		return 0;
	snprintf(name, sizeof(name), "%s", text_at(counts->symbols, last));
	space = strstr(name, " (libc.so.6)");
	if (!space)
		fail_msg("%s: %s", symbol->name, name);
	*space = 0;
	counts->name = name;
	counts->vaddr = (uint64_t)((const char *)info.dli_saddr - counts->base);
	if (!elf__each_symbol(counts->elf, is_named, counts))
		fail_msg("%s: the loader has %s", name, info.dli_sname);
	counts->same++;
	return 0;
}

static void test_libc(void **state)
{
	struct counts counts = {.symbols = symbols__new()};
	struct elf *elf;
	Dl_info info;

	assert_true(dladdr(dlsym(RTLD_DEFAULT, "getpid"), &info));
	if (!strstr(info.dli_fname, "libc.so.6"))
		skip();
	counts.base = info.dli_fbase;
	assert_int_equal(elf__new(info.dli_fname, &elf), 0);
	counts.elf = elf;
	elf__each_symbol(elf, compare_with_loader, &counts);
	elf__free(elf);
	print_message("%zu functions compared\n", counts.same);
	assert_true(counts.same > 1000);
	symbols__free(counts.symbols);
}

/* Every function that nm lists in this program has at its last byte a name that nm has for that address. */
static void test_nm(void **state)
{
	struct symbols *symbols = symbols__new();
	char line[512], name[256], type, want[300];
	unsigned long address, size;
	size_t cnt = 0, same = 0;
	Dl_info info;
	FILE *nm = popen("nm -S --defined-only /proc/$PPID/exe 2>/dev/null", "r");

	assert_true(dladdr((void *)test_nm, &info));
	while (nm && fgets(line, sizeof(line), nm)) {
		if (sscanf(line, "%lx %lx %c %255s", &address, &size, &type, name) != 4 || !strchr("tTW", type) ||
		    !size || !strncmp(name, "_Z", 2))
			continue;
		snprintf(want, sizeof(want), "%.199s (test_symbols)", name);
		const char *text = text_at(symbols, (char *)info.dli_fbase + address + size - 1);

		cnt++;
		same += !strcmp(text, want);
		if (!strstr(text, " (test_symbols)"))
			fail_msg("%s: %s", name, text);
	}
	if (nm)
		pclose(nm);
	symbols__free(symbols);
	if (!cnt) {
		print_message("skipped: no nm, or a stripped test\n");
		skip();
	}
	print_message("%zu of %zu names are nm's\n", same, cnt);
	assert_true(same > cnt * 9 / 10); /* the others have several names */
}

/* ---- libraries ---- */

#define LOOKS 600 /* for a library that has just come, 100 ms apart */

static void test_library(void **state)
{
	struct symbols *symbols = symbols__new();
	void *handle, *(*hidden)(void);

	/* Known before the library comes. */
	text_at(symbols, (void *)test_library);
	handle = load(whole);
	hidden = dlsym(handle, "hidden_address");
	assert_string_equal(text_of(symbols, handle, "seen", 0), "(null)");
	/* Not sooner than after a second; later where the reading of the maps took long. */
	for (int i = 0; i < LOOKS && !strcmp(text_of(symbols, handle, "seen", 0), "(null)"); i++)
		usleep(100000);
	assert_string_equal(text_of(symbols, handle, "seen", 0), "seen (whole.so)");
	assert_string_equal(text_of(symbols, handle, "__seen", 1), "seen (whole.so)");
	assert_string_equal(text_at(symbols, hidden()), "hidden (whole.so)");
	assert_string_equal(text_of(symbols, handle, "_ZN2at6native12_GLOBAL__N_14copyIfEEvRKNS_6TensorE", 1),
			    "at::native::(anonymous namespace)::copy<...> (whole.so)");
	assert_string_equal(text_of(symbols, handle, "outer", 15), "outer (whole.so)");
	assert_string_equal(text_of(symbols, handle, "outer", 16), "inner (whole.so)");
	assert_string_equal(text_of(symbols, handle, "outer", 39), "outer (whole.so)");
	assert_string_equal(text_of(symbols, handle, "sizeless", 1), "whole.so");
	dlclose(handle);

	handle = load(stripped);
	symbols__forget(symbols, getpid());
	hidden = dlsym(handle, "hidden_address");
	assert_string_equal(text_of(symbols, handle, "seen", 0), "seen (stripped.so)");
	assert_string_equal(text_at(symbols, hidden()), "stripped.so");
	dlclose(handle);
	symbols__free(symbols);
}

#define CLUSTER 40 /* functions of 16 bytes */

/*
 * A library of 4 MB, in which the second cluster of functions is 4 MB less 2 KB behind the first: sorted by less than the
 * whole of their addresses, they are mixed.
 */
static void test_large_library(void **state)
{
	struct symbols *symbols = symbols__new();
	char text[1 << 14], large[sizeof(library)], name[16], want[32];
	void *handle;
	int at = 0;

	for (int i = 0; i < 2 * CLUSTER; i++) {
		if (i == CLUSTER)
			at += sprintf(text + at, ".skip 0x400000 - 0x800 - %d,0x90\n", 16 * CLUSTER);
		at += sprintf(text + at, ".globl f%d\n.type f%d,@function\nf%d: .skip 16,0x90\n.size f%d,16\n", i, i, i,
			      i);
	}
	sprintf(text + at, ".section .note.GNU-stack,\"\"\n");
	assert_true(write_text("large.s", text));
	compile("large.so", "large.s", large);
	handle = load(large);
	for (int i = 0; i < 2 * CLUSTER; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		snprintf(want, sizeof(want), "f%d (large.so)", i);
		assert_string_equal(text_of(symbols, handle, name, 8), want);
	}
	dlclose(handle);
	symbols__free(symbols);
}

/* A copy of the fixture whose names are changed in place; the path goes to `copy`. */
static void copy_with(const char *from, const char *name, const char *old, const char *new, char copy[sizeof(library)])
{
	static char data[1 << 20];
	FILE *f = fopen(from, "r");
	size_t size;

	assert_non_null(f);
	size = fread(data, 1, sizeof(data), f);
	fclose(f);
	for (char *at = data; (at = memmem(at, size - (size_t)(at - data), old, strlen(old))); at++)
		memcpy(at, new, strlen(old));
	f = fopen(in_dir(name, copy), "w");
	assert_true(f && fwrite(data, 1, size, f) == size && !fclose(f));
}

static void test_odd_files(void **state)
{
	struct symbols *symbols = symbols__new();
	char path[sizeof(library)];
	void *handle = load(whole);
	/* The loader finds no name that was changed: its hash is that of the old one. */
	ptrdiff_t evil = (char *)dlsym(handle, "EVIL_NAME") - (char *)dlsym(handle, "far");

	dlclose(handle);
	copy_with(whole, "e\nv.so", "EVIL_NAME", "E\033[1m\n\377\177;", path);
	handle = load(path);
	assert_string_equal(text_of(symbols, handle, "far", (size_t)evil), "E?[1m?\357\277\275?; (e?v.so)");
	symbols__forget(symbols, getpid());
	assert_int_equal(unlink(path), 0);
	/* By map_files, for which root is needed. */
	assert_string_equal(text_of(symbols, handle, "far", 0), geteuid() ? "e?v.so" : "far (e?v.so)");
	dlclose(handle);
	symbols__free(symbols);
}

static void test_jit(void **state)
{
	int prot = PROT_READ | PROT_EXEC;
	struct symbols *symbols = symbols__new();
	char *code = mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[sizeof(library)];
	int fd = memfd_create("code", 0), other = open(in_dir("f.c", path), O_RDONLY);

	assert_true(fd >= 0 && other >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_string_equal(text_at(symbols, code), "[jit]");
	char *of_memfd = mmap(NULL, 4096, prot, MAP_SHARED, fd, 0),
	     *of_text = mmap(NULL, 64, prot, MAP_PRIVATE, other, 0);

	assert_true(of_memfd != MAP_FAILED && of_text != MAP_FAILED);
	symbols__forget(symbols, getpid());
	assert_string_equal(text_at(symbols, of_text), "[jit]");
	if (!geteuid())
		assert_string_equal(text_at(symbols, of_memfd), "[jit]");
	munmap(code, 4096);
	munmap(of_memfd, 4096);
	munmap(of_text, 64);
	close(fd);
	close(other);
	symbols__free(symbols);
}

/* Bytes of headers, symbols and names that are anything. Nothing is asked but to live, under sanitizers. */
static void test_garbage(void **state)
{
	static char data[1 << 20];
	char path[sizeof(library)], name[64];
	struct function_table *table;
	FILE *f = fopen(whole, "r");
	size_t size, loaded = 0;

	if (!f)
		skip();
	size = fread(data, 1, sizeof(data), f);
	fclose(f);
	srand(2);
	in_dir("garbage.so", path);
	for (int round = 0; round < 3000; round++) {
		size_t at = (size_t)rand() % (round % 5 ? size : 64), len = (size_t)rand() % 8 + 1;
		char kept[8];

		if (at + len > size)
			continue;
		memcpy(kept, data + at, len);
		for (size_t i = 0; i < len; i++)
			data[at + i] = (char)(rand() % 3 ? rand() : 0xff);
		f = fopen(path, "w");
		assert_true(f && fwrite(data, 1, round % 7 ? size : (size_t)rand() % size, f) && !fclose(f));
		memcpy(data + at, kept, len);
		if (function_table__load(open(path, O_RDONLY), 1000, &table))
			continue;
		loaded++;
		for (uint64_t offset = 0; offset < size; offset += 64) {
			int64_t function = function_table__find(table, offset);

			assert_true(function < (int64_t)table->cnt);
			if (function >= 0)
				assert_int_equal(function_table__name(table, (size_t)function, name, sizeof(name)), 0);
		}
		function_table__free(table);
	}
	print_message("%zu loaded\n", loaded);
	assert_int_equal(function_table__load(open(whole, O_RDONLY), 3, &table), -E2BIG);
	assert_int_equal(function_table__load(open(dir, O_RDONLY), 1000, &table), -ENOEXEC);
	assert_int_equal(function_table__load(open("/dev/null", O_RDONLY), 1000, &table), -ENOEXEC);
	assert_int_equal(function_table__load(-1, 1000, &table), -EBADF);
}

/* ---- processes ---- */

static bool nothing(void *arg)
{
	return true;
}

/* Its last samples are looked up when it is gone. */
static void test_ended(void **state)
{
	struct symbols *symbols = symbols__new();
	char text[SYMBOL_TEXT_MAX];
	bool done;
	pid_t pid = start_child(nothing, NULL, &done);

	snprintf(text, sizeof(text), "%s", symbols__user(symbols, pid, (uintptr_t)a_function_of_ours));
	assert_string_equal(text, "a_function_of_ours (test_symbols)");
	end_child(pid);
	assert_string_equal(symbols__user(symbols, pid, (uintptr_t)a_function_of_ours), text);
	assert_non_null(symbols__user(symbols, pid, (uintptr_t)test_own));
	symbols__forget(symbols, pid);
	symbols__forget(symbols, pid);
	assert_null(symbols__user(symbols, pid, (uintptr_t)a_function_of_ours));
	/* More processes than are kept. */
	for (pid_t other = 0x40000000; other < 0x40000000 + 2000; other++)
		assert_null(symbols__user(symbols, other, 4096));
	assert_string_equal(text_at(symbols, (void *)a_function_of_ours), text);
	symbols__free(symbols);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own),     cmocka_unit_test(test_libc),      cmocka_unit_test(test_nm),
		cmocka_unit_test(test_library), cmocka_unit_test(test_odd_files), cmocka_unit_test(test_jit),
		cmocka_unit_test(test_garbage), cmocka_unit_test(test_ended),     cmocka_unit_test(test_large_library),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
