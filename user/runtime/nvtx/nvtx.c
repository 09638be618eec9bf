// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Searches a file for NVTX. In: an opened ELF file. Out: places of probes. No state. */
#include "user/runtime/nvtx/nvtx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/functions.h"
#include "user/x86/insn.h"
#include "user/x86/sites.h"

#define NVTX_MERGED_MAX 4 /* calls that one jump skips, including the first */

/* Code that reads an NVTX pointer, and what it does with the pointer. */
struct nvtx_code {
	uint64_t slot; /* vaddr of the pointer */
	uint64_t jump; /* of the conditional jump */
	uint8_t pointer;
	uint8_t cnt;
	/*
	 * The call, and those calls of the same function that the jump also skips when the pointer
	 * is NULL.
	 */
	struct nvtx_arguments {
		struct nvtx_value value[2]; /* base NVTX_BASE_UNKNOWN: not known */
		bool stores;                /* the code writes memory between the jump and the call */
	} call[NVTX_MERGED_MAX];
};

#define NVTX_BASE_UNKNOWN 0xff

/*
 * Reads code of the form "load a pointer, compare it with NULL, jump, call it". Tracks registers as
 * values: what a register held at the start plus a number, the word at such an address, or a
 * constant. An instruction that is not understood makes a register unknown.
 */

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
static struct reg_value value_of_result(const struct reg_state *s, const cs_insn *insn)
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
static void apply_insn(struct reg_state *s, csh handle, const cs_insn *insn)
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
		first = value_of_result(s, insn);
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
		apply_insn(s, decoder->handle, decoder->insn);
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

/*
 * Follows the code from vaddr, where an instruction begins, straight to a conditional jump that
 * tests a pointer for NULL, and on to the call of the pointer. 0, or -ENOENT when the code has
 * another form.
 */
static int read_nvtx_code(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, struct nvtx_code *out)
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

static const char *const calls[NVTX__COUNT] = {
	[NVTX_PUSH_A] = "nvtxRangePushA",
	[NVTX_PUSH_W] = "nvtxRangePushW",
	[NVTX_PUSH_EX] = "nvtxRangePushEx",
	[NVTX_POP] = "nvtxRangePop",
	[NVTX_DOMAIN_PUSH_EX] = "nvtxDomainRangePushEx",
	[NVTX_DOMAIN_POP] = "nvtxDomainRangePop",
};

#define INIT        "_impl_init_v" /* suffix of the function to which a function's pointer leads at first */
#define GLOBALS     "nvtxGlobals_v"
#define TABLES_MAX  16         /* copies of the table in a file */
#define TABLE_BYTES (4 << 10)  /* of one table, when its size is not known */
#define SWEEP_MAX   (1 << 20)  /* bytes of code to decode to find where an instruction begins, */
#define SWEPT_MAX   (64 << 20) /* and in all */
#define NAMED_MAX   1024       /* functions of each kind: there are some dozens, but a file may claim millions */

/* An NVTX function under its own name. */
struct nvtx_function {
	enum nvtx_call call;
	uint64_t start, size;
};

/* A pointer in a table. */
struct nvtx_slot {
	enum nvtx_call call;
	uint64_t vaddr, init, init_size;
	bool init_reads; /* init reads the pointer itself, so its call does not come back to the same place */
};

struct vaddr_range {
	uint64_t start, size;
};

struct nvtx_search {
	const struct elf *elf;
	struct decoder decoder;
	struct array functions, inits; /* struct nvtx_function */
	struct array internal;         /* NVTX's own code, which is not a call by the program */
	struct array slots;            /* struct nvtx_slot */
	struct vaddr_range table[TABLES_MAX];
	size_t table_cnt;
	struct array *places;
	size_t *missed;
	uint64_t swept; /* bytes of code decoded */
};

static int call_of(const char *name, size_t size)
{
	for (int i = 0; i < NVTX__COUNT; i++)
		if (strlen(calls[i]) == size && !memcmp(calls[i], name, size))
			return i;
	return -1;
}

static bool covers_address(uint64_t start, uint64_t size, uint64_t vaddr)
{
	return vaddr >= start && vaddr - start < size;
}

