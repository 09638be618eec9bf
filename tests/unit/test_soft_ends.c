/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ends of which a path may pass none or several. Each function of a small library has a label at each of them, which the
 * dynamic linker finds, and none elsewhere. Then the same file with bytes flipped must not crash us.
 */
#include <dlfcn.h>
#include <string.h>

#include "tests/unit/library.h"
#include "user/elf/functions.h"
#include "user/x86/sites.h"

#define FLIP_ROUNDS 100
#define LABELS_MAX  (SOFT_ENDS_MAX + 1)

/*
 * FUNCTION and END wrap a function in symbol size and unwind information, as compilers do. AT(x, n): here is the nth end
 * of x. MANY: 20 calls, each with a branch behind it.
 */
static const char fixture_asm[] =
	"#define FUNCTION(x) .globl x; .type x,@function; .p2align 4; x: .cfi_startproc\n"
	"#define END(x) .cfi_endproc; .size x, .-x\n"
	"#define AT(x, n) .globl x##_end##n; x##_end##n:\n"
	".text\n"
	"FUNCTION(work)\n ret\nEND(work)\n"
	/* what was returned is looked at; the call for an error comes before another branch, which rejoins */
	"FUNCTION(looks)\n push %rbx\n call work\n test %eax,%eax\n AT(looks, 0) je 1f\n call work\n1: pop %rbx\n "
	"ret\nEND(looks)\n"
	"FUNCTION(endbr)\n endbr64\n push %rbp\n push %rbx\n sub $8,%rsp\n call work\n mov %eax,%ebx\n test %eax,%eax\n"
	" AT(endbr, 0) jne 2f\n1: add $8,%rsp\n mov %ebx,%eax\n pop %rbx\n pop %rbp\n ret\n"
	"2: mov %eax,%edi\n call work\n AT(endbr, 1) jmp 1b\nEND(endbr)\n"
	/* one `ret` for all; only the jumps behind the calls tell that it comes */
	"FUNCTION(shares)\n push %rbx\n test %rdi,%rdi\n je 1f\n call work\n AT(shares, 0) jmp 2f\n"
	"1: call work\n nop\n AT(shares, 1) jmp 2f\n nop\n2: pop %rbx\n ret\nEND(shares)\n"
	/* where ways from two calls meet, none comes straight before the branch */
	"FUNCTION(meet)\n push %rbx\n test %rdi,%rdi\n je 1f\n call work\n1: test %eax,%eax\n je 2f\n call work\n"
	"2: pop %rbx\n ret\nEND(meet)\n"
	/* six instructions behind the call at most */
	"FUNCTION(near)\n push %rbx\n call work\n nop\n nop\n nop\n nop\n test %eax,%eax\n AT(near, 0) je 1f\n call "
	"work\n1: pop %rbx\n ret\nEND(near)\n"
	"FUNCTION(far)\n push %rbx\n call work\n nop\n nop\n nop\n nop\n nop\n test %eax,%eax\n je 1f\n call work\n1: "
	"pop "
	"%rbx\n ret\nEND(far)\n"
	/* no way to return without the second call; the second one's branch is the end */
	"FUNCTION(goes_on)\n push %rbx\n call work\n test %eax,%eax\n je 1f\n nop\n1: call work\n test %eax,%eax\n "
	"AT(goes_on, 0) je 2f\n nop\n2: pop %rbx\n ret\nEND(goes_on)\n"
	/* work that is called by a pointer lies behind the first, and comes before the second */
	"FUNCTION(pointer)\n push %rbx\n call work\n test %eax,%eax\n je 1f\n call *target(%rip)\n test %eax,%eax\n "
	"AT(pointer, 0) je 1f\n nop\n1: pop %rbx\n ret\nEND(pointer)\n"
	"FUNCTION(loops)\n push %rbx\n1: call work\n dec %eax\n AT(loops, 0) jne 1b\n pop %rbx\n ret\nEND(loops)\n"
	/* the kernel takes no probe at a branch with a hint; conditional moves are no branches */
	"FUNCTION(hinted)\n push %rbx\n call work\n test %eax,%eax\n .byte 0x2e\n je 1f\n nop\n1: pop %rbx\n "
	"ret\nEND(hinted)\n"
	"FUNCTION(moves)\n push %rbx\n call work\n test %eax,%eax\n cmove %edi,%eax\n pop %rbx\n ret\nEND(moves)\n"
	"FUNCTION(no_call)\n test %rdi,%rdi\n je 1f\n nop\n1: ret\nEND(no_call)\n"
	/* a known table of jumps: those behind it are ends, what leads to it is none */
	"FUNCTION(table)\n push %rbx\n call work\n cmp $3,%rdi\n ja 9f\n lea jumps(%rip),%rdx\n movslq "
	"(%rdx,%rdi,4),%rax\n"
	" add %rdx,%rax\n jmp *%rax\n1: call work\n AT(table, 0) jmp 8f\n2: call work\n AT(table, 1) jmp 8f\n"
	"3: nop\n4: nop\n8: pop %rbx\n ret\n9: call work\n test %eax,%eax\n AT(table, 2) je 8b\n ud2\nEND(table)\n"
	".section .rodata\n.p2align 2\njumps: .long 1b-jumps, 2b-jumps, 3b-jumps, 4b-jumps\n.text\n"
	"FUNCTION(unknown_table)\n push %rbx\n call work\n test %eax,%eax\n je 1f\n jmp *%rdi\n1: pop %rbx\n "
	"ret\nEND(unknown_table)\n"
	/* a function that has none: those of what it calls, or jumps to, last of all */
	"FUNCTION(wraps)\n sub $8,%rsp\n call work\n call looks\n add $8,%rsp\n ret\nEND(wraps)\n"
	"FUNCTION(jumps_to)\n mov $1,%edi\n jmp looks\nEND(jumps_to)\n"
	"FUNCTION(wraps_twice)\n sub $8,%rsp\n call jumps_to\n add $8,%rsp\n ret\nEND(wraps_twice)\n"
	"FUNCTION(wraps_thrice)\n jmp wraps_twice\nEND(wraps_thrice)\n"
	"FUNCTION(not_last)\n sub $8,%rsp\n call looks\n call work\n add $8,%rsp\n ret\nEND(not_last)\n"
	"FUNCTION(itself)\n sub $8,%rsp\n call itself\n add $8,%rsp\n ret\nEND(itself)\n"
	/* returns, or jumps to where the work is done */
	"FUNCTION(either)\n test %rdi,%rdi\n jne 1f\n ret\n1: mov $1,%esi\n jmp shares\nEND(either)\n"
	"FUNCTION(many)\n push %rbx\n"
	" .set n,0\n .rept 20\n call work\n test %eax,%eax\n je many_out\n .endr\n nop\nmany_out: pop %rbx\n "
	"ret\nEND(many)\n"
	".data\n.p2align 3\ntarget: .quad work\n"
	".section .note.GNU-stack,\"\",@progbits\n";

