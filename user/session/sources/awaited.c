// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What threads wait on that wait as for a lock: REC_AWAITED. A queue.SimpleQueue waits in C, and
 * looks like one. stepflame looks at such threads from outside while they wait, a few times a
 * second at first, until it has met the places where they do. No probe: the job pays nothing for it.
 */
#include "user/session/sources/awaited.h"

#include <errno.h>
#include <stdlib.h>

#include "include/name_hash.h"
#include "include/wait_records.h"
#include "user/lib/map.h"
#include "user/proc/task.h"
#include "user/runtime/python/pyawaited.h"
#include "user/runtime/python/pythread.h"

#define LOOK_NS     250000000ull
#define LEAST_NS    500000 /* of a wait: shorter ones are rarely met */
#define THREADS_MAX 16     /* that are looked at */
#define LOOKS_MAX   60     /* at each of them */
#define PLACES_MAX  256

struct asked {
	pid_t pid, tid;
	uint32_t looks;
	struct py_thread state; /* without tstate: not known yet */
};

/* Session state. */
struct awaited {
	uint64_t next_ns;
	struct asked threads[THREADS_MAX];
	size_t cnt;
	struct map places; /* {pid, code address, offset, kind}: those that were emitted */
};

static struct awaited *state_of(const struct session *s)
{
	return session__state(s, SOURCE_AWAITED);
}

void awaited__note(struct session *s, const struct rec_sample *sample)
{
	struct awaited *own = state_of(s);

	if (sample->kind != SAMPLE_WAIT || sample->cause != CAUSE_LOCK || !sample->waits ||
	    sample->weight_ns / sample->waits < LEAST_NS || own->cnt == THREADS_MAX || s->options.live_ns)
		return;
	for (size_t i = 0; i < own->cnt; i++)
		if (own->threads[i].tid == (pid_t)sample->tid)
			return;
	own->threads[own->cnt++] = (struct asked){.pid = sample->pid, .tid = sample->tid};
}

/* 0 or -errno. */
static int find_state(const struct target *t, struct asked *asked, pid_t nstid)
{
	struct py_thread *states, *state;
	int cnt;

	if (asked->state.tstate)
		return py_thread__of(asked->pid, nstid, t->python.process.tss_offset, &asked->state, 1) ? 0 : -ESRCH;
	cnt = py_thread__list_still(asked->pid, &t->python, &states);
	if (cnt < 0)
		return cnt;
	state = py_thread__of(asked->pid, nstid, t->python.process.tss_offset, states, cnt);
	if (state)
		asked->state = *state;
	free(states);
	return state ? 0 : -ESRCH;
}

/* true: it is a place that has not been emitted. */
static bool is_new(struct awaited *own, pid_t pid, const struct py_awaited *at)
{
	const uint64_t key[] = {(uint32_t)pid, at->code, (uint64_t)at->on << 32 | at->offset};

	if (map__find(&own->places, key, sizeof(key), sizeof(key)) || own->places.items.cnt >= PLACES_MAX)
		return false;
	return map__add(&own->places, key, sizeof(key), sizeof(key));
}

static void emit(struct session *s, const struct target *t, const struct py_awaited *at)
{
	struct rec_awaited rec = {.hdr = {.type = REC_AWAITED, .size = sizeof(rec)},
				  .pid = t->process.pid,
				  .offset = at->offset,
				  .on = at->on};
	uint32_t first_line;
	char *file, *name;

	if (py_awaited__name(t->process.pid, &t->python.process, at->code, &file, &name, &first_line))
		return;
	rec.code = name_hash__end(
		name_hash__add(name_hash__add(session__name_id(file), session__name_id(name)), first_line));
	session__emit(s, &rec.hdr);
	free(file);
	free(name);
}

static void look_at(struct session *s, struct asked *asked)
{
	const struct target *t = targets__find(s, asked->pid);
	struct py_awaited at;
	uint64_t runs, after;
	pid_t nstid;
	int err;

	asked->looks++;
	if (!t || !t->has_python || t->gone) {
		asked->looks = LOOKS_MAX;
		return;
	}
	err = task__waits(asked->pid, asked->tid, &nstid, &runs);
	if (err == -EAGAIN) /* it runs */
		return;
	err = err ?: find_state(t, asked, nstid);
	if (err) {
		asked->looks = LOOKS_MAX;
		return;
	}
	if (!py_awaited__read(asked->pid, &t->python.process, asked->state.tstate, &at) &&
	    !task__waits(asked->pid, asked->tid, &nstid, &after) && runs == after &&
	    is_new(state_of(s), asked->pid, &at))
		emit(s, t, &at);
}

static void tend(struct session *s)
{
	struct awaited *own = state_of(s);
	uint64_t now;

	if (!own->cnt)
		return;
	now = session__now_ns();
	if (now < own->next_ns)
		return;
	own->next_ns = now + LOOK_NS;
	for (size_t i = 0; i < own->cnt; i++)
		if (own->threads[i].looks < LOOKS_MAX)
			look_at(s, &own->threads[i]);
}

static void free_state(struct session *s)
{
	map__free(&state_of(s)->places);
}

const struct source source_awaited = {
	.session_bytes = sizeof(struct awaited),
	.tend = tend,
	.free = free_state,
};
