// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A call records its innermost operator, and through its path the enclosing spans. */
#include "user/analysis/gpu/gpu_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/demangle.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
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
	return kind == GPU_ACTIVITY_KERNEL ? demangle__kernel(text) : strdup(text);
}

/* ---- which calls count ---- */

/* Sorted by pid and start; windows of a process do not overlap. */
struct windows {
	struct rec_op_window *items; /* malloc'ed */
	size_t cnt;
};

static int compare_window_start(const void *a, const void *b)
{
	const struct rec_op_window *x = a, *y = b;

	return x->pid != y->pid ? COMPARE(x->pid, y->pid) : COMPARE(x->start_ns, y->start_ns);
}

static int list_op_windows(struct job *job, struct windows *out)
{
	const struct rec_op_window *windows = job__op_windows(job, &out->cnt);

	out->items = calloc(out->cnt + 1, sizeof(*out->items));
	if (!out->items)
		return -ENOMEM;
	for (size_t i = 0; i < out->cnt; i++)
		out->items[i] = windows[i];
	if (out->cnt)
		qsort(out->items, out->cnt, sizeof(*out->items), compare_window_start);
	return 0;
}

/* Whether operators of the process were counted at that time; without windows, always. */
static bool in_window(const struct windows *windows, uint32_t pid, uint64_t time_ns)
{
	const struct rec_op_window key = {.pid = pid, .start_ns = time_ns}, *last;
	size_t low = SEARCH(i, 0, windows->cnt, compare_window_start(&windows->items[i], &key) <= 0);
	last = low ? &windows->items[low - 1] : NULL;
	if (last && last->pid == pid)
		return time_ns <= last->end_ns;
	return low == windows->cnt || windows->items[low].pid != pid;
}

/* ---- operators ---- */

struct gpu_ops_maker {
	struct job *job;
	struct gpu_ops *out;
	const struct gpu *gpu;
	const struct stacks *stacks;
	struct map nodes; /* struct op_key without groups: the keys of nodes among the rows */
};

static int count_op(struct gpu_ops_maker *m, const struct op_key *key, uint64_t self_ns, uint64_t total_ns)
{
	struct gpu_op *op = MAP_ADD(&m->out->ops, struct gpu_op, key);

	if (!op)
		return -ENOMEM;
	op->self_ns = saturating__add(op->self_ns, self_ns);
	op->total_ns = saturating__add(op->total_ns, total_ns);
	return 0;
}

static bool is_listed_row(uint32_t kind)
{
	return kind == SPAN_OP || kind == SPAN_EVALUATE || kind == SPAN_NODE || kind == SPAN_LABEL;
}

/*
 * The table merges a call whose only child has its own name, whatever its overload, with that
 * child, under the caller's name. A path does not show other children, so each child counts as the
 * only one.
 */
static bool merges_with_child(const struct gpu_ops_maker *m, const struct path_span *outer,
			      const struct path_span *inner)
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

/* The action of spans nested in a span, as span__action() in bpf/span.h defines it. */
static uint64_t action_inside(const struct path_span *span, uint64_t action)
{
	if (span->kind == SPAN_ACTION || span->kind == SPAN_USER)
		return span->name;
	return span->kind == SPAN_BACKWARD && !action ? span->name : action;
}

/* Where a call asked for work. */
struct call_place {
	struct call_place_key {
		uint32_t pid;
		uint32_t path; /* number; 0: not known, op is used instead */
		uint64_t op, action;
	} key;
	uint64_t ns;
};

/* Adds the total time to all open spans of the path, and the self time to the innermost. */
static int count_path(struct gpu_ops_maker *m, const struct call_place *place, const struct path *path)
{
	const struct path_span *outer = NULL;
	struct op_key key = {.pid = place->key.pid};
	uint64_t action = 0;
	bool has_action = false;

	for (uint32_t i = 0; i < path->cnt; i++)
		has_action |= action_inside(&path->spans[i], 0) != 0;
	/* Nodes on the engine's threads belong to the action that called backward. */
	if (!has_action)
		action = place->key.action;
	for (uint32_t i = 0; i < path->cnt; i++) {
		const struct path_span *span = &path->spans[i];

		if (is_listed_row(span->kind) && !(outer && merges_with_child(m, outer, span))) {
			key = (struct op_key){key.pid, span->kind, span->name, action, span->group};
			m->out->groups_known |= span->group != 0;
			if (count_op(m, &key, 0, place->ns))
				return -ENOMEM;
		}
		if (is_listed_row(span->kind))
			outer = span;
		action = action_inside(span, action);
	}
	return key.name ? count_op(m, &key, place->ns, 0) : 0;
}

