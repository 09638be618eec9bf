/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operators, nodes and labels in random trees of calls, on two threads, between spans that have no row in the operator
 * table, with exceptions, memory and windows. The model keeps each tree whole and makes its rows when the outermost
 * call has ended, as torch.profiler does from its list of events; the programs make theirs call by call. STEPFLAME_SEED
 * and STEPFLAME_EVENTS choose others, and more.
 */
#include "tests/bpf/native/ops.h"
#include "tests/bpf/native/random.h"

#define TREE_NODES  16384
#define TREE_DEPTH  (SPAN_DEPTH - 2)
#define MODEL_ROWS  8192
#define LABEL_CNT   4
#define ACTION_CNT  4
#define ADDRESS_CNT 64

struct call {
	u32 parent; /* index, 0: none */
	u32 kind, child_cnt;
	u64 name, merged, action, frame, token, start_ns, total_ns;
	s64 own_bytes[OP_MEMORY__COUNT], total_bytes[OP_MEMORY__COUNT];
	u64 child_ns;
	bool counted, lost, one_with_parent;
};

/* Calls in the order in which they began, from 1 on, since the thread was last outside of all. */
struct tree {
	struct task_struct *task;
	struct call call[TREE_NODES];
	u32 cnt, depth, open[TREE_DEPTH];
};

struct expected {
	struct op_key key;
	struct op_val val;
};

static struct {
	struct tree trees[2], *tree; /* of each thread, and the one at hand */
	struct expected rows[MODEL_ROWS];
	u32 row_cnt, merged_cnt, lost_cnt;
	u64 counters[CNT__COUNT];
	s64 allocated[ADDRESS_CNT]; /* in the open window, and not freed yet */
} model;

static u64 op_merged[6], label_ids[LABEL_CNT], action_ids[ACTION_CNT], action_texts[ACTION_CNT], gens[2][TREE_DEPTH];
static const char *const label_texts[LABEL_CNT] = {"model", "loss", "aten::op", "x"};

static bool has_row(u32 kind)
{
	return kind == SPAN_OP || kind == SPAN_EVALUATE || kind == SPAN_NODE || kind == SPAN_LABEL;
}

/* Of the operators' programs: their order may differ, as it is by their hash. */
static struct op_val *model__row(const struct op_key *key)
{
	u32 i = 0;

	while (i < model.row_cnt && memcmp(&model.rows[i].key, key, sizeof(*key)))
		i++;
	assert_true(i < MODEL_ROWS);
	if (i == model.row_cnt) {
		model.rows[i].key = *key;
		model.row_cnt++;
	}
	return &model.rows[i].val;
}

/* ---- torch.profiler's way from calls to rows ---- */

/* torch knows no actions: what is in one is in the call around it. */
static void tree__hide_actions(struct tree *t)
{
	for (u32 i = 1; i <= t->cnt; i++) {
		struct call *c = &t->call[i];

		while (c->parent && !has_row(t->call[c->parent].kind))
			c->parent = t->call[c->parent].parent;
		c->child_cnt = 0;
	}
}

/*
 * torch/autograd/profiler_util.py, EventList._remove_dup_nodes. A call that we have lost is there, and has no name that
 * another has.
 */
static void tree__remove_dups(struct tree *t)
{
	for (u32 i = 1; i <= t->cnt; i++)
		if (has_row(t->call[i].kind))
			t->call[t->call[i].parent].child_cnt++;
	for (u32 i = 1; i <= t->cnt; i++) {
		struct call *c = &t->call[i], *parent = &t->call[c->parent];

		if (!c->parent || !has_row(c->kind) || c->lost || parent->lost || !parent->counted ||
		    parent->merged != c->merged || parent->child_cnt != 1)
			continue;
		c->one_with_parent = true;
		parent->child_cnt = c->child_cnt;
		for (int m = 0; m < OP_MEMORY__COUNT; m++)
			parent->own_bytes[m] += c->own_bytes[m];
		for (u32 k = i + 1; k <= t->cnt; k++)
			if (t->call[k].parent == i)
				t->call[k].parent = c->parent;
		model.merged_cnt++;
	}
}

