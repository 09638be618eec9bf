/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the files that build a struct flow: flow.c, flow_graph.c, flow_calls.c, flow_tables.c,
 * flow_outward.c. No other file includes this.
 */
#ifndef STEPFLAME_USER_X86_FLOW_PRIVATE_H
#define STEPFLAME_USER_X86_FLOW_PRIVATE_H

#include "user/elf/functions.h"
#include "user/x86/flow.h"
#include "user/x86/insn.h"

#define SIZED_MAX (1 << 20) /* bytes of a range; the largest evaluation loops are some 100 KiB */

/*
 * The region that covers vaddr, and the node that begins there; NULL when there is none. Both
 * pointers are valid until a region or node is added.
 */
struct flow_region *flow__region_of(struct flow *flow, uint64_t vaddr);
struct flow_node *flow__node_at(struct flow *flow, uint64_t vaddr);

/* From node[from] to node[to]. 0, -ENOMEM, or -ENOTSUP when there are too many. */
int flow__add_edge(struct flow *flow, size_t from, size_t to);

/*
 * Makes a call direct when it goes through the GOT slot of an import (-fno-plt) or through a PLT
 * entry, and marks calls of functions that are known not to return.
 */
void flow__settle_call(const struct elf *elf, struct flow_node *node);

/* Fills flow->data, which flow__link_table needs, from the nodes. 0 or -ENOMEM. */
int flow__collect_data(struct flow *flow);
/*
 * Adds the edges of the indirect jump node[at]: those of its own jump table, else of all tables
 * that the function refers to. Returns how many, or -errno.
 */
int flow__link_table(struct flow *flow, struct decoder *decoder, size_t at);

/* What an outside range is to this function. */
enum outward {
	OUTWARD_TAIL, /* another function */
	OUTWARD_PART, /* a part of this one */
	OUTWARD_DEAD, /* never returns here: it ends in calls that do not return, or the jump is never taken */
};

/*
 * Decides where the jump `node` leads; its target lies in no region. 0 or -errno. *range is set
 * unless *out is OUTWARD_TAIL.
 */
int flow__judge_outward(struct flow *flow, struct decoder *decoder, const struct flow_node *node,
			struct function_range *range, enum outward *out);

#endif
