/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Builds the control flow graph of a function. In: its range in an ELF file. Out: struct flow,
 * owned by the caller's thread.
 *
 *	add_region	sweeps a range into nodes: the function, then each part placed elsewhere (X.cold);
 *			classifies calls: flow_calls.c
 *	link_nodes	adds the edges of direct jumps, jump tables (flow_tables.c) and falling through
 *	trace_forward	marks the nodes that are reached, and traces the distance of %rsp to the return address
 *	settle_outward	decides the jumps that leave the ranges: tail calls, or parts to add (then links again):
 *			flow_outward.c
 *	settle_roots	finds the active nodes: those that are reached, and those that only the unwinder enters
 *	trace_backward	traces %rsp from returns backward, where the forward trace lost it
 */
#include "user/x86/flow.h"

#include <errno.h>
#include <stdlib.h>

#include "user/elf/functions.h"
#include "user/x86/flow_private.h"
#include "user/x86/insn.h"

#define UNSIZED_MAX (64 << 10) /* bytes to decode when nothing says where a function ends */

static struct flow_node *grow_nodes(struct flow *flow)
{
	if (flow->node_cnt == flow->node_cap) {
		size_t cap = flow->node_cap ? 2 * flow->node_cap : 256;
		struct flow_node *grown = reallocarray(flow->node, cap, sizeof(*grown));

		if (!grown)
			return NULL;
		flow->node = grown;
		flow->node_cap = cap;
	}
	return &flow->node[flow->node_cnt];
}

static void mark_root(uint64_t vaddr, void *ctx)
{
	struct flow_node *node = flow__node_at(ctx, vaddr);

	if (node)
		node->root = true;
}

/* Decodes [start, end) to the last byte. */
static int add_region(struct flow *flow, struct decoder *decoder, const struct function_range *range)
{
	struct flow_region *region = &flow->region[flow->region_cnt];
	uint64_t vaddr = range->start;

	if (flow->region_cnt == FLOW_REGIONS_MAX || range->end - range->start > SIZED_MAX)
		return -ENOTSUP;
	region->start = range->start;
	region->end = range->end;
	region->index = calloc(range->end - range->start, sizeof(*region->index));
	if (!region->index)
		return -ENOMEM;
	flow->region_cnt++;
	while (vaddr < range->end) {
		struct flow_node *node = grow_nodes(flow);

		if (!node)
			return -ENOMEM;
		decoder__node(decoder, flow->elf, vaddr, range->end - vaddr, node);
		if (node->kind == FLOW_CALL || node->kind == FLOW_CALL_INDIRECT)
			flow__settle_call(flow->elf, node);
		region->index[vaddr - region->start] = ++flow->node_cnt;
		vaddr += node->size;
	}
	/* Without bounds, landing pads are of no use: only code that is reached counts. */
	return flow->sized ? functions__each_pad(flow->elf, range, mark_root, flow) : 0;
}

static bool falls_through(const struct flow_node *node)
{
	return node->kind == FLOW_PLAIN || node->kind == FLOW_BRANCH || node->kind == FLOW_CALL ||
	       node->kind == FLOW_CALL_INDIRECT || node->kind == FLOW_CALL_RELEASE;
}

/* Adds the edges inside the ranges. A branch into the middle of an instruction gives -ENOTSUP. */
static int link_nodes(struct flow *flow, struct decoder *decoder)
{
	int err = flow__collect_data(flow);

	flow->edge_cnt = 0;
	for (size_t i = 0; i < flow->node_cnt && !err; i++) {
		struct flow_node *node = &flow->node[i];
		uint64_t next = node->vaddr + node->size;

		node->leaf = node->kind == FLOW_RETURN || node->kind == FLOW_OUT;
		if (falls_through(node) && flow__region_of(flow, node->vaddr) == flow__region_of(flow, next)) {
			/* ranges of a damaged file may overlap */
			bool adjoins = i + 1 < flow->node_cnt && flow->node[i + 1].vaddr == next;

			err = adjoins ? flow__add_edge(flow, i, i + 1) : -ENOTSUP;
		}
		if (!err && (node->kind == FLOW_JUMP || node->kind == FLOW_BRANCH) &&
		    flow__region_of(flow, node->target)) {
			const struct flow_node *target = flow__node_at(flow, node->target);

			err = target ? flow__add_edge(flow, i, target - flow->node) : -ENOTSUP;
		}
		if (!err && node->kind == FLOW_JUMP_INDIRECT) {
			err = flow__link_table(flow, decoder, i);
			err = err < 0 ? err : 0;
		}
	}
	return err;
}

