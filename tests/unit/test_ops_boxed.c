/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of Dispatcher::callBoxed in a stripped library that a C compiler builds: found, and nothing like them taken
 * for one.
 */
#include "tests/unit/library.h"
#include "user/runtime/torch/ops_private.h"

#define GET  "_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE"
#define TELL "_ZN3c1010Dispatcher17runRecordFunctionERN2at14RecordFunctionENS_8ArrayRefIKNS_6IValueEEE"

static const char sources[] =
	"struct def { volatile char names[400]; volatile unsigned long arguments; };\n"
	"struct handle { struct def *def; };\n"
	"int " GET "(int scope); void " TELL "(void *, void *); void tell(void *); void *kernel(unsigned long);\n"
	"#define LOCAL __attribute__((noipa)) static void\n"
	"#define CALL(h, s, arguments) { unsigned long keys = arguments; if (" GET "(0)) { tell(h); " TELL
	"(h, s); } \\\n"
	"	((void (*)(void *, void *))kernel(keys))(h, s); " GET "(1); }\n"
	"static struct handle own;\n"
	"LOCAL boxed(struct handle *h, void *s) CALL(h, s, h->def->arguments)\n"
	"LOCAL again(struct handle *h, void *s) CALL(h, s, h->def->arguments + 1)\n"
	"LOCAL operator(void *a, void *b) CALL(&own, a, own.def->arguments)\n"               /* its own handle */
	"LOCAL whole(void *self, struct handle *h, void *s) CALL(h, s, h->def->arguments)\n" /* not without `this` */
	"LOCAL names(struct handle *h, void *s) CALL(h, s, h->def->names[8])\n" /* a byte, of something else */
	"LOCAL later(struct handle *h, void *s) { tell(s); CALL(h, s, h->def->arguments) }\n" /* does more before */
	"LOCAL silent(struct handle *h, void *s) { kernel(h->def->arguments); if (" GET "(0)) tell(h); tell(s); }\n"
	"LOCAL untold(struct handle *h, void *s) { kernel(h->def->arguments); " TELL "(h, s); tell(s); }\n"
	"void *const table[] = {boxed, again, operator, whole, names, later, silent, untold};\n"
	"#ifdef OWN\n"
	"int " GET "(int scope) { return scope + 1; } void " TELL "(void *a, void *b) { tell(a); tell(b); }\n"
	"#endif\n";

static char with_own[sizeof(library)];

static int build(void **state)
{
	(void)state;
	if (!mkdtemp(dir) || !write_text("a.c", sources))
		return -1;
	compile("imports.so", "-O2 -s a.c", library);
	compile("own.so", "-O2 -s -DOWN a.c", with_own);
	return 0;
}

struct found {
	uint64_t vaddr[8];
	size_t cnt;
};

static int add(uint64_t vaddr, uint64_t size, void *ctx)
{
	struct found *found = ctx;

	assert_true(found->cnt < 8);
	found->vaddr[found->cnt++] = vaddr;
	return 0;
}

static int refuse(uint64_t vaddr, uint64_t size, void *ctx)
{
	return -7;
}

static void check(struct elf *elf)
{
	struct found found = {0};
	struct elf_symbol table;
	uint64_t boxed, again;

	assert_int_equal(elf__symbol(elf, "table", &table), 0);
	assert_int_equal(elf__pointer(elf, table.vaddr, &boxed), 0);
	assert_int_equal(elf__pointer(elf, table.vaddr + 8, &again), 0);
	assert_int_equal(ops_boxed__find(elf, add, &found), 0);
	assert_int_equal(found.cnt, 2);
	assert_true(found.vaddr[0] == boxed ? found.vaddr[1] == again
					    : found.vaddr[0] == again && found.vaddr[1] == boxed);
	assert_int_equal(ops_boxed__find(elf, refuse, NULL), -7);
	elf__free(elf);
}

static void imported(void **state)
{
	check(open_library());
}

static void of_this_file(void **state)
{
	struct elf *elf = open_library();

	elf__free(elf);
	assert_int_equal(elf__new(with_own, &elf), 0);
	check(elf);
}

static void nothing_of_torch(void **state)
{
	struct found found = {0};
	struct elf *elf;

	assert_int_equal(elf__new("/proc/self/exe", &elf), 0);
	assert_int_equal(ops_boxed__find(elf, add, &found), 0);
	assert_int_equal(found.cnt, 0);
	elf__free(elf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(imported),
		cmocka_unit_test(of_this_file),
		cmocka_unit_test(nothing_of_torch),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
