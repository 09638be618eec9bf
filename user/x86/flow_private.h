/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the files that build a struct flow share: flow.c, flow_calls.c, flow_tables.c, flow_outward.c. No other file
 * includes this.
 */
#ifndef STEPFLAME_USER_X86_FLOW_PRIVATE_H
#define STEPFLAME_USER_X86_FLOW_PRIVATE_H

#include "user/elf/functions.h"
#include "user/x86/flow.h"
#include "user/x86/insn.h"

#define SIZED_MAX (1 << 20) /* bytes of a range; the largest evaluation loops are some 100 KiB */

/*
 * The region that covers vaddr, and the node that begins there; NULL for none. Both hold until a region or node is
 * added.
 */
struct flow_region *flow__region_of(struct flow *flow, uint64_t vaddr);
struct flow_node *flow__node_at(struct flow *flow, uint64_t vaddr);

/* From node[from] to node[to]. 0, -ENOMEM, or -ENOTSUP when there are too many. */
int flow__add_edge(struct flow *flow, size_t from, size_t to);

/*
 * A call of an import through its GOT slot (-fno-plt), or of a PLT entry, is direct; of some it is known that they do
 * not return.
 */
void flow__settle_call(const struct elf *elf, struct flow_node *node);

/* Fills flow->data from the nodes: what flow__link_table needs. 0 or -ENOMEM. */
int flow__collect_data(struct flow *flow);
/*
 * Adds the edges of the indirect jump node[at]: its own table, else all tables that the function refers to. Returns how
 * many, or -errno.
 */
int flow__link_table(struct flow *flow, struct decoder *decoder, size_t at);

/* What a range outside is to this function. */
enum outward {
	OUTWARD_TAIL, /* another function */
	OUTWARD_PART, /* a part of this one */
	OUTWARD_DEAD, /* no way back from there: it ends in calls that do not return, or the jump is never taken */
};

/*
 * Where the jump `node`, whose target is in no region, leads. 0 or -errno. *range is set unless *out is OUTWARD_TAIL.
 */
int flow__judge_outward(struct flow *flow, struct decoder *decoder, const struct flow_node *node,
			struct function_range *range, enum outward *out);

#endif
