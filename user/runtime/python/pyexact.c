// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Follows the interpreter's code to the calls through the eval_frame pointer. In: an opened ELF
 * file. Out: sites.
 */
#include "user/runtime/python/pyexact.h"

#include <capstone/capstone.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/runtime/python/pylayout.h"
#include "user/runtime/python/pythread.h"
#include "user/x86/flow.h"
#include "user/x86/insn.h"

#define MINOR_INLINES   11         /* calls between Python functions stay within the loop */
#define MINOR_CLEARS    12         /* frames are cleared by the loop */
#define WORD_OFFSET_MAX (1u << 20) /* PyInterpreterState has some 200 KiB */
#define GETTER_STEPS    8
#define CALL_STEPS      12 /* instructions between the load of the pointer and its call; at most 5 seen */
#define RETURN_STEPS    16 /* between the call and the first emulated instruction; at most 7 seen */
#define SCAN_BYTES      (64u << 20)
#define DEPTH_314       5000 /* 3.14 checks how full the C stack is: 10,000 calls are too many for 8 MiB */
#define DEPTH_MARGIN    50   /* calls, for C functions such as sorted() between Python calls */

/*
 * A move between a register and memory at a large offset from another: REX.W 8B (load) or 89
 * (store), mod 10. Where the other is rsp or r12, a SIB byte without an index says so.
 */
struct far_move {
	bool load;
	uint8_t reg;
	uint32_t offset;
	size_t bytes; /* of code */
};

#define FAR_MOVE_MAX 8

/* code: FAR_MOVE_MAX bytes. */
static bool far_move__parse(const uint8_t *code, struct far_move *out)
{
	bool sib = (code[2] & 7) == 4;

	if ((code[0] & 0xf8) != 0x48 || (code[1] != 0x8b && code[1] != 0x89) || code[2] >> 6 != 2 ||
	    (sib && ((code[3] & 0x3f) != 0x24 || code[0] & 2)))
		return false;
	out->load = code[1] == 0x8b;
	out->reg = (code[2] >> 3 & 7) | (code[0] & 4) << 1;
	memcpy(&out->offset, code + 3 + sib, sizeof(out->offset));
	out->bytes = 3 + sib + sizeof(out->offset);
	return true;
}

/*
 * The offset of the first such load (or store) in a small function that CPython exports. 0: not
 * found.
 */
static uint32_t find_field_offset(const struct elf *elf, const char *name, bool load, struct decoder *decoder)
{
	struct elf_symbol symbol;
	uint64_t at;

	if (elf__symbol(elf, name, &symbol))
		return 0;
	at = symbol.vaddr;
	for (int i = 0; i < 4 * GETTER_STEPS; i++) {
		struct flow_node node = {0};
		struct far_move move;
		const uint8_t *code;
		size_t have;

		decoder__node(decoder, elf, at, 16, &node);
		code = elf__bytes(elf, at, FAR_MOVE_MAX, &have);
		if (node.kind == FLOW_BAD || node.kind == FLOW_RETURN || !code || have < FAR_MOVE_MAX)
			return 0;
		if (far_move__parse(code, &move) && move.load == load && move.offset < WORD_OFFSET_MAX &&
		    move.offset % 8 == 0)
			return move.offset;
		at += node.size;
	}
	return 0;
}

static bool may_carry_probe(const struct flow_node *node)
{
	return node->emulated && !node->refused;
}

/*
 * The first emulated instruction after a call, on the straight line, with the stack as the call
 * left it.
 */
static int find_behind(const struct elf *elf, struct decoder *decoder, uint64_t vaddr, struct site *out)
{
	for (int i = 0; i < RETURN_STEPS; i++) {
		struct flow_node node = {0};

		decoder__node(decoder, elf, vaddr, 16, &node);
		if (may_carry_probe(&node)) {
			*out = (struct site){.depth = -8, .emulated = true};
			return elf__offset(elf, vaddr, &out->offset);
		}
		if (node.kind != FLOW_PLAIN || node.rsp_effect != FLOW_KEEPS)
			return -ENOTSUP;
		vaddr += node.size;
	}
	return -ENOTSUP;
}

