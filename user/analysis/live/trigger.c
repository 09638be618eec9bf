// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/live/trigger.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "include/resource_records.h"
#include "user/lib/array.h"
#include "user/lib/percentile.h"

/*
 * ---- stragglers ----
 *
 * Sees, while a recording grows, that one rank of a job holds the others up. In: steps as they end, and which job a process is of. Ranks
 * that wait for each other have steps of one length; what differs is their own work, the time outside of collectives, validation and
 * checkpoints. Time is cut into blocks of LAG_NS in which each rank ends LAG_STEPS_MIN steps or more. A rank is a straggler when its own
 * work per step is above the mean of the others' by the given percentage in LAG_BLOCKS blocks together, by half of that in each of them,
 * and by half of that percentage of a whole step; and the others wait in collectives for half of the difference, or more.
 */

#define LAG_NS        4000000000ull
#define LAG_BLOCKS    4
#define LAG_STEPS_MIN 4

/* All zeros: no process is known. */
struct lag {
	struct array members; /* struct lag_member */
};

struct lag_found {
	uint32_t pid;
	uint64_t since_ns, since_step; /* end of its first step in the blocks, and its index */
	uint64_t own_ns, others_ns;    /* own work per step, and the mean of the others' */
};

struct block {
	uint64_t steps, own_ns, comm_ns;
	uint64_t first_ns, first_step; /* end of its first step, and the index of that */
};

struct lag_member {
	uint32_t pid;
	bool told;
	bool trains; /* it has made a step: others, like a launcher, are of the job without being ranks */
	uint32_t uid;
	char name[sizeof(((struct rec_job *)0)->name)], meets[sizeof(((struct rec_job *)0)->meets)];
	uint64_t begin_ns; /* of this block, the same for all of a job; 0: it has made no step in it */
	uint32_t block_cnt;
	struct block now, blocks[LAG_BLOCKS]; /* each at its number modulo that */
};

static struct lag_member *find_member(const struct lag *lag, uint32_t pid)
{
	struct lag_member *all = lag->members.items;

	for (size_t i = 0; i < lag->members.cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	return NULL;
}

/* Anybody can say that he is of the job of another user. */
static bool are_of_one_job(const struct lag_member *a, const struct lag_member *b)
{
	return a->uid == b->uid && !memcmp(a->name, b->name, sizeof(a->name)) &&
	       !memcmp(a->meets, b->meets, sizeof(a->meets));
}

/* Who comes or goes changes what the others are compared with. */
static void begin_again(struct lag *lag, const struct lag_member *of)
{
	struct lag_member *all = lag->members.items;

	for (size_t i = 0; i < lag->members.cnt; i++) {
		if (!are_of_one_job(&all[i], of))
			continue;
		all[i].now = (struct block){};
		all[i].begin_ns = all[i].block_cnt = 0;
	}
}

static void lag__end_process(struct lag *lag, uint32_t pid)
{
	struct lag_member *all = lag->members.items, *member = find_member(lag, pid), gone;

	if (!member)
		return;
	gone = *member;
	*member = all[--lag->members.cnt];
	if (gone.trains)
		begin_again(lag, &gone);
}

/*
 * Takes which job the process is of. Processes that neither have its name nor meet others, as those of torchrun
 * without --rdzv-id do, are not compared. 0 or -ENOMEM.
 */
static int lag__add_process(struct lag *lag, const struct rec_job *job)
{
	struct lag_member *member = find_member(lag, job->pid), new = {.pid = job->pid, .uid = job->uid};

	memcpy(new.name, job->name, sizeof(new.name));
	memcpy(new.meets, job->meets, sizeof(new.meets));
	if (member && are_of_one_job(member, &new))
		return 0;
	lag__end_process(lag, job->pid);
	if (!new.name[0] && !new.meets[0])
		return 0;
	member = array__add(&lag->members, sizeof(*member));
	if (!member)
		return -ENOMEM;
	*member = new;
	return 0;
}

/* ---- a block has ended ---- */

/* What a rank does per step, and what the others do. */
struct comparison {
	double own_ns, comm_ns, others_own_ns, others_comm_ns;
	size_t others;
};

static struct block sum_of(const struct lag_member *member, size_t from, size_t to)
{
	struct block sum = {};

