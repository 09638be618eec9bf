// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Chooses the best rule that a process shows, unless a worse rule covers far more time: a program
 * that infers for a minute and then trains for a second should report the minute. A rule with a
 * single boundary covers no time, although its step may have lasted since long before; within that
 * step, boundaries by other rules, such as the backwards of gradient accumulation, end no steps.
 *
 * Updates by hand, or by an optimizer that torch.compile took in, show no Optimizer.step. But who
 * accumulates gradients over several backwards clears them behind the last one: if only some of the
 * backwards have a zero_grad behind them, those alone end steps.
 *
 * Boundaries of other threads and by other rules do not affect a step, with one exception: the
 * tracer emits no batch boundaries while the process trains, so many batches may lie between two of
 * them.
 */
#include "user/model/boundaries.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "user/lib/array.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/job.h"

#define FAR_MORE    10  /* times as much covered time */
#define CLEARS_MIN  3   /* a statement on what has a zero_grad behind it takes so many, */
#define CYCLE_MAX   16  /* of which each is behind at most so many backwards, */
#define REGULAR_MAX 128 /* or behind so many */
#define REGULAR     0.8 /* where that part of them is behind equally many */

struct boundaries {
	const struct rec_step **sorted; /* by pid, tid, serial */
	uint64_t *backwards;            /* times of the STEP_BACKWARD boundaries, ascending in each process */
	struct array processes;         /* struct boundary_process, by pid */
	struct array tracks;            /* struct boundary_track, in the order of processes */
	bool parts;                     /* some process has calls of a jitted function that are parts of steps */
};

struct boundary_process {
	uint32_t pid;
	size_t from, cnt; /* range in boundaries.sorted */
	size_t backwards_from, backward_cnt;
};

/* A rule on the thread that has the most whole steps by it. */
struct rule_candidate {
	struct boundary_track track;
	size_t boundary_cnt, step_cnt;
	uint64_t covered_ns; /* by whole steps */
	uint64_t first_ns;
};

static int compare_boundary(const void *a, const void *b)
{
	const struct rec_step *const *x = a, *const *y = b;

	if ((*x)->pid != (*y)->pid)
		return COMPARE((*x)->pid, (*y)->pid);
	if ((*x)->tid != (*y)->tid)
		return COMPARE((*x)->tid, (*y)->tid);
	if ((*x)->serial != (*y)->serial)
		return COMPARE((*x)->serial, (*y)->serial);
	return COMPARE(*x, *y);
}

/* Sorts the boundaries of main processes. 0 or -ENOMEM. */
static int sort_boundaries(struct boundaries *boundaries, const struct job *job, size_t *cnt)
{
	size_t all;
	const struct rec_step *steps = job__boundaries(job, &all);
	bool sorted = true;

	boundaries->sorted = malloc((all + 1) * sizeof(*boundaries->sorted));
	*cnt = 0;
	for (size_t i = 0; boundaries->sorted && i < all; i++) {
		if (!job__is_main(job, steps[i].pid) || steps[i].rule == STEP_TICK)
			continue;
		boundaries->sorted[*cnt] = &steps[i];
		sorted &= !*cnt || compare_boundary(&boundaries->sorted[*cnt - 1], &boundaries->sorted[*cnt]) < 0;
		(*cnt)++;
	}
	if (!sorted)
		qsort(boundaries->sorted, *cnt, sizeof(*boundaries->sorted), compare_boundary);
	return boundaries->sorted ? 0 : -ENOMEM;
}

static int add_processes(struct boundaries *boundaries, size_t cnt)
{
	const struct rec_step **sorted = boundaries->sorted;
	struct boundary_process *process = NULL;
	size_t backward_cnt = 0;

	boundaries->backwards = malloc((cnt + 1) * sizeof(*boundaries->backwards));
	if (!boundaries->backwards)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++) {
		if (!process || process->pid != sorted[i]->pid) {
			process = array__add(&boundaries->processes, sizeof(*process));
			if (!process)
				return -ENOMEM;
			*process = (struct boundary_process){
				.pid = sorted[i]->pid, .from = i, .backwards_from = backward_cnt};
		}
		process->cnt++;
		if (sorted[i]->rule != STEP_BACKWARD)
			continue;
		boundaries->backwards[backward_cnt++] = sorted[i]->time_ns;
		process->backward_cnt++;
	}
	process = boundaries->processes.items;
	for (size_t i = 0; i < boundaries->processes.cnt; i++)
		qsort(boundaries->backwards + process[i].backwards_from, process[i].backward_cnt,
		      sizeof(*boundaries->backwards), compare__u64);
	return 0;
}

