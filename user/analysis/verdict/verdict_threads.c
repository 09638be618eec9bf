// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What another thread or process of the job does while the steps wait for it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/analysis/verdict/verdict_private.h"
#include "user/lib/intern.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"

#define HALF     0.5 /* of the waits: they are for one thread, or for the children */
#define SLOWER   1.5 /* times as busy as any other child: the steps wait for this one */
#define SLOT_ALL 1   /* what the thread of the steps does, whose frames a forked process has, too */

/* A time in which the steps wait for the thread. */
struct awaited {
	uint64_t from_ns, to_ns;
};

struct threads_search {
	struct judge *j;
	struct intern wakers;       /* {pid, tid} */
	struct histograms ns;       /* slot 0, by waker */
	struct intern children;     /* pids: processes that the one of the steps started, workers apart */
	uint64_t wait_ns;           /* of all waits that the verdict is about */
	uint64_t children_ns;       /* for children */
	uint32_t pid, tid;          /* whom most of them are for: a thread, tid 0: a process, pid 0: nobody, or */
	bool all_children;          /* several children, of which none is slower */
	struct array awaited;       /* struct awaited, in time order */
	struct places places;       /* slot 0: what they do while the steps wait for them */
	uint64_t cause[CAUSE__END]; /* likewise, by cause */
};

/* Whether the verdict is about this wait. */
static bool is_judged(const struct judge *j, const struct sample *s)
{
	long step = step_track__at(j->track, s->time_ns);
	enum phase phase = step_track__phase(j->track, j->steps, s);

	if (step < 0 || s->kind != SAMPLE_WAIT)
		return false;
	if (j->rule)
		return verdict_rule__has(j->rule, phase, s->cause);
	return j->group && s->cause == j->group->cause && (j->group->phase == ANY || j->group->phase == (int)phase) &&
	       verdict__is_of_group(j, j->group, step);
}

/* A thread that ends a wait for a file or a CPU need not be what the wait is for. */
static bool is_for_a_thread(const struct sample *s)
{
	return s->waker_pid && (s->passed || s->cause == CAUSE_THREAD_WAIT || s->cause == CAUSE_LOCK ||
				s->cause == CAUSE_PIPE || s->cause == CAUSE_SOCKET || s->cause == CAUSE_POLL);
}

/* Whether the thread works, or waits for something else than to be asked, and to go on. */
static bool is_busy(const struct sample *s)
{
	return s->kind == SAMPLE_CPU ||
	       !(s->cause == CAUSE_LOCK || s->cause == CAUSE_PIPE || s->cause == CAUSE_SOCKET ||
		 s->cause == CAUSE_POLL || s->cause == CAUSE_GIL || s->cause == CAUSE_RUN_QUEUE);
}

static bool is_child(const struct threads_search *f, uint32_t pid)
{
	return intern__find(&f->children, pid) != 0;
}

/* Calls fn for each wait that the verdict is about. 0 or what fn returned. */
static int each_wait(struct threads_search *f, int (*fn)(struct threads_search *f, const struct sample *s))
{
	const struct samples *samples = job__samples(f->j->job);
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample s;

		if (samples__thread_of(samples, i) != f->j->track->thread)
			continue;
		s = samples__get(samples, i);
		if (is_judged(f->j, &s))
			err = fn(f, &s);
	}
	return err;
}

static int add_waker(struct threads_search *f, const struct sample *s)
{
	uint32_t number;

	f->wait_ns = saturating__add(f->wait_ns, s->weight_ns);
	if (!is_for_a_thread(s))
		return 0;
	if (is_child(f, s->waker_pid))
		f->children_ns = saturating__add(f->children_ns, s->weight_ns);
	return intern__add(&f->wakers, (uint64_t)s->waker_pid << 32 | s->waker_tid, &number)
		       ?: histograms__add(&f->ns, 0, number, s->weight_ns);
}

static int add_awaited(struct threads_search *f, const struct sample *s)
{
	struct awaited *awaited;

	/* The first of several children that is asked ends the wait for all. */
	if (!is_for_a_thread(s) ||
	    (f->tid ? s->waker_pid != f->pid || s->waker_tid != f->tid : !is_child(f, s->waker_pid)))
		return 0;
	awaited = array__add(&f->awaited, sizeof(*awaited));
	if (!awaited)
		return -ENOMEM;
	*awaited = (struct awaited){s->weight_ns < s->time_ns ? s->time_ns - s->weight_ns : 0, s->time_ns};
	return 0;
}

/* Its waits may end as, or just after, they let the steps go on. */
static bool is_awaited(const struct threads_search *f, const struct sample *s)
{
	const struct awaited *all = f->awaited.items;
	uint64_t middle = s->time_ns - (s->weight_ns < s->time_ns ? s->weight_ns : s->time_ns) / 2;
	size_t at = SEARCH(i, 0, f->awaited.cnt, all[i].to_ns < middle);

	return at < f->awaited.cnt && all[at].from_ns <= middle;
}

static bool is_one(const struct threads_search *f, const struct sample *s)
{
	if (f->tid)
		return s->pid == f->pid && s->tid == f->tid;
	return is_busy(s) && (f->all_children ? is_child(f, s->pid) : s->pid == f->pid);
}

