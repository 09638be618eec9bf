/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose fault is it that a process waits for a CPU? In: the CPU time of the processes of a job, once
 * a second, and what their cgroups and the machine have. A job that uses all that it may use waits
 * for itself, or for its limit; else others have the CPUs.
 */
#ifndef STEPFLAME_USER_ANALYSIS_CPU_LIMIT_H
#define STEPFLAME_USER_ANALYSIS_CPU_LIMIT_H

#include "user/model/job.h"

enum cpu_holder {
	CPU_HELD_UNKNOWN, /* too short a recording, or one without resources */
	CPU_HELD_OTHERS,  /* programs that are not recorded */
	CPU_HELD_QUOTA,   /* nobody: its cgroup's CPU time is used up */
	CPU_HELD_ALLOWED, /* itself: it uses the CPUs on which it may run, of more that the machine has */
	CPU_HELD_ITSELF,  /* itself: it uses all of the machine's */
};

struct cpu_limit {
	enum cpu_holder holder;
	double used; /* CPUs, by all recorded processes of that machine, on average; 0: not known */
	double cpus; /* CPUs that they may use; 0: not known */
};

/* What limits a process, whether or not it uses that up. */
void cpu_limit__of(struct job *job, uint32_t pid, struct cpu_limit *out);
/* Who has the CPUs while it waits for one. */
void cpu_limit__find(struct job *job, uint32_t pid, struct cpu_limit *out);

#endif
