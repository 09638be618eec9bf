// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What threads wait on that wait as for a lock, or in a call on names of files: REC_AWAITED. A
 * queue.SimpleQueue waits in C, and looks like a lock; the kernel's cause does not tell a server from
 * a disk, or has none. stepflame looks at such threads from outside while they wait, a few times a
 * second at first, until it has met the places where they do. No probe: the job pays nothing for it.
 */
#include "user/session/sources/awaited.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/name_hash.h"
#include "include/wait_records.h"
#include "user/lib/map.h"
#include "user/proc/far_files.h"
#include "user/proc/proc.h"
#include "user/proc/task.h"
#include "user/runtime/python/pyawaited.h"
#include "user/runtime/python/pythread.h"

#define LOOK_NS     250000000ull
#define LEAST_NS    500000 /* of a wait: shorter ones are rarely met */
#define THREADS_MAX 8      /* that are looked at */
#define LOOKS_MAX   100    /* at each of them, */
#define LOOK_AGAIN  4      /* of which one at a place that is known counts as so many */
#define DONE_MAX    4096   /* threads that need no more looks */
#define PLACES_MAX  256
#define MOUNTS_NS   10000000000ull /* for how long the mounts of a process count */
#define MOUNTS_MAX  (1u << 20)     /* bytes */

struct asked {
	pid_t pid, tid;
	uint32_t looks;
	uint64_t runs;          /* of the wait that was looked at last: the same wait says nothing new */
	struct py_thread state; /* without tstate: not known yet */
	struct py_awaited last; /* of AWAITED_ACQUIRE, with its lock; lock 0: none yet */
};

/* Session state. */
struct awaited {
	uint64_t next_ns;
	struct asked threads[THREADS_MAX];
	size_t cnt;
	struct map done;   /* {pid, tid}: those that had their looks */
	struct map places; /* {pid, code address, offset, kind, name}: those that were emitted */
	char *mounts;      /* of that process, as of then; NULL: not known */
	pid_t mounts_pid;
	uint64_t mounts_ns;
};

static struct awaited *state_of(const struct session *s)
{
	return session__state(s, SOURCE_AWAITED);
}

static uint64_t thread_key(pid_t pid, pid_t tid)
{
	return (uint64_t)(uint32_t)pid << 32 | (uint32_t)tid;
}

/* A place for one more thread, or that of one which needs no more looks. NULL: all need some. */
static struct asked *find_place(struct awaited *own)
{
	uint64_t key;

	if (own->cnt < THREADS_MAX)
		return &own->threads[own->cnt++];
	for (size_t i = 0; i < own->cnt; i++) {
		if (own->threads[i].looks < LOOKS_MAX)
			continue;
		if (own->done.items.cnt >= DONE_MAX)
			map__free(&own->done);
		key = thread_key(own->threads[i].pid, own->threads[i].tid);
		map__add(&own->done, &key, sizeof(key), sizeof(key));
		return &own->threads[i];
	}
	return NULL;
}