static int count_place(struct gpu_ops_maker *m, const struct call_place *place)
{
	struct op_key key = {place->key.pid, SPAN_NODE, place->key.op, place->key.action, 0};
	struct path path = stacks__path(m->stacks, place->key.path);

	if (place->key.path && path.known)
		return count_path(m, place, &path);
	if (!place->key.op)
		return 0;
	m->out->without_paths = true;
	if (!MAP_FIND(&m->nodes, struct op_key, &key))
		key.kind = SPAN_OP;
	return count_op(m, &key, place->ns, place->ns);
}

/* Adds calls up by place first: calls are many, places few. */
static int count_calls_by_place(struct gpu_ops_maker *m, const struct windows *windows)
{
	size_t cnt;
	const struct gpu_call *calls = gpu__calls(m->gpu, &cnt);
	struct map places = {0};
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct call_place_key key = {calls[i].pid, calls[i].path, calls[i].op, calls[i].action};
		struct call_place *place;

		if (!calls[i].device_ns || !in_window(windows, calls[i].pid, calls[i].start_ns))
			continue;
		place = MAP_ADD(&places, struct call_place, &key);
		if (place)
			place->ns = saturating__add(place->ns, calls[i].device_ns);
		else
			err = -ENOMEM;
	}
	for (size_t i = 0; i < places.items.cnt && !err; i++)
		err = count_place(m, &((const struct call_place *)places.items.items)[i]);
	map__free(&places);
	return err;
}

/* An operator and a node may share a name; the row of a node tells which it is. */
static int find_nodes(struct gpu_ops_maker *m)
{
	size_t cnt;
	const struct op_row *rows = job__ops(m->job, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const struct op_key key = {rows[i].pid, SPAN_NODE, rows[i].name_id, rows[i].action_id, 0};

		if (rows[i].kind == SPAN_NODE && !MAP_ADD(&m->nodes, struct op_key, &key))
			return -ENOMEM;
	}
	return 0;
}

/* ---- what GPUs did ---- */

struct work_key {
	uint32_t pid, kind;
	uint64_t direction, name, action;
};

struct op_work {
	struct work_key key;
	size_t index; /* 1 + index in works */
};

/* NULL: no memory. */
static struct gpu_work *find_or_add_work(struct gpu_ops_maker *m, struct map *map, const struct work_key *key)
{
	struct op_work *known = MAP_ADD(map, struct op_work, key);
	struct gpu_work *work;
	char **text;

	if (known && known->index)
		return &((struct gpu_work *)m->out->works.items)[known->index - 1];
	text = known ? array__add(&m->out->texts, sizeof(*text)) : NULL;
	if (text)
		*text = gpu_work__text(m->job, key->kind, key->direction, key->name);
	work = text && *text ? array__add(&m->out->works, sizeof(*work)) : NULL;
	if (!work)
		return NULL;
	known->index = m->out->works.cnt;
	*work = (struct gpu_work){.name = *text, .pid = key->pid, .kind = key->kind, .action = key->action};
	return work;
}

static int add_gpu_works(struct gpu_ops_maker *m, const struct windows *windows)
{
	size_t cnt;
	const struct gpu_act *activities = gpu__activities(m->gpu, &cnt);
	struct map map = {0};
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct gpu_act *activity = &activities[i];
		const struct gpu_call *call = gpu__call_of(m->gpu, activity);
		const struct work_key key = {activity->pid, activity->kind, activity->direction, activity->name,
					     call ? call->action : 0};
		struct gpu_work *work;

		if (!gpu_act__is_work(activity) ||
		    !in_window(windows, activity->pid, call ? call->start_ns : activity->start_ns))
			continue;
		work = find_or_add_work(m, &map, &key);
		if (!work) {
			err = -ENOMEM;
			break;
		}
		work->cnt++;
		work->total_ns = saturating__add(work->total_ns, activity->duration_ns);
	}
	map__free(&map);
	return err;
}

/* ---- together ---- */

int gpu_ops__new(struct job *job, struct gpu_ops *out)
{
	struct gpu_ops_maker m = {.job = job, .out = out, .gpu = job__gpu(job), .stacks = job__stacks(job)};
	struct windows windows;
	int err;

	*out = (struct gpu_ops){0};
	if (!m.gpu)
		return -ENOMEM;
	err = list_op_windows(job, &windows);
	if (!err)
		err = find_nodes(&m);
	if (!err)
		err = count_calls_by_place(&m, &windows);
	map__free(&m.nodes);
	if (!err)
		err = add_gpu_works(&m, &windows);
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
	map__free(&ops->ops);
	*ops = (struct gpu_ops){0};
}

const struct gpu_op *gpu_ops__find(const struct gpu_ops *ops, const struct op_row *row)
{
	const struct op_key key = {row->pid, row->kind, row->name_id, row->action_id,
				   ops->groups_known ? (uint32_t)row->group_id : 0};

	return MAP_FIND(&ops->ops, struct gpu_op, &key);
}
