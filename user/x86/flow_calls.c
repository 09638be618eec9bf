/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Classifies calls by the names of their targets: functions that do not return, functions that only
 * free memory, and all others. In: a decoded call, and the PLT and GOT of its ELF file. Out: the
 * node's kind. No state.
 */
#include <string.h>

#include "user/x86/flow.h"
#include "user/x86/flow_private.h"

/* Functions of other files that do not return, by symbol. */
static const char *const noreturn_names[] = {
	"__stack_chk_fail",
	"_Unwind_Resume",
	"__cxa_throw",
	"__cxa_rethrow",
	"__cxa_bad_cast",
	"__cxa_bad_typeid",
	"__cxa_throw_bad_array_new_length",
	"__cxa_pure_virtual",
	"__cxa_call_unexpected",
	"_ZSt9terminatev",
	"_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE",
	"__assert_fail",
	"__assert_perror_fail",
	"__chk_fail",
	"__fortify_fail",
	"__longjmp_chk",
	"abort",
	"exit",
	"_exit",
	"_Exit",
	"quick_exit",
	"longjmp",
	"_longjmp",
	"siglongjmp",
	"pthread_exit",
	"Py_FatalError",
	"_Py_FatalErrorFunc",
	"_Py_FatalErrorFormat",
};

/* The same for families of names: libstdc++'s std::__throw_*, c10's checks. */
static const char *const noreturn_prefixes[] = {
	"_ZSt16__throw_",
	"_ZSt17__throw_",
	"_ZSt18__throw_",
	"_ZSt19__throw_",
	"_ZSt20__throw_",
	"_ZSt21__throw_",
	"_ZSt22__throw_",
	"_ZSt23__throw_",
	"_ZSt24__throw_",
	"_ZSt25__throw_",
	"_ZSt28__throw_",
	"_ZSt29__throw_",
	"_ZN3c106detail14torchCheckFail",
	"_ZN3c106detail23torchInternalAssertFail",
};

/* Functions that only free memory: a caller's work is done before it calls them. */
static const char *const release_names[] = {
	"_Py_Dealloc", "_ZdlPv", "_ZdlPvm", "_ZdaPv", "free",
};

static bool is_release_name(const char *name)
{
	for (size_t i = 0; i < sizeof(release_names) / sizeof(*release_names); i++) {
		if (!strcmp(name, release_names[i]))
			return true;
	}
	return false;
}

static bool is_noreturn_name(const char *name)
{
	for (size_t i = 0; i < sizeof(noreturn_names) / sizeof(*noreturn_names); i++) {
		if (!strcmp(name, noreturn_names[i]))
			return true;
	}
	for (size_t i = 0; i < sizeof(noreturn_prefixes) / sizeof(*noreturn_prefixes); i++) {
		if (!strncmp(name, noreturn_prefixes[i], strlen(noreturn_prefixes[i])))
			return true;
	}
	return false;
}

/* A PLT entry: [endbr64] [bnd] jmp *slot(%rip). */
const char *flow__import(const struct elf *elf, uint64_t vaddr)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	size_t have, i = 0;
	const uint8_t *b = elf__bytes(elf, vaddr, 11, &have);
	int32_t disp;

	if (!b || have < 11)
		return NULL;
	if (!memcmp(b, endbr64, sizeof(endbr64)))
		i += sizeof(endbr64);
	if (b[i] == 0xf2)
		i++;
	if (b[i] != 0xff || b[i + 1] != 0x25 || i + 6 > have)
		return NULL;
	memcpy(&disp, b + i + 2, sizeof(disp));
	const char *name = elf__slot_symbol(elf, vaddr + i + 6 + (int64_t)disp);
	return name ? name : "";
}

void flow__settle_call(const struct elf *elf, struct flow_node *node)
{
	size_t have;
	const uint8_t *b = elf__bytes(elf, node->vaddr, 6, &have);
	const char *name = NULL;
	int32_t disp;

	if (node->kind == FLOW_CALL) {
		name = flow__import(elf, node->target);
	} else if (b && have == 6 && b[0] == 0xff && b[1] == 0x15) {
		memcpy(&disp, b + 2, sizeof(disp));
		name = elf__slot_symbol(elf, node->vaddr + 6 + (int64_t)disp);
		if (name)
			node->kind = FLOW_CALL;
	}
	if (name && is_noreturn_name(name))
		node->kind = FLOW_CALL_NORETURN;
	else if (name ? is_release_name(name)
		      : node->kind == FLOW_CALL && node->target && node->target == elf__own_dealloc(elf))
		node->kind = FLOW_CALL_RELEASE;
}
