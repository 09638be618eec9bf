// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Collects events of all kinds in one array, which is sorted by track and time once it is complete.
 * One thread owns a struct tracks.
 */
#include "user/analysis/timeline/tracks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "include/records.h"
#include "user/analysis/cause/blame.h"
#include "user/analysis/loader/workers.h"
#include "user/lib/compare.h"
#include "user/lib/map.h"

/* ---- memory of operators ---- */

/* At a snapshot. The rows are read within milliseconds of its time. */
struct memory_point {
	uint64_t time_ns;
	int64_t bytes[OP_MEMORY__COUNT]; /* since the recording began, in windows of operators */
	uint32_t pid;
	bool device; /* some operators of the process have used memory of devices */
};

/* Empty: all 0. */
struct memory_track {
	struct map rows;      /* struct memory_row */
	struct map processes; /* likewise */
	struct array points;
	uint64_t time_ns; /* of the current snapshot; 0: not known */
};

/* A row is cumulative until its process ends; another process may have its pid then. */
struct memory_row {
	struct op_key key;
	int64_t bytes[OP_MEMORY__COUNT]; /* that the process's sum has of it */
};

struct memory_process {
	uint32_t pid;
	bool changed; /* since its last point */
	struct memory_point now;
};

static int64_t wrapping_add(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t wrapping_subtract(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* Adds a point for each process whose sum has changed. */
static int end_snapshot(struct memory_track *track)
{
	struct memory_process *processes = track->processes.items.items;

	for (size_t i = 0; i < track->processes.items.cnt && track->time_ns; i++) {
		struct memory_point *point;

		if (!processes[i].changed)
			continue;
		point = array__add(&track->points, sizeof(*point));
		if (!point)
			return -ENOMEM;
		*point = processes[i].now;
		point->time_ns = track->time_ns;
		processes[i].changed = false;
	}
	return 0;
}

static int add_row(struct memory_track *track, const struct rec_op *op)
{
	struct memory_row *row = MAP_FIND(&track->rows, struct memory_row, &op->key);
	struct memory_process *process;
	bool none = true;

	for (int i = 0; i < OP_MEMORY__COUNT; i++)
		none = none && !op->val.self_bytes[i];
	if (!row && none)
		return 0;
	row = row ?: MAP_ADD(&track->rows, struct memory_row, &op->key);
	process = row ? MAP_ADD(&track->processes, struct memory_process, &op->key.pid) : NULL;
	if (!process)
		return -ENOMEM;
	process->changed = true;
	process->now.pid = op->key.pid;
	process->now.device |= op->val.self_bytes[OP_MEMORY_DEVICE] != 0;
	for (int i = 0; i < OP_MEMORY__COUNT; i++) {
		int64_t more = wrapping_subtract(op->val.self_bytes[i], row->bytes[i]);

		process->now.bytes[i] = wrapping_add(process->now.bytes[i], more);
		row->bytes[i] = op->hdr.flags & REC_ENDED ? 0 : op->val.self_bytes[i];
	}
	return 0;
}

/* Takes one record, and skips all but the two. 0 or -ENOMEM. */
static int memory_track__add(struct memory_track *track, const struct rec_hdr *record)
{
	int err = 0;

	if (record->type == REC_OP && record->size >= sizeof(struct rec_op))
		return add_row(track, (const struct rec_op *)record);
	if (record->type == REC_WINDOW && record->size >= sizeof(struct rec_window)) {
		err = end_snapshot(track);
		track->time_ns = ((const struct rec_window *)record)->end_ns;
	}
	return err;
}

/* Call after the last record. 0 or -ENOMEM. */
static int memory_track__finish(struct memory_track *track)
{
	return end_snapshot(track);
}

/* In recording order. Empty without record --memory. The track's own. */
static const struct memory_point *memory_track__points(const struct memory_track *track, size_t *cnt)
{
	*cnt = track->points.cnt;
	return track->points.items;
}

static void memory_track__free(struct memory_track *track)
{
	map__free(&track->rows);
	map__free(&track->processes);
	free(track->points.items);
}

struct placed_event {
	struct track_event event; /* its args: index in the order in which they came */
	enum track_kind kind;
	uint32_t pid, tid;
	size_t number; /* in the order in which the events came */
};

struct tracks {
	struct memory_track memory;
	struct array placed; /* struct placed_event; empty once it is built */
	struct array events; /* struct track_event */
	struct array args;   /* struct track_arg */
	struct array all;    /* struct track */
	struct array texts;  /* char *, malloc'ed */
	struct calltree *tree;
	uint64_t left_out;
};

struct tracks *tracks__new(void)
{
	return calloc(1, sizeof(struct tracks));
}

void tracks__free(struct tracks *tracks)
{
	if (!tracks)
		return;
	for (size_t i = 0; i < tracks->texts.cnt; i++)
		free(((char **)tracks->texts.items)[i]);
	memory_track__free(&tracks->memory);
	calltree__free(tracks->tree);
	free(tracks->texts.items);
	free(tracks->placed.items);
	free(tracks->events.items);
	free(tracks->args.items);
	free(tracks->all.items);
	free(tracks);
}

int tracks__add(struct tracks *tracks, const struct rec_hdr *record)
{
	return memory_track__add(&tracks->memory, record);
}

/* Takes text over, which may be NULL for want of memory; so may the result. */
static const char *own_text(struct tracks *tracks, char *text)
{
	char **item = text ? array__add(&tracks->texts, sizeof(*item)) : NULL;

	if (item)
		*item = text;
	else
		free(text);
	return item ? text : NULL;
}

/* Adds an event. The arguments that the caller adds next are its own. NULL: no memory. */
static struct track_event *add_event(struct tracks *tracks, enum track_kind kind, uint32_t pid, uint32_t tid,
				     const struct track_event *event)
{
	struct placed_event *placed = array__add(&tracks->placed, sizeof(*placed));

	if (!placed)
		return NULL;
	*placed = (struct placed_event){
		.event = *event, .kind = kind, .pid = pid, .tid = tid, .number = tracks->placed.cnt};
	placed->event.arg = tracks->args.cnt;
	return &placed->event;
}

static int add_arg(struct tracks *tracks, struct track_event *event, const char *key, const char *text, double number)
{
	struct track_arg *arg = array__add(&tracks->args, sizeof(*arg));

	if (!arg)
		return -ENOMEM;
	*arg = (struct track_arg){.key = key, .text = text, .number = number};
	event->arg_cnt++;
	return 0;
}

static int add_number(struct tracks *tracks, struct track_event *event, const char *key, double number)
{
	return add_arg(tracks, event, key, NULL, number);
}

static int add_text(struct tracks *tracks, struct track_event *event, const char *key, const char *text)
{
	return text ? add_arg(tracks, event, key, text, 0) : -ENOMEM;
}

/* ---- steps ---- */

static const char *phase_key(enum phase phase)
{
	static const char *const keys[] = {
#define X(id, name) [PHASE_##id] = name " ms",
		STEPFLAME_PHASES(X)
#undef X
	};

	return keys[phase];
}

static int add_cause(struct tracks *tracks, struct job *job, const struct blame *blame, size_t slow,
		     struct track_event *event)
{
	const struct blame_group *group = &blame->groups[blame->steps[slow].group];
	int err = add_text(tracks, event, "slow because of", blame_cause__name(group->cause));

	if (!err && group->phase >= 0)
		err = add_text(tracks, event, "in phase", phase__name(group->phase));
	if (!err)
		err = add_number(tracks, event, "over ms", blame->steps[slow].over_ns / 1e6);
	if (!err && group->place.outer.code)
		err = add_text(tracks, event, "where", own_text(tracks, place__text(job, &group->place)));
	return err;
}

static int add_step(struct tracks *tracks, const struct step_track *track, const struct step *step,
		    struct track_event **event)
{
	char *name;
	int err = 0;

	if (asprintf(&name, "step %" PRIu64, step->index) < 0)
		return -ENOMEM;
	*event = add_event(tracks, TRACK_STEPS, track->pid, track->tid,
			   &(struct track_event){.start_ns = step->start_ns,
						 .duration_ns = step__ns(step),
						 .value = step->index & INT64_MAX,
						 .name = own_text(tracks, name)});
	if (!*event || !(*event)->name)
		return -ENOMEM;
	for (int phase = 0; phase < PHASE__COUNT && track->has_phases && !err; phase++)
		if (step->phase_ns[phase])
			err = add_number(tracks, *event, phase_key(phase), step->phase_ns[phase] / 1e6);
	if (!err && step->gc_ns)
		err = add_number(tracks, *event, "garbage collections ms", step->gc_ns / 1e6);
	return err;
}

static int add_steps(struct tracks *tracks, struct job *job, const struct steps *steps)
{
	size_t cnt;
	const struct step_track *all = steps__tracks(steps, &cnt);
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct step_track *track = &all[i];
		struct blame blame;
		struct track_event *event;
		size_t slow = 0;

		err = blame__new(job, steps, track, &blame);
		if (err)
			break;
		for (size_t s = 0; s < track->step_cnt && !err; s++) {
			err = add_step(tracks, track, &track->steps[s], &event);
			if (!err && slow < track->slow_cnt && track->slow[slow] == s)
				err = add_cause(tracks, job, &blame, slow++, event);
		}
		blame__release(&blame);
	}
	return err;
}

/* ---- garbage collections ---- */

static int add_pauses(struct tracks *tracks, struct job *job, const struct samples *samples)
{
	size_t cnt;
	const struct gc_pause *pauses = samples__gc_pauses(samples, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const char *name = job__name_or_lost(job, pauses[i].name);
		char *copy = name ? strdup(name) : NULL;
		const struct track_event event = {.start_ns = pauses[i].start_ns,
						  .duration_ns = pauses[i].duration_ns,
						  .name = own_text(tracks, copy)};

		if (!event.name || !add_event(tracks, TRACK_GC, pauses[i].pid, 0, &event))
			return -ENOMEM;
	}
	return 0;
}

/* ---- samples ---- */

/*
 * Was the thread away for the whole weight until the sample's time? Of shorter waits and of those
 * for the GIL, one sample stands for the others, and has their time; so has, after a wait for the
 * GIL, the wait for a CPU (bpf/samples.bpf.c).
 */
static bool has_begin(const struct sample *sample)
{
	return sample->waits == 1 && sample->weight_ns >= WAIT_THRESHOLD_NS && sample->weight_ns <= sample->time_ns &&
	       (sample->passed ||
		(sample->cause != CAUSE_GIL && !(sample->cause == CAUSE_RUN_QUEUE && sample->syscall == SYS_futex)));
}

static int add_waker(struct tracks *tracks, struct track_event *event, const struct sample *sample)
{
	int err = sample->waker_pid ? add_number(tracks, event, sample->passed ? "for process" : "ended by process",
						 sample->waker_pid)
				    : 0;

	return err || !sample->waker_tid ? err
					 : add_number(tracks, event, sample->passed ? "for thread" : "ended by thread",
						      sample->waker_tid);
}

/* The phase in which a thread that makes steps was; NULL: another thread. */
static const char *phase_of(const struct steps *steps, const struct sample *sample)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(steps, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (tracks[i].thread == sample->thread)
			return phase__name(step_track__phase(&tracks[i], steps, sample));
	return NULL;
}

static int add_sample(struct tracks *tracks, struct job *job, const struct steps *steps, const struct sample *sample)
{
	bool wait = sample->kind == SAMPLE_WAIT, whole = wait && has_begin(sample);
	const char *file = sample->file ? job__name(job, sample->file) : NULL, *phase = phase_of(steps, sample);
	struct track_event new = {.start_ns = sample->time_ns, .instant = !whole}, *event;
	int err = calltree__add(tracks->tree, sample, &new.node);

	if (err)
		return err;
	if (whole) {
		new.start_ns -= sample->weight_ns;
		new.duration_ns = sample->weight_ns;
	}
	new.name = wait ? sample_cause__name(sample->cause) : "";
	event = add_event(tracks, wait ? TRACK_WAITS : TRACK_SAMPLES, sample->pid, sample->tid, &new);
	if (!event)
		return -ENOMEM;
	err = phase ? add_text(tracks, event, "phase", phase) : 0;
	if (!err && !whole)
		err = add_number(tracks, event, "stands for ms", sample->weight_ns / 1e6);
	if (!err && wait && !whole)
		err = add_number(tracks, event, "waits", sample->waits);
	if (!err && wait)
		err = add_waker(tracks, event, sample);
	if (!err && file)
		err = add_text(tracks, event, "file", own_text(tracks, strdup(file)));
	return err;
}

static int add_samples(struct tracks *tracks, struct job *job, const struct steps *steps, const struct samples *samples)
{
	int err = 0;

	for (size_t i = 0; i < samples__cnt(samples) && !err; i++) {
		const struct sample sample = samples__get(samples, i);

		err = add_sample(tracks, job, steps, &sample);
	}
	return err;
}

/* ---- DataLoaders ---- */

static int add_loader_wait(struct tracks *tracks, const struct loader *loader, const struct loader_wait *wait)
{
	struct track_event new = {.start_ns = wait->start_ns, .duration_ns = wait->end_ns - wait->start_ns}, *event;
	bool known = wait->worker < loader->worker_cnt;
	char *name;
	int err;

	if (wait->end_ns < wait->start_ns) {
		tracks->left_out++;
		return 0;
	}
	if (!known)
		name = strdup("waits for a batch");
	else if (asprintf(&name, "waits for worker %u", loader->workers[wait->worker].number) < 0)
		name = NULL;
	new.name = own_text(tracks, name);
	event = new.name ? add_event(tracks, TRACK_LOADER, loader->pid, loader->number, &new) : NULL;
	err = event ? add_number(tracks, event, "waited ms", wait->ns / 1e6) : -ENOMEM;
	if (!err && known)
		err = add_number(tracks, event, "worker's process", loader->workers[wait->worker].pid);
	return err
		       ?: add_text(tracks, event, "batch",
				   wait->broken ? "never came: the worker ended"
				   : wait->late ? "was not ready"
						: "was ready: only handed over");
}

static int add_worker(struct tracks *tracks, const struct loader *loader, const struct worker *worker)
{
	struct track_event new = {.start_ns = worker->first_ns, .duration_ns = worker->last_ns - worker->first_ns},
			   *event;
	char *name;
	int err;

	if (worker->last_ns < worker->first_ns || !worker->first_ns)
		return 0;
	if (asprintf(&name, "DataLoader worker %u of process %u", worker->number, REC_PID(loader->pid)) < 0)
		return -ENOMEM;
	new.name = own_text(tracks, name);
	event = new.name ? add_event(tracks, TRACK_WORKER, worker->pid, 0, &new) : NULL;
	err = event ? add_number(tracks, event, "batches waited for", worker->waits) : -ENOMEM;
	err = err ?: add_number(tracks, event, "waited for ms", worker->wait_ns / 1e6);
	err = err ?: add_number(tracks, event, "idle ms", worker->idle_ns / 1e6);
	return err ?: add_number(tracks, event, "on CPU ms", worker->cpu_ns / 1e6);
}

static int add_loaders(struct tracks *tracks, struct job *job, const struct steps *steps)
{
	struct workers *workers = workers__new(job, steps);
	size_t cnt = 0;
	const struct loader *loaders = workers ? workers__loaders(workers, &cnt) : NULL;
	int err = workers ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++) {
		for (size_t w = 0; w < loaders[i].wait_cnt && !err; w++)
			err = add_loader_wait(tracks, &loaders[i], &loaders[i].waits[w]);
		for (size_t w = 0; w < loaders[i].worker_cnt && !err; w++)
			err = add_worker(tracks, &loaders[i], &loaders[i].workers[w]);
	}
	workers__free(workers);
	return err;
}

