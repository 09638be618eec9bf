// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/gpu_reader.h"

#include <stdlib.h>
#include <string.h>

#include "include/records.h"
#include "user/elf/demangle.h"
#include "user/lib/compare.h"
#include "user/proc/task.h"
#include "user/session/sources/gpu_ring.h"
#include "user/session/state.h"

/* ---- CUPTI's clock ---- */

#define WIDTH_MAX_NS 1000000
/* The most that the two clocks may drift apart: NTP may slew CUPTI's clock by 500 ppm. */
#define DRIFT_MAX 1000 /* 1/1000 of the elapsed time */
#define SLACK_NS  10000

static uint64_t absolute_difference(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static bool is_consistent(const struct gpu_clock_pair *before, const struct gpu_clock_pair *pair)
{
	uint64_t cupti_ns = pair->cupti_ns - before->cupti_ns, ns = pair->ns - before->ns;

	return pair->cupti_ns > before->cupti_ns && pair->ns > before->ns &&
	       absolute_difference(cupti_ns, ns) <= ns / DRIFT_MAX + (before->width_ns + pair->width_ns) / 2 + SLACK_NS;
}

bool gpu_clock__add(struct gpu_clock *clock, const struct gpu_ring_clock *rec, uint64_t from_ns, uint64_t until_ns)
{
	struct gpu_clock_pair pair = {.cupti_ns = rec->cupti_ns, .width_ns = rec->behind_ns - rec->before_ns};

	if (rec->before_ns < from_ns || rec->behind_ns > until_ns || rec->behind_ns < rec->before_ns ||
	    pair.width_ns > WIDTH_MAX_NS || !rec->cupti_ns)
		return false;
	pair.ns = rec->before_ns + pair.width_ns / 2;
	if (clock->cnt && !is_consistent(&clock->pairs[clock->cnt - 1], &pair)) {
		if (!clock->has_outlier || !is_consistent(&clock->outlier, &pair)) {
			clock->outlier = pair;
			clock->has_outlier = true;
			return false;
		}
		clock->pairs[0] = clock->outlier;
		clock->cnt = 1;
	}
	clock->has_outlier = false;
	if (clock->cnt == GPU_CLOCK_PAIRS) {
		clock->cnt /= 2;
		memmove(clock->pairs, clock->pairs + clock->cnt, clock->cnt * sizeof(*clock->pairs));
	}
	clock->pairs[clock->cnt++] = pair;
	return true;
}

bool gpu_clock__translate(const struct gpu_clock *clock, uint64_t cupti_ns, uint64_t *ns)
{
	const struct gpu_clock_pair *a, *b;
	uint32_t i;

	/* Of two pairs that do not fit each other nobody knows which is right. */
	if (!clock->cnt || (clock->cnt == 1 && clock->has_outlier))
		return false;
	for (i = clock->cnt; i > 1 && clock->pairs[i - 1].cupti_ns > cupti_ns;)
		i--;
	a = &clock->pairs[i - 1];
	b = i < clock->cnt && cupti_ns >= a->cupti_ns ? a + 1 : NULL;
	if (b)
		*ns = a->ns + (uint64_t)((double)(cupti_ns - a->cupti_ns) * (double)(b->ns - a->ns) /
					 (b->cupti_ns - a->cupti_ns));
	else if (cupti_ns < a->cupti_ns && a->cupti_ns - cupti_ns > a->ns)
		return false;
	else
		*ns = a->ns + (cupti_ns - a->cupti_ns);
	return true;
}

uint64_t gpu_clock__last(const struct gpu_clock *clock)
{
	return clock->cnt ? clock->pairs[clock->cnt - 1].cupti_ns : 0;
}

uint64_t gpu_clock__last_ns(const struct gpu_clock *clock)
{
	return clock->cnt ? clock->pairs[clock->cnt - 1].ns : 0;
}

/* ---- threads ---- */

#define THREADS_NS 200000000ULL /* interval between readings of the list of threads */

/* Keeps the old list if the threads can no longer be read. */
static void read_thread_list(struct gpu_tids *t, pid_t pid, uint64_t now)
{
	pid_t *tids = NULL, *nstids;
	int cnt = task__list(pid, &tids);

	t->read_ns = now;
	nstids = cnt > 0 ? reallocarray(NULL, cnt, sizeof(*nstids)) : NULL;
	if (!nstids) {
		free(tids);
		return;
	}
	free(t->tids);
	free(t->nstids);
	*t = (struct gpu_tids){tids, nstids, cnt, now};
	for (int i = 0; i < cnt; i++) {
		struct task task;

		nstids[i] = task__read(pid, tids[i], &task) ? 0 : task.nstid;
	}
}

/* The tid in stepflame's namespace; 0: unknown. Reads the list at most five times per second. */
static pid_t translate_tid(struct gpu_tids *t, const struct process *process, uint32_t tid, uint64_t now)
{
	if (process->nspid == process->pid)
		return tid < 1u << REC_PID_BITS ? tid : 0;
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < t->cnt; i++)
			if (t->nstids[i] == (pid_t)tid)
				return t->tids[i];
		if (turn || now - t->read_ns < THREADS_NS)
			break;
		read_thread_list(t, process->pid, now);
	}
	return 0;
}