	for (size_t i = from; i < to; i++) {
		const struct block *block = &member->blocks[i % LAG_BLOCKS];

		sum.steps += block->steps;
		sum.own_ns += block->own_ns;
		sum.comm_ns += block->comm_ns;
	}
	return sum;
}

/* In some of its blocks. A process that is in no collective is one that nobody waits for. */
static struct comparison compare_blocks(const struct lag *lag, const struct lag_member *member, size_t from, size_t to)
{
	const struct lag_member *all = lag->members.items;
	struct block own = sum_of(member, from, to);
	struct comparison result = {.own_ns = (double)own.own_ns / own.steps,
				    .comm_ns = (double)own.comm_ns / own.steps};

	for (size_t i = 0; i < lag->members.cnt; i++) {
		struct block sum;

		if (&all[i] == member || !are_of_one_job(&all[i], member) || all[i].block_cnt != member->block_cnt)
			continue;
		sum = sum_of(&all[i], from, to);
		if (!sum.comm_ns || !sum.steps)
			continue;
		result.others_own_ns += (double)sum.own_ns / sum.steps;
		result.others_comm_ns += (double)sum.comm_ns / sum.steps;
		result.others++;
	}
	result.others_own_ns /= result.others ?: 1;
	result.others_comm_ns /= result.others ?: 1;
	return result;
}

static bool is_above(const struct comparison *compared, double percent)
{
	return compared->others && compared->own_ns * 100 > compared->others_own_ns * (100 + percent);
}

static bool is_straggler(const struct lag *lag, const struct lag_member *member, double percent,
			 struct comparison *together)
{
	size_t to = member->block_cnt, from = to - LAG_BLOCKS;
	double more_ns;

