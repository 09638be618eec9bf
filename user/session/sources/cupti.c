// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * GPU activity of processes with the injection library, in CUPTI windows: those of the schedule, or
 * one for the whole recording. Requests windows from the processes, ends them, and notes why a
 * window failed. Out: REC_NAME, REC_GPU_ACTIVITY, REC_GPU_DEVICE, REC_GPU_WINDOW, and the CUPTI
 * fields of REC_GPU (gpu.h).
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/gpu_records.h"
#include "include/ops.h"
#include "user/lib/log.h"
#include "user/session/sources/gpu.h"
#include "user/session/sources/gpu_reader.h"
#include "user/session/sources/gpu_ring.h"
#include "user/session/sources/inject.h"

#define KINDS                                                                                                     \
	(1u << GPU_ACTIVITY_KERNEL | 1u << GPU_ACTIVITY_COPY | 1u << GPU_ACTIVITY_SET | 1u << GPU_ACTIVITY_SYNC | \
	 1u << GPU_ACTIVITY_CALL | 1u << GPU_ACTIVITY_OVERHEAD)
/* CUptiResult */
#define CUPTI_NOT_COMPATIBLE          14
#define CUPTI_NOT_INITIALIZED         15
#define CUPTI_INSUFFICIENT_PRIVILEGES 35

#define LOOK_NS                       1000000000ULL /* interval between searches for a ring */
#define LOOK_OFTEN_NS                 100000000ULL  /* the same in a young process */
#define YOUNG_NS                      60000000000ULL
#define END_WAIT_NS                   5000000000ULL
#define DRIVER_LOADS_NS               1000000000ULL /* by then the driver has loaded the library */

/* Lost activities: CUPTI dropped them, the ring was full, or they could not be read or timed. */
struct losses {
	uint64_t dropped, full, bad;
};

/* Session state. */
struct cupti_session {
	struct losses ended; /* of processes that have ended, or called exec */
};

/* Target state. It survives exec, but for `cupti`, windows_over and had_ring. */
struct cupti_target {
	struct cupti *cupti;   /* NULL: stepflame has not searched for a ring */
	uint32_t windows;      /* CUPTI windows so far: the pid and this number identify a window */
	uint32_t windows_over; /* windows of the schedule that have passed */
	bool had_ring;
};

struct cupti {
	struct gpu_ring *ring; /* NULL: not found */
	struct gpu_reader reader;
	uint64_t look_at_ns;
	struct gpu_window window; /* the current window */
	/*
	 * The window that the schedule wants, if requested_ns is not 0; only times and `scheduled`
	 * are set.
	 */
	struct gpu_window next;
	bool over;            /* without a schedule: the window is over */
	uint32_t over_cnt;    /* with a schedule: its windows that are over, refused ones too */
	bool seen;            /* CUPTI was active in some window */
	uint64_t recorded_ns; /* total length of the windows that have ended */
	struct gpu_ring_status status;
	struct losses earlier; /* losses in windows that have ended */
	char why[96];          /* why there is no window, or "" */
	const char *fix;       /* how to fix that; static; NULL: no advice */
	uint64_t driver_ns;    /* when stepflame first saw CUDA's driver, which loads the library */
	bool warned;
};

static struct cupti_target *state_of(const struct target *t)
{
	return target__state(t, SOURCE_CUPTI);
}

static void release_ring(struct cupti *g)
{
	gpu_ring__free(g->ring);
	g->ring = NULL;
	gpu_reader__release(&g->reader);
}

static void free_cupti(struct cupti *g)
{
	if (g)
		release_ring(g);
	free(g);
}