static void release_tids(struct gpu_tids *t)
{
	free(t->tids);
	free(t->nstids);
}

/* ---- the window ---- */

/* Correlation ids grow with each call of the process, and wrap. */
static bool is_later_call(uint32_t correlation, uint32_t last)
{
	return (int32_t)(correlation - last) > 0;
}

enum gpu_fate gpu_window__judge(struct gpu_window *w, enum gpu_activity kind, uint32_t correlation, uint64_t start_ns,
				uint64_t end_ns, uint64_t known_ns, bool last)
{
	bool call = kind == GPU_ACTIVITY_CALL, work = kind >= GPU_ACTIVITY_KERNEL && kind <= GPU_ACTIVITY_GRAPH;

	if (!w->by_steps)
		return GPU_INSIDE;
	if (!last && end_ns >= known_ns)
		return GPU_UNDECIDED;
	if (!w->steps_start_ns || end_ns <= w->steps_start_ns)
		return GPU_OUTSIDE;
	if (!w->steps_end_ns || start_ns < w->steps_end_ns) {
		if (call && (!w->last_correlation || is_later_call(correlation, w->last_correlation)))
			w->last_correlation = correlation;
		return GPU_INSIDE;
	}
	if (!work)
		return GPU_OUTSIDE;
	if (!last)
		return GPU_UNDECIDED;
	return is_later_call(correlation, w->last_correlation) ? GPU_OUTSIDE : GPU_INSIDE;
}

static uint64_t window_start_ns(const struct gpu_window *w)
{
	return w->begun_ns > w->steps_start_ns ? w->begun_ns : w->steps_start_ns;
}

static uint64_t window_end_ns(const struct gpu_window *w)
{
	uint64_t end_ns = w->reported_ns;

	if (w->steps_end_ns && w->steps_end_ns < end_ns)
		end_ns = w->steps_end_ns;
	if (w->ended_ns && w->ended_ns < end_ns)
		end_ns = w->ended_ns;
	return end_ns;
}

static bool has_begun(const struct gpu_window *w)
{
	return w->begun_ns && (!w->by_steps || w->steps_start_ns);
}

uint64_t gpu_window__ns(const struct gpu_window *w)
{
	return has_begun(w) && window_end_ns(w) > window_start_ns(w) ? window_end_ns(w) - window_start_ns(w) : 0;
}

bool gpu_window__record(const struct gpu_window *w, struct rec_gpu_window *out)
{
	*out = (struct rec_gpu_window){.hdr = {.type = REC_GPU_WINDOW, .size = sizeof(*out)}, .end = w->end};
	if (w->refused) {
		out->start_ns = out->end_ns = w->requested_ns;
		out->error = w->end == GPU_WINDOW_FAILED ? w->error : 0;
		return true;
	}
	if (has_begun(w) && window_end_ns(w) > window_start_ns(w)) {
		out->start_ns = window_start_ns(w);
		out->end_ns = window_end_ns(w);
		return true;
	}
	if (w->end != GPU_WINDOW_STEPS)
		return false;
	out->start_ns = out->end_ns = w->steps_end_ns;
	out->end = GPU_WINDOW_LATE;
	return true;
}

/* ---- records ---- */

