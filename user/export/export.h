/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One struct export_ops per format. To add a format, add a file, and a line in export.c's table. */
#ifndef STEPFLAME_USER_EXPORT_EXPORT_H
#define STEPFLAME_USER_EXPORT_EXPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "user/analysis/timeline/timeline.h"
#include "user/analysis/timeline/tracks.h"
#include "user/model/job.h"
#include "user/model/samples.h"

struct export_options {
	uint32_t pid;       /* only this process; 0: all */
	bool workers;       /* samples: those of its DataLoader workers instead */
	const char *name;   /* name of the exported file; UTF-8 */
	const char *action; /* samples: only those in a span of this name; NULL: all */
	bool cpu;           /* samples: only those on the CPU */
	bool main_threads;  /* samples: only those of each process's first thread */
	bool native;        /* also the interpreter's own functions */
	/* For formats made from the timeline: what else has a time; built. NULL: nothing. */
	const struct tracks *tracks;
	const struct export_ranks *ranks; /* for formats that are ranked */
	/* For a format of tables: a file has one. */
	struct tables *tables;
	size_t table;
};

/* What a format is made from. */
enum export_source { EXPORT_TIMELINE, EXPORT_SAMPLES, EXPORT_TABLES };

struct export_ops {
	const char *name;
	bool binary; /* do not write it to a terminal */
	bool gzip;   /* always compressed */
	bool ranked; /* a file says of which rank it is */
	bool folder; /* a file per process, in a folder: the caller writes each with options.pid; or per table */
	enum export_source source;
	/*
	 * Writes to out as it goes; the caller checks out for errors. timeline: NULL for a format
	 * made from samples. 0 or -ENOMEM.
	 */
	int (*write)(struct job *job, const struct timeline *timeline, const struct export_options *options, FILE *out);
};

extern const struct export_ops export_chrome;
extern const struct export_ops export_perfetto;
extern const struct export_ops export_tensorboard; /* chrome's, with nothing that torch.profiler does not write */
extern const struct export_ops export_arrow;       /* a file per table, in a folder */
extern const struct export_ops export_folded;
extern const struct export_ops export_pprof;
extern const struct export_ops export_pstats;
extern const struct export_ops export_speedscope;

/* Returns NULL for an unknown name. */
const struct export_ops *export__find(const char *name);
/* Returns all names: "chrome, perfetto, ...". */
const char *export__list(void);

/* A stream that writes gzip to fd, which it takes. NULL with errno. */
FILE *export__open_gzip(int fd);

/* ---- what the formats share ---- */

/* Returns "thread 7", "thread 7: steps and overlaps" or "stream 7"; malloc'ed. NULL: no memory. */
char *export__track_name(const struct timeline_track *track);
/* Returns text as an ASCII JSON string with its quotes, malloc'ed; NULL: no memory. */
char *export__json_text(const char *text);
#define EXPORT_STEP_PREFIX "ProfilerStep#"

/* All tracks of options->tracks. NULL only with *cnt == 0. */
const struct track *export__tracks(const struct export_options *options, size_t *cnt);
/* Do the options choose the track? With a pid, tracks of the host (pid 0) are not chosen. */
bool export__has_track(const struct export_options *options, const struct track *track);
/* Has the process a track of steps? */
bool export__steps_of(const struct export_options *options, uint32_t pid);
/* Has the timeline a track of the process? */
bool export__is_in_timeline(const struct timeline *timeline, uint32_t pid);
const char *export__track_category(enum track_kind kind); /* "wait" */

/*
 * The file of a target (an index in job__targets) in a folder, as torch's tensorboard_trace_handler
 * names it: "HOST_PID.TIME.pt.trace.json.gz". The time is when the recording ended, so that a second
 * export replaces the file. malloc'ed; NULL: no memory.
 */
char *export__tensorboard_path(const struct job *job, size_t target, const char *folder);

/* Is it an operator or a node? Kineto says more about those than about annotations. */
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
/* text: the name as export__names returns it. */
enum export_category export__category(const struct timeline_name *name, const char *text);
/*
 * Returns texts by index in timeline__names, as Kineto names events: without overloads,
 * "autograd::engine::evaluate_function: X" with its prefix, "ProfilerStep#" (the span's sequence is
 * the number of the step), "Memcpy HtoD". The texts are UTF-8 with unescaped control characters.
 * NULL: no memory. Free with export__free_texts.
 */
char **export__names(struct job *job, const struct timeline *timeline);
void export__free_texts(char **texts, size_t cnt); /* accepts NULL, and NULL items */

/*
 * Calls fn with each sample, or row of exact calls, that the options choose, in the order of the
 * recording, until fn returns nonzero, and then returns that value. 0 or -ENOMEM.
 */
int export__each_sample(struct job *job, const struct export_options *options,
			int (*fn)(const struct sample *sample, void *ctx), void *ctx);
int export__each_calls(struct job *job, const struct export_options *options,
		       int (*fn)(const struct calls *calls, void *ctx), void *ctx);

/* ---- tables (tables.c) ---- */

/*
 * A recording as tables that join with those of other hosts: docs/tables.md describes them. Rows have the time of day, and an hour of a rank
 * takes few rows: sums by minute, but for the steps.
 */
struct tables;

/* pid: only this process; 0: all. NULL with *err: -ENOMEM, or -EINVAL where the times of the recording are impossible. */
struct tables *tables__new(struct job *job, uint32_t pid, int *err);
void tables__free(struct tables *tables); /* accepts NULL */
bool tables__any_process(const struct tables *tables);

size_t tables__cnt(void);
const char *tables__name(size_t table); /* "steps" */
/* Writes an Arrow IPC file. The caller checks out for errors. 0, -ENOMEM or -EINVAL. */
int tables__write(struct tables *tables, size_t table, FILE *out);

/*
 * The name of a frame in folded stacks (folded.c). Returns "train.py:Net.forward:12" for Python, with the line being executed (0: unknown); the name
 * alone where file is NULL. Characters that would end a frame or a line become "_". malloc'ed;
 * NULL: no memory.
 */
char *folded__frame(const char *name, const char *file, uint32_t line);

#endif
