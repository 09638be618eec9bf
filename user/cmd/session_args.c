// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/session_args.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/log.h"
#include "user/report/summary.h"

#define FREQUENCY_MAX 10000

uint64_t session_args__time(struct argp_state *state, const char *text)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"m", 60e9}, {"h", 3600e9}};
	char *end;
	double value = strtod(text, &end);

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (end != text && !strcmp(end, units[i].unit) && value * units[i].ns >= 1 &&
		    value * units[i].ns < 1e18)
			return value * units[i].ns;
	argp_error(state, "'%s' is not a time like 10s, 500ms, 2m or 1h", text);
	return 0;
}

uint64_t session_args__size(struct argp_state *state, const char *text)
{
	static const char units[] = "KMGT";
	char *end;
	double value = strtod(text, &end);
	const char *unit = *end ? strchr(units, *end) : NULL;

	if (unit)
		value = ldexp(value, 10 * (int)(unit - units + 1));
	if (end == text || end[unit ? 1 : 0] || !(value >= 1 && value < 1e18))
		argp_error(state, "'%s' is not a size like 500M or 2G", text);
	return value;
}

static bool is_ascii(const char *text)
{
	while (*text > 0)
		text++;
	return !*text;
}

void session_args__action(struct argp_state *state, struct session_options *options, const char **actions,
			  const char *text)
{
	const char *colon = strchr(text, ':');

	if (!colon || colon == text || !colon[1])
		argp_error(state, "--action wants LIB:SYMBOL or FILE.py:QUALNAME, not '%s'", text);
	if (session__is_python_action(text) && (strlen(text) > REC_NAME_MAX || !is_ascii(text)))
		argp_error(state, "FILE.py:QUALNAME may have %d characters of ASCII, not '%s'", REC_NAME_MAX, text);
	if (options->action_cnt == ACTIONS_MAX)
		argp_error(state, "more than %d --action", ACTIONS_MAX);
	actions[options->action_cnt++] = text;
}

#define BUDGET_MIN  0.01 /* percent */

#define PERCENT_MAX 1000

/* "20", or "20%". */
static uint32_t percent(struct argp_state *state, const char *option, const char *kind, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text == '-' || end == text || (*end && strcmp(end, "%")) || !value || value > PERCENT_MAX)
		argp_error(state, "%s %s= wants a percentage of 1 to %d, not '%s'", option, kind, PERCENT_MAX, text);
	return value;
}

double session_args__budget(struct argp_state *state, const char *text)
{
	char *end;
	double percent = strtod(text, &end);

	if (end == text || (strcmp(end, "%") && *end) || !(percent >= BUDGET_MIN && percent <= 100))
		argp_error(state, "--budget wants %g to 100 percent, not '%s'", BUDGET_MIN, text);
	return percent / 100;
}

uint32_t session_args__frequency(struct argp_state *state, const char *text)
{
	char *end;
	unsigned long hz = strtoul(text, &end, 10);

	if (!*text || *end || *text == '-' || hz > FREQUENCY_MAX)
		argp_error(state, "-F wants 0 to %d samples a second, not '%s'", FREQUENCY_MAX, text);
	return hz;
}

enum session_gpu session_args__gpu(struct argp_state *state, const char *text)
{
	static const char *const names[] = {[SESSION_GPU_OFF] = "off",
					    [SESSION_GPU_AUTO] = "auto",
					    [SESSION_GPU_UPROBE] = "uprobe",
					    [SESSION_GPU_CUPTI] = "cupti"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(text, names[i]))
			return i;
	argp_error(state, "--gpu is off, auto, uprobe or cupti, not '%s'", text);
	return SESSION_GPU_OFF;
}

enum session_children session_args__children(struct argp_state *state, const char *text)
{
	if (!strcmp(text, "all"))
		return CHILDREN_ALL;
	if (!strcmp(text, "workers"))
		return CHILDREN_WORKERS;
	if (strcmp(text, "none"))
		argp_error(state, "--children is all, workers or none, not '%s'", text);
	return CHILDREN_NONE;
}

/* ---- events ---- */

#define SNAPSHOTS       4 /* in the time that --last keeps, or a stall takes */
#define SNAPSHOT_MIN_NS 100000000ull

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
	char text[SUMMARY_EVENT_BYTES];

	if (!event->seen) {
		log__info("nothing of what --until waits for has happened");
		return;
	}
	summary_text__event(event, text);
	log__info("%s: this ends the recording", text);
	session__note(session, "%s: this has ended the recording (record --until)", text);
}
