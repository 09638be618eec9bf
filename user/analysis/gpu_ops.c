// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A call knows its innermost operator, and by its path the spans around it. */
#include "user/analysis/gpu_ops.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/kernel_name.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/model/stacks.h"

char *gpu_work__text(struct job *job, enum gpu_activity kind, enum gpu_direction direction, uint64_t name)
{
	static const char *const copies[GPU_DIRECTION__COUNT] = {
		[GPU_HTOD_DIRECTION] = "Memcpy HtoD",
		[GPU_DTOH_DIRECTION] = "Memcpy DtoH",
		[GPU_DTOD_DIRECTION] = "Memcpy DtoD",
		[GPU_HTOH_DIRECTION] = "Memcpy HtoH",
	};
	const char *text;

	if (kind == GPU_ACTIVITY_COPY)
		return strdup(direction < GPU_DIRECTION__COUNT && copies[direction] ? copies[direction] : "Memcpy");
	if (kind == GPU_ACTIVITY_SET)
		return strdup("Memset (Device)");
	if (!name)
		return strdup(kind == GPU_ACTIVITY_GRAPH ? "CUDA graph" : "(unknown)");
	text = job__name_or_lost(job, name);
	if (!text)
		return NULL;
	return kind == GPU_ACTIVITY_KERNEL ? kernel_name__for_people(text) : strdup(text);
}

/* ---- which calls count ---- */

/* By pid and start; they do not overlap. */
struct windows {
	struct rec_op_window *items; /* malloc'ed */
	size_t cnt;
};

static int compare_window(const void *a, const void *b)
{
	const struct rec_op_window *x = a, *y = b;

	return x->pid != y->pid ? COMPARE(x->pid, y->pid) : COMPARE(x->start_ns, y->start_ns);
}

static int list_windows(struct job *job, struct windows *out)
{
	const struct rec_op_window *windows = job__op_windows(job, &out->cnt);

	out->items = calloc(out->cnt + 1, sizeof(*out->items));
	if (!out->items)
		return -ENOMEM;
	for (size_t i = 0; i < out->cnt; i++)
		out->items[i] = windows[i];
	if (out->cnt)
		qsort(out->items, out->cnt, sizeof(*out->items), compare_window);
	return 0;
}

/* Whether operators of the process were counted then; where no window says so, always. */
static bool in_window(const struct windows *windows, uint32_t pid, uint64_t time_ns)
{
	const struct rec_op_window key = {.pid = pid, .start_ns = time_ns}, *last;
	size_t low = 0, high = windows->cnt;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_window(&windows->items[middle], &key) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	last = low ? &windows->items[low - 1] : NULL;
	if (last && last->pid == pid)
		return time_ns <= last->end_ns;
	return low == windows->cnt || windows->items[low].pid != pid;
}

/* ---- operators ---- */

struct making {
	struct job *job;
	struct gpu_ops *out;
	const struct gpu *gpu;
	const struct stacks *stacks;
	void *nodes; /* tree of struct gpu_op: keys of nodes among the rows */
};

static int compare_op(const void *a, const void *b)
{
	const struct gpu_op *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->kind != y->kind)
		return COMPARE(x->kind, y->kind);
	if (x->name != y->name)
		return COMPARE(x->name, y->name);
	return x->action != y->action ? COMPARE(x->action, y->action) : COMPARE(x->group, y->group);
}

static void merge_ops(struct making *m)
{
	struct gpu_op *ops = m->out->ops.items;
	size_t kept = 0;

	if (m->out->ops.cnt)
		qsort(ops, m->out->ops.cnt, sizeof(*ops), compare_op);
	for (size_t i = 0; i < m->out->ops.cnt; i++) {
		if (!kept || compare_op(&ops[kept - 1], &ops[i])) {
			ops[kept++] = ops[i];
			continue;
		}
		ops[kept - 1].self_ns = saturating__add(ops[kept - 1].self_ns, ops[i].self_ns);
		ops[kept - 1].total_ns = saturating__add(ops[kept - 1].total_ns, ops[i].total_ns);
	}
	m->out->ops.cnt = kept;
}

