// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Two jobs in, rows of what both or one of them has out. A row is known by its section and name; a function's is its file's
 * base name and its qualified name, since paths and lines move from one version of a program to the next.
 */
#include "diff.h"

#include <errno.h>
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_ops.h"
#include "gpu_time.h"
#include "intern.h"
#include "processes.h"
#include "samples.h"
#include "steps.h"
#include "sums.h"

#define SURE 1.96 /* standard deviations of a normal distribution that 95 % lie within */

struct diff_entry {
	enum diff_section section;
	struct diff_row row;
	double variance;
};

struct making {
	struct diff *diff;
	void *entries; /* tree */
	struct job *job;
	const struct steps *steps;
	int side;
	double units; /* steps of the side, or its seconds */
	int err;
};

const char *diff__section_name(enum diff_section section)
{
	static const char *const names[] = {
#define X(id, name) name,
		STEPFLAME_DIFF_SECTIONS(X)
#undef X
	};

	return names[section];
}

static int compare_entries(const void *a, const void *b)
{
	const struct diff_entry *x = a, *y = b;

	return x->section != y->section ? (int)x->section - (int)y->section : strcmp(x->row.name, y->row.name);
}

/* Adds to what a row has, per unit; variance of the sum, in s^2. */
static void add(struct making *m, enum diff_section section, const char *name, double seconds, double variance,
		double units)
{
	struct diff_entry key = {.section = section, .row.name = (char *)name}, **found, *entry;

	if (m->err || !name || units <= 0)
		return;
	found = tfind(&key, &m->entries, compare_entries);
	entry = found ? *found : calloc(1, sizeof(*entry));
	if (!found && entry) {
		entry->section = section;
		entry->row.name = strdup(name);
		if (!entry->row.name || !tsearch(entry, &m->entries, compare_entries)) {
			free(entry->row.name);
			free(entry);
			entry = NULL;
		}
	}
	if (!entry) {
		m->err = -ENOMEM;
		return;
	}
	entry->row.in[m->side] = true;
	entry->row.s[m->side] += seconds / units;
	entry->variance += variance / (units * units);
}

/* ---- steps ---- */

/* A sum over steps, with what its mean may be off by. */
struct sum {
	double s, squares;
};

static void sum__add(struct sum *sum, uint64_t ns)
{
	sum->s += ns / 1e9;
	sum->squares += ns / 1e9 * (ns / 1e9);
}

/* The variance of the sum of n values: n times theirs. */
static double sum__variance(const struct sum *sum, double n)
{
	double variance = n > 1 ? (sum->squares - sum->s * sum->s / n) / (n - 1) * n : 0;

	return variance > 0 ? variance : 0;
}

static void add_sums(struct making *m, const struct sum *phases, const struct sum *causes)
{
	for (int i = 0; i < PHASE__COUNT; i++)
		if (phases[i].s > 0)
			add(m, DIFF_PHASES, phase__name(i), phases[i].s, sum__variance(&phases[i], m->units), m->units);
	for (unsigned int i = CAUSE_NONE + 1; i < CAUSE__END; i++)
		if (causes[i].s > 0)
			add(m, DIFF_WAITS, sample_cause__name(i), causes[i].s, sum__variance(&causes[i], m->units),
			    m->units);
}

