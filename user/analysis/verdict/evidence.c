// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * First the workers of a DataLoader, then other threads and processes for which the steps wait, then the lines of the steps
 * themselves.
 */
#include "user/analysis/verdict/evidence.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/waits.h"
#include "user/analysis/loader/worker_stacks.h"
#include "user/analysis/loader/workers.h"
#include "user/analysis/place/place.h"
#include "user/lib/histograms.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/processes.h"
#include "user/model/stacks.h"

void verdict__say(struct judge *j, struct array *list, const char *fmt, ...)
{
	va_list ap;
	char **slot;

	va_start(ap, fmt);
	slot = array__add(list, sizeof(*slot));
	if (slot && vasprintf(slot, fmt, ap) < 0)
		*slot = NULL;
	if (!slot || !*slot) {
		list->cnt -= slot != NULL;
		j->err = -ENOMEM;
	}
	va_end(ap);
}

/* Before a wait for a CPU, who ended the previous wait does not matter. */
bool verdict__one_waker(const struct blame_group *group)
{
	return group->waker_pid && group->waker_ns >= 0.5 * group->wait_ns && group->cause != CAUSE_RUN_QUEUE;
}

/* Whether a step, an index into the track's, is one of the group's slow steps. */
static bool is_of_group(const struct judge *j, const struct blame_group *group, long step)
{
	size_t cnt = j->track->slow_cnt, at = SEARCH(i, 0, cnt, j->blame->steps[i].step < step);

	return step >= 0 && at < cnt && j->blame->steps[at].step == step &&
	       &j->blame->groups[j->blame->steps[at].group] == group;
}

bool verdict__failed(const struct job *job, uint32_t pid)
{
	const struct rec_proc *exit = job__exit(job, pid);

	return exit && exit->exit_code;
}

/* ---- what DataLoader workers do while the steps wait for their batches ---- */

#define SLOWER 1.5 /* times as busy as any other worker */

enum worker_slot { SLOT_WORKS, SLOT_OTHER };
#define NO_SLOT (-1)

static double busy_share_of_seen(const struct worker *worker)
{
	return worker->seen_ns > worker->idle_ns ? (double)(worker->seen_ns - worker->idle_ns) / worker->seen_ns : 0;
}

/*
 * Whether a worker hardly idles while all others do, and so holds up the rest. An only worker is
 * not slower.
 */
static bool is_slower(const struct loader *loader, uint32_t pid)
{
	double share = 0, most = 0;
	bool others = false;

	for (size_t i = 0; i < loader->worker_cnt; i++) {
		const struct worker *worker = &loader->workers[i];

		if (worker->pid == pid) {
			share = busy_share_of_seen(worker);
		} else {
			most = fmax(most, busy_share_of_seen(worker));
			others |= worker->seen_ns > 0;
		}
	}
	return others && share > SLOWER * most;
}

/*
 * Finds the workers of the process, and the one that ends most of its waits, if it is slower than
 * the others.
 */
static int find_worker_pids(struct judge *j, struct intern *pids)
{
	uint32_t waker = j->group && verdict__one_waker(j->group) ? j->group->waker_pid : 0, number;
	struct workers *workers = workers__new(j->job, j->steps);
	size_t cnt = 0;
	const struct loader *loaders = workers ? workers__loaders(workers, &cnt) : NULL;
	int err = workers ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++) {
		if (loaders[i].pid != j->track->pid)
			continue;
		for (size_t w = 0; w < loaders[i].worker_cnt && !err; w++)
			err = intern__add(pids, loaders[i].workers[w].pid, &number);
		if (waker && is_slower(&loaders[i], waker))
			j->slow_worker = waker;
	}
	workers__free(workers);
	return err;
}

static unsigned int main_cause(const uint64_t *ns)
{
	unsigned int best = 0;

	for (unsigned int cause = 1; cause < CAUSE__END; cause++)
		if (ns[cause] > ns[best])
			best = cause;
	return best;
}

static void say_place(struct judge *j, const struct place *place, const uint64_t *ns)
{
	unsigned int cause = main_cause(ns);
	uint64_t sum = 0;
	char *text;

	for (unsigned int i = 0; i < CAUSE__END; i++)
		sum = saturating__add(sum, ns[i]);
	text = place__text(j->job, place);
	if (!text || asprintf(&j->verdict->place, "%s, in its workers", text) < 0) {
		j->verdict->place = NULL;
		j->err = -ENOMEM;
	} else {
		verdict__say(j, &j->verdict->evidence, "its workers: %.0f %% of their work is in %s (%s)",
			     100.0 * place__main(place)->ns / sum, text,
			     cause ? sample_cause__name(cause) : "on the CPU");
	}
	free(text);
}

