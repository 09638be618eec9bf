// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/until.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "user/cmd/session_args.h"
#include "user/lib/log.h"
#include "user/report/summary.h"

#define SNAPSHOTS       4 /* in the time that --last keeps, or a stall takes */
#define SNAPSHOT_MIN_NS 100000000ull

void until__option(struct argp_state *state, struct trigger_options *options, const char *text)
{
	for (int kind = 0; kind < TRIGGER__COUNT; kind++) {
		size_t bytes = strlen(trigger_names[kind]);

		if (strncmp(text, trigger_names[kind], bytes) || (text[bytes] && text[bytes] != '='))
			continue;
		options->on[kind] = true;
		options->ns[kind] = text[bytes] ? session_args__time(state, text + bytes + 1) : 0;
		return;
	}
	argp_error(state, "--until wants slow, slow=TIME, stall or stall=TIME, not '%s'", text);
}

bool until__given(const struct trigger_options *options)
{
	return options->on[TRIGGER_SLOW] || options->on[TRIGGER_STALL];
}

uint64_t until__snapshot_ns(const struct trigger_options *options, uint64_t last_ns)
{
	uint64_t stall_ns = options->on[TRIGGER_STALL] ? options->ns[TRIGGER_STALL] ?: TRIGGER_STALL_NS : 0;
	uint64_t ns = stall_ns && (!last_ns || stall_ns < last_ns) ? stall_ns : last_ns;

	if (!ns)
		return 0;
	return ns / SNAPSHOTS > SNAPSHOT_MIN_NS ? ns / SNAPSHOTS : SNAPSHOT_MIN_NS;
}

void until__say(const struct trigger_event *event, struct session *session)
{
	char took[32], median[32], longest[32], before[128] = "", what[256];

	if (!event->seen) {
		log__info("nothing of what --until waits for has happened");
		return;
	}
	summary_words__duration(event->duration_ns, took);
	if (event->median_ns)
		snprintf(before, sizeof(before), "; the steps before it took %s, and %s at most",
			 summary_words__duration(event->median_ns, median),
			 summary_words__duration(event->longest_ns, longest));
	if (event->kind == TRIGGER_SLOW)
		snprintf(what, sizeof(what), "step %" PRIu64 " of process %u took %s%s", event->step, event->pid, took,
			 before);
	else
		snprintf(what, sizeof(what), "process %u has ended no step for %s, since step %" PRIu64 "%s",
			 event->pid, took, event->step, before);
	log__info("%s: this ends the recording", what);
	session__note(session, "%s: this has ended the recording (record --until)", what);
}
