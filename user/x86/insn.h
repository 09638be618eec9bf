/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decodes one x86-64 instruction, as far as control flow and probes need it. By capstone. */
#ifndef STEPFLAME_USER_X86_INSN_H
#define STEPFLAME_USER_X86_INSN_H

#include <capstone/capstone.h>

#include "user/elf/elf.h"
#include "user/x86/flow_node.h"

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

#endif