/* ---- counters ---- */

static int add_counter(struct tracks *tracks, enum track_kind kind, uint32_t pid, uint32_t tid, uint64_t time_ns,
		       int64_t value)
{
	const struct track_event event = {.start_ns = time_ns, .value = value};

	return add_event(tracks, kind, pid, tid, &event) ? 0 : -ENOMEM;
}

static int add_memory(struct tracks *tracks)
{
	size_t cnt;
	const struct memory_point *points = memory_track__points(&tracks->memory, &cnt);
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct memory_point *point = &points[i];

		err = add_counter(tracks, TRACK_MEMORY, point->pid, 0, point->time_ns, point->bytes[OP_MEMORY_CPU]);
		if (!err && point->device)
			err = add_counter(tracks, TRACK_DEVICE, point->pid, 0, point->time_ns,
					  point->bytes[OP_MEMORY_DEVICE]);
	}
	return err;
}

static int add_point(const struct curve_point *point, void *ctx)
{
	const struct track_event event = {.start_ns = point->time_ns, .real = point->value};

	return add_event(ctx, TRACK_CURVES + point->kind, point->pid, point->device, &event) ? 0 : -ENOMEM;
}

/* ---- tracks ---- */

static int compare_place_and_time(const void *a, const void *b)
{
	const struct placed_event *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	if (x->kind != y->kind)
		return COMPARE(x->kind, y->kind);
	if (x->tid != y->tid)
		return COMPARE(x->tid, y->tid);
	if (x->event.start_ns != y->event.start_ns)
		return COMPARE(x->event.start_ns, y->event.start_ns);
	return COMPARE(x->number, y->number);
}

