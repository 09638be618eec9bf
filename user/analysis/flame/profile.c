// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Groups samples with the same stack, path and leaf. Numbers functions, actions and the parts of a
 * path once, when the first sample needs them; tables are then built from arrays.
 */
#include "user/analysis/flame/profile.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/place/place.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/labels.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"

/* ---- functions, as cProfile names them ---- */

struct functions {
	struct job *job;
	struct map texts;          /* of their files and names */
	struct map by_key;         /* struct function_node, see profile.c */
	struct array code_numbers; /* uint32_t by code; 0: not numbered yet */
	struct intern symbols;
	struct array symbol_numbers; /* uint32_t by symbol; 0: not numbered yet */
};

struct function_node {
	struct node_key {
		uint32_t file, name; /* texts */
		uint64_t line;
	} key;
	struct function function;
};

static int number_function(struct functions *functions, const struct function *function, uint32_t *number)
{
	struct node_key key = {.line = function->line};
	struct function_node *node;
	uint32_t qualname;
	char *const *texts;

	if (map__add_text(&functions->texts, function->file, &key.file) ||
	    map__add_text(&functions->texts, function->name, &key.name) ||
	    map__add_text(&functions->texts, function->qualname, &qualname))
		return -ENOMEM;
	node = MAP_ADD(&functions->by_key, struct function_node, &key);
	if (!node)
		return -ENOMEM;
	texts = functions->texts.items.items;
	if (!node->function.file)
		node->function = (struct function){texts[key.file], key.line, texts[key.name], texts[qualname]};
	*number = MAP_INDEX(&functions->by_key, node) + 1;
	return 0;
}

/* Numbers "<prefix text>". A NULL text means no memory. */
static int functions__builtin(struct functions *functions, const char *prefix, const char *text, uint32_t *number)
{
	char *name;
	int err;

	if (!text || asprintf(&name, "<%s%s>", prefix, text) < 0)
		return -ENOMEM;
	err = number_function(functions, &(struct function){FUNCTION_BUILTIN_FILE, 0, name, name}, number);
	free(name);
	return err;
}

static int number_known(struct functions *functions, const struct code *code, uint32_t *number)
{
	struct function key = {.file = "?", .line = code->first_line, .qualname = "?"};
	const char *dot;

	if (code->file)
		key.file = job__name_or_lost(functions->job, code->file);
	if (code->name)
		key.qualname = job__name_or_lost(functions->job, code->name);
	if (!key.file || !key.qualname)
		return -ENOMEM;
	/* cProfile, and so Lightning, shows co_name. */
	dot = strrchr(key.qualname, '.');
	key.name = dot && dot[1] ? dot + 1 : key.qualname;
	return number_function(functions, &key, number);
}

/* These functions set *number, and return 0 or -ENOMEM. functions__code: a number for stacks__code. */
static int functions__code(struct functions *functions, uint32_t code_number, uint32_t *number)
{
	const struct stacks *stacks = job__stacks(functions->job);
	struct code code = stacks__code(stacks, code_number);
	uint32_t *cached;
	int err = 0;

	if (array__grow(&functions->code_numbers, stacks__code_end(stacks), sizeof(*cached)))
		return -ENOMEM;
	cached = &((uint32_t *)functions->code_numbers.items)[code_number];
	if (!*cached && code_number && code.known)
		err = number_known(functions, &code, cached);
	else if (!*cached)
		err = functions__builtin(functions, "function ", code_number ? "lost" : "not readable", cached);
	*number = *cached;
	return err;
}

/* Numbers the functions of a stack, callers first. */
static int functions__stack(struct functions *functions, const struct stack *stack)
{
	uint32_t number;
	int err = 0;

	for (uint32_t i = stack->cnt; i > 0 && !err; i--)
		err = functions__code(functions, stack->frames[i - 1].code, &number);
	return err;
}

