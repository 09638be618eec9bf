/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A DataLoader of a process, its workers, and the waits for its batches. */
#ifndef STEPFLAME_USER_ANALYSIS_LOADER_H
#define STEPFLAME_USER_ANALYSIS_LOADER_H

#include "user/analysis/steps.h"

/* What a worker did while it was waited for. */
struct worker_doing {
	uint32_t code, line; /* innermost Python frame: a number for stacks__code, 0 none */
	unsigned int cause;  /* CAUSE_NONE: on the CPU */
	uint64_t ns;
	uint64_t file, file_ns; /* for which it took longest: REC_NAME id of its path, 0 none is known; so much of ns */
	size_t file_cnt;        /* of those known */
};

struct worker {
	uint32_t pid;
	uint32_t number;   /* the loader's workers in the order of their start, from 0 */
	uint32_t iterator; /* iterators.h: number, from 1; 0: not known */
	uint64_t waits;    /* for its batches */
	uint64_t wait_ns, longest_ns;
	uint64_t first_ns, last_ns; /* seen from, until */
	/* Of its main thread. Idle: it waits for what to load next. */
	uint64_t seen_ns, idle_ns, cpu_ns, queued_ns;
	const struct rec_proc *end; /* how it ended, with what is no success; NULL: it has not, or is not known to */
	uint64_t end_wait_ns;       /* of waits that its end ended, instead of a batch; not in the others */
	const struct worker_doing *doings; /* while it was waited for; most time first */
	size_t doing_cnt;
};

#define WORKER_NONE UINT32_MAX

/* Where a process fetches batches. */
struct loader_place {
	uint64_t key;        /* the same: the same place; 0: not known */
	uint64_t action;     /* REC_NAME id of the innermost action there; 0: none */
	uint32_t code, line; /* the innermost line that is no package's: a number for stacks__code, 0 none */
	bool validation;
};

/* The process waits for one batch, perhaps in several parts. */
struct loader_wait {
	uint64_t start_ns, end_ns;
	uint64_t ns;     /* waited in it */
	long step;       /* index into the track's steps; -1: in none */
	uint32_t worker; /* whose batch it was: index into loader->workers; WORKER_NONE: not known */
	struct loader_place place;
	bool broken; /* that worker ended, and made none */
	bool late;   /* the batch was not there when it was asked for; else it was handed over */
};

enum loader_advice {
	LOADER_UNKNOWN,  /* too little was seen */
	LOADER_KEEPS_UP, /* it hardly waits */
	LOADER_ONE_SLOW, /* one worker holds it up: more of them do not help */
	LOADER_CPU_FULL, /* more workers would find no CPU */
	LOADER_MORE,     /* `needed` workers would keep up */
	LOADER_UNEVEN,   /* there are as many as it takes on average: batches take unlike times, or epochs are short */
};

/* A DataLoader of a process, and its workers; of a process whose loaders cannot be told apart all of them. */
struct loader {
	uint32_t pid;
	uint32_t number, of_cnt;        /* of the process's loaders, from 0; how many they are */
	struct loader_place place;      /* where it is mostly waited for */
	const struct step_track *track; /* NULL: it makes no steps */
	const struct worker *workers;   /* by number */
	size_t worker_cnt;
	const struct loader_wait *waits; /* in the order of time */
	size_t wait_cnt, late_cnt;       /* all; for batches that were not there, which alone count below */
	struct {
		size_t step_cnt;   /* that began with some worker there */
		size_t none_cnt;   /* of them: with none idle */
		uint64_t idle_cnt; /* workers that were idle then: all that they may make ahead lay ready */
	} ahead;
	uint64_t wait_ns, unknown_ns; /* for batches that were not there; of these those whose worker is not known */
	uint64_t handover_ns;         /* of the other waits */
	uint64_t no_loader_ns;        /* of waits of the process for batches of which the loader is not known */
	uint64_t observed_ns;         /* the steps, or else the window; of one of several loaders when it was in use */
	uint64_t batches;             /* fetched, as its DataLoader's label counts; 0: not known */
	/* Of one of several loaders: the time between batches without other loaders' turns, and so many of them. */
	uint64_t active_ns, active_cnt;
	uint64_t active_wait_ns; /* of all waits those in it */
	uint64_t main_cpu_ns;    /* of all its threads */
	uint32_t at_once;        /* the most workers at a time; of one of several loaders, of one of its iterators */
	uint64_t produce_ns;     /* a worker's time for a batch; 0: not known */
	uint64_t consume_ns;     /* the process's time between fetches; 0: not known */
	uint64_t batch_ns;       /* the time for a batch as it was, with waits; 0: not known */
	uint32_t slow;           /* index of a worker that is slower than the others, WORKER_NONE: none is */
	enum loader_advice advice;
	uint32_t needed; /* workers, by produce_ns and consume_ns */
};

#endif
