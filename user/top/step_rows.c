// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/top/step_rows.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/percentile.h"
#include "user/report/common.h"

static int compare_float(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return COMPARE(*x, *y);
}

static void set_times(const struct process_steps *times, struct top_row *row)
{
	size_t cnt = times->step_cnt < STEP_TIMES_KEPT ? times->step_cnt : STEP_TIMES_KEPT;
	float sorted[STEP_TIMES_KEPT];
	double sum = 0;

	for (int i = 2; i < TOP_VALUES; i++)
		row->values[i] = NAN;
	if (!cnt)
		return;
	memcpy(sorted, times->ms, cnt * sizeof(*sorted));
	qsort(sorted, cnt, sizeof(*sorted), compare_float);
	for (size_t i = 0; i < cnt; i++)
		sum += sorted[i];
	row->values[2] = times->ms[(times->step_cnt - 1) % STEP_TIMES_KEPT];
	row->values[3] = sum / cnt;
	row->values[4] = sorted[percentile__index(cnt, 50)];
	row->values[5] = sorted[percentile__index(cnt, 95)];
	row->values[6] = sorted[cnt - 1];
	row->history->cnt = cnt < TOP_HISTORY ? cnt : TOP_HISTORY;
	for (size_t i = 0; i < row->history->cnt; i++)
		row->history->ms[i] = times->ms[(times->step_cnt - row->history->cnt + i) % STEP_TIMES_KEPT];
}

int step_rows__add(struct step_times *steps, const struct job *job, double interval_s, struct array *rows)
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
