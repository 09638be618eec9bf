/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The processes that a command looks at: -p PID, --job NAME, --all, or without any of these the only
 * training job of the host. In: options. Out: pids.
 */
#ifndef STEPFLAME_USER_CMD_TARGETS_H
#define STEPFLAME_USER_CMD_TARGETS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "user/identity/trainings.h"
#include "user/session/session.h"

#define PIDS_MAX 256

/* The processes that -p gives to a command. */
struct pids {
	pid_t pid[PIDS_MAX];
	size_t cnt;
};

/* Adds the pids of "PID[,PID...]"; a usage error ends the program. */
void pids__parse(struct argp_state *state, struct pids *pids, const char *text);

enum { OPT_TARGET_JOB = 0x200, OPT_TARGET_ALL };

struct targets {
	struct pids pids;
	const char *job;
	bool all;
};

/* The rows of an option table. */
#define TARGET_OPTIONS                                                                                          \
	{"pid", 'p', "PID[,PID...]", 0, "these running processes; may be given several times", 0},              \
		{"job",                                                                                         \
		 OPT_TARGET_JOB,                                                                                \
		 "NAME",                                                                                        \
		 0,                                                                                             \
		 "the processes of this job: the id of a run of torchrun (--rdzv-id), of a Slurm job, or of a " \
		 "container (or its first characters), or the path of a cgroup",                                \
		 0},                                                                                            \
	{                                                                                                       \
		"all", OPT_TARGET_ALL, NULL, 0,                                                                 \
			"all training processes of this host, as ps lists them, that the caller may examine", 0 \
	}

/* Takes an option of these. 0, or ARGP_ERR_UNKNOWN; a usage error ends the program. */
error_t targets__option(struct argp_state *state, struct targets *targets, int key, char *arg);
/* Is any of them given? */
bool targets__given(const struct targets *targets);
/* Once all options are parsed: a usage error where several of them are given. */
void targets__check(struct argp_state *state, const struct targets *targets);

/*
 * Fills pids where -p has not done so. Says on stderr which processes these are; or ends the program
 * after a message: there is no such job, or several. doing: "recording"; verb: "record".
 */
void targets__choose_or_die(struct targets *targets, const char *verb, const char *doing);

/*
 * Attaches to each. One that has ended since, or that cannot be recorded, is left out, with a
 * message, as long as one is left. 0, or -errno after a message, as session__attach.
 */
int targets__attach(const struct targets *targets, struct session *session);

/* ---- which of the training processes of this host a name means ---- */

/*
 * Selects the targets of the jobs that `name` means: a run of torchrun, a job of Slurm, a container
 * or the beginning of its id, a cgroup; NULL: of all jobs. Adds them to pids, each before the one
 * that has started it. 0; -ESRCH: none; -ENOTUNIQ: the beginning of several ids; -E2BIG: more than
 * PIDS_MAX.
 */
int trainings__select(const struct trainings *t, const char *name, struct pids *pids);

/* Says on stderr how many processes are hidden, why, and what to do; nothing where none is. */
void trainings__warn_of_hidden(size_t hidden);

/* Counts the jobs that have a target. */
size_t trainings__job_cnt(const struct trainings *t);

#endif
