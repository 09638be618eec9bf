// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Nodes are numbered by {parent, frame}, and frames by their content; both through numbered keys
 * (intern.h).
 */
#include "user/analysis/flame/calltree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/gpu/gpu_ops.h"
#include "user/analysis/place/place.h"
#include "user/lib/saturating.h"
#include "user/model/labels.h"
#include "user/model/stacks.h"

struct calltree {
	struct job *job;
	const struct stacks *stacks;
	const struct steps *steps; /* NULL: the tree starts with process and thread */
	bool native;
	struct intern node_keys, frame_keys, function_keys, symbols;
	struct intern bases;  /* {thread or phase, stack} */
	struct intern wakers; /* {pid, tid} */
	struct array nodes, frames;
	struct array base_nodes; /* uint32_t by base: the node of the innermost Python frame; 0: not built yet */
	struct array made;       /* char *, owned: names that the job does not own */
};

/* Kind, number and line in one key. */
#define KIND_SHIFT   60
#define NUMBER_SHIFT 32
#define NUMBER_MAX   ((1u << (KIND_SHIFT - NUMBER_SHIFT)) - 1)

static const char *calltree__own_text(struct calltree *tree, char *text)
{
	char **slot = text ? array__add(&tree->made, sizeof(*slot)) : NULL;

	if (!slot) {
		free(text);
		return NULL;
	}
	*slot = text;
	return text;
}

static char *process_name(const struct job *job, uint32_t pid)
{
	const struct rec_target *target = job__target(job, pid);
	char rank[32] = "", *name;

	if (!target)
		return asprintf(&name, "pid %u", pid) < 0 ? NULL : name;
	if (target->rank >= 0)
		snprintf(rank, sizeof(rank), ", rank %d", target->rank);
	return asprintf(&name, "pid %u (%s%s)", pid, labels__role(target->role), rank) < 0 ? NULL : name;
}

/* For a waker in another process, names only the process: its thread says little. */
static char *waker_name(const struct job *job, uint32_t pid)
{
	char *process = process_name(job, pid), *name = NULL;

	if (process && asprintf(&name, "ended by %s", process) < 0)
		name = NULL;
	free(process);
	return name;
}

/* malloc'ed; NULL: no memory. text: the part of the name that depends on the kind. */
static char *made_name(const struct job *job, enum calltree_kind kind, uint32_t number, const char *text)
{
	char *name;
	int got = -1;

	switch (kind) {
	case CALLTREE_PROCESS:
		return process_name(job, number);
	case CALLTREE_THREAD:
		got = asprintf(&name, "thread %u", number);
		break;
	case CALLTREE_SYSCALL:
		if (syscall__name(number))
			got = asprintf(&name, "syscall %s", syscall__name(number));
		else
			got = asprintf(&name, "syscall %u", number);
		break;
	case CALLTREE_GPU:
		got = asprintf(&name, "%s (GPU)", text);
		break;
	case CALLTREE_KERNEL:
		got = asprintf(&name, "%s (kernel)", text);
		break;
	case CALLTREE_WAIT:
		got = asprintf(&name, "{waiting: %s}", text);
		break;
	case CALLTREE_WAKER:
		if (!text)
			return waker_name(job, number);
		got = asprintf(&name, "ended by thread %u", number);
		break;
	default:
		got = asprintf(&name, "%s", text);
	}
	return got < 0 ? NULL : name;
}

static int name_python(struct calltree *tree, uint32_t code_number, struct calltree_frame *frame)
{
	struct code code = stacks__code(tree->stacks, code_number);

	frame->name = !code_number ? "{function not readable}" : code.known ? "?" : "{function lost}";
	frame->file = "?";
	frame->first_line = code.first_line;
	if (code.name)
		frame->name = job__name_or_lost(tree->job, code.name);
	if (code.file)
		frame->file = job__name_or_lost(tree->job, code.file);
	return frame->name && frame->file ? 0 : -ENOMEM;
}

/*
 * number: pid, tid, thread (only in the key), phase, code, symbol, system call or cause, depending
 * on the kind; text: as for made_name.
 */
struct frame_key {
	enum calltree_kind kind;
	uint32_t key, line;
	uint32_t number;
	const char *text;
};

static int calltree__number_frame(struct calltree *tree, const struct frame_key *wanted, uint32_t *index)
{
	uint64_t function_key = (uint64_t)wanted->kind << KIND_SHIFT | (uint64_t)wanted->key << NUMBER_SHIFT;
	uint64_t key = function_key | wanted->line;
	struct calltree_frame *frame;
	uint32_t function;

	if (wanted->key > NUMBER_MAX || intern__add(&tree->frame_keys, key, index) ||
	    array__grow(&tree->frames, intern__end(&tree->frame_keys), sizeof(*frame)))
		return -ENOMEM;
	frame = &((struct calltree_frame *)tree->frames.items)[*index];
	if (frame->name)
		return 0;
	if (intern__add(&tree->function_keys, wanted->kind == CALLTREE_PYTHON ? function_key : key, &function))
		return -ENOMEM;
	*frame = (struct calltree_frame){.kind = wanted->kind, .line = wanted->line, .function = function};
	if (wanted->kind == CALLTREE_PYTHON)
		return name_python(tree, wanted->key, frame);
	frame->name = calltree__own_text(tree, made_name(tree->job, wanted->kind, wanted->number, wanted->text));
	return frame->name ? 0 : -ENOMEM;
}

