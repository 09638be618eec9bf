// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Decodes single instructions. In: bytes of an ELF file. Out: the fields of a flow_node that one
 * instruction determines. Instructions that the kernel emulates: arch/x86/kernel/uprobes.c,
 * branch_setup_xol_ops, push_setup_xol_ops; those that it refuses: is_prefix_bad.
 */
#include "user/x86/insn.h"

#include <capstone/capstone.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "include/probes.h"

#define PARTS 5

static const uint16_t names[X86_REGISTERS][PARTS] = {
	{X86_REG_RAX, X86_REG_EAX, X86_REG_AX, X86_REG_AL, X86_REG_AH},
	{X86_REG_RCX, X86_REG_ECX, X86_REG_CX, X86_REG_CL, X86_REG_CH},
	{X86_REG_RDX, X86_REG_EDX, X86_REG_DX, X86_REG_DL, X86_REG_DH},
	{X86_REG_RBX, X86_REG_EBX, X86_REG_BX, X86_REG_BL, X86_REG_BH},
	{X86_REG_RSP, X86_REG_ESP, X86_REG_SP, X86_REG_SPL},
	{X86_REG_RBP, X86_REG_EBP, X86_REG_BP, X86_REG_BPL},
	{X86_REG_RSI, X86_REG_ESI, X86_REG_SI, X86_REG_SIL},
	{X86_REG_RDI, X86_REG_EDI, X86_REG_DI, X86_REG_DIL},
	{X86_REG_R8, X86_REG_R8D, X86_REG_R8W, X86_REG_R8B},
	{X86_REG_R9, X86_REG_R9D, X86_REG_R9W, X86_REG_R9B},
	{X86_REG_R10, X86_REG_R10D, X86_REG_R10W, X86_REG_R10B},
	{X86_REG_R11, X86_REG_R11D, X86_REG_R11W, X86_REG_R11B},
	{X86_REG_R12, X86_REG_R12D, X86_REG_R12W, X86_REG_R12B},
	{X86_REG_R13, X86_REG_R13D, X86_REG_R13W, X86_REG_R13B},
	{X86_REG_R14, X86_REG_R14D, X86_REG_R14W, X86_REG_R14B},
	{X86_REG_R15, X86_REG_R15D, X86_REG_R15W, X86_REG_R15B},
};
static const uint8_t bytes[PARTS] = {8, 4, 2, 1, 1};

int regs__number(unsigned int reg, unsigned int least)
{
	for (int i = 0; i < X86_REGISTERS && reg != X86_REG_INVALID; i++)
		for (size_t k = 0; k < PARTS && bytes[k] >= least; k++)
			if (names[i][k] == reg)
				return i;
	return -1;
}

#define INSN_MAX       15
#define TABLE_LOOKBACK 16 /* instructions between the load of a table entry and its jump */

int decoder__open(struct decoder *decoder)
{
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &decoder->handle) != CS_ERR_OK)
		return -ENOMEM;
	cs_option(decoder->handle, CS_OPT_DETAIL, CS_OPT_ON);
	decoder->insn = cs_malloc(decoder->handle);
	if (!decoder->insn) {
		cs_close(&decoder->handle);
		return -ENOMEM;
	}
	return 0;
}

void decoder__close(struct decoder *decoder)
{
	cs_free(decoder->insn, 1);
	cs_close(&decoder->handle);
}

static bool decode_at(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, size_t limit)
{
	size_t have;
	const uint8_t *bytes = elf__bytes(elf, vaddr, limit < INSN_MAX ? limit : INSN_MAX, &have);
	uint64_t address = vaddr;

	return bytes && cs_disasm_iter(decoder->handle, &bytes, &have, &address, decoder->insn);
}

static bool is_prefix(uint8_t byte)
{
	return byte == 0x66 || byte == 0x67 || byte == 0xf2 || byte == 0xf3 || byte == 0x64 || byte == 0x65 ||
	       byte == 0x2e || byte == 0x36 || byte == 0x3e || byte == 0x26 || byte == 0xf0;
}

/* The kernel refuses a uprobe on an instruction with a lock, or an ES, CS, DS or SS prefix. */
static bool is_refused(const uint8_t *b, size_t size)
{
	for (size_t i = 0; i < size && is_prefix(b[i]); i++) {
		if (b[i] == 0xf0 || b[i] == 0x2e || b[i] == 0x36 || b[i] == 0x3e || b[i] == 0x26)
			return true;
	}
	return false;
}

