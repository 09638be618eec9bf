// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What DataLoader workers do while the steps wait for their batches. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/verdict_private.h"
#include "user/analysis/worker_stacks.h"
#include "user/lib/saturating.h"

#define SLOWER 1.5 /* times the share of its time at work of any other worker */

enum slot { SLOT_WORKS, SLOT_OTHER };
#define NO_SLOT (-1)

struct child {
	uint32_t pid;
	uint64_t works_ns, idle_ns;
};

struct children {
	struct child *items;
	size_t cnt, last; /* last: the one that was asked for */
};

static int find_children(const struct judging *j, struct children *out)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(j->job, &cnt);

	out->items = calloc(cnt + 1, sizeof(*out->items));
	for (size_t i = 0; out->items && i < cnt; i++)
		if (targets[i].parent_pid == j->track->pid && targets[i].role != ROLE_MAIN)
			out->items[out->cnt++].pid = targets[i].pid;
	return out->items ? 0 : -1;
}

static struct child *find_child(struct children *children, uint32_t pid)
{
	for (size_t i = 0; i < children->cnt; i++) {
		size_t at = (children->last + i) % children->cnt;

		if (children->items[at].pid == pid) {
			children->last = at;
			return &children->items[at];
		}
	}
	return NULL;
}

static double work_share(const struct child *child)
{
	return child->works_ns ? (double)child->works_ns / (child->works_ns + child->idle_ns) : 0;
}

/* One that hardly idles, while all others do: it holds up the rest. A worker that has none beside it does not. */
static bool is_slower(const struct children *children, uint32_t pid)
{
	double share = 0, most = 0;
	bool others = false;

	for (size_t i = 0; i < children->cnt; i++) {
		const struct child *child = &children->items[i];

		if (child->pid == pid) {
			share = work_share(child);
		} else {
			most = fmax(most, work_share(child));
			others |= child->works_ns || child->idle_ns;
		}
	}
	return others && share > SLOWER * most;
}

static unsigned int main_cause(const uint64_t *ns)
{
	unsigned int best = 0;

	for (unsigned int cause = 1; cause < CAUSE__END; cause++)
		if (ns[cause] > ns[best])
			best = cause;
	return best;
}

static void say_place(struct judging *j, const struct place *place, const uint64_t *ns)
{
	unsigned int cause = main_cause(ns);
	uint64_t sum = 0;
	char *text;

	for (unsigned int i = 0; i < CAUSE__END; i++)
		sum = saturating__add(sum, ns[i]);
	text = place__text(j->job, place);
	if (!text || asprintf(&j->verdict->place, "%s, in its workers", text) < 0) {
		j->verdict->place = NULL;
		j->err = -ENOMEM;
	} else {
		verdict__say(j, &j->verdict->evidence, "its workers: %.0f %% of their work is in %s (%s)",
			     100.0 * place__main(place)->ns / sum, text,
			     cause ? sample_cause__name(cause) : "on the CPU");
	}
	free(text);
}

static bool waits_for_workers(const struct judging *j)
{
	const struct step_sum *all = &j->blame->all;
	uint64_t sum = 0;

	if (j->verdict->class != VERDICT_INPUT)
		return false;
	if (j->group && !j->rule)
		return j->group->cause == CAUSE_DATA_WAIT;
	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		sum = saturating__add(sum, all->ns[PHASE_DATA][cause]);
	return 2 * all->ns[PHASE_DATA][CAUSE_DATA_WAIT] >= sum && sum;
}

/* A worker's work, and what that is held against: workers that idle, and the thread that trains, whose frames those of a fork begin with. */
static int slot_of(const struct judging *j, const uint8_t *stacks, const struct sample *s, struct children *children)
{
	struct child *child;

	if (s->pid == j->track->pid)
		return s->tid == j->track->tid ? SLOT_OTHER : NO_SLOT;
	child = find_child(children, s->pid);
	if (!child || (stacks[s->stack] != STACK_WORKS && stacks[s->stack] != STACK_IDLE))
		return NO_SLOT;
	if (stacks[s->stack] == STACK_IDLE) {
		child->idle_ns = saturating__add(child->idle_ns, s->weight_ns);
		return SLOT_OTHER;
	}
	child->works_ns = saturating__add(child->works_ns, s->weight_ns);
	return SLOT_WORKS;
}

bool verdict__say_workers(struct judging *j)
{
	static const bool slots[][2] = {[SLOT_WORKS] = {true, false}, [SLOT_OTHER] = {false, true}};
	const struct place_question ask = {
		.more = {slots[SLOT_WORKS], 2, 1}, .less = {slots[SLOT_OTHER], 0, 1}, .all = {slots[SLOT_OTHER], 2, 1}};
	const struct samples *samples = job__samples(j->job);
	struct places places = {.job = j->job};
	uint64_t ns[CAUSE__END] = {0};
	struct children children = {0};
	struct place place = {0};
	uint8_t *stacks;
	int err;

	if (!waits_for_workers(j))
		return false;
	stacks = samples ? worker_stacks__new(j->job) : NULL;
	err = !stacks || find_children(j, &children) ? -ENOMEM : 0;
	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample s = samples__get(samples, i);
		int slot = slot_of(j, stacks, &s, &children);

		if (slot == NO_SLOT)
			continue;
		err = places__add(&places, slot, &s);
		if (slot == SLOT_WORKS)
			ns[s.cause] = saturating__add(ns[s.cause], s.weight_ns);
	}
	err = err ?: places__find(&places, &ask, &place);
	if (j->group && verdict__one_waker(j->group) && is_slower(&children, j->group->waker_pid))
		j->slow_worker = j->group->waker_pid;
	if (!err && place.outer.code)
		say_place(j, &place, ns);
	places__free(&places);
	free(children.items);
	free(stacks);
	j->err = j->err ?: err;
	return place.outer.code;
}