/* Replaces *node by its child. */
static int calltree__descend(struct calltree *tree, const struct frame_key *wanted, uint32_t *node)
{
	struct calltree_node *nodes;
	uint32_t frame, child;
	int err = calltree__number_frame(tree, wanted, &frame);

	if (err)
		return err;
	if (intern__add(&tree->node_keys, (uint64_t)*node << 32 | frame, &child) ||
	    array__grow(&tree->nodes, intern__end(&tree->node_keys), sizeof(*nodes)))
		return -ENOMEM;
	nodes = tree->nodes.items;
	nodes[child].parent = *node;
	nodes[child].frame = frame;
	*node = child;
	return 0;
}

/* Descends by process and thread, or by the phase (top). */
static int calltree__descend_top(struct calltree *tree, const struct sample *sample, uint32_t top, uint32_t *node)
{
	/* A corrupt recording may use all 32 bits of a pid, so the pid takes the place of the line. */
	struct frame_key process = {.kind = CALLTREE_PROCESS, .number = sample->pid, .line = sample->pid};
	struct frame_key thread = {.kind = CALLTREE_THREAD, .key = sample->thread, .number = sample->tid};
	struct frame_key phase = {.kind = CALLTREE_PHASE, .key = top};
	int err;

	if (tree->steps) {
		phase.text = phase__name(top);
		return calltree__descend(tree, &phase, node);
	}
	err = calltree__descend(tree, &process, node);
	return err ? err : calltree__descend(tree, &thread, node);
}

static int calltree__descend_stack(struct calltree *tree, const struct sample *sample, uint32_t top, uint32_t *node)
{
	struct stack stack = stacks__stack(tree->stacks, sample->stack);
	struct frame_key mark = {
		.kind = CALLTREE_MARK, .key = stack.known, .text = stack.known ? "{no Python frames}" : "{stack lost}"};
	int err;

	*node = 0;
	err = calltree__descend_top(tree, sample, top, node);
	if (!err && !stack.cnt)
		err = calltree__descend(tree, &mark, node);
	for (uint32_t i = stack.cnt; i > 0 && !err; i--) {
		const struct frame *frame = &stack.frames[i - 1];
		struct code code = stacks__code(tree->stacks, frame->code);
		struct frame_key python = {CALLTREE_PYTHON, frame->code, code__line(&code, frame->offset), 0, NULL};

		err = calltree__descend(tree, &python, node);
	}
	return err;
}

static int calltree__descend_symbol(struct calltree *tree, enum calltree_kind kind, uint64_t name_id, uint32_t *node)
{
	struct frame_key symbol = {.kind = kind};

	if (!name_id)
		return 0;
	symbol.text = job__name_or_lost(tree->job, name_id);
	if (!symbol.text || intern__add(&tree->symbols, name_id, &symbol.key))
		return -ENOMEM;
	return calltree__descend(tree, &symbol, node);
}

static bool is_op(uint32_t kind)
{
	return kind == SPAN_OP || kind == SPAN_NODE || kind == SPAN_GC || kind == SPAN_COMM || kind == SPAN_SYNC;
}

/*
 * Python called by an operator appears above the operator, too: a sample does not show which of its
 * frames are inside.
 */
static int calltree__descend_ops(struct calltree *tree, const struct sample *sample, uint32_t *node)
{
	struct path path = stacks__path(tree->stacks, sample->path);
	int err = 0;

	for (uint32_t i = 0; i < path.cnt && !err; i++)
		if (is_op(path.spans[i].kind))
			err = calltree__descend_symbol(tree, CALLTREE_OP, path.spans[i].name, node);
	return err;
}

static int calltree__descend_waker(struct calltree *tree, const struct sample *sample, uint32_t *node)
{
	bool same = sample->waker_pid == sample->pid;
	struct frame_key waker = {CALLTREE_WAKER, 0, 0, same ? sample->waker_tid : sample->waker_pid, same ? "" : NULL};

	if (!sample->waker_pid)
		return 0;
	if (intern__add(&tree->wakers, (uint64_t)sample->waker_pid << 32 | (same ? sample->waker_tid : 0), &waker.key))
		return -ENOMEM;
	return calltree__descend(tree, &waker, node);
}

/*
 * Without a Python frame, for example at startup, the interpreter's own code belongs to no Python
 * function.
 */
