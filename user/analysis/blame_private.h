/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the parts of blame: blame.c finds causes, extra_work.c finds functions that ordinary
 * steps do not call, and blame_where.c finds places.
 */
#ifndef STEPFLAME_USER_ANALYSIS_BLAME_PRIVATE_H
#define STEPFLAME_USER_ANALYSIS_BLAME_PRIVATE_H

#include "user/analysis/blame.h"

#define ANY_PHASE (-1)
#define NO_SLOT   UINT32_MAX

/* The cause of one slow step. */
struct slow_cause {
	unsigned int cause; /* as in struct blame_group; CAUSE_NONE: on the CPU */
	int phase;
	uint64_t queue_ns;   /* excess over ordinary steps in waits for a CPU */
	uint64_t ns;         /* by this cause */
	uint32_t place;      /* for BLAME_EXTRA: 1 + index into extra; else 0 */
	uint64_t compile_ns; /* in torch.compile, judged by its samples */
	uint32_t sample_cnt;
};

/*
 * Slots of blame->places: the samples of each slow step, by its index in track->slow; then one slot
 * for all ordinary steps, and one for all waits for a CPU.
 */
struct blame_builder {
	struct job *job;
	const struct steps *steps;
	const struct step_track *track;
	const struct samples *samples;
	struct blame *blame;
	struct slow_cause *slow;         /* track->slow_cnt */
	struct array extra;              /* struct place */
	bool *in_gc;                     /* by path */
	bool *compiles;                  /* by stack */
	uint64_t (*classes)[CPU__COUNT]; /* by group: timer samples in its phase */
};

/* The average of a total over the ordinary steps. */
double blame__ordinary(const struct blame *blame, uint64_t all, uint64_t slow);
/* Maps an index into track->steps to an index into track->slow; NO_SLOT: the step is not slow. */
uint32_t blame_builder__slow_at(const struct blame_builder *b, long step);
/*
 * Calls fn with each sample of the track's thread that lies in a step. Stops when fn returns
 * nonzero, and returns that.
 */
int blame_builder__each(struct blame_builder *b,
			int (*fn)(struct blame_builder *b, const struct sample *sample, enum phase phase, uint32_t slow,
				  void *ctx),
			void *ctx);
/* skipped.c: finds the steps whose updates were left out. */
void blame_builder__find_skipped(struct blame_builder *b);
/*
 * extra_work.c: finds the steps that were on the CPU, or had no single cause, and spent their
 * excess in one function that ordinary steps hardly call. 0 or -ENOMEM.
 */
int blame_builder__find_extra(struct blame_builder *b);
/* slower_cpu.c: finds the steps that did no more than others, on a slower CPU. 0 or -ENOMEM. */
int blame_builder__find_slower_cpu(struct blame_builder *b);
/*
 * blame_where.c: finds places, lines, wakers and rhythms of groups whose causes and steps are set.
 * 0 or -ENOMEM.
 */
int blame_builder__find_where(struct blame_builder *b);

#endif
