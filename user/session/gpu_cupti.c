// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Windows of CUPTI's in the targets of a session: who is asked for one, when, what became of it, and why there was none. */
#include "user/session/gpu_cupti.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/gpu_records.h"
#include "user/lib/log.h"
#include "user/session/gpu_probes.h"
#include "user/session/gpu_reader.h"
#include "user/session/gpu_ring.h"
#include "user/session/gpu_window.h"
#include "user/session/state.h"

#define KINDS                                                                                                     \
	(1u << GPU_ACTIVITY_KERNEL | 1u << GPU_ACTIVITY_COPY | 1u << GPU_ACTIVITY_SET | 1u << GPU_ACTIVITY_SYNC | \
	 1u << GPU_ACTIVITY_CALL | 1u << GPU_ACTIVITY_OVERHEAD)
/* CUptiResult */
#define CUPTI_NOT_COMPATIBLE          14
#define CUPTI_INSUFFICIENT_PRIVILEGES 35

#define LOOK_NS                       1000000000ULL /* between searches for a ring, */
#define LOOK_OFTEN_NS                 100000000ULL  /* and in a process that began a short time ago */
#define YOUNG_NS                      60000000000ULL
#define END_WAIT_NS                   5000000000ULL
#define DRIVER_LOADS_NS               1000000000ULL /* what CUDA is told to inject, once it is there */

struct gpu_cupti {
	struct gpu_ring *ring; /* NULL: none was found */
	struct gpu_reader reader;
	uint64_t look_at_ns;
	struct gpu_window window; /* that there is, */
	struct gpu_window next;   /* and that the schedule wants, as asked_ns says; its own times alone */
	bool over;                /* without a schedule: its window, */
	uint32_t settled;         /* with one: so many of its windows, the refused ones too */
	bool seen;                /* a window was had */
	uint64_t watched_ns;      /* in those that have ended */
	struct gpu_ring_status status;
	struct gpu_cupti_losses before; /* in windows that have ended */
	char why[96];                   /* no window, or "" */
	const char *fix;                /* of that; static, NULL: none */
	uint64_t driver_ns;             /* when CUDA's driver was seen, which would have loaded the library */
	bool warned;
};

void gpu_cupti__free(struct gpu_cupti *g)
{
	if (!g)
		return;
	gpu_ring__free(g->ring);
	gpu_reader__release(&g->reader);
	free(g);
}

static void say_why(struct gpu_cupti *g)
{
	const struct gpu_ring_status *st = &g->status;
	char *why = g->why;
	size_t size = sizeof(g->why);

	g->fix = NULL;
	if (st->state == GPU_RING_BUSY) {
		snprintf(why, size, "another tool uses CUPTI in it: torch.profiler, or one of NVIDIA's");
		g->fix = "record when that has ended";
	} else if (st->state == GPU_RING_NO_CUPTI)
		snprintf(why, size, "it can open no libcupti: say where one is, STEPFLAME_CUPTI=PATH at its start");
	else if (st->state == GPU_RING_NO_DRIVER)
		snprintf(why, size, "CUDA's driver is not in it");
	else if (st->error == CUPTI_INSUFFICIENT_PRIVILEGES) {
		snprintf(why, size, "the driver lets only root profile (NVreg_RestrictProfilingToAdminUsers)");
		g->fix = "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d/nvidia.conf, then "
			 "reboot; or give the job CAP_SYS_ADMIN";
	} else if (st->error == CUPTI_NOT_COMPATIBLE)
		snprintf(why, size, "its CUPTI has a version, %u, that is not known", st->cupti_version);
	else
		snprintf(why, size, "CUPTI refused, with error %u", st->error);
}

static void losses(const struct gpu_cupti *g, struct gpu_cupti_losses *out)
{
	*out = g->before;
	out->dropped += g->status.dropped;
	out->full += g->status.full;
	out->bad += g->status.bad + g->status.unknown;
}

static void add_losses(const struct gpu_cupti *g, struct gpu_cupti_losses *sum)
{
	struct gpu_cupti_losses one;

	losses(g, &one);
	sum->dropped += one.dropped;
	sum->full += one.full;
	sum->bad += one.bad + g->reader.lost;
}