/*
 * Builds the succ and pred ranges from the edges; with `active_only`, without edges that leave
 * inactive nodes.
 */
static int index_edges(struct flow *flow, bool active_only)
{
	uint32_t *succ = reallocarray(flow->succ, flow->edge_cnt + 1, sizeof(*succ));
	uint32_t *pred = succ ? reallocarray(flow->pred, flow->edge_cnt + 1, sizeof(*pred)) : NULL;
	uint32_t succ_cnt = 0, pred_cnt = 0;

	if (succ)
		flow->succ = succ;
	if (!pred)
		return -ENOMEM;
	flow->pred = pred;
	for (size_t i = 0; i < flow->node_cnt; i++)
		flow->node[i].succ_cnt = flow->node[i].pred_cnt = 0;
	for (size_t i = 0; i < flow->edge_cnt; i++) {
		const struct flow_edge *edge = &flow->edge[i];

		if (active_only && !flow->node[edge->from].active)
			continue;
		flow->node[edge->from].succ_cnt++;
		flow->node[edge->to].pred_cnt++;
	}
	for (size_t i = 0; i < flow->node_cnt; i++) {
		struct flow_node *node = &flow->node[i];

		node->succ = succ_cnt;
		node->pred = pred_cnt;
		succ_cnt += node->succ_cnt;
		pred_cnt += node->pred_cnt;
		node->succ_cnt = node->pred_cnt = 0;
	}
	for (size_t i = 0; i < flow->edge_cnt; i++) {
		struct flow_node *from = &flow->node[flow->edge[i].from], *to = &flow->node[flow->edge[i].to];

		if (active_only && !from->active)
			continue;
		succ[from->succ + from->succ_cnt++] = to - flow->node;
		pred[to->pred + to->pred_cnt++] = from - flow->node;
	}
	return 0;
}

/* A stack of nodes to visit. Each node is pushed a bounded number of times. */
struct todo {
	uint32_t *node;
	size_t cnt, cap;
};