/* call *%reg or jmp *%reg, as /2 and /4 of opcode FF. */
static bool goes_by(const struct elf *elf, const struct flow_node *node, uint8_t reg)
{
	uint8_t extension = node->kind == FLOW_CALL_INDIRECT ? 2 : 4;
	size_t have;
	const uint8_t *code = elf__bytes(elf, node->vaddr, 3, &have);

	if (!code || have < 3)
		return false;
	if (code[0] == 0x41 || code[0] == 0x3e) { /* REX.B; notrack */
		if ((code[0] == 0x41) != (reg >= 8))
			return false;
		code++;
	} else if (reg >= 8) {
		return false;
	}
	return code[0] == 0xff && code[1] == (0xc0 | extension << 3 | (reg & 7));
}

/*
 * The call through the pointer that was loaded to `reg` before vaddr, on either side of the test
 * for NULL; 0: not found, or a jump.
 */
static uint64_t find_pointer_call(const struct elf *elf, struct decoder *decoder, uint64_t vaddr, uint8_t reg,
				  int branches)
{
	for (int i = 0; i < CALL_STEPS; i++) {
		struct flow_node node = {0};
		uint64_t call;

		decoder__node(decoder, elf, vaddr, 16, &node);
		switch (node.kind) {
		case FLOW_CALL_INDIRECT:
			return goes_by(elf, &node, reg) ? vaddr + node.size : 0;
		case FLOW_BRANCH:
			call = branches ? find_pointer_call(elf, decoder, node.target, reg, branches - 1) : 0;
			if (call)
				return call;
			break;
		case FLOW_JUMP:
			vaddr = node.target;
			continue;
		case FLOW_PLAIN:
			break;
		default:
			return 0;
		}
		vaddr += node.size;
	}
	return 0;
}

static int add_returned(const struct elf *elf, struct decoder *decoder, uint64_t behind, struct py_exact *out)
{
	struct site site;

	if (find_behind(elf, decoder, behind, &site))
		return -ENOTSUP;
	for (uint32_t i = 0; i < out->returned_cnt; i++)
		if (out->returned[i].offset == site.offset)
			return 0;
	if (out->returned_cnt == PY_EXACT_CALLERS)
		return -ENOTSUP;
	out->returned[out->returned_cnt++] = site;
	return 0;
}

/* Searches the segment that holds the loop for loads of the word that lead to a call through it. */
static int find_callers(const struct elf *elf, struct decoder *decoder, struct py_exact *out)
{
	uint64_t start, size;
	size_t have;
	const uint8_t *code;
	int err = elf__code_around(elf, out->eval, &start, &size);

	code = err ? NULL : elf__bytes(elf, start, size < SCAN_BYTES ? size : SCAN_BYTES, &have);
	for (size_t i = 0; code && i + FAR_MOVE_MAX <= have; i++) {
		struct far_move move;
		uint64_t behind;

		if (!far_move__parse(code + i, &move) || !move.load || move.offset != out->word_offset)
			continue;
		behind = find_pointer_call(elf, decoder, start + i + move.bytes, move.reg, 1);
		if (behind && add_returned(elf, decoder, behind, out))
			return -ENOTSUP;
	}
	return out->returned_cnt ? 0 : -ENOTSUP;
}

static bool symbol_calls(const struct elf *elf, const struct elf_symbol *caller, const struct elf_symbol *callee)
{
	size_t have;
	const uint8_t *code = elf__bytes(elf, caller->vaddr, caller->size, &have);

	for (size_t i = 0; code && i + 5 <= have; i++) {
		const char *import;
		int32_t distance;
		uint64_t target;

		if (code[i] != 0xe8) /* call rel32 */
			continue;
		memcpy(&distance, code + i + 1, sizeof(distance));
		target = caller->vaddr + i + 5 + (int64_t)distance;
		if (target == callee->vaddr)
			return true;
		import = elf__is_code(elf, target) ? flow__import(elf, target) : NULL;
		if (import && !strcmp(import, callee->name))
			return true;
	}
	return false;
}

/* By the names of 3.13 and later (exported), and of 3.12. */
static int find_clear(const struct elf *elf, const struct elf_symbol *loop, struct py_exact *out)
{
	static const struct {
		const char *name;
		bool second;
	} names[] = {
		{"_PyEval_FrameClearAndPop", true},
		{"_PyEvalFrameClearAndPop", true},
		{"_PyFrame_ClearExceptCode", false},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct elf_symbol symbol;
		struct sites sites;

		if (elf__symbol(elf, names[i].name, &symbol) || !symbol_calls(elf, loop, &symbol) ||
		    sites__find(elf, symbol.vaddr, symbol.size, SITES_STRICT, &sites) || !sites.entry.emulated)
			continue;
		out->clear = sites.entry;
		out->clear_second = names[i].second;
		return 0;
	}
	return -ENOENT;
}

