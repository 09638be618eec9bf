/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Several recordings as one: those of the ranks of a job, of one host or of several. Each is looked at, which tells
 * whether they belong together; then each is added, and its records come out with the first one's clock and with process
 * numbers that no other has. Names, functions, stacks and paths have the same ids everywhere.
 */
#ifndef STEPFLAME_USER_RECORDING_MERGE_H
#define STEPFLAME_USER_RECORDING_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

struct merge;

/* sink takes each record that comes out, which is the merge's after the call. NULL: no memory. */
struct merge *merge__new(size_t file_cnt, int (*sink)(const struct rec_hdr *record, void *ctx), void *ctx);
void merge__free(struct merge *merge); /* accepts NULL */

/* First, of each file from 0 on, all records. 0 or -ENOMEM. */
int merge__look(struct merge *merge, size_t file, const struct rec_hdr *record);

/* What files have to do with each other. */
enum merge_fit {
	MERGE_FITS,
	MERGE_APART,        /* they were not recorded at the same time: they can be merged, but not step by step */
	MERGE_SAME_RANK,    /* two have main processes of the same rank */
	MERGE_SAME_PROCESS, /* two are of the same process */
};

struct merge_verdict {
	enum merge_fit fit;
	size_t files[2]; /* of which it is true, the first such pair */
	uint32_t number; /* the rank, or the process */
};

/* Once all were looked at. 0 or -ENOMEM. */
int merge__judge(struct merge *merge, struct merge_verdict *verdict);

/* Then of each file all records again, in the order of the files. 0, -ENOMEM, or what the sink returned. */
int merge__add(struct merge *merge, size_t file, const struct rec_hdr *record);
/* Last: what all files have in sum. Errors as above. */
int merge__finish(struct merge *merge);

#endif
