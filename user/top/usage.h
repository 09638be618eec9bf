/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What /proc reports about the job's processes: CPU time, memory and its limits, threads and their names. */
#ifndef STEPFLAME_USER_TOP_USAGE_H
#define STEPFLAME_USER_TOP_USAGE_H

#include "user/top/top.h"

struct usage {
	struct array processes; /* struct top_process */
	uint64_t time_ns;       /* of the last reading; 0: none */
};

/*
 * Reads the job's live processes, and sets out to what they used since the last call; out->each is valid until the
 * next. 0 or -ENOMEM.
 */
int usage__read(struct usage *usage, const struct job *job, struct top_usage *out);
void usage__free(struct usage *usage);

#endif
