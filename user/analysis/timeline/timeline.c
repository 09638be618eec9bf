// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Takes REC_SPANS and GPU activities, and returns tracks of strictly nested spans. One thread owns
 * a timeline.
 *
 * All spans are in one array, which is sorted by thread and time once it is complete. As in
 * Kineto's traces, and unlike in torch.profiler's table, a call stays separate from an only child
 * of the same name.
 */
#include "user/analysis/timeline/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/search.h"
#include "user/recording/spans.h"

#define LANE_MAX  15 /* tracks of one thread */
#define GPU_MAX   254
#define INNERMOST TIMELINE_DEPTH_MAX /* depth on its thread of a span nested in all spans as long */
#define NO_PARENT UINT32_MAX

_Static_assert(TIMELINE_DEPTH_MAX <= UINT16_MAX, "depth has 16 bits");

struct timeline {
	struct timeline_span *spans;
	size_t span_cnt, span_room, span_max;
	struct timeline_track *tracks;
	size_t track_cnt;
	struct map names;  /* struct timeline_name */
	struct map groups; /* uint64_t */
	uint64_t left_out;
	struct rec_span unpacked[SPANS_MAX];
};

/* Makes room for one more item; the capacity doubles at powers of two. */
static void *grow_items(void *items, size_t cnt, size_t item_bytes)
{
	return cnt & (cnt - 1) ? items : reallocarray(items, cnt ? 2 * cnt : 1, item_bytes);
}

/* -ENOMEM. */
static int64_t number_name(struct timeline *timeline, const struct timeline_name *name)
{
	const struct timeline_name *item = MAP_ADD(&timeline->names, struct timeline_name, name);

	return item ? (int64_t)MAP_INDEX(&timeline->names, item) : -ENOMEM;
}

/* -ENOMEM. */
static int64_t number_group(struct timeline *timeline, uint64_t id)
{
	const uint64_t *item = MAP_ADD(&timeline->groups, uint64_t, &id);

	return item ? (int64_t)MAP_INDEX(&timeline->groups, item) : -ENOMEM;
}

struct timeline *timeline__new(size_t span_max)
{
	struct timeline *timeline = calloc(1, sizeof(*timeline));

	if (!timeline)
		return NULL;
	timeline->span_max = span_max;
	if (number_group(timeline, 0) < 0) {
		timeline__free(timeline);
		return NULL;
	}
	return timeline;
}

void timeline__free(struct timeline *timeline)
{
	if (!timeline)
		return;
	map__free(&timeline->names);
	map__free(&timeline->groups);
	free(timeline->tracks);
	free(timeline->spans);
	free(timeline);
}

static uint64_t span_end_ns(const struct timeline_span *span)
{
	return span->start_ns + span->duration_ns;
}

static bool is_time(uint64_t start_ns, uint64_t duration_ns)
{
	uint64_t end;

	return !__builtin_add_overflow(start_ns, duration_ns, &end) && end <= INT64_MAX;
}

static int make_room(struct timeline *timeline, size_t cnt)
{
	size_t room = 2 * timeline->span_room + SPANS_MAX;
	void *spans;

	if (timeline->span_cnt + cnt <= timeline->span_room)
		return 0;
	spans = reallocarray(timeline->spans, room, sizeof(*timeline->spans));
	if (!spans)
		return -ENOMEM;
	timeline->spans = spans;
	timeline->span_room = room;
	return 0;
}

static int timeline__add_span(struct timeline *timeline, const struct rec_span *span)
{
	const struct timeline_name wanted = {.id = span->name, .kind = span->kind};
	int64_t name, group;

	if (timeline->span_cnt == timeline->span_max || span->kind == SPAN_NONE || span->kind >= SPAN__COUNT ||
	    !is_time(span->start_ns, span->duration_ns)) {
		timeline->left_out++;
		return 0;
	}
	name = number_name(timeline, &wanted);
	group = number_group(timeline, span->group);
	if (name < 0 || group < 0)
		return -ENOMEM;
	timeline->spans[timeline->span_cnt++] = (struct timeline_span){.start_ns = span->start_ns,
								       .duration_ns = span->duration_ns,
								       .sequence = span->sequence,
								       .name = name,
								       .group = group,
								       .pid = span->pid,
								       .tid = span->tid,
								       .depth = span->depth};
	return 0;
}

static int timeline__add_spans(struct timeline *timeline, const struct rec_spans *packed)
{
	size_t cnt;
	int err = packed->hdr.size < sizeof(*packed) ? -EBADMSG : spans__decode(packed, timeline->unpacked, &cnt);

	if (err == -EBADMSG) {
		timeline->left_out++;
		return 0;
	}
	if (!err)
		err = make_room(timeline, cnt);
	for (size_t i = 0; !err && i < cnt; i++)
		err = timeline__add_span(timeline, &timeline->unpacked[i]);
	return err;
}

