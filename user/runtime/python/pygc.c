// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds invoke_gc_callback by its arguments. In: an opened ELF file. Out: addresses in it. No
 * state.
 */
#include "user/runtime/python/pygc.h"

#include <errno.h>
#include <string.h>

#include "user/x86/flow.h"
#include "user/x86/insn.h"

#define ARGUMENT_SCAN 16 /* instructions before a call that may load its arguments */
#define CALLEES_MAX   16 /* of PyGC_Collect; it has 3 to 6 */
#define PAGE_MASK     0xfff

static bool is_text(const struct elf *elf, uint64_t vaddr, const char *text)
{
	size_t size = strlen(text) + 1, have;
	const uint8_t *bytes = elf__bytes(elf, vaddr, size, &have);

	return bytes && have == size && !memcmp(bytes, text, size);
}

/* 0 for the register of the first argument, 1 for the second's, else -1. */
static int argument_of(uint16_t reg)
{
	int number = regs__number(reg, 4);

	return number == X86_RDI ? 0 : number == X86_RSI ? 1 : -1;
}

/*
 * Returns the address of the text when the call node[at] passes it as its first or second argument
 * (*argument says which), else 0.
 */
static uint64_t text_argument(const struct flow *flow, size_t at, const char *text, int *argument)
{
	for (size_t n = 1; n <= ARGUMENT_SCAN && n <= at; n++) {
		const struct flow_node *node = &flow->node[at - n];

		if (node->kind != FLOW_PLAIN || node->vaddr + node->size != node[1].vaddr)
			return 0;
		*argument = argument_of(node->target_reg);
		if (*argument >= 0 && is_text(flow->elf, node->target, text))
			return node->target;
	}
	return 0;
}

static bool is_own_call(const struct flow *flow, const struct flow_node *node)
{
	return node->kind == FLOW_CALL && node->target && !flow__import(flow->elf, node->target);
}

/* Finds the callee that gets both texts, among the calls of one function. */
static int find_gc_callee(const struct flow *flow, struct py_gc *out)
{
	for (size_t i = 0; i < flow->node_cnt; i++) {
		uint64_t start, stop;
		int first, second;

		if (!is_own_call(flow, &flow->node[i]) || !(start = text_argument(flow, i, "start", &first)))
			continue;
		for (size_t k = 0; k < flow->node_cnt; k++) {
			if (!is_own_call(flow, &flow->node[k]) || flow->node[k].target != flow->node[i].target ||
			    !(stop = text_argument(flow, k, "stop", &second)) || first != second ||
			    !((start ^ stop) & PAGE_MASK))
				continue;
			*out = (struct py_gc){flow->node[i].target, start, !first};
			return 0;
		}
	}
	return -ENOENT;
}

int py_gc__find(const struct elf *elf, struct py_gc *out)
{
	uint64_t callees[CALLEES_MAX];
	struct elf_symbol collect;
	struct flow *flow = NULL;
	size_t callee_cnt = 0;
	int err = elf__symbol(elf, "PyGC_Collect", &collect) ?: flow__new(elf, collect.vaddr, collect.size, &flow);

	if (err)
		return err;
	err = find_gc_callee(flow, out);
	for (size_t i = 0; err && i < flow->node_cnt && callee_cnt < CALLEES_MAX; i++)
		if (is_own_call(flow, &flow->node[i]))
			callees[callee_cnt++] = flow->node[i].target;
	flow__free(flow);
	for (size_t i = 0; err && i < callee_cnt; i++) {
		if (flow__new(elf, callees[i], 0, &flow))
			continue;
		err = find_gc_callee(flow, out);
		flow__free(flow);
	}
	return err;
}
