// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/waits.h"

#include <errno.h>
#include <stdlib.h>

#include "include/waits.h"
#include "user/lib/compare.h"
#include "user/lib/histograms.h"
#include "user/lib/search.h"
#include "user/model/samples.h"

/* ---- other threads ---- */

#define CHAIN_MAX    4       /* threads */
#define SAMPLES_MAX  256     /* of a thread during one wait: the last ones count */
#define AGAIN_NS     1000000 /* later than that, it is not the same wait for the GIL, or for what it awaits for a while */
#define AGAIN_MAX    256     /* waits that end with their time, one behind the other */
#define HALF         0.5     /* of a wait: its cause */
#define PUT_OFF_PART 4       /* the part of a wait for a CPU for which the thread may run before it waits again */

/* What a wait was for. */
struct reason {
	uint32_t waker; /* the thread at the end of the chain, which ran, or of which the cause is; 0: not known */
	uint8_t cause;
	bool passed; /* the cause is that of the waker's waits */
	bool known;
};

struct chain {
	struct samples *samples;
	const struct stacks *stacks;
	struct by_thread by_thread;
	bool *is_python; /* by thread: it runs Python, and so may hold a lock of Python */
	struct histograms
		ended; /* by thread, which waits as for a lock, and waker: how many such waits that one ended */
	struct reason *reasons;      /* by sample */
	uint32_t threads[CHAIN_MAX]; /* that wait for each other, the first one asked for */
};

static int prepare(struct chain *c)
{
	const struct samples *samples = c->samples;

	c->is_python = calloc(samples__thread_end(samples) + 1, sizeof(*c->is_python));
	c->reasons = calloc(samples__cnt(samples) + 1, sizeof(*c->reasons));
	if (!c->is_python || !c->reasons)
		return -ENOMEM;
	for (size_t i = 0; i < samples__cnt(samples); i++) {
		struct sample s = samples__get(samples, i);
		uint32_t waker = samples__waker_of(samples, i);

		c->is_python[s.thread] |=
			stacks__stack(c->stacks, s.stack).cnt != 0; /* a stack that was lost has none */
		if (s.kind == SAMPLE_WAIT && s.cause == CAUSE_LOCK && waker &&
		    histograms__add(&c->ended, s.thread, waker, s.waits))
			return -ENOMEM;
	}
	return by_thread__new(samples, &c->by_thread);
}

/*
 * Two threads that wait for each other's signals end each other's waits; one that holds a lock and does not wait for it
 * gets no such end. (Of a lock that both wait for it is known that it is one: HANDOVER_NONE.)
 */
static bool is_answered(const struct chain *c, uint32_t thread, uint32_t waker)
{
	return histograms__total(&c->ended, waker, thread) >= HALF * histograms__total(&c->ended, thread, waker);
}

/* How long each wait of which the sample is one was; the last of them ended at its time. */
static uint64_t wait_ns(const struct sample *s)
{
	return s->waits > 1 ? s->weight_ns / s->waits : s->weight_ns;
}

static uint64_t wait_begin_ns(const struct sample *s)
{
	return s->time_ns > wait_ns(s) ? s->time_ns - wait_ns(s) : 0;
}

static struct reason reason_of(struct chain *c, size_t index, int depth);

/* A thread that waits for one before it in the chain is idle: nobody waits for that. */
static bool is_in_chain(const struct chain *c, uint32_t thread, int depth)
{
	for (int i = 0; i < depth; i++)
		if (thread && c->threads[i] == thread)
			return true;
	return false;
}

