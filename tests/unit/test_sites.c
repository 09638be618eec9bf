/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probe sites, checked by execution: functions of a small library are single-stepped, and each call must pass its entry
 * site once, with its arguments, and exactly one exit site, once, with the return address where `depth` says. Then the
 * same files with bytes flipped must not crash us.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/probes.h"
#include "tests/unit/library.h"
#include "user/elf/functions.h"
#include "user/x86/sites.h"

#define FLIP_ROUNDS 400
#define STEPS_MAX   200000

/* FUNCTION and END wrap a function in symbol size and unwind information, as compilers do. */
static const char fixture_asm[] =
	"#define FUNCTION(x) .globl x; .type x,@function; .p2align 4; x: .cfi_startproc\n"
	"#define END(x) .cfi_endproc; .size x, .-x\n"
	".text\n"
	"FUNCTION(work)\n ret\nEND(work)\n"
	/* one jcc behind the work, as a stack protector leaves it */
	"FUNCTION(single)\n push %rbx\n call work\n test %eax,%eax\n je 1f\n 1: mov $1,%eax\n pop %rbx\n "
	"ret\nEND(single)\n"
	"FUNCTION(returns)\n push %rbx\n sub $16,%rsp\n mov %rdi,%rbx\n call work\n cmp $1,%rbx\n je 1f\n cmp "
	"$2,%rbx\n je 2f\n"
	" mov $3,%eax\n add $16,%rsp\n pop %rbx\n ret\n1: mov $4,%eax\n add $16,%rsp\n pop %rbx\n ret\n"
	"2: call work\n add $16,%rsp\n pop %rbx\n ret\nEND(returns)\n"
	/* the branch before the return closes a loop and must not be the site */
	"FUNCTION(loop)\n push %rbp\n mov %rdi,%rcx\n1: call work\n dec %rcx\n jns 1b\n pop %rbp\n ret\nEND(loop)\n"
	"FUNCTION(loop_no_call)\n push %rbp\n mov %rdi,%rcx\n1: dec %rcx\n jns 1b\n jmp 2f\n nop\n2: pop %rbp\n "
	"ret\nEND(loop_no_call)\n"
	"FUNCTION(tail)\n push %rbx\n call work\n pop %rbx\n jmp work\nEND(tail)\n"
	"FUNCTION(tail_or_return)\n push %rbx\n mov %rdi,%rbx\n call work\n test %rbx,%rbx\n pop %rbx\n jne work\n "
	"ret\nEND(tail_or_return)\n"
	"FUNCTION(call_last)\n push %rbx\n call work\n pop %rbx\n ret\nEND(call_last)\n"
	"FUNCTION(frame)\n push %rbp\n mov %rsp,%rbp\n and $-32,%rsp\n sub $64,%rsp\n call work\n test %rdi,%rdi\n je "
	"1f\n nop\n1: leave\n ret\nEND(frame)\n"
	"FUNCTION(endbr)\n endbr64\n mov %rdi,%rax\n push %rbx\n call *target(%rip)\n pop %rbx\n ret\nEND(endbr)\n"
	/* the entry is the head of a loop: it cannot be told from a call */
	"FUNCTION(to_entry)\n dec %rdi\n jns to_entry\n ret\nEND(to_entry)\n"
	"FUNCTION(behind_entry)\n push %rbx\n1: dec %rdi\n push %r12\n pop %r12\n jns 1b\n pop %rbx\n "
	"ret\nEND(behind_entry)\n"
	"FUNCTION(noreturn)\n push %rbx\n call work\n test %rdi,%rdi\n js 1f\n pop %rbx\n ret\n1: call "
	"abort@plt\nEND(noreturn)\n"
	"FUNCTION(clobbers)\n mov $7,%edi\n push %rbx\n call work\n pop %rbx\n ret\nEND(clobbers)\n"
	"FUNCTION(branch_first)\n test %rdi,%rdi\n je 1f\n push %rbx\n call work\n pop %rbx\n1: "
	"ret\nEND(branch_first)\n"
	/* a part elsewhere, entered with a frame, that comes back */
	"FUNCTION(split)\n push %rbx\n .cfi_adjust_cfa_offset 8\n call work\n test %rdi,%rdi\n je split.cold\n1: jmp "
	"2f\n2: pop %rbx\n"
	" .cfi_adjust_cfa_offset -8\n ret\n .cfi_endproc\n .size split, .-split\n"
	".p2align 4\n.type split.cold,@function\nsplit.cold: .cfi_startproc\n .cfi_def_cfa_offset 16\n call work\n jmp "
	"1b\nEND(split.cold)\n"
	/* an empty part: its address is that of a function that is never jumped to */
	"FUNCTION(empty_part)\n push %rbx\n .cfi_adjust_cfa_offset 8\n call work\n cmp $100,%rdi\n ja next_one\n pop "
	"%rbx\n .cfi_adjust_cfa_offset -8\n"
	" ret\nEND(empty_part)\n"
	"FUNCTION(next_one)\n call work\n ret\nEND(next_one)\n"
	/* where the second argument is when callee is called */
	"FUNCTION(callee)\n ret\nEND(callee)\n"
	"FUNCTION(keeps)\n push %r12\n mov %rsi,%r12\n call work\n mov $7,%esi\n call callee\n pop %r12\n "
	"ret\nEND(keeps)\n"
	"FUNCTION(moves)\n push %rbp\n push %rbx\n mov %rsi,%rbx\n call work\n mov %rbx,%rbp\n mov %bl,%al\n xor "
	"%ebx,%ebx\n call callee\n pop %rbx\n pop %rbp\n ret\nEND(moves)\n"
	"FUNCTION(overwrites)\n push %r12\n mov %rsi,%r12\n mov $1,%r12b\n call callee\n pop %r12\n "
	"ret\nEND(overwrites)\n"
	"FUNCTION(too_late)\n push %r12\n call work\n mov %rsi,%r12\n call callee\n pop %r12\n ret\nEND(too_late)\n"
	"FUNCTION(two_ways)\n push %r12\n mov %rsi,%r12\n test %rdi,%rdi\n je 1f\n mov %rdi,%r12\n1: call callee\n pop "
	"%r12\n ret\nEND(two_ways)\n"
	"FUNCTION(one_frame)\n push %rbx\n mov target(%rip),%rbx\n call work\n call *%rbx\n call *%rbx\n pop %rbx\n "
	"ret\nEND(one_frame)\n"
	"FUNCTION(two_frames)\n mov target(%rip),%rax\n call *%rax\n push %rbx\n call *%rbx\n pop %rbx\n "
	"ret\nEND(two_frames)\n"
	".data\n.p2align 3\ntarget: .quad work\n"
	".section .note.GNU-stack,\"\",@progbits\n";