/* Adds a GPU span. The caller sets start, duration, pid, tid, and whatever else is known. */
static int add_of_gpu(struct timeline *timeline, const struct timeline_name *wanted, struct timeline_span span)
{
	int64_t name;

	if (timeline->span_cnt == timeline->span_max || !span.start_ns || !is_time(span.start_ns, span.duration_ns)) {
		timeline->left_out++;
		return 0;
	}
	name = number_name(timeline, wanted);
	if (name < 0 || make_room(timeline, 1))
		return -ENOMEM;
	span.name = name;
	span.sequence = -1;
	timeline->spans[timeline->span_cnt++] = span;
	return 0;
}

static int timeline__add_activity(struct timeline *timeline, const struct gpu_act *activity, size_t index)
{
	bool call = activity->kind == GPU_ACTIVITY_CALL;
	struct timeline_name wanted = {.id = activity->name, .activity = activity->kind};

	if (activity->kind == GPU_ACTIVITY_COPY)
		wanted.direction = activity->direction;
	if (!call && activity->device >= GPU_MAX) {
		timeline->left_out++;
		return 0;
	}
	return add_of_gpu(timeline, &wanted,
			  (struct timeline_span){
				  .start_ns = activity->start_ns,
				  .duration_ns = activity->duration_ns,
				  .activity = index + 1,
				  .pid = activity->pid,
				  .tid = call ? activity->tid : activity->stream,
				  .depth = call ? INNERMOST : 0,
				  .gpu = call ? 0 : activity->device + 1,
			  });
}

static int timeline__add_call(struct timeline *timeline, const struct gpu_call *call)
{
	const struct timeline_name wanted = {.activity = GPU_ACTIVITY_CALL, .api = call->api};

	return add_of_gpu(timeline, &wanted,
			  (struct timeline_span){
				  .start_ns = call->start_ns,
				  .duration_ns = call->duration_ns,
				  .pid = call->pid,
				  .tid = call->tid,
				  .depth = INNERMOST,
			  });
}

/* Adds the windows of a process to one of its GPUs. */
static int add_windows(struct timeline *timeline, const struct gpu *gpu, uint32_t pid, uint32_t device)
{
	static const struct timeline_name wanted;
	size_t cnt, first;
	const struct rec_gpu_window *windows = gpu__windows(gpu, &cnt);
	int err = 0;

	first = SEARCH(i, 0, cnt, windows[i].pid < pid);
	for (size_t i = first; i < cnt && windows[i].pid == pid && !err; i++)
		if (windows[i].start_ns < windows[i].end_ns)
			err = add_of_gpu(timeline, &wanted,
					 (struct timeline_span){
						 .start_ns = windows[i].start_ns,
						 .duration_ns = windows[i].end_ns - windows[i].start_ns,
						 .pid = pid,
						 .tid = TIMELINE_WINDOWS,
						 .gpu = device + 1,
					 });
	return err;
}

/* Adds windows for each process, on each GPU that worked for it. Activities are sorted by process. */
static int add_all_windows(struct timeline *timeline, const struct gpu *gpu)
{
	size_t cnt;
	const struct gpu_act *activities = gpu__activities(gpu, &cnt);
	bool seen[GPU_MAX] = {false};
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		if (i && activities[i].pid != activities[i - 1].pid)
			memset(seen, 0, sizeof(seen));
		if (!gpu_act__is_work(&activities[i]) || activities[i].device >= GPU_MAX || seen[activities[i].device])
			continue;
		seen[activities[i].device] = true;
		err = add_windows(timeline, gpu, activities[i].pid, activities[i].device);
	}
	return err;
}

int timeline__add_gpu(struct timeline *timeline, const struct gpu *gpu)
{
	size_t activity_cnt, call_cnt;
	const struct gpu_act *activities = gpu__activities(gpu, &activity_cnt);
	const struct gpu_call *calls = gpu__calls(gpu, &call_cnt);
	const struct gpu_process *process = NULL;
	int err = 0;

	for (size_t i = 0; i < activity_cnt && !err; i++)
		if (activities[i].kind == GPU_ACTIVITY_CALL || gpu_act__is_work(&activities[i]))
			err = timeline__add_activity(timeline, &activities[i], i);
	for (size_t i = 0; i < call_cnt && !err; i++) {
		if (!process || process->pid != calls[i].pid)
			process = gpu__process(gpu, calls[i].pid);
		if (!process || process->tier != GPU_TIER_CUPTI)
			err = timeline__add_call(timeline, &calls[i]);
	}
	return err ?: add_all_windows(timeline, gpu);
}