static int add_nvtx_function(struct array *array, enum nvtx_call call, const struct elf_symbol *symbol)
{
	const struct nvtx_function *f = array->items;
	struct nvtx_function *new;

	for (size_t i = 0; i < array->cnt; i++)
		if (f[i].start == symbol->vaddr)
			return 0;
	if (array->cnt == NAMED_MAX)
		return 0;
	new = array__add(array, sizeof(*new));
	if (!new)
		return -ENOMEM;
	*new = (struct nvtx_function){call, symbol->vaddr, symbol->size};
	return 0;
}

static int add_symbol(const struct elf_symbol *symbol, void *ctx)
{
	struct nvtx_search *s = ctx;
	const char *init;
	struct vaddr_range *range;
	int call;

	if (strncmp(symbol->name, "nvtx", 4))
		return 0;
	if (!symbol->function) {
		if (!strncmp(symbol->name, GLOBALS, strlen(GLOBALS)) && s->table_cnt < TABLES_MAX)
			s->table[s->table_cnt++] = (struct vaddr_range){symbol->vaddr, symbol->size ?: TABLE_BYTES};
		return 0;
	}
	call = call_of(symbol->name, strlen(symbol->name));
	if (call >= 0)
		return add_nvtx_function(&s->functions, call, symbol);
	if (!strstr(symbol->name, "_v") || s->internal.cnt == NAMED_MAX)
		return 0;
	range = array__add(&s->internal, sizeof(*range));
	if (!range)
		return -ENOMEM;
	*range = (struct vaddr_range){symbol->vaddr, symbol->size};
	init = strstr(symbol->name, INIT);
	call = init ? call_of(symbol->name, init - symbol->name) : -1;
	return call >= 0 ? add_nvtx_function(&s->inits, call, symbol) : 0;
}

static const struct nvtx_slot *find_slot(const struct nvtx_search *s, uint64_t vaddr)
{
	const struct nvtx_slot *slot = s->slots.items;

	for (size_t i = 0; i < s->slots.cnt; i++)
		if (slot[i].vaddr == vaddr)
			return &slot[i];
	return NULL;
}

/* Adds the words of the tables that point at the functions to which the pointers lead at first. */
static int add_slots(struct nvtx_search *s)
{
	const struct nvtx_function *init = s->inits.items;

	for (size_t t = 0; t < s->table_cnt; t++) {
		uint64_t bytes = s->table[t].size < TABLE_BYTES ? s->table[t].size : TABLE_BYTES, value;

		for (uint64_t at = s->table[t].start; bytes >= 8; at += 8, bytes -= 8) {
			struct nvtx_slot *slot;

			if (find_slot(s, at) || elf__pointer(s->elf, at, &value) || !value)
				continue;
			for (size_t i = 0; i < s->inits.cnt; i++) {
				if (init[i].start != value)
					continue;
				slot = array__add(&s->slots, sizeof(*slot));
				if (!slot)
					return -ENOMEM;
				*slot = (struct nvtx_slot){init[i].call, at, value, init[i].size, false};
			}
		}
	}
	return 0;
}

static bool is_internal_code(const struct nvtx_search *s, uint64_t vaddr)
{
	const struct vaddr_range *range = s->internal.items;

	for (size_t i = 0; i < s->internal.cnt; i++)
		if (covers_address(range[i].start, range[i].size, vaddr))
			return true;
	return false;
}

/* ---- places ---- */

static bool is_known_value(struct nvtx_value value)
{
	return value.base != NVTX_BASE_UNKNOWN;
}

/*
 * Does BPF get all it needs? Attributes that the code writes after the jump are not yet there at
 * the jump.
 */
static bool is_complete(enum nvtx_call call, const struct nvtx_arguments *a)
{
	switch (call) {
	case NVTX_PUSH_A:
	case NVTX_PUSH_W:
	case NVTX_DOMAIN_POP:
		return is_known_value(a->value[0]);
	case NVTX_PUSH_EX:
		return is_known_value(a->value[0]) && !a->stores;
	case NVTX_DOMAIN_PUSH_EX:
		return is_known_value(a->value[0]) && is_known_value(a->value[1]) && !a->stores;
	default:
		return true;
	}
}

