/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What cProfile would report for each action, from samples or exact calls: takes the chosen
 * samples, and returns the functions called in each action, with their times. Uses the texts of the
 * job, so free it before the job; the job must not take records meanwhile.
 */
#ifndef STEPFLAME_USER_ANALYSIS_FLAME_PROFILE_H
#define STEPFLAME_USER_ANALYSIS_FLAME_PROFILE_H

#include "user/lib/map.h"
#include "user/model/job.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"

/*
 * Functions as cProfile names them, numbered from 1 in the order of first use. File, line and name
 * identify a function, so several code objects of one function share a number.
 */

#define FUNCTION_BUILTIN_FILE "~" /* file of functions outside Python; their line is 0 */

struct function {
	const char *file;     /* co_filename, or FUNCTION_BUILTIN_FILE */
	uint32_t line;        /* first line of the function */
	const char *name;     /* co_name, or for example "<waiting: gil>", which pstats prints as "{waiting: gil}" */
	const char *qualname; /* co_qualname if known, else name */
};

struct profile;

struct profile_options {
	bool all;           /* every kind of span that the simple report lists with --all becomes an action */
	const char *action; /* spans of this name are always actions; may be NULL */
	bool cpu;           /* only time on the CPU; not for exact calls */
	bool leaf;          /* symbols of native code and of the kernel become functions */
	bool native;        /* with leaf: symbols of the interpreter become functions */
	bool callers;       /* fill profile_table.edges */
};

/* The first entries of profile__actions. Spans follow, in order of first occurrence. */
enum {
	PROFILE_EVERYTHING,
	PROFILE_NONE /* outside all actions */,
	PROFILE_LOST /* the path never came */,
	PROFILE__SPECIAL
};

struct profile_action {
	const char *name;    /* "(none)"; UTF-8, control characters unchanged */
	enum span_kind kind; /* SPAN_NONE for the special ones */
};

struct profile_row {
	uint32_t function;               /* number for profile__function; in order of first occurrence, callers first */
	uint64_t calls, primitive_calls; /* 0 unless exact */
	uint64_t samples;                /* samples that contain the function */
	uint64_t self_ns, total_ns;      /* as the innermost frame, and anywhere in the stack */
	double squares;                  /* sum of the squared weights in total_ns of sampled (not timed) events */
};

/* What a function spent when called by `caller`. */
struct profile_edge {
	uint32_t caller, function;
	uint64_t samples, self_ns, total_ns;
};

struct profile_table {
	bool exact;               /* from exact calls, which have no samples; else from samples */
	struct profile_row *rows; /* by function */
	size_t row_cnt;
	struct profile_edge *edges; /* by first occurrence */
	size_t edge_cnt;
	uint64_t samples, cpu_ns;
	uint64_t wait_ns, waits_ns[CAUSE__END]; /* by enum sample_cause */
	double squares;                         /* over all samples, as in rows */
	uint64_t callers; /* samples with the frames around the action, which could not be told apart */
};

struct profile *profile__new(struct job *job, const struct profile_options *options); /* NULL: no memory */
void profile__free(struct profile *profile);                                          /* accepts NULL */
/* 0 or -ENOMEM. */
int profile__add_sample(struct profile *profile, const struct sample *sample);
int profile__add_calls(struct profile *profile, const struct calls *calls);

/* The actions so far, including the special ones without time. */
const struct profile_action *profile__actions(const struct profile *profile, size_t *cnt);
const struct function *profile__function(const struct profile *profile, uint32_t number);
/* The table of an action, by its index. 0 or -ENOMEM. Free with profile_table__release. */
int profile__table(struct profile *profile, size_t action, struct profile_table *table);
void profile_table__release(struct profile_table *table);

/*
 * The error of a sum of weights, given their sum of squares, at 95 % confidence: sampled time is a
 * count of random events times their weight (Poisson: the variance is the sum of squares).
 */
double profile__error_ns(double squares);

#endif
