// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The summary's lines on a job that rested, for --budget or since it was paused: its windows, its rests, and what it costs. */
#include <inttypes.h>
#include <stdio.h>

#include "include/resource_records.h"
#include "user/model/rests.h"
#include "user/model/seen.h"
#include "user/report/print/lines.h"
#include "user/report/summary.h"

/* NULL: it was not measured. */
static const struct rec_overhead *measured_of(const struct summary *summary, const struct seen *seen)
{
	const struct rec_overhead *overhead = rests__overhead(job__rests(summary->job), seen->pid);

	return overhead && overhead->pairs && seen->whole_ns ? overhead : NULL;
}

void summary__say_budget(const struct summary *summary, const struct seen *seen, struct lines *lines)
{
	const struct line_text how = {seen->budget_micros ? "Budget" : "Paused", LINE_PLAIN, 2, 1, 0};
	const struct line_text more = {"", LINE_PLAIN, 2, 1, 0};
	const struct rec_overhead *overhead = measured_of(summary, seen);
	char budget[32] = "", whole[32], median[32], longest[32];
	struct rest_steps steps;

	if (seen->budget_micros)
		snprintf(budget, sizeof(budget), "%g %% of the time: ", seen->budget_micros / 1e4);
	lines__add(lines, &how, "%srecorded in %" PRIu32 " part%s of %s; all below is of %s", budget, seen->parts,
		   seen->parts == 1 ? "" : "s", summary_words__duration(seen->whole_ns, whole),
		   seen->parts == 1 ? "it" : "these");
	if (!job__rest_steps(summary->job, seen->pid, &steps) && steps.cnt)
		lines__add(lines, &more, "steps between them: %" PRIu64 ", median %s, longest %s", steps.cnt,
			   summary_words__duration(steps.median_ns, median),
			   summary_words__duration(steps.longest_ns, longest));
	if (overhead)
		lines__add(lines, &more,
			   "recorded steps take %.2g %% longer than these (+-%.2g); their hits say %.2g %%",
			   overhead->measured_micros / 1e4, overhead->error_micros / 1e4,
			   overhead->accounted_micros / 1e4);
}

bool summary__measured(const struct summary *summary, char *out, size_t room)
{
	const struct seen seen = job__seen(summary->job);
	const struct rec_overhead *overhead = measured_of(summary, &seen);
	double part;

	if (!overhead)
		return false;
	part = (double)seen.ns / seen.whole_ns;
	snprintf(out, room, "job %.2g %% slower (measured, +-%.2g)",
		 (overhead->measured_micros * part + overhead->rest_micros * (1 - part)) / 1e4,
		 overhead->error_micros * part / 1e4);
	return true;
}
