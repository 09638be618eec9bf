// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/timeline/lanes.h"

#include <errno.h>
#include <stdlib.h>

#include "include/phases.h"
#include "user/analysis/gpu/gpu_ops.h"
#include "user/lib/compare.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/gpu.h"
#include "user/model/labels.h"
#include "user/recording/spans.h"

#define TAKEN_MAX (2u << 20) /* most spans of the timeline in memory: 80 MB */
#define OPEN_MAX  64         /* spans with a phase within each other */

/* A span of the timeline that may have a phase. */
struct taken {
	uint64_t start_ns, end_ns;
	uint64_t name;
	uint32_t pid, tid;
	uint16_t kind;  /* enum span_kind */
	uint16_t phase; /* enum phase, once the job has all names */
};

struct lanes {
	struct map texts;
	struct array all;   /* struct lane */
	struct array taken; /* struct taken, of the recording that is read */
	uint32_t recording_cnt;
	uint64_t left_out;
	struct rec_span unpacked[SPANS_MAX];
};

static struct lane *lanes__begin(struct lanes *lanes, enum lane_kind kind, uint32_t pid)
{
	struct lane *lane = array__add(&lanes->all, sizeof(*lane));

	if (lane)
		*lane = (struct lane){.recording = lanes->recording_cnt, .kind = kind, .pid = pid};
	return lane;
}

/* The part of [start_ns, end_ns) after the origin, which may be none. 0 or -ENOMEM. */
static int lane__add(struct lane *lane, uint64_t start_ns, uint64_t end_ns, uint64_t origin_ns, uint32_t what)
{
	struct lane_span *span;
	uint64_t ns;

	if (start_ns < origin_ns)
		start_ns = origin_ns;
	if (end_ns <= start_ns)
		return 0;
	span = array__add(&lane->spans, sizeof(*span));
	if (!span)
		return -ENOMEM;
	ns = end_ns - start_ns;
	*span = (struct lane_span){start_ns - origin_ns, ns, ns, ns, 1, what};
	return 0;
}

/* ---- streams ---- */

static int compare_streams(const void *a, const void *b)
{
	const struct gpu_act *x = *(const struct gpu_act *const *)a, *y = *(const struct gpu_act *const *)b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->device != y->device)
		return COMPARE(x->device, y->device);
	if (x->context != y->context)
		return COMPARE(x->context, y->context);
	return x->stream != y->stream ? COMPARE(x->stream, y->stream) : COMPARE(x->start_ns, y->start_ns);
}

static bool is_same_stream(const struct lane *lane, const struct gpu_act *activity)
{
	return lane->pid == activity->pid && lane->device == activity->device && lane->context == activity->context &&
	       lane->stream == activity->stream;
}

static int add_work(struct lanes *lanes, struct job *job, struct lane *lane, const struct gpu_act *activity,
		    uint64_t origin_ns)
{
	char *text = gpu_work__text(job, activity->kind, activity->direction, activity->name);
	uint32_t what;
	int err = text ? map__add_text(&lanes->texts, text, &what) : -ENOMEM;

	free(text);
	return err ?: lane__add(lane, activity->start_ns, gpu_act__end_ns(activity), origin_ns, what);
}

static int add_streams(struct lanes *lanes, struct job *job, const struct gpu *gpu, uint64_t origin_ns)
{
	size_t cnt, work_cnt = 0;
	const struct gpu_act *activities = gpu__activities(gpu, &cnt), **work = calloc(cnt + 1, sizeof(*work));
	struct lane *lane = NULL;
	int err = work ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++)
		if (gpu_act__is_work(&activities[i]) && activities[i].start_ns)
			work[work_cnt++] = &activities[i];
	if (work_cnt)
		qsort(work, work_cnt, sizeof(*work), compare_streams);
	for (size_t i = 0; i < work_cnt && !err; i++) {
		if (!lane || !is_same_stream(lane, work[i])) {
			lane = lanes__begin(lanes, LANE_STREAM, work[i]->pid);
			if (!lane) {
				err = -ENOMEM;
				break;
			}
			lane->device = work[i]->device;
			lane->context = work[i]->context;
			lane->stream = work[i]->stream;
		}
		err = add_work(lanes, job, lane, work[i], origin_ns);
	}
	free(work);
	return err;
}

static int add_windows(struct lanes *lanes, const struct gpu *gpu, uint64_t origin_ns)
{
	size_t cnt;
	const struct rec_gpu_window *windows = gpu__windows(gpu, &cnt);
	struct lane *lane = NULL;
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		if (!lane || lane->pid != windows[i].pid)
			lane = lanes__begin(lanes, LANE_WINDOWS, windows[i].pid);
		err = lane ? lane__add(lane, windows[i].start_ns, windows[i].end_ns, origin_ns, 0) : -ENOMEM;
	}
	return err;
}

/* ---- phases ---- */

static bool may_have_phase(const struct rec_span *span)
{
	return span->kind == SPAN_LABEL || span->kind == SPAN_ACTION || phase__of_kind(span->kind) != PHASE_OTHER;
}