/* Whether the process trained between a and b. */
static bool has_backward(const struct boundaries *boundaries, const struct rec_step *a, const struct rec_step *b)
{
	const struct boundary_process *all = boundaries->processes.items, *process = NULL;
	size_t low = SEARCH(i, 0, boundaries->processes.cnt, all[i].pid <= a->pid);
	const uint64_t *times;

	if (!low)
		return false;
	process = &all[low - 1];
	times = boundaries->backwards + process->backwards_from;
	low = SEARCH(i, 0, process->backward_cnt, times[i] <= a->time_ns);
	return low < process->backward_cnt && times[low] < b->time_ns;
}

/* Whether gradients were cleared between a backward and the next one. */
static bool is_cleared(const struct boundary_track *track, size_t at)
{
	for (size_t i = at + 1; i < track->cnt; i++) {
		if (track->all[i]->phase_ns[PHASE_OPTIMIZER])
			return true;
		if (track->all[i]->rule == track->rule)
			return false;
	}
	return false;
}

/* The first boundary at or after `at` that ends a step by the track's rule; track->cnt: no such boundary. */
static size_t next_by_rule(const struct boundary_track *track, size_t at)
{
	while (at < track->cnt &&
	       (track->all[at]->rule != track->rule || (track->by_zero_grad && !is_cleared(track, at))))
		at++;
	return at;
}

/* Has the process rested between two boundaries of the track? */
static bool has_rest(const struct boundary_track *track, size_t from, size_t to)
{
	while (++from <= to)
		if (track->all[from]->hdr.flags & REC_RESTED)
			return true;
	return false;
}

/* By how much the index of a boundary is above that of an earlier one, if none is missing between them. */
static uint64_t index_step(const struct boundary_track *track, size_t from, size_t to)
{
	uint64_t cnt = 1;

	for (size_t i = from + 1; track->by_zero_grad && i < to; i++)
		cnt += track->all[i]->rule == track->rule;
	return cnt;
}

/*
 * Whether no boundary is missing between two boundaries by the rule, and they delimit a single
 * step.
 */
static bool is_whole(const struct boundaries *boundaries, const struct boundary_track *track, size_t from, size_t to)
{
	const struct rec_step *a = track->all[from], *b = track->all[to];

	if (b->index != a->index + index_step(track, from, to) || b->serial - a->serial != to - from ||
	    b->time_ns <= a->time_ns || has_rest(track, from, to))
		return false;
	return track->rule != STEP_LOADER || !has_backward(boundaries, a, b);
}

bool boundaries__next(const struct boundaries *boundaries, const struct boundary_track *track, size_t *from, size_t *to)
{
	*from = next_by_rule(track, *to);
	while (*from < track->cnt) {
		*to = next_by_rule(track, *from + 1);
		if (*to == track->cnt)
			return false;
		if (is_whole(boundaries, track, *from, *to))
			return true;
		*from = *to;
	}
	return false;
}

static void count_lost(struct boundary_track *track)
{
	for (size_t from = next_by_rule(track, 0), to; from < track->cnt; from = to) {
		const struct rec_step *a = track->all[from], *b;
		uint64_t step;

		to = next_by_rule(track, from + 1);
		b = to < track->cnt ? track->all[to] : NULL;
		if (!b || has_rest(track, from, to)) /* a rest did not end the step that began before it */
			continue;
		step = index_step(track, from, to);
		if (b->index > a->index + step)
			track->lost = saturating__add(track->lost, track->by_zero_grad ? 1 : b->index - a->index - 1);
		else if (b->index == a->index + step && b->serial - a->serial != to - from)
			track->lost = saturating__add(track->lost, 1);
	}
}

/* ---- which rule ---- */

static void update_candidate(const struct boundaries *boundaries, struct boundary_track thread, uint32_t rule,
			     struct rule_candidate *best)
{
	struct rule_candidate new = {.track = thread};
	size_t from, to = 0;

	new.track.rule = rule;
	for (size_t i = next_by_rule(&new.track, 0); i < thread.cnt; i = next_by_rule(&new.track, i + 1)) {
		if (!new.boundary_cnt++)
			new.first_ns = thread.all[i]->time_ns;
		new.track.last = thread.all[i];
	}
	if (!new.boundary_cnt)
		return;
	while (boundaries__next(boundaries, &new.track, &from, &to)) {
		new.step_cnt++;
		new.covered_ns = saturating__add(new.covered_ns, thread.all[to]->time_ns - thread.all[from]->time_ns);
	}
	if (!best->boundary_cnt || new.step_cnt > best->step_cnt ||
	    (new.step_cnt == best->step_cnt &&new.boundary_cnt > best->boundary_cnt))
		*best = new;
}

/*
 * The longest time that the first step by the better rule may have lasted before its first
 * boundary.
 */
