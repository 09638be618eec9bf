/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A DataLoader of a process, its workers, and the waits for its batches. */
#ifndef STEPFLAME_USER_ANALYSIS_LOADER_LOADER_H
#define STEPFLAME_USER_ANALYSIS_LOADER_LOADER_H

#include "user/analysis/steps/steps.h"

/* What a worker did while the process waited for it. */
struct worker_doing {
	uint32_t code, line; /* innermost Python frame: a number for stacks__code; 0: no frame */
	unsigned int cause;  /* CAUSE_NONE: on the CPU */
	uint64_t ns;
	uint64_t file,
		file_ns; /* the file that took the longest: REC_NAME id of its path, 0: not known; and its part of ns */
	size_t file_cnt; /* number of known files */
};

struct worker {
	uint32_t pid;
	uint32_t number;   /* of the loader's workers in order of their start, from 0 */
	uint32_t iterator; /* number in loader_parts.iterators, from 1; 0: not known */
	uint64_t waits;    /* for its batches */
	uint64_t wait_ns, longest_ns;
	uint64_t first_ns, last_ns; /* first and last time seen */
	/* Times of its main thread. Idle: it waits for what to load next. */
	uint64_t seen_ns, idle_ns, cpu_ns, queued_ns;
	uint64_t storage_ns; /* it waits for disks and file systems */
	/* It waits for another worker, to let a lock go say; and for one other process that is no child of its own. */
	uint64_t turns_ns, server_ns;
	uint32_t server;        /* the pid of that one, of those for which it waits longest; 0: none */
	bool is_stream;         /* it goes through an IterableDataset, of which it has a part */
	uint64_t others_cpu_ns; /* all its other threads */
	/* Of those without Python, which compute for operators: on a CPU, and waiting for one. */
	uint64_t pool_cpu_ns, pool_queued_ns;
	uint32_t pool_cnt;
	const struct rec_proc *end;        /* how it ended, if it failed; NULL: it did not, or that is not known */
	uint64_t end_wait_ns;              /* waits ended by its exit instead of a batch; not in the other totals */
	const struct worker_doing *doings; /* while the process waited for it; longest first */
	size_t doing_cnt;
};

#define WORKER_NONE UINT32_MAX

/* Where a process fetches batches. */
struct loader_place {
	uint64_t key;        /* equal for equal places; 0: not known */
	uint64_t action;     /* REC_NAME id of the innermost action there; 0: no action */
	uint32_t code, line; /* the innermost line outside packages: a number for stacks__code; 0: no such line */
	bool validation;
};

/* One wait of the process for a batch, perhaps in several parts. */
struct loader_wait {
	uint64_t start_ns, end_ns;
	uint64_t ns;     /* time waited between start and end */
	long step;       /* index into the track's steps; -1: in no step */
	uint32_t worker; /* the worker that made the batch: index into loader->workers; WORKER_NONE: not known */
	struct loader_place place;
	bool broken; /* that worker exited without making the batch */
	bool late;   /* the batch was not ready when the process asked for it; else it only had to be handed over */
};

enum loader_advice {
	LOADER_UNKNOWN,  /* too little data */
	LOADER_KEEPS_UP, /* the process hardly waits */
	LOADER_ONE_SLOW, /* one worker holds the process up: more workers do not help */
	LOADER_CPU_FULL, /* more workers would find no free CPU */
	LOADER_MORE,     /* `advised` workers are better */
	LOADER_RESTARTS, /* the workers start anew for each epoch, which takes most of the time */
	LOADER_UNEVEN,   /* enough workers on average, but batches take unequal times, or epochs are short */
	LOADER_THREADS,  /* more workers would find no free CPU: the workers' own threads have them */
	LOADER_STORAGE,  /* more workers would be better, if the disk from which the workers read has more to give */
	LOADER_TURNS,    /* the workers wait for each other, or for one process: more would wait, too */
	LOADER_SHARDS,   /* more workers would be better, if their data set can be split among as many */
};

/*
 * A DataLoader of a process, and its workers. If the loaders of a process cannot be told apart, one
 * that stands for all.
 */
struct loader {
	uint32_t pid;
	uint32_t number, of_cnt;        /* index among the process's loaders, from 0; their number */
	struct loader_place place;      /* where the process mostly waits for it */
	const struct step_track *track; /* NULL: the process makes no steps */
	const struct worker *workers;   /* by number */
	size_t worker_cnt;
	const struct loader_wait *waits; /* in time order */
	size_t wait_cnt, late_cnt;       /* all waits; those for batches that were not ready: only they count below */
	struct {
		size_t step_cnt;   /* steps that began while a worker was alive */
		size_t none_cnt;   /* those steps that began without an idle worker */
		uint64_t idle_cnt; /* workers idle at the start of steps: all that they may prefetch was ready */
	} ahead;
	uint64_t wait_ns, unknown_ns; /* for batches that were not ready; the part whose worker is not known */
	uint64_t handover_ns;         /* in the other waits */
	/*
	 * The part of these in which the worker had its GIL for the next batches: a thread of its own
	 * hands a batch over. So the wait is for their work after all.
	 */
	uint64_t gil_ns;
	uint64_t no_loader_ns; /* the process's waits for batches whose loader is not known */
	uint64_t observed_ns;  /* the steps, or else the window; for one of several loaders, its time in use */
	uint64_t batches;      /* fetched batches, as counted by the DataLoader's label; 0: not known */
	/*
	 * For one of several loaders: time between batches without other loaders' turns, and the
	 * number of those batches.
	 */
	uint64_t active_ns, active_cnt;
	uint64_t active_wait_ns; /* the part of all waits in active_ns */
	uint64_t main_cpu_ns;    /* of all threads of the process */
	/* Workers that replaced others: the process starts and ends them, and waits for their first batches. */
	uint64_t restart_ns, first_wait_ns;
	uint32_t first_cnt;   /* of these waits */
	uint64_t restarts_ns; /* of all that, what a batch does not take anyway */
	uint32_t at_once;     /* the most workers alive at once; for one of several loaders, of one of its iterators */
	uint64_t produce_ns;  /* a worker's time per batch; 0: not known */
	uint64_t consume_ns;  /* the process's time between fetches; 0: not known */
	double reach_ns;      /* with `advised` workers; 0: not known */
	uint64_t batch_ns;    /* the actual time per batch, including waits; 0: not known */
	uint32_t slow;        /* index of a worker slower than the others; WORKER_NONE: no such worker */
	enum loader_advice advice;
	bool is_stream;       /* of an IterableDataset: each worker goes through its own shards of it */
	double awaited_share; /* of the workers' work: waits for each other, or for one process */
	uint32_t server;      /* the pid of that process; 0: for each other, mostly */
	uint32_t cpus;        /* that the process may use; 0: not known */
	uint32_t threads;     /* of a worker, that compute; with its main thread */
	uint32_t needed;      /* workers that would keep up, from produce_ns and consume_ns; 0: not known */
	uint32_t advised;     /* the same, or as many as take all CPUs, if those are fewer */
};

#endif