int lanes__take(struct lanes *lanes, const struct rec_hdr *record)
{
	const struct rec_spans *packed = (const struct rec_spans *)record;
	size_t cnt = 0;
	int err;

	if (record->type != REC_SPANS || record->size < sizeof(*packed))
		return 0;
	err = spans__decode(packed, lanes->unpacked, &cnt);
	if (err)
		return err == -ENOMEM ? err : 0;
	for (size_t i = 0; i < cnt; i++) {
		const struct rec_span *span = &lanes->unpacked[i];
		struct taken *taken;

		if (!may_have_phase(span))
			continue;
		if (lanes->taken.cnt == TAKEN_MAX) {
			lanes->left_out++;
			continue;
		}
		taken = array__add(&lanes->taken, sizeof(*taken));
		if (!taken)
			return -ENOMEM;
		*taken = (struct taken){.start_ns = span->start_ns,
					.end_ns = saturating__add(span->start_ns, span->duration_ns),
					.name = span->name,
					.pid = span->pid,
					.tid = span->tid,
					.kind = span->kind};
	}
	return 0;
}

/* Of spans that begin together, the outer one comes first. */
static int compare_taken(const void *a, const void *b)
{
	const struct taken *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->tid != y->tid)
		return COMPARE(x->tid, y->tid);
	return x->start_ns != y->start_ns ? COMPARE(x->start_ns, y->start_ns) : COMPARE(y->end_ns, x->end_ns);
}

/* Divides the time of a thread by the rule of bpf/phase.h. */
struct phase_sweep {
	struct lane *lane;
	uint64_t origin_ns, now_ns;
	const struct taken *open[OPEN_MAX]; /* that contain now_ns, by begin */
	size_t open_cnt;
};

/*
 * Forward, and the validation of a plain loop, are derived from the gaps between other spans, so that
 * they are around all others.
 */
static enum phase phase_sweep__phase(const struct phase_sweep *sweep)
{
	enum phase phase = PHASE_OTHER;

	for (int derived = 1; derived >= 0; derived--)
		for (size_t i = 0; i < sweep->open_cnt; i++) {
			uint16_t kind = sweep->open[i]->kind;

			if (derived == (kind == SPAN_FORWARD || kind == SPAN_VALIDATION))
				phase = phase__inside(phase, sweep->open[i]->phase);
		}
	return phase;
}

/* 0 or -ENOMEM. */
static int phase_sweep__pass(struct phase_sweep *sweep, uint64_t to_ns)
{
	enum phase phase = phase_sweep__phase(sweep);
	struct array *spans = &sweep->lane->spans;
	struct lane_span *last = spans->cnt ? (struct lane_span *)spans->items + spans->cnt - 1 : NULL;
	uint64_t from_ns = sweep->now_ns;

	sweep->now_ns = to_ns;
	if (phase == PHASE_OTHER || to_ns <= from_ns)
		return 0;
	if (!last || last->what != phase || last->start_ns + last->duration_ns + sweep->origin_ns != from_ns)
		return lane__add(sweep->lane, from_ns, to_ns, sweep->origin_ns, phase);
	last->duration_ns += to_ns - from_ns;
	last->busy_ns = last->longest_ns = last->duration_ns;
	return 0;
}

/* Passes over the ends of spans up to an instant, and goes there. */
static int phase_sweep__go(struct phase_sweep *sweep, uint64_t to_ns)
{
	int err = 0;

	while (sweep->open_cnt && !err) {
		size_t first = 0;

		for (size_t i = 1; i < sweep->open_cnt; i++)
			if (sweep->open[i]->end_ns < sweep->open[first]->end_ns)
				first = i;
		if (sweep->open[first]->end_ns > to_ns)
			break;
		err = phase_sweep__pass(sweep, sweep->open[first]->end_ns);
		sweep->open_cnt--;
		for (size_t i = first; i < sweep->open_cnt; i++)
			sweep->open[i] = sweep->open[i + 1];
	}
	return err ?: phase_sweep__pass(sweep, to_ns);
}

/* taken: of the thread. */
static int add_phases(struct lanes *lanes, const struct step_track *track, const struct taken *taken, size_t cnt,
		      uint64_t origin_ns)
{
	struct phase_sweep sweep = {.lane = lanes__begin(lanes, LANE_PHASES, track->pid), .origin_ns = origin_ns};
	int err = sweep.lane ? 0 : -ENOMEM;

	if (!err)
		sweep.lane->tid = track->tid;
	for (size_t i = 0; i < cnt && !err; i++) {
		if (taken[i].phase == PHASE_OTHER)
			continue;
		err = phase_sweep__go(&sweep, taken[i].start_ns);
		if (sweep.open_cnt < OPEN_MAX)
			sweep.open[sweep.open_cnt++] = &taken[i];
	}
	while (sweep.open_cnt && !err)
		err = phase_sweep__go(&sweep, sweep.open[0]->end_ns);
	return err;
}