/* Numbers "<symbol (library)>" of a REC_NAME id; *number is 0 for id 0. */
static int functions__symbol(struct functions *functions, uint64_t name_id, uint32_t *number)
{
	uint32_t symbol, *cached;
	int err = intern__add(&functions->symbols, name_id, &symbol);

	*number = 0;
	if (err || !name_id)
		return err;
	if (array__grow(&functions->symbol_numbers, intern__end(&functions->symbols), sizeof(*cached)))
		return -ENOMEM;
	cached = &((uint32_t *)functions->symbol_numbers.items)[symbol];
	if (!*cached)
		err = functions__builtin(functions, "", job__name_or_lost(functions->job, name_id), cached);
	*number = *cached;
	return err;
}

/* Valid until the next function is numbered; its texts remain valid. */
static const struct function *functions__get(const struct functions *functions, uint32_t number)
{
	return &((const struct function_node *)functions->by_key.items.items)[number - 1].function;
}

/* One above the highest number. */
static size_t functions__end(const struct functions *functions)
{
	return functions->by_key.items.cnt + 1;
}

/* One above the highest number. */
static void functions__free(struct functions *functions)
{
	map__free(&functions->by_key);
	map__free_texts(&functions->texts);
	free(functions->code_numbers.items);
	intern__free(&functions->symbols);
	free(functions->symbol_numbers.items);
	*functions = (struct functions){0};
}

/* ---- which part of a stack ran in a span ---- */

/*
 * The sample's stack and the stack at a span's end share the frames around the span: from the
 * outermost inwards, the same functions at the same instructions, except for the last shared frame,
 * which begins and ends the span. Of the stacks recorded for a span, the longest match counts:
 * stacks of other calls of the span share fewer frames. The stacks are sorted, so the best match is
 * next to the position of the sample's stack.
 */
struct inside {
	const struct stacks *stacks;
	struct around *arounds; /* by span, then by stack */
	size_t cnt;
};

/*
 * Compares from the outermost frame inwards. *shared: number of frames with the same functions up
 * to the first difference, including the frame that differs only in its instruction.
 */
static int compare_stacks(const struct stack *x, const struct stack *y, uint32_t *shared)
{
	uint32_t cnt = x->cnt < y->cnt ? x->cnt : y->cnt;

	*shared = 0;
	for (uint32_t i = 1; i <= cnt; i++) {
		const struct frame *a = &x->frames[x->cnt - i], *b = &y->frames[y->cnt - i];

		if (a->code != b->code)
			return COMPARE(a->code, b->code);
		*shared = i;
		if (a->offset != b->offset)
			return COMPARE(a->offset, b->offset);
	}
	return COMPARE(x->cnt, y->cnt);
}

static int compare_around_name(const struct around *x, const struct around *y)
{
	return x->name != y->name ? COMPARE(x->name, y->name) : COMPARE(x->kind, y->kind);
}

static int compare_around(const void *a, const void *b, void *stacks)
{
	const struct around *x = a, *y = b;
	struct stack of_x = stacks__stack(stacks, x->stack), of_y = stacks__stack(stacks, y->stack);
	int result = compare_around_name(x, y);

	return result ? result : compare_stacks(&of_x, &of_y, &(uint32_t){0});
}

/*
 * How many innermost frames of a stack ran in the outermost span of that kind and name around it.
 * *known: false if not known; then returns the count of all frames.
 */
static uint32_t inside__frames(const struct inside *inside, const struct path_span *span, uint32_t stack, bool *known)
{
	const struct around key = {.name = span->name, .kind = span->kind, .stack = stack}, *all = inside->arounds;
	struct stack of_sample = stacks__stack(inside->stacks, stack);
	uint32_t around = 0;
	size_t low = SEARCH(i, 0, inside->cnt, compare_around(&all[i], &key, (void *)inside->stacks) < 0);
	for (size_t i = low ? low - 1 : 0; i <= low && i < inside->cnt && !of_sample.cut; i++) {
		struct stack other = stacks__stack(inside->stacks, all[i].stack);
		uint32_t shared = 0;

		if (!compare_around_name(&all[i], &key))
			compare_stacks(&of_sample, &other, &shared);
		around = shared > around ? shared : around;
	}
	*known = around || !of_sample.cnt;
	return of_sample.cnt - around;
}