/* Adds `place` and its `more` places, one after the other. */
static int add_places(struct nvtx_search *s, const struct nvtx_place *place)
{
	struct nvtx_place *known = s->places->items;
	bool more = true;

	for (size_t i = 0; i < s->places->cnt; i++) {
		if (known[i].offset != place->offset)
			continue;
		/* One jump serves two functions, and which of them runs is not known there. */
		if (memcmp(&known[i].site, &place->site, sizeof(place->site)))
			known[i].site.call = NVTX__COUNT;
		return 0;
	}
	for (; more; place++) {
		known = array__add(s->places, sizeof(*known));
		if (!known)
			return -ENOMEM;
		*known = *place;
		more = place->site.more;
	}
	return 0;
}

static void drop_ambiguous(struct nvtx_search *s)
{
	struct nvtx_place *place = s->places->items;
	bool follows = false, drop = false;
	size_t cnt = 0;

	for (size_t i = 0; i < s->places->cnt; i++) {
		if (!follows) {
			drop = place[i].site.call == NVTX__COUNT;
			*s->missed += drop;
		}
		follows = place[i].site.more;
		if (!drop)
			place[cnt++] = place[i];
	}
	s->places->cnt = cnt;
}

static int add_checked_code(struct nvtx_search *s, enum nvtx_call call, uint64_t init, const struct nvtx_code *code)
{
	struct nvtx_place place[NVTX_MERGED_MAX] = {0};
	int64_t distance = (int64_t)(init - code->jump);
	uint64_t offset = 0;
	bool complete = elf__is_code(s->elf, code->jump) && !elf__offset(s->elf, code->jump, &offset) &&
			distance == (int32_t)distance;

	for (uint8_t i = 0; i < code->cnt; i++) {
		const struct nvtx_arguments *a = &code->call[i];

		complete = complete && is_complete(call, a);
		place[i] = (struct nvtx_place){
			.offset = offset,
			.site = {.call = call,
				 .pointer = code->pointer,
				 .more = i + 1 < code->cnt,
				 .init = i ? 0 : distance,
				 .argument = {a->value[0], a->value[1]}},
		};
	}
	if (complete)
		return add_places(s, place);
	++*s->missed;
	return 0;
}

/* Whether an instruction begins there, by decoding its function from the start. */
static bool begins_instruction(struct nvtx_search *s, uint64_t vaddr)
{
	struct function_range range;
	struct flow_node node;
	uint64_t at;

	if (functions__at(s->elf, vaddr, &range) || vaddr - range.start > SWEEP_MAX || s->swept > SWEPT_MAX)
		return false;
	s->swept += vaddr - range.start;
	for (at = range.start; at < vaddr; at += node.size) {
		decoder__node(&s->decoder, s->elf, at, SIZE_MAX, &node);
		if (node.kind == FLOW_BAD)
			return false;
	}
	return at == vaddr;
}

/* An instruction at vaddr seems to read, or take the address of, what lies at `target`. */
static int add_use(struct nvtx_search *s, uint64_t vaddr, uint64_t target)
{
	const struct nvtx_slot *slot = find_slot(s, target);
	struct nvtx_code code;
	bool in_table = false;

	for (size_t i = 0; i < s->table_cnt && !in_table; i++)
		in_table = covers_address(s->table[i].start, s->table[i].size, target);
	if (!slot && !in_table)
		return 0;
	for (size_t i = 0; i < s->slots.cnt; i++) {
		struct nvtx_slot *own = (struct nvtx_slot *)s->slots.items + i;

		if (covers_address(own->init, own->init_size, vaddr) && own->vaddr == target)
			own->init_reads = true;
	}
	if (is_internal_code(s, vaddr) || !begins_instruction(s, vaddr))
		return 0;
	if (read_nvtx_code(&s->decoder, s->elf, vaddr, &code)) {
		*s->missed += slot != NULL;
		return 0;
	}
	slot = find_slot(s, code.slot);
	return slot ? add_checked_code(s, slot->call, slot->init, &code) : 0;
}

/* mov or lea, of a 64-bit register, relative to %rip: REX.W, 8b or 8d, ModRM 00 reg 101, disp32. */
static int scan_code(struct nvtx_search *s, uint64_t start, const uint8_t *code, size_t size)
{
	int err = 0;

	for (size_t i = 0; i + 7 <= size && !err; i++) {
		int32_t disp;

		if ((code[i] & 0xfb) != 0x48 || (code[i + 1] & 0xf9) != 0x89 || !(code[i + 1] & 6) ||
		    code[i + 1] == 0x8f || (code[i + 2] & 0xc7) != 5)
			continue;
		memcpy(&disp, code + i + 3, sizeof(disp));
		err = add_use(s, start + i, start + i + 7 + disp);
	}
	return err;
}

