/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The control flow graph of one native function: a node per instruction, edges, and the depth of
 * the stack pointer. One sweep decodes all code of the function's range, so no node begins inside
 * an instruction. The edges are a superset of those that the program can take. Code that no known
 * edge reaches (landing pads) stays in the graph, as nodes that something unknown may enter.
 */
#ifndef STEPFLAME_USER_X86_FLOW_H
#define STEPFLAME_USER_X86_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "user/elf/elf.h"
#include "user/x86/insn.h"

struct flow_edge {
	uint32_t from, to;
};

struct flow_region {
	uint64_t start, end;
	uint32_t *index; /* by byte from start: node + 1, or 0 inside an instruction */
};

#define FLOW_REGIONS_MAX 8

/* What the code of an outside range says about which function it belongs to. */
struct flow_scan {
	uint64_t start;    /* of the range; 0: none */
	size_t region_cnt; /* region_cnt of the flow at that time */
	bool back;         /* jumps into our ranges, after the entry */
	bool leaves;       /* may return, or jump elsewhere */
	bool foreign;      /* jumps into the middle of another function */
};

struct flow {
	const struct elf *elf;
	struct flow_node *node; /* node[0] is the entry; those of a region are in order and adjacent */
	size_t node_cnt, node_cap;
	struct flow_edge *edge;
	size_t edge_cnt, edge_cap;
	uint32_t *succ, *pred; /* neighbours; each node has its range in them; edges from inactive nodes are left out */
	struct flow_region region[FLOW_REGIONS_MAX];
	size_t region_cnt;
	struct flow_scan scan; /* the last one, cached: most outward jumps lead to one X.cold */
	uint64_t *data; /* addresses of data that the function loads, ascending: where tables may begin and must end */
	size_t data_cnt;
	bool sized;      /* the end of the function is known; else only reached code counts */
	bool unresolved; /* an indirect jump inside the function has unknown targets: edges are missing */
};

/*
 * size 0: the range comes from the unwind table or symbols, else it is cut at 64 KiB. 0, -ENOENT no
 * code there, -ENOTSUP not understood, -ENOMEM. Free with flow__free.
 */
int flow__new(const struct elf *elf, uint64_t vaddr, uint64_t size, struct flow **out);
void flow__free(struct flow *flow); /* accepts NULL */

static inline const struct flow_node *flow__successor(const struct flow *flow, const struct flow_node *node, uint32_t i)
{
	return &flow->node[flow->succ[node->succ + i]];
}

/*
 * The symbol that the PLT entry at vaddr leads to, "" when it leads to none, NULL when there is no
 * PLT entry.
 */
const char *flow__import(const struct elf *elf, uint64_t vaddr);

#endif
