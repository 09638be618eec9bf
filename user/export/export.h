/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One struct export_ops per format; adding a format is adding a file and a line in export.c's table. */
#ifndef STEPFLAME_USER_EXPORT_EXPORT_H
#define STEPFLAME_USER_EXPORT_EXPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "user/analysis/timeline.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct export_options {
	uint32_t pid;       /* only this process; 0: all */
	const char *name;   /* of what is written: a file name; UTF-8 */
	const char *action; /* of samples, only those in a span of this name; NULL: all */
	bool cpu;           /* of samples, only those on the CPU */
	bool main_threads;  /* of samples, only those of the thread with which its process began */
	bool native;        /* the interpreter's own functions, too */
};

/* What a format is made of. */
enum export_source { EXPORT_TIMELINE, EXPORT_SAMPLES };

struct export_ops {
	const char *name;
	bool binary; /* not for a terminal */
	bool gzip;   /* always compressed */
	enum export_source source;
	/*
	 * Writes to out as it goes, and leaves errors of out to the caller. timeline: NULL for a format made of
	 * samples. 0 or -ENOMEM.
	 */
	int (*write)(struct job *job, const struct timeline *timeline, const struct export_options *options, FILE *out);
};

extern const struct export_ops export_chrome;
extern const struct export_ops export_perfetto;
extern const struct export_ops export_folded;
extern const struct export_ops export_pprof;
extern const struct export_ops export_pstats;
extern const struct export_ops export_speedscope;

/* NULL when there is none of that name. */
const struct export_ops *export__find(const char *name);
/* "chrome, perfetto, ...": all names. */
const char *export__list(void);

/* ---- what the formats share ---- */

/* "thread 7", "thread 7: steps and overlaps", "stream 7"; malloc'ed, NULL: no memory. */
char *export__track_name(const struct timeline_track *track);
/* Text as a JSON string, malloc'ed, with its quotes, in ASCII; NULL: no memory. */
char *export__json_text(const char *text);
/* Operators and nodes, of which Kineto says more than of annotations. */
bool export__is_op(enum span_kind kind);
/* Kineto's categories. */
#define EXPORT_CATEGORIES(X)             \
	X(OP, "cpu_op")                  \
	X(ANNOTATION, "user_annotation") \
	X(KERNEL, "kernel")              \
	X(COPY, "gpu_memcpy")            \
	X(SET, "gpu_memset")             \
	X(RUNTIME, "cuda_runtime")       \
	X(DRIVER, "cuda_driver")         \
	X(WINDOW, "cupti_window")

enum export_category {
#define X(id, name) EXPORT_##id,
	EXPORT_CATEGORIES(X)
#undef X
		EXPORT_CATEGORY__COUNT,
};

const char *export_category__name(enum export_category category); /* "cpu_op" */
/* text: of that name, as export__names has it. */
enum export_category export__category(const struct timeline_name *name, const char *text);
/*
 * Texts by index in timeline__names, as Kineto names events: overloads cut off, "autograd::engine::evaluate_function:
 * X" with its prefix, "ProfilerStep#" (the number of the step is the span's sequence), "Memcpy HtoD". UTF-8 with
 * control characters as they came. NULL: no memory. Free with export__free_texts.
 */
char **export__names(struct job *job, const struct timeline *timeline);
void export__free_texts(char **texts, size_t cnt); /* accepts NULL, and NULLs inside */

/*
 * Calls fn with each sample, or row of exact calls, that the options choose, in the order of the recording, until it
 * returns nonzero (returned then). 0 or -ENOMEM.
 */
int export__each_sample(struct job *job, const struct export_options *options,
			int (*fn)(const struct sample *sample, void *ctx), void *ctx);
int export__each_calls(struct job *job, const struct export_options *options,
		       int (*fn)(const struct calls *calls, void *ctx), void *ctx);

#endif