/* The kernel compares with its own long nops (asm/nops.h) byte by byte. */
static bool is_kernel_nop(const uint8_t *b, size_t size)
{
	static const uint8_t nop[][9] = {
		{0x0f, 0x1f, 0x00}, {0x0f, 0x1f, 0x40}, {0x0f, 0x1f, 0x44},       {0x66, 0x0f, 0x1f, 0x44},
		{0x0f, 0x1f, 0x80}, {0x0f, 0x1f, 0x84}, {0x66, 0x0f, 0x1f, 0x84},
	};

	return size >= 3 && size <= 9 && !memcmp(b, nop[size - 3], size);
}

static bool is_emulated(const uint8_t *b, size_t size)
{
	bool operand_size = false;
	size_t i = 0;

	if ((size == 1 && b[0] >= 0x50 && b[0] <= 0x57) || (size == 2 && b[0] == 0x41 && b[1] >= 0x50 && b[1] <= 0x57))
		return true;
	if (is_refused(b, size))
		return false;
	if (is_kernel_nop(b, size))
		return true;
	for (; i < size && is_prefix(b[i]); i++)
		operand_size |= b[i] == 0x66;
	if (i < size && b[i] == 0x90)
		return true;
	if (operand_size || i == size)
		return false;
	if (b[i] == 0x0f)
		return i + 1 < size && b[i + 1] >= 0x80 && b[i + 1] <= 0x8f;
	return b[i] == 0xe8 || b[i] == 0xe9 || b[i] == 0xeb || (b[i] >= 0x70 && b[i] <= 0x7f);
}

static enum flow_kind flow_kind_of(const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;
	bool direct = x86->op_count == 1 && x86->operands[0].type == X86_OP_IMM;

	switch (insn->id) {
	case X86_INS_JMP:
		return direct ? FLOW_JUMP : FLOW_JUMP_INDIRECT;
	case X86_INS_LJMP:
		return FLOW_BAD;
	case X86_INS_CALL:
		return direct ? FLOW_CALL : FLOW_CALL_INDIRECT;
	case X86_INS_LCALL:
		return FLOW_CALL_INDIRECT;
	case X86_INS_RET:
	case X86_INS_RETF:
	case X86_INS_RETFQ:
	case X86_INS_IRET:
	case X86_INS_IRETD:
	case X86_INS_IRETQ:
	case X86_INS_SYSRET:
		return FLOW_RETURN;
	case X86_INS_UD0:
	case X86_INS_UD2:
	case X86_INS_UD2B:
	case X86_INS_HLT:
	case X86_INS_INT3:
		return FLOW_TRAP;
	case X86_INS_LOOP:
	case X86_INS_LOOPE:
	case X86_INS_LOOPNE:
	case X86_INS_XBEGIN:
		return FLOW_BRANCH;
	default:
		for (uint8_t i = 0; i < insn->detail->groups_count; i++) {
			if (insn->detail->groups[i] == X86_GRP_JUMP)
				return direct ? FLOW_BRANCH : FLOW_BAD;
		}
		return FLOW_PLAIN;
	}
}

/*
 * Whether the operands say that the instruction writes the register `number`, or a part of it.
 * capstone marks first operands that are only read (cmp, test, push).
 */
static bool writes_register(const cs_x86 *x86, int number)
{
	for (int i = 0; i < x86->op_count; i++) {
		const cs_x86_op *op = &x86->operands[i];

		if (op->type == X86_OP_REG && regs__number(op->reg, 1) == number && (op->access & CS_AC_WRITE))
			return true;
	}
	return false;
}

/*
 * Matches a `lea` or `mov` that sets a register to another one plus a constant: dst = src + *disp.
 * Returns false for other forms.
 */
static bool is_register_copy(const cs_insn *insn, unsigned *src, int64_t *disp)
{
	const cs_x86_op *op = &insn->detail->x86.operands[1];

	if (insn->detail->x86.op_count != 2 || insn->detail->x86.operands[0].size != 8)
		return false;
	if (insn->id == X86_INS_MOV && op->type == X86_OP_REG) {
		*src = op->reg;
		*disp = 0;
		return true;
	}
	if (insn->id != X86_INS_LEA || op->mem.index != X86_REG_INVALID || op->mem.segment != X86_REG_INVALID)
		return false;
	*src = op->mem.base;
	*disp = op->mem.disp;
	return true;
}

/*
 * The effect of an instruction that writes `own` (%rsp or %rbp) by operand. Depth grows as the
 * register falls; hence the signs.
 */