/* What thread c->threads[depth - 1] waited for during a wait of the one before it: time and last waker, by cause. */
static void add_up(struct chain *c, const struct sample *wait, int depth, uint64_t ns[CAUSE__END],
		   uint32_t wakers[CAUSE__END])
{
	uint32_t thread = c->threads[depth - 1];
	uint64_t from_ns = wait_begin_ns(wait);
	size_t at = by_thread__ended(&c->by_thread, thread, from_ns);
	size_t last = by_thread__ended(&c->by_thread, thread, wait->time_ns);

	last += last < by_thread__cnt(&c->by_thread, thread); /* it may have begun before the wait ended */
	if (last - at > SAMPLES_MAX)
		at = last - SAMPLES_MAX;
	for (; at < last; at++) {
		size_t index = by_thread__index(&c->by_thread, thread, at);
		struct sample s = samples__get(c->samples, index);
		uint64_t start_ns = s.weight_ns < s.time_ns ? s.time_ns - s.weight_ns : 0, stop_ns = s.time_ns;
		struct reason reason;

		if (s.kind != SAMPLE_WAIT || is_in_chain(c, samples__waker_of(c->samples, index), depth))
			continue;
		start_ns = start_ns > from_ns ? start_ns : from_ns;
		stop_ns = stop_ns < wait->time_ns ? stop_ns : wait->time_ns;
		if (stop_ns <= start_ns)
			continue;
		reason = reason_of(c, index, depth);
		if (reason.waker && !reason.passed) /* for what the end of the chain did on a CPU */
			reason.cause = CAUSE_THREAD_WAIT;
		ns[reason.cause] += stop_ns - start_ns;
		wakers[reason.cause] = reason.waker;
	}
}

/* Whether the thread waits for another one's work, rather than for a lock that the other one holds. */
static bool is_for_work(const struct chain *c, const struct sample *s, uint32_t waker)
{
	enum handover handover = samples__hands_over(c->samples, s->stack);

	return s->cause != CAUSE_LOCK || handover == HANDOVER_CERTAIN || (waker && !c->is_python[waker]) ||
	       (handover == HANDOVER_PERHAPS && waker && waker != s->thread && is_answered(c, s->thread, waker));
}

static bool is_for_others(unsigned int cause)
{
	return cause == CAUSE_LOCK || cause == CAUSE_PIPE || cause == CAUSE_SOCKET || cause == CAUSE_POLL;
}

/*
 * waker: of the thread that ended the wait; 0: not known. depth: how many threads of the chain wait for the one that made the
 * sample, itself included.
 */
static struct reason find_reason(struct chain *c, size_t index, uint32_t waker, int depth)
{
	struct sample s = samples__get(c->samples, index);
	struct reason reason = {.cause = s.cause};
	uint32_t wakers[CAUSE__END] = {0};
	uint64_t ns[CAUSE__END] = {0};
	unsigned int best = CAUSE_NONE;

	if (!is_for_others(s.cause) || !is_for_work(c, &s, waker))
		return reason;
	if (s.cause == CAUSE_LOCK)
		reason.cause = CAUSE_THREAD_WAIT;
	reason.waker = is_in_chain(c, waker, depth) ? 0 : waker;
	if (!waker || depth == CHAIN_MAX || is_in_chain(c, waker, depth))
		return reason;
	c->threads[depth] = waker;
	add_up(c, &s, depth + 1, ns, wakers);
	for (unsigned int cause = 1; cause < CAUSE__END; cause++)
		if (ns[cause] > ns[best])
			best = cause;
	if (best != CAUSE_NONE && best != CAUSE_UNKNOWN && ns[best] >= HALF * wait_ns(&s))
		reason = (struct reason){.cause = best, .waker = wakers[best] ?: waker, .passed = true};
	return reason;
}

static struct reason reason_of(struct chain *c, size_t index, int depth)
{
	if (!c->reasons[index].known) {
		c->reasons[index] = find_reason(c, index, samples__waker_of(c->samples, index), depth);
		c->reasons[index].known = true;
	}
	return c->reasons[index];
}

/*
 * A thread that asks another one may lose its CPU to that one in the very call, and then goes on only to wait for it: all of
 * that is one wait. Sets what it is for. (Threads without Python, of OpenMP, share the work of the thread that they put off.)
 */