static void explain_status(struct cupti *g)
{
	const struct gpu_ring_status *st = &g->status;
	char *why = g->why;
	size_t size = sizeof(g->why);

	g->fix = NULL;
	if (st->state == GPU_RING_BUSY) {
		if (*st->holder)
			snprintf(why, size, "another tool holds CUPTI: %s", st->holder);
		else
			snprintf(why, size,
				 "another tool uses CUPTI in this process: torch.profiler, or one of NVIDIA's");
		g->fix = "record after that tool has ended";
	} else if (st->state == GPU_RING_NO_CUPTI)
		snprintf(why, size, "it cannot open libcupti: start it with STEPFLAME_CUPTI=PATH");
	else if (st->state == GPU_RING_NO_DRIVER)
		snprintf(why, size, "CUDA's driver is not in it");
	else if (st->error == CUPTI_INSUFFICIENT_PRIVILEGES) {
		snprintf(why, size, "the driver lets only root profile (NVreg_RestrictProfilingToAdminUsers)");
		g->fix = "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d/nvidia.conf, then "
			 "reboot; or give the job CAP_SYS_ADMIN";
	} else if (st->error == CUPTI_NOT_COMPATIBLE && !GPU_RING_KNOWS_CUPTI(st->cupti_version))
		snprintf(why, size, "its CUPTI has the unsupported version %u", st->cupti_version);
	else if (st->error == CUPTI_NOT_INITIALIZED) {
		snprintf(why, size, "its CUPTI (version %u) does not fit CUDA's driver", st->cupti_version);
		g->fix = "start it with STEPFLAME_CUPTI=PATH of a libcupti that is not newer than the driver";
	} else
		snprintf(why, size, "CUPTI refused, with error %u", st->error);
}

static void target_losses(const struct cupti *g, struct losses *out)
{
	*out = g->earlier;
	out->dropped += g->status.dropped;
	out->full += g->status.full;
	out->bad += g->status.bad + g->status.unknown;
}

static void add_losses(const struct cupti *g, struct losses *sum)
{
	struct losses one;

	target_losses(g, &one);
	sum->dropped += one.dropped;
	sum->full += one.full;
	sum->bad += one.bad + g->reader.lost;
}

/* Updates the target's REC_GPU. */
static void update_gpu_record(struct target *t)
{
	struct cupti *g = state_of(t)->cupti;
	struct losses lost;

	g->seen = g->seen || gpu_window__ns(&g->window);
	if (g->seen) {
		target_losses(g, &lost);
		gpu__of(t)->seen = true;
		gpu__of(t)->tier = GPU_TIER_CUPTI;
		gpu__of(t)->cupti_ns = g->recorded_ns + gpu_window__ns(&g->window);
		gpu__of(t)->lost = lost.full + lost.dropped + lost.bad + g->reader.lost;
	}
	gpu__of(t)->cupti_version = g->status.cupti_version ?: gpu__of(t)->cupti_version;
	memset(gpu__of(t)->why, 0, sizeof(gpu__of(t)->why));
	snprintf(gpu__of(t)->why, sizeof(gpu__of(t)->why), "%s", g->seen ? "" : g->why);
}

static void emit_cupti_window(struct session *s, struct target *t)
{
	struct rec_gpu_window rec;

	if (!gpu_window__record(&state_of(t)->cupti->window, &rec))
		return;
	rec.pid = t->process.pid;
	rec.index = state_of(t)->cupti->window.index;
	session__emit(s, &rec.hdr);
}

/* Emits a window whose steps were over before stepflame requested it. */
static void emit_missed_window(struct session *s, struct target *t, uint64_t end_ns)
{
	struct rec_gpu_window rec = {
		.hdr = {.type = REC_GPU_WINDOW, .size = sizeof(rec)},
		.pid = t->process.pid,
		.index = state_of(t)->windows++,
		.start_ns = end_ns,
		.end_ns = end_ns,
		.end = GPU_WINDOW_LATE,
	};

	session__emit(s, &rec.hdr);
}

/* ---- windows ---- */

static void stop_window(struct session *s, struct target *t, enum gpu_window_end end)
{
	struct gpu_window *w = &state_of(t)->cupti->window;

	w->end = end;
	w->stopped = true;
	gpu__emit_calls(s, t, false);
	gpu_ring__stop(state_of(t)->cupti->ring);
	state_of(t)->cupti->status.seen = false; /* `seen` was about the start so far */
}

static void refuse_window(struct session *s, struct target *t)
{
	struct cupti *g = state_of(t)->cupti;
	struct gpu_window *w = &g->window;

	w->refused = true;
	w->error = g->status.error;
	explain_status(g);
	stop_window(s, t, g->status.state == GPU_RING_BUSY ? GPU_WINDOW_BUSY : GPU_WINDOW_FAILED);
	log__warn(g->fix, "process %d: %s: stepflame records only its calls%s, not what its GPU does", t->process.pid,
		  g->why, w->by_steps ? " in this window" : "");
}