static void copy_effect(const cs_insn *insn, unsigned own, uint8_t *effect, int32_t *arg)
{
	const cs_x86_op *op = insn->detail->x86.operands;
	unsigned src;
	int64_t disp;

	*effect = FLOW_LOSES;
	if ((insn->id == X86_INS_SUB || insn->id == X86_INS_ADD) && op[0].reg == own && op[1].type == X86_OP_IMM &&
	    op[1].imm == (int32_t)op[1].imm && op[1].imm != INT32_MIN) {
		*effect = FLOW_ADDS;
		*arg = insn->id == X86_INS_SUB ? op[1].imm : -op[1].imm;
	} else if (is_register_copy(insn, &src, &disp) && op[0].reg == own && disp != INT32_MIN) {
		if (src == X86_REG_RSP)
			*effect = FLOW_FROM_RSP;
		else if (src == X86_REG_RBP)
			*effect = FLOW_FROM_RBP;
		*arg = -disp;
	}
}

static void stack_effects(const cs_insn *insn, struct flow_node *node)
{
	const cs_x86 *x86 = &insn->detail->x86;
	int size = x86->op_count ? x86->operands[0].size : 8;

	if (writes_register(x86, X86_RBP))
		copy_effect(insn, X86_REG_RBP, &node->rbp_effect, &node->rbp_arg);
	if (writes_register(x86, X86_RSP))
		copy_effect(insn, X86_REG_RSP, &node->rsp_effect, &node->rsp_arg);
	switch (insn->id) {
	case X86_INS_PUSH:
	case X86_INS_POP:
		if (node->rsp_effect != FLOW_KEEPS) { /* pop %rsp */
			node->rsp_effect = FLOW_LOSES;
			break;
		}
		/* An immediate is pushed as 8 bytes, whatever its own size. */
		if (x86->operands[0].type == X86_OP_IMM)
			size = x86->prefix[2] == 0x66 ? 2 : 8;
		node->rsp_effect = FLOW_ADDS;
		node->rsp_arg = insn->id == X86_INS_PUSH ? size : -size;
		break;
	case X86_INS_PUSHFQ:
	case X86_INS_POPFQ:
		node->rsp_effect = FLOW_ADDS;
		node->rsp_arg = insn->id == X86_INS_PUSHFQ ? 8 : -8;
		break;
	case X86_INS_LEAVE:
		node->rsp_effect = FLOW_FROM_RBP;
		node->rsp_arg = -8;
		node->rbp_effect = FLOW_LOSES;
		break;
	case X86_INS_PUSHF:
	case X86_INS_POPF:
	case X86_INS_ENTER:
		node->rsp_effect = FLOW_LOSES;
		node->rbp_effect = FLOW_LOSES;
		break;
	}
}

/* Records the address of data that a register receives: a candidate for a jump table's base. */
static void data_address(const cs_insn *insn, const struct elf *elf, struct flow_node *node)
{
	const cs_x86_op *op = insn->detail->x86.operands;
	size_t have;
	uint64_t address;

	if (insn->detail->x86.op_count != 2 || op[0].type != X86_OP_REG)
		return;
	if (insn->id == X86_INS_LEA && op[1].mem.base == X86_REG_RIP && op[1].mem.index == X86_REG_INVALID)
		address = insn->address + insn->size + op[1].mem.disp;
	else if ((insn->id == X86_INS_MOV || insn->id == X86_INS_MOVABS) && op[1].type == X86_OP_IMM && op[0].size >= 4)
		address = op[1].imm;
	else
		return;
	if (address < 4096 || elf__is_code(elf, address) || !elf__bytes(elf, address, 1, &have))
		return;
	node->target = address;
	node->target_reg = op[0].reg;
}

static bool is_padding(const cs_insn *insn)
{
	/* 66 90, "xchg %ax,%ax", is a nop to all disassemblers; int3 pads in some linkers' output. */
	return insn->id == X86_INS_NOP || insn->id == X86_INS_INT3;
}

void decoder__node(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, size_t limit, struct flow_node *node)
{
	const cs_insn *insn = decoder->insn;

	*node = (struct flow_node){
		.vaddr = vaddr, .size = 1, .kind = FLOW_BAD, .rsp = FLOW_UNKNOWN, .rbp = FLOW_UNKNOWN};
	if (!decode_at(decoder, elf, vaddr, limit))
		return;
	node->size = insn->size;
	node->kind = flow_kind_of(insn);
	node->emulated = is_emulated(insn->bytes, insn->size);
	node->refused = is_refused(insn->bytes, insn->size);
	node->padding = is_padding(insn);
	node->leaf = node->kind == FLOW_RETURN;
	if (node->kind == FLOW_JUMP || node->kind == FLOW_BRANCH || node->kind == FLOW_CALL)
		node->target = insn->detail->x86.operands[0].imm;
	if (node->kind != FLOW_PLAIN)
		return;
	stack_effects(insn, node);
	data_address(insn, elf, node);
}

