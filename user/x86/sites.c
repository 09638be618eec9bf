// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Chooses probe sites on the control flow graph of a function. In: its place in an ELF file. Out:
 * struct sites. No state.
 *
 * Exit sites are the border of a set A of nodes "after the work". A holds every leaf (return or
 * tail jump), and with each node all nodes that follow it, so a path that entered A stays in A. If
 * each node of A has either all of its predecessors in A or none of them (and is not entered
 * otherwise), then every path passes exactly one of the nodes that have none: those are the sites.
 * A starts as the leaves, whose sites are single-stepped returns, and grows backward from them
 * until the border consists of instructions that the kernel emulates. A never takes in a call (by
 * policy), a cycle, or the prologue up to the entry site. Paths that reach no leaf (calls that do
 * not return) are ignored.
 */
#include "user/x86/sites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "include/probes.h"
#include "user/elf/functions.h"
#include "user/x86/flow.h"
#include "user/x86/insn.h"

#define LAST_CALL_MAX  24 /* instructions from a function's last call to its return */
#define ENTRY_SCAN_MAX 24 /* instructions; prologues are shorter, and arguments are soon overwritten */

/* The state of the growing border. Arrays are indexed by node. */
struct cut {
	const struct flow *flow;
	bool *live;      /* can reach a leaf */
	bool *permitted; /* may be in A: no call, prologue or cycle lies at the node or after it */
	bool *after;     /* A */
	uint32_t *added; /* nodes in the order in which A took them in, to undo a step */
	size_t added_cnt;
	size_t settled; /* how many of `added` have been processed */
	uint32_t *queue;
};

static const struct flow_node *predecessor(const struct flow *flow, const struct flow_node *node, uint32_t i)
{
	return &flow->node[flow->pred[node->pred + i]];
}

static bool is_call_node(const struct flow_node *node)
{
	return node->kind == FLOW_CALL || node->kind == FLOW_CALL_INDIRECT || node->kind == FLOW_CALL_NORETURN ||
	       node->kind == FLOW_CALL_RELEASE;
}

/*
 * Finds the entry site: an emulated instruction on the straight line from the entry, with no way
 * back to it and the arguments intact. Takes the first nop or jump, for which the kernel need not
 * write to the stack (this saves some 25 ns of 610), else the first emulated instruction. *site is
 * a node number.
 */
static int find_entry_site(const struct flow *flow, struct decoder *decoder, uint32_t *site)
{
	const struct flow_node *node = &flow->node[0];
	bool found = false;

	if (node->pred_cnt || node->refused)
		return -ENOTSUP; /* each way back to the entry would count as a call */
	if (node->leaf)
		return -ENOTSUP; /* nothing between entry and exit */
	*site = 0;
	for (uint32_t i = 0; i < ENTRY_SCAN_MAX && i < flow->node_cnt; i++) {
		node = &flow->node[i];
		if (i && (node->pred_cnt != 1 || node->vaddr != node[-1].vaddr + node[-1].size))
			break;
		if (node->leaf || is_call_node(node) || node->kind == FLOW_TRAP || node->kind == FLOW_BAD)
			break;
		if (node->emulated && (!found || node->rsp_effect == FLOW_KEEPS)) {
			*site = i;
			found = true;
			if (node->rsp_effect == FLOW_KEEPS)
				break;
		}
		if (node->kind != FLOW_PLAIN || decoder__writes_argument(decoder, flow->elf, node))
			break;
	}
	return 0;
}

static void find_live(struct cut *cut)
{
	const struct flow *flow = cut->flow;
	size_t cnt = 0;

	for (size_t i = 0; i < flow->node_cnt; i++) {
		if (!flow->node[i].active || !flow->node[i].leaf)
			continue;
		cut->live[i] = true;
		cut->queue[cnt++] = i;
	}
	while (cnt) {
		const struct flow_node *node = &flow->node[cut->queue[--cnt]];

		for (uint32_t p = 0; p < node->pred_cnt; p++) {
			size_t from = predecessor(flow, node, p) - flow->node;

			if (cut->live[from])
				continue;
			cut->live[from] = true;
			cut->queue[cnt++] = from;
		}
	}
}

static bool allowed(const struct cut *cut, size_t i, enum sites_policy policy, uint32_t entry)
{
	const struct flow_node *node = &cut->flow->node[i];

	if (i <= entry || node->kind == FLOW_CALL_INDIRECT || node->kind == FLOW_JUMP_INDIRECT)
		return false;
	return policy == SITES_AFTER_WORK || node->kind != FLOW_CALL;
}

/*
 * Peels nodes off the graph from the leaves, and so never reaches a node that lies in a cycle or
 * leads into one.
 */