#define NAMES_MAX   65536
#define PENDING_MAX 65536
#define READ_MAX    1000000 /* records to read in one call */
#define DEVICES_MAX 64
#define EARLY_NS    10000000ULL /* how far CUPTI's times may be off */

/* Whose window is being read, and where its records go. */
struct reading {
	struct gpu_reader *r;
	struct session *s;
	const struct target *t;
	struct gpu_window *window;
};

void gpu_reader__restart(struct gpu_reader *r)
{
	r->clock = (struct gpu_clock){0};
	r->name_cnt = r->device_cnt = 0;
	r->told_ns = 0;
}

void gpu_reader__release(struct gpu_reader *r)
{
	free(r->names);
	free(r->pending);
	intern__free(&r->texts);
	release_tids(&r->tids);
	*r = (struct gpu_reader){.lost = r->lost};
}

/*
 * The id of a text, which is emitted once. 0 (counted as lost): the process has sent too many
 * different ones.
 */
static uint64_t name_text(const struct reading *to, const char *text)
{
	struct gpu_reader *r = to->r;
	uint64_t id = session__name_id(text);
	uint32_t number;

	if (intern__find(&r->texts, id))
		return id;
	if (intern__end(&r->texts) > NAMES_MAX || intern__add(&r->texts, id, &number)) {
		r->lost++;
		return 0;
	}
	return session__emit_name(to->s, text);
}

static void add_ring_name(const struct reading *to, const struct gpu_ring_name *rec)
{
	struct gpu_reader *r = to->r;
	char name[REC_NAME_MAX + 1];

	if (rec->id >= NAMES_MAX)
		return;
	if (rec->id >= r->name_cnt) {
		uint32_t cnt = 2 * rec->id + 64;
		uint64_t *names = reallocarray(r->names, cnt, sizeof(*names));

		if (!names)
			return;
		memset(names + r->name_cnt, 0, (cnt - r->name_cnt) * sizeof(*names));
		r->names = names;
		r->name_cnt = cnt;
	}
	demangle__kernel_to_keep(rec->text, name, sizeof(name));
	r->names[rec->id] = name_text(to, name);
}

static void emit_device(const struct reading *to, const struct gpu_ring_device *rec)
{
	struct rec_gpu_device out = {
		.hdr = {.type = REC_GPU_DEVICE, .size = sizeof(out)},
		.pid = to->t->process.pid,
		.device = rec->device,
		.memory_bytes = rec->memory_bytes,
		.multiprocessors = rec->multiprocessors,
		.compute = (rec->compute_major & 0xffff) << 16 | (rec->compute_minor & 0xffff),
	};

	if (to->r->device_cnt++ >= DEVICES_MAX) {
		to->r->lost++;
		return;
	}
	memcpy(out.name, rec->name, sizeof(out.name));
	session__emit(to->s, &out.hdr);
}

/* Emits an activity if the window includes it. false: that is not known yet. */
static bool emit_activity(const struct reading *to, const struct gpu_ring_activity *rec, uint64_t now, bool last)
{
	struct gpu_reader *r = to->r;
	struct rec_gpu_activity out = {
		.hdr = {.type = REC_GPU_ACTIVITY, .size = sizeof(out)},
		.name = rec->name < r->name_cnt ? r->names[rec->name] : 0,
		.bytes = rec->bytes,
		.pid = to->t->process.pid,
		.correlation = rec->correlation,
		.kind = rec->kind,
		.direction = rec->direction,
		.device = rec->device,
		.context = rec->context,
		.stream = rec->stream,
	};
	uint64_t start_ns, end_ns;

	/*
	 * The window's end has cut off an activity without an end; without a valid time, an
	 * activity cannot be placed. What was over before the window was requested is of an earlier
	 * one, or by another clock: in a process where several tools set CUPTI's, it mixes them up.
	 */
	if (!rec->start_ns || !rec->end_ns || !gpu_clock__translate(&r->clock, rec->start_ns, &start_ns) ||
	    !gpu_clock__translate(&r->clock, rec->end_ns, &end_ns) || end_ns < start_ns || end_ns > now ||
	    end_ns + EARLY_NS < to->window->requested_ns) {
		r->lost++;
		return true;
	}
	switch (gpu_window__judge(to->window, rec->kind, rec->correlation, start_ns, end_ns, to->s->consumed_ns,
				  last)) {
	case GPU_UNDECIDED:
		return false;
	case GPU_OUTSIDE:
		return true;
	case GPU_INSIDE:
		break;
	}
	out.start_ns = start_ns;
	out.duration_ns = end_ns - start_ns;
	memcpy(out.detail, rec->words, sizeof(out.detail));
	if (rec->kind == GPU_ACTIVITY_CALL) {
		out.tid = translate_tid(&r->tids, &to->t->process, rec->call.tid, now);
		out.detail[0] = 0;
	} else if (rec->kind == GPU_ACTIVITY_OVERHEAD && rec->other.tid) {
		out.tid = translate_tid(&r->tids, &to->t->process, rec->other.tid, now);
		out.detail[2] = 0;
	}
	session__emit(to->s, &out.hdr);
	return true;
}