static int find_what_it_does(struct threads_search *f, struct place *place)
{
	static const bool slots[][2] = {{true, false}, {false, true}};
	const struct place_question ask = {.more = {slots[0], 2, 1}, .less = {slots[1], 0, 1}, .all = {slots[1], 2, 1}};
	const struct samples *samples = job__samples(f->j->job);
	int err = 0;

	f->places.job = f->j->job;
	for (size_t i = 0; samples && !err && i < samples__cnt(samples); i++) {
		struct sample s = samples__get(samples, i);

		if (s.thread == f->j->track->thread) {
			err = places__add(&f->places, SLOT_ALL, &s);
		} else if (is_one(f, &s)) {
			if (!is_awaited(f, &s))
				continue;
			err = places__add(&f->places, 0, &s);
			f->cause[s.cause] = saturating__add(f->cause[s.cause], s.weight_ns);
		}
	}
	return err ?: places__find(&f->places, &ask, place);
}

static int find_children(struct threads_search *f)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(f->j->job, &cnt);
	uint32_t number;
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++)
		if (targets[i].parent_pid == f->j->track->pid && targets[i].role == ROLE_CHILD)
			err = intern__add(&f->children, targets[i].pid, &number);
	return err;
}

/* The steps wait for children: for one that is busier than the others, or for all. */
static int choose_child(struct threads_search *f)
{
	const struct samples *samples = job__samples(f->j->job);
	size_t end = intern__end(&f->children);
	uint64_t *busy_ns = calloc(end, sizeof(*busy_ns)), second_ns = 0;
	uint32_t most = 1;

	if (!busy_ns || !samples) {
		free(busy_ns);
		return -ENOMEM;
	}
	for (size_t i = 0; i < samples__cnt(samples); i++) {
		struct sample s = samples__get(samples, i);
		uint32_t number = intern__find(&f->children, s.pid);

		if (number && is_busy(&s))
			busy_ns[number] = saturating__add(busy_ns[number], s.weight_ns);
	}
	for (uint32_t i = 1; i < end; i++)
		most = busy_ns[i] > busy_ns[most] ? i : most;
	for (uint32_t i = 1; i < end; i++)
		second_ns = i != most && busy_ns[i] > second_ns ? busy_ns[i] : second_ns;
	f->pid = intern__key(&f->children, most);
	f->all_children = busy_ns[most] < SLOWER * second_ns;
	free(busy_ns);
	return 0;
}

static int find_thread(struct threads_search *f)
{
	struct histogram_top top = {0};
	uint64_t waker;
	int err = find_children(f) ?: each_wait(f, add_waker);

	if (err)
		return err;
	if (f->children_ns && f->children_ns >= HALF * f->wait_ns)
		return choose_child(f) ?: each_wait(f, add_awaited);
	histograms__top(&f->ns, 1, 1, &top);
	if (!top.total || top.total < HALF * f->wait_ns)
		return 0;
	waker = intern__key(&f->wakers, top.value);
	f->pid = waker >> 32;
	f->tid = waker;
	return each_wait(f, add_awaited);
}

/* "thread 4250", "process 4300", "its 4 processes" */
static void name_them(const struct threads_search *f, char text[48])
{
	if (f->all_children)
		snprintf(text, 48, "its %zu processes", intern__end(&f->children) - 1);
	else if (f->pid == f->j->track->pid)
		snprintf(text, 48, "thread %u", f->tid);
	else
		snprintf(text, 48, "process %u", REC_PID(f->pid));
}

static void say(struct threads_search *f, const struct place *place)
{
	struct judge *j = f->j;
	unsigned int cause = 0;
	char *text = place->outer.code ? place__text(j->job, place) : NULL, *whole, who[48];

	name_them(f, who);
	for (unsigned int i = 1; i < CAUSE__END; i++)
		if (f->cause[i] > f->cause[cause])
			cause = i;
	if (f->cause[cause])
		verdict__say(j, &j->verdict->evidence, "the steps wait for %s, which meanwhile %s %s%s%s%s", who,
			     f->all_children ? "are" : "is", cause ? "waiting: " : "on the CPU",
			     sample_cause__name(cause), text ? ", in " : "", text ?: "");
	else
		verdict__say(j, &j->verdict->evidence, "the steps wait for %s", who);
	if (!text || j->verdict->class == VERDICT_LOCK) {
		free(text);
		return;
	}
	if (asprintf(&whole, "%s, in %s%s%s%s", text, who, j->verdict->place ? ", for which " : "",
		     j->verdict->place ?: "", j->verdict->place ? " waits" : "") < 0) {
		j->err = -ENOMEM;
	} else {
		free(j->verdict->place);
		j->verdict->place = whole;
	}
	free(text);
}

bool verdict__say_threads(struct judge *j)
{
	struct threads_search f = {.j = j};
	struct place place = {0};
	int err = j->track->thread ? find_thread(&f) : 0;

	if (!err && f.pid) {
		err = find_what_it_does(&f, &place);
		if (!err)
			say(&f, &place);
	}
	intern__free(&f.wakers);
	intern__free(&f.children);
	histograms__free(&f.ns);
	free(f.awaited.items);
	places__free(&f.places);
	j->err = j->err ?: err;
	j->thread = f.pid;
	return j->thread;
}