static struct inside *inside__new(const struct stacks *stacks, const struct samples *samples)
{
	struct inside *inside = calloc(1, sizeof(*inside));
	size_t cnt;
	const struct around *arounds = samples__arounds(samples, &cnt);

	if (!inside)
		return NULL;
	inside->stacks = stacks;
	inside->arounds = calloc(cnt + 1, sizeof(*inside->arounds));
	if (!inside->arounds) {
		free(inside);
		return NULL;
	}
	/*
	 * A span nested in one of the same name is part of that one. A stack without its outer
	 * frames cannot be compared.
	 */
	for (size_t i = 0; i < cnt; i++)
		if (!arounds[i].nested && !stacks__stack(stacks, arounds[i].stack).cut)
			inside->arounds[inside->cnt++] = arounds[i];
	if (inside->cnt)
		qsort_r(inside->arounds, inside->cnt, sizeof(*inside->arounds), compare_around, (void *)stacks);
	return inside;
}

static void inside__free(struct inside *inside)
{
	if (!inside)
		return;
	free(inside->arounds);
	free(inside);
}

/* ---- samples, grouped ---- */

enum { LEAF_MARK, LEAF_NATIVE, LEAF_KERNEL, LEAF_WAIT, LEAF__COUNT };

struct profile_group {
	uint32_t path, stack;
	uint32_t leaves[LEAF__COUNT]; /* functions below those of the stack, callers first; 0: unused */
	uint32_t cause;               /* CAUSE_NONE: on the CPU */
	uint64_t samples, weight_ns;
	double squares;
};

struct exact_calls {
	uint32_t path, function;
	uint64_t calls, primitive_calls, self_ns, total_ns;
};

/*
 * The actions of a path: cnt entries of profile.path_actions from `first`. cnt is 0 until the path
 * is looked up.
 */
struct path_range {
	size_t first, cnt;
};

#define NO_SPAN UINT32_MAX

struct path_action {
	uint32_t action;
	uint32_t span; /* the first of the path's spans that is the action; NO_SPAN: a special action */
};

struct profile {
	struct job *job;
	const struct stacks *stacks;
	struct profile_options options;
	bool lightning;
	struct functions functions;
	struct inside *inside;     /* built with the first table */
	struct map action_names;   /* texts */
	struct intern action_keys; /* {kind + 1, name} */
	struct array actions;      /* struct profile_action */
	struct array path_ranges;  /* struct path_range by path */
	struct array path_actions; /* struct path_action */
	struct array groups, exacts;
	bool sorted; /* groups are merged and sorted */
};

const struct function *profile__function(const struct profile *profile, uint32_t number)
{
	return functions__get(&profile->functions, number);
}

/* ---- actions ---- */

static int number_action(struct profile *p, enum span_kind kind, const char *name, uint32_t *index)
{
	struct profile_action *action;
	uint32_t text, number;

	if (map__add_text(&p->action_names, name, &text) ||
	    intern__add(&p->action_keys, (uint64_t)(kind + 1) << 32 | text, &number) ||
	    array__grow(&p->actions, number, sizeof(*action)))
		return -ENOMEM;
	*index = number - 1;
	action = &((struct profile_action *)p->actions.items)[*index];
	*action = (struct profile_action){((char **)p->action_names.items.items)[text], kind};
	return 0;
}

/* Operators and nodes have their own report. */
static bool is_action(const struct profile *p, enum span_kind kind, const char *name)
{
	if (kind >= SPAN_OP && kind <= SPAN_STEP)
		return false;
	return p->options.all || labels__listed(kind, name, p->lightning) ||
	       (p->options.action && !strcmp(p->options.action, name));
}

