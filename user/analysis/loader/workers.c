// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A wait for a batch is ended by the worker that made it, or, with pin_memory, by a thread of the
 * process whose own wait the worker ended. All waits of one fetch count as one: batches of other
 * workers may come first, and wake the process for nothing; the process waited for the worker that
 * woke it last. One fetch never waits for workers of two loaders.
 */
#include "user/analysis/loader/workers.h"

#include <stdlib.h>
#include <string.h>

#include "include/name_hash.h"
#include "user/analysis/loader/advice.h"
#include "user/analysis/loader/loader.h"
#include "user/analysis/loader/loader_parts.h"
#include "user/analysis/loader/worker_stacks.h"
#include "user/analysis/place/place.h"
#include "user/analysis/resources/cpu_limit.h"
#include "user/lib/array.h"
#include "user/lib/histograms.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/processes.h"
#include "user/model/rests.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"

/* ---- where a process fetches batches ---- */

#define LOADER_FOLDER "/torch/utils/data/"

static bool is_loaders(const struct job *job, const struct code *code)
{
	const char *file = code->file ? job__name(job, code->file) : NULL;

	return file && strstr(file, LOADER_FOLDER);
}

static uint64_t innermost_action(const struct job *job, uint32_t number)
{
	struct path path = stacks__path(job__stacks(job), number);

	for (uint32_t i = path.cnt; i > 0; i--)
		if (path.spans[i - 1].kind == SPAN_ACTION)
			return path.spans[i - 1].name;
	return 0;
}

/*
 * The place of a sample whose process was in its DataLoader: the action, since Lightning has one for each kind of loop; else the
 * innermost Python line outside the DataLoader's code, combined with whether it is in an evaluation: one line may serve both.
 */
static struct loader_place loader_place__of(const struct job *job, const struct steps *steps,
					    const struct sample *sample)
{
	const struct stacks *stacks = job__stacks(job);
	struct stack stack = stacks__stack(stacks, sample->stack);
	struct loader_place place = {.action = innermost_action(job, sample->path),
				     .validation = steps__phase(steps, sample->path) == PHASE_VALIDATION};
	uint64_t hash = name_hash__add(name_hash__add(name_hash__seed(0, 0), place.validation), place.action);
	uint32_t outside = stack.cnt;

	while (outside > 0) {
		struct code code = stacks__code(stacks, stack.frames[outside - 1].code);

		if (is_loaders(job, &code))
			break;
		outside--;
	}
	for (uint32_t i = outside; i < stack.cnt; i++) {
		struct code code = stacks__code(stacks, stack.frames[i].code);
		uint32_t line = code__line(&code, stack.frames[i].offset);

		if (!place.action)
			hash = name_hash__add(hash, (uint64_t)stack.frames[i].code << 32 | line);
		if (!place.code && place__is_users(job, stack.frames[i].code)) {
			place.code = stack.frames[i].code;
			place.line = line ?: code.first_line;
		}
	}
	place.key = name_hash__end(hash);
	return place;
}

#define WORKER_COMM  "pt_data_worker"         /* in newer torch */
#define LOADER_LABEL "enumerate(DataLoader)#" /* then the class: torch's, or torchdata's */
#define WITH_WORKERS "MultiProcessing"

struct workers {
	struct array loaders; /* struct loader; owns what they point to */
	struct job *job;
	const struct samples *samples;
	const struct steps *steps;
	struct by_thread by_thread;
	uint8_t *stacks; /* enum worker_stack by stack */
	bool *streams;   /* by stack */
};

/* ---- processes ---- */

/* The main process from which a worker descends; 0: none. */
static uint32_t main_of(const struct job *job, const struct rec_target *worker)
{
	const struct rec_target *at = worker;

	for (int i = 0; i < 8 && at; i++) {
		if (at->role == ROLE_MAIN)
			return at->pid;
		at = job__target(job, at->parent_pid);
	}
	return 0;
}

bool workers__ended_as_one(const struct rec_target *target, const struct rec_proc *exit)
{
	if (target->role != ROLE_CHILD)
		return target->role == ROLE_WORKER;
	return exit && !strncmp(exit->comm, WORKER_COMM, sizeof(exit->comm));
}

/*
 * Recognises a worker that ended before its threads' names were recorded by what it does, or by its
 * last name.
 */