/* Functions, and where their ends lie. */
static const struct {
	const char *name, *in;
} cases[] = {
	{"looks", "looks"},     {"endbr", "endbr"},        {"shares", "shares"},
	{"meet", "meet"},       {"near", "near"},          {"far", "far"},
	{"goes_on", "goes_on"}, {"pointer", "pointer"},    {"loops", "loops"},
	{"hinted", "hinted"},   {"moves", "moves"},        {"no_call", "no_call"},
	{"table", "table"},     {"unknown_table", "work"}, {"wraps", "looks"},
	{"jumps_to", "looks"},  {"wraps_twice", "looks"},  {"wraps_thrice", "work"},
	{"not_last", "work"},   {"itself", "work"},        {"either", "shares"},
};

static int build(void **state)
{
	if (!mkdtemp(dir) || !write_text("a.S", fixture_asm))
		return -1;
	compile("fixture.so", "-Wl,-z,now -Wl,-Bsymbolic a.S", library);
	return 0;
}

static uint32_t find(const struct elf *elf, const char *name, bool sized, struct site ends[SOFT_ENDS_MAX])
{
	struct elf_symbol symbol;

	assert_int_equal(elf__symbol(elf, name, &symbol), 0);
	return soft_ends__find(elf, symbol.vaddr, sized ? symbol.size : 0, ends);
}

/* The offsets of a function's labels, ascending. */
static uint32_t labels(void *handle, const struct elf *elf, const char *name, uint64_t offset[LABELS_MAX])
{
	struct elf_symbol symbol;
	uint64_t start;
	uint32_t cnt = 0;
	char label[64];
	void *at;

	assert_int_equal(elf__symbol(elf, name, &symbol), 0);
	assert_int_equal(elf__offset(elf, symbol.vaddr, &start), 0);
	while (snprintf(label, sizeof(label), "%s_end%u", name, cnt), at = dlsym(handle, label))
		offset[cnt++] = start + ((char *)at - (char *)dlsym(handle, name));
	return cnt;
}

