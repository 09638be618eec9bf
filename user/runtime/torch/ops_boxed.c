/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the copies of c10::Dispatcher::callBoxed in a file that does not name them: local
 * functions, which stripping leaves without a symbol. In: code, and the names of imports and
 * exports. Out: where the copies begin. No state.
 *
 * Such a copy asks for a profiler's callbacks and, when there are some, reports the operator to
 * them with the values of its stack (ATen/core/dispatch/Dispatcher.h): it calls two exported
 * functions. Other functions that call both have the handle of one operator of their own. A copy
 * instead first follows its first argument, the handle, to the operator's definition, and reads
 * there which arguments decide the dispatch.
 */
#include <errno.h>
#include <string.h>

#include "user/runtime/torch/ops_private.h"
#include "user/x86/flow.h"
#include "user/x86/insn.h"

#define CALLBACKS    "_ZN2at27getStepCallbacksUnlessEmpty"
#define TELL         "_ZN3c1010Dispatcher17runRecordFunctionE"
#define VALUES       "8ArrayRefI" /* TELL also exists without this argument */
#define PROLOGUE_MAX 48           /* instructions */
#define OPERATOR_MIN 256          /* bytes of a definition before what decides the dispatch: names, schema */
#define RDI          7

static bool is_tell(const char *symbol)
{
	return symbol && !strncmp(symbol, TELL, strlen(TELL)) && strstr(symbol, VALUES);
}

static bool is_callbacks(const char *symbol)
{
	return symbol && !strncmp(symbol, CALLBACKS, strlen(CALLBACKS));
}

struct exported {
	bool (*is)(const char *symbol);
	uint64_t vaddr;
};

static int find_exported(const struct elf_symbol *symbol, void *ctx)
{
	struct exported *exported = ctx;

	if (!symbol->function || !exported->is(symbol->name))
		return 0;
	exported->vaddr = symbol->vaddr;
	return 1;
}

/* mov disp(%base),%reg of 8 bytes: the register, or -1. */
static int loaded(const uint8_t *b, size_t size, uint8_t base, int32_t *disp)
{
	bool wide = (b[0] & 0xf8) == 0x48 && b[1] == 0x8b;

	if (!wide || size < 3 || ((b[0] & 1) << 3 | (b[2] & 7)) != base || (b[2] & 7) == 4)
		return -1;
	*disp = 0;
	if (b[2] >> 6 == 2 && size == 7)
		memcpy(disp, b + 3, sizeof(*disp));
	else if (b[2] >> 6 || size != 3)
		return -1;
	return (b[0] & 4) << 1 | (b[2] >> 3 & 7);
}

/* Does the function first follow %rdi? */
static bool follows_handle(struct decoder *decoder, const struct elf *elf, const struct function_range *range)
{
	int definition = -1;
	uint64_t at = range->start;

	for (int i = 0; i < PROLOGUE_MAX && at < range->end; i++) {
		struct flow_node node;
		const uint8_t *bytes;
		size_t have;
		int32_t disp;

		decoder__node(decoder, elf, at, range->end - at, &node);
		bytes = elf__bytes(elf, at, node.size, &have);
		if (node.kind != FLOW_PLAIN || !bytes || have < node.size)
			return false;
		if (definition < 0) {
			definition = loaded(bytes, node.size, RDI, &disp);
			if (definition >= 0 && disp)
				return false;
		} else if (loaded(bytes, node.size, definition, &disp) >= 0) {
			return disp >= OPERATOR_MIN;
		}
		at += node.size;
	}
	return false;
}

struct boxed_search {
	const struct elf *elf;
	uint64_t callbacks, tell; /* vaddr when this file defines it; 0: the file imports it */
	struct decoder decoder;
	int (*fn)(uint64_t vaddr, uint64_t size, void *ctx);
	void *ctx;
	uint64_t last; /* the last function that was checked */
};

static bool range_calls(const struct boxed_search *search, const struct function_range *range, uint64_t own,
			bool (*is)(const char *))
{
	struct op_code code = op_code__at(search->elf, range->start, range->end - range->start);
	uint64_t target;

	for (size_t i = 0; op_code__next_call(&code, &i, &target); i++)
		if ((own && target == own) || is(flow__import(search->elf, target)))
			return true;
	return false;
}

/* A call of TELL at vaddr. */
static int check_function(struct boxed_search *search, uint64_t vaddr)
{
	struct function_range range;

	if (functions__at(search->elf, vaddr, &range) || range.start == search->last)
		return 0;
	search->last = range.start;
	if (!range_calls(search, &range, search->callbacks, is_callbacks) ||
	    !follows_handle(&search->decoder, search->elf, &range))
		return 0;
	return search->fn(range.start, range.end - range.start, search->ctx);
}

/* The PLT entry of TELL: jmp *slot(%rip), before which there may be an endbr64. 0: none. */
static uint64_t find_plt_entry(const struct boxed_search *search, const struct op_code *code)
{
	static const uint8_t jump[] = {0xff, 0x25};
	const uint8_t *at = code->bytes, *end = at + code->size;

	for (; (at = memmem(at, end - at, jump, sizeof(jump))) && end - at >= 6; at++) {
		size_t slot_at = at - code->bytes + sizeof(jump);

		if (is_tell(elf__slot_symbol(search->elf, op_code__target(code, slot_at))))
			return code->vaddr + (at - code->bytes);
	}
	return 0;
}

static int search_code(struct boxed_search *search, const struct op_code *code)
{
	uint64_t entry = find_plt_entry(search, code), target;
	int err = 0;

	if (!entry && !search->tell)
		return 0;
	for (size_t i = 0; !err && op_code__next_call(code, &i, &target); i++)
		if ((search->tell && target == search->tell) ||
		    (entry - target <= 5 && is_tell(flow__import(search->elf, target))))
			err = check_function(search, code->vaddr + i);
	return err;
}

int ops_boxed__find(const struct elf *elf, int (*fn)(uint64_t vaddr, uint64_t size, void *ctx), void *ctx)
{
	struct exported callbacks = {.is = is_callbacks}, tell = {.is = is_tell};
	struct boxed_search search = {.elf = elf, .fn = fn, .ctx = ctx};
	uint64_t vaddr, size;
	int err;

	elf__each_symbol(elf, find_exported, &callbacks);
	elf__each_symbol(elf, find_exported, &tell);
	search.callbacks = callbacks.vaddr;
	search.tell = tell.vaddr;
	err = decoder__open(&search.decoder);
	if (err)
		return err;
	for (size_t i = 0; !err && elf__code(elf, i, &vaddr, &size); i++) {
		struct op_code code = op_code__at(elf, vaddr, size);

		err = search_code(&search, &code);
	}
	decoder__close(&search.decoder);
	return err;
}