static bool is_worker(const struct workers *w, const struct rec_target *target)
{
	uint32_t thread = target->role == ROLE_CHILD ? by_thread__find(&w->by_thread, target->pid, target->pid) : 0;

	for (size_t i = 0; i < by_thread__cnt(&w->by_thread, thread); i++) {
		uint8_t stack = w->stacks[by_thread__get(&w->by_thread, thread, i).stack];

		if (stack == STACK_WORKS || stack == STACK_IDLE)
			return true;
	}
	return workers__ended_as_one(target, job__exit(w->job, target->pid));
}

static int loader__find_workers(struct workers *w, struct loader *loader)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(w->job, &cnt);
	struct worker *workers = calloc(cnt + 1, sizeof(*workers));

	loader->workers = workers;
	if (!workers)
		return -1;
	for (size_t i = 0; i < cnt; i++)
		if (is_worker(w, &targets[i]) && main_of(w->job, &targets[i]) == loader->pid) {
			const struct rec_proc *end = job__exit(w->job, targets[i].pid);

			workers[loader->worker_cnt].pid = targets[i].pid;
			workers[loader->worker_cnt].end = end && end->exit_code ? end : NULL;
			loader->worker_cnt++;
		}
	return 0;
}

static uint32_t find_worker(const struct loader *loader, uint32_t pid)
{
	for (size_t i = 0; pid && i < loader->worker_cnt; i++)
		if (loader->workers[i].pid == pid)
			return i;
	return WORKER_NONE;
}

static bool is_for_storage(unsigned int cause)
{
	return cause == CAUSE_DISK_READ || cause == CAUSE_DISK_WRITE || cause == CAUSE_FSYNC ||
	       cause == CAUSE_FILE_SYSTEM || cause == CAUSE_PAGE_FAULT;
}

/*
 * Whether the worker waits for what another process does, as for a lock that it holds, or an answer. Its own children
 * work for it alone.
 */
static bool is_for_a_process(const struct workers *w, const struct worker *worker, const struct sample *s)
{
	const struct rec_target *other = s->waker_pid ? job__target(w->job, s->waker_pid) : NULL;

	if (!s->waker_pid || s->waker_pid == worker->pid || (other && other->parent_pid == worker->pid))
		return false;
	return s->passed || s->cause == CAUSE_LOCK || s->cause == CAUSE_PIPE || s->cause == CAUSE_SOCKET ||
	       s->cause == CAUSE_POLL || s->cause == CAUSE_THREAD_WAIT;
}

/* Adds what a worker does between batches. servers: slot 0, waits by pid. 0 or -ENOMEM. */
static int add_work(const struct workers *w, const struct loader *whole, struct worker *worker, const struct sample *s,
		    struct histograms *servers)
{
	worker->is_stream |= w->streams[s->stack];
	if (s->kind != SAMPLE_WAIT)
		return 0;
	if (is_for_storage(s->cause))
		worker->storage_ns = saturating__add(worker->storage_ns, s->weight_ns);
	if (!is_for_a_process(w, worker, s))
		return 0;
	if (find_worker(whole, s->waker_pid) == WORKER_NONE)
		return histograms__add(servers, 0, s->waker_pid, s->weight_ns);
	worker->turns_ns = saturating__add(worker->turns_ns, s->weight_ns);
	return 0;
}

/* 0 or -ENOMEM. */
static int measure_worker(const struct workers *w, const struct loader *whole, struct worker *worker)
{
	uint32_t thread = by_thread__find(&w->by_thread, worker->pid, worker->pid);
	struct histograms servers = {0};
	struct histogram_top top = {0};
	int err = 0;

	for (size_t i = 0; i < by_thread__cnt(&w->by_thread, thread) && !err; i++) {
		struct sample s = by_thread__get(&w->by_thread, thread, i);

		worker->seen_ns = saturating__add(worker->seen_ns, s.weight_ns);
		if (!i)
			worker->first_ns = s.time_ns > s.weight_ns ? s.time_ns - s.weight_ns : 0;
		worker->last_ns = s.time_ns;
		if (s.kind == SAMPLE_CPU)
			worker->cpu_ns = saturating__add(worker->cpu_ns, s.weight_ns);
		else if (s.cause == CAUSE_RUN_QUEUE)
			worker->queued_ns = saturating__add(worker->queued_ns, s.weight_ns);
		else if (w->stacks[s.stack] == STACK_IDLE) {
			worker->idle_ns = saturating__add(worker->idle_ns, s.weight_ns);
			continue;
		}
		err = add_work(w, whole, worker, &s, &servers);
	}
	histograms__top(&servers, 1, 1, &top);
	worker->server = top.total ? top.value : 0;
	worker->server_ns = top.total;
	histograms__free(&servers);
	return err;
}

