// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A second kind of work: slow steps that call a function that ordinary ones do not, such as an evaluation, a rollout, a log or
 * a checkpoint of some library, none of which has a landmark. Of the steps that are not yet explained by one wait, the
 * function that has the excess of all of them is looked for; those that are in it for half of their own excess are of that
 * kind; and so again with the others.
 */
#include <errno.h>
#include <stdlib.h>

#include "user/analysis/blame_private.h"

#define KINDS_MAX  8
#define HALF       0.5
#define NEARLY_ALL 0.8
#define ONE_WAIT   0.7 /* of what a step has more: its cause, though it may be a part of any work */

/* Part of how any work is done: batches, answers of workers and of ranks are waited for in an evaluation, too. */
static bool is_vague(unsigned int cause)
{
	return cause == CAUSE_DATA_WAIT || cause == CAUSE_COLLECTIVE || cause == CAUSE_POLL || cause == CAUSE_PIPE ||
	       cause == CAUSE_SOCKET || cause == CAUSE_GPU_SYNC;
}

/* Is one wait, or what has a phase of its own, most of what the step has more? */
static bool is_explained(const struct slow_cause *slow, uint64_t over_ns)
{
	if (slow->phase == PHASE_DATA)
		return true; /* getting data is each step's work */
	/* What takes longer waits more for a CPU, too. */
	if (slow->cause == CAUSE_NONE || slow->cause == CAUSE_UNKNOWN ||
	    (slow->cause == CAUSE_RUN_QUEUE && slow->ns < ONE_WAIT * over_ns))
		return false;
	return slow->cause >= CAUSE__END || !is_vague(slow->cause) || slow->ns >= ONE_WAIT * over_ns;
}

static size_t mark_open(const struct blaming *b, bool *open)
{
	size_t cnt = 0;

	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		open[i] = !b->slow[i].place && !is_explained(&b->slow[i], b->blame->steps[i].over_ns);
		cnt += open[i];
	}
	return cnt;
}

static int find_place(struct blaming *b, const bool *open, size_t open_cnt, struct place *place)
{
	size_t slots = b->track->slow_cnt + 1;
	bool *ordinary = calloc(slots, sizeof(*ordinary));
	struct place_set rest = {ordinary, slots, b->blame->all.step_cnt - b->blame->slow.step_cnt};
	struct place_question ask = {.more = {open, b->track->slow_cnt, open_cnt}, .less = rest, .all = rest};
	int err = -ENOMEM;

	*place = (struct place){0};
	if (ordinary) {
		ordinary[slots - 1] = true;
		err = rest.steps ? places__find(&b->blame->places, &ask, place) : 0;
	}
	free(ordinary);
	return err;
}

static void put_cause(struct slow_cause *slow, uint64_t in_ns, uint32_t number)
{
	slow->cause = BLAME_EXTRA;
	slow->phase = ANY_PHASE;
	slow->place = number;
	slow->ns = in_ns;
}

/*
 * The steps in which the function is, by their samples. One that too few met is like these, where they have nearly all of what
 * is open, and it is as slow as half of them on average. Returns how many there are.
 */
static size_t assign(struct blaming *b, const bool *open, const uint64_t *in_ns, uint32_t number)
{
	uint64_t over_ns = 0, all_in_ns = 0, put_ns = 0;
	size_t cnt = 0;

	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		uint64_t own_ns = b->blame->steps[i].over_ns;

		if (!open[i])
			continue;
		over_ns += own_ns;
		all_in_ns += in_ns[i];
		if (in_ns[i] < HALF * own_ns)
			continue;
		put_cause(&b->slow[i], in_ns[i], number);
		put_ns += own_ns;
		cnt++;
	}
	if (!cnt || all_in_ns < NEARLY_ALL * over_ns)
		return cnt;
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		if (open[i] && !b->slow[i].place && b->slow[i].sample_cnt < PLACE_SAMPLES &&
		    b->blame->steps[i].over_ns >= HALF * put_ns / cnt)
			put_cause(&b->slow[i], in_ns[i], number);
	return cnt;
}

/* One kind. *more: there may be another one. */
static int find_kind(struct blaming *b, bool *open, uint64_t *in_ns, bool *more)
{
	size_t open_cnt = mark_open(b, open);
	struct place place, *kept;
	int err;

	*more = false;
	err = open_cnt ? find_place(b, open, open_cnt, &place) : 0;
	if (err || !open_cnt || !place.rare)
		return err;
	kept = array__add(&b->extra, sizeof(*kept));
	if (!kept)
		return -ENOMEM;
	*kept = place;
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		in_ns[i] = 0;
	places__in(&b->blame->places, place__main(&place)->code, in_ns, b->track->slow_cnt);
	*more = assign(b, open, in_ns, b->extra.cnt);
	return 0;
}

int blaming__find_extra(struct blaming *b)
{
	bool *open = calloc(b->track->slow_cnt + 1, sizeof(*open)), more = true;
	uint64_t *in_ns = calloc(b->track->slow_cnt + 1, sizeof(*in_ns));
	int err = open && in_ns ? 0 : -ENOMEM;

	for (int i = 0; i < KINDS_MAX && !err && more; i++)
		err = find_kind(b, open, in_ns, &more);
	free(open);
	free(in_ns);
	return err;
}
