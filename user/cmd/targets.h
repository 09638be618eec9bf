/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The processes that a command looks at: -p PID, --job NAME, --all, or without any of these the only
 * training job of the host. In: options. Out: pids.
 */
#ifndef STEPFLAME_USER_CMD_TARGETS_H
#define STEPFLAME_USER_CMD_TARGETS_H

#include <argp.h>
#include <stdbool.h>

#include "user/cmd/pids.h"
#include "user/session/session.h"

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

#endif