static const char fixture_c[] = "extern void work(void); extern void abort(void); extern void exit(int);\n"
				"volatile int sink;\n"
				"int table(long a) { work(); switch (a) { case 0: sink = 3; break; case 1: work(); "
				"return 5; case 2: sink = 9; work(); break;\n"
				" case 3: return 12; case 4: sink = 4; break; case 5: sink++; return sink; case 6: "
				"sink = 77; break; default: work(); } return sink + 1; }\n"
				"__attribute__((optimize(\"no-omit-frame-pointer\"))) long guarded(long a) { volatile "
				"char b[64]; b[a & 63] = a; work();\n"
				" if (b[a & 63] < 0) abort(); return b[1]; }\n"
				"long nested(long a) { long s = 0; for (long i = 0; i < a; i++) { if (i == 3) return "
				"s; work(); s += sink; } return s; }\n";

static int build(void **state)
{
	if (!mkdtemp(dir) || !write_text("a.S", fixture_asm) || !write_text("c.c", fixture_c))
		return -1;
	compile("fixture.so", "-O2 -fstack-protector-all -Wl,-z,now a.S c.c", library);
	return 0;
}

static int find(const struct elf *elf, const char *name, enum sites_policy policy, struct sites *out)
{
	struct elf_symbol symbol;

	assert_int_equal(elf__symbol(elf, name, &symbol), 0);
	return sites__find(elf, symbol.vaddr, symbol.size, policy, out);
}