static bool input_waits_for_workers(const struct judge *j)
{
	const struct step_sum *all = &j->blame->all;
	uint64_t sum = 0;

	if (j->verdict->class != VERDICT_INPUT)
		return false;
	if (j->group && !j->rule)
		return j->group->cause == CAUSE_DATA_WAIT;
	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		sum = saturating__add(sum, all->ns[PHASE_DATA][cause]);
	return 2 * all->ns[PHASE_DATA][CAUSE_DATA_WAIT] >= sum && sum;
}

/*
 * Compares a worker's work with idle workers, and with the training thread, whose frames are the
 * outermost ones of a forked worker.
 */
static int slot_of(const struct judge *j, const uint8_t *stacks, const struct sample *s, const struct intern *workers)
{
	if (s->pid == j->track->pid)
		return s->tid == j->track->tid ? SLOT_OTHER : NO_SLOT;
	if ((stacks[s->stack] != STACK_WORKS && stacks[s->stack] != STACK_IDLE) || !intern__find(workers, s->pid))
		return NO_SLOT;
	return stacks[s->stack] == STACK_IDLE ? SLOT_OTHER : SLOT_WORKS;
}

bool verdict__starts_workers(struct judge *j, const struct blame_group *group)
{
	const struct samples *samples = job__samples(j->job);
	uint8_t *stacks = samples ? worker_stacks__new(j->job) : NULL;
	uint64_t ns = 0;

	if (!stacks) {
		j->err = j->err ?: -ENOMEM;
		return false;
	}
	for (size_t i = 0; i < samples__cnt(samples); i++) {
		struct sample s;

		if (samples__thread_of(samples, i) != j->track->thread)
			continue;
		s = samples__get(samples, i);
		if (stacks[s.stack] == STACK_STARTS && is_of_group(j, group, step_track__at(j->track, s.time_ns)))
			ns = saturating__add(ns, s.weight_ns);
	}
	free(stacks);
	return ns >= group->over_ns / 2;
}

/*
 * Says where the workers spend their time while the steps wait for them; false:
 * the steps wait for no workers, or that is not known.
 */
static bool say_workers(struct judge *j)
{
	static const bool slots[][2] = {[SLOT_WORKS] = {true, false}, [SLOT_OTHER] = {false, true}};
	const struct place_question ask = {
		.more = {slots[SLOT_WORKS], 2, 1}, .less = {slots[SLOT_OTHER], 0, 1}, .all = {slots[SLOT_OTHER], 2, 1}};
	const struct samples *samples = job__samples(j->job);
	struct places places = {.job = j->job};
	uint64_t ns[CAUSE__END] = {0};
	struct intern workers = {0};
	struct place place = {0};
	uint8_t *stacks;
	int err;

	if (!input_waits_for_workers(j))
		return false;
	stacks = samples ? worker_stacks__new(j->job) : NULL;
	err = !stacks || find_worker_pids(j, &workers) ? -ENOMEM : 0;
	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample s = samples__get(samples, i);
		int slot = slot_of(j, stacks, &s, &workers);

		if (slot == NO_SLOT)
			continue;
		err = places__add(&places, slot, &s);
		if (slot == SLOT_WORKS)
			ns[s.cause] = saturating__add(ns[s.cause], s.weight_ns);
	}
	err = err ?: places__find(&places, &ask, &place);
	if (!err && place.outer.code)
		say_place(j, &place, ns);
	places__free(&places);
	intern__free(&workers);
	free(stacks);
	j->err = j->err ?: err;
	return place.outer.code;
}

/* ---- what another thread or process of the job does while the steps wait for it ---- */

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
	       is_of_group(j, j->group, step);
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

/*
 * Says what the thread or process does for which the steps wait, if most of the waits that the
 * verdict is about are for one; adds it to the place. false: they are not, or that is not known.
 */