/* What REC_GPU says. */
static void tell_target(struct target *t)
{
	struct gpu_cupti *g = t->cupti;
	struct gpu_cupti_losses lost;

	g->seen = g->seen || gpu_window__ns(&g->window);
	if (g->seen) {
		losses(g, &lost);
		t->gpu.seen = true;
		t->gpu.tier = GPU_TIER_CUPTI;
		t->gpu.cupti_ns = g->watched_ns + gpu_window__ns(&g->window);
		t->gpu.lost = lost.full + lost.dropped + lost.bad + g->reader.lost;
	}
	t->gpu.cupti_version = g->status.cupti_version ?: t->gpu.cupti_version;
	memset(t->gpu.why, 0, sizeof(t->gpu.why));
	snprintf(t->gpu.why, sizeof(t->gpu.why), "%s", g->seen ? "" : g->why);
}

static void tell_window(struct session *s, struct target *t)
{
	struct rec_gpu_window rec;

	if (!gpu_window__record(&t->cupti->window, &rec))
		return;
	rec.pid = t->process.pid;
	rec.index = t->cupti->window.index;
	session__emit(s, &rec.hdr);
}

/* Its steps came and went before it was asked for. */
static void tell_missed(struct session *s, struct target *t, uint64_t end_ns)
{
	struct rec_gpu_window rec = {
		.hdr = {.type = REC_GPU_WINDOW, .size = sizeof(rec)},
		.pid = t->process.pid,
		.index = t->gpu.windows++,
		.start_ns = end_ns,
		.end_ns = end_ns,
		.end = GPU_WINDOW_LATE,
	};

	session__emit(s, &rec.hdr);
}

/* ---- windows ---- */

static void stop_window(struct session *s, struct target *t, enum gpu_window_end end)
{
	struct gpu_window *w = &t->cupti->window;

	w->end = end;
	w->stopped = true;
	gpu_probes__tell(s, t, false);
	gpu_ring__stop(t->cupti->ring);
	t->cupti->status.seen = false; /* that was the start */
}

static void refuse(struct session *s, struct target *t)
{
	struct gpu_cupti *g = t->cupti;
	struct gpu_window *w = &g->window;

	w->refused = true;
	w->error = g->status.error;
	say_why(g);
	stop_window(s, t, g->status.state == GPU_RING_BUSY ? GPU_WINDOW_BUSY : GPU_WINDOW_FAILED);
	log__warn(g->fix, "process %d: %s: what its GPU does is not recorded%s, only its calls", t->process.pid, g->why,
		  w->by_steps ? " in this window" : "");
}

static void look_at_status(struct session *s, struct target *t, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;
	struct gpu_window *w = &g->window;
	struct gpu_ring_status *st = &g->status;

	gpu_ring__status(g->ring, st);
	if (w->refused || !st->begun)
		return;
	if (!w->begun_ns && st->state >= GPU_RING_BUSY)
		return refuse(s, t);
	/* Its word on times is believed as far as it can be. */
	if (!w->begun_ns) {
		w->begun_ns = st->begun_ns > w->asked_ns && st->begun_ns < now ? st->begun_ns : now;
		*g->why = 0;
	}
	if (!w->ended_ns && st->ended_ns > w->begun_ns && st->ended_ns <= now)
		w->ended_ns = st->ended_ns;
}

static void ask_for_window(struct session *s, struct target *t, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;

	losses(g, &g->before);
	g->status = (struct gpu_ring_status){0};
	gpu_reader__restart(&g->reader);
	g->window = g->next;
	g->window.by_steps = s->options.gpu_windows;
	g->window.asked_ns = now;
	g->window.index = t->gpu.windows++;
	gpu_probes__tell(s, t, true); /* what the GPU does is joined to the calls */
	gpu_ring__start(g->ring, KINDS, now);
}

/* Nothing more becomes of that window of the schedule. */
static void settle_window(struct gpu_cupti *g, uint32_t scheduled)
{
	g->settled = scheduled + 1;
	if (g->next.scheduled == scheduled)
		g->next = (struct gpu_window){0};
}

