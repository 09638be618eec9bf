// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/session_args.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

#define BUDGET_MIN 0.01 /* percent */

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
