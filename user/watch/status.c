// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/status.h"

#include <sys/resource.h>

#include "user/lib/clock.h"
#include "user/lib/json.h"

static json_t *process_json(const struct watched_process *process, const struct metrics *metrics, uint64_t now_ns)
{
	struct rank_progress progress;
	bool steps = metrics__progress(metrics, process->pid, &progress);
	json_t *rank = steps && progress.rank >= 0 ? json_integer(progress.rank) : json_null();
	/* It may have ended since the clock was read. */
	json_t *since = steps && progress.last_step_ns
				? json_real(now_ns > progress.last_step_ns ? (now_ns - progress.last_step_ns) / 1e9 : 0)
				: json_null();

	return json_pack("{s:i, s:o, s:I, s:o}", "pid", (int)process->pid, "rank", rank, "steps",
			 (json_int_t)(steps ? progress.steps : 0), "last_step_s", since);
}

static json_t *job_json(const struct watched_jobs *jobs, const struct watched_job *job, const struct metrics *metrics,
			uint64_t now_ns)
{
	const struct watched_process *all = jobs->processes.items;
	json_t *processes = json_array();

	for (size_t i = 0; i < jobs->processes.cnt; i++)
		if (all[i].job == job->number && all[i].attached && !all[i].ended)
			json_array_append_new(processes, process_json(&all[i], metrics, now_ns));
	return json_pack("{s:o, s:b, s:f, s:o}", "job", json__string(job->name), "paused", job->paused, "quiet_s",
			 job->quiet_until_ns > now_ns ? (job->quiet_until_ns - now_ns) / 1e9 : 0., "processes",
			 processes);
}

static json_t *events_json(const struct metrics *metrics)
{
	json_t *events = json_object();

	for (int kind = 0; kind < TRIGGER__COUNT; kind++)
		json_object_set_new(events, trigger_names[kind],
				    json_pack("{s:I, s:I}", "kept", (json_int_t)metrics->events[kind][1], "not_kept",
					      (json_int_t)metrics->events[kind][0]));
	return events;
}

json_t *status__json(const struct watched_jobs *jobs, const struct metrics *metrics, uint64_t now_ns,
		     uint64_t ring_bytes, enum watch_pause pause)
{
	const struct watched_job *job = jobs->jobs.items;
	json_t *list = json_array();
	static const char *const by[] = {
		[WATCH_RUNS] = NULL, [WATCH_PAUSE_ASKED] = "file", [WATCH_PAUSE_ROOM] = "disk"};
	struct rusage used;

	for (size_t i = 0; i < jobs->jobs.cnt; i++)
		if (job[i].alive)
			json_array_append_new(list, job_json(jobs, &job[i], metrics, now_ns));
	getrusage(RUSAGE_SELF, &used);
	return json_pack("{s:s, s:s, s:b, s:s?, s:I, s:f, s:I, s:o, s:o}", "report", "watch", "stepflame",
			 STEPFLAME_VERSION, "paused", pause != WATCH_RUNS, "paused_by", by[pause], "ring_bytes",
			 (json_int_t)ring_bytes, "cpu_s", clock__ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9, "rss_max_bytes",
			 (json_int_t)used.ru_maxrss * 1024, "events", events_json(metrics), "jobs", list);
}
