/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What each process of a job used: CPU, memory, page faults, disks, network; over the recording, and in
 * each step. In: REC_RESOURCES, sums that the kernel counts, looked at once a second.
 */
#ifndef STEPFLAME_USER_ANALYSIS_RESOURCES_RESOURCES_H
#define STEPFLAME_USER_ANALYSIS_RESOURCES_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>

#include "include/resource_records.h"
#include "user/analysis/resources/cpu_limit.h"
#include "user/analysis/steps/steps.h"

/* A second or more of each sum, below 0: not known. */
struct resource_rates {
	double cpu_percent; /* of one processor */
	double minor_faults_per_s, major_faults_per_s;
	double read_per_s, written_per_s;  /* bytes, from and to disks */
	double received_per_s, sent_per_s; /* bytes of all interfaces of the network namespace */
};

struct resource_use {
	uint32_t pid;
	enum target_role role;
	size_t sample_cnt;
	double seconds; /* from the first sample to the last */
	struct resource_rates rates;
	bool has_memory, has_swap;
	uint64_t rss_min_bytes, rss_max_bytes, rss_last_bytes, shared_last_bytes, swap_last_bytes, swap_max_bytes;
	double growth_per_s; /* bytes that it cannot drop: they grow all the time; 0: they do not, or too little to say */
	double growth_least_per_s, growth_most_per_s; /* with 99 % */
	double full_s;                   /* until the memory that is left is used up at this rate; below 0: not known */
	bool of_cgroup;                  /* that memory is what a limit of its cgroup leaves; else: the machine's */
	const struct rec_limits *limits; /* owned by the job; NULL: not known */
	struct cpu_throttle throttle;    /* of its quota; without periods: not known */
};

/*
 * One for each process with samples: main processes first, then those with most CPU time. *out is
 * malloc'ed. tracks: growth is looked for between the first and the last step of any of them. 0 or
 * -ENOMEM.
 */
int resource_uses__new(struct job *job, const struct step_track *tracks, size_t track_cnt, struct resource_use **out,
		       size_t *cnt);

/* From the first step of any track to the last, since imports and the end are no training; without tracks, all time. */

/* The process that has something wrong that a reader must know: grows, is swapped out, reads its pages from disk. */
enum resource_trouble { TROUBLE_NONE, TROUBLE_FAULTS, TROUBLE_SWAP, TROUBLE_GROWTH };
enum resource_trouble resource_use__trouble(const struct resource_use *use);

/* The samples of one process; cnt 0: it has none. */
struct resource_samples {
	const struct rec_resources *items; /* owned by the job */
	size_t cnt;
};

struct resource_samples resource_samples__of(struct job *job, uint32_t pid);

/* From one sample of a process to a later one. */
struct resource_rates resource_rates__between(const struct rec_resources *a, const struct rec_resources *b);

/* What a process used from start_ns to end_ns. */
struct resource_span {
	struct resource_rates rates; /* between the samples around it, which are a second apart */
	bool has_memory, has_swap;
	uint64_t rss_bytes, shared_bytes, swap_bytes; /* by the last sample before its end */
};

/* false: no samples around it. */
bool resource_samples__span(const struct resource_samples *samples, uint64_t start_ns, uint64_t end_ns,
			    struct resource_span *out);

/*
 * Does a value grow all the time? A line through points by Theil and Sen: its slope is the median of
 * the slopes between any two points, which outliers hardly move; the error comes from their order
 * (Sen 1968, by Kendall's variance).
 */

#define GROWTH_MIN_CNT 12 /* points: fewer say nothing */

struct growth_point {
	double s, value; /* seconds, ascending */
};

struct growth {
	bool steady;                    /* it grows in each third of the time, and hardly by chance (1 %) */
	double per_s;                   /* slope; 0: too few points */
	double least_per_s, most_per_s; /* with 99 % */
};

/* Of many points, takes the medians of blocks. 0 or -ENOMEM. */
int growth__find(const struct growth_point *points, size_t cnt, struct growth *out);

/*
 * Memory that is used up although no process grows: a forked worker shares the pages of its process
 * until one of both writes into them, for which counting a reference is enough (Python's lists of
 * objects, as datasets have them). Then the page is copied. Resident memory counts a page in both
 * before and after.
 */

struct copied_pages {
	double per_s;    /* bytes that they copy, or by which the machine's available memory shrinks; 0: not seen */
	double faults_s; /* minor faults a second of the workers and children */
	double error;    /* of per_s, in parts of it (95 %), where it is counted */
	bool counted;    /* by a sample of their pages: so it is, whatever else the machine does */
	bool workers;    /* of a DataLoader, most of them; else other children */
};

/*
 * Looks at the pages of the processes of `uses`, between the first and the last step: some must become their own
 * all the time. Where no page was looked at, as in recordings of earlier versions, looks at the machine of the
 * first process. All of these must be so: available memory shrinks all the time; the job's processes grow by less than a third of it; and its
 * workers have page faults for half of it. 0 or -ENOMEM.
 */
int copied_pages__find(struct job *job, const struct step_track *tracks, size_t track_cnt,
		       const struct resource_use *uses, size_t cnt, struct copied_pages *out);

#endif