static int find_permitted(struct cut *cut, enum sites_policy policy, uint32_t entry)
{
	const struct flow *flow = cut->flow;
	uint32_t *left = calloc(flow->node_cnt, sizeof(*left)); /* live successors not yet permitted */
	size_t cnt = 0;

	if (!left)
		return -ENOMEM;
	for (size_t i = 0; i < flow->node_cnt; i++) {
		const struct flow_node *node = &flow->node[i];

		if (!cut->live[i])
			continue;
		for (uint32_t s = 0; s < node->succ_cnt; s++)
			left[i] += cut->live[flow__successor(flow, node, s) - flow->node];
		if (node->leaf && !left[i]) {
			cut->permitted[i] = true;
			cut->queue[cnt++] = i;
		}
	}
	while (cnt) {
		const struct flow_node *node = &flow->node[cut->queue[--cnt]];

		for (uint32_t p = 0; p < node->pred_cnt; p++) {
			size_t from = predecessor(flow, node, p) - flow->node;

			if (--left[from] || !allowed(cut, from, policy, entry))
				continue;
			cut->permitted[from] = true;
			cut->queue[cnt++] = from;
		}
	}
	free(left);
	return 0;
}

static bool add_node(struct cut *cut, const struct flow_node *node)
{
	size_t i = node - cut->flow->node;

	if (cut->after[i])
		return true;
	if (!cut->permitted[i])
		return false;
	cut->after[i] = true;
	cut->added[cut->added_cnt++] = i;
	return true;
}

/* Whether a node of A has a predecessor in A, so that it is not a site. */
static bool is_inner(const struct cut *cut, const struct flow_node *node)
{
	for (uint32_t p = 0; p < node->pred_cnt; p++) {
		if (cut->after[predecessor(cut->flow, node, p) - cut->flow->node])
			return true;
	}
	return false;
}

/* Takes all predecessors of a node into A. Fails when the node is also entered otherwise. */
static bool add_preds(struct cut *cut, const struct flow_node *node)
{
	if (node->root || !node->pred_cnt)
		return false;
	for (uint32_t p = 0; p < node->pred_cnt; p++) {
		if (!add_node(cut, predecessor(cut->flow, node, p)))
			return false;
	}
	return true;
}

/*
 * Restores the invariant after nodes were added: A holds all that follows its nodes, and no node
 * has predecessors on both sides.
 */
static bool close_set(struct cut *cut)
{
	const struct flow *flow = cut->flow;

	while (cut->settled < cut->added_cnt) {
		const struct flow_node *node = &flow->node[cut->added[cut->settled++]];

		for (uint32_t s = 0; s < node->succ_cnt; s++) {
			const struct flow_node *succ = flow__successor(flow, node, s);

			if (!cut->live[succ - flow->node])
				continue;
			if (!add_node(cut, succ) || !add_preds(cut, succ))
				return false;
		}
		if (is_inner(cut, node) && !add_preds(cut, node))
			return false;
	}
	return true;
}

static bool may_exit_here(const struct flow_node *node)
{
	return node->emulated && !node->refused && node->kind != FLOW_OUT;
}

/*
 * Moves one site backward, together with all that must move with it, until all new sites are
 * emulated. Undoes the move when that is not possible.
 */
static bool push_back(struct cut *cut, uint32_t site)
{
	const struct flow *flow = cut->flow;
	size_t start = cut->added_cnt;
	bool ok = add_preds(cut, &flow->node[site]) && close_set(cut);

	for (size_t i = start; ok && i < cut->added_cnt; i++) {
		const struct flow_node *node = &flow->node[cut->added[i]];

		if (!is_inner(cut, node) && !may_exit_here(node))
			ok = add_preds(cut, node) && close_set(cut);
	}
	while (!ok && cut->added_cnt > start)
		cut->after[cut->added[--cut->added_cnt]] = false;
	cut->settled = cut->added_cnt;
	return ok;
}

static void place_site(const struct flow *flow, const struct flow_node *node, struct site *out)
{
	uint64_t offset = 0;

	elf__offset(flow->elf, node->vaddr, &offset); /* decoded from there, so it is there */
	*out = (struct site){
		.offset = offset,
		.depth = node->rsp == FLOW_UNKNOWN || node->rsp < 0 ? -1 : node->rsp,
		.emulated = may_exit_here(node),
	};
}

static int collect_sites(const struct cut *cut, struct sites *out)
{
	const struct flow *flow = cut->flow;

	for (size_t i = 0; i < flow->node_cnt; i++) {
		const struct flow_node *node = &flow->node[i];

		if (!cut->after[i] || is_inner(cut, node))
			continue;
		if (node->kind == FLOW_OUT || node->refused || out->exit_cnt == SITES_MAX)
			return -ENOTSUP;
		place_site(flow, node, &out->exit[out->exit_cnt++]);
	}
	return out->exit_cnt ? 0 : -ENOTSUP;
}