static int add_all_phases(struct lanes *lanes, const struct job *job, const struct steps *steps, uint64_t origin_ns)
{
	size_t track_cnt, cnt = lanes->taken.cnt;
	const struct step_track *tracks = steps__tracks(steps, &track_cnt);
	struct taken *taken = lanes->taken.items;
	int err = 0;

	for (size_t i = 0; i < cnt; i++)
		taken[i].phase = labels__phase(taken[i].kind, job__name(job, taken[i].name));
	if (cnt)
		qsort(taken, cnt, sizeof(*taken), compare_taken);
	for (size_t t = 0; t < track_cnt && !err; t++) {
		uint32_t pid = tracks[t].pid, tid = tracks[t].tid;
		size_t first = SEARCH(i, 0, cnt, taken[i].pid < pid || (taken[i].pid == pid && taken[i].tid < tid));
		size_t end = first;

		while (end < cnt && taken[end].pid == pid && taken[end].tid == tid)
			end++;
		if (end > first)
			err = add_phases(lanes, &tracks[t], &taken[first], end - first, origin_ns);
	}
	lanes->taken.cnt = 0;
	return err;
}

int lanes__add(struct lanes *lanes, struct job *job, const struct steps *steps, uint64_t origin_ns)
{
	const struct gpu *gpu = job__gpu(job);
	int err = gpu ? 0 : -ENOMEM;

	err = err ?: add_all_phases(lanes, job, steps, origin_ns);
	err = err ?: add_streams(lanes, job, gpu, origin_ns);
	err = err ?: add_windows(lanes, gpu, origin_ns);
	lanes->recording_cnt++;
	return err;
}

/* ---- thinning ---- */

/* Work that begins within the grain of a first one becomes one span with it. */
static void merge_near_work(struct array *array, uint64_t grain_ns)
{
	struct lane_span *spans = array->items, *last = NULL;
	size_t cnt = 0;

	for (size_t i = 0; i < array->cnt; i++) {
		uint64_t start_ns = spans[i].start_ns, end_ns = start_ns + spans[i].duration_ns;
		uint64_t last_ns = last ? last->start_ns + last->duration_ns : 0;

		if (!last || start_ns - last->start_ns >= grain_ns) {
			last = &spans[cnt++];
			*last = spans[i];
			continue;
		}
		/* What overlaps counts once. */
		if (end_ns > last_ns) {
			uint64_t new_ns = end_ns - (start_ns > last_ns ? start_ns : last_ns);

			last->duration_ns = end_ns - last->start_ns;
			last->busy_ns += new_ns < spans[i].busy_ns ? new_ns : spans[i].busy_ns;
		}
		if (spans[i].longest_ns > last->longest_ns) {
			last->longest_ns = spans[i].longest_ns;
			last->what = spans[i].what;
		}
		last->cnt += spans[i].cnt;
	}
	array->cnt = cnt;
}

static void drop_short_phases(struct array *array, uint64_t grain_ns)
{
	struct lane_span *spans = array->items;
	size_t cnt = 0;

	for (size_t i = 0; i < array->cnt; i++)
		if (spans[i].duration_ns >= grain_ns)
			spans[cnt++] = spans[i];
	array->cnt = cnt;
}

static uint64_t thin_kind(struct lanes *lanes, enum lane_kind kind, size_t span_max,
			  void (*thin)(struct array *spans, uint64_t grain_ns))
{
	struct lane *all = lanes->all.items;
	uint64_t grain_ns = 0;

	for (uint64_t next_ns = 1000;; next_ns *= 2) {
		size_t cnt = 0;

		for (size_t i = 0; i < lanes->all.cnt; i++)
			cnt += all[i].kind == kind ? all[i].spans.cnt : 0;
		if (cnt <= span_max || next_ns > INT64_MAX / 2)
			return grain_ns;
		for (size_t i = 0; i < lanes->all.cnt; i++)
			if (all[i].kind == kind)
				thin(&all[i].spans, next_ns);
		grain_ns = next_ns;
	}
}

void lanes__thin(struct lanes *lanes, size_t span_max, uint64_t *stream_ns, uint64_t *phase_ns)
{
	*stream_ns = thin_kind(lanes, LANE_STREAM, span_max, merge_near_work);
	*phase_ns = thin_kind(lanes, LANE_PHASES, span_max, drop_short_phases);
}

/* ---- what is read ---- */

uint64_t lanes__left_out(const struct lanes *lanes)
{
	return lanes->left_out;
}

const struct lane *lanes__all(const struct lanes *lanes, size_t *cnt)
{
	*cnt = lanes->all.cnt;
	return lanes->all.items;
}

char *const *lanes__texts(const struct lanes *lanes, size_t *cnt)
{
	*cnt = lanes->texts.items.cnt;
	return lanes->texts.items.items;
}

struct lanes *lanes__new(void)
{
	return calloc(1, sizeof(struct lanes));
}

void lanes__free(struct lanes *lanes)
{
	if (!lanes)
		return;
	for (size_t i = 0; i < lanes->all.cnt; i++)
		free(((struct lane *)lanes->all.items)[i].spans.items);
	map__free_texts(&lanes->texts);
	free(lanes->all.items);
	free(lanes->taken.items);
	free(lanes);
}