static bool is_argument(unsigned reg)
{
	int number = regs__number(reg, 1);

	return number == X86_RDI || number == X86_RSI || number == X86_RDX || number == X86_RCX || number == X86_R8 ||
	       number == X86_R9;
}

bool decoder__writes_argument(struct decoder *decoder, const struct elf *elf, const struct flow_node *node)
{
	cs_regs read, written;
	uint8_t read_cnt, written_cnt;

	if (!decode_at(decoder, elf, node->vaddr, node->size) ||
	    cs_regs_access(decoder->handle, decoder->insn, read, &read_cnt, written, &written_cnt) != CS_ERR_OK)
		return true;
	for (uint8_t i = 0; i < written_cnt; i++) {
		if (is_argument(written[i]))
			return true;
	}
	return false;
}

/*
 * Index of the register that `reg` is, or is a part of: 0 for %rsi, else enum saved_register; -1
 * for others.
 */
static int holder_of(unsigned reg)
{
	static const int8_t holders[X86_REGISTERS] = {-1, -1, -1, SAVED_RBX, -1,        SAVED_RBP, 0,        -1, -1,
						      -1, -1, -1, SAVED_R12, SAVED_R13, SAVED_R14, SAVED_R15};
	int number = regs__number(reg, 1);

	return number >= 0 ? holders[number] : -1;
}

void decoder__follow_copies(struct decoder *decoder, const struct elf *elf, const struct flow_node *node,
			    uint32_t *holders)
{
	const cs_insn *insn = decoder->insn;
	cs_regs read, written;
	uint8_t read_cnt, written_cnt;
	int64_t disp;
	unsigned src;
	bool copy;

	if (!decode_at(decoder, elf, node->vaddr, node->size) ||
	    cs_regs_access(decoder->handle, insn, read, &read_cnt, written, &written_cnt) != CS_ERR_OK) {
		*holders = 0;
		return;
	}
	copy = insn->id == X86_INS_MOV && is_register_copy(insn, &src, &disp) && holder_of(src) >= 0 &&
	       *holders >> holder_of(src) & 1;
	for (uint8_t i = 0; i < written_cnt; i++) {
		int to = holder_of(written[i]);

		if (to >= 0)
			*holders = copy ? *holders | 1u << to : *holders & ~(1u << to);
	}
}

/*
 * Reads the table's form from a memory operand: an array of 8-byte pointers, or of 4-byte
 * distances.
 */
static void use_of_memory(const cs_insn *insn, const cs_x86_op *op, enum table_form form, struct table_use *out)
{
	out->form = form;
	if (op->mem.base == X86_REG_INVALID)
		out->base = (uint64_t)op->mem.disp;
	else if (op->mem.base == X86_REG_RIP)
		out->base = insn->address + insn->size + op->mem.disp;
	else
		out->base_reg = op->mem.base;
}

static bool is_scaled(const cs_x86_op *op, int scale)
{
	return op->type == X86_OP_MEM && op->mem.index != X86_REG_INVALID && op->mem.scale == scale &&
	       op->mem.segment == X86_REG_INVALID;
}

/*
 * GCC and Clang write: jmp *table(,%idx,8); or mov (%table,%idx,8),%r; jmp *%r; or movslq
 * (%table,%idx,4),%r; add %table,%r; jmp *%r. A jump reads a table when one of these loads precedes
 * it. The range check is not needed; see read_jump_table() in flow.c.
 */
void decoder__table_use(struct decoder *decoder, const struct elf *elf, const struct flow_node *node, size_t at,
			size_t first, struct table_use *out)
{
	const cs_insn *insn = decoder->insn;
	const cs_x86_op *op = insn->detail->x86.operands;
	unsigned reg;

	*out = (struct table_use){0};
	if (!decode_at(decoder, elf, node[at].vaddr, node[at].size))
		return;
	if (op[0].type == X86_OP_MEM) {
		if (is_scaled(&op[0], 8))
			use_of_memory(insn, &op[0], TABLE_ABSOLUTE, out);
		return;
	}
	reg = op[0].reg;
	for (size_t i = at; i-- > first && at - i <= TABLE_LOOKBACK;) {
		if (!decode_at(decoder, elf, node[i].vaddr, node[i].size))
			return;
		if (insn->detail->x86.op_count != 2 || op[0].type != X86_OP_REG)
			continue;
		if (insn->id == X86_INS_MOVSXD && is_scaled(&op[1], 4)) {
			use_of_memory(insn, &op[1], TABLE_RELATIVE, out);
			return;
		}
		if (insn->id == X86_INS_MOV && op[0].reg == reg) {
			if (is_scaled(&op[1], 8))
				use_of_memory(insn, &op[1], TABLE_ABSOLUTE, out);
			return;
		}
	}
}