static const struct {
	const char *name;
	unsigned exit_cnt, stepped_cnt;
	unsigned entry_at; /* bytes into the function */
	bool entry_emulated;
} expected[] = {
	{"single", 1, 0, 0, true},       {"returns", 3, 3, 0, true},        {"loop", 1, 1, 0, true},
	{"loop_no_call", 1, 0, 0, true}, {"tail", 1, 0, 0, true},           {"call_last", 1, 1, 0, true},
	{"frame", 1, 0, 0, true},        {"endbr", 1, 1, 7, true},          {"behind_entry", 1, 1, 0, true},
	{"noreturn", 1, 0, 0, true},     {"clobbers", 1, 1, 0, false},      {"split", 1, 0, 0, true},
	{"empty_part", 1, 0, 0, true},   {"tail_or_return", 1, 0, 0, true},
};

static void test_expected(void **state)
{
	struct elf *elf = open_library();

	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		struct elf_symbol symbol;
		struct sites sites;
		uint64_t start;
		unsigned stepped = 0;
		int err = find(elf, expected[i].name, SITES_STRICT, &sites);

		assert_int_equal(err, 0);
		for (uint32_t e = 0; e < sites.exit_cnt; e++)
			stepped += !sites.exit[e].emulated;
		elf__symbol(elf, expected[i].name, &symbol);
		assert_int_equal(elf__offset(elf, symbol.vaddr, &start), 0);
		if (sites.exit_cnt != expected[i].exit_cnt || stepped != expected[i].stepped_cnt ||
		    sites.entry.offset != start + expected[i].entry_at ||
		    sites.entry.emulated != expected[i].entry_emulated)
			fail_msg("%s: %u exits, %u stepped, entry at %lu", expected[i].name, sites.exit_cnt, stepped,
				 (unsigned long)(sites.entry.offset - start));
	}
	elf__free(elf);
}

/* Of several calls of one function, that behind which nothing is done. */
static void test_last_call(void **state)
{
	static const struct {
		const char *name;
		int err, first_err; /* of the last call, and of the only one */
		unsigned at, depth; /* of the last call */
	} cases[] = {
		{"call_last", 0, 0, 1, 8},         /* call, pop, ret */
		{"returns", 0, -ENOTUNIQ, 47, 24}, /* the second; the first is followed by a branch */
		{"single", -ENOENT, 0, 0, 0},      /* followed by a branch */
		{"tail", 0, -ENOTUNIQ, 0, 0},      /* the jump at the end is a call, too */
	};
	struct elf *elf = open_library();

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct elf_symbol symbol;
		struct call_site call;
		uint64_t start;
		int err;

		assert_int_equal(elf__symbol(elf, cases[i].name, &symbol), 0);
		assert_int_equal(elf__offset(elf, symbol.vaddr, &start), 0);
		err = sites__find_last_call(elf, symbol.vaddr, symbol.size, "work", &call);
		if (err != cases[i].err ||
		    (!err && cases[i].at &&
		     (call.site.offset != start + cases[i].at || call.site.depth != (int)cases[i].depth)))
			fail_msg("%s: %d, at %lu, depth %d", cases[i].name, err,
				 (unsigned long)(call.site.offset - start), call.site.depth);
		assert_int_equal(sites__find_call(elf, symbol.vaddr, symbol.size, "work", &call), cases[i].first_err);
	}
	elf__free(elf);
}

static void test_not_supported(void **state)
{
	struct elf *elf = open_library();
	struct sites sites;

	assert_int_equal(find(elf, "to_entry", SITES_STRICT, &sites), -ENOTSUP);
	assert_int_equal(find(elf, "work", SITES_STRICT, &sites), -ENOTSUP);
	assert_int_equal(sites__find(elf, 0, 16, SITES_STRICT, &sites), -ENOENT);
	elf__free(elf);
}

