// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads code of the form "load a pointer, compare it with NULL, jump, call it". Tracks registers as
 * values: what a register held at the start plus a number, the word at such an address, or a
 * constant. An instruction that is not understood makes a register unknown.
 */
#include <errno.h>
#include <string.h>

#include "user/runtime/nvtx/nvtx_private.h"
#include "user/x86/insn.h"

#define BEFORE_MAX 24 /* instructions from the load to the jump */
#define BEHIND_MAX 32 /* and from there to the call */

/*
 * Base: a register, NVTX_BASE_SITE for an address (disp is the vaddr), NVTX_BASE_NONE for a number,
 * or unknown.
 */
struct reg_value {
	uint8_t base;
	bool loads;
	int64_t disp;
};

static const struct reg_value unknown = {.base = NVTX_BASE_UNKNOWN};

struct reg_state {
	struct reg_value reg[X86_REGISTERS];
	bool stores;
	int tested; /* register that the flags compare with 0; TESTED_OTHER, TESTED_NONE */
};

enum { TESTED_NONE = -1 /* as for whatever is not a register */, TESTED_OTHER = -2 };

static void state__begin(struct reg_state *s)
{
	*s = (struct reg_state){.tested = TESTED_NONE};
	for (int i = 0; i < X86_REGISTERS; i++)
		s->reg[i].base = i;
}

static struct reg_value plus(struct reg_value v, int64_t disp)
{
	if (v.base == NVTX_BASE_UNKNOWN || v.loads)
		return unknown;
	v.disp += disp;
	return v;
}

/* The address of a memory operand. */
static struct reg_value address_of(const struct reg_state *s, const cs_insn *insn, const cs_x86_op *op)
{
	int base = regs__number(op->mem.base, 8);

	if (op->mem.segment != X86_REG_INVALID || op->mem.index != X86_REG_INVALID)
		return unknown;
	if (op->mem.base == X86_REG_RIP)
		return (struct reg_value){.base = NVTX_BASE_SITE, .disp = insn->address + insn->size + op->mem.disp};
	return base >= 0 ? plus(s->reg[base], op->mem.disp) : unknown;
}

/*
 * The word at that address. After a store it is unknown, unless the address is in the file's data:
 * the pointers there keep their values.
 */
static struct reg_value word_at(const struct reg_state *s, struct reg_value address)
{
	if (address.base == NVTX_BASE_UNKNOWN || address.loads || (s->stores && address.base != NVTX_BASE_SITE))
		return unknown;
	address.loads = true;
	return address;
}

static struct reg_value operand(const struct reg_state *s, const cs_insn *insn, const cs_x86_op *op)
{
	int reg;

	switch (op->type) {
	case X86_OP_REG:
		reg = regs__number(op->reg, 8);
		return reg >= 0 ? s->reg[reg] : unknown;
	case X86_OP_IMM:
		return (struct reg_value){.base = NVTX_BASE_NONE, .disp = op->imm};
	case X86_OP_MEM:
		return op->size == 8 ? word_at(s, address_of(s, insn, op)) : unknown;
	default:
		return unknown;
	}
}

/* The value that the instruction writes to its first operand, a register. */
static struct reg_value result(const struct reg_state *s, const cs_insn *insn)
{
	const cs_x86_op *op = insn->detail->x86.operands;
	int own = regs__number(op[0].reg, 8);

	switch (insn->id) {
	case X86_INS_MOV:
	case X86_INS_MOVABS:
		if (own < 0 && op[1].type == X86_OP_IMM && op[0].size == 4)
			return (struct reg_value){.base = NVTX_BASE_NONE, .disp = (uint32_t)op[1].imm};
		return own >= 0 ? operand(s, insn, &op[1]) : unknown;
	case X86_INS_LEA:
		return own >= 0 ? address_of(s, insn, &op[1]) : unknown;
	case X86_INS_XOR:
		if (op[1].type == X86_OP_REG && op[1].reg == op[0].reg && op[0].size >= 4)
			return (struct reg_value){.base = NVTX_BASE_NONE};
		return unknown;
	case X86_INS_ADD:
	case X86_INS_SUB:
		if (own < 0 || op[1].type != X86_OP_IMM)
			return unknown;
		return plus(s->reg[own], insn->id == X86_INS_ADD ? op[1].imm : -op[1].imm);
	default:
		return unknown;
	}
}