static int add_uses(struct nvtx_search *s)
{
	uint64_t start, size;
	int err = 0;

	for (size_t n = 0; s->slots.cnt && !err && elf__code(s->elf, n, &start, &size); n++) {
		size_t have;
		const uint8_t *code = elf__bytes(s->elf, start, size, &have);

		if (code)
			err = scan_code(s, start, code, have);
	}
	return err;
}

/*
 * Clears `init` of the places whose init reads the pointer itself: such an init's call does not
 * come back to the same place.
 */
static void settle_inits(struct nvtx_search *s)
{
	struct nvtx_place *place = s->places->items;
	const struct nvtx_slot *slot = s->slots.items;
	uint64_t vaddr;

	for (size_t i = 0; i < s->places->cnt; i++)
		for (size_t k = 0; k < s->slots.cnt; k++)
			if (slot[k].init_reads && !elf__vaddr(s->elf, place[i].offset, &vaddr) &&
			    place[i].site.call == slot[k].call && vaddr + place[i].site.init == slot[k].init)
				place[i].site.init = 0;
}

static bool has_nvtx_place(const struct nvtx_search *s, const struct nvtx_function *f)
{
	const struct nvtx_place *place = s->places->items;
	uint64_t vaddr;

	for (size_t i = 0; i < s->places->cnt; i++)
		if (!elf__vaddr(s->elf, place[i].offset, &vaddr) && covers_address(f->start, f->size ?: 1, vaddr))
			return true;
	return false;
}

/* Adds the entry of a function of another form; its arguments are those at its entry. */
static int add_entry(struct nvtx_search *s, const struct nvtx_function *f)
{
	static const struct nvtx_value first = {.base = 7 /* %rdi */}, second = {.base = 6};
	struct nvtx_place place = {.site = {.call = f->call, .pointer = NVTX_BASE_NONE, .argument = {first, second}}};
	struct sites sites;

	if (sites__find(s->elf, f->start, f->size, SITES_STRICT, &sites)) {
		++*s->missed;
		return 0;
	}
	place.offset = sites.entry.offset;
	return add_places(s, &place);
}

/* Adds functions whose table has no symbol, or that are compiled in another form. */
static int add_stripped_functions(struct nvtx_search *s)
{
	const struct nvtx_function *f = s->functions.items;
	int err = 0;

	for (size_t i = 0; i < s->functions.cnt && !err; i++) {
		struct nvtx_code code;
		uint64_t init;

		if (has_nvtx_place(s, &f[i]))
			continue;
		if (!read_nvtx_code(&s->decoder, s->elf, f[i].start, &code) &&
		    !elf__pointer(s->elf, code.slot, &init) && elf__is_code(s->elf, init))
			err = add_checked_code(s, f[i].call, init, &code);
		else
			err = add_entry(s, &f[i]);
	}
	return err;
}

int nvtx__find(const struct elf *elf, struct array *places, size_t *missed)
{
	struct nvtx_search s = {.elf = elf, .places = places, .missed = missed};
	int err;

	*missed = 0;
	if (!elf__mentions(elf, "RangePop")) /* nvtxRangePop, nvtxDomainRangePop: most files have neither */
		return 0;
	err = elf__each_symbol(elf, add_symbol, &s);
	if (!err && (s.functions.cnt || s.inits.cnt)) {
		err = decoder__open(&s.decoder);
		if (!err) {
			err = add_slots(&s) ?: add_uses(&s);
			settle_inits(&s);
			err = err ?: add_stripped_functions(&s);
			drop_ambiguous(&s);
			decoder__close(&s.decoder);
		}
	}
	free(s.functions.items);
	free(s.inits.items);
	free(s.internal.items);
	free(s.slots.items);
	return err;
}

bool nvtx__is_internal(const char *path)
{
	/* libtorch_cpu has no ranges, and is large. */
	static const char *const files[] = {"libtorch_cuda", "libtorch_cpu", "libtorch_nvshmem", "libnccl",
					    "libnvshmem"};
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (!strncmp(base, files[i], strlen(files[i])))
			return true;
	return false;
}
