/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Classifies jumps that leave a function's ranges: tail call, part of the function, or never taken.
 * In: a flow whose depths are traced, the unwind table and symbols. Out: a verdict and a range; the
 * flow does not change.
 */
#include <errno.h>

#include "user/elf/functions.h"
#include "user/x86/flow.h"
#include "user/x86/flow_private.h"
#include "user/x86/insn.h"

static int scan_part(struct flow *flow, struct decoder *decoder, const struct function_range *range)
{
	struct flow_scan *out = &flow->scan;

	if (range->end - range->start > SIZED_MAX)
		return -ENOTSUP;
	if (out->start == range->start && out->region_cnt == flow->region_cnt)
		return 0;
	*out = (struct flow_scan){.start = range->start, .region_cnt = flow->region_cnt};
	for (uint64_t vaddr = range->start; vaddr < range->end;) {
		struct function_range other;
		struct flow_node node;

		decoder__node(decoder, flow->elf, vaddr, range->end - vaddr, &node);
		vaddr += node.size;
		out->leaves |= node.kind == FLOW_RETURN || node.kind == FLOW_JUMP_INDIRECT || node.kind == FLOW_BAD;
		if ((node.kind != FLOW_JUMP && node.kind != FLOW_BRANCH) ||
		    (node.target >= range->start && node.target < range->end))
			continue;
		if (node.target != flow->node[0].vaddr && flow__region_of(flow, node.target)) {
			out->back = true;
			continue;
		}
		out->leaves = true;
		if (!functions__at(flow->elf, node.target, &other) && other.start != node.target)
			out->foreign = true;
	}
	return 0;
}

/*
 * Where a jump out of the ranges leads. A jump with a frame still on the stack cannot be a tail
 * call. Without a frame, the target range is a part when it jumps back behind our entry, or when a
 * symbol says so. A part begins with the frame that we have at the jump. When the range begins with
 * another frame, or jumps into another function, GCC left the jump behind a test that never fails
 * (an empty X.cold, whose address is that of whatever comes next).
 */
int flow__judge_outward(struct flow *flow, struct decoder *decoder, const struct flow_node *node,
			struct function_range *range, enum outward *out)
{
	bool framed = node->rsp != 0 && node->rsp != FLOW_UNKNOWN;
	const struct flow_scan *scan = &flow->scan;
	int err;

	*out = OUTWARD_TAIL;
	if (flow__import(flow->elf, node->target))
		return 0;
	if (functions__at(flow->elf, node->target, range))
		return framed ? -ENOTSUP : 0; /* nothing is known about the target */
	err = scan_part(flow, decoder, range);
	if (err)
		return framed ? err : 0;
	bool whole = node->target == range->start;
	bool other_frame = whole && range->frame >= 0 && node->rsp != FLOW_UNKNOWN && range->frame != node->rsp;

	if (scan->back)
		*out = OUTWARD_PART;
	else if (!scan->leaves || (framed && (scan->foreign || other_frame)))
		*out = OUTWARD_DEAD;
	else if (framed || (!whole && !scan->foreign) || (whole && elf__is_part(flow->elf, node->target)))
		*out = OUTWARD_PART;
	return 0;
}
