/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How long a recording has seen its processes, without their rests. */
#ifndef STEPFLAME_USER_MODEL_SEEN_H
#define STEPFLAME_USER_MODEL_SEEN_H

#include "user/model/job.h"

/* Of the main processes, what is known of the one that rested least. */
struct seen {
	uint32_t pid;           /* 0: none */
	uint64_t whole_ns;      /* of the recording */
	uint64_t ns;            /* of these, in which it was recorded */
	uint32_t budget_micros; /* 0: no budget */
	uint32_t rests, parts;  /* parts: windows between the rests */
};

struct seen job__seen(const struct job *job);

/* Steps of a process in its rests, by their ticks (STEP_TICK), as far as the recording has its events. */
struct rest_steps {
	uint64_t cnt, median_ns, longest_ns;
};

/* 0 or -ENOMEM. */
int job__rest_steps(const struct job *job, uint32_t pid, struct rest_steps *out);

#endif