static void sum_step(const struct step *step, struct sum *phases, struct sum *causes)
{
	uint64_t waits_ns[CAUSE__END] = {0};

	for (int i = 0; i < PHASE__COUNT; i++)
		sum__add(&phases[i], step->phase_ns[i]);
	for (uint32_t i = 0; i < step->part_cnt; i++)
		waits_ns[step->parts[i].cause] += step->parts[i].ns;
	for (unsigned int i = 0; i < CAUSE__END; i++)
		sum__add(&causes[i], waits_ns[i]);
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The durations of all steps, as if they were of one track. */
static void measure_steps(struct making *m, const struct step_track *tracks, size_t track_cnt)
{
	struct diff_side *side = &m->diff->sides[m->side];
	uint64_t *ns = calloc(side->steps, sizeof(*ns));
	struct sum sum = {0};
	size_t cnt = 0;

	if (!ns) {
		m->err = -ENOMEM;
		return;
	}
	for (size_t t = 0; t < track_cnt; t++)
		for (size_t i = 0; i < tracks[t].step_cnt; i++) {
			ns[cnt] = tracks[t].steps[i].end_ns - tracks[t].steps[i].start_ns;
			sum__add(&sum, ns[cnt++]);
		}
	qsort(ns, cnt, sizeof(*ns), compare_u64);
	side->median_s = (ns[(cnt - 1) / 2] + ns[cnt / 2]) / 2e9;
	side->p99_s = ns[(cnt - 1) * 99 / 100] / 1e9;
	side->mean_s = sum.s / cnt;
	side->mean_error_s = SURE * sqrt(sum__variance(&sum, cnt)) / cnt;
	free(ns);
}

static void add_steps(struct making *m)
{
	struct sum phases[PHASE__COUNT] = {0}, causes[CAUSE__END] = {0};
	struct diff_side *side = &m->diff->sides[m->side];
	size_t cnt;
	const struct step_track *tracks = steps__tracks(m->steps, &cnt);

	if (!side->steps)
		return;
	measure_steps(m, tracks, cnt);
	for (size_t t = 0; t < cnt; t++)
		for (size_t i = 0; i < tracks[t].step_cnt; i++)
			sum_step(&tracks[t].steps[i], phases, causes);
	add_sums(m, phases, causes);
}

/* ---- functions ---- */

/* Of a track the thread that makes the steps, from its first boundary to its last; else the main thread. */
static bool is_chosen(const struct making *m, const struct sample *sample)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(m->steps, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (tracks[i].pid == sample->pid)
			return tracks[i].tid == sample->tid && step_track__at(&tracks[i], sample->time_ns) >= 0;
	return !cnt && sample->pid == sample->tid && processes__is_main(m->job, sample->pid);
}

/* "train.py:Net.forward"; malloc'ed. NULL: no memory. */
static char *function_name(struct job *job, const struct code *code)
{
	const char *file = job__name_or_lost(job, code->file), *name = job__name_or_lost(job, code->name);
	const char *slash = file ? strrchr(file, '/') : NULL;
	char *text;

	return file && name && asprintf(&text, "%s:%s", slash ? slash + 1 : file, name) >= 0 ? text : NULL;
}

/* Time of the innermost Python function of each sample. */
static void add_functions(struct making *m)
{
	const struct samples *samples = job__samples(m->job);
	const struct stacks *stacks = job__stacks(m->job);
	size_t code_end = stacks__code_end(stacks);
	struct sum *sums = calloc(code_end, sizeof(*sums)); /* squares: of the weights that were met by chance */

	m->err = sums && samples ? 0 : -ENOMEM;
	for (size_t i = 0; !m->err && i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);
		struct stack stack = stacks__stack(stacks, sample.stack);
		double s = sample.weight_ns / 1e9;

		if (!stack.cnt || !is_chosen(m, &sample))
			continue;
		sums[stack.frames[0].code].s += s;
		sums[stack.frames[0].code].squares += sample.waits == 1 ? 0 : s * s;
	}
	for (size_t i = 0; !m->err && i < code_end; i++) {
		struct code code = stacks__code(stacks, i);
		char *name = sums[i].s > 0 ? function_name(m->job, &code) : NULL;

		if (sums[i].s > 0 && !name)
			m->err = -ENOMEM;
		add(m, DIFF_FUNCTIONS, name, sums[i].s, sums[i].squares, m->units);
		free(name);
	}
	free(sums);
}

/* ---- what was counted ---- */