static int add_op(struct making *m, const struct gpu_op *op)
{
	struct gpu_op *slot;

	slot = array__add(&m->out->ops, sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	*slot = *op;
	return 0;
}

static bool is_row(uint32_t kind)
{
	return kind == SPAN_OP || kind == SPAN_EVALUATE || kind == SPAN_NODE || kind == SPAN_LABEL;
}

/*
 * A call whose only child has its own name, whatever its overload, is one with it in the table, under the caller's: a
 * path does not tell of other children, so that all are taken for the only one.
 */
static bool is_same(const struct making *m, const struct path_span *outer, const struct path_span *inner)
{
	const char *x, *y;
	size_t length;

	if (outer->kind != inner->kind || outer->name == inner->name)
		return outer->kind == inner->kind;
	x = outer->kind == SPAN_OP ? job__name(m->job, outer->name) : NULL;
	y = x ? job__name(m->job, inner->name) : NULL;
	length = x ? strcspn(x, ".") : 0;
	return y && length == strcspn(y, ".") && !memcmp(x, y, length);
}

/* The action of what is inside of a span: as span__action() in bpf/span.h has it. */
static uint64_t action_inside(const struct path_span *span, uint64_t action)
{
	if (span->kind == SPAN_ACTION || span->kind == SPAN_USER)
		return span->name;
	return span->kind == SPAN_BACKWARD && !action ? span->name : action;
}

/* Where work was asked for. */
struct place {
	uint32_t pid;
	uint32_t path; /* number; 0: not known, then op is */
	uint64_t op, action;
	uint64_t ns;
};

/* To all that is open in the path; by itself to the innermost of these. */
static int add_path(struct making *m, const struct place *place, const struct path *path)
{
	struct gpu_op op = {.pid = place->pid, .total_ns = place->ns};
	const struct path_span *outer = NULL;
	size_t first = m->out->ops.cnt;
	uint64_t action = 0;
	bool has_action = false;

	for (uint32_t i = 0; i < path->cnt; i++)
		has_action |= action_inside(&path->spans[i], 0) != 0;
	/* Nodes on the engine's threads belong to the action that backward was called in. */
	if (!has_action)
		action = place->action;
	for (uint32_t i = 0; i < path->cnt; i++) {
		const struct path_span *span = &path->spans[i];

		if (is_row(span->kind) && !(outer && is_same(m, outer, span))) {
			op.kind = span->kind;
			op.name = span->name;
			op.action = action;
			op.group = span->group;
			m->out->groups_told |= span->group != 0;
			if (add_op(m, &op))
				return -ENOMEM;
		}
		if (is_row(span->kind))
			outer = span;
		action = action_inside(span, action);
	}
	if (m->out->ops.cnt > first)
		((struct gpu_op *)m->out->ops.items)[m->out->ops.cnt - 1].self_ns = place->ns;
	return 0;
}

static int add_place(struct making *m, const struct place *place)
{
	struct gpu_op op = {.pid = place->pid,
			    .kind = SPAN_NODE,
			    .name = place->op,
			    .action = place->action,
			    .self_ns = place->ns,
			    .total_ns = place->ns};
	struct path path = stacks__path(m->stacks, place->path);

	if (place->path && path.known)
		return add_path(m, place, &path);
	if (!place->op)
		return 0;
	m->out->without_paths = true;
	if (!tfind(&op, &m->nodes, compare_op))
		op.kind = SPAN_OP;
	return add_op(m, &op);
}

static int compare_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->path != y->path)
		return COMPARE(x->path, y->path);
	return x->op != y->op ? COMPARE(x->op, y->op) : COMPARE(x->action, y->action);
}

/* There are many calls, and few places that they are made at. */
static int add_calls(struct making *m, const struct windows *windows)
{
	size_t cnt, kept = 0;
	const struct gpu_call *calls = gpu__calls(m->gpu, &cnt);
	struct place *places = calloc(cnt + 1, sizeof(*places)), *place = places;
	int err = places ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && places; i++)
		if (calls[i].device_ns && in_window(windows, calls[i].pid, calls[i].start_ns))
			*place++ = (struct place){calls[i].pid, calls[i].path, calls[i].op, calls[i].action,
						  calls[i].device_ns};
	cnt = place - places;
	if (cnt)
		qsort(places, cnt, sizeof(*places), compare_place);
	for (size_t i = 0; i < cnt; i++) {
		if (kept && !compare_place(&places[kept - 1], &places[i]))
			places[kept - 1].ns = saturating__add(places[kept - 1].ns, places[i].ns);
		else
			places[kept++] = places[i];
	}
	for (size_t i = 0; i < kept && !err; i++)
		err = add_place(m, &places[i]);
	free(places);
	return err;
}

