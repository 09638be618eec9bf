/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For --budget: each backward of a process is a tick, also in its rests, where this is its only
 * probe. Ticks tell how long steps take there (STEP_TICK), how much longer they take where the
 * process is recorded (REC_OVERHEAD), and that something is unusual in a rest.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_TICKS_H
#define STEPFLAME_USER_SESSION_SOURCES_TICKS_H

#include <stdbool.h>
#include <stdint.h>

struct session;
struct target;

/* How many times what is accounted for the process seems to pay: overhead__factor. */
double ticks__factor(const struct target *t);
/* Has it ticked, so that a rest can be compared with a window? */
bool ticks__measures(const struct target *t);
/*
 * Is its next tick so late that a rest had better end? Not a second time before that tick. read_ns: all ticks
 * before are known.
 */
bool ticks__is_late(const struct target *t, uint64_t read_ns);
/* A window ends, or a rest, in which the process has paid that share of its time (accounted); the other kind begins at from_ns. */
void ticks__begin(struct session *s, struct target *t, double accounted, uint64_t from_ns);

/*
 * ---- overhead ----
 *
 * By how much longer the steps of a process take while it is recorded: measured. In: the ticks of the
 * process, some number of which are a step, through its windows and rests (budget.c).
 *
 * At each border between a window and a rest, the median of the last values before it is compared
 * with that of the first ones after it: the process and its machine change less in so short a time
 * than over a recording. A value is the time between ticks, averaged over 10 ms or more. Two borders
 * in a row, into a rest and out of it, make a pair: what drifts cancels out. The estimate is the
 * median of the pairs, and its error comes from how far they lie apart.
 */

#define OVERHEAD_VALUES    256 /* on each side of a border, at most */
#define OVERHEAD_PAIRS     64  /* the last ones count */
#define OVERHEAD_PAIRS_MIN 4

struct overhead_pair {
	double longer, accounted; /* accounted: in the window */
	double rest;              /* accounted in the rest */
};

/* Begins zeroed. */
struct overhead {
	uint64_t from_ns; /* when this part, a window or a rest, began: ticks before do not count */
	bool rests;       /* this part is a rest */
	/* The value that is being made: */
	uint64_t begin_ns; /* 0: no tick yet */
	uint32_t ticks;
	/* Of this part: */
	uint64_t value_cnt;
	uint64_t first[OVERHEAD_VALUES], last[OVERHEAD_VALUES]; /* last: a ring */
	/* Of the part before: */
	uint64_t before_ns; /* median of its last values; 0: it had too few */
	double before_accounted;
	/* Of the border before: */
	bool has_border;
	struct overhead_pair border;
	uint32_t pair_cnt;
	struct overhead_pair pairs[OVERHEAD_PAIRS]; /* a ring */
};

/* Shares of the time that the process takes without stepflame: 0.01 is one percent. */
struct overhead_estimate {
	uint32_t pairs;
	double accounted; /* in windows, mean */
	double rest;      /* accounted in rests */
	double longer;    /* may be below 0 */
	double error;     /* of `longer`: 95 of 100 times it is off by no more */
};

/* A part ends, and the other kind begins at from_ns. accounted: what the process paid in the part, of its time. */
void overhead__begin(struct overhead *overhead, bool rests, double accounted, uint64_t from_ns);
/* step_ticks: of a step; a value is made of whole steps. 0: not known. */
void overhead__tick(struct overhead *overhead, uint64_t time_ns, uint32_t step_ticks);
/* false: fewer than OVERHEAD_PAIRS_MIN pairs. */
bool overhead__estimate(const struct overhead *overhead, struct overhead_estimate *out);
/*
 * How many times what is accounted for the process seems to pay: at least 1. What was measured counts
 * as far as it is certain; else what jobs usually pay.
 */
double overhead__factor(const struct overhead *overhead);

#endif