static void tree__add_up(struct tree *t)
{
	for (u32 i = t->cnt; i > 0; i--) {
		struct call *c = &t->call[i], *parent = &t->call[c->parent];

		if (!has_row(c->kind) || c->one_with_parent)
			continue;
		parent->child_ns += c->lost ? c->child_ns : c->total_ns;
		for (int m = 0; m < OP_MEMORY__COUNT; m++) {
			c->total_bytes[m] += c->own_bytes[m];
			parent->total_bytes[m] += c->total_bytes[m];
		}
	}
}

static void tree__finish(struct tree *t)
{
	tree__hide_actions(t);
	tree__remove_dups(t);
	tree__add_up(t);
	for (u32 i = 1; i <= t->cnt; i++) {
		const struct call *c = &t->call[i];
		struct op_key key = {.pid = JOB_PID, .kind = c->kind, .name = c->name, .action = c->action};
		struct op_val *val;

		if (!has_row(c->kind) || !c->counted || c->one_with_parent)
			continue;
		val = model__row(&key);
		val->calls++;
		val->total_ns += c->total_ns;
		val->self_ns += c->total_ns - c->child_ns;
		for (int m = 0; m < OP_MEMORY__COUNT; m++) {
			val->self_bytes[m] += c->own_bytes[m];
			val->total_bytes[m] += c->total_bytes[m];
		}
	}
	memset(t->call, 0, sizeof(t->call[0]) * (t->cnt + 1));
	t->cnt = 0;
}

/* ---- spans of the model ---- */

static struct call *tree__at(struct tree *t, u32 i)
{
	return &t->call[t->open[i]];
}

/*
 * The innermost action decides; where there is none backward is one. On a thread of the engine all is done for what
 * that one does.
 */
static u64 tree__action(struct tree *t, u32 kind)
{
	u64 backward = kind == SPAN_NODE || kind == SPAN_EVALUATE ? op_proc->backward_action : 0;

	if (t->depth)
		backward = tree__at(t, 0)->action;
	for (u32 i = t->depth; i > 0; i--) {
		const struct call *c = tree__at(t, i - 1);

		if (c->kind == SPAN_ACTION || c->kind == SPAN_USER)
			return c->name;
		if (c->kind == SPAN_BACKWARD && !backward)
			backward = c->name;
	}
	return backward;
}

static void tree__begin(struct tree *t, struct call c)
{
	c.parent = t->depth ? t->open[t->depth - 1] : 0;
	c.action = has_row(c.kind) ? tree__action(t, c.kind) : 0;
	c.start_ns = native.now_ns;
	assert_true(t->cnt + 1 < TREE_NODES);
	t->call[++t->cnt] = c;
	t->open[t->depth++] = t->cnt;
}

static void tree__lose(struct tree *t, u32 depth, u32 id)
{
	model.counters[id] += t->depth - depth;
	for (u32 i = depth; i < t->depth; i++)
		tree__at(t, i)->lost = true;
	model.lost_cnt += t->depth - depth;
	t->depth = depth;
	if (!depth)
		tree__finish(t);
}

static void tree__end(struct tree *t)
{
	struct call *c = tree__at(t, --t->depth);

	c->total_ns = native.now_ns - c->start_ns;
	c->counted = op_proc->open && c->start_ns >= op_proc->window_start_ns;
	if (!t->depth)
		tree__finish(t);
}

/* ---- what the program does ---- */

static u64 position(u32 depth)
{
	return STACK - 4096ul * (depth + 1);
}

static bool in_backward(struct tree *t)
{
	for (u32 i = 0; i < t->depth; i++)
		if (tree__at(t, i)->kind == SPAN_BACKWARD)
			return true;
	return false;
}

static void begin__operator(struct tree *t, u64 frame)
{
	const struct call *around = t->depth ? tree__at(t, t->depth - 1) : NULL;
	u32 which = random_below(6), node = random_below(3);

	if (around && around->kind == SPAN_OP && random_below(2)) /* an overload of its name, or itself */
		which = (around->name - OP_ID(0)) ^ random_below(2);
	if (random_below(3)) {
		op__enter(which, frame);
		tree__begin(t,
			    (struct call){
				    .kind = SPAN_OP, .name = OP_ID(which), .merged = op_merged[which], .frame = frame});
	} else if (random_below(2)) {
		node__enter(OP_EVALUATE, node, frame);
		tree__begin(t, (struct call){.kind = SPAN_EVALUATE,
					     .name = NODE_ID(node),
					     .merged = ~NODE_ID(node),
					     .frame = frame});
	} else {
		node__enter(OP_NODE, node, frame);
		tree__begin(t,
			    (struct call){
				    .kind = SPAN_NODE, .name = NODE_ID(node), .merged = NODE_ID(node), .frame = frame});
	}
}

