// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/trigger_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/model/processes.h"
#include "user/report/summary.h"

const char *trigger_text__event(const struct trigger_event *event, char text[TRIGGER_TEXT])
{
	char took[32], median[32], longest[32], before[128] = "";
	char *end;

	summary_text__duration(event->duration_ns, took);
	if (event->median_ns)
		snprintf(before, sizeof(before), "; the steps before it took %s, and %s at most",
			 summary_text__duration(event->median_ns, median),
			 summary_text__duration(event->longest_ns, longest));
	switch (event->kind) {
	case TRIGGER_SLOW:
		snprintf(text, TRIGGER_TEXT, "step %" PRIu64 " of process %u took %s%s", event->step, event->pid, took,
			 before);
		break;
	case TRIGGER_SLOWER:
		snprintf(text, TRIGGER_TEXT,
			 "the steps of process %u take %s since step %" PRIu64 ", %.0f %% longer than before (%s)",
			 event->pid, took, event->step, 100. * event->duration_ns / event->median_ns - 100, median);
		break;
	case TRIGGER_STRAGGLER:
		snprintf(text, TRIGGER_TEXT,
			 "process %u holds up the other ranks of its job since step %" PRIu64
			 ": its own work takes %s of a step, theirs %s",
			 event->pid, event->step, took, median);
		break;
	case TRIGGER_STALL:
		snprintf(text, TRIGGER_TEXT, "process %u has ended no step for %s, since step %" PRIu64 "%s",
			 event->pid, took, event->step, before);
		break;
	default:
		end = processes__end_text(event->status);
		snprintf(text, TRIGGER_TEXT, "process %u ended after step %" PRIu64 ": %s", event->pid, event->step,
			 end ?: "badly");
		free(end);
	}
	return text;
}
