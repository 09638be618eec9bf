// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/until.h"

#include <stdlib.h>
#include <string.h>

#include "user/cmd/session_args.h"
#include "user/lib/log.h"
#include "user/report/trigger_text.h"

#define PERCENT_MAX     1000
#define SNAPSHOTS       4 /* in the time that --last keeps, or a stall takes */
#define SNAPSHOT_MIN_NS 100000000ull

/* "20", or "20%". */
static uint32_t percent(struct argp_state *state, const char *option, const char *kind, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text == '-' || end == text || (*end && strcmp(end, "%")) || !value || value > PERCENT_MAX)
		argp_error(state, "%s %s= wants a percentage of 1 to %d, not '%s'", option, kind, PERCENT_MAX, text);
	return value;
}

void until__option(struct argp_state *state, struct trigger_options *options, const char *option, const char *text)
{
	for (int kind = 0; kind < TRIGGER__COUNT; kind++) {
		size_t bytes = strlen(trigger_names[kind]);
		const char *value = text + bytes + 1;

		if (strncmp(text, trigger_names[kind], bytes) ||
		    (text[bytes] && (text[bytes] != '=' || kind == TRIGGER_END)))
			continue;
		options->on[kind] = true;
		if (kind == TRIGGER_SLOWER || kind == TRIGGER_STRAGGLER)
			options->percent[kind] = text[bytes] ? percent(state, option, trigger_names[kind], value) : 0;
		else
			options->ns[kind] = text[bytes] ? session_args__time(state, value) : 0;
		return;
	}
	argp_error(state,
		   "%s wants slow, slow=TIME, slower, slower=PERCENT, straggler, straggler=PERCENT, stall, stall=TIME "
		   "or end, not '%s'",
		   option, text);
}

bool until__given(const struct trigger_options *options)
{
	for (int kind = 0; kind < TRIGGER__COUNT; kind++)
		if (options->on[kind])
			return true;
	return false;
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
	char text[TRIGGER_TEXT];

	if (!event->seen) {
		log__info("nothing of what --until waits for has happened");
		return;
	}
	trigger_text__event(event, text);
	log__info("%s: this ends the recording", text);
	session__note(session, "%s: this has ended the recording (record --until)", text);
}