static void begin__landmark(struct tree *t, u64 frame)
{
	u32 which = random_below(4);
	u64 sp = position(t->depth), gen = gens[t - model.trees][t->depth];

	switch (random_below(6)) {
	case 0 ... 2:
		label__enter(label_texts[which], sp, sp);
		tree__begin(t, (struct call){.kind = SPAN_LABEL,
					     .name = label_ids[which],
					     .merged = label_ids[which],
					     .token = sp});
		break;
	case 3:
		fakepy__put(fakepy__gen_frame(&job.py, gen) + job.py.py->frame_locals + 8, action_texts[which], 8);
		fakepy__set_created(&job.py, gen, true);
		action__next(gen, sp);
		tree__begin(t, (struct call){.kind = SPAN_ACTION, .name = action_ids[which], .token = gen});
		break;
	case 4:
		fn__enter(FN_FIRST + which, frame);
		tree__begin(t, (struct call){.kind = SPAN_USER,
					     .name = FN_ID(FN_FIRST + which),
					     .token = FN_FIRST + which,
					     .frame = frame});
		break;
	case 5:
		if (in_backward(t))
			break;
		fn__enter(FN_BACKWARD, frame);
		tree__begin(t, (struct call){.kind = SPAN_BACKWARD,
					     .name = FIXED_ID(BACKWARD),
					     .token = FN_BACKWARD,
					     .frame = frame});
		break;
	}
}

/*
 * Do only labels lie inside, but for native functions, which are lost with what they hold? They go on
 * when the label around them ends: test_span.c.
 */
static bool has_only_labels(struct tree *t, u32 i)
{
	u32 inner = i + 1;

	while (inner < t->depth && !tree__at(t, inner)->frame && tree__at(t, inner)->kind == SPAN_LABEL)
		inner++;
	return inner > i + 1 && (inner == t->depth || tree__at(t, inner)->frame);
}

/*
 * Span i ends. What is inside has lost its end: native functions and what they hold by the stack pointer, the rest by
 * this end.
 */
static void program__end(struct tree *t, u32 i)
{
	const struct call *c = tree__at(t, i);

	/* Its label would go on: test_span.c */
	if (c->kind == SPAN_ACTION && i + 1 < t->depth && tree__at(t, i + 1)->kind == SPAN_LABEL &&
	    (i + 2 == t->depth || tree__at(t, i + 2)->frame))
		return;
	if (c->kind == SPAN_LABEL && has_only_labels(t, i))
		return;
	if (c->kind == SPAN_LABEL)
		label__exit(c->token, position(i));
	else if (c->kind == SPAN_ACTION)
		action__next(c->token, position(i));
	else if (c->kind == SPAN_USER || c->kind == SPAN_BACKWARD)
		fn__exit(c->token, c->frame);
	else
		op__exit(c->frame);
	for (u32 inner = i + 1; inner < t->depth; inner++)
		if (tree__at(t, inner)->frame)
			tree__lose(t, inner, CNT_UNWOUND);
	if (i + 1 < t->depth)
		tree__lose(t, i + 1, CNT_DROPPED_INNER);
	tree__end(t);
}

/*
 * An exception leaves what is native from i on; what is seen next is the end of an operator around it that began before
 * us.
 */
static void program__unwind(struct tree *t, u32 i)
{
	op__exit(tree__at(t, i)->frame + 8);
	model.counters[CNT_OPEN_AT_START] += op_proc->open;
	tree__lose(t, i, CNT_UNWOUND);
}

static void program__memory(struct tree *t)
{
	u32 device = OP_MEMORY_CPU, at = random_below(ADDRESS_CNT), i = t->depth;
	s64 bytes = random_below(4096);

	if (random_below(4) == 0) {
		device = OP_MEMORY_DEVICE;
		bytes = random_below(2) ? bytes : -bytes;
		memory__report(bytes, 1);
	} else if (random_below(2)) {
		memory__allocate(0x10000 + at, bytes);
		model.allocated[at] = bytes && op_proc->open ? bytes : model.allocated[at];
	} else {
		memory__free(0x10000 + at);
		bytes = -model.allocated[at];
		if (!bytes)
			return;
		model.allocated[at] = op_proc->open ? 0 : model.allocated[at];
	}
	if (!op_proc->open || (!bytes && device == OP_MEMORY_CPU))
		return;
	while (i && !has_row(tree__at(t, i - 1)->kind))
		i--;
	if (i) {
		tree__at(t, i - 1)->own_bytes[device] += bytes;
	} else {
		struct op_val *val = model__row(&(struct op_key){.pid = JOB_PID, .kind = SPAN_OP, .name = MEMORY_ID});

		val->calls++;
		val->self_bytes[device] += bytes;
		val->total_bytes[device] += bytes;
	}
}