static int add_path_action(struct profile *p, struct path_range *range, uint32_t action, uint32_t span)
{
	struct path_action *actions = p->path_actions.items, *slot;

	for (size_t i = 0; i < range->cnt; i++)
		if (actions[range->first + i].action == action)
			return 0;
	slot = array__add(&p->path_actions, sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	*slot = (struct path_action){action, span};
	range->cnt++;
	return 0;
}

static int number_path(struct profile *p, uint32_t number)
{
	struct path path = stacks__path(p->stacks, number);
	struct path_range *range;
	int err;

	if (array__grow(&p->path_ranges, stacks__path_end(p->stacks), sizeof(*range)))
		return -ENOMEM;
	range = &((struct path_range *)p->path_ranges.items)[number];
	if (range->cnt)
		return 0;
	range->first = p->path_actions.cnt;
	err = add_path_action(p, range, PROFILE_EVERYTHING, NO_SPAN);
	for (uint32_t i = 0; i < path.cnt && !err; i++) {
		const char *name = job__name_or_lost(p->job, path.spans[i].name);
		uint32_t action;

		if (!name)
			return -ENOMEM;
		if (!is_action(p, path.spans[i].kind, name))
			continue;
		err = number_action(p, path.spans[i].kind, name, &action);
		if (!err)
			err = add_path_action(p, range, action, i);
	}
	if (!err && range->cnt == 1)
		err = add_path_action(p, range, path.known ? PROFILE_NONE : PROFILE_LOST, NO_SPAN);
	return err;
}

/* NULL: the path is not in the action. */
static const struct path_action *find_path_action(const struct profile *p, uint32_t path, uint32_t action)
{
	const struct path_range *range = &((const struct path_range *)p->path_ranges.items)[path];
	const struct path_action *actions = (const struct path_action *)p->path_actions.items + range->first;

	for (size_t i = 0; i < range->cnt; i++)
		if (actions[i].action == action)
			return &actions[i];
	return NULL;
}

const struct profile_action *profile__actions(const struct profile *profile, size_t *cnt)
{
	*cnt = profile->actions.cnt;
	return profile->actions.items;
}

/* ---- what goes in ---- */

static bool has_lightning(struct job *job, const struct stacks *stacks)
{
	size_t cnt;
	const struct job_action *actions = job__actions(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (actions[i].kind == SPAN_ACTION)
			return true;
	for (size_t i = 0; i < stacks__path_end(stacks); i++) {
		struct path path = stacks__path(stacks, i);

		for (uint32_t s = 0; s < path.cnt; s++)
			if (path.spans[s].kind == SPAN_ACTION)
				return true;
	}
	return false;
}

/*
 * Adds the special actions, then those of the aggregates, so that actions are in order of first
 * occurrence.
 */
static int number_actions(struct profile *p)
{
	static const char *const special[PROFILE__SPECIAL] = {"(everything)", "(none)", "(lost)"};
	size_t cnt;
	const struct job_action *actions = job__actions(p->job, &cnt);
	uint32_t index;
	int err = 0;

	for (size_t i = 0; i < PROFILE__SPECIAL && !err; i++)
		err = number_action(p, SPAN_NONE, special[i], &index);
	for (size_t i = 0; i < cnt && !err; i++)
		if (is_action(p, actions[i].kind, actions[i].name))
			err = number_action(p, actions[i].kind, actions[i].name, &index);
	return err;
}

struct profile *profile__new(struct job *job, const struct profile_options *options)
{
	struct profile *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->job = job;
	p->stacks = job__stacks(job);
	p->functions.job = job;
	p->options = *options;
	p->lightning = has_lightning(job, p->stacks);
	if (!number_actions(p))
		return p;
	profile__free(p);
	return NULL;
}

void profile__free(struct profile *profile)
{
	if (!profile)
		return;
	map__free_texts(&profile->action_names);
	intern__free(&profile->action_keys);
	functions__free(&profile->functions);
	inside__free(profile->inside);
	free(profile->actions.items);
	free(profile->path_ranges.items);
	free(profile->path_actions.items);
	free(profile->groups.items);
	free(profile->exacts.items);
	free(profile);
}

static int number_leaves(struct profile *p, const struct sample *sample, const struct stack *stack, uint32_t *leaves)
{
	int err = 0;

	if (!stack->known)
		err = functions__builtin(&p->functions, "", "stack lost", &leaves[LEAF_MARK]);
	else if (!stack->cnt)
		err = functions__builtin(&p->functions, "", "no Python frames", &leaves[LEAF_MARK]);
	if (!err && p->options.leaf &&
	    (p->options.native || !stack->cnt || !cpu_class__is_interpreter(p->job, sample->native)))
		err = functions__symbol(&p->functions, sample->native, &leaves[LEAF_NATIVE]);
	if (!err && p->options.leaf)
		err = functions__symbol(&p->functions, sample->kernel, &leaves[LEAF_KERNEL]);
	if (!err && sample->kind == SAMPLE_WAIT)
		err = functions__builtin(&p->functions, "waiting: ", sample_cause__name(sample->cause),
					 &leaves[LEAF_WAIT]);
	return err;
}

/* The sampled part of the weight. A wait with a sample of its own is timed. */
static double chance_ns(const struct sample *sample)
{
	return sample->kind == SAMPLE_CPU || sample->waits > 1 ? sample->weight_ns : 0;
}

int profile__add_sample(struct profile *profile, const struct sample *sample)
{
	struct stack stack = stacks__stack(profile->stacks, sample->stack);
	struct profile_group *slot, group = {.path = sample->path,
					     .stack = sample->stack,
					     .cause = sample->cause,
					     .samples = 1,
					     .weight_ns = sample->weight_ns};
	int err = number_path(profile, sample->path);

	/*
	 * Number the path even of unwanted samples, so that actions stay in the order in which they
	 * ran.
	 */
	if (err || (profile->options.cpu && sample->kind == SAMPLE_WAIT))
		return err;
	group.squares = chance_ns(sample) * chance_ns(sample);
	err = functions__stack(&profile->functions, &stack);
	if (!err)
		err = number_leaves(profile, sample, &stack, group.leaves);
	slot = err ? NULL : array__add(&profile->groups, sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	*slot = group;
	profile->sorted = false;
	return 0;
}

int profile__add_calls(struct profile *profile, const struct calls *calls)
{
	struct exact_calls *slot, exact = {.path = calls->path,
					   .calls = calls->calls,
					   .primitive_calls = calls->primitive_calls,
					   .self_ns = calls->self_ns,
					   .total_ns = calls->total_ns};

	if (!calls->calls || profile->options.cpu)
		return 0;
	if (number_path(profile, calls->path) || functions__code(&profile->functions, calls->code, &exact.function))
		return -ENOMEM;
	slot = array__add(&profile->exacts, sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	*slot = exact;
	return 0;
}

static int compare_path_and_stack(const void *a, const void *b)
{
	const struct profile_group *x = a, *y = b;

	if (x->path != y->path)
		return COMPARE(x->path, y->path);
	if (x->stack != y->stack)
		return COMPARE(x->stack, y->stack);
	if (x->cause != y->cause)
		return COMPARE(x->cause, y->cause);
	return memcmp(x->leaves, y->leaves, sizeof(x->leaves));
}

static void merge_groups(struct profile *p)
{
	struct profile_group *groups = p->groups.items;
	size_t unique_cnt = 0;

	if (p->sorted || !p->groups.cnt)
		return;
	qsort(groups, p->groups.cnt, sizeof(*groups), compare_path_and_stack);
	for (size_t i = 0; i < p->groups.cnt; i++) {
		if (!unique_cnt || compare_path_and_stack(&groups[unique_cnt - 1], &groups[i])) {
			groups[unique_cnt++] = groups[i];
			continue;
		}
		groups[unique_cnt - 1].samples += groups[i].samples;
		groups[unique_cnt - 1].weight_ns =
			saturating__add(groups[unique_cnt - 1].weight_ns, groups[i].weight_ns);
		groups[unique_cnt - 1].squares += groups[i].squares;
	}
	p->groups.cnt = unique_cnt;
	p->sorted = true;
}

/* ---- tables ---- */

/* A table in the making. */
struct profile_build {
	struct profile *p;
	struct profile_table *table;
	struct profile_row *rows; /* by function */
	size_t *seen;             /* by function: the last group that contained it */
	size_t group;             /* number of the current group, from 1 */
	uint32_t action, direct;  /* direct: the function for time without a frame in the action */
	struct intern edge_keys;
	struct array edges;      /* struct profile_edge, by key - 1 */
	struct array edges_seen; /* size_t, likewise */
};

static int profile_build__add_edge(struct profile_build *b, uint32_t caller, uint32_t function,
				   const struct profile_group *group, bool innermost)
{
	struct profile_edge *edge;
	uint32_t number;
	size_t *seen;

	if (intern__add(&b->edge_keys, (uint64_t)caller << 32 | function, &number) ||
	    array__grow(&b->edges, number, sizeof(*edge)) || array__grow(&b->edges_seen, number, sizeof(*seen)))
		return -ENOMEM;
	edge = &((struct profile_edge *)b->edges.items)[number - 1];
	seen = &((size_t *)b->edges_seen.items)[number - 1];
	edge->caller = caller;
	edge->function = function;
	if (*seen != b->group) {
		edge->samples += group->samples;
		edge->total_ns = saturating__add(edge->total_ns, group->weight_ns);
		*seen = b->group;
	}
	if (innermost)
		edge->self_ns = saturating__add(edge->self_ns, group->weight_ns);
	return 0;
}

/* Adds one function of a group's stack, callers first. *caller is the previous one. */
static int profile_build__add_function(struct profile_build *b, const struct profile_group *group, uint32_t function,
				       bool innermost, uint32_t *caller)
{
	struct profile_row *row = &b->rows[function];
	uint32_t above = *caller;

	*caller = function;
	row->function = function;
	/* Recursion counts once. */
	if (b->seen[function] != b->group) {
		row->samples += group->samples;
		row->total_ns = saturating__add(row->total_ns, group->weight_ns);
		row->squares += group->squares;
		b->seen[function] = b->group;
	}
	if (innermost)
		row->self_ns = saturating__add(row->self_ns, group->weight_ns);
	return above && b->p->options.callers ? profile_build__add_edge(b, above, function, group, innermost) : 0;
}

/* How many innermost frames of a group's stack ran in the action. */
static uint32_t frames_inside(struct profile_build *b, const struct profile_group *group, const struct stack *stack)
{
	struct path path = stacks__path(b->p->stacks, group->path);
	const struct path_action *action = find_path_action(b->p, group->path, b->action);
	uint32_t cnt;
	bool known;

	if (action->span >= path.cnt)
		return stack->cnt;
	cnt = inside__frames(b->p->inside, &path.spans[action->span], group->stack, &known);
	b->table->callers += known ? 0 : group->samples;
	return cnt;
}

static void profile_build__add_time(struct profile_table *table, const struct profile_group *group)
{
	table->samples += group->samples;
	table->squares += group->squares;
	if (group->cause == CAUSE_NONE) {
		table->cpu_ns = saturating__add(table->cpu_ns, group->weight_ns);
	} else {
		table->wait_ns = saturating__add(table->wait_ns, group->weight_ns);
		table->waits_ns[group->cause] = saturating__add(table->waits_ns[group->cause], group->weight_ns);
	}
}

static int profile_build__add_group(struct profile_build *b, const struct profile_group *group)
{
	struct stack stack = stacks__stack(b->p->stacks, group->stack);
	uint32_t frame_cnt = frames_inside(b, group, &stack), leaf_cnt = 0, left, caller = 0;
	bool direct = stack.cnt && !frame_cnt;
	int err = 0;

	b->group++;
	for (size_t i = 0; i < LEAF__COUNT; i++)
		leaf_cnt += group->leaves[i] != 0;
	left = direct + frame_cnt + leaf_cnt;
	if (direct)
		err = profile_build__add_function(b, group, b->direct, !--left, &caller);
	for (uint32_t i = frame_cnt; i > 0 && !err; i--) {
		uint32_t function;

		err = functions__code(&b->p->functions, stack.frames[i - 1].code, &function);
		if (!err)
			err = profile_build__add_function(b, group, function, !--left, &caller);
	}
	for (size_t i = 0; i < LEAF__COUNT && !err; i++)
		if (group->leaves[i])
			err = profile_build__add_function(b, group, group->leaves[i], !--left, &caller);
	profile_build__add_time(b->table, group);
	return err;
}

static void profile_build__add_exact(struct profile_build *b, const struct exact_calls *exact)
{
	struct profile_row *row = &b->rows[exact->function];

	row->function = exact->function;
	row->calls = saturating__add(row->calls, exact->calls);
	row->primitive_calls = saturating__add(row->primitive_calls, exact->primitive_calls);
	row->self_ns = saturating__add(row->self_ns, exact->self_ns);
	row->total_ns = saturating__add(row->total_ns, exact->total_ns);
	b->table->exact = true;
}

static int profile_build__fill(struct profile_build *b)
{
	const struct profile_group *groups = b->p->groups.items;
	const struct exact_calls *exacts = b->p->exacts.items;
	int err = 0;

	for (size_t i = 0; i < b->p->exacts.cnt; i++)
		if (find_path_action(b->p, exacts[i].path, b->action))
			profile_build__add_exact(b, &exacts[i]);
	for (size_t i = 0; i < b->p->groups.cnt && !b->table->exact && !err;) {
		uint32_t path = groups[i].path;
		bool has = find_path_action(b->p, path, b->action);

		for (; i < b->p->groups.cnt && groups[i].path == path && !err; i++)
			err = has ? profile_build__add_group(b, &groups[i]) : 0;
	}
	return err;
}

static int profile_build__prepare(struct profile_build *b)
{
	struct profile *p = b->p;
	size_t cnt;

	merge_groups(p);
	if (!p->inside)
		p->inside = inside__new(p->stacks, job__samples(p->job));
	if (!p->inside || functions__builtin(&p->functions, "", "directly in the action", &b->direct))
		return -ENOMEM;
	cnt = functions__end(&p->functions);
	b->rows = calloc(cnt, sizeof(*b->rows));
	b->seen = calloc(cnt, sizeof(*b->seen));
	return b->rows && b->seen ? 0 : -ENOMEM;
}

int profile__table(struct profile *profile, size_t action, struct profile_table *table)
{
	struct profile_build b = {.p = profile, .table = table, .action = action};
	int err;

	*table = (struct profile_table){0};
	err = profile_build__prepare(&b);
	if (!err)
		err = profile_build__fill(&b);
	for (size_t i = 0; !err && i < functions__end(&profile->functions); i++)
		if (b.rows[i].function)
			b.rows[table->row_cnt++] = b.rows[i];
	table->rows = b.rows;
	table->edges = b.edges.items;
	table->edge_cnt = b.edges.cnt;
	free(b.seen);
	free(b.edges_seen.items);
	intern__free(&b.edge_keys);
	if (err)
		profile_table__release(table);
	return err;
}

void profile_table__release(struct profile_table *table)
{
	free(table->rows);
	free(table->edges);
	*table = (struct profile_table){0};
}

double profile__error_ns(double squares)
{
	return 1.96 * sqrt(squares); /* the normal distribution's 97.5 % */
}
