// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/pids.h"

#include <stdint.h>
#include <stdlib.h>

void pids__parse(struct argp_state *state, struct pids *pids, const char *text)
{
	do {
		char *end;
		long pid = strtol(text, &end, 10);

		if (end == text || (*end && *end != ',') || pid <= 0 || pid > INT32_MAX)
			argp_error(state, "'%s' is not a PID", text);
		if (pids->cnt == PIDS_MAX)
			argp_error(state, "more than %d PIDs", PIDS_MAX);
		pids->pid[pids->cnt++] = pid;
		text = *end ? end + 1 : NULL;
	} while (text);
}
