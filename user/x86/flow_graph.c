/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the regions and nodes of a flow by address, and adds edges. */
#include <errno.h>
#include <stdlib.h>

#include "user/x86/flow.h"
#include "user/x86/flow_private.h"

#define EDGES_MAX (1 << 21) /* an evaluation loop with computed gotos has some 100,000 */

struct flow_region *flow__region_of(struct flow *flow, uint64_t vaddr)
{
	for (size_t i = 0; i < flow->region_cnt; i++) {
		if (vaddr >= flow->region[i].start && vaddr < flow->region[i].end)
			return &flow->region[i];
	}
	return NULL;
}

struct flow_node *flow__node_at(struct flow *flow, uint64_t vaddr)
{
	const struct flow_region *region = flow__region_of(flow, vaddr);
	uint32_t index = region ? region->index[vaddr - region->start] : 0;

	return index ? &flow->node[index - 1] : NULL;
}

int flow__add_edge(struct flow *flow, size_t from, size_t to)
{
	if (flow->edge_cnt == EDGES_MAX)
		return -ENOTSUP;
	if (flow->edge_cnt == flow->edge_cap) {
		size_t cap = flow->edge_cap ? 2 * flow->edge_cap : 256;
		struct flow_edge *grown = reallocarray(flow->edge, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		flow->edge = grown;
		flow->edge_cap = cap;
	}
	flow->edge[flow->edge_cnt++] = (struct flow_edge){from, to};
	return 0;
}