/* All of it is in the ring, and was read. */
static void close_window(struct session *s, struct target *t)
{
	struct gpu_cupti *g = t->cupti;
	struct gpu_window *w = &g->window;

	gpu_reader__finish(&g->reader, s, t, w);
	tell_window(s, t);
	g->watched_ns += gpu_window__ns(w);
	g->seen = g->seen || g->watched_ns;
	g->over = !w->by_steps;
	settle_window(g, w->scheduled);
	*w = (struct gpu_window){0};
}

static bool is_gone(const struct target *t)
{
	return t->gone || !process__alive(&t->process);
}

/* By the schedule, and by what became of the process; `gone`: before its ring was last read. */
static void steer(struct session *s, struct target *t, bool gone, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;
	struct gpu_window *w = &g->window;

	if (w->asked_ns && g->next.scheduled == w->scheduled && w->by_steps) {
		w->steps_ns = g->next.steps_ns;
		w->until_ns = g->next.until_ns;
	}
	if (w->asked_ns && !w->stopped && t->gone)
		stop_window(s, t, GPU_WINDOW_EXIT);
	else if (w->asked_ns && !w->stopped && w->until_ns)
		stop_window(s, t, GPU_WINDOW_STEPS);
	if (w->stopped && (g->status.seen || gone))
		close_window(s, t);
	if (w->asked_ns || t->gone || s->window_end_ns)
		return;
	if (s->options.gpu_windows ? g->next.asked_ns && !g->next.until_ns : !g->over)
		ask_for_window(s, t, now);
}

void gpu_cupti__snapshot(struct session *s)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->cupti && !s->targets[i]->cupti->window.stopped)
			tell_window(s, s->targets[i]);
}

bool gpu_cupti__done(const struct session *s, const struct target *t)
{
	return s->options.schedule[OP_REPEAT] && t->gpu.windows_over >= s->options.schedule[OP_REPEAT] &&
	       !(t->cupti && t->cupti->window.asked_ns);
}

