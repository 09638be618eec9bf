// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/live/trigger.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "include/resource_records.h"
#include "user/analysis/live/lag.h"
#include "user/analysis/live/pace.h"
#include "user/lib/array.h"
#include "user/lib/percentile.h"

#define STALL_STEPS 10

/* A process that makes steps. */
struct watched {
	uint32_t pid;
	bool reported; /* that it stands still */
	bool rests;
	uint64_t ns[TRIGGER_STEPS]; /* the last steps, each at its number modulo that */
	uint64_t step_cnt;
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
	struct lag_found found;
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
	if (trigger->options.on[TRIGGER_SLOW] && (given_ns ? ns > given_ns : is_unusual(process, ns)))
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

const struct trigger_event *trigger__check(struct trigger *trigger, uint64_t now_ns)
{
	static const struct trigger_event none;
	struct watched *all = trigger->processes.items;

	for (size_t i = 0; i < trigger->processes.cnt && trigger->options.on[TRIGGER_STALL]; i++) {
		uint64_t still_ns = now_ns > all[i].active_ns ? now_ns - all[i].active_ns : 0;
		uint64_t given_ns = trigger->options.ns[TRIGGER_STALL];

		if (all[i].reported || all[i].rests || still_ns <= (given_ns ?: TRIGGER_STALL_NS))
			continue;
		if (given_ns || still_ns > STALL_STEPS * median_ns(&all[i])) /* without memory: at the next look */
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
