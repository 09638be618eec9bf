// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The summary's lines on a recording with --budget: its windows, its rests, and what it costs. */
#include <inttypes.h>
#include <stdio.h>

#include "include/resource_records.h"
#include "user/model/rests.h"
#include "user/model/seen.h"
#include "user/report/lines.h"
#include "user/report/summary.h"

/* What the one probe that is left in rests says: how long steps take there, and so what recording costs. */
void summary__say_budget(const struct summary *summary, const struct seen *seen, struct lines *lines)
{
	const struct line_text how = {"Budget", LINE_PLAIN, 2, 1, 0}, more = {"", LINE_PLAIN, 2, 1, 0};
	const struct rec_overhead *overhead = rests__overhead(job__rests(summary->job), seen->pid);
	char whole[32], median[32], longest[32], of[64] = "";
	struct rest_steps steps;

	lines__add(lines, &how, "%g %% of the time: recorded in %" PRIu32 " part%s of %s; all below is of %s",
		   seen->budget_micros / 1e4, seen->parts, seen->parts == 1 ? "" : "s",
		   summary_words__duration(seen->whole_ns, whole), seen->parts == 1 ? "it" : "these");
	if (!job__rest_steps(summary->job, seen->pid, &steps) && steps.cnt)
		lines__add(lines, &more, "steps between them: %" PRIu64 ", median %s, longest %s", steps.cnt,
			   summary_words__duration(steps.median_ns, median),
			   summary_words__duration(steps.longest_ns, longest));
	if (!overhead || !overhead->pairs)
		return;
	if (seen->whole_ns)
		snprintf(of, sizeof(of), ", %.2g %% of all the time",
			 overhead->measured_micros / 1e4 * seen->ns / seen->whole_ns);
	lines__add(lines, &more, "measured: recorded steps take %.2g %% longer (+-%.2g)%s; the hits say %.2g %%",
		   overhead->measured_micros / 1e4, overhead->error_micros / 1e4, of,
		   overhead->accounted_micros / 1e4);
}