static void follow_flags(struct reg_state *s, const cs_insn *insn)
{
	const cs_x86_op *op = insn->detail->x86.operands;

	if (insn->id == X86_INS_TEST && op[0].type == X86_OP_REG && op[1].type == X86_OP_REG && op[0].reg == op[1].reg)
		s->tested = regs__number(op[0].reg, 8);
	else if (insn->id == X86_INS_CMP && op[1].type == X86_OP_IMM && !op[1].imm && op[0].size == 8)
		s->tested = op[0].type == X86_OP_REG ? regs__number(op[0].reg, 8) : TESTED_OTHER;
	else if (insn->detail->x86.eflags &
		 (X86_EFLAGS_MODIFY_ZF | X86_EFLAGS_RESET_ZF | X86_EFLAGS_SET_ZF | X86_EFLAGS_UNDEFINED_ZF))
		s->tested = TESTED_NONE;
}

/* Applies one instruction that is not a jump. */
static void follow(struct reg_state *s, csh handle, const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;
	struct reg_value first = unknown, popped = unknown;
	cs_regs read, written;
	uint8_t read_cnt, written_cnt;
	int own = x86->op_count && x86->operands[0].type == X86_OP_REG ? regs__number(x86->operands[0].reg, 1) : -1;

	follow_flags(s, insn);
	if (insn->id == X86_INS_POP && own >= 0)
		popped = word_at(s, s->reg[X86_RSP]);
	else if (own >= 0 && x86->op_count == 2)
		first = result(s, insn);
	for (int i = 0; i < x86->op_count; i++)
		s->stores |= x86->operands[i].type == X86_OP_MEM && x86->operands[i].access & CS_AC_WRITE;
	if (insn->id == X86_INS_PUSH || insn->id == X86_INS_POP) {
		s->stores |= insn->id == X86_INS_PUSH;
		s->reg[X86_RSP] = plus(s->reg[X86_RSP], insn->id == X86_INS_PUSH ? -8 : 8);
		if (own >= 0 && insn->id == X86_INS_POP)
			s->reg[own] = own == X86_RSP ? unknown : popped;
		return;
	}
	if (cs_regs_access(handle, insn, read, &read_cnt, written, &written_cnt)) {
		for (int i = 0; i < X86_REGISTERS; i++)
			s->reg[i] = unknown;
		return;
	}
	for (int i = 0; i < written_cnt; i++) {
		int number = regs__number(written[i], 1);

		if (number >= 0)
			s->reg[number] = number == own ? first : unknown;
	}
}

/*
 * The register that the flags compare with 0 and that holds a word of the file's data; -1 when
 * there is no such register.
 */
static int pointer_tested(const struct reg_state *s)
{
	for (int i = 0; i < X86_REGISTERS; i++)
		if (s->reg[i].base == NVTX_BASE_SITE && s->reg[i].loads &&
		    (s->tested == i || s->tested == TESTED_OTHER))
			return i;
	return -1;
}

/* A conditional jump that tests whether a pointer is NULL. */
struct pointer_check {
	uint64_t jump, slot;
	uint8_t pointer;
	uint64_t null, other; /* where execution continues */
};

/*
 * Follows plain instructions and jumps from *vaddr to the first instruction of another kind, and
 * sets *vaddr to it. 0, or -ENOENT when the first `max` have no such instruction.
 */
static int follow_to(struct decoder *decoder, const struct elf *elf, uint64_t *vaddr, int max, struct reg_state *s,
		     struct flow_node *node)
{
	for (int i = 0; i < max; i++) {
		decoder__node(decoder, elf, *vaddr, SIZE_MAX, node);
		if (node->kind == FLOW_JUMP) {
			*vaddr = node->target;
			continue;
		}
		if (node->kind != FLOW_PLAIN)
			return 0;
		follow(s, decoder->handle, decoder->insn);
		*vaddr += node->size;
	}
	return -ENOENT;
}

/* Finds such a jump straight after vaddr. */
static int find_check(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, struct reg_state *s,
		      struct pointer_check *out)
{
	struct flow_node node;
	uint64_t next;
	int pointer;
	bool equal;

	if (follow_to(decoder, elf, &vaddr, BEFORE_MAX, s, &node) || node.kind != FLOW_BRANCH)
		return -ENOENT;
	equal = decoder->insn->id == X86_INS_JE;
	pointer = pointer_tested(s);
	if (pointer < 0 || !node.emulated || node.refused || (!equal && decoder->insn->id != X86_INS_JNE))
		return -ENOENT;
	next = vaddr + node.size;
	*out = (struct pointer_check){.jump = vaddr, .slot = s->reg[pointer].disp, .pointer = pointer};
	out->null = equal ? node.target : next;
	out->other = equal ? next : node.target;
	return 0;
}

