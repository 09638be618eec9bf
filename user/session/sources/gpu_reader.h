/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Converts the contents of an injection library's ring into records, one window after the other: times
 * on CLOCK_MONOTONIC, names as REC_NAME ids, and threads by stepflame's numbers.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_READER_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_READER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/gpu_records.h"
#include "include/gpu_ring.h"
#include "user/lib/map.h"

struct session;
struct target;
struct gpu_ring;

/* ---- CUPTI's clock, converted to CLOCK_MONOTONIC: by interpolation between pairs of readings ---- */

#define GPU_CLOCK_PAIRS 256

struct gpu_clock {
	uint32_t cnt;
	bool has_outlier;
	struct gpu_clock_pair {
		uint64_t cupti_ns;
		uint64_t ns; /* midpoint of the two readings of CLOCK_MONOTONIC */
		/* Time between those readings; the error is at most half of it. */
		uint64_t width_ns;
	} pairs[GPU_CLOCK_PAIRS], outlier; /* outlier: a pair that does not fit the earlier ones */
};

/*
 * Adds a pair, which the target must have read between from_ns and until_ns. false: the pair is
 * implausible, or does not fit the previous one; if the next pair fits it, the clock was set, and
 * the earlier pairs are dropped.
 */
bool gpu_clock__add(struct gpu_clock *clock, const struct gpu_ring_clock *pair, uint64_t from_ns, uint64_t until_ns);
/* false: there is no pair yet, or there are two that do not fit each other. */
bool gpu_clock__translate(const struct gpu_clock *clock, uint64_t cupti_ns, uint64_t *ns);
/* The last pair, on CUPTI's clock; 0: no pair. */
uint64_t gpu_clock__last(const struct gpu_clock *clock);
/* The same, on CLOCK_MONOTONIC. */
uint64_t gpu_clock__last_ns(const struct gpu_clock *clock);

/* ---- a window of CUPTI in a process: its start and end, and which activities belong to it ---- */

/* cupti.c opens and closes it. Times are CLOCK_MONOTONIC, ns. */
struct gpu_window {
	bool by_steps;           /* a window of the schedule: drops activities outside its steps */
	uint32_t index;          /* index in the recording */
	uint32_t scheduled;      /* index in the schedule */
	uint64_t requested_ns;   /* when stepflame requested it; 0: no window */
	uint64_t begun_ns;       /* when CUPTI became active; 0: not yet */
	uint64_t steps_start_ns; /* by_steps: when the first step began; 0: still warming up */
	uint64_t steps_end_ns;   /* by_steps: when the last step ended; 0: not yet */
	uint64_t ended_ns;       /* when CUPTI stopped; 0: still active */
	uint64_t reported_ns;    /* CUPTI has reported everything that ended before this */
	bool stopped;            /* stepflame requested its end */
	bool refused;            /* CUPTI was not available */
	enum gpu_window_end end;
	uint32_t error;            /* CUptiResult */
	uint32_t last_correlation; /* of the last call in it */
};

enum gpu_fate { GPU_INSIDE, GPU_OUTSIDE, GPU_UNDECIDED };

/*
 * Does an activity belong to the window? The window of a schedule includes activities that overlap
 * it, and GPU work that a call in it launched, however late that work begins; so the caller must
 * judge a call before its work. known_ns: the steps are known up to then; `last`: nothing more will
 * be known.
 */
enum gpu_fate gpu_window__judge(struct gpu_window *w, enum gpu_activity kind, uint32_t correlation, uint64_t start_ns,
				uint64_t end_ns, uint64_t known_ns, bool last);
/*
 * Fills in the record so far; the caller sets pid and index. false: the window has not begun, so
 * there is no record.
 */
bool gpu_window__record(const struct gpu_window *w, struct rec_gpu_window *out);
/* The length of the window so far. */
uint64_t gpu_window__ns(const struct gpu_window *w);

/* ---- the reader ---- */

/* The threads of a process, whose ids in its own pid namespace are translated into stepflame's. */
struct gpu_tids {
	pid_t *tids, *nstids; /* owned */
	int cnt;
	uint64_t read_ns; /* when the list was read */
};

/* Begins zeroed. */
struct gpu_reader {
	struct gpu_clock clock;
	uint64_t *names; /* REC_NAME ids, indexed by the ring's name ids; owned */
	uint32_t name_cnt;
	struct gpu_ring_activity *pending; /* activities that ended after the last clock pair */
	size_t pending_cnt, pending_room;
	uint64_t told_ns; /* the ring held all that ended before, as far as it was read */
	struct gpu_tids tids;
	struct intern texts; /* REC_NAME ids that the session has emitted for it */
	uint32_t device_cnt;
	uint64_t lost;
};

/* Starts a window: the library then sends texts, devices and the clock again. */
void gpu_reader__restart(struct gpu_reader *r);
/* Drains the ring; holds back activities until it is known whether they belong to the window. */
void gpu_reader__drain(struct gpu_reader *r, struct session *s, const struct target *t, struct gpu_ring *ring,
		       struct gpu_window *window);
/* Emits or drops the activities held back: call when the window is complete. */
void gpu_reader__finish(struct gpu_reader *r, struct session *s, const struct target *t, struct gpu_window *window);
/* Frees all but the count of losses. */
void gpu_reader__release(struct gpu_reader *r);

#endif
