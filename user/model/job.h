/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The model: what a record stream says about a job. Records go in, live or from a file, in
 * recording order; reports read the model. Records are hostile input: the job checks each size
 * against the record's type, and counts invalid records in job.malformed.
 */
#ifndef STEPFLAME_USER_MODEL_JOB_H
#define STEPFLAME_USER_MODEL_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/model/actions.h"
#include "user/model/ops.h"
#include "user/recording/recording.h"

struct job;
struct rec_dropped_steps;
struct resources;
struct rests;
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
/* Takes one record, and skips unknown types. 0 or -ENOMEM. */
int job__add(struct job *job, const struct rec_hdr *record);

/* The state so far; a field without a record is zero. Owned by the job. */
const struct rec_host *job__host(const struct job *job); /* of a merged recording: the first host */
const struct rec_window *job__window(const struct job *job);
const struct rec_cost *job__cost(const struct job *job);
/* What record --max-size has dropped; hdr is 0: nothing. */
const struct rec_dropped *job__dropped(const struct job *job);
/* The steps of a thread by a rule that were dropped; NULL: none. */
const struct rec_dropped_steps *job__dropped_steps(const struct job *job, uint32_t pid, uint32_t tid, uint32_t rule);
/* From when on samples, steps and other events are recorded: the window's start, or later. */
uint64_t job__events_from(const struct job *job);
const struct rec_target *job__targets(const struct job *job,
				      size_t *cnt); /* in order of their first record; the last state of each */
/*
 * For a job that reports main processes only, and must not grow with the others: job__target and job__targets know none
 * of these any more. Call before job__add. 0 or -ENOMEM.
 */
int job__only_count_children(struct job *job);
/* How many processes have this role, also of those that job__targets does not know. */
size_t job__target_cnt(const struct job *job, enum target_role role);
/* NULL: no REC_TARGET has this pid. */
const struct rec_target *job__target(const struct job *job, uint32_t pid);
/* A process without a REC_TARGET counts as a main process only if there is no other main process. */
bool job__is_main(const struct job *job, uint32_t pid);
/*
 * The host on which the target of that index runs, in a merged recording of several hosts; else
 * NULL.
 */
const char *job__target_host(const struct job *job, size_t target);
const char *job__name(const struct job *job, uint64_t id); /* NULL when unknown */
/*
 * As job__name, but returns a placeholder text, valid until the next record, for a name that never
 * came. NULL: no memory.
 */
const char *job__name_or_lost(struct job *job, uint64_t id);
/* Nonzero counters, in the order of include/counters.h, then the unknown ones. */
const struct job_counter *job__counters(struct job *job, size_t *cnt);
const char *const *job__notes(const struct job *job, size_t *cnt);
uint64_t job__malformed(const struct job *job);
/*
 * Rows in order of first occurrence (val.first_ns); valid until the next job__add. NULL only with
 * *cnt == 0.
 */
const struct job_action *job__actions(struct job *job, size_t *cnt);
/* See ops__group, op_group__source, ops__rows and ops__windows. */
char *job__op_source(struct job *job, const struct op_group *group);
bool job__op_group(const struct job *job, uint64_t id, struct op_group *group);
const struct op_row *job__ops(struct job *job, size_t *cnt);
const struct rec_op_window *job__op_windows(struct job *job, size_t *cnt);
const struct io *job__io(const struct job *job);
/* See gpu.h. Already joined; valid until the next record. NULL: no memory. */
const struct gpu *job__gpu(struct job *job);
struct resources *job__resources(struct job *job);     /* see resources.h */
const struct rests *job__rests(const struct job *job); /* see rests.h */
/*
 * See stacks.h and samples.h. Valid until the next record. job__samples returns NULL when there is
 * no memory.
 */
const struct stacks *job__stacks(const struct job *job);
const struct samples *job__samples(struct job *job);
/* Step boundaries in recording order, which may differ from time order. NULL only with *cnt == 0. */
const struct rec_step *job__boundaries(const struct job *job, size_t *cnt);

/*
 * How a process of the job ended: the last one, if several had this pid. NULL: it still ran, or its
 * end is not known.
 */
const struct rec_proc *job__exit(const struct job *job, uint32_t pid);

/*
 * For live views, which show only the last seconds and must not grow. job__forget_samples drops the
 * samples, the numbers of their threads, the step boundaries, the resources, and what gpu__forget drops. After
 * job__forget_stacks, earlier exact calls no longer have valid paths.
 */
void job__forget_samples(struct job *job);
void job__forget_stacks(struct job *job);

#endif
