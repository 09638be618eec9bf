// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What is kept of jobs. In: events, and what is asked for. Out: children that copy it (user/watch/events.h). */
#include <inttypes.h>
#include <stdio.h>

#include "user/lib/log.h"
#include "user/report/trigger_text.h"
#include "user/watch/state.h"

#define HOUR_NS 3600000000000ull

/*
 * May this one be kept? So many an hour, and none soon after another of the job, but for its first bad end.
 * job: NULL for a process that a watched one has started.
 */
static bool is_wanted(struct watch *watch, const struct watched_job *job, enum trigger_kind kind)
{
	if (job && watch->now_ns < job->quiet_until_ns && (kind != TRIGGER_END || job->end_kept))
		return false;
	if (watch->now_ns - watch->hour_ns >= HOUR_NS) {
		watch->hour_ns = watch->now_ns;
		watch->in_hour = 0;
	}
	return watch->in_hour < watch->options->per_hour;
}

int watch__keep_job(struct watch *watch, uint32_t pid, const char *name, const char *kind, uint64_t since_ns,
		    const char *what)
{
	const struct watched_job *job = watched_jobs__of(&watch->jobs, pid);
	struct recording_part part = {};
	int err = session__snapshot(watch->session) ?: recording_part__add(&part, pid);

	if (!err && job)
		err = watched_jobs__part(&watch->jobs, job->number, &part);
	if (!err && events__keep(&watch->events, watch->ring, &part, name, kind, since_ns, what))
		log__error(NULL, "%s: what led to it cannot be kept", what);
	recording_part__free(&part);
	return err;
}

static int keep_event(struct watch *watch, const struct trigger_event *event)
{
	struct watched_job *job = watched_jobs__of(&watch->jobs, event->pid);
	char text[TRIGGER_TEXT], name[WATCHED_NAME], what[TRIGGER_TEXT + WATCHED_NAME + 8];
	bool wanted = is_wanted(watch, job, event->kind);

	watched_jobs__name(&watch->jobs, event->pid, name);
	snprintf(what, sizeof(what), "job %s: %s", name, trigger_text__event(event, text));
	watch->metrics.events[event->kind][wanted]++;
	if (!wanted) {
		log__info("%s. Not kept: enough was, in the last time", what);
		return 0;
	}
	watch->in_hour++;
	if (job) {
		job->quiet_until_ns = watch->now_ns + watch->options->quiet_ns;
		job->end_kept |= event->kind == TRIGGER_END;
	}
	return watch__keep_job(watch, event->pid, name, trigger_names[event->kind], event->start_ns, what);
}

int watch__look_for_events(struct watch *watch)
{
	const struct trigger_event *event = trigger__look(watch->trigger, watch->now_ns);
	int err;

	if (!event->seen)
		return 0;
	watch->event_ns = watch->event_ns ?: watch->now_ns;
	if (watch->now_ns - watch->event_ns < TRIGGER_GOES_ON_NS || events__busy(&watch->events))
		return 0;
	if (event->untold)
		log__warn(NULL, "%" PRIu64 " more events came while %d waited to be kept: these are not", event->untold,
			  TRIGGER_EVENTS_MAX);
	err = keep_event(watch, event);
	trigger__take(watch->trigger);
	watch->event_ns = trigger__look(watch->trigger, watch->now_ns)->seen ? watch->now_ns : 0;
	return err;
}

uint64_t watch__kept_from(const struct watch *watch)
{
	const struct trigger_event *event = trigger__look(watch->trigger, watch->now_ns);

	return event->seen && event->start_ns < watch->now_ns ? event->start_ns : watch->now_ns;
}

uint32_t watch__process_of(const struct watch *watch, const struct watched_job *job)
{
	const struct watched_process *all = watch->jobs.processes.items;

	for (size_t i = 0; i < watch->jobs.processes.cnt; i++)
		if (all[i].job == job->number && all[i].attached && !all[i].ended)
			return all[i].pid;
	return 0;
}

int watch__keep_regularly(struct watch *watch)
{
	struct watched_job *job = watch->jobs.jobs.items;
	char what[WATCHED_NAME + 32];
	uint32_t pid;

	if (!watch->options->keep_every_ns || events__busy(&watch->events))
		return 0;
	for (size_t i = 0; i < watch->jobs.jobs.cnt; i++) {
		pid = watch__process_of(watch, &job[i]);
		if (!job[i].regular_ns)
			job[i].regular_ns = watch->now_ns;
		if (!pid || job[i].paused || watch->now_ns - job[i].regular_ns < watch->options->keep_every_ns)
			continue;
		job[i].regular_ns = watch->now_ns;
		snprintf(what, sizeof(what), "job %s: as it is now", job[i].name);
		return watch__keep_job(watch, pid, job[i].name, "regular", 0, what);
	}
	return 0;
}
