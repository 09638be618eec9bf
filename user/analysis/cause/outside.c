// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/cause/outside.h"

#include <errno.h>
#include <stdlib.h>

#include "user/analysis/place/place.h"
#include "user/lib/saturating.h"
#include "user/model/rests.h"

enum { IN_STEPS = OUTSIDE__COUNT, SLOTS };

struct outside_search {
	const struct step_track *track; /* NULL: the process made no steps */
	uint32_t pid, tid;
	const struct samples *samples;
	struct outside *outside;
	struct places places;
	bool *compiles;
	uint64_t sampled_ns[SLOTS];
	uint64_t cause_ns[SLOTS][CAUSE__END];
};

static int side_of(const struct step_track *track, uint64_t time_ns)
{
	if (!track || time_ns < track->steps[0].start_ns)
		return OUTSIDE_BEFORE;
	return time_ns >= track->steps[track->step_cnt - 1].end_ns ? OUTSIDE_AFTER : IN_STEPS;
}

static int add_outside_samples(struct outside_search *f, struct hotspots *hotspots)
{
	int err = 0;

	for (size_t i = 0; i < samples__cnt(f->samples) && !err; i++) {
		struct sample sample = samples__get(f->samples, i);
		int side;

		if (sample.pid != f->pid || sample.tid != f->tid)
			continue;
		side = side_of(f->track, sample.time_ns);
		if (!hotspots) {
			uint64_t *cause_ns = &f->cause_ns[side][sample.cause];

			f->sampled_ns[side] = saturating__add(f->sampled_ns[side], sample.weight_ns);
			*cause_ns = saturating__add(*cause_ns, sample.weight_ns);
			err = places__add(&f->places, side, &sample);
		} else if (side != IN_STEPS) {
			err = hotspots__add(hotspots, side, &sample);
		}
		if (!hotspots && side != IN_STEPS && f->compiles[sample.stack])
			f->outside->parts[side].compile_ns =
				saturating__add(f->outside->parts[side].compile_ns, sample.weight_ns);
	}
	return err;
}

/* Chooses the lines that represent stacks, relative to all of the thread's time. */
static int find_outside_hotspots(struct outside_search *f)
{
	static const bool all[SLOTS] = {true, true, true};
	const struct place_set set = {all, SLOTS, 1};
	struct hotspot top[OUTSIDE__COUNT] = {0};
	uint32_t *lines = places__lines(&f->places, &set);
	struct hotspots hotspots = {.places = &f->places, .lines = lines};
	int err = lines ? add_outside_samples(f, &hotspots) : -ENOMEM;

	if (!err)
		err = hotspots__top(&hotspots, OUTSIDE__COUNT, 1, top);
	for (int side = 0; side < OUTSIDE__COUNT && !err; side++) {
		struct outside_part *part = &f->outside->parts[side];

		if (top[side].ns >= f->sampled_ns[side] / 2)
			part->hotspot = top[side];
		for (unsigned int cause = 0; cause < CAUSE__END; cause++)
			if (f->cause_ns[side][cause] > f->cause_ns[side][part->cause])
				part->cause = cause;
	}
	hotspots__free(&hotspots);
	free(lines);
	return err;
}

static int find_outside(struct outside_search *f, struct job *job)
{
	int err = -ENOMEM;

	f->places.job = job;
	f->samples = job__samples(job);
	f->compiles = f->samples ? blame__compiles(job) : NULL;
	if (f->compiles)
		err = add_outside_samples(f, NULL) ?: find_outside_hotspots(f);
	places__free(&f->places);
	free(f->compiles);
	return err;
}

/* Between two times, without the rests of the process. */
static uint64_t recorded_ns(const struct job *job, uint32_t pid, uint64_t from_ns, uint64_t to_ns)
{
	return to_ns - from_ns - rests__between(job__rests(job), pid, from_ns, to_ns);
}

/* ---- what it does behind its last step ---- */

#define SAVES_NS 1000000000ULL /* a checkpoint is written in no smaller parts that are seen */

/* Spans that a program begins and ends as it goes on; threads that only wait for each other have the others, too. */
static bool is_landmark(enum span_kind kind)
{
	return kind != SPAN_OP && kind != SPAN_EVALUATE && kind != SPAN_NODE && kind != SPAN_GC && kind != SPAN_COMM &&
	       kind != SPAN_SYNC;
}

/* Whether the landmarks of two paths are the same. */
static bool same_landmarks(const struct stacks *stacks, uint32_t a, uint32_t b)
{
	struct path x = stacks__path(stacks, a), y = stacks__path(stacks, b);
	uint32_t i = 0, k = 0;

	for (;; i++, k++) {
		while (i < x.cnt && !is_landmark(x.spans[i].kind))
			i++;
		while (k < y.cnt && !is_landmark(y.spans[k].kind))
			k++;
		if (i == x.cnt || k == y.cnt)
			return i == x.cnt && k == y.cnt;
		if (x.spans[i].kind != y.spans[k].kind || x.spans[i].name != y.spans[k].name)
			return false;
	}
}

