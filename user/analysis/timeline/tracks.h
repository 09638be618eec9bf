/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What every recording holds with its time, beside the spans of the timeline (timeline.h): steps,
 * garbage collections, waits, samples, DataLoader workers, memory, resources and GPU readings. Takes the
 * records and the job that they make, and returns tracks of events for export. Nothing has a
 * position that was not recorded: the phases of a step have only durations, so they are its
 * arguments, and a sample that stands for several short waits is an instant.
 */
#ifndef STEPFLAME_USER_ANALYSIS_TIMELINE_TRACKS_H
#define STEPFLAME_USER_ANALYSIS_TIMELINE_TRACKS_H

#include "user/analysis/flame/calltree.h"
#include "user/analysis/resources/curves.h"
#include "user/analysis/steps/steps.h"

enum track_kind {
	TRACK_STEPS,   /* of the thread that makes them */
	TRACK_GC,      /* garbage collections of a process */
	TRACK_LOADER,  /* waits of a process for the batches of a DataLoader */
	TRACK_WORKER,  /* from when to when a DataLoader worker was seen */
	TRACK_WAITS,   /* of a thread: why it was not on a CPU */
	TRACK_SAMPLES, /* of a thread: instants at which the timer found it on a CPU */
	TRACK_MEMORY,  /* counter, bytes: what operators allocated less what they freed, on the CPU */
	TRACK_DEVICE,  /* the same, on devices */
	TRACK_CURVES,  /* and those that follow, one for each enum curve_kind: counters */
	TRACK__END = TRACK_CURVES + CURVE__COUNT,
};

struct track_arg {
	const char *key;
	const char *text; /* NULL: a number */
	double number;
};

struct track_event {
	uint64_t start_ns, duration_ns; /* instants and counters have no duration */
	union {
		int64_t value; /* of a counter; the number of a step */
		double real;   /* of a curve */
	};
	const char *name; /* UTF-8, control characters unchanged; NULL: of a counter */
	size_t arg;       /* index of its first argument in tracks__args */
	uint32_t arg_cnt;
	uint32_t node; /* stack: index of a node in calltree__nodes; 0: no stack */
	bool instant;
};

/* Its events are sorted by start and do not overlap. */
struct track {
	enum track_kind kind;
	uint32_t pid; /* 0: the host, for GPU readings and what the machine used */
	uint32_t tid; /* thread; number of a loader or GPU; 0 for the others */
	const struct track_event *events;
	size_t event_cnt; /* at least 1 */
};

struct tracks;

struct tracks *tracks__new(void);         /* NULL: no memory */
void tracks__free(struct tracks *tracks); /* accepts NULL; before the job */
/* Takes one record. 0 or -ENOMEM. */
int tracks__add(struct tracks *tracks, const struct rec_hdr *record);
/* Call once, after the job has all records; it must not take more. 0 or -ENOMEM. */
int tracks__build(struct tracks *tracks, struct job *job);

/* The results below are the tracks' own. Sorted by pid, kind, tid. NULL only with *cnt == 0. */
const struct track *tracks__all(const struct tracks *tracks, size_t *cnt);
const struct track_arg *tracks__args(const struct tracks *tracks);
/* Stacks of events: below a node for the process and one for the thread. */
const struct calltree *tracks__stacks(const struct tracks *tracks);
/* Events without a place: their time is absurd, or they overlap another one of their track. */
uint64_t tracks__left_out(const struct tracks *tracks);

static inline bool track__is_counter(const struct track *track)
{
	return track->kind >= TRACK_MEMORY;
}

/* Its values are real numbers of a curve; else whole ones. */
static inline bool track__is_curve(const struct track *track)
{
	return track->kind >= TRACK_CURVES;
}

/* Of a counter: "bytes". */
const char *track__unit(const struct track *track);

/* "steps of thread 7", malloc'ed; NULL: no memory. */
char *track__title(const struct track *track);

#endif
