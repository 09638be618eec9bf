/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The control flow of one native function: a node per instruction, edges, and where the stack pointer is.
 * All code of the function's range is decoded in one sweep, so that no node ever begins inside an instruction. Edges
 * are at least those that the program can take: code that no known edge reaches (landing pads) is kept, with nodes that
 * something unknown may enter.
 */
#ifndef STEPFLAME_USER_X86_FLOW_H
#define STEPFLAME_USER_X86_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "user/elf/elf.h"

#define FLOW_UNKNOWN INT32_MIN

enum flow_kind {
	FLOW_PLAIN,
	FLOW_JUMP,
	FLOW_BRANCH, /* conditional jump */
	FLOW_CALL,   /* of a known address or import */
	FLOW_CALL_INDIRECT,
	FLOW_CALL_NORETURN,
	FLOW_CALL_RELEASE, /* of a function that only gives memory back */
	FLOW_JUMP_INDIRECT,
	FLOW_RETURN,
	FLOW_TRAP, /* execution ends: ud2, hlt, int3 */
	FLOW_BAD,  /* does not decode */
	FLOW_OUT,  /* no instruction: the way out of a conditional tail call */
};

/* How an instruction changes %rsp or %rbp, as the distance down from the slot of the return address. */
enum flow_effect {
	FLOW_KEEPS,
	FLOW_ADDS,     /* itself + arg */
	FLOW_FROM_RSP, /* %rsp + arg */
	FLOW_FROM_RBP, /* %rbp + arg */
	FLOW_LOSES,    /* not known any more */
};

struct flow_node {
	uint64_t vaddr;
	/* of a jump, branch or call; for `lea x(%rip)` and constants that are addresses of data, that address */
	uint64_t target;
	uint8_t size;
	uint8_t kind;       /* enum flow_kind */
	uint8_t rsp_effect; /* enum flow_effect */
	uint8_t rbp_effect;
	int32_t rsp_arg, rbp_arg;
	uint16_t target_reg; /* register that receives a data address, by capstone's number */
	bool emulated;       /* by the kernel, under a uprobe */
	bool refused;        /* the kernel takes no uprobe here */
	bool padding;        /* a nop or int3 */
	bool leaf;           /* leaves the function: return, tail jump, FLOW_OUT */
	bool root;           /* entered by other ways than its predecessors: the entry, landing pads */
	bool reached;        /* from the entry by known edges */
	bool active;         /* takes part: reached, or may be entered by the unwinder */
	int32_t rsp, rbp;    /* bytes down from the return address's slot before it executes, or FLOW_UNKNOWN */
	uint32_t succ, succ_cnt, pred, pred_cnt; /* ranges of flow.succ and flow.pred */
};

struct flow_edge {
	uint32_t from, to;
};

struct flow_region {
	uint64_t start, end;
	uint32_t *index; /* by byte from start: node + 1, or 0 inside an instruction */
};

#define FLOW_REGIONS_MAX 8

/* What the code of a range outside says of whose it is. */
struct flow_scan {
	uint64_t start;    /* of the range; 0: none */
	size_t region_cnt; /* of the flow, at that time */
	bool back;         /* jumps into our ranges, behind the entry */
	bool leaves;       /* may return, or jump elsewhere */
	bool foreign;      /* jumps into the middle of another function */
};

struct flow {
	const struct elf *elf;
	struct flow_node *node; /* node[0] is the entry; those of a region are in order and adjacent */
	size_t node_cnt, node_cap;
	struct flow_edge *edge;
	size_t edge_cnt, edge_cap;
	uint32_t *succ, *pred; /* neighbours, by ranges in nodes; edges from inactive nodes are left out */
	struct flow_region region[FLOW_REGIONS_MAX];
	size_t region_cnt;
	struct flow_scan scan; /* the last: most jumps outward lead to one X.cold */
	uint64_t *data; /* addresses of data that the function loads, ascending: where tables may begin and must end */
	size_t data_cnt;
	bool sized;      /* the end of the function is known; else only what is reached counts */
	bool unresolved; /* an indirect jump inside the function has unknown targets: edges are missing */
};

/*
 * size 0: the range comes from the unwind table or symbols, else it is cut at 64 KiB.
 * 0, -ENOENT no code there, -ENOTSUP not understood, -ENOMEM. Free with flow__free.
 */
int flow__new(const struct elf *elf, uint64_t vaddr, uint64_t size, struct flow **out);
void flow__free(struct flow *flow); /* accepts NULL */

/* The symbol that the PLT entry at vaddr leads to, "" when it leads to none, NULL when there is no PLT entry. */
const char *flow__import(const struct elf *elf, uint64_t vaddr);

#endif
