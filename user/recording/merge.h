/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Merges several recordings into one: those of the ranks of a job, on one host or several. The
 * caller passes all files to merge__scan, and merge__judge then says whether they belong together.
 * Then merge__add passes each file's records on, with the clock of the first file and with unique
 * process numbers. Names, functions, stacks and paths have the same ids in all files.
 */
#ifndef STEPFLAME_USER_RECORDING_MERGE_H
#define STEPFLAME_USER_RECORDING_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

struct merge;

/* The merge passes each record to sink, which may use it during the call only. NULL: no memory. */
struct merge *merge__new(size_t file_cnt, int (*sink)(const struct rec_hdr *record, void *ctx), void *ctx);
void merge__free(struct merge *merge); /* accepts NULL */

/* First: takes all records of each file, from file 0 on. 0 or -ENOMEM. */
int merge__scan(struct merge *merge, size_t file, const struct rec_hdr *record);

/* How files relate to each other. */
enum merge_fit {
	MERGE_FITS,
	MERGE_APART,        /* recorded at different times: can be merged, but not step by step */
	MERGE_SAME_RANK,    /* two files have main processes of the same rank */
	MERGE_SAME_PROCESS, /* two files are of the same process */
};

struct merge_verdict {
	enum merge_fit fit;
	size_t files[2]; /* the first pair of files for which the fit holds */
	uint32_t number; /* the rank, or the process */
};

/* Call it after merge__scan has seen all files. 0 or -ENOMEM. */
int merge__judge(struct merge *merge, struct merge_verdict *verdict);

/*
 * Then: takes all records of each file again, in the order of the files. 0, -ENOMEM, or what the
 * sink returned.
 */
int merge__add(struct merge *merge, size_t file, const struct rec_hdr *record);
/* Last: passes on the records that sum up all files. Errors as above. */
int merge__finish(struct merge *merge);

#endif
