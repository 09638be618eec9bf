/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose fault is it that a process waits for a CPU? In: who ran meanwhile, the CPU time of the
 * processes of a job, once a second, what their cgroups and the machine have, and how often the
 * kernel says that a quota was used up. Where it is not known who ran, a job that uses all that it
 * may use waits for itself, or for its limit; else others have the CPUs.
 */
#ifndef STEPFLAME_USER_ANALYSIS_RESOURCES_CPU_LIMIT_H
#define STEPFLAME_USER_ANALYSIS_RESOURCES_CPU_LIMIT_H

#include <stdbool.h>

#include "user/model/job.h"

/*
 * Who ran while a thread that could run waited for a CPU? In: its samples of the run queue, each
 * with the process that had the CPU last. Out: time by who that is.
 */

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

/* Whether enough of the time is known to say whose it was. */
bool cpu_ran__is_known(const struct cpu_ran *ran);
/* The part of the known time that was the job's own. */
double cpu_ran__own_share(const struct cpu_ran *ran);
/* Who of the job had most. */
enum cpu_ran_who cpu_ran__most_of_own(const struct cpu_ran *ran);

enum cpu_holder {
	CPU_HELD_UNKNOWN, /* too short a recording, or one without resources */
	CPU_HELD_OTHERS,  /* programs that are not recorded */
	CPU_HELD_QUOTA,   /* nobody: its cgroup's CPU time is used up */
	CPU_HELD_ALLOWED, /* itself: it uses the CPUs on which it may run, of more that the machine has */
	CPU_HELD_ITSELF,  /* itself: it uses all of the machine's */
};

/* What the kernel counted of one quota while the process was looked at. */
struct cpu_throttle {
	double cpus;                 /* the quota */
	uint32_t above;              /* levels between the process's own cgroup and that of the quota */
	uint64_t periods, throttled; /* in which the cgroup had something to run; in which the quota was used up */
	double share;                /* of the time it was used up, summed over the CPUs: may be above 1 */
};

struct cpu_limit {
	enum cpu_holder holder;
	double used; /* CPUs, by the job's recorded processes on that machine, on average; 0: not known */
	double cpus; /* CPUs that they may use; 0: not known */
	struct cpu_throttle throttle; /* without periods: not known */
	struct cpu_ran ran;           /* all zeros: not known */
};

/* What limits a process, whether or not it uses that up. */
void cpu_limit__of(struct job *job, uint32_t pid, struct cpu_limit *out);
/*
 * Who has the CPUs while it waits for one, for that share of the time. thread: of which it is asked who ran meanwhile.
 * 0 or -ENOMEM.
 */
int cpu_limit__find(struct job *job, uint32_t pid, uint32_t thread, double waits, struct cpu_limit *out);
#define CPU_LIMIT_TEXT 320
/* "its own limit of 0.5 CPUs: throttled in 129 of 130 periods, 41 % of the time"; "": nobody is known. */
void cpu_limit__text(const struct cpu_limit *limit, char text[2 * CPU_LIMIT_TEXT]);
/*
 * The quota that held a process up most. false: there is none, it was looked at for too short a
 * time, or what the kernel says of one cannot be.
 */
bool cpu_throttle__find(struct job *job, uint32_t pid, struct cpu_throttle *out);

#endif
