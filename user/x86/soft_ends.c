// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds soft ends on the control flow graph of a function. In: its place in an ELF file. Out:
 * sites. No state.
 */
#include "user/x86/soft_ends.h"

#include <stdlib.h>
#include <string.h>

#include "user/x86/flow.h"

#define BEHIND_CALL_MAX 6 /* instructions from a call to the branch that looks at what it returned */
#define TO_RETURN_MAX   24
#define CALLEES_MAX     4
#define TRIES_MAX       256
#define CALLEE_DEPTH    2

static bool is_work(const struct flow_node *node)
{
	return node->kind == FLOW_CALL || node->kind == FLOW_CALL_INDIRECT || node->kind == FLOW_JUMP_INDIRECT;
}

/* Does the node come straight after a call? */
static bool follows_call(const struct flow *flow, const struct flow_node *node)
{
	for (uint32_t i = 0; i < BEHIND_CALL_MAX; i++) {
		if (node->pred_cnt != 1 || node->root)
			return false;
		node = &flow->node[flow->pred[node->pred]];
		if (is_work(node))
			return true;
		if (node->kind != FLOW_PLAIN)
			return false;
	}
	return false;
}

/*
 * Walks all nodes that can follow a node. *returns: a return can be reached without a call on the
 * way. Returns whether no indirect call can be reached.
 */
static bool look_behind(const struct flow *flow, size_t from, uint8_t *seen, uint32_t *queue, bool *returns)
{
	enum { QUIET = 1, ANY = 2 }; /* reached without a call on the way; reached in any way */
	size_t cnt = 0;

	memset(seen, 0, flow->node_cnt);
	*returns = false;
	seen[from] = QUIET | ANY;
	queue[cnt++] = from;
	while (cnt) {
		const struct flow_node *node = &flow->node[queue[--cnt]];
		uint8_t how = seen[node - flow->node];

		if (node->kind == FLOW_CALL_INDIRECT || node->kind == FLOW_JUMP_INDIRECT)
			return false;
		if (node->kind == FLOW_RETURN && how & QUIET)
			*returns = true;
		if (is_work(node))
			how = ANY;
		for (uint32_t i = 0; i < node->succ_cnt; i++) {
			size_t to = flow__successor(flow, node, i) - flow->node;

			if ((seen[to] | how) == seen[to])
				continue;
			seen[to] |= how;
			queue[cnt++] = to;
		}
	}
	return true;
}

/* Does the function go straight to its own return after that call? */
static bool ends_after_call(const struct flow *flow, const struct flow_node *node)
{
	if (node->leaf)
		return true; /* a tail jump */
	for (uint32_t i = 0; i < TO_RETURN_MAX && node->succ_cnt == 1; i++) {
		node = flow__successor(flow, node, 0);
		if (node->kind == FLOW_RETURN)
			return true;
		if (node->leaf || is_work(node))
			return false;
	}
	return false;
}

static uint32_t find_soft_ends(const struct flow *flow, struct site *out)
{
	uint8_t *seen = malloc(flow->node_cnt);
	uint32_t *queue = calloc(2 * flow->node_cnt, sizeof(*queue)), cnt = 0, tries = 0;

	for (size_t i = 0; seen && queue && i < flow->node_cnt && cnt < SOFT_ENDS_MAX; i++) {
		const struct flow_node *node = &flow->node[i];
		bool returns;

		if ((node->kind != FLOW_BRANCH && node->kind != FLOW_JUMP) || !node->emulated || node->refused ||
		    node->leaf || !node->reached || !follows_call(flow, node) || tries++ >= TRIES_MAX)
			continue;
		if (!look_behind(flow, i, seen, queue, &returns) || !returns)
			continue;
		out[cnt] = (struct site){.depth = -1, .emulated = true};
		cnt += !elf__offset(flow->elf, node->vaddr, &out[cnt].offset);
	}
	free(seen);
	free(queue);
	return cnt;
}

