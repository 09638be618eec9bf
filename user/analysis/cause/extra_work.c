// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds a second kind of work: slow steps that call a function that ordinary steps do not call,
 * such as an evaluation, a rollout, a log or a library's checkpoint, which have no landmark. Among
 * the steps that no single wait explains, finds the function that has the excess of all of them.
 * The steps that spend half of their own excess in it are one kind; the search then repeats with
 * the others.
 */
#include <errno.h>
#include <stdlib.h>

#include "user/analysis/cause/blame_private.h"

#define KINDS_MAX  8
#define HALF       0.5
#define NEARLY_ALL 0.8
#define ONE_WAIT   0.7 /* of the excess: the wait is the cause, although any work may contain it */

/*
 * Waits that any work may contain: an evaluation, too, waits for batches, and for answers of
 * workers and ranks.
 */
static bool is_common_wait(unsigned int cause)
{
	return cause == CAUSE_DATA_WAIT || cause == CAUSE_COLLECTIVE || cause == CAUSE_POLL || cause == CAUSE_PIPE ||
	       cause == CAUSE_SOCKET || cause == CAUSE_GPU_SYNC;
}

/* Whether one wait, or a phase of its own, explains most of the step's excess. */
static bool is_explained(const struct slow_cause *slow, uint64_t over_ns)
{
	if (slow->phase == PHASE_DATA)
		return true; /* every step gets data */
	/* Longer work also waits longer for a CPU. */
	if (slow->cause == CAUSE_NONE || slow->cause == CAUSE_UNKNOWN ||
	    (slow->cause == CAUSE_RUN_QUEUE && slow->ns < ONE_WAIT * over_ns))
		return false;
	return slow->cause >= CAUSE__END || !is_common_wait(slow->cause) || slow->ns >= ONE_WAIT * over_ns;
}

static size_t mark_open(const struct blame_builder *b, bool *open)
{
	size_t cnt = 0;

	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		open[i] = !b->slow[i].place && !is_explained(&b->slow[i], b->blame->steps[i].over_ns);
		cnt += open[i];
	}
	return cnt;
}

static int find_excess_place(struct blame_builder *b, const bool *open, size_t open_cnt, struct place *place)
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
 * Assigns the steps whose samples are in the function, and returns their number. Also assigns steps
 * with too few samples, if the function holds nearly all of the open excess, and if the step is at
 * least half as slow as the others on average.
 */
static size_t assign_steps(struct blame_builder *b, const bool *open, const uint64_t *in_ns, uint32_t number)
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

/* Finds one kind. *more: there may be another. */
static int find_extra_kind(struct blame_builder *b, bool *open, uint64_t *in_ns, bool *more)
{
	size_t open_cnt = mark_open(b, open);
	struct place place, *added;
	int err;

	*more = false;
	err = open_cnt ? find_excess_place(b, open, open_cnt, &place) : 0;
	if (err || !open_cnt || !place.rare)
		return err;
	added = array__add(&b->extra, sizeof(*added));
	if (!added)
		return -ENOMEM;
	*added = place;
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		in_ns[i] = 0;
	places__in(&b->blame->places, place__main(&place)->code, in_ns, b->track->slow_cnt);
	*more = assign_steps(b, open, in_ns, b->extra.cnt);
	return 0;
}

int blame_builder__find_extra(struct blame_builder *b)
{
	bool *open = calloc(b->track->slow_cnt + 1, sizeof(*open)), more = true;
	uint64_t *in_ns = calloc(b->track->slow_cnt + 1, sizeof(*in_ns));
	int err = open && in_ns ? 0 : -ENOMEM;

	for (int i = 0; i < KINDS_MAX && !err && more; i++)
		err = find_extra_kind(b, open, in_ns, &more);
	free(open);
	free(in_ns);
	return err;
}