struct work_search {
	const struct job *job;
	const struct steps *steps;
	const struct step_track *track;
	uint64_t end_ns, went_on_ns, last_ns; /* last_ns: of the last sample */
	uint32_t path;                        /* of the last sample */
	bool seen, gets_data, trains;
};

/* Takes the samples of the thread behind its last step, by time. */
static void add_work(struct work_search *w, const struct sample *s, struct outside_part *part)
{
	enum phase phase = steps__phase(w->steps, s->path);
	bool saves = phase == PHASE_CHECKPOINT && s->weight_ns <= SAVES_NS && s->time_ns + SAVES_NS >= w->end_ns;
	uint64_t waited_ns = s->weight_ns < s->time_ns - w->last_ns ? s->weight_ns : s->time_ns - w->last_ns, ns;

	w->gets_data = w->gets_data || phase == PHASE_DATA || phase == PHASE_VALIDATION;
	w->trains = w->trains || phase == PHASE_BACKWARD;
	if (saves || (w->seen && !same_landmarks(job__stacks(w->job), w->path, s->path))) {
		uint64_t at_ns = s->time_ns - (saves ? 0 : waited_ns); /* it may wait since then */

		ns = recorded_ns(w->job, w->track->pid, w->went_on_ns, at_ns);
		part->longest_ns = ns > part->longest_ns ? ns : part->longest_ns;
		part->work = saves ? OUTSIDE_SAVES : OUTSIDE_WORKS;
		w->went_on_ns = at_ns;
	}
	w->last_ns = s->time_ns;
	w->seen = true;
	w->path = s->path;
}

/* end_ns: until when the process was recorded. 0 or -ENOMEM. */
static int find_work(struct job *job, const struct steps *steps, const struct step_track *track, uint64_t end_ns,
		     struct outside_part *part)
{
	const struct samples *samples = job__samples(job);
	uint64_t last_ns = track->steps[track->step_cnt - 1].end_ns;
	struct work_search w = {job, steps, track, .end_ns = end_ns, .went_on_ns = last_ns, .last_ns = last_ns};

	part->still_ns = part->ns;
	for (size_t i = 0; samples && track->thread && i < samples__cnt(samples); i++) {
		struct sample s;

		if (samples__thread_of(samples, i) != track->thread)
			continue;
		s = samples__get(samples, i);
		if (s.time_ns >= w.last_ns && s.time_ns <= w.end_ns)
			add_work(&w, &s, part);
	}
	if (part->work)
		part->still_ns = recorded_ns(job, track->pid, w.went_on_ns, w.end_ns);
	if (part->work == OUTSIDE_WORKS && w.gets_data && !w.trains)
		part->work = OUTSIDE_EVALUATES;
	return samples ? 0 : -ENOMEM;
}

int outside__find(struct job *job, const struct steps *steps, const struct step_track *track, struct outside *outside)
{
	uint64_t from_ns = job__events_from(job), end_ns = job__window(job)->end_ns,
		 first_ns = track->steps[0].start_ns, last_ns = track->steps[track->step_cnt - 1].end_ns;
	struct outside_search f = {.track = track, .pid = track->pid, .tid = track->tid, .outside = outside};

	*outside = (struct outside){0};
	rests__narrow(job__rests(job), track->pid, &from_ns, &end_ns);
	if (from_ns && first_ns > from_ns)
		outside->parts[OUTSIDE_BEFORE].ns = recorded_ns(job, track->pid, from_ns, first_ns);
	if (end_ns > last_ns)
		outside->parts[OUTSIDE_AFTER].ns = recorded_ns(job, track->pid, last_ns, end_ns);
	return find_outside(&f, job) ?: find_work(job, steps, track, end_ns, &outside->parts[OUTSIDE_AFTER]);
}

int outside__all(struct job *job, uint32_t pid, struct outside_part *part)
{
	uint64_t from_ns = job__events_from(job), end_ns = job__window(job)->end_ns;
	struct outside outside = {0};
	struct outside_search f = {.pid = pid, .tid = pid, .outside = &outside};
	int err;

	rests__narrow(job__rests(job), pid, &from_ns, &end_ns);
	outside.parts[OUTSIDE_BEFORE].ns = end_ns > from_ns ? recorded_ns(job, pid, from_ns, end_ns) : 0;
	err = find_outside(&f, job);
	*part = outside.parts[OUTSIDE_BEFORE];
	return err;
}
