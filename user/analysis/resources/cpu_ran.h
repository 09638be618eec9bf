/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who ran while a thread that could run waited for a CPU? In: its samples of the run queue, each
 * with the process that had the CPU last. Out: time by who that is.
 */
#ifndef STEPFLAME_USER_ANALYSIS_RESOURCES_CPU_RAN_H
#define STEPFLAME_USER_ANALYSIS_RESOURCES_CPU_RAN_H

#include "user/model/job.h"

enum cpu_ran_who {
	CPU_RAN_THREADS,   /* of the same process */
	CPU_RAN_PROCESSES, /* its children, DataLoader workers among them */
	CPU_RAN_RANKS,     /* other ranks of its job, and their children */
	CPU_RAN_OTHERS,    /* other jobs, other programs, the kernel */
	CPU_RAN__COUNT,
};

struct cpu_ran {
	double all_ns;             /* for which the thread waited for a CPU */
	double ns[CPU_RAN__COUNT]; /* of that: the rest is not known, or no process had that CPU */
	uint32_t other_pid;        /* of CPU_RAN_OTHERS, which had most of their time; 0: none has, or it is hidden */
};

/* thread: as in struct sample. 0 or -ENOMEM. */
int cpu_ran__find(struct job *job, uint32_t pid, uint32_t thread, struct cpu_ran *out);
/* Whether enough of the time is known to say whose it was. */
bool cpu_ran__is_known(const struct cpu_ran *ran);
/* The part of the known time that was the job's own. */
double cpu_ran__own_share(const struct cpu_ran *ran);
/* Who of the job had most. */
enum cpu_ran_who cpu_ran__most_of_own(const struct cpu_ran *ran);
#define CPU_RAN_TEXT 192
/* "its own threads ran 92 % of that time, other ranks 5 %"; "": not known. */
void cpu_ran__text(const struct cpu_ran *ran, char text[CPU_RAN_TEXT]);

#endif