static bool is_put_off(struct chain *c, const struct sample *s, uint32_t thread, size_t at, struct reason *reason)
{
	struct sample next;
	size_t index;
	uint64_t start_ns;

	if (s->cause != CAUSE_RUN_QUEUE || s->ran_pid != s->pid || s->waker_pid || s->syscall < 0 ||
	    at + 1 == by_thread__cnt(&c->by_thread, thread))
		return false;
	index = by_thread__index(&c->by_thread, thread, at + 1);
	next = samples__get(c->samples, index);
	start_ns = wait_begin_ns(&next);
	if (next.kind != SAMPLE_WAIT || next.waker_pid != s->pid || start_ns > s->time_ns + wait_ns(s) / PUT_OFF_PART)
		return false;
	*reason = find_reason(c, index, samples__waker_of(c->samples, index), 1);
	return reason->waker && c->is_python[reason->waker];
}

/*
 * CPython waits for the GIL for 5 ms at a time: only the last of these waits is ended by the thread that had it. The others
 * get the same waker.
 */
static void find_gil_holders(struct chain *c, uint32_t thread)
{
	uint64_t next_ns = 0; /* where the wait behind it began */
	uint32_t holder = 0;

	for (size_t i = by_thread__cnt(&c->by_thread, thread); i-- > 0;) {
		size_t index = by_thread__index(&c->by_thread, thread, i);
		struct sample s = samples__get(c->samples, index);

		if (s.kind != SAMPLE_WAIT || s.cause == CAUSE_RUN_QUEUE)
			continue;
		if (s.cause != CAUSE_GIL)
			holder = 0;
		else if (samples__waker_of(c->samples, index))
			holder = samples__waker_of(c->samples, index);
		else if (next_ns > s.time_ns + AGAIN_NS)
			holder = 0;
		else if (holder && !s.resolved)
			samples__resolve(c->samples, index, CAUSE_GIL, holder, false);
		next_ns = s.time_ns > s.weight_ns ? s.time_ns - s.weight_ns : 0;
	}
}

/*
 * Who asks again and again, each time for a while (queue.get(timeout=...)), waits for the one that ends the last of these waits.
 * at: of the wait among the thread's samples. 0: not known.
 */
static uint32_t find_waker(const struct chain *c, uint32_t thread, size_t at)
{
	size_t index = by_thread__index(&c->by_thread, thread, at), cnt = by_thread__cnt(&c->by_thread, thread);
	struct sample s = samples__get(c->samples, index), next;
	uint32_t waker = samples__waker_of(c->samples, index), stack = s.stack;
	bool asks = s.cause == CAUSE_LOCK && samples__hands_over(c->samples, stack) == HANDOVER_CERTAIN;

	for (size_t i = at + 1; asks && !waker && i < cnt && i <= at + AGAIN_MAX; i++) {
		index = by_thread__index(&c->by_thread, thread, i);
		next = samples__get(c->samples, index);
		if (next.kind != SAMPLE_WAIT || next.cause == CAUSE_RUN_QUEUE)
			continue;
		if (next.stack != stack || wait_begin_ns(&next) > s.time_ns + AGAIN_NS)
			break;
		waker = samples__waker_of(c->samples, index);
		s = next;
	}
	return waker;
}

static void resolve_thread(struct chain *c, uint32_t thread)
{
	c->threads[0] = thread;
	find_gil_holders(c, thread);
	for (size_t i = 0; i < by_thread__cnt(&c->by_thread, thread); i++) {
		size_t index = by_thread__index(&c->by_thread, thread, i);
		struct sample s = samples__get(c->samples, index);
		struct reason reason;

		if (s.kind != SAMPLE_WAIT || s.resolved)
			continue;
		if (!is_put_off(c, &s, thread, i, &reason))
			reason = find_reason(c, index, find_waker(c, thread, i),
					     1); /* not one found while others waited for this thread */
		samples__resolve(c->samples, index, reason.cause, reason.waker, reason.passed);
	}
}

