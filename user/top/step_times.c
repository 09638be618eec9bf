// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/top/step_times.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/percentile.h"
#include "user/report/common.h"

/* Returns NULL without memory, or above TOP_PROCESSES_MAX processes. */
static struct process_steps *times_of(struct step_times *steps, uint32_t pid)
{
	struct process_steps *all = steps->processes.items, *new;

	for (size_t i = 0; i < steps->processes.cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	if (steps->processes.cnt == TOP_PROCESSES_MAX)
		return NULL;
	new = array__add(&steps->processes, sizeof(*new));
	if (new)
		new->pid = pid;
	return new;
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

static struct thread_boundary *boundary_of(struct process_steps *times, uint32_t tid)
{
	struct thread_boundary *new;

	for (int i = 0; i < STEP_THREADS; i++)
		if (times->threads[i].tid == tid)
			return &times->threads[i];
	new = &times->threads[times->next_thread++ % STEP_THREADS];
	*new = (struct thread_boundary){.tid = tid};
	return new;
}

int step_times__add(struct step_times *steps, const struct rec_step *record)
{
	struct process_steps *times = times_of(steps, record->pid);
	struct thread_boundary *before;

	if (!times)
		return steps->processes.cnt == TOP_PROCESSES_MAX ? 0 : -ENOMEM;
	if (!is_by_rule(times, record))
		return 0;
	before = boundary_of(times, record->tid);
	/* Where a record was lost, the time between two boundaries is not that of one step. */
	if (record->index == before->index + 1 && before->time_ns && record->time_ns > before->time_ns)
		times->ms[times->step_cnt++ % TOP_STEPS_KEPT] = (record->time_ns - before->time_ns) / 1e6;
	if (record->index > times->index) {
		times->boundaries += record->index - times->index;
		times->index = record->index;
	}
	*before = (struct thread_boundary){record->tid, record->index, record->time_ns};
	return 0;
}

static int compare_float(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return COMPARE(*x, *y);
}

static void set_times(const struct process_steps *times, struct top_row *row)
{
	size_t cnt = times->step_cnt < TOP_STEPS_KEPT ? times->step_cnt : TOP_STEPS_KEPT;
	float sorted[TOP_STEPS_KEPT];
	double sum = 0;

	for (int i = 2; i < TOP_VALUES; i++)
		row->values[i] = NAN;
	if (!cnt)
		return;
	memcpy(sorted, times->ms, cnt * sizeof(*sorted));
	qsort(sorted, cnt, sizeof(*sorted), compare_float);
	for (size_t i = 0; i < cnt; i++)
		sum += sorted[i];
	row->values[2] = times->ms[(times->step_cnt - 1) % TOP_STEPS_KEPT];
	row->values[3] = sum / cnt;
	row->values[4] = sorted[percentile__index(cnt, 50)];
	row->values[5] = sorted[percentile__index(cnt, 95)];
	row->values[6] = sorted[cnt - 1];
	row->history->cnt = cnt < TOP_HISTORY ? cnt : TOP_HISTORY;
	for (size_t i = 0; i < row->history->cnt; i++)
		row->history->ms[i] = times->ms[(times->step_cnt - row->history->cnt + i) % TOP_STEPS_KEPT];
}

int step_times__rows(struct step_times *steps, const struct job *job, double interval_s, struct array *rows)
{
	struct process_steps *all = steps->processes.items;

	for (size_t i = 0; i < steps->processes.cnt; i++) {
		struct top_row *row = array__add(rows, sizeof(*row));
		int rank = common__target(job, all[i].pid).rank, bytes = -1;

		if (row)
			bytes = rank < 0 ? asprintf(&row->name, "pid %u", all[i].pid)
					 : asprintf(&row->name, "pid %u, rank %d", all[i].pid, rank);
		if (bytes < 0) {
			rows->cnt -= row != NULL;
			return -ENOMEM;
		}
		row->history = calloc(1, sizeof(*row->history));
		if (!row->history)
			return -ENOMEM;
		row->values[0] = all[i].index;
		row->values[1] = interval_s > 0 ? all[i].boundaries / interval_s : NAN;
		set_times(&all[i], row);
		all[i].boundaries = 0;
	}
	return 0;
}

void step_times__free(struct step_times *steps)
{
	free(steps->processes.items);
	*steps = (struct step_times){0};
}