static bool say_threads(struct judge *j)
{
	struct threads_search f = {.j = j};
	struct place place = {0};
	int err = j->track->thread ? find_thread(&f) : 0;

	if (!err && f.pid) {
		err = find_what_it_does(&f, &place);
		if (!err) {
			j->thread = judge_outside(&f);
			j->writes = f.written_ns > HALF * f.wait_ns;
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

/* ---- the place, the lines that had the time, who ended the waits, workers that failed ---- */

#define WATCHED_SHARE 0.1 /* least share of the steps' time that CUPTI must watch to represent all steps */
#define ENDS_MAX      3   /* most ended workers to mention */

/* cause: CAUSE_NONE for time on the CPU. */
bool verdict_rule__has(const struct verdict_rule *rule, int phase, unsigned int cause)
{
	/* A pause, or a wait for a CPU, is no work of the phase that it hit. */
	if (rule->phase == phase && !sample_cause__is_anywhere(cause))
		return true;
	for (int i = 0; i < 3; i++)
		if (cause != CAUSE_NONE && rule->causes[i] == (int)cause)
			return true;
	return false;
}

/* Busy share of the time that CUPTI watched; -1: too little was watched. */
double verdict__busy_share(const struct judge *j)
{
	const struct gpu_step *all = &j->gpu->all;

	return all->watched_ns && all->watched_ns >= WATCHED_SHARE * j->blame->all.total_ns ? gpu_step__busy(all) : -1;
}

static void say_busy(struct judge *j)
{
	const struct gpu_steps *gpu = j->gpu;

	if (verdict__busy_share(j) >= 0 && gpu->kernels)
		verdict__say(j, &j->verdict->evidence,
			     "GPU busy for %.1f %% of %.3g s, with %" PRIu64 " kernels of %.3g us",
			     100 * verdict__busy_share(j), gpu->all.watched_ns / 1e9, gpu->kernels,
			     gpu->kernel_ns / 1e3 / gpu->kernels);
	else if (verdict__busy_share(j) >= 0)
		verdict__say(j, &j->verdict->evidence, "GPU busy for %.1f %% of %.3g s", 100 * verdict__busy_share(j),
			     gpu->all.watched_ns / 1e9);
}

/* Who compiled a function of a Python module to C, by its symbol; NULL: nobody that is known. */
static const char *compiler_of(const char *native)
{
	if (!strncmp(native, "__pyx_", 6))
		return "Cython";
	return !strncmp(native, "impl_", 5) && strstr(native, "$$$") ? "Nuitka" : NULL;
}

/*
 * Nuitka makes frames for the functions that it compiles, but without lines, and what runs is in an extension module of the
 * file's name. Where the module has no symbols, that is how it is known.
 */
static bool is_by_nuitka(const struct job *job, const struct frame *frame, const char *native)
{
	const struct code code = stacks__code(job__stacks(job), frame->code);
	const char *file = job__name(job, code.file), *name = file ? strrchr(file, '/') : NULL;
	const char *library = strrchr(native, '(');
	size_t bytes;

	name = name ? name + 1 : file;
	bytes = name ? strlen(name) : 0;
	library = library ? library + 1 : native;
	return bytes > 3 && !strcmp(name + bytes - 3, ".py") && code__line(&code, frame->offset) <= code.first_line &&
	       !strncmp(library, name, bytes - 3) && !strncmp(library + bytes - 3, ".cpython-", 9);
}

/* A function that is compiled has no frame, so that the line that calls it has its time. Says so. */
static void say_compiled(struct judge *j, const struct hotspot *line)
{
	const struct samples *samples = job__samples(j->job);
	struct intern natives = {0};
	struct histograms cnts = {0};
	struct histogram_top top = {0};
	uint32_t number;
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; !err && line->code && i < samples__cnt(samples); i++) {
		struct sample s;
		struct stack stack;
		const char *native;

		if (samples__thread_of(samples, i) != j->track->thread)
			continue;
		s = samples__get(samples, i);
		stack = stacks__stack(job__stacks(j->job), s.stack);
		native = s.kind == SAMPLE_CPU && s.native ? job__name(j->job, s.native) : NULL;
		if (native && stack.cnt && stack.frames[0].code == line->code &&
		    (compiler_of(native) || is_by_nuitka(j->job, &stack.frames[0], native)))
			err = intern__add(&natives, s.native, &number) ?: histograms__add(&cnts, 0, number, 1);
	}
	histograms__top(&cnts, 1, 1, &top);
	if (!err && top.total >= PLACE_SAMPLES) {
		const char *native = job__name(j->job, intern__key(&natives, top.value));

		if (compiler_of(native))
			verdict__say(j, &j->verdict->evidence,
				     "it calls code that %s compiled, which has no Python frames: %s",
				     compiler_of(native), native);
		else
			verdict__say(j, &j->verdict->evidence, "it is code that Nuitka compiled, without lines: %s",
				     native);
	}
	histograms__free(&cnts);
	intern__free(&natives);
	j->err = j->err ?: err;
}

/* Says the place, if there is one, and its lines. */
static void say_hotspots(struct judge *j, const struct hotspot *hotspots, size_t cnt, const struct place *place)
{
	const struct hotspot *main = place__main(place);

	if (main->code) {
		j->verdict->place = place__text(j->job, place);
		if (j->verdict->place)
			verdict__say(j, &j->verdict->evidence, "%s: %.3g s", j->verdict->place, main->ns / 1e9);
		else
			j->err = -ENOMEM;
	}
	say_compiled(j, main->code ? main : &hotspots[0]);
	for (size_t i = 0; i < cnt && hotspots[i].ns; i++) {
		char *text;

		if (main->code == hotspots[i].code)
			continue;
		text = hotspot__text(j->job, &hotspots[i]);
		if (text)
			verdict__say(j, &j->verdict->evidence, "%s: %.3g s", text, hotspots[i].ns / 1e9);
		else
			j->err = -ENOMEM;
		free(text);
	}
}

static bool is_in_gc(const struct judge *j, const struct sample *s)
{
	struct path path = stacks__path(job__stacks(j->job), s->path);

	for (uint32_t i = 0; i < path.cnt; i++)
		if (path.spans[i].kind == SPAN_GC)
			return true;
	return false;
}

/* Whether the sample is of the time that the verdict is about, which is not slow steps. */
static bool is_of_verdict(const struct judge *j, const struct sample *s)
{
	enum phase phase = step_track__phase(j->track, j->steps, s);

	if (j->rule)
		return verdict_rule__has(j->rule, phase, s->cause);
	if (j->collects)
		return is_in_gc(j, s);
	if (s->kind != SAMPLE_CPU)
		return false;
	return j->verdict->class != VERDICT_PYTHON || cpu_class__of(j->job, s, phase) == CPU_PYTHON;
}

/* Finds where the time was that the verdict is about. */
static void find_rule_hotspots(struct judge *j, struct hotspot *top)
{
	const struct samples *samples = job__samples(j->job);
	struct hotspots hotspots = {.places = &j->blame->places, .lines = j->blame->lines};
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; samples && j->track->thread && i < samples__cnt(samples) && !err; i++) {
		struct sample sample;

		if (samples__thread_of(samples, i) != j->track->thread)
			continue;
		sample = samples__get(samples, i);
		if (step_track__at(j->track, sample.time_ns) >= 0 && is_of_verdict(j, &sample))
			err = hotspots__add(&hotspots, 0, &sample);
	}
	err = err ?: hotspots__top(&hotspots, 1, BLAME_HOTSPOTS, top);
	hotspots__free(&hotspots);
	j->err = j->err ?: err;
}

static void say_end(struct judge *j, const struct rec_proc *exit)
{
	char *how = processes__end_text(exit->exit_code);

	verdict__say(j, &j->verdict->evidence, "process %u, a worker, ended at %.3f s: %s", REC_PID(exit->pid),
		     ((double)exit->time_ns - job__window(j->job)->start_ns) / 1e9, how ?: "");
	free(how);
}

/*
 * Says which workers failed. A process that ended too early to be recognised counts as a worker if
 * the steps waited for it.
 */
static void say_ended(struct judge *j)
{
	uint32_t waker = j->group && verdict__one_waker(j->group) ? j->group->waker_pid : 0;
	size_t cnt, said = 0;
	const struct rec_target *targets = job__targets(j->job, &cnt);

	for (size_t i = 0; i < cnt && said < ENDS_MAX; i++) {
		if (targets[i].parent_pid != j->track->pid || !verdict__failed(j->job, targets[i].pid))
			continue;
		if (targets[i].role != ROLE_WORKER && targets[i].pid != waker)
			continue;
		say_end(j, job__exit(j->job, targets[i].pid));
		said++;
	}
}

/* Finds the function that has half of the time that the verdict is about, and little of any other. */
static void find_rule_place(struct judge *j, struct place *place)
{
	static const bool slots[][2] = {{true, false}, {false, true}};
	const struct place_question ask = {
		.more = {slots[0], 2, j->track->step_cnt},
		.less = {slots[1], 0, j->track->step_cnt},
		.all = {slots[1], 2, j->track->step_cnt},
	};
	const struct samples *samples = job__samples(j->job);
	struct places places = {.job = j->job};
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; samples && i < samples__cnt(samples) && !err; i++) {
		struct sample sample;

		if (samples__thread_of(samples, i) != j->track->thread)
			continue;
		sample = samples__get(samples, i);
		if (step_track__at(j->track, sample.time_ns) >= 0)
			err = places__add(&places, !is_of_verdict(j, &sample), &sample);
	}
	err = err ?: places__find(&places, &ask, place);
	places__free(&places);
	j->err = j->err ?: err;
}

