/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The steps of a thread by one rule that a recording has dropped: REC_DROPPED_STEPS, cumulative.
 * Number and sums are exact, shortest and longest as exact as the steps were in the file. Percentiles
 * come from a histogram: they are off by 1.1 % at most.
 */
#ifndef STEPFLAME_USER_RECORDING_DROPPED_STEPS_H
#define STEPFLAME_USER_RECORDING_DROPPED_STEPS_H

#include "include/records.h"

#define DROPPED_STEP_PARTS 32 /* buckets from 2^i to 2^(i+1) ns, each 2.2 % wide */
#define DROPPED_STEP_FIRST \
	10 /* the first bucket begins at 2^10 ns, and has shorter ones too; the last has longer ones */
#define DROPPED_STEP_BUCKETS (30 * DROPPED_STEP_PARTS)

struct rec_dropped_steps {
	struct rec_hdr hdr;
	__u32 pid, tid;
	__u32 rule;   /* enum step_rule */
	__u32 serial; /* of the thread's last boundary, by any rule */
	__u64 index;  /* of the last boundary by the rule */
	__u64 time_ns;
	__u64 steps, total_ns, min_ns, max_ns;
	__u64 phase_ns[PHASE__COUNT];
	__u64 open_ns[PHASE__COUNT]; /* of the step that has not ended yet */
	__u32 open_cut;              /* 1: a boundary in that step is missing */
	__u32 pad;
	__u32 cnt[DROPPED_STEP_BUCKETS];
};

/* Adds the next boundary of the thread, by any rule. */
void dropped_steps__add(struct rec_dropped_steps *steps, const struct rec_step *boundary);
/* The percentile by nearest rank; 0: no steps. */
__u64 dropped_steps__percentile_ns(const struct rec_dropped_steps *steps, unsigned int percent);

#endif
