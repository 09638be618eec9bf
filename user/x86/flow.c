// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Builds the control flow graph of a function. In: its range in an ELF file. Out: struct flow,
 * owned by the caller's thread.
 *
 *	add_region	sweeps a range into nodes: the function, then each part placed elsewhere (X.cold);
 *			classifies calls (settle_call)
 *	link_nodes	adds the edges of direct jumps, jump tables (link_table) and falling through
 *	trace_forward	marks the nodes that are reached, and traces the distance of %rsp to the return address
 *	settle_outward	decides the jumps that leave the ranges: tail calls, or parts to add (then links again)
 *	settle_roots	finds the active nodes: those that are reached, and those that only the unwinder enters
 *	trace_backward	traces %rsp from returns backward, where the forward trace lost it
 */
#include "user/x86/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/functions.h"
#include "user/lib/compare.h"
#include "user/x86/insn.h"

#define SIZED_MAX (1 << 20) /* bytes of a range; the largest evaluation loops are some 100 KiB */

/* What an outside range is to this function. */
enum outward {
	OUTWARD_TAIL, /* another function */
	OUTWARD_PART, /* a part of this one */
	OUTWARD_DEAD, /* never returns here: it ends in calls that do not return, or the jump is never taken */
};

/* ---- regions and nodes by address; edges ---- */

#define EDGES_MAX (1 << 21) /* an evaluation loop with computed gotos has some 100,000 */

/*
 * The region that covers vaddr, and the node that begins there; NULL when there is none. Both
 * pointers are valid until a region or node is added.
 */
static struct flow_region *region_of(struct flow *flow, uint64_t vaddr)
{
	for (size_t i = 0; i < flow->region_cnt; i++) {
		if (vaddr >= flow->region[i].start && vaddr < flow->region[i].end)
			return &flow->region[i];
	}
	return NULL;
}

static struct flow_node *node_at(struct flow *flow, uint64_t vaddr)
{
	const struct flow_region *region = region_of(flow, vaddr);
	uint32_t index = region ? region->index[vaddr - region->start] : 0;

	return index ? &flow->node[index - 1] : NULL;
}

/* From node[from] to node[to]. 0, -ENOMEM, or -ENOTSUP when there are too many. */
static int add_edge(struct flow *flow, size_t from, size_t to)
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

/* ---- calls, by the names of their targets: those that do not return, that only free memory, all others ---- */

/* Functions of other files that do not return, by symbol. */
static const char *const noreturn_names[] = {
	"__stack_chk_fail",
	"_Unwind_Resume",
	"__cxa_throw",
	"__cxa_rethrow",
	"__cxa_bad_cast",
	"__cxa_bad_typeid",
	"__cxa_throw_bad_array_new_length",
	"__cxa_pure_virtual",
	"__cxa_call_unexpected",
	"_ZSt9terminatev",
	"_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE",
	"__assert_fail",
	"__assert_perror_fail",
	"__chk_fail",
	"__fortify_fail",
	"__longjmp_chk",
	"abort",
	"exit",
	"_exit",
	"_Exit",
	"quick_exit",
	"longjmp",
	"_longjmp",
	"siglongjmp",
	"pthread_exit",
	"Py_FatalError",
	"_Py_FatalErrorFunc",
	"_Py_FatalErrorFormat",
};

/* The same for families of names: libstdc++'s std::__throw_*, c10's checks. */
static const char *const noreturn_prefixes[] = {
	"_ZSt16__throw_",
	"_ZSt17__throw_",
	"_ZSt18__throw_",
	"_ZSt19__throw_",
	"_ZSt20__throw_",
	"_ZSt21__throw_",
	"_ZSt22__throw_",
	"_ZSt23__throw_",
	"_ZSt24__throw_",
	"_ZSt25__throw_",
	"_ZSt28__throw_",
	"_ZSt29__throw_",
	"_ZN3c106detail14torchCheckFail",
	"_ZN3c106detail23torchInternalAssertFail",
};

/* Functions that only free memory: a caller's work is done before it calls them. */
static const char *const release_names[] = {
	"_Py_Dealloc", "_ZdlPv", "_ZdlPvm", "_ZdaPv", "free",
};

static bool is_release_name(const char *name)
{
	for (size_t i = 0; i < sizeof(release_names) / sizeof(*release_names); i++) {
		if (!strcmp(name, release_names[i]))
			return true;
	}
	return false;
}