/* A place is where a thread does or awaits something. Where it waits for a CPU, or is paused, is chance. */
static bool rule_has_place(const struct judge *j)
{
	return !j->rule || !sample_cause__is_anywhere(j->rule->causes[0]);
}

/* Where a queue of the standard library waits says less than the line that asks it. */
static void prefer_line(const struct judge *j, struct place *place, const struct hotspot *line)
{
	const struct stacks *stacks = job__stacks(j->job);

	if (place->outer.code && line->ns && stacks__code(stacks, place->inner.code).is_standard &&
	    stacks__code(stacks, line->code).is_own)
		*place = (struct place){.outer = *line, .inner = *line, .users = true};
}

static void say_group_evidence(struct judge *j, const struct blame_group *group, bool workers)
{
	if (!workers)
		say_hotspots(j, group->hotspots, BLAME_HOTSPOTS, &group->place);
	if (!j->verdict->place && group->cause == BLAME_COMPILE && group->hotspots[0].ns)
		j->verdict->place = hotspot__text(j->job, &group->hotspots[0]);
}

static void say_waker(struct judge *j, const struct blame_group *group)
{
	if (verdict__one_waker(group))
		verdict__say(j, &j->verdict->evidence, "process %u (thread %u) ended %.0f %% of that wait",
			     group->waker_pid, group->waker_tid, 100.0 * group->waker_ns / group->wait_ns);
}