static bool is_possible_time(const struct track_event *event)
{
	uint64_t end;

	return event->start_ns && !__builtin_add_overflow(event->start_ns, event->duration_ns, &end) &&
	       end <= INT64_MAX;
}

static const char *frame_name(const struct calltree *tree, uint32_t node)
{
	size_t cnt;

	return calltree__frames(tree, &cnt)[calltree__nodes(tree, &cnt)[node].frame].name;
}

/* Moves the events that have a place into tracks. The placed events are sorted. */
static int make_tracks(struct tracks *tracks)
{
	const struct placed_event *placed = tracks->placed.items, *last = NULL;
	struct track *track = NULL;
	uint64_t end_ns = 0;

	if (array__grow(&tracks->events, tracks->placed.cnt, sizeof(struct track_event)))
		return -ENOMEM;
	tracks->events.cnt = 0;
	for (size_t i = 0; i < tracks->placed.cnt; i++) {
		const struct placed_event *next = &placed[i];
		struct track_event *event = (struct track_event *)tracks->events.items + tracks->events.cnt;
		bool begins = !last || last->pid != next->pid || last->kind != next->kind || last->tid != next->tid;

		if (!is_possible_time(&next->event) || (!begins && next->event.start_ns < end_ns)) {
			tracks->left_out++;
			continue;
		}
		if (begins) {
			track = array__add(&tracks->all, sizeof(*track));
			if (!track)
				return -ENOMEM;
			*track =
				(struct track){.kind = next->kind, .pid = next->pid, .tid = next->tid, .events = event};
		}
		*event = next->event;
		if (next->kind == TRACK_SAMPLES)
			event->name = frame_name(tracks->tree, event->node);
		end_ns = event->start_ns + event->duration_ns;
		tracks->events.cnt++;
		track->event_cnt++;
		last = next;
	}
	free(tracks->placed.items);
	tracks->placed = (struct array){0};
	return 0;
}