/* Not every 10 ms, which looking for libraries may take: a program may have thousands of open files. */
static void open_ring(const struct session *s, struct target *t, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;
	int err = gpu_ring__open(t->process.pid, t->process.nspid, &g->ring);

	g->look_at_ns = now + (now - t->since_ns < YOUNG_NS ? LOOK_OFTEN_NS : LOOK_NS);
	g->fix = NULL;
	if (err == -EBUSY)
		snprintf(g->why, sizeof(g->why), "another stepflame watches its GPU");
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

/* --gpu cupti asks for what cannot be had: that is to be known before the recording has ended. */
static void warn(struct session *s, const struct target *t, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;

	if (g->warned || s->options.gpu != SESSION_GPU_CUPTI || t->gone || !g->why[0])
		return;
	if (!g->driver_ns && process__file(&t->process, "libcuda.so"))
		g->driver_ns = now;
	if (g->ring || !g->driver_ns || now - g->driver_ns < DRIVER_LOADS_NS)
		return;
	g->warned = true;
	log__warn(g->fix, "process %d: %s: what its GPU does is not recorded, only its calls", t->process.pid, g->why);
}

static void tend_target(struct session *s, struct target *t, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;
	bool gone = t->gone || (g->window.stopped && is_gone(t));

	if (!g->ring && now >= g->look_at_ns && !t->gone)
		open_ring(s, t, now);
	if (g->ring) {
		if (g->window.asked_ns && !g->window.stopped)
			gpu_ring__live(g->ring, now);
		/* What is there before our first window was left by a stepflame that was killed. */
		if (g->window.asked_ns) {
			look_at_status(s, t, now);
			gpu_reader__drain(&g->reader, s, t, g->ring, &g->window);
			g->window.told_ns = gpu_clock__last_ns(&g->reader.clock);
		}
		steer(s, t, gone, now);
	}
	tell_target(t);
	warn(s, t, now);
}

void gpu_cupti__forget(struct session *s, struct target *t)
{
	struct gpu_cupti *g = t->cupti;

	if (g && g->ring) {
		tend_target(s, t, session__now_ns());
		if (g->window.asked_ns && !g->window.stopped)
			stop_window(s, t, GPU_WINDOW_EXIT);
		if (g->window.asked_ns)
			close_window(s, t);
		add_losses(g, &s->gpu_lost);
	}
	gpu_cupti__free(g);
	t->cupti = NULL;
}

static bool is_on(const struct session *s)
{
	return s->options.gpu == SESSION_GPU_AUTO || s->options.gpu == SESSION_GPU_CUPTI;
}

static bool is_for_us(const struct target *t)
{
	return t->role != ROLE_WORKER && !(t->gone && !t->cupti);
}

static struct gpu_cupti *state_of(struct target *t)
{
	if (!t->cupti)
		t->cupti = calloc(1, sizeof(*t->cupti));
	return t->cupti;
}

void gpu_cupti__boundary(struct session *s, const struct rec_gpu_window *rec)
{
	struct target *t = targets__find(s, rec->pid);
	struct gpu_cupti *g = t && is_for_us(t) ? state_of(t) : NULL;

	if (!g)
		return;
	if (t->gpu.windows_over < rec->index + (rec->end_ns != 0))
		t->gpu.windows_over = rec->index + (rec->end_ns != 0);
	/* The word of that one's end was lost. */
	if (g->window.asked_ns && g->window.by_steps && g->window.scheduled < rec->index && !g->window.until_ns)
		g->window.until_ns = rec->start_ns;
	if (rec->index < g->settled)
		return;
	/* That before is not over yet, and has seen its end. */
	if (g->ring && g->next.asked_ns && g->next.scheduled != rec->index)
		steer(s, t, false, session__now_ns());
	if (rec->end_ns && !(g->window.asked_ns && g->window.scheduled == rec->index)) {
		if (g->ring)
			tell_missed(s, t, rec->end_ns);
		settle_window(g, rec->index);
		return;
	}
	g->next = (struct gpu_window){
		.scheduled = rec->index, .asked_ns = 1, .steps_ns = rec->start_ns, .until_ns = rec->end_ns};
}

void gpu_cupti__tend(struct session *s)
{
	uint64_t now = session__now_ns();

	for (size_t i = 0; is_on(s) && s->opened && i < s->target_cnt; i++) {
		struct target *t = s->targets[i];

		if (is_for_us(t) && state_of(t))
			tend_target(s, t, now);
	}
}

/* Have all said that they have ended, or are gone? */
static bool all_ended(struct session *s, uint64_t now)
{
	bool ended = true;

	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];

		if (!t->cupti || !t->cupti->ring)
			continue;
		tend_target(s, t, now);
		ended = ended && !t->cupti->window.asked_ns;
	}
	return ended;
}

void gpu_cupti__stop(struct session *s)
{
	uint64_t now = session__now_ns();

	for (size_t i = 0; i < s->target_cnt; i++) {
		struct gpu_cupti *g = s->targets[i]->cupti;

		if (g && g->ring) {
			tend_target(s, s->targets[i], now);
			if (g->window.asked_ns && !g->window.stopped)
				stop_window(s, s->targets[i],
					    is_gone(s->targets[i]) ? GPU_WINDOW_EXIT : GPU_WINDOW_RECORDING);
		}
	}
}

void gpu_cupti__close(struct session *s)
{
	uint64_t start = session__now_ns(), now = start;

	while (!all_ended(s, now) && now - start < END_WAIT_NS) {
		poll(NULL, 0, 5);
		now = session__now_ns();
	}
	for (size_t i = 0; i < s->target_cnt; i++) {
		struct gpu_cupti *g = s->targets[i]->cupti;

		if (g && g->window.asked_ns)
			close_window(s, s->targets[i]);
		if (g)
			tell_target(s->targets[i]);
	}
}

void gpu_cupti__losses(const struct session *s, struct gpu_cupti_losses *out)
{
	*out = s->gpu_lost;
	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->cupti)
			add_losses(s->targets[i]->cupti, out);
}
