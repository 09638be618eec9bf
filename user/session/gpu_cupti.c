// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Windows of CUPTI's in the targets of a session. In: the rings of their injection libraries. Out: records, with times of
 * CLOCK_MONOTONIC and threads as we number them.
 */
#include "gpu_cupti.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../include/gpu_records.h"
#include "../log.h"
#include "../target/task.h"
#include "gpu_clock.h"
#include "gpu_probes.h"
#include "gpu_ring.h"
#include "state.h"

#define KINDS                                                                                                     \
	(1u << GPU_ACTIVITY_KERNEL | 1u << GPU_ACTIVITY_COPY | 1u << GPU_ACTIVITY_SET | 1u << GPU_ACTIVITY_SYNC | \
	 1u << GPU_ACTIVITY_CALL | 1u << GPU_ACTIVITY_OVERHEAD)
/* CUptiResult */
#define CUPTI_NOT_COMPATIBLE          14
#define CUPTI_INSUFFICIENT_PRIVILEGES 35

#define LOOK_NS                       1000000000ULL /* between searches for a ring */
#define THREADS_NS                    200000000ULL  /* between readings of the list of threads */
#define END_WAIT_NS                   5000000000ULL
#define NAMES_MAX                     65536
#define PENDING_MAX                   65536
#define READ_MAX                      1000000 /* records in one go */
#define DEVICES_MAX                   64

struct pending {
	size_t cnt, capacity;
	struct gpu_ring_activity *items; /* owned */
};

struct gpu_cupti {
	struct gpu_ring *ring; /* NULL: none was found */
	struct gpu_clock clock;
	uint64_t look_at_ns;
	uint64_t start_ns, begun_ns, end_ns; /* of the window: asked for, seen to begin, ended; 0: not yet */
	bool broken;                         /* no window can be had */
	uint64_t *names;                     /* REC_NAME ids, by that of the ring; owned */
	uint32_t names_cnt;
	struct pending pending; /* activities that ended after the last pair of readings */
	pid_t *tids, *nstids;   /* owned */
	int tid_cnt;
	uint64_t tids_ns;
	uint32_t device_cnt;
	uint64_t lost; /* in reading */
	struct gpu_ring_status status;
	char why[96]; /* no window, or "" */
};

void gpu_cupti__free(struct gpu_cupti *g)
{
	if (!g)
		return;
	gpu_ring__free(g->ring);
	free(g->names);
	free(g->pending.items);
	free(g->tids);
	free(g->nstids);
	free(g);
}

static void read_threads(struct gpu_cupti *g, pid_t pid, uint64_t now)
{
	pid_t *nstids;
	int cnt;

	g->tids_ns = now;
	free(g->tids);
	g->tids = NULL;
	g->tid_cnt = 0;
	cnt = task__list(pid, &g->tids);
	nstids = cnt > 0 ? reallocarray(g->nstids, cnt, sizeof(*nstids)) : NULL;
	if (!nstids)
		return;
	g->nstids = nstids;
	g->tid_cnt = cnt;
	for (int i = 0; i < cnt; i++) {
		struct task task;

		g->nstids[i] = task__read(pid, g->tids[i], &task) ? 0 : task.nstid;
	}
}

/* A thread as we number it; 0: not known. */
static pid_t translate_tid(struct gpu_cupti *g, const struct process *process, uint32_t tid, uint64_t now)
{
	if (process->nspid == process->pid)
		return tid < 1u << REC_PID_BITS ? tid : 0;
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < g->tid_cnt; i++)
			if (g->nstids[i] == (pid_t)tid)
				return g->tids[i];
		if (turn || now - g->tids_ns < THREADS_NS)
			break;
		read_threads(g, process->pid, now);
	}
	return 0;
}

static void add_name(struct session *s, struct gpu_cupti *g, const struct gpu_ring_name *rec)
{
	if (rec->id >= NAMES_MAX)
		return;
	if (rec->id >= g->names_cnt) {
		uint32_t cnt = 2 * rec->id + 64;
		uint64_t *names = reallocarray(g->names, cnt, sizeof(*names));

		if (!names)
			return;
		memset(names + g->names_cnt, 0, (cnt - g->names_cnt) * sizeof(*names));
		g->names = names;
		g->names_cnt = cnt;
	}
	g->names[rec->id] = session__emit_name(s, rec->text);
}

static void add_device(struct session *s, struct gpu_cupti *g, const struct target *t,
		       const struct gpu_ring_device *rec)
{
	struct rec_gpu_device out = {
		.hdr = {.type = REC_GPU_DEVICE, .size = sizeof(out)},
		.pid = t->process.pid,
		.device = rec->device,
		.memory_bytes = rec->memory_bytes,
		.multiprocessors = rec->multiprocessors,
		.compute = (rec->compute_major & 0xffff) << 16 | (rec->compute_minor & 0xffff),
	};

	if (g->device_cnt++ >= DEVICES_MAX) {
		g->lost++;
		return;
	}
	memcpy(out.name, rec->name, sizeof(out.name));
	session__emit(s, &out.hdr);
}