int timeline__add(struct timeline *timeline, const struct rec_hdr *record)
{
	return record->type == REC_SPANS ? timeline__add_spans(timeline, (const void *)record) : 0;
}

/* ---- tracks ---- */

static int compare_span_place(const void *a, const void *b)
{
	const struct timeline_span *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->gpu != y->gpu)
		return COMPARE(x->gpu, y->gpu);
	if (x->tid != y->tid)
		return COMPARE(x->tid, y->tid);
	if (x->lane != y->lane)
		return COMPARE(x->lane, y->lane);
	if (x->start_ns != y->start_ns)
		return COMPARE(x->start_ns, y->start_ns);
	if (x->duration_ns != y->duration_ns)
		return COMPARE(y->duration_ns, x->duration_ns);
	return COMPARE(x->depth, y->depth);
}

static enum span_kind span_kind_of(const struct timeline *timeline, const struct timeline_span *span)
{
	return ((const struct timeline_name *)timeline->names.items.items)[span->name].kind;
}

/*
 * The first lane to try. Steps, forwards and validations may straddle actions, which stay on the
 * thread's own track.
 */
static uint8_t first_lane(const struct timeline *timeline, const struct timeline_span *span)
{
	enum span_kind kind = span_kind_of(timeline, span);

	return kind == SPAN_STEP || kind == SPAN_FORWARD || kind == SPAN_VALIDATION;
}

/*
 * Assigns each span of a thread to the first lane in which it nests. The spans are sorted;
 * `parents` has room for as many.
 */
static void assign_lanes(struct timeline *timeline, size_t from, size_t to, uint32_t *parents)
{
	uint32_t open[LANE_MAX]; /* by lane: the innermost open span */

	memset(open, 0xff, sizeof(open));
	for (size_t i = from; i < to; i++) {
		struct timeline_span *span = &timeline->spans[i];

		for (span->lane = first_lane(timeline, span); span->lane < LANE_MAX; span->lane++) {
			uint32_t *top = &open[span->lane];

			while (*top != NO_PARENT && span_end_ns(&timeline->spans[*top]) <= span->start_ns &&
			       span_end_ns(&timeline->spans[*top]) < span_end_ns(span))
				*top = parents[*top];
			if (*top != NO_PARENT && (span_end_ns(&timeline->spans[*top]) < span_end_ns(span) ||
						  timeline->spans[*top].depth + 1 == TIMELINE_DEPTH_MAX))
				continue;
			span->depth = *top == NO_PARENT ? 0 : timeline->spans[*top].depth + 1;
			parents[i] = *top;
			*top = i;
			break;
		}
	}
}

/* The end of the run of spans that share the thread of the span at `from`; with lanes: its track. */
static size_t end_of_run(const struct timeline *timeline, size_t from, bool lanes)
{
	const struct timeline_span *first = &timeline->spans[from];
	size_t to = from;

	while (to < timeline->span_cnt && timeline->spans[to].pid == first->pid &&
	       timeline->spans[to].gpu == first->gpu && timeline->spans[to].tid == first->tid &&
	       (!lanes || timeline->spans[to].lane == first->lane))
		to++;
	return to;
}

static int make_lanes(struct timeline *timeline)
{
	uint32_t *parents = calloc(timeline->span_cnt + 1, sizeof(*parents));
	size_t retained_cnt = 0;

	if (!parents)
		return -ENOMEM;
	for (size_t from = 0, to; from < timeline->span_cnt; from = to) {
		to = end_of_run(timeline, from, false);
		assign_lanes(timeline, from, to, parents);
	}
	free(parents);
	for (size_t i = 0; i < timeline->span_cnt; i++)
		if (timeline->spans[i].lane < LANE_MAX)
			timeline->spans[retained_cnt++] = timeline->spans[i];
	timeline->left_out += timeline->span_cnt - retained_cnt;
	timeline->span_cnt = retained_cnt;
	return 0;
}

static int make_timeline_tracks(struct timeline *timeline)
{
	for (size_t from = 0, to; from < timeline->span_cnt; from = to) {
		const struct timeline_span *first = &timeline->spans[from];
		struct timeline_track *tracks = grow_items(timeline->tracks, timeline->track_cnt, sizeof(*tracks));

		if (!tracks)
			return -ENOMEM;
		timeline->tracks = tracks;
		to = end_of_run(timeline, from, true);
		tracks[timeline->track_cnt++] = (struct timeline_track){.pid = first->pid,
									.tid = first->tid,
									.gpu = first->gpu,
									.lane = first->lane,
									.span_cnt = to - from,
									.spans = first};
	}
	return 0;
}

