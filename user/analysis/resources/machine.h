/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the machines of a recording used, in all: the figures of psutil that Lightning's
 * DeviceStatsMonitor logs. In: REC_MACHINE, looked at once a second.
 */
#ifndef STEPFLAME_USER_ANALYSIS_RESOURCES_MACHINE_H
#define STEPFLAME_USER_ANALYSIS_RESOURCES_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "include/resource_records.h"
#include "user/model/job.h"

/* In %; below 0: not known. */
struct machine_percent {
	double cpu;    /* of all processors */
	double memory; /* what is not available, of all */
	double swap;   /* 0: it has none */
};

struct machine_use {
	const char *host; /* NULL: the recording has only one; owned by the job */
	const struct rec_machine *last;
	size_t sample_cnt;
	double seconds;
	struct machine_percent mean; /* over the recording */
	double memory_max;           /* in % */
};

/* One for each machine, malloc'ed. 0 or -ENOMEM. */
int machine_uses__new(struct job *job, struct machine_use **out, size_t *cnt);

/* The samples of one machine; cnt 0: it has none. */
struct machine_samples {
	const struct rec_machine *items; /* by time; owned by the job */
	size_t cnt;
};

/* CPU time from one sample to the next, b; memory and swap at the first. b NULL: CPU is not known. */
struct machine_percent machine_percent__between(const struct rec_machine *a, const struct rec_machine *b);
/* Of the machine on which a process ran. */
struct machine_samples machine_samples__of(struct job *job, uint32_t pid);
/*
 * From start_ns to end_ns: CPU time between the samples around it, which are a second apart; memory by
 * the last sample before its end. false: no samples around it.
 */
bool machine_samples__span(const struct machine_samples *samples, uint64_t start_ns, uint64_t end_ns,
			   struct machine_percent *out);

#endif