static void test_size_unknown(void **state)
{
	struct elf *elf = open_library();

	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		struct elf_symbol symbol;
		struct sites with, without;

		elf__symbol(elf, expected[i].name, &symbol);
		int err = sites__find(elf, symbol.vaddr, symbol.size, SITES_STRICT, &with);
		assert_int_equal(sites__find(elf, symbol.vaddr, 0, SITES_STRICT, &without), err);
		if (!err)
			assert_memory_equal(&with, &without, sizeof(with));
	}
	elf__free(elf);
}

/* One call that is being stepped. */
struct call {
	uint64_t start, end; /* runtime addresses: the function, and where its caller goes on */
	uint64_t slot;       /* where the return address lies */
	struct user_regs_struct at_start;
	unsigned entries, exits, unknown_depths;
};

static const long arguments[] = {0, 1, 2, 3, 4, 5, 6, 7, 50};
static const char *const stepped_names[] = {
	"single", "returns",    "loop",     "loop_no_call", "tail",     "call_last",
	"frame",  "endbr",      "clobbers", "behind_entry", "noreturn", "branch_first",
	"split",  "empty_part", "table",    "guarded",      "nested",   "tail_or_return"};

static bool same_arguments(const struct user_regs_struct *a, const struct user_regs_struct *b)
{
	return a->rdi == b->rdi && a->rsi == b->rsi && a->rdx == b->rdx && a->rcx == b->rcx && a->r8 == b->r8 &&
	       a->r9 == b->r9;
}

static void look(const struct sites *sites, uint64_t base, const struct user_regs_struct *regs, struct call *call)
{
	if (regs->rip == base + sites->entry.offset) {
		call->entries++;
		assert_true(same_arguments(regs, &call->at_start));
		assert_int_equal(call->exits, 0);
		assert_int_equal(regs->rsp + sites->entry.depth, call->slot);
	}
	for (uint32_t i = 0; i < sites->exit_cnt; i++) {
		if (regs->rip != base + sites->exit[i].offset)
			continue;
		call->exits++;
		if (sites->exit[i].depth < 0)
			call->unknown_depths++;
		else
			assert_int_equal(regs->rsp + sites->exit[i].depth, call->slot);
	}
}

static void run_child(long (*function)(long))
{
	if (ptrace(PTRACE_TRACEME, 0, 0, 0))
		_exit(77);
	raise(SIGSTOP);
	for (size_t i = 0; i < sizeof(arguments) / sizeof(*arguments); i++)
		function(arguments[i]);
	_exit(0);
}

/*
 * Steps all calls of a function. `code` is the runtime address of file offset 0. Returns how many calls ended, or -1
 * when tracing is not allowed.
 */
static int step(const struct sites *sites, uint64_t code, uint64_t start, bool realigns)
{
	struct call call = {.start = start};
	int status, ended = 0;
	bool inside = false;
	pid_t pid = fork();

	if (!pid)
		run_child((long (*)(long))start);
	waitpid(pid, &status, 0);
	if (WIFEXITED(status))
		return -1;
	for (int i = 0; i < STEPS_MAX; i++) {
		struct user_regs_struct regs;

		ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
		waitpid(pid, &status, 0);
		if (!WIFSTOPPED(status))
			break;
		ptrace(PTRACE_GETREGS, pid, 0, &regs);
		if (!inside && regs.rip == start) {
			inside = true;
			call.slot = regs.rsp;
			call.end = ptrace(PTRACE_PEEKDATA, pid, regs.rsp, 0);
			call.at_start = regs;
			call.entries = call.exits = 0;
		}
		if (inside)
			look(sites, code, &regs, &call);
		if (inside && regs.rip == call.end && regs.rsp == call.slot + 8) {
			inside = false;
			ended++;
			assert_int_equal(call.entries, 1);
			assert_int_equal(call.exits, 1);
			/* Only a stack that was realigned hides the depth. */
			assert_true(realigns || !call.unknown_depths);
		}
	}
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return ended;
}