static struct nvtx_value value_for(struct reg_value v, uint64_t site)
{
	int64_t disp = v.base == NVTX_BASE_SITE ? v.disp - (int64_t)site : v.disp;

	if (v.base == NVTX_BASE_UNKNOWN || disp != (int32_t)disp)
		return (struct nvtx_value){.base = NVTX_BASE_UNKNOWN};
	return (struct nvtx_value){.base = v.base, .loads = v.loads, .disp = disp};
}

/* Forgets what a call may change. */
static void follow_call(struct reg_state *s)
{
	static const uint8_t preserved[] = {X86_RBX, X86_RSP, X86_RBP, X86_R12, X86_R13, X86_R14, X86_R15};
	struct reg_value reg[X86_REGISTERS];

	memcpy(reg, s->reg, sizeof(reg));
	for (int i = 0; i < X86_REGISTERS; i++)
		s->reg[i] = unknown;
	for (size_t i = 0; i < sizeof(preserved); i++)
		s->reg[preserved[i]] = reg[preserved[i]];
	s->stores = true;
	s->tested = TESTED_NONE;
}

/*
 * Finds the call of a check. *next: after the call, 0 when the call is the function's last. Values
 * are those at `site`.
 */
static int find_checked_call(struct decoder *decoder, const struct elf *elf, const struct pointer_check *check,
			     uint64_t site, struct reg_state *s, struct nvtx_arguments *out, uint64_t *next)
{
	const cs_x86_op *op = &decoder->insn->detail->x86.operands[0];
	uint64_t vaddr = check->other;
	struct flow_node node;
	struct reg_value callee;

	if (follow_to(decoder, elf, &vaddr, BEHIND_MAX, s, &node) ||
	    (node.kind != FLOW_CALL_INDIRECT && node.kind != FLOW_JUMP_INDIRECT))
		return -ENOENT;
	callee = operand(s, decoder->insn, op);
	/* The pointer, or its copy on the stack. */
	if (op->type != X86_OP_REG || (check->jump == site && !callee.loads && callee.base != check->pointer))
		return -ENOENT;
	out->value[0] = value_for(s->reg[X86_RDI], site);
	out->value[1] = value_for(s->reg[X86_RSI], site);
	out->stores = s->stores;
	*next = node.kind == FLOW_CALL_INDIRECT ? vaddr + node.size : 0;
	follow_call(s);
	return 0;
}

/* Does the code, when pointers are NULL, go from vaddr to that check before it does anything else? */
static bool comes_to(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, uint64_t jump)
{
	struct pointer_check check;
	struct reg_state s;

	for (int i = 0; i < 2 * NVTX_MERGED_MAX; i++) {
		state__begin(&s);
		if (find_check(decoder, elf, vaddr, &s, &check))
			return false;
		if (check.jump == jump)
			return true;
		vaddr = check.null;
	}
	return false;
}

/*
 * Finds calls of the same function that follow at once. The compiler knows that the pointer is
 * still NULL if it was, and jumps past these calls too; when it was not NULL, each call has a check
 * of its own.
 */
static void find_merged(struct decoder *decoder, const struct elf *elf, const struct pointer_check *first,
			uint64_t vaddr, struct reg_state *s, struct nvtx_code *out)
{
	for (int i = 0; i < 2 * NVTX_MERGED_MAX && vaddr; i++) {
		struct nvtx_arguments arguments;
		struct pointer_check check;

		if (find_check(decoder, elf, vaddr, s, &check) ||
		    find_checked_call(decoder, elf, &check, first->jump, s, &arguments, &vaddr))
			return;
		if (check.slot != first->slot || check.jump == first->jump)
			continue;
		if (comes_to(decoder, elf, first->null, check.jump))
			return;
		if (out->cnt == NVTX_MERGED_MAX)
			return;
		out->call[out->cnt++] = arguments;
	}
}

int nvtx_code__read(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, struct nvtx_code *out)
{
	struct pointer_check check;
	struct reg_state s;
	uint64_t next;
	int err;

	*out = (struct nvtx_code){0};
	state__begin(&s);
	err = find_check(decoder, elf, vaddr, &s, &check);
	if (err)
		return err;
	state__begin(&s);
	err = find_checked_call(decoder, elf, &check, check.jump, &s, &out->call[0], &next);
	if (err)
		return err;
	out->slot = check.slot;
	out->jump = check.jump;
	out->pointer = check.pointer;
	out->cnt = 1;
	find_merged(decoder, elf, &check, next, &s, out);
	return 0;
}
