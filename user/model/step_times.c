// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/step_times.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct process_steps *step_times__of(const struct step_times *steps, uint32_t pid)
{
	struct process_steps *all = steps->processes.items;

	for (size_t i = 0; i < steps->processes.cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	return NULL;
}

/* Returns NULL without memory, or above STEP_TIMES_PROCESSES processes. */
static struct process_steps *times_of(struct step_times *steps, uint32_t pid)
{
	struct process_steps *times = step_times__of(steps, pid);

	if (times || steps->processes.cnt == STEP_TIMES_PROCESSES)
		return times;
	times = array__add(&steps->processes, sizeof(*times));
	if (times)
		times->pid = pid;
	return times;
}

#define WORSE_FOR_GOOD 32 /* boundaries by a worse rule only: the better rule's boundaries have ended for good */

/* Steps follow the best rule that has boundaries. Is this record by that rule? */
static bool is_by_rule(struct process_steps *times, const struct rec_step *record)
{
	if (record->rule == times->rule) {
		times->others = 0;
		return true;
	}
	if (times->rule && record->rule > times->rule && ++times->others < WORSE_FOR_GOOD)
		return false;
	times->rule = record->rule;
	times->index = record->index;
	times->step_cnt = times->others = times->next_thread = 0;
	memset(times->threads, 0, sizeof(times->threads));
	return true;
}

static struct thread_boundary *known_boundary(struct process_steps *times, uint32_t tid)
{
	for (int i = 0; i < STEP_THREADS; i++)
		if (times->threads[i].tid == tid)
			return &times->threads[i];
	return NULL;
}

static struct thread_boundary *boundary_of(struct process_steps *times, uint32_t tid)
{
	struct thread_boundary *known = known_boundary(times, tid), *new;

	if (known)
		return known;
	new = &times->threads[times->next_thread++ % STEP_THREADS];
	*new = (struct thread_boundary){.tid = tid};
	return new;
}

int step_times__add(struct step_times *steps, const struct rec_step *record, struct timed_step *step)
{
	uint64_t besides_ns = record->phase_ns[PHASE_VALIDATION] + record->phase_ns[PHASE_CHECKPOINT];
	struct thread_boundary *before;
	struct process_steps *times;
	bool timed;

	if (record->rule == STEP_TICK)
		return 0;
	times = times_of(steps, record->pid);
	if (!times)
		return steps->processes.cnt == STEP_TIMES_PROCESSES ? 0 : -ENOMEM;
	before = known_boundary(times, record->tid);
	if (before && record->hdr.flags & REC_RESTED)
		before->time_ns = 0;
	if (!is_by_rule(times, record)) {
		before = known_boundary(times, record->tid);
		if (before) {
			before->besides_ns += besides_ns;
			before->comm_ns += record->phase_ns[PHASE_COMM];
		}
		return 0;
	}
	before = boundary_of(times, record->tid);
	/* Where a record was lost, the time between two boundaries is not that of one step. */
	timed = record->index == before->index + 1 && before->time_ns && record->time_ns > before->time_ns;
	if (timed)
		times->ms[times->step_cnt++ % STEP_TIMES_KEPT] = (record->time_ns - before->time_ns) / 1e6;
	if (timed && step)
		*step = (struct timed_step){
			.pid = record->pid,
			.tid = record->tid,
			.index = record->index,
			.end_ns = record->time_ns,
			.duration_ns = record->time_ns - before->time_ns,
			.besides_ns = before->besides_ns + besides_ns,
			.comm_ns = before->comm_ns + record->phase_ns[PHASE_COMM],
		};
	if (record->index <= before->index) /* a program that it has called, or another jitted function, counts anew */
		times->index = 0;
	if (record->index > times->index) {
		times->boundaries += record->index - times->index;
		times->index = record->index;
	}
	*before = (struct thread_boundary){record->tid, record->index, record->time_ns, 0, 0};
	return timed;
}

void step_times__forget(struct step_times *steps, uint32_t pid)
{
	struct process_steps *all = steps->processes.items, *times = step_times__of(steps, pid);

	if (times)
		*times = all[--steps->processes.cnt];
}

void step_times__free(struct step_times *steps)
{
	free(steps->processes.items);
	*steps = (struct step_times){0};
}