static bool is_noreturn_name(const char *name)
{
	for (size_t i = 0; i < sizeof(noreturn_names) / sizeof(*noreturn_names); i++) {
		if (!strcmp(name, noreturn_names[i]))
			return true;
	}
	for (size_t i = 0; i < sizeof(noreturn_prefixes) / sizeof(*noreturn_prefixes); i++) {
		if (!strncmp(name, noreturn_prefixes[i], strlen(noreturn_prefixes[i])))
			return true;
	}
	return false;
}

/* A PLT entry: [endbr64] [bnd] jmp *slot(%rip). */
const char *flow__import(const struct elf *elf, uint64_t vaddr)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	size_t have, i = 0;
	const uint8_t *b = elf__bytes(elf, vaddr, 11, &have);
	int32_t disp;

	if (!b || have < 11)
		return NULL;
	if (!memcmp(b, endbr64, sizeof(endbr64)))
		i += sizeof(endbr64);
	if (b[i] == 0xf2)
		i++;
	if (b[i] != 0xff || b[i + 1] != 0x25 || i + 6 > have)
		return NULL;
	memcpy(&disp, b + i + 2, sizeof(disp));
	const char *name = elf__slot_symbol(elf, vaddr + i + 6 + (int64_t)disp);
	return name ? name : "";
}

/*
 * Makes a call direct when it goes through the GOT slot of an import (-fno-plt) or through a PLT
 * entry, and marks calls of functions that are known not to return.
 */
static void settle_call(const struct elf *elf, struct flow_node *node)
{
	size_t have;
	const uint8_t *b = elf__bytes(elf, node->vaddr, 6, &have);
	const char *name = NULL;
	int32_t disp;

	if (node->kind == FLOW_CALL) {
		name = flow__import(elf, node->target);
	} else if (b && have == 6 && b[0] == 0xff && b[1] == 0x15) {
		memcpy(&disp, b + 2, sizeof(disp));
		name = elf__slot_symbol(elf, node->vaddr + 6 + (int64_t)disp);
		if (name)
			node->kind = FLOW_CALL;
	}
	if (name && is_noreturn_name(name))
		node->kind = FLOW_CALL_NORETURN;
	else if (name ? is_release_name(name)
		      : node->kind == FLOW_CALL && node->target && node->target == elf__own_dealloc(elf))
		node->kind = FLOW_CALL_RELEASE;
}

/* ---- jump tables: edges of indirect jumps; decoder__table_use knows the forms of the tables ---- */

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

/* Fills flow->data, which link_table needs, from the nodes. 0 or -ENOMEM. */
static int collect_data(struct flow *flow)
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
		const struct flow_node *node = node_at(flow, target);
		if (!node)
			break;
		int err = add_edge(flow, at, node - flow->node);
		if (err)
			return err;
	}
	return cnt;
}

/*
 * Adds the edges of the indirect jump node[at]: those of its own jump table, else of all tables
 * that the function refers to. Returns how many, or -errno.
 */
static int link_table(struct flow *flow, struct decoder *decoder, size_t at)
{
	const struct flow_region *region = region_of(flow, flow->node[at].vaddr);
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

/* ---- jumps that leave a function's ranges: tail call, part of the function, or never taken ---- */

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
		if (node.target != flow->node[0].vaddr && region_of(flow, node.target)) {
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
static int judge_outward(struct flow *flow, struct decoder *decoder, const struct flow_node *node,
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
	struct flow_node *node = node_at(ctx, vaddr);

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
			settle_call(flow->elf, node);
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
	int err = collect_data(flow);

	flow->edge_cnt = 0;
	for (size_t i = 0; i < flow->node_cnt && !err; i++) {
		struct flow_node *node = &flow->node[i];
		uint64_t next = node->vaddr + node->size;

		node->leaf = node->kind == FLOW_RETURN || node->kind == FLOW_OUT;
		if (falls_through(node) && region_of(flow, node->vaddr) == region_of(flow, next)) {
			/* ranges of a damaged file may overlap */
			bool adjoins = i + 1 < flow->node_cnt && flow->node[i + 1].vaddr == next;

			err = adjoins ? add_edge(flow, i, i + 1) : -ENOTSUP;
		}
		if (!err && (node->kind == FLOW_JUMP || node->kind == FLOW_BRANCH) && region_of(flow, node->target)) {
			const struct flow_node *target = node_at(flow, node->target);

			err = target ? add_edge(flow, i, target - flow->node) : -ENOTSUP;
		}
		if (!err && node->kind == FLOW_JUMP_INDIRECT) {
			err = link_table(flow, decoder, i);
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
	return add_edge(flow, from, flow->node_cnt++);
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
		if ((node->kind != FLOW_JUMP && node->kind != FLOW_BRANCH) || region_of(flow, node->target))
			continue;
		err = judge_outward(flow, decoder, node, &range, &what);
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
