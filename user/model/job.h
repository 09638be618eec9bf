/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The model: what a record stream says of a job. Records go in, live or from a file, in the order in which they came;
 * reports read it. Records are hostile input: sizes are checked against their type, and what does not fit is counted in
 * job.malformed.
 */
#ifndef STEPFLAME_USER_MODEL_JOB_H
#define STEPFLAME_USER_MODEL_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/model/actions.h"
#include "user/model/ops.h"

struct job;
struct gpu;
struct op_group;
struct io;
struct samples;
struct stacks;

struct job_counter {
	const char *name;
	uint64_t value;
};

struct job *job__new(void);      /* NULL: no memory */
void job__free(struct job *job); /* accepts NULL */
/* Takes one record. 0 or -ENOMEM. Unknown types are skipped. */
int job__add(struct job *job, const struct rec_hdr *record);

/* What is known so far; a field that never came is zero. Owned by the job. */
const struct rec_host *job__host(const struct job *job); /* of a merged recording the first */
const struct rec_window *job__window(const struct job *job);
const struct rec_cost *job__cost(const struct job *job);
const struct rec_target *job__targets(const struct job *job,
				      size_t *cnt); /* in the order of their first record, last state each */
/* NULL: the recording does not introduce it. */
const struct rec_target *job__target(const struct job *job, uint32_t pid);
/* A process that the recording does not introduce is a main one only where no other is. */
bool job__is_main(const struct job *job, uint32_t pid);
/* Where the target of that index runs, of a merged recording of several hosts; else NULL. */
const char *job__target_host(const struct job *job, size_t target);
const char *job__name(const struct job *job, uint64_t id); /* NULL when unknown */
/* The same, but a text that says so for a name that never came, valid until the next record. NULL: no memory. */
const char *job__name_or_lost(struct job *job, uint64_t id);
/* Nonzero counters, in the order of include/counters.h, then unknown ones. */
const struct job_counter *job__counters(struct job *job, size_t *cnt);
const char *const *job__notes(const struct job *job, size_t *cnt);
uint64_t job__malformed(const struct job *job);
/* Rows in order of first occurrence (val.first_ns); valid until the next job__add. NULL only with *cnt == 0. */
const struct job_action *job__actions(struct job *job, size_t *cnt);
/* See ops__group, op_group__source, ops__rows and ops__windows. */
char *job__op_source(struct job *job, const struct op_group *group);
bool job__op_group(const struct job *job, uint64_t id, struct op_group *group);
const struct op_row *job__ops(struct job *job, size_t *cnt);
const struct rec_op_window *job__op_windows(struct job *job, size_t *cnt);
const struct io *job__io(const struct job *job);
/* See gpu.h; joined, valid until the next record. NULL: no memory. */
const struct gpu *job__gpu(struct job *job);
/* See stacks.h and samples.h; valid until the next record. job__samples: NULL: no memory. */
const struct stacks *job__stacks(const struct job *job);
const struct samples *job__samples(struct job *job);
/* Step boundaries in the order of the recording, which need not be that of time. NULL only with *cnt == 0. */
const struct rec_step *job__boundaries(const struct job *job, size_t *cnt);

/* How a process of the job ended; NULL: it had not, or that is not known. Of those that had the same number the last. */
const struct rec_proc *job__exit(const struct job *job, uint32_t pid);

/*
 * For a view of the last seconds alone, which must not grow: drops the samples, the numbers of their threads, step boundaries, and what gpu__forget does. After
 * job__forget_stacks exact calls that came before refer to no paths.
 */
void job__forget_samples(struct job *job);
void job__forget_stacks(struct job *job);

#endif