/* The part of a sample that lies between two instants. */
static uint64_t sample_overlap_ns(const struct sample *s, uint64_t start_ns, uint64_t end_ns)
{
	uint64_t begun = s->time_ns > s->weight_ns ? s->time_ns - s->weight_ns : 0, ended = s->time_ns;

	if (s->kind == SAMPLE_CPU)
		return s->time_ns >= start_ns && s->time_ns < end_ns ? s->weight_ns : 0;
	begun = begun > start_ns ? begun : start_ns;
	ended = ended < end_ns ? ended : end_ns;
	return ended > begun ? ended - begun : 0;
}

/* The part in which the process waits until this worker has handed a batch over that is there. */
static uint64_t handover_overlap_ns(const struct loader *loader, uint32_t worker, const struct sample *s)
{
	uint64_t begun = s->time_ns > s->weight_ns ? s->time_ns - s->weight_ns : 0, ns = 0;
	/* the first wait that begins later */
	size_t first = SEARCH(i, 0, loader->wait_cnt, loader->waits[i].start_ns <= begun);

	for (size_t i = first ? first - 1 : 0; i < loader->wait_cnt && loader->waits[i].start_ns < s->time_ns; i++)
		if (!loader->waits[i].late && loader->waits[i].worker == worker)
			ns = saturating__add(ns,
					     sample_overlap_ns(s, loader->waits[i].start_ns, loader->waits[i].end_ns));
	return ns;
}

/* Adds what another thread of a worker did with CPUs, and its waits for the GIL. */
static void measure_other_thread(const struct workers *w, uint32_t thread, struct loader *loader, uint32_t number)
{
	struct worker *worker = (struct worker *)&loader->workers[number];
	const struct stacks *stacks = job__stacks(w->job);
	uint64_t cpu_ns = 0, queued_ns = 0;
	bool is_python = false; /* it hands batches over, say */

	for (size_t i = 0; i < by_thread__cnt(&w->by_thread, thread); i++) {
		struct sample s = by_thread__get(&w->by_thread, thread, i);

		is_python |= stacks__stack(stacks, s.stack).cnt != 0;
		if (s.kind == SAMPLE_CPU)
			cpu_ns = saturating__add(cpu_ns, s.weight_ns);
		else if (s.cause == CAUSE_RUN_QUEUE)
			queued_ns = saturating__add(queued_ns, s.weight_ns);
		else if (s.cause == CAUSE_GIL)
			loader->gil_ns = saturating__add(loader->gil_ns, handover_overlap_ns(loader, number, &s));
	}
	worker->others_cpu_ns = saturating__add(worker->others_cpu_ns, cpu_ns);
	if (is_python || !cpu_ns)
		return;
	worker->pool_cnt++;
	worker->pool_cpu_ns = saturating__add(worker->pool_cpu_ns, cpu_ns);
	worker->pool_queued_ns = saturating__add(worker->pool_queued_ns, queued_ns);
}

static void measure_other_threads(const struct workers *w, struct loader *loader)
{
	for (uint32_t thread = 1; thread < samples__thread_end(w->samples); thread++) {
		uint32_t pid, tid, number;

		samples__thread(w->samples, thread, &pid, &tid);
		number = find_worker(loader, pid);
		if (number != WORKER_NONE && tid != pid)
			measure_other_thread(w, thread, loader, number);
	}
	loader->gil_ns = loader->gil_ns < loader->handover_ns ? loader->gil_ns : loader->handover_ns;
}

/* ---- waits ---- */

/*
 * The worker that ended a wait, directly or through a thread of the process that it woke in that
 * time.
 */