	*together = compare_blocks(lag, member, from, to);
	more_ns = together->own_ns - together->others_own_ns;
	if (!together->comm_ns || !is_above(together, percent) ||
	    more_ns * 200 < percent * (together->own_ns + together->comm_ns) ||
	    (together->others_comm_ns - together->comm_ns) * 2 < more_ns)
		return false;
	for (size_t i = from; i < to; i++) {
		const struct comparison one = compare_blocks(lag, member, i, i + 1);

		if (!is_above(&one, percent / 2))
			return false;
	}
	return true;
}

/* Has each rank of the job done enough for a block? */
static bool is_block_over(const struct lag *lag, const struct lag_member *of, uint64_t now_ns)
{
	const struct lag_member *all = lag->members.items;

	if (now_ns < of->begin_ns + LAG_NS)
		return false;
	for (size_t i = 0; i < lag->members.cnt; i++)
		if (all[i].trains && are_of_one_job(&all[i], of) && all[i].now.steps < LAG_STEPS_MIN)
			return false;
	return true;
}

static void end_block(struct lag *lag, const struct lag_member *of, uint64_t now_ns)
{
	struct lag_member *all = lag->members.items;

	for (size_t i = 0; i < lag->members.cnt; i++) {
		if (!are_of_one_job(&all[i], of))
			continue;
		all[i].blocks[all[i].block_cnt++ % LAG_BLOCKS] = all[i].now;
		all[i].now = (struct block){};
		all[i].begin_ns = now_ns;
	}
}

static bool find_lag(struct lag *lag, const struct lag_member *of, double percent, struct lag_found *found)
{
	struct lag_member *all = lag->members.items;
	bool seen = false;

	for (size_t i = 0; i < lag->members.cnt && of->block_cnt >= LAG_BLOCKS; i++) {
		struct comparison together, last;

		if (!are_of_one_job(&all[i], of))
			continue;
		last = compare_blocks(lag, &all[i], all[i].block_cnt - 1, all[i].block_cnt);
		if (!is_above(&last, percent / 2))
			all[i].told = false;
		if (seen || all[i].told || !is_straggler(lag, &all[i], percent, &together))
			continue;
		seen = all[i].told = true;
		*found = (struct lag_found){.pid = all[i].pid,
					    .since_ns = all[i].blocks[all[i].block_cnt % LAG_BLOCKS].first_ns,
					    .since_step = all[i].blocks[all[i].block_cnt % LAG_BLOCKS].first_step,
					    .own_ns = together.own_ns,
					    .others_ns = together.others_own_ns};
	}
	return seen;
}

/* Takes a step. True: it shows a straggler, which is told once, until it is one no longer. */
static bool lag__add_step(struct lag *lag, const struct timed_step *step, uint32_t percent, struct lag_found *found)
{
	struct lag_member *member = find_member(lag, step->pid);
	uint64_t besides_ns = step->besides_ns + step->comm_ns;

	if (!member)
		return false;
	if (!member->trains) {
		member->trains = true;
		begin_again(lag, member);
	}
	if (!member->now.steps++) {
		member->now.first_ns = step->end_ns;
		member->now.first_step = step->index;
	}
	member->begin_ns = member->begin_ns ?: step->end_ns;
	member->now.comm_ns += step->comm_ns;
	member->now.own_ns += step->duration_ns > besides_ns ? step->duration_ns - besides_ns : 0;
	if (!is_block_over(lag, member, step->end_ns))
		return false;
	end_block(lag, member, step->end_ns);
	return find_lag(lag, member, percent, found);
}

static void lag__free(struct lag *lag)
{
	free(lag->members.items);
	*lag = (struct lag){};
}

/*
 * ---- pace ----
 *
 * Sees that the steps of a process have become longer for good. Its steps are taken in windows of PACE_NS and at least PACE_STEPS_MIN
 * steps; what counts is a window's median. What is usual is the median of the last PACE_WINDOWS windows that were not longer. A process is
 * slower once two windows in a row are longer than usual by the given percentage. It is told once, until a window is longer by less than
 * half of that, or PACE_WINDOWS more have passed: then that is its pace, and what is usual is learnt anew.
 */

#define PACE_NS        10000000000ull
#define PACE_STEPS_MIN 20
#define PACE_WINDOWS   10

#define PACE_SAMPLES   128 /* steps of a window that are kept, at most: every one, every second, every fourth, ... */

/* All 0: nothing is known. */
struct pace {
	uint64_t samples[PACE_SAMPLES];
	uint32_t cnt, stride, skipped; /* stride 0: the window has not begun */
	uint64_t steps, begin_ns, first_step;
	uint64_t medians[PACE_WINDOWS]; /* each at its window's number modulo that */
	uint64_t windows;
	struct pace_change {
		uint64_t usual_ns, now_ns;     /* medians before and since */
		uint64_t since_ns, since_step; /* where the first longer window began */
	} change;                              /* usual_ns 0: it is not slower */
	uint32_t longer;                       /* windows since then */
};

static uint64_t median(const uint64_t *values, size_t cnt)
{
	uint64_t sorted[PACE_SAMPLES > PACE_WINDOWS ? PACE_SAMPLES : PACE_WINDOWS];

	return percentile__of(values, cnt, 50, sorted);
}

static void keep_step(struct pace *pace, uint64_t duration_ns)
{
	if (pace->skipped++ % pace->stride)
		return;
	if (pace->cnt == PACE_SAMPLES) {
		pace->cnt = 0;
		for (int i = 0; i < PACE_SAMPLES; i += 2)
			pace->samples[pace->cnt++] = pace->samples[i];
		pace->stride *= 2;
		pace->skipped = 1;
	}
	pace->samples[pace->cnt++] = duration_ns;
}

/* Longer than usual by so many half percents? */
static bool is_longer(const struct pace_change *change, uint32_t half_percents)
{
	return change->now_ns * 200 > change->usual_ns * (200 + half_percents);
}

/* A window has ended. True: the process is slower now. */
static bool compare_windows(struct pace *pace, uint64_t window_ns, uint32_t percent)
{
	struct pace_change *change = &pace->change;

	if (!change->usual_ns) {
		if (pace->windows < PACE_WINDOWS)
			return false;
		*change = (struct pace_change){.usual_ns = median(pace->medians, PACE_WINDOWS),
					       .since_ns = pace->begin_ns,
					       .since_step = pace->first_step};
		pace->longer = 0;
	}
	change->now_ns = window_ns;
	pace->longer++;
	if (!is_longer(change, pace->longer <= 2 ? 2 * percent : percent))
		change->usual_ns = 0;
	else if (pace->longer > 2 + PACE_WINDOWS)
		change->usual_ns = pace->windows = 0;
	return change->usual_ns && pace->longer == 2;
}

/* Takes a step: its number, when it ended and how long it took. True: with this step the process is slower, by `change`. */
static bool pace__add(struct pace *pace, uint64_t step, uint64_t end_ns, uint64_t duration_ns, uint32_t percent)
{
	uint64_t window_ns;
	bool slower;

	if (!pace->stride) {
		pace->stride = 1;
		pace->cnt = pace->skipped = 0;
		pace->steps = 0;
		pace->first_step = step;
		pace->begin_ns = end_ns > duration_ns ? end_ns - duration_ns : 0;
	}
	keep_step(pace, duration_ns);
	if (++pace->steps < PACE_STEPS_MIN || end_ns < pace->begin_ns + PACE_NS)
		return false;
	window_ns = median(pace->samples, pace->cnt);
	slower = compare_windows(pace, window_ns, percent);
	if (!pace->change.usual_ns)
		pace->medians[pace->windows++ % PACE_WINDOWS] = window_ns;
	pace->stride = 0;
	return slower;
}

/* ---- triggers ---- */

#define STALL_STEPS  10
#define UNUSUAL_KEPT 8

/* A process that makes steps. */
struct watched {
	uint32_t pid;
	bool reported; /* that it stands still */
	bool rests;
	uint64_t ns[TRIGGER_STEPS]; /* the last steps, each at its number modulo that */
	uint64_t step_cnt;
	struct unusual_step {
		uint64_t step, ns;
	} unusual[UNUSUAL_KEPT]; /* the last ones, each at its number modulo that */
	uint64_t unusual_cnt;
	uint64_t active_ns;           /* when it last ended a step, an action or a label */
	uint64_t step_end_ns;         /* of the last step */
	uint64_t last_step;           /* its index */
	uint64_t calls, calls_before; /* in this snapshot so far, and in the last */
	struct pace pace;
};

struct trigger {
	struct trigger_options options;
	struct step_times times;
	struct lag lag;
	struct array processes; /* struct watched */
	struct array events;    /* struct trigger_event, those that wait to be taken */
};

const char *const trigger_names[TRIGGER__COUNT] = {[TRIGGER_SLOW] = "slow",
						   [TRIGGER_SLOWER] = "slower",
						   [TRIGGER_STRAGGLER] = "straggler",
						   [TRIGGER_STALL] = "stall",
						   [TRIGGER_END] = "end"};

struct trigger *trigger__new(const struct trigger_options *options)
{
	struct trigger *trigger = calloc(1, sizeof(*trigger));