static void test_expected(void **state)
{
	struct elf *elf = open_library();
	void *handle = dlopen(library, RTLD_NOW);
	uint32_t found = 0;

	assert_non_null(handle);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases) * 2; i++) {
		const char *name = cases[i / 2].name;
		uint64_t offset[LABELS_MAX];
		struct site ends[SOFT_ENDS_MAX];
		uint32_t expected = labels(handle, elf, cases[i / 2].in, offset);
		uint32_t cnt = find(elf, name, i % 2, ends);

		if (cnt != expected)
			fail_msg("%s: %u ends, there are %u", name, cnt, expected);
		for (uint32_t k = 0; k < cnt; k++) {
			if (ends[k].offset != offset[k])
				fail_msg("%s: end %u is %ld bytes off", name, k, (long)(ends[k].offset - offset[k]));
			assert_true(ends[k].emulated);
			assert_int_equal(ends[k].depth, -1);
		}
		found += cnt;
	}
	assert_true(found > 20);
	dlclose(handle);
	elf__free(elf);
}

/* No more than there is room for: the first ones. */
static void test_many(void **state)
{
	struct elf *elf = open_library();
	struct site ends[SOFT_ENDS_MAX + 1] = {};

	assert_int_equal(find(elf, "many", true, ends), SOFT_ENDS_MAX);
	for (uint32_t i = 1; i < SOFT_ENDS_MAX; i++)
		assert_true(ends[i].offset > ends[i - 1].offset);
	assert_int_equal(ends[SOFT_ENDS_MAX].offset, 0);
	elf__free(elf);
}

static void test_no_code(void **state)
{
	struct elf *elf = open_library();
	struct site ends[SOFT_ENDS_MAX];
	struct sites none = {}, there;

	for (uint64_t vaddr = 0; vaddr < 3; vaddr++) {
		assert_int_equal(soft_ends__find(elf, vaddr - 1, 16, ends), 0);
		assert_int_equal(soft_ends__find(elf, vaddr - 1, UINT64_MAX, ends), 0);
		assert_int_equal(sites__away(elf, vaddr - 1, 16, &none, &there), SITES_HERE);
	}
	elf__free(elf);
}

static void test_away(void **state)
{
	static const struct {
		const char *name;
		enum sites_away away;
	} functions[] = {
		{"jumps_to", SITES_AWAY}, {"either", SITES_AWAY}, {"looks", SITES_HERE},
		{"shares", SITES_HERE},   {"wraps", SITES_HERE},  {"table", SITES_HERE},
	};
	struct elf *elf = open_library();

	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		struct elf_symbol symbol;
		struct sites sites, there;

		assert_int_equal(elf__symbol(elf, functions[i].name, &symbol), 0);
		if (sites__find(elf, symbol.vaddr, symbol.size, SITES_STRICT, &sites))
			fail_msg("%s has no sites", functions[i].name);
		if (sites__away(elf, symbol.vaddr, symbol.size, &sites, &there) != functions[i].away)
			fail_msg("%s", functions[i].name);
		sites.exit_cnt = 0;
		assert_int_equal(sites__away(elf, symbol.vaddr, symbol.size, &sites, &there), SITES_HERE);
	}
	elf__free(elf);
}

static int use_symbol(const struct elf_symbol *symbol, void *ctx)
{
	const struct elf *elf = ctx;
	struct site ends[SOFT_ENDS_MAX];
	struct sites sites, there;

	assert_true(soft_ends__find(elf, symbol->vaddr, symbol->size, ends) <= SOFT_ENDS_MAX);
	assert_true(soft_ends__find(elf, symbol->vaddr, 0, ends) <= SOFT_ENDS_MAX);
	if (!sites__find(elf, symbol->vaddr, symbol->size, SITES_STRICT, &sites))
		sites__away(elf, symbol->vaddr, symbol->size, &sites, &there);
	return 0;
}

static void use(const char *path)
{
	struct elf *elf;

	if (elf__new(path, &elf))
		return;
	elf__each_symbol(elf, use_symbol, elf);
	elf__free(elf);
}

static void test_flipped(void **state)
{
	elf__free(open_library());
	flip_library(FLIP_ROUNDS, use);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expected), cmocka_unit_test(test_many),    cmocka_unit_test(test_no_code),
		cmocka_unit_test(test_away),     cmocka_unit_test(test_flipped),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