/*
 * Sorts calls before the work that they launched. Similar activities are adjacent, which takes less
 * room in the file.
 */
static int compare_activity(const void *a, const void *b)
{
	const struct gpu_ring_activity *x = a, *y = b;
	bool x_calls = x->kind == GPU_ACTIVITY_CALL, y_calls = y->kind == GPU_ACTIVITY_CALL;

	if (x->kind != y->kind)
		return x_calls || y_calls ? COMPARE(y_calls, x_calls) : COMPARE(x->kind, y->kind);
	if (x_calls && x->call.driver != y->call.driver)
		return COMPARE(x->call.driver, y->call.driver);
	return COMPARE(x->start_ns, y->start_ns);
}

/* Emits the activities that ended before the last clock pair, or all. */
static void emit_pending(const struct reading *to, bool all)
{
	struct gpu_reader *r = to->r;
	uint64_t clocked_ns = gpu_clock__last(&r->clock), now = session__now_ns();
	size_t left = 0;

	if (r->pending_cnt)
		qsort(r->pending, r->pending_cnt, sizeof(*r->pending), compare_activity);
	for (size_t i = 0; i < r->pending_cnt; i++) {
		const struct gpu_ring_activity *rec = &r->pending[i];

		if ((all || rec->end_ns <= clocked_ns) && emit_activity(to, rec, now, all))
			continue;
		r->pending[left++] = *rec;
	}
	r->pending_cnt = left;
}

static void add_pending(const struct reading *to, const struct gpu_ring_activity *rec)
{
	struct gpu_reader *r = to->r;

	if (r->pending_cnt == r->pending_room) {
		size_t room = 2 * r->pending_room + 256;
		struct gpu_ring_activity *pending =
			r->pending_cnt < PENDING_MAX ? reallocarray(r->pending, room, sizeof(*pending)) : NULL;

		if (!pending)
			emit_pending(to, true);
		r->pending = pending ?: r->pending;
		r->pending_room = pending ? room : r->pending_room;
	}
	if (r->pending_cnt < r->pending_room)
		r->pending[r->pending_cnt++] = *rec;
	else
		r->lost++;
}

static void note_clock(const struct reading *to, const struct gpu_ring_clock *clock)
{
	if (clock->told_ns > to->r->told_ns && clock->told_ns <= clock->behind_ns)
		to->r->told_ns = clock->told_ns;
	emit_pending(to, false);
}

void gpu_reader__drain(struct gpu_reader *r, struct session *s, const struct target *t, struct gpu_ring *ring,
		       struct gpu_window *window)
{
	const struct reading to = {r, s, t, window};
	union gpu_ring_record rec;

	for (int i = 0; i < READ_MAX && gpu_ring__next(ring, &rec); i++)
		switch (rec.hdr.type) {
		case GPU_RING_NAME_TEXT:
			add_ring_name(&to, &rec.name);
			break;
		case GPU_RING_ACTIVITY:
			add_pending(&to, &rec.activity);
			break;
		case GPU_RING_DEVICE:
			emit_device(&to, &rec.device);
			break;
		default:
			if (gpu_clock__add(&r->clock, &rec.clock, window->requested_ns, session__now_ns()))
				note_clock(&to, &rec.clock);
			else
				r->lost++;
		}
}

void gpu_reader__finish(struct gpu_reader *r, struct session *s, const struct target *t, struct gpu_window *window)
{
	emit_pending(&(struct reading){r, s, t, window}, true);
}