static void emit(struct session *s, struct gpu_cupti *g, const struct target *t, const struct gpu_ring_activity *rec,
		 uint64_t now)
{
	struct rec_gpu_activity out = {
		.hdr = {.type = REC_GPU_ACTIVITY, .size = sizeof(out)},
		.name = rec->name < g->names_cnt ? g->names[rec->name] : 0,
		.bytes = rec->bytes,
		.pid = t->process.pid,
		.correlation = rec->correlation,
		.kind = rec->kind,
		.direction = rec->direction,
		.device = rec->device,
		.context = rec->context,
		.stream = rec->stream,
	};
	uint64_t start_ns, end_ns;

	/* Without an end it was cut off by the window's, and without a time nothing can be said of it. */
	if (!rec->start_ns || !rec->end_ns || !gpu_clock__translate(&g->clock, rec->start_ns, &start_ns) ||
	    !gpu_clock__translate(&g->clock, rec->end_ns, &end_ns) || end_ns < start_ns || end_ns > now) {
		g->lost++;
		return;
	}
	out.start_ns = start_ns;
	out.duration_ns = end_ns - start_ns;
	memcpy(out.detail, rec->words, sizeof(out.detail));
	if (rec->kind == GPU_ACTIVITY_CALL) {
		out.tid = translate_tid(g, &t->process, rec->call.tid, now);
		out.detail[0] = 0;
	}
	session__emit(s, &out.hdr);
}

/* Those that ended before the last pair of readings; at the end all. */
static void emit_pending(struct session *s, struct gpu_cupti *g, const struct target *t, bool all)
{
	uint64_t until = gpu_clock__last(&g->clock), now = session__now_ns();
	size_t kept = 0;

	for (size_t i = 0; i < g->pending.cnt; i++)
		if (all || g->pending.items[i].end_ns <= until)
			emit(s, g, t, &g->pending.items[i], now);
		else
			g->pending.items[kept++] = g->pending.items[i];
	g->pending.cnt = kept;
}

static void add_activity(struct session *s, struct gpu_cupti *g, const struct target *t,
			 const struct gpu_ring_activity *rec)
{
	struct pending *p = &g->pending;

	if (p->cnt == p->capacity) {
		size_t capacity = 2 * p->capacity + 256;
		struct gpu_ring_activity *items =
			p->cnt < PENDING_MAX ? reallocarray(p->items, capacity, sizeof(*items)) : NULL;

		if (!items)
			emit_pending(s, g, t, true);
		p->items = items ?: p->items;
		p->capacity = items ? capacity : p->capacity;
	}
	if (p->cnt < p->capacity)
		p->items[p->cnt++] = *rec;
	else
		g->lost++;
}

static void drain(struct session *s, struct target *t)
{
	struct gpu_cupti *g = t->cupti;
	union gpu_ring_record rec;

	for (int i = 0; i < READ_MAX && gpu_ring__next(g->ring, &rec); i++)
		switch (rec.hdr.type) {
		case GPU_RING_NAME_TEXT:
			add_name(s, g, &rec.name);
			break;
		case GPU_RING_ACTIVITY:
			add_activity(s, g, t, &rec.activity);
			break;
		case GPU_RING_DEVICE:
			add_device(s, g, t, &rec.device);
			break;
		default:
			if (gpu_clock__add(&g->clock, &rec.clock, g->start_ns, session__now_ns()))
				emit_pending(s, g, t, false);
			else
				g->lost++;
		}
}

static void say_why(struct gpu_cupti *g)
{
	const struct gpu_ring_status *st = &g->status;
	char *why = g->why;
	size_t size = sizeof(g->why);

	if (st->state == GPU_RING_BUSY)
		snprintf(why, size, "another tool uses CUPTI in it: torch.profiler, or one of NVIDIA's");
	else if (st->state == GPU_RING_NO_CUPTI)
		snprintf(why, size, "it can open no libcupti: say where one is, STEPFLAME_CUPTI=PATH at its start");
	else if (st->state == GPU_RING_NO_DRIVER)
		snprintf(why, size, "CUDA's driver is not in it");
	else if (st->error == CUPTI_INSUFFICIENT_PRIVILEGES)
		snprintf(why, size, "the driver lets only root profile (NVreg_RestrictProfilingToAdminUsers)");
	else if (st->error == CUPTI_NOT_COMPATIBLE)
		snprintf(why, size, "its CUPTI has a version, %u, that is not known", st->cupti_version);
	else
		snprintf(why, size, "CUPTI refused, with error %u", st->error);
}

