// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "step_times.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../order.h"

/* NULL: no memory, or more processes than are kept. */
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

int step_times__add(struct step_times *steps, const struct rec_step *record)
{
	struct process_steps *times = times_of(steps, record->pid);

	if (!times)
		return steps->processes.cnt == TOP_PROCESSES_MAX ? 0 : -ENOMEM;
	/* Not so where a better rule was found, or a record was lost: the time between is no step's. */
	if (record->index == times->index + 1 && record->rule == times->rule && times->time_ns &&
	    record->time_ns > times->time_ns)
		times->ms[times->step_cnt++ % TOP_STEPS_KEPT] = (record->time_ns - times->time_ns) / 1e6;
	if (record->rule == times->rule && record->index > times->index)
		times->boundaries += record->index - times->index;
	times->rule = record->rule;
	times->index = record->index;
	times->time_ns = record->time_ns;
	return 0;
}

static int compare_float(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return ORDER(*x, *y);
}

/* Nearest rank, of sorted values. */
static double percentile(const float *sorted, size_t cnt, double p)
{
	return sorted[(size_t)fmax(0, ceil(p * cnt) - 1)];
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
	row->values[4] = percentile(sorted, cnt, 0.5);
	row->values[5] = percentile(sorted, cnt, 0.95);
	row->values[6] = sorted[cnt - 1];
	row->history->cnt = cnt < TOP_HISTORY ? cnt : TOP_HISTORY;
	for (size_t i = 0; i < row->history->cnt; i++)
		row->history->ms[i] = times->ms[(times->step_cnt - row->history->cnt + i) % TOP_STEPS_KEPT];
}

static int rank_of(const struct job *job, uint32_t pid)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (targets[i].pid == pid)
			return targets[i].rank;
	return -1;
}

int step_times__rows(struct step_times *steps, const struct job *job, double interval_s, struct array *rows)
{
	struct process_steps *all = steps->processes.items;

	for (size_t i = 0; i < steps->processes.cnt; i++) {
		struct top_row *row = array__add(rows, sizeof(*row));
		int rank = rank_of(job, all[i].pid), bytes = -1;

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