/* ---- flows ---- */

/* An operator or node with a sequence number. */
struct flow_end {
	struct timeline_span *span;
	enum span_kind kind;
};

static int compare_numbers(const struct timeline_span *x, const struct timeline_span *y)
{
	return x->pid != y->pid ? COMPARE(x->pid, y->pid) : COMPARE(x->sequence, y->sequence);
}

static int compare_ends(const void *a, const void *b)
{
	const struct timeline_span *x = ((const struct flow_end *)a)->span, *y = ((const struct flow_end *)b)->span;

	if (compare_numbers(x, y))
		return compare_numbers(x, y);
	return x->start_ns != y->start_ns ? COMPARE(x->start_ns, y->start_ns) : COMPARE(x->depth, y->depth);
}

static int compare_ends_by_thread(const void *a, const void *b)
{
	const struct timeline_span *x = ((const struct flow_end *)a)->span, *y = ((const struct flow_end *)b)->span;

	if (compare_numbers(x, y) || x->tid == y->tid)
		return compare_ends(a, b);
	return COMPARE(x->tid, y->tid);
}

/*
 * Links nodes that have no maker yet to the last operator before them; same_thread: only to
 * operators of their own thread.
 */
static void link_ends(struct flow_end *ends, size_t cnt, bool same_thread, uint32_t *flows)
{
	struct timeline_span *maker = NULL;

	qsort(ends, cnt, sizeof(*ends), same_thread ? compare_ends_by_thread : compare_ends);
	for (size_t i = 0; i < cnt; i++) {
		struct timeline_span *span = ends[i].span;

		if (maker && (compare_numbers(maker, span) || (same_thread && maker->tid != span->tid)))
			maker = NULL;
		if (ends[i].kind == SPAN_OP) {
			maker = span->flow ? NULL : span;
		} else if (maker && !span->forward_tid) {
			span->forward_tid = maker->tid;
			if (ends[i].kind == SPAN_NODE) {
				span->flow = maker->flow = ++*flows;
				maker = NULL;
			}
		}
	}
}

/*
 * Links each node to the operator that made it, as torch does (generateForwardBackwardLink in
 * torch/csrc/profiler/collection.cpp). A node takes the next sequence number; so its maker is the
 * last operator with this number that started before the node ran. Each thread counts on its own,
 * and the records do not show which thread made a node. On a CPU, the thread that runs forward runs
 * backward, too, so an operator of the node's own thread takes precedence.
 */
static int link_flows(struct timeline *timeline)
{
	struct flow_end *ends = malloc((timeline->span_cnt + 1) * sizeof(*ends));
	uint32_t flows = 0;
	size_t cnt = 0;

	if (!ends)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->span_cnt; i++) {
		struct timeline_span *span = &timeline->spans[i];
		enum span_kind kind = span_kind_of(timeline, span);

		if (span->sequence >= 0 && (kind == SPAN_OP || kind == SPAN_NODE || kind == SPAN_EVALUATE))
			ends[cnt++] = (struct flow_end){.span = span, .kind = kind};
	}
	if (cnt) {
		link_ends(ends, cnt, true, &flows);
		link_ends(ends, cnt, false, &flows);
	}
	free(ends);
	return 0;
}

int timeline__build(struct timeline *timeline)
{
	int err;

	if (!timeline->span_cnt)
		return 0;
	qsort(timeline->spans, timeline->span_cnt, sizeof(*timeline->spans), compare_span_place);
	err = make_lanes(timeline);
	if (err)
		return err;
	qsort(timeline->spans, timeline->span_cnt, sizeof(*timeline->spans), compare_span_place);
	err = link_flows(timeline);
	return err ? err : make_timeline_tracks(timeline);
}

const struct timeline_track *timeline__tracks(const struct timeline *timeline, size_t *cnt)
{
	*cnt = timeline->track_cnt;
	return timeline->tracks;
}

const struct timeline_name *timeline__names(const struct timeline *timeline, size_t *cnt)
{
	*cnt = timeline->names.items.cnt;
	return timeline->names.items.items;
}

const uint64_t *timeline__groups(const struct timeline *timeline, size_t *cnt)
{
	*cnt = timeline->groups.items.cnt;
	return timeline->groups.items.items;
}

uint64_t timeline__left_out(const struct timeline *timeline)
{
	return timeline->left_out;
}
