/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The evidence for a verdict: the place, the lines that had the time, who ended the waits, what workers and other threads did
 * meanwhile. In: a judge that has found the class and what the verdict is about. Out: texts, and what bears on what to try.
 */
#ifndef STEPFLAME_USER_ANALYSIS_VERDICT_EVIDENCE_H
#define STEPFLAME_USER_ANALYSIS_VERDICT_EVIDENCE_H

#include "user/analysis/cause/blame.h"
#include "user/analysis/resources/cpu_limit.h"
#include "user/analysis/verdict/verdict.h"

#define ANY           (-1) /* phase */
#define NONE          (-2) /* phase, or cause */

#define MENTION_SHARE 0.02 /* of the time of all steps: worth mentioning */
#define BUSY_SHARE    0.8  /* of the time that was watched: the GPU bounds */

/* Time in a phase, or by a cause in any other phase, that counts towards a class. */
struct verdict_rule {
	enum verdict_class class;
	double share;
	int phase, causes[3]; /* or NONE */
	const char *what;
};

/* What those for whom the steps wait do while the steps do not. */
enum awaited_thread {
	AWAITED_NONE,  /* the steps wait for nobody */
	AWAITED_OTHER, /* it is not known */
	AWAITED_LATE,  /* they wait to be asked */
	AWAITED_BUSY,  /* they go on with their work */
	AWAITED_TURNS, /* they are several threads, which wait for each other's locks */
};

struct judge {
	struct job *job;
	const struct steps *steps;
	const struct step_track *track;
	const struct blame *blame;
	const struct gpu_steps *gpu;
	const struct straggler *straggler; /* or NULL */
	struct verdict *verdict;
	const struct verdict_rule *rule; /* the winner; or */
	const struct blame_group *group; /* the winner; or */
	bool busy;                       /* the winner is that the GPU is busy; or */
	bool collects;                   /* the winner is the collection of garbage; or there is no winner */
	double share;                    /* share of the winner */
	double busy_share;               /* of the GPU, in the time that was watched; -1: too little was watched */
	bool by_nvml;                    /* as NVML says, whoever used the GPU; else CUPTI */
	bool has_ranks; /* it has collectives: kernels of NCCL keep a GPU busy while they wait for other ranks */
	size_t workers;
	struct cpu_limit cpus; /* where it waits for a CPU */
	uint32_t slow_worker;  /* pid of a worker busier than the others, for which the steps wait; 0: no such worker */
	bool late; /* the steps wait for batches that are not there, more than to be handed those that are */
	const char *far_files;      /* the file system for which the steps wait: "/data (nfs4)"; NULL: none */
	enum awaited_thread thread; /* the steps wait for what other threads or processes do */
	bool writes;                /* namely to take what the steps write to them */
	bool shares_gil; /* their work is mostly Python: more threads of their process would wait for its GIL */
	char *holder;    /* who keeps the GIL, or collects garbage, and where; NULL: not known */
	int err;
};

/* Adds to why the class is what it is. */
void verdict__say_why(struct judge *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a text to the evidence, or to what to try next. */
void verdict__say(struct judge *j, struct array *list, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Whether one process ends most of the waits of the group. */
bool verdict__one_waker(const struct blame_group *group);
/* Whether the process ended in any way other than exit(0). */
bool verdict__failed(const struct job *job, uint32_t pid);
/* Whether the rule counts time in that phase by that cause (CAUSE_NONE: on the CPU). */
bool verdict_rule__has(const struct verdict_rule *rule, int phase, unsigned int cause);
/* Sets busy_share, by_nvml and has_ranks. */
void verdict__find_busy(struct judge *j);
/* How much of the time that the rule counts is waits for others that wait in turn: the cause is theirs. */
double verdict__passed_share(struct judge *j);
/*
 * Says what the thread or process does for which the steps wait, if most of the waits that the
 * verdict is about are for one; adds it to the place. false: they are not, or that is not known.
 */
bool verdict__say_threads(struct judge *j);
/* Whether a collection of garbage is open. */
bool verdict__is_in_gc(const struct judge *j, const struct sample *s);
/* Says which other thread makes the collections of garbage that the verdict is about. false: the one of the steps does. */
bool verdict__say_collector(struct judge *j);
/* Whether a step, an index into the track's, is one of the group's slow steps. */
bool verdict__is_of_group(const struct judge *j, const struct blame_group *group, long step);
/* Corrects the share that could be won, once the evidence is there. */
void verdict__find_gain(struct judge *j);
/* In on_cpu.c. Judges steps that ask the GPU for kernels, and are too slow for it. false: they are not. */
bool verdict__judge_launches(struct judge *j);
/* In on_cpu.c. Judges steps in which nothing else stands out, by what they do on the CPU. */
void verdict__judge_cpu(struct judge *j);
/* Adds the place and the evidence. */
void verdict__give_evidence(struct judge *j);
/* Whether the slow steps of a group start DataLoader workers, or wait for their ends. */
bool verdict__starts_workers(struct judge *j, const struct blame_group *group);
/* What to try where a server of files is slow. */
extern const char verdict__far_files[];
/* Adds what to try where getting data limits the steps. */
void verdict__advise_input(struct judge *j);
/* Adds what to try for a verdict of validation, if workers of a DataLoader start anew for each. */
void verdict__advise_evaluation(struct judge *j);

#endif