static int todo_push(struct todo *todo, uint32_t node)
{
	if (todo->cnt == todo->cap) {
		size_t cap = todo->cap ? 2 * todo->cap : 256;
		uint32_t *grown = reallocarray(todo->node, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		todo->node = grown;
		todo->cap = cap;
	}
	todo->node[todo->cnt++] = node;
	return 0;
}

static int32_t depth_after(int32_t depth, int64_t by)
{
	int64_t sum = depth + by;

	/* a larger distance is nonsense or hostile */
	return depth == FLOW_UNKNOWN || sum > (1 << 30) || sum < -(1 << 30) ? FLOW_UNKNOWN : (int32_t)sum;
}

static int32_t after_effect(const struct flow_node *node, uint8_t effect, int32_t self, int32_t arg)
{
	switch ((enum flow_effect)effect) {
	case FLOW_KEEPS:
		return self;
	case FLOW_ADDS:
		return depth_after(self, arg);
	case FLOW_FROM_RSP:
		return depth_after(node->rsp, arg);
	case FLOW_FROM_RBP:
		return depth_after(node->rbp, arg);
	default:
		return FLOW_UNKNOWN;
	}
}

/*
 * Merges the depth that another path brings: different depths become unknown. Returns whether it
 * changed.
 */
static bool join_depths(int32_t *known, int32_t brought)
{
	if (*known == brought || *known == FLOW_UNKNOWN)
		return false;
	*known = FLOW_UNKNOWN;
	return true;
}

/* Traces depths from the entry forward, and marks the nodes that are reached. */
static int trace_forward(struct flow *flow)
{
	struct todo todo = {0};
	int err = todo_push(&todo, 0);

	for (size_t i = 0; i < flow->node_cnt; i++) {
		flow->node[i].reached = false;
		flow->node[i].rsp = flow->node[i].rbp = FLOW_UNKNOWN;
	}
	flow->node[0].reached = true;
	flow->node[0].rsp = 0;
	while (!err && todo.cnt) {
		const struct flow_node *node = &flow->node[todo.node[--todo.cnt]];
		int32_t rsp = after_effect(node, node->rsp_effect, node->rsp, node->rsp_arg);
		int32_t rbp = after_effect(node, node->rbp_effect, node->rbp, node->rbp_arg);

		for (uint32_t s = 0; s < node->succ_cnt && !err; s++) {
			struct flow_node *to = &flow->node[flow->succ[node->succ + s]];
			bool changed = !to->reached;

			if (!to->reached) {
				to->reached = true;
				to->rsp = rsp;
				to->rbp = rbp;
			} else {
				changed |= join_depths(&to->rsp, rsp);
				changed |= join_depths(&to->rbp, rbp);
			}
			if (changed)
				err = todo_push(&todo, to - flow->node);
		}
	}
	free(todo.node);
	return err;
}

/*
 * Traces depths from returns backward, where the forward trace lost them (realigned stacks) or
 * never had them (landing pads): at a leaf, %rsp is at the slot of the return address.
 */
static int trace_backward(struct flow *flow)
{
	struct todo todo = {0};
	int err = 0;

	for (size_t i = 0; i < flow->node_cnt && !err; i++) {
		struct flow_node *node = &flow->node[i];

		if (node->active && node->leaf && node->rsp == FLOW_UNKNOWN)
			node->rsp = 0;
		if (node->active && node->rsp != FLOW_UNKNOWN)
			err = todo_push(&todo, i);
	}
	while (!err && todo.cnt) {
		const struct flow_node *node = &flow->node[todo.node[--todo.cnt]];

		for (uint32_t p = 0; p < node->pred_cnt && !err; p++) {
			struct flow_node *from = &flow->node[flow->pred[node->pred + p]];

			if (from->rsp != FLOW_UNKNOWN ||
			    (from->rsp_effect != FLOW_KEEPS && from->rsp_effect != FLOW_ADDS))
				continue;
			from->rsp = depth_after(node->rsp, -(int64_t)from->rsp_arg);
			if (from->rsp != FLOW_UNKNOWN)
				err = todo_push(&todo, from - flow->node);
		}
	}
	free(todo.node);
	return err;
}

/*
 * Adds a node for the exit edge of a conditional tail call. It must not stay an exit site, since it
 * is no instruction.
 */
static int add_way_out(struct flow *flow, size_t from)
{
	struct flow_node *node = grow_nodes(flow);

	if (!node)
		return -ENOMEM;
	*node = (struct flow_node){.vaddr = flow->node[from].vaddr,
				   .kind = FLOW_OUT,
				   .leaf = true,
				   .rsp = FLOW_UNKNOWN,
				   .rbp = FLOW_UNKNOWN};
	return flow__add_edge(flow, from, flow->node_cnt++);
}

/*
 * Decides every jump that leaves the ranges and is reached (every such jump, when the function's
 * end is known). *again: a part was added.
 */
static int settle_outward(struct flow *flow, struct decoder *decoder, bool *again)
{
	size_t cnt = flow->node_cnt;
	int err = 0;

	*again = false;
	for (size_t i = 0; i < cnt && !err && !*again; i++) {
		struct flow_node *node = &flow->node[i];
		struct function_range range;
		enum outward what;

		if (!node->reached && !flow->sized)
			continue;
		if (node->kind == FLOW_JUMP_INDIRECT && !node->succ_cnt) {
			/*
			 * With an empty frame it is a tail call; otherwise a jump table of an
			 * unknown form.
			 */
			node->leaf = node->rsp == 0;
			flow->unresolved |= node->rsp != 0;
			if (node->reached && node->rsp == FLOW_UNKNOWN)
				err = -ENOTSUP;
		}
		if ((node->kind != FLOW_JUMP && node->kind != FLOW_BRANCH) || flow__region_of(flow, node->target))
			continue;
		err = flow__judge_outward(flow, decoder, node, &range, &what);
		if (!err && what == OUTWARD_PART) {
			err = add_region(flow, decoder, &range);
			*again = true;
		} else if (!err && what == OUTWARD_TAIL && node->kind == FLOW_JUMP) {
			node->leaf = true;
		} else if (!err && what == OUTWARD_TAIL) {
			err = add_way_out(flow, i);
		}
	}
	return err;
}

/* A node is active when it is reached or, when the range is known, when it is code and not padding. */
static void find_active(struct flow *flow)
{
	for (size_t i = 0; i < flow->node_cnt; i++) {
		struct flow_node *node = &flow->node[i];

		node->active = node->reached || (node->kind == FLOW_OUT && node->pred_cnt) ||
			       (flow->sized && !node->padding && node->kind != FLOW_BAD && node->kind != FLOW_OUT);
	}
}

static int settle_roots(struct flow *flow)
{
	int err;

	find_active(flow);
	err = index_edges(flow, true);
	for (size_t i = 0; i < flow->node_cnt && !err; i++) {
		struct flow_node *node = &flow->node[i];

		if (node->active && !node->pred_cnt)
			node->root = true;
		if (node->reached && node->kind == FLOW_BAD)
			err = -ENOTSUP;
	}
	flow->node[0].root = true;
	return err;
}

static int build_flow(struct flow *flow, struct decoder *decoder, const struct function_range *range)
{
	bool again = true;
	int err = add_region(flow, decoder, range);

	while (!err && again) {
		flow->unresolved = false;
		err = link_nodes(flow, decoder);
		if (!err)
			err = index_edges(flow, false);
		if (!err)
			err = trace_forward(flow);
		if (!err)
			err = settle_outward(flow, decoder, &again);
	}
	if (!err)
		err = index_edges(flow, false);
	if (!err)
		err = trace_forward(flow);
	if (!err)
		err = settle_roots(flow);
	if (!err)
		err = trace_backward(flow);
	return err;
}

/* Sets the function's range: from the caller's size, the unwind table or symbols, else a guess. */
static void find_range(struct flow *flow, uint64_t vaddr, uint64_t size, struct function_range *range)
{
	struct function_range known = {0};
	size_t have;
	bool found = !functions__at(flow->elf, vaddr, &known) && known.start == vaddr;

	flow->sized = size || found;
	*range = (struct function_range){.start = vaddr, .lsda = found ? known.lsda : 0};
	if (!size)
		size = found ? known.end - vaddr : UNSIZED_MAX;
	elf__bytes(flow->elf, vaddr, size, &have);
	if (have < size && size != UNSIZED_MAX)
		flow->sized = false;
	range->end = vaddr + have;
}

int flow__new(const struct elf *elf, uint64_t vaddr, uint64_t size, struct flow **out)
{
	struct flow *flow;
	struct function_range range;
	struct decoder decoder;
	int err;

	if (!elf__is_code(elf, vaddr))
		return -ENOENT;
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return -ENOMEM;
	flow->elf = elf;
	err = decoder__open(&decoder);
	if (err)
		goto out;
	find_range(flow, vaddr, size, &range);
	err = build_flow(flow, &decoder, &range);
	decoder__close(&decoder);
out:
	if (err) {
		flow__free(flow);
		return err;
	}
	*out = flow;
	return 0;
}

void flow__free(struct flow *flow)
{
	if (!flow)
		return;
	for (size_t i = 0; i < flow->region_cnt; i++)
		free(flow->region[i].index);
	free(flow->node);
	free(flow->edge);
	free(flow->data);
	free(flow->succ);
	free(flow->pred);
	free(flow);
}