/* What REC_GPU says. */
static void tell_target(struct target *t, uint64_t now)
{
	const struct gpu_cupti *g = t->cupti;

	if (g->begun_ns) {
		t->gpu.seen = true;
		t->gpu.tier = GPU_TIER_CUPTI;
		t->gpu.cupti_ns = (g->end_ns ?: now) - g->begun_ns;
		t->gpu.lost = g->status.full + g->status.dropped + g->status.unknown + g->status.bad + g->lost;
	}
	t->gpu.cupti_version = g->status.cupti_version;
	memset(t->gpu.why, 0, sizeof(t->gpu.why));
	snprintf(t->gpu.why, sizeof(t->gpu.why), "%s", g->why);
}

static void look_at_status(struct session *s, struct target *t, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;
	struct gpu_ring_status *st = &g->status;

	gpu_ring__status(g->ring, st);
	if (g->broken || g->begun_ns || !st->begun)
		return;
	if (st->state >= GPU_RING_BUSY) {
		g->broken = true;
		gpu_probes__tell(s, t, false);
		say_why(g);
		log__warn(NULL, "process %d: %s: what its GPU does is not recorded, only its calls", t->process.pid,
			  g->why);
		return;
	}
	g->begun_ns = now;
	*g->why = 0;
}

/* Not every 10 ms, which looking for libraries may take: a program may have thousands of open files. */
static void open_ring(struct session *s, struct target *t, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;
	int err = gpu_ring__open(t->process.pid, t->process.nspid, &g->ring);

	g->look_at_ns = now + LOOK_NS;
	if (err == -EBUSY)
		snprintf(g->why, sizeof(g->why), "another stepflame watches its GPU");
	else if (err == -EPROTO)
		snprintf(g->why, sizeof(g->why), "its libstepflame-inject.so is of another version");
	else if (err)
		snprintf(g->why, sizeof(g->why), "it was started without libstepflame-inject.so: see --inject");
	else
		snprintf(g->why, sizeof(g->why), "its libstepflame-inject.so has not answered");
	if (g->ring) {
		g->start_ns = now;
		gpu_probes__tell(s, t, true); /* what the GPU does is joined to the calls */
		gpu_ring__start(g->ring, KINDS, now);
	}
}

static void tend(struct session *s, struct target *t, uint64_t now)
{
	struct gpu_cupti *g = t->cupti;

	if (!g->ring && now >= g->look_at_ns && !t->gone)
		open_ring(s, t, now);
	if (g->ring) {
		if (!g->end_ns)
			gpu_ring__live(g->ring, now);
		drain(s, t);
		look_at_status(s, t, now);
	}
	tell_target(t, now);
}

void gpu_cupti__forget(struct session *s, struct target *t)
{
	if (t->cupti && t->cupti->ring) {
		tend(s, t, session__now_ns());
		emit_pending(s, t->cupti, t, true);
	}
	gpu_cupti__free(t->cupti);
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

void gpu_cupti__tend(struct session *s)
{
	uint64_t now = session__now_ns();

	for (size_t i = 0; is_on(s) && s->opened && i < s->target_cnt; i++) {
		struct target *t = s->targets[i];

		if (!is_for_us(t))
			continue;
		if (!t->cupti)
			t->cupti = calloc(1, sizeof(*t->cupti));
		if (t->cupti)
			tend(s, t, now);
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
		tend(s, t, now);
		ended = ended && (t->cupti->status.seen || t->gone || !process__alive(&t->process));
	}
	return ended;
}

void gpu_cupti__stop(struct session *s)
{
	uint64_t now = session__now_ns();

	for (size_t i = 0; i < s->target_cnt; i++) {
		struct gpu_cupti *g = s->targets[i]->cupti;

		if (g && g->ring) {
			tend(s, s->targets[i], now);
			g->end_ns = now;
			gpu_probes__tell(s, s->targets[i], false);
			gpu_ring__stop(g->ring);
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

		if (!g || !g->ring)
			continue;
		tend(s, s->targets[i], now);
		emit_pending(s, g, s->targets[i], true);
		tell_target(s->targets[i], now);
	}
}

void gpu_cupti__losses(const struct session *s, struct gpu_cupti_losses *out)
{
	*out = (struct gpu_cupti_losses){0};
	for (size_t i = 0; i < s->target_cnt; i++) {
		const struct gpu_cupti *g = s->targets[i]->cupti;

		if (!g)
			continue;
		out->dropped += g->status.dropped;
		out->full += g->status.full;
		out->bad += g->status.bad + g->status.unknown + g->lost;
	}
}
