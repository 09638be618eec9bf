// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/cause/minutes.h"

#include <errno.h>
#include <stdlib.h>

#include "user/analysis/place/place.h"
#include "user/lib/saturating.h"
#include "user/model/resources.h"
#include "user/model/rests.h"

#define WAITS (PHASE__COUNT * CAUSE__END)

struct minutes {
	struct minutes_of *all;
	size_t cnt;
	struct minute_wait **waits; /* of each, for all its minutes with steps; or NULL */
};

int64_t job__wall_ns(const struct job *job, uint64_t monotonic_ns)
{
	const struct rec_host *host = job__host(job);

	return monotonic_ns - host->monotonic_ns + host->realtime_ns;
}

int64_t job__minute(const struct job *job, uint64_t monotonic_ns)
{
	int64_t wall_ns = job__wall_ns(job, monotonic_ns);

	return wall_ns / (int64_t)MINUTE_NS - (wall_ns % (int64_t)MINUTE_NS < 0);
}

/* NULL: it is not in one of the process's minutes. */
static struct minute *minute_at(const struct job *job, const struct minutes_of *of, uint64_t monotonic_ns)
{
	int64_t minute = job__minute(job, monotonic_ns) - of->first;

	return minute < 0 || minute >= (int64_t)of->cnt ? NULL : &of->minutes[minute];
}

static void find_extent(struct job *job, struct minutes_of *of)
{
	const struct rec_window *window = job__window(job);
	const struct rec_job *known = resources__job(job__resources(job), of->target->pid);
	const struct rec_proc *exit = job__exit(job, of->target->pid);

	of->since_ns = job__events_from(job);
	of->until_ns = window->end_ns;
	rests__narrow(job__rests(job), of->target->pid, &of->since_ns, &of->until_ns);
	if (known && known->since_ns > of->since_ns)
		of->since_ns = known->since_ns;
	if (exit && exit->time_ns < of->until_ns)
		of->until_ns = exit->time_ns;
	if (of->until_ns < of->since_ns)
		of->until_ns = of->since_ns;
}

/* How much of each minute was recorded, and how much of it was a rest. */
static void add_seen(struct job *job, struct minutes_of *of)
{
	for (uint64_t at = of->since_ns; at < of->until_ns;) {
		struct minute *minute = minute_at(job, of, at);
		uint64_t next = at + MINUTE_NS - (uint64_t)job__wall_ns(job, at) % MINUTE_NS;

		if (next > of->until_ns)
			next = of->until_ns;
		minute->rested_ns = rests__between(job__rests(job), of->target->pid, at, next);
		minute->seen_ns = next - at > minute->rested_ns ? next - at - minute->rested_ns : 0;
		at = next;
	}
}

static void add_rest_steps(struct job *job, struct minutes_of *of)
{
	size_t cnt;
	const struct rec_step *steps = job__boundaries(job, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		struct minute *minute;

		if (steps[i].pid != of->target->pid || steps[i].rule != STEP_TICK || !steps[i].phase_ns[PHASE_OTHER])
			continue;
		minute = minute_at(job, of, steps[i].time_ns);
		if (minute)
			minute->rest_steps++;
	}
}

/* The minute of a step is that in which it ended. Returns how many minutes have steps. */
static size_t number_minutes(const struct job *job, struct minutes_of *of)
{
	size_t cnt = 0;

	for (size_t i = 0; i < of->track->step_cnt; i++) {
		struct minute *minute = minute_at(job, of, of->track->steps[i].end_ns);

		if (minute && !minute->number)
			minute->number = ++cnt;
	}
	return cnt;
}

/* waits: NULL: not known. */
static void add_steps(struct job *job, struct minutes_of *of, struct minute_wait *waits)
{
	const struct step_track *track = of->track;
	size_t slow = 0;

	for (size_t i = 0; i < track->step_cnt; i++) {
		const struct step *step = &track->steps[i];
		struct minute *minute = minute_at(job, of, step->end_ns);
		struct minute_wait *of_minute;
		bool is_slow = slow < track->slow_cnt && track->slow[slow] == i;

		slow += is_slow;
		if (!minute)
			continue;
		of_minute = waits ? &waits[(minute->number - 1) * WAITS] : NULL;
		minute->waits = of_minute;
		minute->steps++;
		minute->slow_steps += is_slow;
		minute->step_ns = saturating__add(minute->step_ns, step__ns(step));
		minute->gc_ns = saturating__add(minute->gc_ns, step->gc_ns);
		if (step__ns(step) > minute->longest_ns)
			minute->longest_ns = step__ns(step);
		for (int p = 0; p < PHASE__COUNT; p++)
			minute->phase_ns[p] = saturating__add(minute->phase_ns[p], step->phase_ns[p]);
		for (uint32_t k = 0; k < step->part_cnt; k++) {
			const struct step_part *part = &step->parts[k];

			if (!part->cause)
				minute->on_cpu_ns = saturating__add(minute->on_cpu_ns, part->ns);
			else if (of_minute)
				of_minute[part->phase * CAUSE__END + part->cause].ns += part->ns;
		}
	}
}