static uint32_t find_end(const struct elf *elf, uint64_t vaddr, uint64_t size, uint32_t depth, struct site *out)
{
	struct flow *flow = NULL;
	uint32_t cnt, callees = 0;

	if (flow__new(elf, vaddr, size, &flow))
		return 0;
	cnt = flow->unresolved ? 0 : find_soft_ends(flow, out);
	for (size_t i = 0; !cnt && depth && i < flow->node_cnt && callees < CALLEES_MAX; i++) {
		const struct flow_node *node = &flow->node[i];

		if ((node->kind != FLOW_CALL && !(node->kind == FLOW_JUMP && node->leaf)) || !node->reached ||
		    !node->target || flow__import(elf, node->target) || !ends_after_call(flow, node))
			continue;
		callees++;
		cnt = find_end(elf, node->target, 0, depth - 1, out);
	}
	flow__free(flow);
	return cnt;
}

uint32_t soft_ends__find(const struct elf *elf, uint64_t vaddr, uint64_t size, struct site out[SOFT_ENDS_MAX])
{
	return find_end(elf, vaddr, size, CALLEE_DEPTH, out);
}

/*
 * The target in this file of a jump that leaves the function. A jump through memory counts as long
 * as the pointer there is the one that the file is loaded with. 0: not known, or in another file.
 */
static uint64_t jump_target(const struct elf *elf, const struct flow_node *node)
{
	uint64_t target;
	size_t have, at = 0;
	const uint8_t *b = elf__bytes(elf, node->vaddr, node->size, &have);
	int32_t disp;

	if (node->kind == FLOW_JUMP)
		return flow__import(elf, node->target) ? 0 : node->target;
	while (b && at < have && (b[at] == 0xf2 || b[at] == 0x3e)) /* bnd, notrack */
		at++;
	if (!b || at + 6 != have || b[at] != 0xff || b[at + 1] != 0x25)
		return 0;
	memcpy(&disp, b + at + 2, sizeof(disp));
	if (elf__pointer(elf, node->vaddr + node->size + (int64_t)disp, &target) || !elf__is_code(elf, target))
		return 0;
	return target;
}

static bool is_tail_jump(const struct flow_node *node)
{
	return node->leaf && (node->kind == FLOW_JUMP || node->kind == FLOW_JUMP_INDIRECT);
}

static const struct site *exit_at(const struct sites *sites, const struct elf *elf, uint64_t vaddr)
{
	uint64_t offset;

	for (uint32_t i = 0; i < sites->exit_cnt && !elf__offset(elf, vaddr, &offset); i++)
		if (sites->exit[i].offset == offset)
			return &sites->exit[i];
	return NULL;
}

enum sites_away sites__away(const struct elf *elf, uint64_t vaddr, uint64_t size, const struct sites *sites,
			    struct sites *there)
{
	enum sites_away away = SITES_HERE;
	struct flow *flow = NULL;
	const struct site *exit;
	uint64_t work = 0, target;

	there->exit_cnt = 0;
	if (flow__new(elf, vaddr, size, &flow))
		return SITES_HERE;
	for (size_t i = 0; i < flow->node_cnt && away != SITES_ELSEWHERE; i++) {
		const struct flow_node *node = &flow->node[i];

		if (!is_tail_jump(node) || !exit_at(sites, elf, node->vaddr))
			continue;
		target = jump_target(elf, node);
		work = away == SITES_HERE || work == target ? target : 0;
		away = target || node->kind == FLOW_JUMP ? SITES_AWAY : SITES_ELSEWHERE;
	}
	if (away == SITES_AWAY && work && sites__find(elf, work, 0, SITES_STRICT, there))
		there->exit_cnt = 0;
	/* Adds the returns that the function makes itself. */
	for (size_t i = 0; i < flow->node_cnt && there->exit_cnt && there->exit_cnt < SITES_MAX; i++) {
		exit = is_tail_jump(&flow->node[i]) ? NULL : exit_at(sites, elf, flow->node[i].vaddr);
		if (exit)
			there->exit[there->exit_cnt++] = *exit;
	}
	flow__free(flow);
	return away;
}