static int find_exits(struct cut *cut, enum sites_policy policy, uint32_t entry, struct sites *out)
{
	const struct flow *flow = cut->flow;
	size_t leaf_cnt;
	int err;

	find_live(cut);
	err = find_permitted(cut, policy, entry);
	if (err)
		return err;
	for (size_t i = 0; i < flow->node_cnt; i++) {
		if (flow->node[i].leaf && flow->node[i].active && !add_node(cut, &flow->node[i]))
			return -ENOTSUP; /* an emulated tail jump that may also go on */
	}
	cut->settled = leaf_cnt = cut->added_cnt;
	for (size_t i = 0; i < leaf_cnt && !flow->unresolved; i++) {
		uint32_t site = cut->added[i];

		if (!is_inner(cut, &flow->node[site]) && !may_exit_here(&flow->node[site]))
			push_back(cut, site);
	}
	return collect_sites(cut, out);
}

/*
 * The parts of a function that landing pads lie in or lead to: most often an X.cold, which is not
 * part of the flow when nothing returns from it.
 */
struct pad_parts {
	const struct flow *flow;
	struct function_range part[FLOW_REGIONS_MAX];
	size_t cnt;
};

static void add_pad_part(uint64_t pad, void *ctx)
{
	struct pad_parts *parts = ctx;
	struct function_range range;

	for (size_t i = 0; i < parts->cnt; i++)
		if (pad >= parts->part[i].start && pad < parts->part[i].end)
			return;
	if (parts->cnt < FLOW_REGIONS_MAX && !functions__at(parts->flow->elf, pad, &range))
		parts->part[parts->cnt++] = range;
}

/* A part may lead into another one. */
static bool is_known_unwind(const struct sites *sites, uint64_t offset)
{
	for (uint32_t i = 0; i < sites->unwind_cnt; i++)
		if (sites->unwind[i].offset == offset)
			return true;
	return false;
}

static void add_unwinds(const struct flow *flow, struct sites *out)
{
	for (size_t i = 0; i < flow->node_cnt && out->unwind_cnt < SITES_MAX; i++) {
		const struct flow_node *node = &flow->node[i];
		const char *import = node->kind == FLOW_CALL_NORETURN ? flow__import(flow->elf, node->target) : NULL;

		if (!import || strcmp(import, "_Unwind_Resume") || !may_exit_here(node))
			continue;
		place_site(flow, node, &out->unwind[out->unwind_cnt]);
		out->unwind_cnt += !is_known_unwind(out, out->unwind[out->unwind_cnt].offset);
	}
}

static void find_unwinds(const struct flow *flow, struct sites *out)
{
	struct pad_parts parts = {.flow = flow};
	struct function_range range;

	if (functions__at(flow->elf, flow->node[0].vaddr, &range) ||
	    functions__each_pad(flow->elf, &range, add_pad_part, &parts))
		return;
	for (size_t i = 0; i < flow->node_cnt; i++) {
		const struct flow_node *node = &flow->node[i];

		if ((node->kind == FLOW_JUMP || node->kind == FLOW_BRANCH) && !node->leaf &&
		    (node->target < range.start || node->target >= range.end))
			add_pad_part(node->target, &parts);
	}
	for (size_t i = 0; i < parts.cnt; i++) {
		const struct function_range *part = &parts.part[i];
		struct flow *cold = NULL;

		if (part->start == range.start) {
			add_unwinds(flow, out);
		} else if (!flow__new(flow->elf, part->start, part->end - part->start, &cold)) {
			uint32_t first = out->unwind_cnt;

			add_unwinds(cold, out);
			for (uint32_t k = first; k < out->unwind_cnt; k++)
				out->unwind[k].depth = -1; /* the part does not begin with an empty frame */
			flow__free(cold);
		}
	}
}

int sites__find(const struct elf *elf, uint64_t vaddr, uint64_t size, enum sites_policy policy, struct sites *out)
{
	struct flow *flow = NULL;
	struct cut cut = {0};
	struct decoder decoder;
	uint32_t entry;
	int err = flow__new(elf, vaddr, size, &flow);

	if (err)
		return err;
	cut.flow = flow;
	cut.live = calloc(flow->node_cnt, sizeof(*cut.live));
	cut.permitted = calloc(flow->node_cnt, sizeof(*cut.permitted));
	cut.after = calloc(flow->node_cnt, sizeof(*cut.after));
	cut.added = calloc(flow->node_cnt, sizeof(*cut.added));
	cut.queue = calloc(flow->node_cnt, sizeof(*cut.queue));
	err = -ENOMEM;
	if (!cut.live || !cut.permitted || !cut.after || !cut.added || !cut.queue)
		goto out;
	err = decoder__open(&decoder);
	if (err)
		goto out;
	memset(out, 0, sizeof(*out));
	err = flow->unresolved && !flow->sized ? -ENOTSUP : find_entry_site(flow, &decoder, &entry);
	decoder__close(&decoder);
	if (!err)
		err = find_exits(&cut, policy, entry, out);
	if (!err) {
		place_site(flow, &flow->node[entry], &out->entry);
		find_unwinds(flow, out);
	}
out:
	free(cut.live);
	free(cut.permitted);
	free(cut.after);
	free(cut.added);
	free(cut.queue);
	flow__free(flow);
	return err;
}