/* Finds the line that had most of each wait. */
static int add_hotspots(struct job *job, const struct steps *steps, struct minutes_of *of, struct minute_wait *waits,
			size_t slot_cnt)
{
	const struct samples *samples = job__samples(job);
	struct hotspots hotspots = {.places = &of->blame.places, .lines = of->blame.lines};
	struct hotspot *top = calloc(slot_cnt, sizeof(*top));
	int err = top && samples ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < samples__cnt(samples); i++) {
		struct sample sample;
		long at;
		size_t slot;
		const struct minute *minute;

		if (samples__thread_of(samples, i) != of->track->thread)
			continue;
		sample = samples__get(samples, i);
		at = sample.cause ? step_track__at(of->track, sample.time_ns) : -1;
		minute = at < 0 ? NULL : minute_at(job, of, of->track->steps[at].end_ns);
		if (!minute)
			continue;
		slot = (minute->number - 1) * WAITS + step_track__phase(of->track, steps, &sample) * CAUSE__END +
		       sample.cause;
		waits[slot].cnt += sample.waits;
		err = hotspots__add(&hotspots, slot, &sample);
	}
	err = err ?: hotspots__top(&hotspots, slot_cnt, 1, top);
	for (size_t i = 0; !err && i < slot_cnt; i++)
		waits[i].hotspot = top[i];
	free(top);
	hotspots__free(&hotspots);
	return err;
}

static const struct step_track *track_of(const struct steps *steps, uint32_t pid)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(steps, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (tracks[i].pid == pid)
			return &tracks[i];
	return NULL;
}

/* A process that has started some that make steps, and makes none itself, as torchrun. */
static bool is_launcher(const struct job *job, const struct steps *steps, const struct rec_target *target)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(steps, &cnt);
	bool starts = false;

	for (size_t i = 0; i < cnt; i++) {
		const struct rec_target *other = job__target(job, tracks[i].pid);

		if (tracks[i].pid == target->pid)
			return false;
		starts |= other && other->parent_pid == target->pid;
	}
	return starts;
}

/* before: how many minutes the processes before it have. */
static int build_minutes(struct job *job, const struct steps *steps, struct minutes_of *of, struct minute_wait **waits,
			 size_t before)
{
	size_t slot_cnt;
	int64_t last;
	int err;

	find_extent(job, of);
	if (of->until_ns > INT64_MAX || job__wall_ns(job, of->since_ns) < 0 || job__wall_ns(job, of->until_ns) < 0)
		return -EINVAL;
	of->first = job__minute(job, of->since_ns);
	last = job__minute(job, of->until_ns);
	if (last < of->first || last - of->first >= (int64_t)(MINUTES_MAX - before))
		return -EINVAL;
	of->cnt = last - of->first + 1;
	of->minutes = calloc(of->cnt, sizeof(*of->minutes));
	if (!of->minutes)
		return -ENOMEM;
	add_seen(job, of);
	add_rest_steps(job, of);
	of->track = track_of(steps, of->target->pid);
	if (!of->track)
		return 0;
	err = blame__new(job, steps, of->track, &of->blame);
	if (err) {
		of->track = NULL; /* nothing of its blame is to be released */
		return err;
	}
	slot_cnt = number_minutes(job, of) * WAITS;
	if (of->track->thread) {
		*waits = calloc(slot_cnt + 1, sizeof(**waits));
		if (!*waits)
			return -ENOMEM;
	}
	add_steps(job, of, *waits);
	return *waits && of->blame.lines ? add_hotspots(job, steps, of, *waits, slot_cnt) : 0;
}

struct minutes *minutes__new(struct job *job, const struct steps *steps, int *err)
{
	struct minutes *minutes = calloc(1, sizeof(*minutes));
	size_t target_cnt, minute_cnt = 0;
	const struct rec_target *targets = job__targets(job, &target_cnt);

	*err = minutes ? 0 : -ENOMEM;
	if (!minutes)
		return NULL;
	minutes->all = calloc(target_cnt + 1, sizeof(*minutes->all));
	minutes->waits = calloc(target_cnt + 1, sizeof(*minutes->waits));
	if (!minutes->all || !minutes->waits)
		*err = -ENOMEM;
	for (size_t i = 0; !*err && i < target_cnt; i++) {
		if (targets[i].role != ROLE_MAIN || is_launcher(job, steps, &targets[i]))
			continue;
		minutes->all[minutes->cnt].target = &targets[i];
		*err = build_minutes(job, steps, &minutes->all[minutes->cnt], &minutes->waits[minutes->cnt],
				     minute_cnt);
		minute_cnt += minutes->all[minutes->cnt++].cnt;
	}
	if (!*err)
		return minutes;
	minutes__free(minutes);
	return NULL;
}

void minutes__free(struct minutes *minutes)
{
	if (!minutes)
		return;
	for (size_t i = 0; i < minutes->cnt; i++) {
		if (minutes->all[i].track)
			blame__release(&minutes->all[i].blame);
		free(minutes->all[i].minutes);
		free(minutes->waits[i]);
	}
	free(minutes->all);
	free(minutes->waits);
	free(minutes);
}

const struct minutes_of *minutes__all(const struct minutes *minutes, size_t *cnt)
{
	*cnt = minutes->cnt;
	return minutes->all;
}