static void program__window(void)
{
	op_proc->open = !op_proc->open;
	if (!op_proc->open)
		return;
	op_proc->window_start_ns = native.now_ns;
	op_proc->index++;
	memset(model.allocated, 0, sizeof(model.allocated));
}

static void program__event(void)
{
	struct tree *t = model.tree = &model.trees[random_below(8) == 0];
	u64 dice = random_below(1000);
	u32 at = random_below(t->depth + 1);

	native.task = t->task;
	native.now_ns += random_below(1ULL << random_below(16));
	if (dice < 420 && t->depth < TREE_DEPTH)
		random_below(3) ? begin__operator(t, position(t->depth)) : begin__landmark(t, position(t->depth));
	else if (dice < 880 && t->depth)
		program__end(t, t->depth - 1);
	else if (dice < 885 && at < t->depth)
		program__end(t, at);
	else if (dice < 890 && at < t->depth && tree__at(t, at)->frame)
		program__unwind(t, at);
	else if (dice < 980)
		program__memory(t);
	else if (dice < (op_proc->open ? 981 : 1000))
		program__window();
}

static void program__start(void)
{
	char name[32];

	memset(&model, 0, sizeof(model));
	model.trees[0].task = &job.task;
	model.trees[1].task = &job.thread;
	op_proc->open = 0;
	for (u32 i = 0; i < LABEL_CNT; i++) {
		label__run(label_texts[i], 0, STACK);
		label_ids[i] = utf8_id(label_texts[i]);
	}
	for (u32 i = 0; i < ACTION_CNT; i++) {
		snprintf(name, sizeof(name), "[Callback]number_%u", i);
		action_texts[i] = fakepy__text(&job.py, name);
		gens[0][0] = fakepy__generator(&job.py, job.profile_code, action_texts[i]);
		action__next(gens[0][0], STACK);
		action__next(gens[0][0], STACK);
		action_ids[i] = latin_id(name);
	}
	for (u32 i = 0; i < 2 * TREE_DEPTH; i++)
		gens[i / TREE_DEPTH][i % TREE_DEPTH] = fakepy__generator(&job.py, job.profile_code, action_texts[0]);
	/* a label that is called as an operator is one with it */
	for (u32 op = 0; op < 6; op++) {
		op_merged[op] = op < 4 ? MERGED_ID(op) : label_ids[2];
		ops__set_def(op, &(struct op_def){.name = OP_ID(op), .merged = op_merged[op]});
	}
	op_proc->open = 1;
}

static bool compare_row(const void *index, void *value, void *arg)
{
	const struct op_entry *row = value;

	(void)index;
	if (!row->head.hash)
		return true;
	assert_memory_equal(&row->val, model__row(&row->key), sizeof(row->val));
	*(u32 *)arg += 1;
	return true;
}

static void test_trees(void **state)
{
	u64 events = environment("STEPFLAME_EVENTS", 200000);
	u32 rows = 0;

	program__start();
	for (u64 i = 0; i < events; i++) {
		program__event();
		assert_int_equal(depth(), model.tree->depth);
	}
	for (int n = 0; n < 2; n++) {
		native.task = model.trees[n].task;
		while (model.trees[n].depth)
			program__end(&model.trees[n], model.trees[n].depth - 1);
	}
	native_map__each(&op_rows, compare_row, &rows);
	assert_int_equal(rows, model.row_cnt);
	for (u32 id = 0; id < CNT__COUNT; id++)
		assert_int_equal(counter(id), model.counters[id]);
	assert_true(model.merged_cnt && model.lost_cnt);
	print_message("  %u rows, %u calls one with their parent, %u lost\n", rows, model.merged_cnt, model.lost_cnt);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, ops_setup, teardown)
	const struct CMUnitTest tests[] = {TEST(trees)};

	seed = environment("STEPFLAME_SEED", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
