// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What another thread or process of the job, or several of them, do while the steps wait for them, and while they do not.
 */
#include "user/analysis/verdict/evidence.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/waits.h"
#include "user/analysis/place/place.h"
#include "user/lib/histograms.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/processes.h"

#define SLOWER   1.5 /* times as busy as any other child */
#define HALF     0.5 /* of the waits: they are for one thread, or for the children */
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
	uint64_t children_ns;       /* for children, */
	uint64_t threads_ns;        /* for other threads of its own process; */
	uint64_t written_ns;        /* in calls that write */
	uint32_t pid, tid;          /* whom most of them are for: a thread, tid 0: a process, pid 0: nobody, or */
	bool all_children;          /* several children, of which none is slower, or */
	size_t pool;                /* so many threads of its own process, of which none has half; 0: none */
	struct array awaited;       /* struct awaited, in time order */
	struct places places;       /* slot 0: what they do while the steps wait for them */
	uint64_t cause[CAUSE__END]; /* likewise, by cause */
	uint64_t python_ns;         /* likewise, in the interpreter, or waiting for its lock */
	uint64_t idle_ns, busy_ns;  /* while the steps do not: they wait to be asked, or work */
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
	return s->waker_pid &&
	       (s->passed || s->cause == CAUSE_THREAD_WAIT || s->cause == CAUSE_LOCK || s->cause == CAUSE_GIL ||
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

static bool is_write(const struct sample *s)
{
	return s->syscall == SYS_WRITE || s->syscall == SYS_WRITEV || s->syscall == SYS_SENDTO ||
	       s->syscall == SYS_SENDMSG;
}

/* Another thread of the process of the steps. */
static bool is_of_pool(const struct threads_search *f, uint32_t pid, uint32_t tid)
{
	return pid == f->j->track->pid && tid != f->j->track->tid;
}

static int add_waker(struct threads_search *f, const struct sample *s)
{
	uint32_t number;

	f->wait_ns = saturating__add(f->wait_ns, s->weight_ns);
	if (!is_for_a_thread(s))
		return 0;
	if (is_child(f, s->waker_pid))
		f->children_ns = saturating__add(f->children_ns, s->weight_ns);
	if (is_of_pool(f, s->waker_pid, s->waker_tid))
		f->threads_ns = saturating__add(f->threads_ns, s->weight_ns);
	if (is_write(s))
		f->written_ns = saturating__add(f->written_ns, s->weight_ns);
	return intern__add(&f->wakers, (uint64_t)s->waker_pid << 32 | s->waker_tid, &number)
		       ?: histograms__add(&f->ns, 0, number, s->weight_ns);
}

static bool is_waker(const struct threads_search *f, uint32_t pid, uint32_t tid)
{
	if (f->pool)
		return is_of_pool(f, pid, tid) && intern__find(&f->wakers, (uint64_t)pid << 32 | tid);
	/* The first of several children that is asked ends the wait for all. */
	return f->tid ? pid == f->pid && tid == f->tid : is_child(f, pid);
}

static int add_awaited(struct threads_search *f, const struct sample *s)
{
	struct awaited *awaited;

	if (!is_for_a_thread(s) || !is_waker(f, s->waker_pid, s->waker_tid))
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

/* For how much of the sample's time the steps do not wait for the thread. */
static uint64_t outside_ns(const struct threads_search *f, const struct sample *s)
{
	const struct awaited *all = f->awaited.items;
	uint64_t from_ns = s->weight_ns < s->time_ns ? s->time_ns - s->weight_ns : 0, inside_ns = 0;

	if (s->kind != SAMPLE_WAIT || s->waits > 1)
		return is_awaited(f, s) ? 0 : s->weight_ns;
	for (size_t i = SEARCH(i, 0, f->awaited.cnt, all[i].to_ns <= from_ns);
	     i < f->awaited.cnt && all[i].from_ns < s->time_ns; i++) {
		uint64_t first = all[i].from_ns > from_ns ? all[i].from_ns : from_ns;
		uint64_t last = all[i].to_ns < s->time_ns ? all[i].to_ns : s->time_ns;

		inside_ns += last > first ? last - first : 0;
	}
	return inside_ns < s->weight_ns ? s->weight_ns - inside_ns : 0;
}

static bool is_one(const struct threads_search *f, const struct sample *s)
{
	if (f->tid || f->pool)
		return is_waker(f, s->pid, s->tid);
	return f->all_children ? is_child(f, s->pid) : s->pid == f->pid;
}

/* What one of them does while the steps do not wait for it. is_asked: the thread of the steps ended that wait. */
static void add_outside(struct threads_search *f, const struct sample *s, bool is_asked)
{
	if (is_asked && !is_busy(s))
		f->idle_ns = saturating__add(f->idle_ns, outside_ns(f, s));
	else if (is_busy(s))
		f->busy_ns = saturating__add(f->busy_ns, outside_ns(f, s));
}

static bool is_python(const struct threads_search *f, const struct sample *s)
{
	return s->kind == SAMPLE_CPU ? cpu_class__of(f->j->job, s, PHASE_OTHER) == CPU_PYTHON : s->cause == CAUSE_GIL;
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
			add_outside(f, &s, samples__waker_of(samples, i) == f->j->track->thread);
			if (!is_awaited(f, &s) || (!f->tid && !is_busy(&s)))
				continue;
			err = places__add(&f->places, 0, &s);
			f->cause[s.cause] = saturating__add(f->cause[s.cause], s.weight_ns);
			if (is_python(f, &s))
				f->python_ns = saturating__add(f->python_ns, s.weight_ns);
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

static size_t count_pool(const struct threads_search *f)
{
	size_t cnt = 0;

	for (uint32_t i = 1; i < intern__end(&f->wakers); i++)
		cnt += is_of_pool(f, intern__key(&f->wakers, i) >> 32, (uint32_t)intern__key(&f->wakers, i));
	return cnt;
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
	if (top.total && top.total >= HALF * f->wait_ns) {
		waker = intern__key(&f->wakers, top.value);
		f->pid = waker >> 32;
		f->tid = waker;
	} else if (f->threads_ns && f->threads_ns >= HALF * f->wait_ns) {
		f->pid = f->j->track->pid;
		f->pool = count_pool(f);
	} else {
		return 0;
	}
	return each_wait(f, add_awaited);
}

/* "thread 4250", "process 4300", "its 4 processes", "4 of its threads" */
static void name_them(const struct threads_search *f, char text[48])
{
	if (f->pool)
		snprintf(text, 48, "%zu of its threads", f->pool);
	else if (f->all_children)
		snprintf(text, 48, "its %zu processes", intern__end(&f->children) - 1);
	else if (f->pid == f->j->track->pid)
		snprintf(text, 48, "thread %u", f->tid);
	else
		snprintf(text, 48, "process %u", REC_PID(f->pid));
}

/* Any line of Python may wait for the GIL: the place is that of the thread that keeps it. Takes text, which may be NULL. */
static void name_holder(struct threads_search *f, char *text, const char *who, unsigned int cause)
{
	struct judge *j = f->j;
	char *place = NULL, what[64] = "";

	if (f->cause[cause])
		snprintf(what, sizeof(what), " (%s%s)", cause ? "waiting: " : "on the CPU", sample_cause__name(cause));
	if (text && asprintf(&place, "%s, in %s", text, who) < 0) {
		place = NULL;
		j->err = -ENOMEM;
	}
	free(text);
	if (asprintf(&j->holder, "the GIL is kept by %s%s", place ?: who, what) < 0) {
		j->holder = NULL;
		j->err = -ENOMEM;
	}
	if (place) {
		free(j->verdict->place);
		j->verdict->place = place;
	}
}

static bool waits_for_gil(const struct judge *j)
{
	return j->verdict->class == VERDICT_LOCK && j->verdict->cause == CAUSE_GIL;
}

static void say_threads_place(struct threads_search *f, const struct place *place)
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
			     f->all_children || f->pool ? "are" : "is", cause ? "waiting: " : "on the CPU",
			     sample_cause__name(cause), text ? ", in " : "", text ?: "");
	else
		verdict__say(j, &j->verdict->evidence, "the steps wait for %s", who);
	if (waits_for_gil(j)) {
		name_holder(f, text, who, cause);
		text = NULL;
	}
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

/* What the others do while the steps do not wait for them, if they do one thing for half of that time. */
static enum awaited_thread judge_outside(const struct threads_search *f)
{
	uint64_t all_ns = f->j->blame->all.total_ns;
	double outside = all_ns > f->wait_ns ? all_ns - f->wait_ns : 0;

	if (f->pool && f->j->verdict->cause == CAUSE_LOCK)
		return AWAITED_TURNS;
	if (!f->j->rule) /* of the slow steps alone is known when they wait */
		return AWAITED_OTHER;
	if (f->all_children)
		outside *= intern__end(&f->children) - 1;
	if (f->pool)
		outside *= f->pool;
	if (f->idle_ns >= HALF * outside && f->idle_ns > f->busy_ns)
		return AWAITED_LATE;
	return f->busy_ns >= HALF * outside ? AWAITED_BUSY : AWAITED_OTHER;
}

/* Whether what the others do is mostly Python, of which a process runs one thread at a time; free-threaded ("3.14.2t") it runs all. */
static bool shares_gil(const struct threads_search *f)
{
	const struct rec_target *target = job__target(f->j->job, f->pid);
	size_t bytes = target ? strlen(target->python) : 0;
	uint64_t all_ns = 0;

	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		all_ns = saturating__add(all_ns, f->cause[cause]);
	return all_ns && f->python_ns >= HALF * all_ns && !(bytes && target->python[bytes - 1] == 't');
}

double verdict__passed_share(struct judge *j)
{
	const struct samples *samples = j->track->thread ? job__samples(j->job) : NULL;
	uint64_t all_ns = 0, passed_ns = 0;

	for (size_t i = 0; samples && i < samples__cnt(samples); i++) {
		struct sample s;

		if (samples__thread_of(samples, i) != j->track->thread)
			continue;
		s = samples__get(samples, i);
		if (!is_judged(j, &s))
			continue;
		all_ns = saturating__add(all_ns, s.weight_ns);
		passed_ns = saturating__add(passed_ns, s.passed ? s.weight_ns : 0);
	}
	return all_ns ? (double)passed_ns / all_ns : 0;
}

bool verdict__say_threads(struct judge *j)
{
	struct threads_search f = {.j = j};
	struct place place = {0};
	int err = j->track->thread ? find_thread(&f) : 0;

	if (!err && f.pid) {
		err = find_what_it_does(&f, &place);
		if (!err) {
			j->thread = judge_outside(&f);
			j->writes = f.written_ns > HALF * f.wait_ns;
			j->shares_gil = shares_gil(&f);
			say_threads_place(&f, &place);
		}
	}
	intern__free(&f.wakers);
	intern__free(&f.children);
	histograms__free(&f.ns);
	free(f.awaited.items);
	places__free(&f.places);
	j->err = j->err ?: err;
	return f.pid;
}

/* ---- who collects garbage ---- */

static bool is_about_gc(const struct judge *j)
{
	return j->collects || (j->group && !j->rule && j->group->cause == BLAME_GC);
}

/* Whether the sample is of a collection in the process, in a step that the verdict is about. */
static bool is_of_collection(const struct judge *j, const struct sample *s)
{
	long step = step_track__at(j->track, s->time_ns);

	return s->pid == j->track->pid && s->kind == SAMPLE_CPU && step >= 0 &&
	       (j->collects || verdict__is_of_group(j, j->group, step)) && verdict__is_in_gc(j, s);
}

/* Sets the number of the thread that collects most; 0: none was seen. 0 or -ENOMEM. */
static int find_collector(const struct judge *j, const struct samples *samples, uint32_t *thread)
{
	struct histograms ns = {0};
	struct histogram_top top = {0};
	int err = 0;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample s = samples__get(samples, i);

		if (is_of_collection(j, &s))
			err = histograms__add(&ns, 0, s.thread, s.weight_ns);
	}
	histograms__top(&ns, 1, 1, &top);
	*thread = top.total ? top.value : 0;
	histograms__free(&ns);
	return err;
}

/* Where it collects: what of its own the thread of the steps does not have. */
static int find_where(const struct judge *j, const struct samples *samples, uint32_t thread, char **text)
{
	static const bool slots[][2] = {{true, false}, {false, true}};
	const struct place_question ask = {.more = {slots[0], 2, 1}, .less = {slots[1], 0, 1}, .all = {slots[1], 2, 1}};
	struct places places = {.job = j->job};
	struct place place = {0};
	int err = 0;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample s = samples__get(samples, i);

		if (s.thread == j->track->thread || (s.thread == thread && is_of_collection(j, &s)))
			err = places__add(&places, s.thread == thread ? 0 : SLOT_ALL, &s);
	}
	err = err ?: places__find(&places, &ask, &place);
	if (!err && place.outer.code) {
		*text = place__text(j->job, &place);
		err = *text ? 0 : -ENOMEM;
	}
	places__free(&places);
	return err;
}

bool verdict__say_collector(struct judge *j)
{
	const struct samples *samples = is_about_gc(j) && j->track->thread ? job__samples(j->job) : NULL;
	uint32_t thread = 0, pid, tid;
	char *text = NULL;
	int err = samples ? find_collector(j, samples, &thread) : 0;

	if (!err && thread && thread != j->track->thread)
		err = find_where(j, samples, thread, &text);
	else
		thread = 0;
	if (!err && thread) {
		samples__thread(samples, thread, &pid, &tid);
		free(j->verdict->place);
		j->verdict->place = NULL;
		if (text && asprintf(&j->verdict->place, "%s, in thread %u", text, tid) < 0) {
			j->verdict->place = NULL;
			err = -ENOMEM;
		} else if (asprintf(&j->holder, "thread %u collects%s%s", tid, text ? ": " : "", text ?: "") < 0) {
			j->holder = NULL;
			err = -ENOMEM;
		}
	}
	free(text);
	j->err = j->err ?: err;
	return thread;
}