/* An operator and a node may have one name; a node's row tells. */
static int find_nodes(struct making *m)
{
	size_t cnt;
	const struct op_row *rows = job__ops(m->job, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		struct gpu_op *op;

		if (rows[i].kind != SPAN_NODE)
			continue;
		op = malloc(sizeof(*op));
		if (!op)
			return -ENOMEM;
		*op = (struct gpu_op){
			.pid = rows[i].pid, .kind = SPAN_NODE, .name = rows[i].name_id, .action = rows[i].action_id};
		if (!tsearch(op, &m->nodes, compare_op) || *(struct gpu_op **)tfind(op, &m->nodes, compare_op) != op)
			free(op);
	}
	return 0;
}

/* ---- what GPUs did ---- */

/* A key of works: what they are told apart by. */
struct work_node {
	uint32_t pid, kind, direction;
	uint64_t name, action;
	size_t index; /* in works */
};

static int compare_work(const void *a, const void *b)
{
	const struct work_node *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->kind != y->kind)
		return COMPARE(x->kind, y->kind);
	if (x->direction != y->direction)
		return COMPARE(x->direction, y->direction);
	return x->name != y->name ? COMPARE(x->name, y->name) : COMPARE(x->action, y->action);
}

/* NULL: no memory. */
static struct gpu_work *find_work(struct making *m, void **tree, const struct work_node *key)
{
	struct work_node **found = tfind(key, tree, compare_work), *node;
	struct gpu_work *work;
	char **text;

	if (found)
		return &((struct gpu_work *)m->out->works.items)[(*found)->index];
	text = array__add(&m->out->texts, sizeof(*text));
	if (text)
		*text = gpu_work__text(m->job, key->kind, key->direction, key->name);
	node = text && *text ? malloc(sizeof(*node)) : NULL;
	work = node ? array__add(&m->out->works, sizeof(*work)) : NULL;
	if (!work || !tsearch(node, tree, compare_work)) {
		free(node);
		return NULL;
	}
	*node = *key;
	node->index = m->out->works.cnt - 1;
	*work = (struct gpu_work){.name = *text, .pid = key->pid, .kind = key->kind, .action = key->action};
	return work;
}

static int add_works(struct making *m, const struct windows *windows)
{
	size_t cnt;
	const struct gpu_act *activities = gpu__activities(m->gpu, &cnt);
	void *tree = NULL;
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct gpu_act *activity = &activities[i];
		const struct gpu_call *call = gpu__call_of(m->gpu, activity);
		struct work_node key = {.pid = activity->pid,
					.kind = activity->kind,
					.direction = activity->direction,
					.name = activity->name,
					.action = call ? call->action : 0};
		struct gpu_work *work;

		if (!gpu_act__is_work(activity) ||
		    !in_window(windows, activity->pid, call ? call->start_ns : activity->start_ns))
			continue;
		work = find_work(m, &tree, &key);
		if (!work) {
			err = -ENOMEM;
			break;
		}
		work->cnt++;
		work->total_ns = saturating__add(work->total_ns, activity->duration_ns);
	}
	tdestroy(tree, free);
	return err;
}

/* ---- together ---- */

int gpu_ops__new(struct job *job, struct gpu_ops *out)
{
	struct making m = {.job = job, .out = out, .gpu = job__gpu(job), .stacks = job__stacks(job)};
	struct windows windows;
	int err;

	*out = (struct gpu_ops){0};
	if (!m.gpu)
		return -ENOMEM;
	err = list_windows(job, &windows);
	if (!err)
		err = find_nodes(&m);
	if (!err)
		err = add_calls(&m, &windows);
	merge_ops(&m);
	tdestroy(m.nodes, free);
	if (!err)
		err = add_works(&m, &windows);
	free(windows.items);
	if (err)
		gpu_ops__release(out);
	return err;
}

void gpu_ops__release(struct gpu_ops *ops)
{
	for (size_t i = 0; i < ops->texts.cnt; i++)
		free(((char **)ops->texts.items)[i]);
	free(ops->texts.items);
	free(ops->works.items);
	free(ops->ops.items);
	*ops = (struct gpu_ops){0};
}

const struct gpu_op *gpu_ops__find(const struct gpu_ops *ops, const struct op_row *row)
{
	const struct gpu_op key = {.pid = row->pid,
				   .kind = row->kind,
				   .name = row->name_id,
				   .action = row->action_id,
				   .group = ops->groups_told ? row->group_id : 0};

	return ops->ops.cnt ? bsearch(&key, ops->ops.items, ops->ops.cnt, sizeof(key), compare_op) : NULL;
}