static uint64_t unknown_ns(const struct rule_candidate *better, const struct rule_candidate *worse)
{
	uint64_t since_ns = better->first_ns;

	for (size_t i = next_by_rule(&worse->track, 0); i < worse->track.cnt; i = next_by_rule(&worse->track, i + 1)) {
		if (worse->track.all[i]->time_ns >= better->first_ns)
			break;
		since_ns = worse->track.all[i]->time_ns;
	}
	return better->first_ns - since_ns;
}

static bool takes_over(const struct rule_candidate *worse, const struct rule_candidate *better)
{
	if (!worse->step_cnt ||
	    (!better->step_cnt && worse->track.rule != STEP_LOADER && worse->track.rule != STEP_OPTIMIZER))
		return false;
	return worse->covered_ns / FAR_MORE > saturating__add(better->covered_ns, unknown_ns(better, worse));
}

/* Do steps have several backwards each, and a zero_grad behind the last one? */
static bool has_cycles(const struct boundary_track *track)
{
	size_t of_length[REGULAR_MAX + 1] = {0}, cycles = 0, all = 0, length = 0, most = 0;
	bool begun = false; /* the first cycle began before */

	for (size_t i = next_by_rule(track, 0); i < track->cnt; i = next_by_rule(track, i + 1)) {
		length++;
		if (!is_cleared(track, i))
			continue;
		if (begun) {
			cycles++;
			all += length;
			of_length[length < REGULAR_MAX ? length : REGULAR_MAX]++;
		}
		begun = true;
		length = 0;
	}
	for (size_t i = 1; i < REGULAR_MAX; i++)
		most = of_length[i] > most ? of_length[i] : most;
	/* Behind the last one, and before the first, there may be many without any. */
	return cycles >= CLEARS_MIN && all > cycles && length <= REGULAR_MAX &&
	       (all <= CYCLE_MAX * cycles || most >= REGULAR * cycles);
}

/* Of the time in all jitted functions: the one that ends steps has less, and rarer ones together have so much. */
#define JIT_MOST  0.5
#define JIT_RARER 0.05
#define JIT_CALLS 4 /* fewer are a compile, or a summary at an end */

/* Without the longest call, in which XLA may have compiled, and without nested spans, as that compile. */
static double usual_ns(const struct agg_val *val)
{
	uint64_t ns = val->self_ns < val->total_ns ? val->self_ns : val->total_ns;

	return ns > val->max_ns ? ns - val->max_ns : 0;
}

/*
 * Where JAX's operators are called one by one, each is a jitted function, and the one that has most of the time may be called
 * many times a step. That shows if no function has half of the time, and functions that have some of it, too, are called half
 * as often at most.
 */
static bool are_parts(struct job *job, uint32_t pid, const struct rule_candidate *jit)
{
	size_t cnt;
	const struct job_action *rows = job__actions(job, &cnt);
	uint64_t calls = jit->track.last->index;
	double all_ns = 0, most_ns = 0, rarer_ns = 0;

	for (size_t i = 0; i < cnt; i++) {
		double ns = usual_ns(&rows[i].val);

		if (rows[i].pid != pid || rows[i].kind != SPAN_JIT)
			continue;
		all_ns += ns;
		if (rows[i].val.calls >= calls)
			most_ns = fmax(most_ns, ns);
		else if (rows[i].val.calls >= JIT_CALLS && rows[i].val.calls <= calls / 2)
			rarer_ns += ns;
	}
	return most_ns < JIT_MOST * all_ns && rarer_ns >= JIT_RARER * all_ns;
}

static int choose_rule(struct boundaries *boundaries, struct job *job, const struct boundary_process *process)
{
	struct rule_candidate candidates[STEP__COUNT] = {0}, *chosen = NULL;
	const struct rec_step **all = boundaries->sorted + process->from;
	struct boundary_track *track;

	for (size_t from = 0, to; from < process->cnt; from = to) {
		struct boundary_track thread = {.pid = process->pid, .tid = all[from]->tid, .all = all + from};
		bool seen[STEP__COUNT] = {0};

		for (to = from; to < process->cnt && all[to]->tid == all[from]->tid; to++)
			seen[all[to]->rule] = true;
		thread.cnt = to - from;
		for (uint32_t rule = 0; rule < STEP__COUNT; rule++)
			if (seen[rule])
				update_candidate(boundaries, thread, rule, &candidates[rule]);
	}
	if (candidates[STEP_JIT].boundary_cnt && are_parts(job, process->pid, &candidates[STEP_JIT])) {
		candidates[STEP_JIT] = (struct rule_candidate){0};
		boundaries->parts = true;
	}
	for (uint32_t rule = 0; rule < STEP__COUNT; rule++)
		if (candidates[rule].boundary_cnt && (!chosen || takes_over(&candidates[rule], chosen)))
			chosen = &candidates[rule];
	if (!chosen)
		return 0;
	track = array__add(&boundaries->tracks, sizeof(*track));
	if (!track)
		return -ENOMEM;
	*track = chosen->track;
	track->by_zero_grad = track->rule == STEP_BACKWARD && has_cycles(track);
	count_lost(track);
	return 0;
}

