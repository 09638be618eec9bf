/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decodes one x86-64 instruction, as far as control flow and probes need it, and names registers. By capstone. */
#ifndef STEPFLAME_USER_X86_INSN_H
#define STEPFLAME_USER_X86_INSN_H

#include <capstone/capstone.h>
#include <stdbool.h>
#include <stdint.h>

#include "user/elf/elf.h"

/* ---- an instruction as a node of the control flow graph ---- */

#define FLOW_UNKNOWN INT32_MIN

enum flow_kind {
	FLOW_PLAIN,
	FLOW_JUMP,
	FLOW_BRANCH, /* conditional jump */
	FLOW_CALL,   /* of a known address or import */
	FLOW_CALL_INDIRECT,
	FLOW_CALL_NORETURN,
	FLOW_CALL_RELEASE, /* of a function that only frees memory */
	FLOW_JUMP_INDIRECT,
	FLOW_RETURN,
	FLOW_TRAP, /* execution ends: ud2, hlt, int3 */
	FLOW_BAD,  /* does not decode */
	FLOW_OUT,  /* no instruction: the exit edge of a conditional tail call */
};

/*
 * How an instruction changes %rsp or %rbp, each as its distance below the slot of the return
 * address.
 */
enum flow_effect {
	FLOW_KEEPS,
	FLOW_ADDS,     /* itself + arg */
	FLOW_FROM_RSP, /* %rsp + arg */
	FLOW_FROM_RBP, /* %rbp + arg */
	FLOW_LOSES,    /* no longer known */
};

struct flow_node {
	uint64_t vaddr;
	/*
	 * target of a jump, branch or call; for `lea x(%rip)` and constants that are addresses of
	 * data, that address
	 */
	uint64_t target;
	uint8_t size;
	uint8_t kind;       /* enum flow_kind */
	uint8_t rsp_effect; /* enum flow_effect */
	uint8_t rbp_effect;
	int32_t rsp_arg, rbp_arg;
	uint16_t target_reg; /* register that receives a data address, by capstone's number */
	bool emulated;       /* the kernel emulates it under a uprobe */
	bool refused;        /* the kernel accepts no uprobe here */
	bool padding;        /* a nop or int3 */
	bool leaf;           /* leaves the function: return, tail jump, FLOW_OUT */
	bool root;           /* entered otherwise than from its predecessors: the entry, landing pads */
	bool reached;        /* from the entry by known edges */
	bool active;         /* part of the analysis: reached, or may be entered by the unwinder */
	int32_t rsp, rbp;    /* bytes down from the return address's slot before it executes, or FLOW_UNKNOWN */
	uint32_t succ, succ_cnt, pred, pred_cnt; /* ranges of flow.succ and flow.pred */
};

/* A disassembler, and memory for one instruction. */
struct decoder {
	csh handle;
	cs_insn *insn;
};

int decoder__open(struct decoder *decoder); /* 0 or -ENOMEM */
void decoder__close(struct decoder *decoder);

/*
 * Fills `node` with the instruction at vaddr; edges and depths stay as they are. An instruction
 * that does not decode becomes a FLOW_BAD of one byte.
 */
void decoder__node(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, size_t limit,
		   struct flow_node *node);

/*
 * Whether the node's instruction writes one of %rdi %rsi %rdx %rcx %r8 %r9, or any part of one.
 * True also when that is not known.
 */
bool decoder__writes_argument(struct decoder *decoder, const struct elf *elf, const struct flow_node *node);

/*
 * Updates which registers hold copies of the second argument: *holders has bit 0 for %rsi, and bit
 * r for enum saved_register r (include/probes.h). An instruction that is not understood clears all
 * bits.
 */
void decoder__follow_copies(struct decoder *decoder, const struct elf *elf, const struct flow_node *node,
			    uint32_t *holders);

enum table_form {
	TABLE_NONE,
	TABLE_ABSOLUTE, /* 8-byte addresses */
	TABLE_RELATIVE, /* 4-byte distances from the table's start */
};

/* How the target of an indirect jump is read from memory. */
struct table_use {
	enum table_form form;
	uint16_t base_reg; /* holds the table's address; 0: `base` is the address */
	uint64_t base;     /* the table's address, when base_reg is 0 */
};

/*
 * Finds which table the indirect jump `node[at]` reads, from the instructions before the jump.
 * `first` is the first node to look at.
 */
void decoder__table_use(struct decoder *decoder, const struct elf *elf, const struct flow_node *node, size_t at,
			size_t first, struct table_use *out);

/*
 * The general registers by their numbers in the instruction encoding, to index arrays of what each
 * register holds.
 */

enum {
	X86_RAX,
	X86_RCX,
	X86_RDX,
	X86_RBX,
	X86_RSP,
	X86_RBP,
	X86_RSI,
	X86_RDI,
	X86_R8,
	X86_R9,
	X86_R10,
	X86_R11,
	X86_R12,
	X86_R13,
	X86_R14,
	X86_R15,
	X86_REGISTERS
};

/*
 * The number of the general register that capstone's `reg` is, or is the low part of (for %ah, the
 * second byte). `least` is the smallest size in bytes: 8 asks for whole registers. -1 when `reg` is
 * smaller, or is not a general register.
 */
int regs__number(unsigned int reg, unsigned int least);

#endif