int waits__resolve(struct samples *samples, const struct stacks *stacks,
		   bool (*is_asked)(uint32_t pid, uint32_t tid, void *ctx), void *ctx)
{
	struct chain c = {.samples = samples, .stacks = stacks};
	int err = prepare(&c);

	for (size_t t = 1; t < samples__thread_end(samples) && !err; t++) {
		uint32_t pid, tid;

		samples__thread(samples, t, &pid, &tid);
		if (is_asked(pid, tid, ctx))
			resolve_thread(&c, t);
	}
	by_thread__release(&c.by_thread);
	histograms__free(&c.ended);
	free(c.is_python);
	free(c.reasons);
	return err;
}

/* ---- disks ---- */

#define LEAST_BYTES    65536         /* fewer are a log, or a module that is imported */
#define ONE_SIDED      10            /* so many times as many bytes in one direction as in the other */
#define BLOCK_BYTES    4096          /* the least that an operation of a ring brings from a disk, or to it */
#define READINGS_APART 3000000000ULL /* farther from the wait than that, a reading says nothing of it */

/* What a process read and wrote from before a wait until after it. */
struct traffic {
	uint64_t read_bytes, written_bytes, major_faults;
};

static int compare_reading(const struct rec_resources *reading, uint32_t pid, uint64_t time_ns)
{
	return reading->pid != pid ? COMPARE(reading->pid, pid) : COMPARE(reading->time_ns, time_ns);
}

static uint64_t difference(uint64_t from, uint64_t to)
{
	return to > from ? to - from : 0;
}

/* The readings around a wait: the first behind its begin, and the first at its end or behind. */
static void find_around(const struct rec_resources *readings, size_t cnt, const struct sample *wait, size_t *from,
			size_t *to)
{
	*from = SEARCH(i, 0, cnt, compare_reading(&readings[i], wait->pid, wait_begin_ns(wait)) <= 0);
	*to = SEARCH(i, 0, cnt, compare_reading(&readings[i], wait->pid, wait->time_ns) < 0);
}

/* From the reading before `from` to `to` (find_around). false: it is not known. */
static bool find_traffic(const struct rec_resources *readings, size_t cnt, const struct sample *wait, size_t from,
			 size_t to, struct traffic *out)
{
	const struct rec_resources *first, *last;

	if (!from || to == cnt)
		return false;
	first = &readings[from - 1];
	last = &readings[to];
	if (first->pid != wait->pid || last->pid != wait->pid || !(first->known & last->known & RESOURCES_DISK) ||
	    wait_begin_ns(wait) - first->time_ns > READINGS_APART || last->time_ns - wait->time_ns > READINGS_APART)
		return false;
	out->read_bytes = difference(first->read_bytes, last->read_bytes);
	out->written_bytes = difference(first->written_bytes, last->written_bytes);
	out->major_faults = difference(first->major_faults, last->major_faults);
	return true;
}

/* CAUSE_NONE: in both directions, or hardly any bytes at all. */
static unsigned int only_direction(const struct traffic *traffic)
{
	if (traffic->read_bytes >= LEAST_BYTES && traffic->read_bytes / ONE_SIDED >= traffic->written_bytes)
		return CAUSE_DISK_READ;
	if (traffic->written_bytes >= LEAST_BYTES && traffic->written_bytes / ONE_SIDED >= traffic->read_bytes)
		return CAUSE_DISK_WRITE;
	return CAUSE_NONE;
}

/* What the wait's call leaves open, if the bytes decide it. CAUSE_NONE: it stays as it is. */
static unsigned int decide_direction(const struct sample *wait, const struct traffic *traffic)
{
	uint32_t rule = wait->syscall < 0 ? CAUSE_UNKNOWN : syscall__rule(wait->syscall);
	unsigned int only = only_direction(traffic);

	if (wait->cause == CAUSE_PAGE_FAULT) /* of a page of a file that has to be written before it changes again */
		return wait->file && only == CAUSE_DISK_WRITE && !traffic->major_faults ? only : CAUSE_NONE;
	if (wait->cause == CAUSE_POLL) /* libaio has files alone; a ring may have anything */
		return wait->syscall == SYS_IO_GETEVENTS || wait->syscall == SYS_IO_PGETEVENTS ? only : CAUSE_NONE;
	if (wait->syscall == SYS_CLOSE) /* it writes what is left, if something was written */
		return wait->cause == CAUSE_DISK_WRITE && !traffic->written_bytes ? CAUSE_UNKNOWN : CAUSE_NONE;
	if (wait->cause == CAUSE_DISK_READ &&
	    (rule == CAUSE_UNKNOWN || rule == RULE_COPY || rule == RULE_OPEN || rule == RULE_OPENAT))
		return only;
	return CAUSE_NONE;
}