static bool is_part_of_python(const struct calltree *tree, const struct sample *sample)
{
	return stacks__stack(tree->stacks, sample->stack).cnt && cpu_class__is_interpreter(tree->job, sample->native);
}

static int calltree__descend_leaf(struct calltree *tree, const struct sample *sample, uint32_t *node)
{
	struct frame_key syscall = {CALLTREE_SYSCALL, sample->syscall, 0, sample->syscall, NULL};
	struct frame_key wait = {CALLTREE_WAIT, sample->cause, 0, 0, sample_cause__name(sample->cause)};
	int err = tree->steps ? calltree__descend_ops(tree, sample, node) : 0;

	if (!err && (tree->native || !is_part_of_python(tree, sample)))
		err = calltree__descend_symbol(tree, CALLTREE_NATIVE, sample->native, node);
	if (!err && sample->syscall >= 0)
		err = calltree__descend(tree, &syscall, node);
	if (!err)
		err = calltree__descend_symbol(tree, CALLTREE_KERNEL, sample->kernel, node);
	if (!err && sample->kind == SAMPLE_WAIT)
		err = calltree__descend(tree, &wait, node);
	if (!err && sample->kind == SAMPLE_WAIT && tree->steps)
		err = calltree__descend_waker(tree, sample, node);
	return err;
}

int calltree__add(struct calltree *tree, const struct sample *sample, uint32_t *node)
{
	struct calltree_node *end;
	uint32_t top = tree->steps ? steps__phase(tree->steps, sample->path) : sample->thread;
	uint32_t base, *cached;
	int err = 0;

	/* Both can be 0, which is no key: add 1. */
	if (intern__add(&tree->bases, ((uint64_t)top << 32 | sample->stack) + 1, &base) ||
	    array__grow(&tree->base_nodes, intern__end(&tree->bases), sizeof(*cached)))
		return -ENOMEM;
	cached = &((uint32_t *)tree->base_nodes.items)[base];
	if (!*cached)
		err = calltree__descend_stack(tree, sample, top, cached);
	*node = *cached;
	if (!err)
		err = calltree__descend_leaf(tree, sample, node);
	if (err)
		return err;
	end = &((struct calltree_node *)tree->nodes.items)[*node];
	end->samples++;
	if (sample->kind == SAMPLE_CPU)
		end->cpu_ns = saturating__add(end->cpu_ns, sample->weight_ns);
	else
		end->wait_ns = saturating__add(end->wait_ns, sample->weight_ns);
	return 0;
}

int calltree__add_work(struct calltree *tree, uint32_t work, enum gpu_activity kind, enum gpu_direction direction,
		       uint64_t name, uint32_t *node)
{
	char *text = gpu_work__text(tree->job, kind, direction, name);
	struct frame_key wanted = {.kind = CALLTREE_GPU, .key = work, .text = text};
	int err = text ? calltree__descend(tree, &wanted, node) : -ENOMEM;

	free(text);
	return err;
}

const struct calltree_node *calltree__nodes(const struct calltree *tree, size_t *cnt)
{
	*cnt = tree->nodes.cnt;
	return tree->nodes.items;
}

const struct calltree_frame *calltree__frames(const struct calltree *tree, size_t *cnt)
{
	*cnt = tree->frames.cnt;
	return tree->frames.items;
}

uint32_t *calltree__path(const struct calltree *tree, uint32_t top, uint32_t node, size_t *cnt)
{
	const struct calltree_node *nodes = tree->nodes.items;
	uint32_t *frames;

	*cnt = 0;
	for (uint32_t at = node; at != top; at = nodes[at].parent)
		++*cnt;
	frames = calloc(*cnt + 1, sizeof(*frames));
	for (size_t i = *cnt; frames && i > 0; node = nodes[node].parent)
		frames[--i] = nodes[node].frame;
	return frames;
}

struct calltree *calltree__new(struct job *job, const struct steps *steps, bool native)
{
	struct calltree *tree = calloc(1, sizeof(*tree));

	if (!tree)
		return NULL;
	tree->job = job;
	tree->stacks = job__stacks(job);
	tree->steps = steps;
	tree->native = native;
	/* The root, and its frame. */
	if (array__add(&tree->nodes, sizeof(struct calltree_node)) &&
	    array__add(&tree->frames, sizeof(struct calltree_frame)))
		return tree;
	calltree__free(tree);
	return NULL;
}

void calltree__free(struct calltree *tree)
{
	if (!tree)
		return;
	for (size_t i = 0; i < tree->made.cnt; i++)
		free(((char **)tree->made.items)[i]);
	free(tree->made.items);
	intern__free(&tree->node_keys);
	intern__free(&tree->frame_keys);
	intern__free(&tree->function_keys);
	intern__free(&tree->symbols);
	intern__free(&tree->bases);
	intern__free(&tree->wakers);
	free(tree->nodes.items);
	free(tree->frames.items);
	free(tree->base_nodes.items);
	free(tree);
}
