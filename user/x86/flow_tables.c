/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Jump tables: edges of indirect jumps. In: a flow that has all its nodes, and its ELF file. Out:
 * edges, and the addresses of data that the function refers to, both in the flow.
 * decoder__table_use() in insn.c knows the forms of the tables.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/x86/flow.h"
#include "user/x86/flow_private.h"
#include "user/x86/insn.h"

#define TABLE_ENTRIES_MAX 4096

/*
 * The base of the table that jump `at` reads: from the instruction, or from the nearest load of its
 * register before the jump. 0 when not found.
 */
static uint64_t table_base(const struct flow *flow, size_t at, size_t first, const struct table_use *use)
{
	if (!use->base_reg)
		return use->base;
	for (size_t i = at; i-- > first && at - i <= 32;) {
		if (flow->node[i].target_reg == use->base_reg)
			return flow->node[i].target;
	}
	return 0;
}

int flow__collect_data(struct flow *flow)
{
	uint64_t *grown = reallocarray(flow->data, flow->node_cnt + 1, sizeof(*grown));
	size_t cnt = 0;

	if (!grown)
		return -ENOMEM;
	flow->data = grown;
	for (size_t i = 0; i < flow->node_cnt; i++) {
		if (flow->node[i].target_reg)
			grown[cnt++] = flow->node[i].target;
	}
	qsort(grown, cnt, sizeof(*grown), compare__u64);
	flow->data_cnt = 0;
	for (size_t i = 0; i < cnt; i++) {
		if (!i || grown[i] != grown[i - 1])
			grown[flow->data_cnt++] = grown[i];
	}
	return 0;
}

/* True when another table, or anything else that this function refers to, begins at vaddr. */
static bool begins_data(const struct flow *flow, uint64_t vaddr)
{
	return bsearch(&vaddr, flow->data, flow->data_cnt, sizeof(*flow->data), compare__u64);
}

/*
 * Adds an edge for each entry of a table. The table is assumed to extend as far as its entries are
 * instructions of this function, or up to the next datum that the function refers to: surplus edges
 * do no harm, missing ones would. Returns how many, or -errno.
 */
static int read_jump_table(struct flow *flow, size_t at, enum table_form form, uint64_t base)
{
	size_t step = form == TABLE_ABSOLUTE ? 8 : 4, have;
	int cnt = 0;

	for (; cnt < TABLE_ENTRIES_MAX; cnt++) {
		uint64_t entry = base + cnt * step, target;
		int32_t distance;
		const uint8_t *bytes = elf__bytes(flow->elf, entry, 4, &have);

		if (cnt && begins_data(flow, entry))
			break;
		if (form == TABLE_RELATIVE) {
			if (!bytes || have < 4)
				break;
			memcpy(&distance, bytes, sizeof(distance));
			target = base + (int64_t)distance;
		} else if (elf__pointer(flow->elf, entry, &target)) {
			break;
		}
		const struct flow_node *node = flow__node_at(flow, target);
		if (!node)
			break;
		int err = flow__add_edge(flow, at, node - flow->node);
		if (err)
			return err;
	}
	return cnt;
}

int flow__link_table(struct flow *flow, struct decoder *decoder, size_t at)
{
	const struct flow_region *region = flow__region_of(flow, flow->node[at].vaddr);
	size_t first = region->index[0] - 1;
	struct table_use use;
	int cnt = 0;

	decoder__table_use(decoder, flow->elf, flow->node, at, first, &use);
	if (use.form == TABLE_NONE)
		return 0;
	uint64_t base = table_base(flow, at, first, &use);
	if (base)
		return read_jump_table(flow, at, use.form, base);
	for (size_t i = 0; i < flow->data_cnt; i++) {
		int ret = read_jump_table(flow, at, use.form, flow->data[i]);

		if (ret < 0)
			return ret;
		cnt += ret;
	}
	return cnt;
}
