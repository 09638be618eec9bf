/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of the Chrome format share. */
#ifndef STEPFLAME_USER_EXPORT_CHROME_PRIVATE_H
#define STEPFLAME_USER_EXPORT_CHROME_PRIVATE_H

#include "user/export/export.h"

/*
 * Kineto counts from the last multiple of this, so that microseconds with three decimals are exact
 * in a double, and traces of several ranks share a base.
 */
#define BASE_UNIT_NS (7889238 * 1000000000ull)

/*
 * A second track of a thread gets a thread id of its own, above all ids of real threads
 * (PID_MAX_LIMIT).
 */
#define LANE_TID       (1u << 22)

#define GPU_SORT_INDEX 5000000     /* as in Kineto */
#define GPU_PID        0x80000000u /* first GPU id of the second process with GPUs; 256 ids per process */

/* A CUDA call. */
struct chrome_call {
	uint64_t external; /* External id of the enclosing operator; 0: none */
	bool asked;        /* it caused work on the GPU */
};

struct chrome {
	FILE *out;
	const struct gpu *gpu;
	const struct gpu_act *activities;
	size_t activity_cnt;
	struct chrome_call *calls; /* by index in gpu__activities */
	uint64_t open
		[TIMELINE_DEPTH_MAX]; /* by depth on this track: the External id of the innermost operator; 0: none */
	uint32_t gpu_pid;             /* id of the current process's GPU 0 */
	uint32_t gpu_processes;
	const struct timeline_name *names;
	char **name_json;  /* by index in timeline__names */
	char **group_json; /* by index in timeline__groups: arguments, each after a comma */
	size_t name_cnt, group_cnt;
	uint64_t first_ns; /* start of the first event */
	uint64_t base_ns;  /* of the trace, on the real-time clock */
	uint64_t first_ts; /* of the first event, relative to base_ns */
	uint64_t event_cnt;
	const char *comma;
	bool kineto; /* nothing that torch.profiler does not write; steps are those of the reports */
};

/* ---- chrome.c ---- */

/* Begins an event, which the caller ends with "}". category: NULL: none. */
void chrome__put_event(struct chrome *c, const char *phase, const char *category, const char *name_json, uint32_t pid,
		       uint32_t tid, uint64_t start_ns);
void chrome__put_us(FILE *out, const char *key, uint64_t ns);
/* 0 or -ENOMEM. */
int chrome__put_metadata(struct chrome *c, const char *name_json, uint32_t pid, uint32_t tid, const char *key,
			 const char *value);
void chrome__put_sort_index(struct chrome *c, const char *name_json, uint32_t pid, uint32_t tid, uint64_t index);

/* ---- chrome_args.c ---- */

/* The arguments of a group of operators, each after a comma; malloc'ed; NULL: no memory. */
char *chrome__group_json(struct job *job, uint64_t id);

/* ---- chrome_tracks.c ---- */

/* Writes the tracks (tracks.h) that the options choose. timeline: whose processes have names already. 0 or -ENOMEM. */
int chrome_tracks__put(struct chrome *c, struct job *job, const struct timeline *timeline,
		       const struct export_options *options);
/* Writes the stacks to which their events refer, behind a comma. 0 or -ENOMEM. */
int chrome_tracks__put_stacks(struct chrome *c, const struct export_options *options);

#endif