static void read_status(struct session *s, struct target *t, uint64_t now)
{
	struct cupti *g = state_of(t)->cupti;
	struct gpu_window *w = &g->window;
	struct gpu_ring_status *st = &g->status;

	gpu_ring__status(g->ring, st);
	if (w->refused || !st->begun)
		return;
	if (!w->begun_ns && st->state >= GPU_RING_BUSY)
		return refuse_window(s, t);
	/* Accept the library's times as far as they are plausible. */
	if (!w->begun_ns) {
		w->begun_ns = st->begun_ns > w->requested_ns && st->begun_ns < now ? st->begun_ns : now;
		*g->why = 0;
	}
	if (!w->ended_ns && st->ended_ns > w->begun_ns && st->ended_ns <= now)
		w->ended_ns = st->ended_ns;
}

static void request_window(struct session *s, struct target *t, uint64_t now)
{
	struct cupti *g = state_of(t)->cupti;

	target_losses(g, &g->earlier);
	g->status = (struct gpu_ring_status){0};
	gpu_reader__restart(&g->reader);
	g->window = g->next;
	g->window.by_steps = s->options.gpu_windows;
	g->window.requested_ns = now;
	g->window.index = state_of(t)->windows++;
	gpu__emit_calls(s, t, true); /* readers join activities to these calls */
	gpu_ring__start(g->ring, KINDS, now);
}

/* Marks a window of the schedule as over. */
static void mark_window_over(struct cupti *g, uint32_t scheduled)
{
	g->over_cnt = scheduled + 1;
	if (g->next.scheduled == scheduled)
		g->next = (struct gpu_window){0};
}

/* Closes the window, once all of it was read or stepflame has given up waiting for the rest. */
static void close_window(struct session *s, struct target *t)
{
	struct cupti *g = state_of(t)->cupti;
	struct gpu_window *w = &g->window;

	gpu_reader__finish(&g->reader, s, t, w);
	emit_cupti_window(s, t);
	g->recorded_ns += gpu_window__ns(w);
	g->seen = g->seen || g->recorded_ns;
	g->over = !w->by_steps;
	mark_window_over(g, w->scheduled);
	*w = (struct gpu_window){0};
}

static bool is_gone(const struct target *t)
{
	return t->gone || !process__alive(&t->process);
}

/*
 * Requests, stops or closes a window, according to the schedule and to the state of the process.
 * gone: the process had ended before stepflame last read its ring.
 */
static void advance_window(struct session *s, struct target *t, bool gone, uint64_t now)
{
	struct cupti *g = state_of(t)->cupti;
	struct gpu_window *w = &g->window;

	if (w->requested_ns && g->next.scheduled == w->scheduled && w->by_steps) {
		w->steps_start_ns = g->next.steps_start_ns;
		w->steps_end_ns = g->next.steps_end_ns;
	}
	if (w->requested_ns && !w->stopped && t->gone)
		stop_window(s, t, GPU_WINDOW_EXIT);
	else if (w->requested_ns && !w->stopped && w->steps_end_ns)
		stop_window(s, t, GPU_WINDOW_STEPS);
	if (w->stopped && (g->status.seen || gone))
		close_window(s, t);
	if (w->requested_ns || t->gone || s->window_end_ns)
		return;
	if (s->options.gpu_windows ? g->next.requested_ns && !g->next.steps_end_ns : !g->over)
		request_window(s, t, now);
}

static int snapshot(struct session *s)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		if (state_of(s->targets[i])->cupti && !state_of(s->targets[i])->cupti->window.stopped)
			emit_cupti_window(s, s->targets[i]);
	return s->sink_err;
}

static enum source_windows windows(const struct session *s, const struct target *t)
{
	bool passed = s->options.schedule[OP_REPEAT] && state_of(t)->windows_over >= s->options.schedule[OP_REPEAT] &&
		      !(state_of(t)->cupti && state_of(t)->cupti->window.requested_ns);

	if (!s->options.gpu_windows)
		return WINDOWS_NONE;
	return passed ? WINDOWS_PASSED : WINDOWS_AHEAD;
}

/*
 * Searches for the ring less often than for libraries (every 10 ms), since a program may have
 * thousands of open files.
 */
static void open_ring(const struct session *s, struct target *t, uint64_t now)
{
	struct cupti *g = state_of(t)->cupti;
	int err = gpu_ring__open(t->process.pid, t->process.nspid, &g->ring);

	state_of(t)->had_ring = state_of(t)->had_ring || !err;
	g->look_at_ns = now + (now - t->since_ns < YOUNG_NS ? LOOK_OFTEN_NS : LOOK_NS);
	g->fix = NULL;
	if (err == -EBUSY)
		snprintf(g->why, sizeof(g->why), "another stepflame records its GPU");
	else if (err == -EPROTO)
		snprintf(g->why, sizeof(g->why), "its libstepflame-inject.so is of another version");
	else if (!err)
		snprintf(g->why, sizeof(g->why), "%s",
			 s->options.gpu_windows ? "no window of the schedule has begun"
						: "its libstepflame-inject.so has not answered");
	else {
		snprintf(g->why, sizeof(g->why), "it was started without libstepflame-inject.so: see --inject");
		g->fix = "record --inject -p PID loads it; or start the job by record --gpu cupti -- CMD";
	}
}

