/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flame graphs of steps: the samples of one or two recordings as rows of one call tree (phase,
 * Python frames by line, operators, what the sample was in), and the steps that contain them. Owns
 * all its data, so a job may be freed once it is added. Times are in microseconds from the start of
 * their recording, weights in nanoseconds.
 */
#ifndef STEPFLAME_USER_ANALYSIS_FLAME_FLAME_H
#define STEPFLAME_USER_ANALYSIS_FLAME_FLAME_H

#include "user/analysis/flame/calltree.h"
#include "user/analysis/steps/steps.h"
#include "user/model/job.h"

struct flame;

struct flame_function {
	enum calltree_kind kind;
	uint32_t name, file; /* texts; file is 0 except for Python */
	uint32_t first_line;
};

struct flame_frame {
	uint32_t function;
	uint32_t line; /* the current line; 0: not known */
};

struct flame_node {
	uint32_t parent; /* comes before the node; the root is its own parent, 0 */
	uint32_t frame;
};

/*
 * One sample, or several of one node. The weight of a wait is spread evenly over the span before
 * `end`. A timer sample, or one for waits too short to separate, stands for the time around it: its
 * span is 0, and all its weight is in the step of `end`.
 */
struct flame_row {
	uint64_t end_us;
	uint64_t weight_ns;
	uint32_t span_us; /* at most 71 minutes */
	uint32_t node;
};

struct flame_thread {
	uint32_t recording; /* 0 or 1 */
	uint32_t pid, tid;
	uint32_t role;     /* enum target_role */
	int rank;          /* -1: not known */
	long track;        /* index of the track for which the thread works; -1: no track */
	bool steps;        /* the thread makes the steps */
	bool main;         /* of a main process */
	struct array rows; /* struct flame_row, sorted by end */
};

struct flame_step {
	uint64_t start_us, end_us;
	uint64_t index; /* as in struct step */
	uint32_t gc_us;
	uint32_t phase_us[PHASE__COUNT];
};

struct flame_track {
	uint32_t recording;
	uint32_t pid, tid;
	int rank;
	uint32_t rule;
	struct flame_step *steps;
	size_t step_cnt;
	uint32_t *slow; /* indexes into steps */
	size_t slow_cnt;
};

struct flame *flame__new(void);        /* NULL: no memory */
void flame__free(struct flame *flame); /* accepts NULL */
/*
 * Adds the samples and steps of a recording. The first recording is the baseline of the second.
 * native: as in calltree__new. 0 or -ENOMEM.
 */
int flame__add(struct flame *flame, struct job *job, const struct steps *steps, bool native);
/* When the recording that was added last began. */
uint64_t flame__origin_ns(const struct flame *flame);
/*
 * Merges neighbouring rows of the same thread and node, until at most row_max rows are left. Starts
 * with threads that make no steps. *grain_us, *step_grain_us: the time within which rows were
 * merged, for threads without and with steps; 0: not merged.
 */
void flame__thin(struct flame *flame, size_t row_max, uint64_t *grain_us, uint64_t *step_grain_us);

/*
 * Valid until the next flame__add. The first text is empty; the first function, frame and node are
 * those of the root.
 */
char *const *flame__texts(const struct flame *flame, size_t *cnt);
const struct flame_function *flame__functions(const struct flame *flame, size_t *cnt);
const struct flame_frame *flame__frames(const struct flame *flame, size_t *cnt);
const struct flame_node *flame__nodes(const struct flame *flame, size_t *cnt);
const struct flame_thread *flame__threads(const struct flame *flame, size_t *cnt);
const struct flame_track *flame__tracks(const struct flame *flame, size_t *cnt);

/* ---- choosing a part ---- */

enum flame_steps {
	FLAME_ALL_TIME, /* including time outside steps */
	FLAME_STEP,     /* number: its index */
	FLAME_SLOWEST,  /* number: how many of each track */
};

struct flame_choice {
	uint32_t recording;
	uint32_t pid;     /* only this process; 0: all processes */
	bool all_threads; /* else those that make steps (without such threads: those of `pid`, or of main processes) */
	enum flame_steps steps;
	uint64_t number;
};

/* Whether a thread is chosen, regardless of its samples. */
bool flame__chooses(const struct flame *flame, const struct flame_choice *choice, const struct flame_thread *thread);
/*
 * Adds to ns[node] the weight, within the chosen steps, of the chosen samples that end in each
 * node. *step_cnt: the number of chosen steps over all tracks. 0 or -ENOMEM.
 */
int flame__weigh(const struct flame *flame, const struct flame_choice *choice, double *ns, size_t *step_cnt);

#endif
