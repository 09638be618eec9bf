/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A blame in the making: blame.c finds causes, extra_work.c functions that ordinary steps do not call, blame_where.c places. */
#ifndef STEPFLAME_USER_ANALYSIS_BLAME_PRIVATE_H
#define STEPFLAME_USER_ANALYSIS_BLAME_PRIVATE_H

#include "user/analysis/blame.h"

#define ANY_PHASE (-1)
#define NO_SLOT   UINT32_MAX

/* Of one slow step. */
struct slow_cause {
	unsigned int cause; /* as in struct blame_group; CAUSE_NONE: on the CPU */
	int phase;
	uint64_t queue_ns;   /* more than ordinary steps, in waits for a CPU */
	uint64_t ns;         /* by this cause */
	uint32_t place;      /* of BLAME_EXTRA: 1 + index into extra; else 0 */
	uint64_t compile_ns; /* in torch.compile, by its samples */
	uint32_t sample_cnt;
};

/* Slots of blame->places: the samples of each slow step, by its index in track->slow; behind them all those of ordinary steps, and all waits for a CPU. */
struct blaming {
	struct job *job;
	const struct steps *steps;
	const struct step_track *track;
	const struct samples *samples;
	struct blame *blame;
	struct slow_cause *slow;         /* track->slow_cnt */
	struct array extra;              /* struct place */
	bool *in_gc;                     /* by path */
	bool *compiles;                  /* by stack */
	uint64_t (*classes)[CPU__COUNT]; /* by group: samples of the timer in its phase */
};

/* What an ordinary step has of a sum, on average. */
double blame__ordinary(const struct blame *blame, uint64_t all, uint64_t slow);
/* The slow step of an index into track->steps, as an index into track->slow; NO_SLOT: it is not slow. */
uint32_t blaming__slow_at(const struct blaming *b, long step);
/* Calls fn with each sample of the track's thread that is in a step, until fn does not return 0, which is returned. */
int blaming__each(struct blaming *b,
		  int (*fn)(struct blaming *b, const struct sample *sample, enum phase phase, uint32_t slow, void *ctx),
		  void *ctx);
/* 0 or -ENOMEM: extra_work.c. Steps that were on the CPU, or had no single cause, and are in one function that ordinary ones hardly call. */
int blaming__find_extra(struct blaming *b);
/* 0 or -ENOMEM: blame_where.c. Of groups that have their causes and steps: places, lines, wakers, rhythms. */
int blaming__find_where(struct blaming *b);

#endif