/* Does the function go straight to its own return after that call? */
static bool is_last_call(const struct flow *flow, const struct flow_node *node)
{
	if (node->leaf)
		return true; /* a tail jump */
	for (uint32_t i = 0; i < LAST_CALL_MAX && node->kind != FLOW_RETURN; i++) {
		if (node->leaf || node->succ_cnt != 1)
			return false;
		node = flow__successor(flow, node, 0);
		if (is_call_node(node))
			return false;
	}
	return node->kind == FLOW_RETURN;
}

/*
 * The callee-saved register that holds the second argument at that node, on the straight line from
 * the entry. 0 when no register is known to.
 */
static uint32_t find_second(const struct flow *flow, size_t at)
{
	uint32_t holders = 1; /* bit 0: %rsi */
	struct decoder decoder;

	if (flow->node[0].pred_cnt || decoder__open(&decoder))
		return SAVED_NONE;
	for (size_t i = 0; i < at && holders; i++) {
		const struct flow_node *node = &flow->node[i], *next = node + 1;

		if (is_call_node(node))
			holders &= ~1u;
		else
			decoder__follow_copies(&decoder, flow->elf, node, &holders);
		if (next->pred_cnt != 1 || next->root || next->vaddr != node->vaddr + node->size)
			holders = 0;
	}
	decoder__close(&decoder);
	holders &= ~1u;
	return holders ? __builtin_ctz(holders) : SAVED_NONE;
}

static int find_call_of(const struct elf *elf, uint64_t vaddr, uint64_t size, const char *callee, bool last,
			struct call_site *out)
{
	struct elf_symbol own = {0};
	struct flow *flow = NULL;
	int err = flow__new(elf, vaddr, size, &flow);

	if (err)
		return err;
	elf__symbol(elf, callee, &own);
	err = -ENOENT;
	for (size_t i = 0; i < flow->node_cnt && err != -ENOTUNIQ; i++) {
		const struct flow_node *node = &flow->node[i];
		const char *import;

		if (node->kind != FLOW_CALL && !(node->kind == FLOW_JUMP && node->leaf))
			continue;
		import = flow__import(elf, node->target);
		if (import ? strcmp(import, callee) != 0 : !own.vaddr || node->target != own.vaddr)
			continue;
		if (last && !is_last_call(flow, node))
			continue;
		if (err != -ENOENT) {
			err = -ENOTUNIQ;
			break;
		}
		err = may_exit_here(node) ? 0 : -ENOTSUP;
		place_site(flow, node, &out->site);
		out->second_in = find_second(flow, i);
	}
	flow__free(flow);
	return err;
}

int sites__find_call(const struct elf *elf, uint64_t vaddr, uint64_t size, const char *callee, struct call_site *out)
{
	return find_call_of(elf, vaddr, size, callee, false, out);
}

int sites__find_last_call(const struct elf *elf, uint64_t vaddr, uint64_t size, const char *callee,
			  struct call_site *out)
{
	return find_call_of(elf, vaddr, size, callee, true, out);
}

int sites__find_callee_frame(const struct elf *elf, uint64_t vaddr, uint64_t size)
{
	struct flow *flow = NULL;
	int err = flow__new(elf, vaddr, size, &flow), depth = -ENOENT;

	if (err)
		return err;
	for (size_t i = 0; i < flow->node_cnt && depth != -ENOTSUP && depth != -ENOTUNIQ; i++) {
		const struct flow_node *node = &flow->node[i];
		int own = node->rsp == FLOW_UNKNOWN || node->rsp < 0 ? -ENOTSUP : node->rsp + 8;

		if (node->kind == FLOW_CALL_INDIRECT && node->active)
			depth = depth == -ENOENT || depth == own ? own : -ENOTUNIQ;
	}
	flow__free(flow);
	return depth;
}

/* ---- soft ends ---- */

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
static bool search_behind(const struct flow *flow, size_t from, uint8_t *seen, uint32_t *queue, bool *returns)
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
		if (!search_behind(flow, i, seen, queue, &returns) || !returns)
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