	if (trigger)
		trigger->options = *options;
	return trigger;
}

void trigger__free(struct trigger *trigger)
{
	if (!trigger)
		return;
	step_times__free(&trigger->times);
	lag__free(&trigger->lag);
	free(trigger->processes.items);
	free(trigger->events.items);
	free(trigger);
}

static struct watched *find_watched_process(const struct trigger *trigger, uint32_t pid)
{
	struct watched *all = trigger->processes.items;

	for (size_t i = 0; i < trigger->processes.cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	return NULL;
}

static size_t kept_steps(const struct watched *process)
{
	return process->step_cnt < TRIGGER_STEPS ? process->step_cnt : TRIGGER_STEPS;
}

static uint64_t longest_ns(const struct watched *process)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < kept_steps(process); i++)
		ns = process->ns[i] > ns ? process->ns[i] : ns;
	return ns;
}

/* 0: there are no steps. */
static uint64_t median_ns(const struct watched *process)
{
	uint64_t sorted[TRIGGER_STEPS];
	size_t cnt = kept_steps(process);

	return cnt ? percentile__of(process->ns, cnt, 50, sorted) : 0;
}

static bool is_far_beyond(uint64_t ns, uint64_t other_ns)
{
	return ns > 2 * other_ns && ns > other_ns + TRIGGER_SLOW_NS;
}

