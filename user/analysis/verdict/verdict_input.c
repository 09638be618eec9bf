// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What DataLoader workers do while the steps wait for their batches. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/loader/worker_stacks.h"
#include "user/analysis/loader/workers.h"
#include "user/analysis/verdict/verdict_private.h"
#include "user/lib/intern.h"
#include "user/lib/saturating.h"

#define SLOWER 1.5 /* times as busy as any other worker */

enum worker_slot { SLOT_WORKS, SLOT_OTHER };
#define NO_SLOT (-1)

static double busy_share_of_seen(const struct worker *worker)
{
	return worker->seen_ns > worker->idle_ns ? (double)(worker->seen_ns - worker->idle_ns) / worker->seen_ns : 0;
}

/*
 * Whether a worker hardly idles while all others do, and so holds up the rest. An only worker is
 * not slower.
 */
static bool is_slower(const struct loader *loader, uint32_t pid)
{
	double share = 0, most = 0;
	bool others = false;

	for (size_t i = 0; i < loader->worker_cnt; i++) {
		const struct worker *worker = &loader->workers[i];

		if (worker->pid == pid) {
			share = busy_share_of_seen(worker);
		} else {
			most = fmax(most, busy_share_of_seen(worker));
			others |= worker->seen_ns > 0;
		}
	}
	return others && share > SLOWER * most;
}

/*
 * Finds the workers of the process, and the one that ends most of its waits, if it is slower than
 * the others.
 */
static int find_worker_pids(struct judge *j, struct intern *pids)
{
	uint32_t waker = j->group && verdict__one_waker(j->group) ? j->group->waker_pid : 0, number;
	struct workers *workers = workers__new(j->job, j->steps);
	size_t cnt = 0;
	const struct loader *loaders = workers ? workers__loaders(workers, &cnt) : NULL;
	int err = workers ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++) {
		if (loaders[i].pid != j->track->pid)
			continue;
		for (size_t w = 0; w < loaders[i].worker_cnt && !err; w++)
			err = intern__add(pids, loaders[i].workers[w].pid, &number);
		if (waker && is_slower(&loaders[i], waker))
			j->slow_worker = waker;
	}
	workers__free(workers);
	return err;
}

static unsigned int main_cause(const uint64_t *ns)
{
	unsigned int best = 0;

	for (unsigned int cause = 1; cause < CAUSE__END; cause++)
		if (ns[cause] > ns[best])
			best = cause;
	return best;
}

static void say_place(struct judge *j, const struct place *place, const uint64_t *ns)
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

static bool input_waits_for_workers(const struct judge *j)
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

/*
 * Compares a worker's work with idle workers, and with the training thread, whose frames are the
 * outermost ones of a forked worker.
 */
static int slot_of(const struct judge *j, const uint8_t *stacks, const struct sample *s, const struct intern *workers)
{
	if (s->pid == j->track->pid)
		return s->tid == j->track->tid ? SLOT_OTHER : NO_SLOT;
	if ((stacks[s->stack] != STACK_WORKS && stacks[s->stack] != STACK_IDLE) || !intern__find(workers, s->pid))
		return NO_SLOT;
	return stacks[s->stack] == STACK_IDLE ? SLOT_OTHER : SLOT_WORKS;
}

bool verdict__starts_workers(struct judge *j, const struct blame_group *group)
{
	const struct samples *samples = job__samples(j->job);
	uint8_t *stacks = samples ? worker_stacks__new(j->job) : NULL;
	uint64_t ns = 0;

	if (!stacks) {
		j->err = j->err ?: -ENOMEM;
		return false;
	}
	for (size_t i = 0; i < samples__cnt(samples); i++) {
		struct sample s;

		if (samples__thread_of(samples, i) != j->track->thread)
			continue;
		s = samples__get(samples, i);
		if (stacks[s.stack] == STACK_STARTS &&
		    verdict__is_of_group(j, group, step_track__at(j->track, s.time_ns)))
			ns = saturating__add(ns, s.weight_ns);
	}
	free(stacks);
	return ns >= group->over_ns / 2;
}

bool verdict__say_workers(struct judge *j)
{
	static const bool slots[][2] = {[SLOT_WORKS] = {true, false}, [SLOT_OTHER] = {false, true}};
	const struct place_question ask = {
		.more = {slots[SLOT_WORKS], 2, 1}, .less = {slots[SLOT_OTHER], 0, 1}, .all = {slots[SLOT_OTHER], 2, 1}};
	const struct samples *samples = job__samples(j->job);
	struct places places = {.job = j->job};
	uint64_t ns[CAUSE__END] = {0};
	struct intern workers = {0};
	struct place place = {0};
	uint8_t *stacks;
	int err;

	if (!input_waits_for_workers(j))
		return false;
	stacks = samples ? worker_stacks__new(j->job) : NULL;
	err = !stacks || find_worker_pids(j, &workers) ? -ENOMEM : 0;
	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample s = samples__get(samples, i);
		int slot = slot_of(j, stacks, &s, &workers);

		if (slot == NO_SLOT)
			continue;
		err = places__add(&places, slot, &s);
		if (slot == SLOT_WORKS)
			ns[s.cause] = saturating__add(ns[s.cause], s.weight_ns);
	}
	err = err ?: places__find(&places, &ask, &place);
	if (!err && place.outer.code)
		say_place(j, &place, ns);
	places__free(&places);
	intern__free(&workers);
	free(stacks);
	j->err = j->err ?: err;
	return place.outer.code;
}
