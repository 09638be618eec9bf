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
#include "user/analysis/gpu/gpu_readings.h"
#include "user/analysis/loader/worker_stacks.h"
#include "user/analysis/loader/workers.h"
#include "user/analysis/place/place.h"
#include "user/lib/digits.h"
#include "user/lib/histograms.h"
#include "user/lib/map.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/gpu.h"
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

static char *format_text(const char *fmt, va_list ap)
{
	char *text;

	return vasprintf(&text, fmt, ap) < 0 ? NULL : text;
}

void verdict__say_why(struct judge *j, const char *fmt, ...)
{
	char *old = j->verdict->why, *text;
	va_list ap;

	va_start(ap, fmt);
	text = format_text(fmt, ap);
	va_end(ap);
	if (!text || asprintf(&j->verdict->why, "%s%s%s", old ?: "", old ? "; " : "", text) < 0) {
		j->verdict->why = old;
		j->err = -ENOMEM;
	} else {
		free(old);
	}
	free(text);
}

/* Before a wait for a CPU, who ended the previous wait does not matter. */
bool verdict__one_waker(const struct blame_group *group)
{
	return group->waker_pid && group->waker_ns >= 0.5 * group->wait_ns && group->cause != CAUSE_RUN_QUEUE;
}

bool verdict__is_of_group(const struct judge *j, const struct blame_group *group, long step)
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

/* of the time in which batches are handed over: for so long the workers' work has their GIL */
#define HELD_UP (1.0 / 3)

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
		j->late |= loaders[i].wait_ns >= loaders[i].handover_ns ||
			   loaders[i].gil_ns >= HELD_UP * loaders[i].handover_ns;
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
		if (!sample_cause__is_anywhere(cause))
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
		if (stacks[s.stack] == STACK_STARTS &&
		    verdict__is_of_group(j, group, step_track__at(j->track, s.time_ns)))
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
	if (j->late) /* else they are done before the steps ask */
		err = err ?: places__find(&places, &ask, &place);
	if (!err && place.outer.code)
		say_place(j, &place, ns);
	places__free(&places);
	intern__free(&workers);
	free(stacks);
	j->err = j->err ?: err;
	return place.outer.code;
}

/* ---- the place, the lines that had the time, who ended the waits, workers that failed ---- */

#define WATCHED_SHARE 0.1 /* least share of the steps' time that is watched, if it is to represent all steps */
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

/* How busy NVML says that a GPU was while the steps lasted; -1: its readings are of too little of that time. */
static double share_by_readings(const struct judge *j, const struct gpu_readings *readings)
{
	const struct step *steps = j->track->steps;
	uint64_t first_ns = steps[0].start_ns, last_ns = steps[j->track->step_cnt - 1].end_ns;
	uint64_t start_ns = readings->items[0].time_ns, end_ns = readings->items[readings->cnt - 1].time_ns;
	struct gpu_reading found;

	start_ns = start_ns > first_ns ? start_ns : first_ns;
	end_ns = end_ns < last_ns ? end_ns : last_ns;
	if (end_ns <= start_ns || end_ns - start_ns < WATCHED_SHARE * (last_ns - first_ns) ||
	    !gpu_readings__span(readings, start_ns, end_ns, &found) || found.busy_percent < 0)
		return -1;
	return fmin(1, found.busy_percent / 100);
}

static bool has_collectives(const struct judge *j)
{
	const struct stacks *stacks = job__stacks(j->job);
	bool found = false;

	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		found |= j->blame->all.ns[PHASE_COMM][cause] > 0;
	for (size_t i = 0; !found && i < stacks__path_end(stacks); i++) {
		struct path path = stacks__path(stacks, i);

		for (uint32_t s = 0; s < path.cnt; s++)
			found |= path.spans[s].kind == SPAN_COMM;
	}
	return found;
}

/* Without CUPTI: the busiest of the GPUs that NVML says the process uses. */
void verdict__find_busy(struct judge *j)
{
	const struct gpu_step *all = &j->gpu->all;
	const struct gpu *gpu = job__gpu(j->job);
	struct gpu_readings readings = gpu ? gpu_readings__of(j->job, gpu) : (struct gpu_readings){0};

	j->busy_share =
		all->watched_ns && all->watched_ns >= WATCHED_SHARE * j->blame->all.total_ns ? gpu_step__busy(all) : -1;
	j->by_nvml = j->busy_share < 0;
	j->has_ranks = has_collectives(j);
	while (j->by_nvml && readings.cnt) {
		struct gpu_readings one = gpu_readings__next(&readings);

		if (gpu__uses(gpu, j->track->pid, one.items->device))
			j->busy_share = fmax(j->busy_share, share_by_readings(j, &one));
	}
}

static void say_busy(struct judge *j)
{
	const struct gpu_steps *gpu = j->gpu;

	if (j->busy_share >= 0 && j->by_nvml)
		verdict__say(j, &j->verdict->evidence, "GPU busy for %.1f %% of the time (NVML, whoever used it%s)",
			     100 * j->busy_share,
			     j->has_ranks ? "; collectives that wait for other ranks count, too" : "");
	else if (j->busy_share >= 0 && gpu->kernels)
		verdict__say(j, &j->verdict->evidence,
			     "GPU busy for %.1f %% of %s s, with %" PRIu64 " kernels of %s us", 100 * j->busy_share,
			     DIGITS(gpu->all.watched_ns / 1e9, 3), gpu->kernels,
			     DIGITS(gpu->kernel_ns / 1e3 / gpu->kernels, 3));
	else if (j->busy_share >= 0)
		verdict__say(j, &j->verdict->evidence, "GPU busy for %.1f %% of %s s", 100 * j->busy_share,
			     DIGITS(gpu->all.watched_ns / 1e9, 3));
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
			verdict__say(j, &j->verdict->evidence, "%s: %s s", j->verdict->place,
				     DIGITS(main->ns / 1e9, 3));
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
			verdict__say(j, &j->verdict->evidence, "%s: %s s", text, DIGITS(hotspots[i].ns / 1e9, 3));
		else
			j->err = -ENOMEM;
		free(text);
	}
}

bool verdict__is_in_gc(const struct judge *j, const struct sample *s)
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
	bool spins = s->kind == SAMPLE_CPU && samples__awaits_gpu(job__samples(j->job), s->path);

	if (j->rule)
		return verdict_rule__has(j->rule, phase, spins ? CAUSE_GPU_SYNC : s->cause);
	if (j->collects)
		return verdict__is_in_gc(j, s);
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
		if (step_track__at(j->track, sample.time_ns) >= 0 && !sample_cause__is_anywhere(sample.cause))
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

	if (j->verdict->class == VERDICT_GPU || j->verdict->class == VERDICT_LAUNCH || j->by_nvml)
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
	if (verdict__say_collector(j) || (workers && !j->slow_worker) || (!workers && verdict__say_threads(j)))
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
		verdict__say(j, &j->verdict->evidence, "%s: %s s to open, look up or list files", j->far_files,
			     DIGITS(seconds, 3));
}

void verdict__give_evidence(struct judge *j)
{
	give_evidence(j);
	say_far_files(j);
	say_ended(j);
}