/* With --gpu cupti, warns during the recording that GPU activity cannot be recorded. */
static void warn_no_activity(struct session *s, const struct target *t, uint64_t now)
{
	struct cupti *g = state_of(t)->cupti;

	if (g->warned || s->options.gpu != SESSION_GPU_CUPTI || t->gone || !g->why[0])
		return;
	if (!g->driver_ns && process__file(&t->process, "libcuda.so"))
		g->driver_ns = now;
	if (g->ring || !g->driver_ns || now - g->driver_ns < DRIVER_LOADS_NS)
		return;
	g->warned = true;
	log__warn(g->fix, "process %d: %s: stepflame records only its calls, not what its GPU does", t->process.pid,
		  g->why);
}

static void tend_target(struct session *s, struct target *t, uint64_t now)
{
	struct cupti *g = state_of(t)->cupti;
	bool gone = t->gone || (g->window.stopped && is_gone(t));

	if (!g->ring && now >= g->look_at_ns && !t->gone)
		open_ring(s, t, now);
	if (g->ring) {
		if (g->window.requested_ns && !g->window.stopped)
			gpu_ring__live(g->ring, now);
		/*
		 * Reads only during a window: before the first one, the ring may hold records for
		 * an earlier stepflame that was killed.
		 */
		if (g->window.requested_ns) {
			read_status(s, t, now);
			gpu_reader__drain(&g->reader, s, t, g->ring, &g->window);
			/* Before the first flush, or if the ring was full at each, the clock is all there is. */
			g->window.reported_ns = g->reader.told_ns ?: gpu_clock__last_ns(&g->reader.clock);
		}
		advance_window(s, t, gone, now);
		if (t->gone && !g->window.requested_ns)
			release_ring(g); /* the session may outlive thousands of processes */
	}
	update_gpu_record(t);
	warn_no_activity(s, t, now);
}

/* Reads what the ring still holds, and frees the ring: the next program may have another one. */
static void forget(struct session *s, struct target *t)
{
	struct cupti *g = state_of(t)->cupti;

	if (g && g->ring) {
		tend_target(s, t, session__now_ns());
		if (g->window.requested_ns && !g->window.stopped)
			stop_window(s, t, GPU_WINDOW_EXIT);
		if (g->window.requested_ns)
			close_window(s, t);
		add_losses(g, &((struct cupti_session *)session__state(s, SOURCE_CUPTI))->ended);
	}
	free_cupti(g);
	state_of(t)->cupti = NULL;
}

static void on_exec(struct session *s, struct target *t)
{
	forget(s, t);
	target__clear_state(t, SOURCE_GPU); /* its contents came from CUPTI, so they start again */
	state_of(t)->windows_over = 0;
	state_of(t)->had_ring = false;
}

/* At the target's exit, keeps the state: tend reads the ring until the window is closed. */
static void keep_cupti_state(struct session *s, struct target *t)
{
}

static bool keeps(const struct target *t)
{
	return gpu__of(t)->tier == GPU_TIER_CUPTI;
}

static void free_target(struct target *t)
{
	free_cupti(state_of(t)->cupti);
}

static bool is_cupti_on(const struct session *s)
{
	return s->options.gpu == SESSION_GPU_AUTO || s->options.gpu == SESSION_GPU_CUPTI;
}

static bool may_have_ring(const struct target *t)
{
	return t->role != ROLE_WORKER && !(t->gone && !state_of(t)->cupti);
}

static struct cupti *cupti_of(struct target *t)
{
	if (!state_of(t)->cupti)
		state_of(t)->cupti = calloc(1, sizeof(*state_of(t)->cupti));
	return state_of(t)->cupti;
}