/* Between a process's reading and the one before: whether it waited for disks otherwise, and how often for rings. */
struct between {
	bool otherwise;
	uint64_t rings;
};

static bool is_for_ring(const struct sample *wait)
{
	return wait->kind == SAMPLE_WAIT && wait->cause == CAUSE_POLL && wait->syscall == SYS_IO_URING_ENTER;
}

static bool is_for_disk(const struct sample *wait)
{
	return wait->kind == SAMPLE_WAIT && (wait->cause == CAUSE_DISK_READ || wait->cause == CAUSE_DISK_WRITE ||
					     wait->cause == CAUSE_FSYNC || wait->cause == CAUSE_PAGE_FAULT ||
					     wait->syscall == SYS_IO_GETEVENTS || wait->syscall == SYS_IO_PGETEVENTS);
}

/* By reading. NULL: no memory, or no ring was waited for. */
static struct between *split_by_reading(const struct samples *samples, const struct rec_resources *readings, size_t cnt)
{
	struct between *all = cnt ? calloc(cnt, sizeof(*all)) : NULL;
	bool rings = false;

	for (size_t i = 0; all && i < samples__cnt(samples); i++) {
		struct sample wait = samples__get(samples, i);
		size_t from, to;

		if (!is_for_ring(&wait) && !is_for_disk(&wait))
			continue;
		find_around(readings, cnt, &wait, &from, &to);
		rings |= is_for_ring(&wait);
		if (is_for_ring(&wait) && to < cnt)
			all[to].rings += wait.waits;
		for (size_t k = from; !is_for_ring(&wait) && k <= to && k < cnt; k++)
			all[k].otherwise = true;
	}
	if (!rings) {
		free(all);
		return NULL;
	}
	return all;
}

/*
 * The direction of a wait for a ring: that of what the process read and wrote, if nothing else of it waited for a disk, and each
 * wait for a ring can have been for a block. CAUSE_NONE: it is not known.
 */
static unsigned int direction_of_ring(const struct between *all, size_t from, size_t to, const struct traffic *traffic)
{
	uint64_t bytes = traffic->read_bytes + traffic->written_bytes, rings = 0;

	for (size_t i = from; i <= to; i++) {
		if (all[i].otherwise)
			return CAUSE_NONE;
		rings += all[i].rings;
	}
	return bytes / BLOCK_BYTES >= rings ? only_direction(traffic) : CAUSE_NONE;
}

static bool is_open(const struct sample *wait)
{
	return wait->kind == SAMPLE_WAIT && !wait->resolved &&
	       (wait->cause == CAUSE_PAGE_FAULT || wait->cause == CAUSE_POLL || wait->cause == CAUSE_DISK_READ ||
		wait->cause == CAUSE_DISK_WRITE);
}

void waits__correct_disk(struct samples *samples, struct resources *resources)
{
	size_t cnt;
	const struct rec_resources *readings = resources__samples(resources, &cnt);
	struct between *between = split_by_reading(samples, readings, cnt);

	for (size_t i = 0; i < samples__cnt(samples) && cnt; i++) {
		struct sample wait = samples__get(samples, i);
		struct traffic traffic;
		unsigned int cause;
		size_t from, to;

		if (!is_open(&wait))
			continue;
		find_around(readings, cnt, &wait, &from, &to);
		if (!find_traffic(readings, cnt, &wait, from, to, &traffic))
			continue;
		cause = between && is_for_ring(&wait) ? direction_of_ring(between, from, to, &traffic)
						      : decide_direction(&wait, &traffic);
		if (cause != CAUSE_NONE)
			samples__set_cause(samples, i, cause);
	}
	free(between);
}