/* Nearly all steps are like the one before them, and need no look at all that are kept. */
static bool is_unusual(const struct watched *process, uint64_t ns)
{
	return process->step_cnt >= TRIGGER_STEPS_MIN &&
	       is_far_beyond(ns, process->ns[(process->step_cnt - 1) % TRIGGER_STEPS]) &&
	       is_far_beyond(ns, longest_ns(process));
}

/*
 * Is it one of those that come again after so many steps, such as the first of an epoch, in which workers start? Then the last
 * two came at the same distance, give or take a step, and it is not far beyond them.
 */
static bool is_usual_again(const struct watched *process, uint64_t step, uint64_t ns)
{
	size_t cnt = process->unusual_cnt < UNUSUAL_KEPT ? process->unusual_cnt : UNUSUAL_KEPT;

	for (size_t i = 0; i < cnt; i++) {
		const struct unusual_step *last = &process->unusual[i];

		for (size_t k = 0; k < cnt && last->step < step; k++) {
			const struct unusual_step *before = &process->unusual[k];
			uint64_t expected = 2 * last->step - before->step;

			if (before->step < last->step && step + 1 >= expected && step <= expected + 1 &&
			    !is_far_beyond(ns, last->ns > before->ns ? last->ns : before->ns))
				return true;
		}
	}
	return false;
}

static void keep_unusual(struct watched *process, uint64_t step, uint64_t ns)
{
	process->unusual[process->unusual_cnt++ % UNUSUAL_KEPT] = (struct unusual_step){step, ns};
}

static int add_event(struct trigger *trigger, enum trigger_kind kind, const struct watched *process,
		     struct trigger_event event)
{
	struct trigger_event *all = trigger->events.items;

	for (size_t i = 0; i < trigger->events.cnt; i++)
		if (all[i].pid == process->pid && all[i].kind == kind)
			return 0;
	if (trigger->events.cnt == TRIGGER_EVENTS_MAX) {
		all[0].unreported++;
		return 0;
	}
	event.seen = true;
	event.kind = kind;
	event.pid = process->pid;
	event.median_ns = event.median_ns ?: median_ns(process);
	event.longest_ns = longest_ns(process);
	all = array__add(&trigger->events, sizeof(event));
	if (!all)
		return -ENOMEM;
	*all = event;
	return 0;
}

/* The step has ended: is the process slower now? 0 or -ENOMEM. */
static int add_to_pace(struct trigger *trigger, struct watched *process, const struct timed_step *step, uint64_t ns)
{
	const struct pace_change *change = &process->pace.change;

	if (!trigger->options.on[TRIGGER_SLOWER] ||
	    !pace__add(&process->pace, step->index, step->end_ns, ns,
		       trigger->options.percent[TRIGGER_SLOWER] ?: TRIGGER_SLOWER_PERCENT))
		return 0;
	return add_event(trigger, TRIGGER_SLOWER, process,
			 (struct trigger_event){.start_ns = change->since_ns,
						.step = change->since_step,
						.duration_ns = change->now_ns,
						.median_ns = change->usual_ns});
}

/* The step has ended: does it show a straggler, which may be another process? 0 or -ENOMEM. */
static int add_to_lag(struct trigger *trigger, const struct timed_step *step)
{
	struct lag_found found = {0};
	const struct watched *process;

	if (!trigger->options.on[TRIGGER_STRAGGLER] ||
	    !lag__add_step(&trigger->lag, step,
			   trigger->options.percent[TRIGGER_STRAGGLER] ?: TRIGGER_STRAGGLER_PERCENT, &found))
		return 0;
	process = find_watched_process(trigger, found.pid);
	return !process ? 0
			: add_event(trigger, TRIGGER_STRAGGLER, process,
				    (struct trigger_event){.start_ns = found.since_ns,
							   .step = found.since_step,
							   .duration_ns = found.own_ns,
							   .median_ns = found.others_ns});
}