/* BPF reports a boundary of the schedule: the warm-up, the first step or the end of a window. */
static bool on_boundary(struct session *s, const struct rec_hdr *record)
{
	const struct rec_gpu_window *rec = (const void *)record;
	struct target *t = targets__find(s, rec->pid);
	struct cupti *g = t && may_have_ring(t) ? cupti_of(t) : NULL;

	if (!g)
		return true;
	if (state_of(t)->windows_over < rec->index + (rec->end_ns != 0))
		state_of(t)->windows_over = rec->index + (rec->end_ns != 0);
	/* The report of that window's end was lost. */
	if (g->window.requested_ns && g->window.by_steps && g->window.scheduled < rec->index && !g->window.steps_end_ns)
		g->window.steps_end_ns = rec->start_ns;
	if (rec->index < g->over_cnt)
		return true;
	/* The previous window has its end, but is not stopped yet. */
	if (g->ring && g->next.requested_ns && g->next.scheduled != rec->index)
		advance_window(s, t, false, session__now_ns());
	if (rec->end_ns && !(g->window.requested_ns && g->window.scheduled == rec->index)) {
		if (state_of(t)->had_ring) /* a process that has ended has none any more */
			emit_missed_window(s, t, rec->end_ns);
		mark_window_over(g, rec->index);
		return true;
	}
	g->next = (struct gpu_window){.scheduled = rec->index,
				      .requested_ns = 1,
				      .steps_start_ns = rec->start_ns,
				      .steps_end_ns = rec->end_ns};
	return true;
}

/* Finds rings, requests and ends windows, and reads records. */
static void tend(struct session *s)
{
	uint64_t now = session__now_ns();

	for (size_t i = 0; is_cupti_on(s) && s->opened && i < s->target_cnt; i++) {
		struct target *t = s->targets[i];

		if (may_have_ring(t) && cupti_of(t))
			tend_target(s, t, now);
	}
}

/* Have all said that they have ended, or are gone? */
static bool all_windows_ended(struct session *s, uint64_t now)
{
	bool ended = true;

	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];

		if (!state_of(t)->cupti || !state_of(t)->cupti->ring)
			continue;
		tend_target(s, t, now);
		ended = ended && !state_of(t)->cupti->window.requested_ns;
	}
	return ended;
}

/* Requests the end of all windows. */
static void stop_windows(struct session *s)
{
	uint64_t now = session__now_ns();

	for (size_t i = 0; i < s->target_cnt; i++) {
		struct cupti *g = state_of(s->targets[i])->cupti;

		if (g && g->ring) {
			tend_target(s, s->targets[i], now);
			if (g->window.requested_ns && !g->window.stopped)
				stop_window(s, s->targets[i],
					    is_gone(s->targets[i]) ? GPU_WINDOW_EXIT : GPU_WINDOW_RECORDING);
		}
	}
}

/* Reads what still arrives, for END_WAIT_NS at most. */
static void end(struct session *s)
{
	uint64_t start = session__now_ns(), now = start;

	while (!all_windows_ended(s, now) && now - start < END_WAIT_NS) {
		poll(NULL, 0, 5);
		now = session__now_ns();
	}
	for (size_t i = 0; i < s->target_cnt; i++) {
		struct cupti *g = state_of(s->targets[i])->cupti;

		if (g && g->window.requested_ns)
			close_window(s, s->targets[i]);
		if (g)
			update_gpu_record(s->targets[i]);
	}
}

static void count(const struct session *s, uint64_t counters[CNT__COUNT])
{
	struct losses lost = ((struct cupti_session *)session__state(s, SOURCE_CUPTI))->ended;

	for (size_t i = 0; i < s->target_cnt; i++)
		if (state_of(s->targets[i])->cupti)
			add_losses(state_of(s->targets[i])->cupti, &lost);
	counters[CNT_GPU_DROPPED] += lost.dropped;
	counters[CNT_GPU_RING_FULL] += lost.full;
	counters[CNT_GPU_BAD] += lost.bad;
}

static int inject_target(struct session *s, struct target *t)
{
	return s->options.inject ? inject__into(s, &t->process) : 0;
}

const struct source source_cupti = {
	.session_bytes = sizeof(struct cupti_session),
	.target_bytes = sizeof(struct cupti_target),
	.records = {{REC_GPU_WINDOW, sizeof(struct rec_gpu_window), on_boundary}},
	.tend = tend,
	.close = stop_windows,
	.end = end,
	.snapshot = snapshot,
	.count = count,
	.attached = inject_target,
	.windows = windows,
	.on_exec = on_exec,
	.on_exit = keep_cupti_state,
	.keeps = keeps,
	.forget = forget,
	.free_target = free_target,
};