static void test_stepped(void **state)
{
	struct elf *elf = open_library();
	void *handle = dlopen(library, RTLD_NOW);
	unsigned calls = 0;

	assert_non_null(handle);
	for (size_t i = 0; i < sizeof(stepped_names) / sizeof(*stepped_names) * 2; i++) {
		const char *name = stepped_names[i / 2];
		uint64_t start = (uint64_t)dlsym(handle, name), offset;
		struct elf_symbol symbol;
		struct sites sites;

		assert_int_equal(elf__symbol(elf, name, &symbol), 0);
		assert_int_equal(elf__offset(elf, symbol.vaddr, &offset), 0);
		assert_int_equal(find(elf, name, i % 2 ? SITES_AFTER_WORK : SITES_STRICT, &sites), 0);
		int ended = step(&sites, start - offset, start, !strcmp(name, "frame"));
		if (ended < 0) {
			print_message("skipped: ptrace is not permitted here\n");
			skip();
		}
		assert_int_equal(ended, sizeof(arguments) / sizeof(*arguments));
		calls += ended;
	}
	print_message("%u calls stepped: one entry and one exit each\n", calls);
	dlclose(handle);
	elf__free(elf);
}

static void test_second_argument(void **state)
{
	static const struct {
		const char *name;
		uint32_t second_in;
	} cases[] = {
		{"keeps", SAVED_R12},     {"moves", SAVED_RBP},     {"overwrites", SAVED_NONE},
		{"too_late", SAVED_NONE}, {"two_ways", SAVED_NONE},
	};
	struct elf *elf = open_library();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_symbol symbol;
		struct call_site call;

		assert_int_equal(elf__symbol(elf, cases[i].name, &symbol), 0);
		assert_int_equal(sites__find_call(elf, symbol.vaddr, symbol.size, "callee", &call), 0);
		assert_int_equal(call.second_in, cases[i].second_in);
	}
	elf__free(elf);
}

static void test_callee_frame(void **state)
{
	static const struct {
		const char *name;
		int below;
	} cases[] = {{"one_frame", 16}, {"single", -ENOENT}, {"two_frames", -ENOTUNIQ}};
	struct elf *elf = open_library();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_symbol symbol;

		assert_int_equal(elf__symbol(elf, cases[i].name, &symbol), 0);
		assert_int_equal(sites__find_callee_frame(elf, symbol.vaddr, symbol.size), cases[i].below);
	}
	elf__free(elf);
}

static int use_symbol(const struct elf_symbol *symbol, void *ctx)
{
	const struct elf *elf = ctx;
	struct function_range range;
	struct call_site call;
	struct sites sites;
	uint64_t value;
	size_t have;

	elf__offset(elf, symbol->vaddr, &value);
	elf__vaddr(elf, symbol->vaddr, &value);
	elf__bytes(elf, symbol->vaddr, symbol->size, &have);
	elf__pointer(elf, symbol->vaddr, &value);
	elf__method_in(elf, symbol->vaddr, "next", &value);
	functions__at(elf, symbol->vaddr, &range);
	sites__find(elf, symbol->vaddr, symbol->size, SITES_STRICT, &sites);
	sites__find(elf, symbol->vaddr, 0, SITES_AFTER_WORK, &sites);
	sites__find_call(elf, symbol->vaddr, symbol->size, "callee", &call);
	sites__find_callee_frame(elf, symbol->vaddr, symbol->size);
	return strlen(symbol->name) > 1 << 20;
}

static void use(const char *path)
{
	struct elf_symbol symbol;
	struct elf *elf;
	uint64_t value;

	if (elf__new(path, &elf))
		return;
	elf__build_id(elf);
	elf__symbol(elf, "table", &symbol);
	elf__method(elf, "next", 0x80, &value);
	elf__slot(elf, "__next__", 0xe0, &value);
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
		cmocka_unit_test(test_expected),        cmocka_unit_test(test_not_supported),
		cmocka_unit_test(test_size_unknown),    cmocka_unit_test(test_stepped),
		cmocka_unit_test(test_second_argument), cmocka_unit_test(test_callee_frame),
		cmocka_unit_test(test_last_call),       cmocka_unit_test(test_flipped),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