static void add_actions(struct making *m)
{
	size_t cnt;
	const struct job_action *actions = job__actions(m->job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (processes__is_main(m->job, actions[i].pid))
			add(m, DIFF_ACTIONS, actions[i].name, actions[i].val.total_ns / 1e9, 0, m->units);
}

static void add_ops(struct making *m)
{
	struct diff_side *side = &m->diff->sides[m->side];
	size_t cnt;
	const struct rec_op_window *windows = job__op_windows(m->job, &cnt);
	const struct op_row *ops;
	double seconds = 0;

	for (size_t i = 0; i < cnt; i++) {
		side->op_steps += windows[i].steps;
		seconds += (windows[i].end_ns - windows[i].start_ns) / 1e9;
	}
	ops = job__ops(m->job, &cnt);
	for (size_t i = 0; i < cnt; i++)
		add(m, DIFF_OPS, ops[i].name, ops[i].val.self_ns / 1e9, 0,
		    m->diff->per_step ? side->op_steps : seconds);
}

/* ---- GPUs ---- */

/* What steps of main processes, or where there are none their time, CUPTI watched. */
struct watched {
	struct making *m;
	const struct gpu_time *time;
	const struct step_track *tracks;
	size_t track_cnt;
	double units;
};

static bool is_watched(const struct watched *w, const struct step_track *track, const struct step *step)
{
	return gpu_time__watched(w->time, track->pid, step->start_ns, step->end_ns) >= step__ns(step) && step__ns(step);
}

static double count_watched(const struct watched *w)
{
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(w->time, &cnt);
	double units = 0;

	for (size_t t = 0; t < w->track_cnt; t++)
		for (size_t i = 0; w->m->diff->per_step && i < w->tracks[t].step_cnt; i++)
			units += is_watched(w, &w->tracks[t], &w->tracks[t].steps[i]);
	for (size_t i = 0; !w->m->diff->per_step && i < cnt; i++)
		units += processes__is_main(w->m->job, lines[i].pid) ? lines[i].watched_ns / 1e9 : 0;
	return units;
}

static bool counts(const struct watched *w, const struct gpu_act *act)
{
	if (!gpu_act__is_work(act) || !act->start_ns || !processes__is_main(w->m->job, act->pid))
		return false;
	for (size_t t = 0; t < w->track_cnt && w->m->diff->per_step; t++) {
		long at = w->tracks[t].pid == act->pid ? step_track__at(&w->tracks[t], act->start_ns) : -1;

		if (at >= 0)
			return is_watched(w, &w->tracks[t], &w->tracks[t].steps[at]);
	}
	return !w->m->diff->per_step;
}

/* Names are hashes; what has none is told apart by small numbers. */
static uint64_t work_key(const struct gpu_act *act)
{
	if (act->kind == GPU_ACTIVITY_KERNEL && act->name)
		return act->name;
	return 1 + (uint64_t)act->kind * GPU_DIRECTION__COUNT + act->direction;
}

/* One of each kind of work, and how long all of its kind took. */
struct work {
	const struct gpu_act *act;
	uint64_t ns;
};

static int sum_works(const struct watched *w, struct intern *keys, struct array *works)
{
	size_t cnt;
	const struct gpu_act *acts = gpu__activities(job__gpu(w->m->job), &cnt);

	for (size_t i = 0; i < cnt; i++) {
		struct work *work;
		uint32_t number;

		if (!counts(w, &acts[i]))
			continue;
		if (intern__add(keys, work_key(&acts[i]), &number) || array__grow(works, number + 1, sizeof(*work)))
			return -ENOMEM;
		work = &((struct work *)works->items)[number];
		work->act = &acts[i];
		work->ns = sum__u64(work->ns, acts[i].duration_ns);
	}
	return 0;
}

static void add_works(const struct watched *w)
{
	struct intern keys = {0};
	struct array works = {0};
	const struct work *work;
	int err = sum_works(w, &keys, &works);

	work = works.items;
	for (size_t i = 0; i < works.cnt && !err; i++) {
		const struct gpu_act *act = work[i].act;
		char *name = act ? gpu_work__text(w->m->job, act->kind, act->direction, act->name) : NULL;

		if (act && !name)
			err = -ENOMEM;
		add(w->m, DIFF_GPU_WORK, name, work[i].ns / 1e9, 0, w->units);
		free(name);
	}
	intern__free(&keys);
	free(works.items);
	if (err)
		w->m->err = err;
}

static double within_steps(const struct watched *w, const struct gpu_line *line, const struct gpu_spans *spans)
{
	uint64_t ns = w->m->diff->per_step ? 0 : gpu_spans__total(spans);

	for (size_t t = 0; t < w->track_cnt && w->m->diff->per_step; t++)
		for (size_t i = 0; w->tracks[t].pid == line->pid && i < w->tracks[t].step_cnt; i++) {
			const struct step *step = &w->tracks[t].steps[i];

			if (is_watched(w, &w->tracks[t], step))
				ns = sum__u64(ns, gpu_spans__within(spans, step->start_ns, step->end_ns));
		}
	return ns / 1e9;
}

static void add_lines(const struct watched *w)
{
	size_t cnt;
	const struct gpu_line *lines = gpu_time__lines(w->time, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		if (!processes__is_main(w->m->job, lines[i].pid))
			continue;
		add(w->m, DIFF_GPU, "busy", within_steps(w, &lines[i], &lines[i].work), 0, w->units);
		for (int idle = 0; idle < GPU_IDLE__COUNT; idle++) {
			char name[32];

			snprintf(name, sizeof(name), "idle, %s", gpu_idle__name(idle));
			add(w->m, DIFF_GPU, name, within_steps(w, &lines[i], &lines[i].idle[idle]), 0, w->units);
		}
	}
}

static void add_gpu(struct making *m)
{
	struct gpu_time *time = job__gpu(m->job) ? gpu_time__new(m->job, m->steps) : NULL;
	struct watched w = {.m = m, .time = time};

	if (!time) {
		m->err = -ENOMEM;
		return;
	}
	w.tracks = steps__tracks(m->steps, &w.track_cnt);
	w.units = m->diff->sides[m->side].gpu_units = count_watched(&w);
	if (w.units > 0) {
		add_works(&w);
		add_lines(&w);
	}
	gpu_time__free(time);
}

/* ---- all together ---- */

static void count_steps(const struct steps *steps, struct diff_side *side)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(steps, &cnt);

	side->ranks = cnt;
	for (size_t i = 0; i < cnt; i++)
		side->steps += tracks[i].step_cnt;
}