void awaited__note(struct session *s, const struct rec_sample *sample)
{
	const uint64_t key = thread_key(sample->pid, sample->tid);
	struct awaited *own = state_of(s);
	struct asked *place;

	/* A thread without a stack runs no Python, which alone says what it waits on. */
	if (sample->kind != SAMPLE_WAIT || !sample->waits || !sample->stack ||
	    (sample->cause != CAUSE_LOCK && !far_files__is_call(sample->syscall)) ||
	    sample->weight_ns / sample->waits < LEAST_NS || s->options.live_ns)
		return;
	for (size_t i = 0; i < own->cnt; i++)
		if (thread_key(own->threads[i].pid, own->threads[i].tid) == key)
			return;
	place = map__find(&own->done, &key, sizeof(key), sizeof(key)) ? NULL : find_place(own);
	if (place)
		*place = (struct asked){.pid = sample->pid, .tid = sample->tid};
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
static bool is_new(struct awaited *own, pid_t pid, const struct py_awaited *at, uint64_t name)
{
	const uint64_t key[] = {(uint32_t)pid, at->code, (uint64_t)at->on << 32 | at->offset, name};

	if (map__find(&own->places, key, sizeof(key), sizeof(key)) || own->places.items.cnt >= PLACES_MAX)
		return false;
	return map__add(&own->places, key, sizeof(key), sizeof(key));
}

/* far: the name of the file system of AWAITED_FILES; "": none. false: it was emitted before. */
static bool emit(struct session *s, const struct target *t, const struct py_awaited *at, const char *far)
{
	struct rec_awaited rec = {.hdr = {.type = REC_AWAITED, .size = sizeof(rec)},
				  .pid = t->process.pid,
				  .offset = at->offset,
				  .on = at->on};
	uint32_t first_line;
	char *file, *name;

	if (!is_new(state_of(s), t->process.pid, at, *far ? session__name_id(far) : 0) ||
	    py_awaited__name(t->process.pid, &t->python.process, at->code, &file, &name, &first_line))
		return false;
	rec.code = name_hash__end(
		name_hash__add(name_hash__add(session__name_id(file), session__name_id(name)), first_line));
	rec.name = *far ? session__emit_name(s, far) : 0;
	session__emit(s, &rec.hdr);
	free(file);
	free(name);
	return true;
}

static const char *mounts_of(struct awaited *own, pid_t pid)
{
	uint64_t now = session__now_ns();
	char path[64];
	size_t size;

	if (own->mounts_pid == pid && now < own->mounts_ns + MOUNTS_NS)
		return own->mounts;
	free(own->mounts);
	own->mounts_pid = pid;
	own->mounts_ns = now;
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	if (proc__slurp_path(path, MOUNTS_MAX, &own->mounts, &size)) {
		own->mounts = NULL;
	} else if (size == MOUNTS_MAX) { /* the mount that counts may be one that was cut off */
		free(own->mounts);
		own->mounts = NULL;
	}
	return own->mounts;
}

/* Does it wait for the other end of a named pipe? */
static bool is_at_pipe(const struct asked *asked)
{
	size_t size;
	char *text;
	bool is_pipe;

	if (proc__slurp(asked->pid, asked->tid, "wchan", &text, &size))
		return true; /* not known */
	is_pipe = strstr(text, "fifo") || !strncmp(text, "wait_for_partner", 16);
	free(text);
	return is_pipe;
}

/* Sets what it waits on, where that is a call on names of files. */
static void look_at_files(struct awaited *own, const struct asked *asked, const struct task *task,
			  struct py_awaited *at, char far[FAR_FILES_BYTES])
{
	const char *mounts = mounts_of(own, asked->pid);

	at->on = AWAITED_OTHER;
	if (mounts && !is_at_pipe(asked) && !far_files__of(asked->pid, task, mounts, far))
		at->on = AWAITED_FILES;
	else
		*far = 0;
}

/*
 * Sets what it waits on, at the place that `at` has. false: on neither a lock nor names of files, which says nothing of that
 * place: a function of C makes calls of several kinds, and waits for the GIL between them.
 */
static bool look_at_call(struct awaited *own, const struct target *t, const struct asked *asked, struct py_awaited *at,
			 char far[FAR_FILES_BYTES])
{
	struct task task;

	if (task__read_call(asked->pid, asked->tid, &task))
		return false;
	if (far_files__is_call(task.syscall)) {
		look_at_files(own, asked, &task, at, far);
		return true;
	}
	return task__cause(asked->pid, &task, &t->python.process) == CAUSE_LOCK;
}

/* A lock that two threads take is one that they hold in turn, and no signal from one to the other. */
static void compare_locks(struct session *s, const struct target *t, const struct asked *asked)
{
	struct awaited *own = state_of(s);

	for (size_t i = 0; i < own->cnt; i++) {
		struct asked *other = &own->threads[i];

		if (other == asked || other->pid != asked->pid || other->last.lock != asked->last.lock)
			continue;
		for (int both = 0; both < 2; both++) {
			struct py_awaited at = both ? asked->last : other->last;

			at.on = AWAITED_OTHER;
			emit(s, t, &at, "");
		}
	}
}

static void look_at(struct session *s, struct asked *asked)
{
	const struct target *t = targets__find(s, asked->pid);
	char far[FAR_FILES_BYTES] = "";
	struct py_awaited at;
	uint64_t runs = 0, after;
	pid_t nstid;
	int err;

	asked->looks++;
	if (!t || !t->has_python || t->gone) {
		asked->looks = LOOKS_MAX;
		return;
	}
	err = task__waits(asked->pid, asked->tid, &nstid, &runs);
	if (err == -EAGAIN || (!err && runs == asked->runs)) /* it runs; or it still waits */
		return;
	asked->runs = runs;
	err = err ?: find_state(t, asked, nstid);
	if (err) {
		asked->looks = LOOKS_MAX;
		return;
	}
	if (py_awaited__read(asked->pid, &t->python.process, asked->state.tstate, &at))
		return;
	if (!look_at_call(state_of(s), t, asked, &at, far))
		return;
	if (task__runs(asked->pid, asked->tid, &after) || runs != after)
		return;
	if (!emit(s, t, &at, far))
		asked->looks += LOOK_AGAIN - 1;
	if (at.on == AWAITED_ACQUIRE && at.lock) {
		asked->last = at;
		compare_locks(s, t, asked);
	}
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
	map__free(&state_of(s)->done);
	map__free(&state_of(s)->places);
	free(state_of(s)->mounts);
}

const struct source source_awaited = {
	.session_bytes = sizeof(struct awaited),
	.tend = tend,
	.free = free_state,
};