/* A step in a rest: nobody knows whether its time was for validation or a checkpoint, so that it is not called slow. */
static int add_tick(struct trigger *trigger, const struct rec_step *record)
{
	struct watched *process = find_watched_process(trigger, record->pid);
	struct timed_step step;

	if (!process || record->time_ns < process->active_ns)
		return 0;
	process->reported = false;
	process->active_ns = process->step_end_ns = record->time_ns;
	step = (struct timed_step){.index = process->last_step, .end_ns = record->time_ns};
	return record->phase_ns[PHASE_OTHER] ? add_to_pace(trigger, process, &step, record->phase_ns[PHASE_OTHER]) : 0;
}

static int add_step(struct trigger *trigger, const struct rec_step *record)
{
	uint64_t ns, given_ns = trigger->options.ns[TRIGGER_SLOW];
	struct watched *process = find_watched_process(trigger, record->pid);
	struct timed_step step;
	int timed = step_times__add(&trigger->times, record, &step), err = 0;
	bool unusual, slow;

	if (timed <= 0)
		return timed;
	if (!process) {
		process = array__add(&trigger->processes, sizeof(*process));
		if (!process)
			return -ENOMEM;
		process->pid = record->pid;
	}
	process->reported = false;
	ns = step.duration_ns > step.besides_ns ? step.duration_ns - step.besides_ns : 0;
	process->active_ns = process->step_end_ns = step.end_ns;
	process->last_step = step.index;
	unusual = is_unusual(process, ns);
	slow = given_ns ? ns > given_ns : unusual && !is_usual_again(process, step.index, ns);
	if (unusual)
		keep_unusual(process, step.index, ns);
	if (trigger->options.on[TRIGGER_SLOW] && slow)
		err = add_event(trigger, TRIGGER_SLOW, process,
				(struct trigger_event){.start_ns = step.end_ns - step.duration_ns,
						       .step = step.index,
						       .duration_ns = ns});
	process->ns[process->step_cnt++ % TRIGGER_STEPS] = ns;
	return err ?: add_to_pace(trigger, process, &step, ns) ?: add_to_lag(trigger, &step);
}

static void end_snapshot(struct trigger *trigger, uint64_t now_ns)
{
	struct watched *all = trigger->processes.items;

	for (size_t i = 0; i < trigger->processes.cnt; i++) {
		if (all[i].calls != all[i].calls_before && now_ns > all[i].active_ns)
			all[i].active_ns = now_ns;
		all[i].calls_before = all[i].calls;
		all[i].calls = 0;
	}
}

static bool is_bad_end(int status)
{
	return WIFSIGNALED(status) ? WTERMSIG(status) != SIGINT && WTERMSIG(status) != SIGTERM
				   : WEXITSTATUS(status) != 0;
}

static int end_process(struct trigger *trigger, struct watched *process, const struct rec_proc *end)
{
	struct watched *all = trigger->processes.items;
	int err = 0;

	if (trigger->options.on[TRIGGER_END] && is_bad_end(end->exit_code))
		err = add_event(trigger, TRIGGER_END, process,
				(struct trigger_event){.start_ns = end->time_ns,
						       .step = process->last_step,
						       .status = end->exit_code});
	step_times__forget(&trigger->times, process->pid);
	*process = all[--trigger->processes.cnt];
	return err;
}

/* What it does in a rest is not seen: that time does not count. */
static void set_rest(struct watched *process, const struct rec_rest *rest)
{
	process->rests = rest->cnt && !rest->to_ns;
	if (rest->to_ns > rest->from_ns && process->active_ns <= rest->from_ns)
		process->active_ns += rest->to_ns - rest->from_ns;
}