static void give_evidence(struct judge *j)
{
	struct hotspot top[BLAME_HOTSPOTS] = {0};
	struct place place = {0};
	bool workers;

	if (j->verdict->class == VERDICT_GPU || j->verdict->class == VERDICT_LAUNCH)
		say_busy(j);
	if (j->busy)
		return;
	workers = say_workers(j);
	if (j->group && !j->rule)
		say_group_evidence(j, j->group, workers);
	else if (!workers && rule_has_place(j) && j->blame->lines && j->track->thread) {
		if (j->rule || j->verdict->class == VERDICT_PYTHON)
			find_rule_place(j, &place);
		find_rule_hotspots(j, top);
		prefer_line(j, &place, &top[0]);
		say_hotspots(j, top, BLAME_HOTSPOTS, &place);
	}
	if ((workers && !j->slow_worker) || (!workers && say_threads(j)))
		return;
	if (j->group && !j->rule)
		say_waker(j, j->group);
}

/* Of the time that threads wait for file systems, the one that has most. own: of the thread that makes the steps alone. */
static const char *find_far_files(struct judge *j, bool own, double *seconds)
{
	const struct samples *samples = job__samples(j->job);
	struct histograms ns = {0};
	struct histogram_top top = {0};
	struct intern names = {0};
	const char *found = NULL;
	int err = samples ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample s;
		uint32_t number;

		if (own && samples__thread_of(samples, i) != j->track->thread)
			continue;
		s = samples__get(samples, i);
		if (s.pid != j->track->pid || s.cause != CAUSE_FILE_SYSTEM || !samples__far_files(samples, s.stack))
			continue;
		err = intern__add(&names, samples__far_files(samples, s.stack), &number)
			      ?: histograms__add(&ns, 0, number, s.weight_ns);
	}
	if (!err) {
		histograms__top(&ns, 1, 1, &top);
		found = top.total ? job__name(j->job, intern__key(&names, top.value)) : NULL;
		*seconds = top.total / 1e9;
	}
	histograms__free(&ns);
	intern__free(&names);
	j->err = j->err ?: err;
	return found;
}

static void say_far_files(struct judge *j)
{
	double all_ns = 0, seconds;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		all_ns += j->blame->all.ns[phase][CAUSE_FILE_SYSTEM];
	if (all_ns < MENTION_SHARE * j->blame->all.total_ns)
		return;
	j->far_files = find_far_files(j, true, &seconds);
	if (!j->far_files)
		j->far_files = find_far_files(j, false, &seconds);
	if (j->far_files)
		verdict__say(j, &j->verdict->evidence, "%s: %.3g s to open, look up or list files", j->far_files,
			     seconds);
}

void verdict__give_evidence(struct judge *j)
{
	give_evidence(j);
	say_far_files(j);
	say_ended(j);
}