static double observed_s(const struct job *job)
{
	const struct rec_window *window = job__window(job);

	return (window->end_ns - window->start_ns) / 1e9;
}

static double change(const struct diff_row *row)
{
	return row->s[DIFF_B] - row->s[DIFF_A];
}

static int compare_changes(const void *a, const void *b)
{
	const struct diff_row *x = a, *y = b;
	double p = fabs(change(x)), q = fabs(change(y));

	return p != q ? (p < q) - (p > q) : strcmp(x->name, y->name);
}

static void take_entry(const void *node, VISIT visit, void *ctx)
{
	struct diff_entry *entry = *(struct diff_entry *const *)node;
	struct making *m = ctx;
	struct diff_row *row;

	if (visit != postorder && visit != leaf)
		return;
	/* What GPUs did is known of recordings with CUPTI alone: that the other has none of it is no change. */
	if ((entry->section == DIFF_GPU || entry->section == DIFF_GPU_WORK) &&
	    (m->diff->sides[DIFF_A].gpu_units <= 0 || m->diff->sides[DIFF_B].gpu_units <= 0))
		return;
	row = array__add(&m->diff->rows[entry->section], sizeof(*row));
	if (!row) {
		m->err = -ENOMEM;
		return;
	}
	*row = entry->row;
	entry->row.name = NULL;
	row->error_s = SURE * sqrt(entry->variance);
	m->diff->common += row->in[DIFF_A] && row->in[DIFF_B];
}

static void free_entry(void *node)
{
	struct diff_entry *entry = node;

	free(entry->row.name);
	free(entry);
}

static int make(struct making *m, struct job *const jobs[], struct steps *const steps[])
{
	for (m->side = 0; m->side < DIFF__SIDES && !m->err; m->side++) {
		struct diff_side *side = &m->diff->sides[m->side];

		m->job = jobs[m->side];
		m->steps = steps[m->side];
		m->units = m->diff->per_step ? side->steps : observed_s(m->job);
		add_steps(m);
		add_functions(m);
		add_actions(m);
		add_ops(m);
		add_gpu(m);
	}
	if (!m->err)
		twalk_r(m->entries, take_entry, m);
	tdestroy(m->entries, free_entry);
	for (int i = 0; i < DIFF__SECTIONS; i++)
		if (m->diff->rows[i].cnt)
			qsort(m->diff->rows[i].items, m->diff->rows[i].cnt, sizeof(struct diff_row), compare_changes);
	return m->err;
}

int diff__make(struct job *a, struct job *b, struct diff *diff)
{
	struct job *const jobs[] = {a, b};
	struct steps *const steps[] = {steps__new(a), steps__new(b)};
	struct making m = {.diff = diff};
	int err = -ENOMEM;

	*diff = (struct diff){0};
	if (steps[DIFF_A] && steps[DIFF_B]) {
		count_steps(steps[DIFF_A], &diff->sides[DIFF_A]);
		count_steps(steps[DIFF_B], &diff->sides[DIFF_B]);
		diff->per_step = diff->sides[DIFF_A].steps && diff->sides[DIFF_B].steps;
		err = make(&m, jobs, steps);
	}
	steps__free(steps[DIFF_A]);
	steps__free(steps[DIFF_B]);
	if (err)
		diff__release(diff);
	return err;
}

void diff__release(struct diff *diff)
{
	for (int i = 0; i < DIFF__SECTIONS; i++) {
		struct diff_row *rows = diff->rows[i].items;

		for (size_t r = 0; r < diff->rows[i].cnt; r++)
			free(rows[r].name);
		free(rows);
	}
	*diff = (struct diff){0};
}

bool diff__is_change(const struct diff *diff, const struct diff_row *row)
{
	double unit_s = diff->per_step ? diff->sides[DIFF_A].mean_s : 1;

	return fabs(change(row)) > 2 * row->error_s && fabs(change(row)) >= unit_s / 100;
}

double diff__slower_percent(const struct diff *diff)
{
	double a = diff->sides[DIFF_A].median_s, b = diff->sides[DIFF_B].median_s;

	return diff->per_step && a > 0 ? 100 * (b - a) / a : NAN;
}