static int find_ends(const struct elf *elf, const struct elf_symbol *loop, int minor, struct decoder *decoder,
		     struct py_exact *out, const char **why)
{
	struct call_site last;

	if (minor < MINOR_INLINES) {
		*why = "its loop does not end in a call of _Py_CheckFunctionResult";
		if (sites__find_last_call(elf, loop->vaddr, loop->size, "_Py_CheckFunctionResult", &last) ||
		    last.site.depth < 0)
			return -ENOTSUP;
		out->end = last.site;
		return 0;
	}
	*why = "the place of its eval_frame pointer is not known";
	out->word_offset = find_field_offset(elf, "_PyInterpreterState_GetEvalFrameFunc", true, decoder);
	if (!out->word_offset ||
	    out->word_offset != find_field_offset(elf, "_PyInterpreterState_SetEvalFrameFunc", false, decoder))
		return -ENOTSUP;
	*why = "a call by its eval_frame pointer has no emulated instruction behind it";
	if (find_callers(elf, decoder, out))
		return -ENOTSUP;
	*why = "the function that clears frames is not named in its file (stripped?), or not called by its loop";
	return minor >= MINOR_CLEARS && find_clear(elf, loop, out) ? -ENOTSUP : 0;
}

int py_exact__find(const struct elf *elf, const struct python *python, struct py_exact *out, const char **why)
{
	struct decoder decoder;
	struct elf_symbol loop;
	struct sites sites;
	int err;

	*out = (struct py_exact){0};
	*why = "it has no _PyEval_EvalFrameDefault with an emulated instruction before its first call";
	if (elf__symbol(elf, "_PyEval_EvalFrameDefault", &loop) ||
	    sites__find(elf, loop.vaddr, loop.size, SITES_STRICT, &sites) || !sites.entry.emulated ||
	    sites.entry.depth < 0)
		return -ENOTSUP;
	out->eval = loop.vaddr;
	out->begin = sites.entry;
	err = decoder__open(&decoder);
	if (err)
		return err;
	err = find_ends(elf, &loop, python->process.layout.minor, &decoder, out, why);
	decoder__close(&decoder);
	return err;
}

int py_exact__words(const struct process *process, const struct python *python, uint32_t word_offset,
		    uint64_t words[PY_EXACT_WORDS])
{
	uint64_t interp = 0;
	int cnt = 0, err = process__read_memory(process->pid, python->runtime + python->walk[PY_WALK_INTERPRETERS],
						&interp, sizeof(interp));

	while (!err && interp && cnt < PY_EXACT_WORDS) {
		words[cnt++] = interp + word_offset;
		err = process__read_memory(process->pid, interp + python->walk[PY_WALK_INTERP_NEXT], &interp,
					   sizeof(interp));
	}
	return err ?: cnt;
}

int py_exact__recursion_limit(const struct process *process, const struct python *python)
{
	const struct py_internals *internals = py_internals__of(&python->process.layout);
	uint64_t interp;
	int limit;

	if (!internals || !internals->recursion_limit ||
	    process__read_memory(process->pid, python->runtime + python->walk[PY_WALK_INTERPRETERS], &interp,
				 sizeof(interp)) ||
	    process__read_memory(process->pid, interp + internals->recursion_limit, &limit, sizeof(limit)))
		return -1;
	return limit;
}

int py_exact__safe_depth(const struct process *process, const struct python *python)
{
	/*
	 * PyThreadState: int py_recursion_remaining, py_recursion_limit, c_recursion_remaining
	 * (Include/cpython/pystate.h)
	 */
	static const uint8_t offsets[] = {[12] = 28, [13] = 44};
	int minor = python->process.layout.minor, limit = py_exact__recursion_limit(process, python), most = 0;
	struct py_thread *threads;
	int cnt;

	if (minor < 12)
		return -1;
	if (minor > 13)
		return DEPTH_314;
	cnt = py_thread__list(process->pid, python->runtime, python->walk, &threads);
	for (int i = 0; i < cnt; i++) {
		int recursion[3];

		if (!process__read_memory(process->pid, threads[i].tstate + offsets[minor], recursion,
					  sizeof(recursion)) &&
		    recursion[1] == limit && recursion[2] > most)
			most = recursion[2];
	}
	if (cnt > 0)
		free(threads);
	return most ? most / 2 - DEPTH_MARGIN : -1;
}