/* ---- together ---- */

/* Drops boundaries that were recorded twice. */
static void drop_doubles(struct boundaries *boundaries, size_t *cnt)
{
	const struct rec_step **sorted = boundaries->sorted;
	size_t unique_cnt = 0;

	for (size_t i = 0; i < *cnt; i++)
		if (!unique_cnt || sorted[i]->serial != sorted[unique_cnt - 1]->serial ||
		    sorted[i]->tid != sorted[unique_cnt - 1]->tid || sorted[i]->pid != sorted[unique_cnt - 1]->pid)
			sorted[unique_cnt++] = sorted[i];
	*cnt = unique_cnt;
}

struct boundaries *boundaries__new(struct job *job)
{
	struct boundaries *boundaries = calloc(1, sizeof(*boundaries));
	const struct boundary_process *processes;
	size_t cnt;
	int err = boundaries ? sort_boundaries(boundaries, job, &cnt) : -ENOMEM;

	if (!err) {
		drop_doubles(boundaries, &cnt);
		err = add_processes(boundaries, cnt);
	}
	processes = err ? NULL : boundaries->processes.items;
	for (size_t i = 0; !err && i < boundaries->processes.cnt; i++)
		err = choose_rule(boundaries, job, &processes[i]);
	if (err) {
		boundaries__free(boundaries);
		boundaries = NULL;
	}
	return boundaries;
}

void boundaries__free(struct boundaries *boundaries)
{
	if (!boundaries)
		return;
	free(boundaries->sorted);
	free(boundaries->backwards);
	free(boundaries->processes.items);
	free(boundaries->tracks.items);
	free(boundaries);
}

static const struct boundary_track *track_of(const struct boundaries *boundaries, uint32_t pid)
{
	size_t cnt;
	const struct boundary_track *tracks = boundaries__tracks(boundaries, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (tracks[i].pid == pid)
			return &tracks[i];
	return NULL;
}

uint32_t boundary_track__rule(const struct boundary_track *track)
{
	return track->by_zero_grad ? STEP_ZERO_GRAD : track->rule;
}

bool boundaries__is_rule(uint32_t pid, uint32_t rule, void *boundaries)
{
	const struct boundary_track *track = track_of(boundaries, pid);

	return track && track->rule == rule;
}

bool boundaries__is_thread(uint32_t pid, uint32_t tid, void *boundaries)
{
	const struct boundary_track *track = track_of(boundaries, pid);

	return track && track->tid == tid;
}

const struct boundary_track *boundaries__tracks(const struct boundaries *boundaries, size_t *cnt)
{
	*cnt = boundaries->tracks.cnt;
	return boundaries->tracks.items;
}

/* In the window, also those that are not whole. */
static uint64_t count_ended(const struct boundary_track *track)
{
	uint64_t cnt = track->lost;

	if (!track->by_zero_grad)
		return track->last->index;
	for (size_t i = next_by_rule(track, 0); i < track->cnt; i = next_by_rule(track, i + 1))
		cnt++;
	return cnt;
}

bool boundaries__has_parts(struct job *job)
{
	struct boundaries *boundaries = boundaries__new(job);
	bool parts = boundaries && boundaries->parts;

	boundaries__free(boundaries);
	return parts;
}

void boundaries__count(struct job *job, uint64_t *steps, uint32_t *rule)
{
	struct boundaries *boundaries = boundaries__new(job);
	const struct boundary_track *tracks = NULL;
	size_t cnt = 0;

	*steps = job__window(job)->steps;
	*rule = job__window(job)->step_rule;
	if (boundaries)
		tracks = boundaries__tracks(boundaries, &cnt);
	if (boundaries && boundaries->parts && *rule == STEP_JIT) {
		*steps = 0;
		*rule = STEP_NONE;
	}
	for (size_t i = 0; i < cnt; i++) {
		uint64_t ended = count_ended(&tracks[i]);

		if (i && ended <= *steps)
			continue;
		*steps = ended;
		*rule = boundary_track__rule(&tracks[i]);
	}
	/* The ring buffer had no room for the last boundaries. */
	if (job__window(job)->step_rule == *rule && job__window(job)->steps > *steps)
		*steps = job__window(job)->steps;
	boundaries__free(boundaries);
}