static uint32_t who_ended(const struct workers *w, const struct loader *loader, const struct sample *wait)
{
	uint32_t found = find_worker(loader, wait->waker_pid), thread;

	if (found != WORKER_NONE || wait->waker_pid != loader->pid)
		return found;
	thread = by_thread__find(&w->by_thread, wait->waker_pid, wait->waker_tid);
	for (size_t i = thread ? by_thread__ended(&w->by_thread, thread, wait->time_ns) : 0; i > 0; i--) {
		struct sample s = by_thread__get(&w->by_thread, thread, i - 1);

		if (s.time_ns + wait->weight_ns < wait->time_ns)
			break;
		found = find_worker(loader, s.waker_pid);
		if (found != WORKER_NONE)
			return found;
	}
	return WORKER_NONE;
}

static int compare_wait_start(const void *a, const void *b)
{
	const struct loader_wait *x = a, *y = b;

	return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static bool other_loader(const struct loader *loader, uint32_t a, uint32_t b)
{
	const struct worker *workers = loader->workers;

	return a != WORKER_NONE && b != WORKER_NONE && workers[a].iterator != workers[b].iterator;
}

/* Finds the waits of one thread. 0 or -1: no memory. */
static int find_waits(const struct workers *w, struct loader *loader, uint32_t thread, struct array *waits)
{
	struct loader_wait *open = NULL;

	for (size_t i = 0; i < by_thread__cnt(&w->by_thread, thread); i++) {
		struct sample s = by_thread__get(&w->by_thread, thread, i);
		uint64_t start = s.time_ns > s.weight_ns ? s.time_ns - s.weight_ns : 0;
		long step = loader->track ? step_track__at(loader->track, s.time_ns) : -1;
		uint32_t worker;

		if (s.kind != SAMPLE_WAIT || s.cause != CAUSE_DATA_WAIT || s.passed) {
			if (steps__phase(w->steps, s.path) != PHASE_DATA)
				open = NULL;
			continue;
		}
		worker = who_ended(w, loader, &s);
		if (!open || open->step != step || other_loader(loader, open->worker, worker)) {
			open = array__add(waits, sizeof(*open));
			if (!open)
				return -1;
			*open = (struct loader_wait){.start_ns = start,
						     .step = step,
						     .worker = WORKER_NONE,
						     .place = loader_place__of(w->job, w->steps, &s)};
		}
		open->end_ns = s.time_ns;
		open->ns = saturating__add(open->ns, s.weight_ns);
		open->late |= s.waits == 1 && w->stacks[s.stack] != STACK_TAKES;
		if (worker == WORKER_NONE)
			continue;
		open->worker = worker;
		open->broken = loader->workers[worker].end && loader->workers[worker].end->time_ns <= s.time_ns;
	}
	return 0;
}

static int find_all_waits(const struct workers *w, struct loader *loader)
{
	struct array waits = {0};
	uint32_t pid, tid;
	int failed = 0;

	for (size_t t = 1; t < samples__thread_end(w->samples) && !failed; t++) {
		samples__thread(w->samples, t, &pid, &tid);
		if (pid == loader->pid)
			failed = find_waits(w, loader, t, &waits);
	}
	if (waits.cnt)
		qsort(waits.items, waits.cnt, sizeof(struct loader_wait), compare_wait_start);
	loader->waits = waits.items;
	loader->wait_cnt = waits.cnt;
	return failed;
}

static void loader__add_waits(struct loader *loader)
{
	struct worker *workers = (struct worker *)loader->workers;

	for (size_t i = 0; i < loader->wait_cnt; i++) {
		const struct loader_wait *wait = &loader->waits[i];
		struct worker *worker = wait->worker == WORKER_NONE ? NULL : &workers[wait->worker];

		if (!wait->late) {
			loader->handover_ns = saturating__add(loader->handover_ns, wait->ns);
			continue;
		}
		loader->wait_ns = saturating__add(loader->wait_ns, wait->ns);
		loader->late_cnt++;
		if (!worker) {
			loader->unknown_ns = saturating__add(loader->unknown_ns, wait->ns);
			continue;
		}
		if (wait->broken) {
			worker->end_wait_ns = saturating__add(worker->end_wait_ns, wait->ns);
			continue;
		}
		if (!worker->waits++ && wait->worker >= loader->at_once) {
			loader->first_wait_ns = saturating__add(loader->first_wait_ns, wait->ns);
			loader->first_cnt++;
		}
		worker->wait_ns = saturating__add(worker->wait_ns, wait->ns);
		worker->longest_ns = wait->ns > worker->longest_ns ? wait->ns : worker->longest_ns;
	}
}

/* ---- what it did meanwhile ---- */

/* Holds up to 2^24 lines and 2^8 causes. */
static uint64_t doing_key(const struct workers *w, const struct sample *s)
{
	struct stack stack = stacks__stack(job__stacks(w->job), s->stack);
	struct code code;

	if (!stack.cnt)
		return 1 + s->cause;
	code = stacks__code(job__stacks(w->job), stack.frames[0].code);
	return (uint64_t)stack.frames[0].code << 32 | (code__line(&code, stack.frames[0].offset) & 0xffffff) << 8 |
	       (1 + s->cause);
}

static int compare_doing(const void *a, const void *b)
{
	const struct worker_doing *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

struct doing_list {
	struct intern keys;
	struct array items; /* struct worker_doing */
	struct intern file_ids;
	struct histograms files; /* by doing */
};

static int doing_list__add_file(struct doing_list *doings, uint32_t doing, uint64_t file, uint64_t ns)
{
	size_t before = intern__end(&doings->files.keys);
	uint32_t number;

	if (intern__add(&doings->file_ids, file, &number) || histograms__add(&doings->files, doing, number, ns))
		return -1;
	((struct worker_doing *)doings->items.items)[doing].file_cnt += intern__end(&doings->files.keys) > before;
	return 0;
}

/* Adds what a thread did during a wait. 0 or -1: no memory. */
static int add_doings(const struct workers *w, const struct loader_wait *wait, uint32_t thread,
		      struct doing_list *doings)
{
	for (size_t n = by_thread__ended(&w->by_thread, thread, wait->start_ns);
	     n < by_thread__cnt(&w->by_thread, thread); n++) {
		struct sample s = by_thread__get(&w->by_thread, thread, n);
		uint64_t ns = sample_overlap_ns(&s, wait->start_ns, wait->end_ns), key = doing_key(w, &s);
		struct worker_doing *doing;
		uint32_t at;

		if (s.time_ns > wait->end_ns && s.time_ns - wait->end_ns >= s.weight_ns)
			break;
		if (!ns || (w->stacks[s.stack] != STACK_WORKS && (s.stack || s.tid != s.pid)))
			continue;
		if (intern__add(&doings->keys, key, &at) ||
		    array__grow(&doings->items, intern__end(&doings->keys) - 1, sizeof(*doing)))
			return -1;
		doing = (struct worker_doing *)doings->items.items + at - 1;
		doing->code = key >> 32;
		doing->line = key >> 8 & 0xffffff;
		doing->cause = s.cause;
		doing->ns = saturating__add(doing->ns, ns);
		if (s.file && doing_list__add_file(doings, at - 1, s.file, ns))
			return -1;
	}
	return 0;
}

static int put_files(struct doing_list *doings)
{
	struct worker_doing *items = doings->items.items;
	struct histogram_top *top = calloc(doings->items.cnt + 1, sizeof(*top));

	if (!top)
		return -1;
	histograms__top(&doings->files, doings->items.cnt, 1, top);
	for (size_t i = 0; i < doings->items.cnt; i++) {
		items[i].file = intern__key(&doings->file_ids, top[i].value);
		items[i].file_ns = top[i].total;
	}
	free(top);
	return 0;
}

static int find_doings(const struct workers *w, const struct loader *loader, uint32_t number, struct worker *worker)
{
	struct doing_list doings = {0};
	uint32_t pid, tid;
	int failed = 0;

	for (size_t t = 1; t < samples__thread_end(w->samples); t++) {
		samples__thread(w->samples, t, &pid, &tid);
		for (size_t i = 0; pid == worker->pid && i < loader->wait_cnt && !failed; i++)
			if (loader->waits[i].worker == number && loader->waits[i].late)
				failed = add_doings(w, &loader->waits[i], t, &doings);
	}
	failed = failed || put_files(&doings);
	if (doings.items.cnt)
		qsort(doings.items.items, doings.items.cnt, sizeof(struct worker_doing), compare_doing);
	worker->doings = doings.items.items;
	worker->doing_cnt = doings.items.cnt;
	intern__free(&doings.keys);
	intern__free(&doings.file_ids);
	histograms__free(&doings.files);
	return failed;
}

/* ---- what lies ready ---- */

/*
 * Whether a worker is idle at that instant. n: the first sample of its thread that has not ended by
 * then.
 */
static bool is_idle(const struct workers *w, uint32_t thread, size_t n, uint64_t time_ns)
{
	struct sample s = by_thread__get(&w->by_thread, thread, n);

	return s.kind == SAMPLE_WAIT && s.waits == 1 && s.cause != CAUSE_RUN_QUEUE &&
	       w->stacks[s.stack] == STACK_IDLE && s.time_ns - time_ns <= s.weight_ns;
}

/*
 * idle, by step: 1 + number of idle workers of those alive as the step begins. Samples and steps
 * advance together in time order.
 */
static void count_idle(const struct workers *w, const struct loader *loader, const struct worker *worker,
		       uint32_t *idle)
{
	uint32_t thread = by_thread__find(&w->by_thread, worker->pid, worker->pid);
	size_t cnt = by_thread__cnt(&w->by_thread, thread), n = 0;

	for (size_t i = 0; i < loader->track->step_cnt; i++) {
		uint64_t start_ns = loader->track->steps[i].start_ns;

		while (n < cnt && by_thread__get(&w->by_thread, thread, n).time_ns <= start_ns)
			n++;
		if (n < cnt && worker->first_ns <= start_ns)
			idle[i] += is_idle(w, thread, n, start_ns) + !idle[i];
	}
}

static int find_ahead(const struct workers *w, struct loader *loader)
{
	size_t cnt = loader->track ? loader->track->step_cnt : 0;
	uint32_t *idle = calloc(cnt + 1, sizeof(*idle));

	if (!idle)
		return -1;
	for (size_t i = 0; cnt && i < loader->worker_cnt; i++)
		count_idle(w, loader, &loader->workers[i], idle);
	for (size_t i = 0; i < cnt; i++) {
		loader->ahead.step_cnt += idle[i] > 0;
		loader->ahead.none_cnt += idle[i] == 1;
		loader->ahead.idle_cnt += idle[i] ? idle[i] - 1 : 0;
	}
	free(idle);
	return 0;
}

/* ---- loaders ---- */

static void measure_main_cpu(const struct workers *w, struct loader *loader)
{
	for (size_t i = 0; i < samples__cnt(w->samples); i++) {
		struct sample s = samples__get(w->samples, i);

		if (s.pid == loader->pid && s.kind == SAMPLE_CPU)
			loader->main_cpu_ns = saturating__add(loader->main_cpu_ns, s.weight_ns);
		if (s.pid == loader->pid && w->stacks[s.stack] == STACK_STARTS &&
		    (!loader->track || (s.tid == loader->track->tid && step_track__at(loader->track, s.time_ns) >= 0)))
			loader->restart_ns = saturating__add(loader->restart_ns, s.weight_ns);
	}
}

static void measure_main(const struct workers *w, struct loader *loader)
{
	size_t cnt;
	const struct job_action *actions = job__actions(w->job, &cnt);
	uint64_t from_ns = job__events_from(w->job), end_ns = job__window(w->job)->end_ns;
	uint64_t window_ns = end_ns - from_ns - rests__between(job__rests(w->job), loader->pid, from_ns, end_ns);

	if (loader->of_cnt > 1) {
		/* Its share of the process's total. */
		if (window_ns > loader->observed_ns)
			loader->main_cpu_ns *= (double)loader->observed_ns / window_ns;
		return;
	}
	loader->observed_ns = loader->track ? loader->track->total_ns : window_ns;
	if (loader->wait_ns > loader->observed_ns) /* of few long steps most may have begun before the recording */
		loader->observed_ns = window_ns;
	for (size_t i = 0; i < cnt; i++)
		if (actions[i].pid == loader->pid && actions[i].kind == SPAN_LABEL &&
		    !strncmp(actions[i].name, LOADER_LABEL, strlen(LOADER_LABEL)) &&
		    strstr(actions[i].name, WITH_WORKERS))
			loader->batches += actions[i].val.calls;
}

/* CPUs that the process may use: the machine's, or fewer. */
static uint32_t usable_cpus(struct workers *w, uint32_t pid)
{
	uint32_t cpus = job__host(w->job)->cpus;
	struct cpu_limit limit;

	cpu_limit__of(w->job, pid, &limit);
	if (!limit.cpus || limit.cpus >= cpus)
		return cpus;
	return limit.cpus < 1 ? 1 : limit.cpus;
}

/* Sums up workers and waits. */
static int finish_loader(struct workers *w, struct loader *loader)
{
	struct worker *workers = (struct worker *)loader->workers;
	int failed = 0;

	if (loader->of_cnt == 1 || !loader->at_once)
		loader->at_once = advice__at_once(loader);
	loader__add_waits(loader);
	for (size_t i = 0; i < loader->worker_cnt && !failed; i++) {
		workers[i].number = i;
		failed = find_doings(w, loader, i, &workers[i]);
	}
	if (!loader->place.validation || loader->of_cnt == 1)
		failed = failed || find_ahead(w, loader);
	measure_main(w, loader);
	measure_other_threads(w, loader);
	advice__find(loader, usable_cpus(w, loader->pid));
	return failed;
}

static void free_loader(struct loader *loader)
{
	for (size_t i = 0; i < loader->worker_cnt; i++)
		free((void *)loader->workers[i].doings);
	free((void *)loader->workers);
	free((void *)loader->waits);
}

/* Adds one loader of a process whose loaders are told apart. */
static int add_loader_part(struct workers *w, const struct loader *whole, const struct loader_parts *parts,
			   uint32_t number)
{
	struct loader *part = array__add(&w->loaders, sizeof(*part));

	return part && !loader_parts__make(parts, whole, number, part) && !finish_loader(w, part) ? 0 : -1;
}

static int make_process(struct workers *w, uint32_t pid)
{
	struct loader whole = {.pid = pid, .of_cnt = 1, .slow = WORKER_NONE}, *added;
	struct loader_parts parts = {0};
	size_t track_cnt;
	const struct step_track *tracks = steps__tracks(w->steps, &track_cnt);
	int failed;

	for (size_t t = 0; t < track_cnt; t++)
		if (tracks[t].pid == pid)
			whole.track = &tracks[t];
	measure_main_cpu(w, &whole);
	failed = loader__find_workers(w, &whole);
	for (size_t i = 0; i < whole.worker_cnt && !failed; i++)
		failed = measure_worker(w, &whole, (struct worker *)&whole.workers[i]);
	failed = failed || loader_parts__find_iterators(&parts, w->job, &whole) || find_all_waits(w, &whole) ||
		 loader_parts__group(&parts, &whole);
	if (!failed && parts.cnt > 1) {
		for (uint32_t i = 0; i < parts.cnt && !failed; i++)
			failed = add_loader_part(w, &whole, &parts, i);
	} else if (!failed && (whole.worker_cnt || whole.wait_cnt)) {
		added = array__add(&w->loaders, sizeof(*added));
		failed = !added;
		if (added) {
			*added = whole;
			whole = (struct loader){0};
			failed = finish_loader(w, added);
		}
	}
	loader_parts__release(&parts);
	free_loader(&whole);
	return failed;
}

static int make_loaders(struct workers *w)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(w->job, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (targets[i].role == ROLE_MAIN && make_process(w, targets[i].pid))
			return -1;
	return 0;
}

struct workers *workers__new(struct job *job, const struct steps *steps)
{
	struct workers *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->job = job;
	w->steps = steps;
	w->samples = job__samples(job);
	if (!w->samples || by_thread__new(w->samples, &w->by_thread) || !(w->stacks = worker_stacks__new(w->job)) ||
	    !(w->streams = worker_stacks__streams(w->job)) || make_loaders(w)) {
		workers__free(w);
		return NULL;
	}
	return w;
}

void workers__free(struct workers *w)
{
	struct loader *loaders = w ? w->loaders.items : NULL;

	if (!w)
		return;
	for (size_t i = 0; i < w->loaders.cnt; i++)
		free_loader(&loaders[i]);
	free(loaders);
	by_thread__release(&w->by_thread);
	free(w->stacks);
	free(w->streams);
	free(w);
}

const struct loader *workers__loaders(const struct workers *w, size_t *cnt)
{
	*cnt = w->loaders.cnt;
	return w->loaders.items;
}