int tracks__build(struct tracks *tracks, struct job *job)
{
	struct steps *steps = steps__new(job);
	const struct samples *samples = steps ? job__samples(job) : NULL;
	int err;

	tracks->tree = calltree__new(job, NULL, false);
	err = samples && tracks->tree ? memory_track__finish(&tracks->memory) : -ENOMEM;
	err = err ?: add_steps(tracks, job, steps);
	err = err ?: add_pauses(tracks, job, samples);
	err = err ?: add_loaders(tracks, job, steps);
	err = err ?: add_samples(tracks, job, steps, samples);
	err = err ?: add_memory(tracks);
	err = err ?: curves__each(job, add_point, tracks);
	if (!err && tracks->placed.cnt)
		qsort(tracks->placed.items, tracks->placed.cnt, sizeof(struct placed_event), compare_place_and_time);
	err = err ?: make_tracks(tracks);
	steps__free(steps);
	return err;
}

const struct track *tracks__all(const struct tracks *tracks, size_t *cnt)
{
	*cnt = tracks->all.cnt;
	return tracks->all.items;
}

const struct track_arg *tracks__args(const struct tracks *tracks)
{
	return tracks->args.items;
}

const struct calltree *tracks__stacks(const struct tracks *tracks)
{
	return tracks->tree;
}

uint64_t tracks__left_out(const struct tracks *tracks)
{
	return tracks->left_out;
}

const char *track__unit(const struct track *track)
{
	return track__is_curve(track) ? curve__unit(track->kind - TRACK_CURVES) : "bytes";
}

char *track__title(const struct track *track)
{
	static const char *const formats[] = {
		[TRACK_STEPS] = "steps of thread %u",
		[TRACK_GC] = "garbage collections",
		[TRACK_LOADER] = "DataLoader %u",
		[TRACK_WORKER] = "DataLoader worker",
		[TRACK_WAITS] = "waits of thread %u",
		[TRACK_SAMPLES] = "samples of thread %u",
		[TRACK_MEMORY] = "operators: bytes allocated less freed, CPU",
		[TRACK_DEVICE] = "operators: bytes allocated less freed, devices",
	};
	const char *format = track__is_curve(track) ? curve__title(track->kind - TRACK_CURVES) : formats[track->kind],
		   *number = strstr(format, "%u");
	char *title;

	if (!number)
		return strdup(format);
	return asprintf(&title, "%.*s%u%s", (int)(number - format), format, track->tid, number + 2) < 0 ? NULL : title;
}
