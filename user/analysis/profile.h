/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What cProfile would say of each action, out of samples or of exact calls: chosen samples in, functions that were called in it with
 * their times out. Its texts are those of the job, so it ends before the job does, and takes no record in between.
 */
#ifndef STEPFLAME_USER_ANALYSIS_PROFILE_H
#define STEPFLAME_USER_ANALYSIS_PROFILE_H

#include "user/analysis/functions.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct profile;

struct profile_options {
	bool all;           /* every kind of span that the simple report lists with --all is an action, too */
	const char *action; /* a span of this name is one in any case; NULL */
	bool cpu;           /* time on the CPU alone; never of exact calls */
	bool leaf;          /* symbols of native code and of the kernel are functions, too */
	bool native;        /* with leaf, those of the interpreter, too */
	bool callers;       /* profile_table.edges are wanted */
};

/* The first of profile__actions; those of spans follow, in the order of first occurrence. */
enum { PROFILE_EVERYTHING, PROFILE_NONE /* what is in no action */, PROFILE_LOST /* no path came */, PROFILE__SPECIAL };

struct profile_action {
	const char *name;    /* "(none)"; UTF-8, control characters as they came */
	enum span_kind kind; /* SPAN_NONE of the special ones */
};

struct profile_row {
	uint32_t function; /* number for profile__function; in the order of first occurrence, callers first */
	uint64_t calls, primitive_calls; /* 0 unless exact */
	uint64_t samples;                /* in which it is */
	uint64_t self_ns, total_ns;      /* innermost, and anywhere in the stack */
	double squares;                  /* of the weights in total_ns that were met by chance: their sum */
};

/* What a function spent below one that called it. */
struct profile_edge {
	uint32_t caller, function;
	uint64_t samples, self_ns, total_ns;
};

struct profile_table {
	bool exact;               /* of exact calls, which know of no samples; else of samples */
	struct profile_row *rows; /* by function */
	size_t row_cnt;
	struct profile_edge *edges; /* by first occurrence */
	size_t edge_cnt;
	uint64_t samples, cpu_ns;
	uint64_t wait_ns, waits_ns[CAUSE__END]; /* by enum sample_cause */
	double squares;                         /* of all, as in rows */
	uint64_t callers; /* samples with the frames around the action, too: what these are is not known */
};

struct profile *profile__new(struct job *job, const struct profile_options *options); /* NULL: no memory */
void profile__free(struct profile *profile);                                          /* accepts NULL */
/* 0 or -ENOMEM. */
int profile__add_sample(struct profile *profile, const struct sample *sample);
int profile__add_calls(struct profile *profile, const struct calls *calls);

/* With what was added so far; the last ones too when they have nothing. */
const struct profile_action *profile__actions(const struct profile *profile, size_t *cnt);
const struct function *profile__function(const struct profile *profile, uint32_t number);
/* The table of an action, by its index. 0 or -ENOMEM. Free with profile_table__release. */
int profile__table(struct profile *profile, size_t action, struct profile_table *table);
void profile_table__release(struct profile_table *table);

/*
 * Time that a sum of weights with these squares may be off by, with a probability of 95 %: sampled time is a count of
 * events that fall at random, times their weight (Poisson: the variance is the sum of squares).
 */
double profile__error_ns(double squares);

#endif