int trigger__add(struct trigger *trigger, const struct rec_hdr *record, uint64_t now_ns)
{
	const struct rec_step *step = (const void *)record;
	const struct rec_proc *proc = (const void *)record;
	const struct rec_rest *rest = (const void *)record;
	const struct rec_agg *agg = (const void *)record;
	struct watched *process;

	if (!record)
		end_snapshot(trigger, now_ns);
	else if (record->type == REC_STEP)
		return step->rule == STEP_TICK ? add_tick(trigger, step) : add_step(trigger, step);
	else if (record->type == REC_JOB)
		return lag__add_process(&trigger->lag, (const void *)record);
	else if (record->type == REC_REST && (process = find_watched_process(trigger, rest->pid)))
		set_rest(process, rest);
	else if (record->type == REC_AGG && (process = find_watched_process(trigger, agg->key.pid)))
		process->calls += agg->val.calls;
	else if (record->type == REC_PROC && proc->event == PROC_EXIT) {
		lag__end_process(&trigger->lag, proc->pid);
		process = find_watched_process(trigger, proc->pid);
		return process ? end_process(trigger, process, proc) : 0;
	}
	return 0;
}

/*
 * One rank evaluates, or saves, for all, and the others wait: does another process of its job, which makes no steps
 * either, do something? ns: within that time.
 */
static bool waits_for_other(const struct trigger *trigger, const struct watched *process, uint64_t ns, uint64_t now_ns)
{
	const struct lag_member *own = find_member(&trigger->lag, process->pid), *member;
	const struct watched *all = trigger->processes.items;

	for (size_t i = 0; own && i < trigger->processes.cnt; i++) {
		if (&all[i] == process || now_ns > all[i].active_ns + ns || now_ns < all[i].step_end_ns + ns / 2)
			continue;
		member = find_member(&trigger->lag, all[i].pid);
		if (member && are_of_one_job(own, member))
			return true;
	}
	return false;
}

const struct trigger_event *trigger__check(struct trigger *trigger, uint64_t now_ns)
{
	static const struct trigger_event none;
	struct watched *all = trigger->processes.items;

	for (size_t i = 0; i < trigger->processes.cnt && trigger->options.on[TRIGGER_STALL]; i++) {
		uint64_t still_ns = now_ns > all[i].active_ns ? now_ns - all[i].active_ns : 0;
		uint64_t ns = trigger->options.ns[TRIGGER_STALL] ?: TRIGGER_STALL_NS;

		if (all[i].reported || all[i].rests || still_ns <= ns)
			continue;
		if (!trigger->options.ns[TRIGGER_STALL] && ns < STALL_STEPS * median_ns(&all[i]))
			ns = STALL_STEPS * median_ns(&all[i]);
		if (still_ns > ns &&
		    !waits_for_other(trigger, &all[i], ns, now_ns)) /* without memory: at the next look */
			add_event(trigger, TRIGGER_STALL, &all[i],
				  (struct trigger_event){.start_ns = all[i].step_end_ns,
							 .step = all[i].last_step,
							 .duration_ns = still_ns});
	}
	return trigger->events.cnt ? trigger->events.items : &none;
}

void trigger__take(struct trigger *trigger)
{
	struct trigger_event *all = trigger->events.items;
	struct watched *process;

	if (!trigger->events.cnt)
		return;
	process = find_watched_process(trigger, all[0].pid);
	if (all[0].kind == TRIGGER_STALL && process)
		process->reported = true;
	memmove(all, all + 1, --trigger->events.cnt * sizeof(*all));
}

uint64_t trigger__before(const struct trigger *trigger, uint64_t now_ns)
{
	const struct trigger_event *events = trigger->events.items;
	const struct watched *all = trigger->processes.items;
	uint64_t before_ns = now_ns;

	for (size_t i = 0; i < trigger->events.cnt; i++)
		if (events[i].start_ns < before_ns)
			before_ns = events[i].start_ns;
	for (size_t i = 0; i < trigger->processes.cnt && !trigger->events.cnt; i++)
		if (all[i].step_end_ns < before_ns && now_ns - all[i].step_end_ns < TRIGGER_KEPT_NS)
			before_ns = all[i].step_end_ns;
	return before_ns;
}
