// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "include/resource_records.h"
#include "user/analysis/steps/steps.h"
#include "user/lib/clock.h"
#include "user/lib/output.h"

#define ENDED_SHOWN_NS 60000000000ull /* the last figures of a process can be read so long after its end */

static const double limits_s[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
#define LIMITS (sizeof(limits_s) / sizeof(*limits_s))

/* A process that makes steps. */
struct rank_metrics {
	uint32_t pid;
	int rank;               /* -1: not known */
	int shown;              /* the same in its label; -1: the pid, since another process of the job has that rank */
	char job[WATCHED_NAME]; /* in its label: as long as it ran, and then the last one; "": not known yet */
	uint64_t ended_ns;
	uint64_t steps;         /* by their index: those too whose length is not known */
	uint64_t unseen_steps;  /* and of these in rests and at their ends */
	uint64_t earlier_steps; /* and before the index began again: another program, or another jitted function */
	uint32_t rule;          /* of steps, and the last index by it */
	uint64_t index;
	uint64_t cnt[LIMITS + 1]; /* steps in a bucket; the last: longer ones */
	double total_s;
	uint64_t last_step_ns;
	double phase_s[PHASE__COUNT];
	struct rec_rest rest;         /* without a type: it has no budget */
	struct rec_overhead overhead; /* without pairs: not measured */
};

/* Also a process that has ended: the label of another one with its pid would be the same. */
static struct rank_metrics *find_rank_metrics(const struct metrics *metrics, uint32_t pid)
{
	struct rank_metrics *all = metrics->ranks.items;

	for (size_t i = 0; i < metrics->ranks.cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	return NULL;
}

/* One that has ended, or has made no step: it gives way to one that makes some. */
static struct rank_metrics *least_wanted(const struct metrics *metrics)
{
	struct rank_metrics *all = metrics->ranks.items, *found = NULL;

	for (size_t i = 0; i < metrics->ranks.cnt; i++)
		if (all[i].ended_ns ? !found || !found->ended_ns || all[i].ended_ns < found->ended_ns
				    : !all[i].last_step_ns && !found)
			found = &all[i];
	return found;
}

/* trains: it has made a step. NULL: no memory, or METRICS_RANKS are there. */
static struct rank_metrics *add_rank(struct metrics *metrics, uint32_t pid, bool trains)
{
	struct rank_metrics *new = metrics->ranks.cnt < METRICS_RANKS ? array__add(&metrics->ranks, sizeof(*new))
				   : trains                           ? least_wanted(metrics)
								      : NULL;

	if (new)
		*new = (struct rank_metrics){.pid = pid, .rank = -1};
	return new;
}

static void time_step(struct rank_metrics *rank, uint64_t ns)
{
	size_t bucket = 0;

	while (bucket < LIMITS && ns > limits_s[bucket] * 1e9)
		bucket++;
	rank->cnt[bucket]++;
	rank->total_s += ns / 1e9;
}

/* A step in a rest: its index is of all steps so far, where that of others counts those that were recorded. */
static void add_tick(const struct metrics *metrics, const struct rec_step *record)
{
	struct rank_metrics *rank = find_rank_metrics(metrics, record->pid);

	if (!rank || rank->ended_ns)
		return;
	if (record->index > rank->steps) {
		rank->unseen_steps += record->index - rank->steps;
		rank->steps = record->index;
	}
	rank->last_step_ns = record->time_ns;
	if (record->phase_ns[PHASE_OTHER])
		time_step(rank, record->phase_ns[PHASE_OTHER]);
}

/* A step has ended by the best rule so far; a better one counts anew. */
static void count_steps(struct rank_metrics *rank, const struct process_steps *times, uint64_t time_ns)
{
	if (times->rule != rank->rule)
		rank->earlier_steps = 0;
	else if (times->index < rank->index)
		rank->earlier_steps += rank->index;
	rank->rule = times->rule;
	rank->index = times->index;
	rank->steps = rank->unseen_steps + rank->earlier_steps + rank->index;
	rank->last_step_ns = time_ns;
}

static int add_step(struct metrics *metrics, const struct rec_step *record)
{
	struct rank_metrics *rank = find_rank_metrics(metrics, record->pid);
	struct process_steps *times;
	struct timed_step step;
	int timed = step_times__add(&metrics->times, record, &step);

	if (timed < 0)
		return timed;
	times = step_times__of(&metrics->times, record->pid);
	rank = times ? rank ?: add_rank(metrics, record->pid, true) : NULL; /* no times: those of too many are kept */
	if (!rank) {
		metrics->left_out++;
		return 0;
	}
	if (rank->ended_ns) /* another process has its pid */
		*rank = (struct rank_metrics){.pid = record->pid, .rank = rank->rank};
	for (int phase = 0; phase < PHASE__COUNT; phase++)
		rank->phase_s[phase] += record->phase_ns[phase] / 1e9;
	if (record->rule == times->rule)
		count_steps(rank, times, record->time_ns);
	if (timed)
		time_step(rank, step.duration_ns);
	return 0;
}

int metrics__add(struct metrics *metrics, const struct rec_hdr *record, uint64_t now_ns)
{
	const struct rec_target *target = (const void *)record;
	const struct rec_proc *proc = (const void *)record;
	const struct rec_rest *rest = (const void *)record;
	const struct rec_overhead *overhead = (const void *)record;
	const struct rec_step *step = (const void *)record;
	struct rank_metrics *rank;

	switch (record ? record->type : 0) {
	case REC_STEP:
		if (step->rule != STEP_TICK)
			return add_step(metrics, step);
		add_tick(metrics, step);
		break;
	case REC_TARGET:
		rank = find_rank_metrics(metrics, target->pid);
		if (!rank && target->role == ROLE_MAIN)
			rank = add_rank(metrics, target->pid, false);
		if (rank)
			rank->rank = target->rank;
		break;
	case REC_PROC:
		rank = proc->event == PROC_EXIT ? find_rank_metrics(metrics, proc->pid) : NULL;
		if (rank)
			rank->ended_ns = now_ns ?: 1;
		if (proc->event == PROC_EXIT)
			step_times__forget(&metrics->times, proc->pid);
		break;
	case REC_REST:
		rank = find_rank_metrics(metrics, rest->pid);
		if (rank)
			rank->rest = *rest;
		break;
	case REC_OVERHEAD:
		rank = find_rank_metrics(metrics, overhead->pid);
		if (rank)
			rank->overhead = *overhead;
		break;
	case REC_COST:
		metrics->cost = *(const struct rec_cost *)record;
		break;
	}
	return 0;
}

/* ---- text ---- */

/* {job="...",rank="0" : what all series of a process have; the caller closes the brace. */
static void write_labels(FILE *out, const struct rank_metrics *rank)
{
	fprintf(out, "{job=\"%s\"", rank->job);
	if (rank->shown >= 0)
		fprintf(out, ",rank=\"%d\"", rank->shown);
	else
		fprintf(out, ",rank=\"pid %u\"", rank->pid);
}

static void write_help(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_durations(FILE *out, const struct metrics *metrics)
{
	const struct rank_metrics *rank = metrics->ranks.items;

	write_help(out, "stepflame_step_duration_seconds", "histogram", "Length of the training steps.");
	for (size_t i = 0; i < metrics->ranks.cnt; i++) {
		uint64_t cnt = 0;

		for (size_t bucket = 0; bucket <= LIMITS; bucket++) {
			cnt += rank[i].cnt[bucket];
			fputs("stepflame_step_duration_seconds_bucket", out);
			write_labels(out, &rank[i]);
			if (bucket < LIMITS)
				fprintf(out, ",le=\"%g\"} %" PRIu64 "\n", limits_s[bucket], cnt);
			else
				fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n", cnt);
		}
		fputs("stepflame_step_duration_seconds_sum", out);
		write_labels(out, &rank[i]);
		fprintf(out, "} %.9g\nstepflame_step_duration_seconds_count", rank[i].total_s);
		write_labels(out, &rank[i]);
		fprintf(out, "} %" PRIu64 "\n", cnt);
	}
}

/* Nobody knows when its last step was. */
static bool is_paused(const struct watched_jobs *jobs, uint32_t pid)
{
	const struct watched_job *job = watched_jobs__of(jobs, pid);

	return job && job->paused;
}

static void write_ranks(FILE *out, const struct metrics *metrics, const struct watched_jobs *jobs)
{
	const struct rank_metrics *rank = metrics->ranks.items;
	const double zero_s = (clock__ns(CLOCK_REALTIME) - clock__ns(CLOCK_MONOTONIC)) / 1e9;

	write_help(out, "stepflame_steps_total", "counter", "Training steps that have ended.");
	for (size_t i = 0; i < metrics->ranks.cnt; i++) {
		fputs("stepflame_steps_total", out);
		write_labels(out, &rank[i]);
		fprintf(out, "} %" PRIu64 "\n", rank[i].steps);
	}
	write_help(out, "stepflame_last_step_timestamp_seconds", "gauge", "When the last step ended.");
	for (size_t i = 0; i < metrics->ranks.cnt; i++) {
		if (!rank[i].last_step_ns || is_paused(jobs, rank[i].pid))
			continue;
		fputs("stepflame_last_step_timestamp_seconds", out);
		write_labels(out, &rank[i]);
		fprintf(out, "} %.3f\n", zero_s + rank[i].last_step_ns / 1e9);
	}
	write_help(out, "stepflame_phase_seconds_total", "counter", "What the time of steps went into.");
	for (size_t i = 0; i < metrics->ranks.cnt; i++) {
		for (int phase = 0; phase < PHASE__COUNT; phase++) {
			fputs("stepflame_phase_seconds_total", out);
			write_labels(out, &rank[i]);
			fprintf(out, ",phase=\"%s\"} %.9g\n", phase__name(phase), rank[i].phase_s[phase]);
		}
	}
}

/* Only with a budget. */
static void write_rests(FILE *out, const struct metrics *metrics, uint64_t now_ns)
{
	const struct rank_metrics *rank = metrics->ranks.items;
	bool begun = false;

	for (size_t i = 0; i < metrics->ranks.cnt; i++) {
		const struct rec_rest *rest = &rank[i].rest;
		uint64_t to_ns = rest->to_ns ?: rank[i].ended_ns ?: now_ns;

		if (!rest->hdr.type)
			continue;
		if (!begun)
			write_help(
				out, "stepflame_rested_seconds_total", "counter",
				"Time in which the process was not recorded, for its budget or since it was paused.");
		begun = true;
		fputs("stepflame_rested_seconds_total", out);
		write_labels(out, &rank[i]);
		fprintf(out, "} %.3f\n",
			(rest->before_ns + (rest->cnt && to_ns > rest->from_ns ? to_ns - rest->from_ns : 0)) / 1e9);
	}
}

/* What a process pays while it is recorded, of its time: where it was measured, in rests. */
static void write_overheads(FILE *out, const struct metrics *metrics)
{
	const struct rank_metrics *rank = metrics->ranks.items;
	bool begun = false;

	for (size_t i = 0; i < metrics->ranks.cnt; i++) {
		const struct rec_overhead *overhead = &rank[i].overhead;
		const struct {
			const char *kind;
			uint32_t micros;
		} shares[] = {{"accounted", overhead->accounted_micros},
			      {"measured", overhead->measured_micros},
			      {"error", overhead->error_micros}};

		if (!overhead->pairs)
			continue;
		if (!begun)
			write_help(out, "stepflame_overhead_ratio", "gauge",
				   "How much longer steps take while they are recorded: by the hits of probes, as "
				   "measured, and the error of that.");
		begun = true;
		for (size_t k = 0; k < sizeof(shares) / sizeof(*shares); k++) {
			fputs("stepflame_overhead_ratio", out);
			write_labels(out, &rank[i]);
			fprintf(out, ",kind=\"%s\"} %.6f\n", shares[k].kind, shares[k].micros / 1e6);
		}
	}
}

static void write_host(FILE *out, const struct metrics *metrics, const struct watched_jobs *jobs,
		       const struct session_progress *progress, uint64_t ring_bytes)
{
	const struct watched_job *job = jobs->jobs.items;
	size_t alive = 0, processes = 0;

	for (size_t i = 0; i < jobs->jobs.cnt; i++) {
		alive += job[i].alive > 0;
		processes += job[i].alive;
	}
	write_help(out, "stepflame_jobs", "gauge", "Training jobs that are watched.");
	fprintf(out, "stepflame_jobs %zu\n", alive);
	write_help(out, "stepflame_processes", "gauge", "Processes of these jobs, without their workers.");
	fprintf(out, "stepflame_processes %zu\n", processes);
	write_help(out, "stepflame_events_total", "counter", "Slow and slower steps, stragglers, stalls and bad ends.");
	for (int kind = 0; kind < TRIGGER__COUNT; kind++)
		for (int kept = 0; kept < 2; kept++)
			fprintf(out, "stepflame_events_total{event=\"%s\",kept=\"%s\"} %" PRIu64 "\n",
				trigger_names[kind], kept ? "yes" : "no", metrics->events[kind][kept]);
	write_help(out, "stepflame_missed_processes_total", "counter",
		   "Processes that looked like training jobs and ended before they could be watched.");
	fprintf(out, "stepflame_missed_processes_total %" PRIu64 "\n", jobs->missed);
	write_help(out, "stepflame_lost_total", "counter", "Records that were lost.");
	fprintf(out, "stepflame_lost_total %" PRIu64 "\n", progress->lost);
	write_help(out, "stepflame_left_out_steps_total", "counter",
		   "Step boundaries of processes that have no series of their own.");
	fprintf(out, "stepflame_left_out_steps_total %" PRIu64 "\n", metrics->left_out);
	write_help(out, "stepflame_probe_hits_total", "counter", "Hits of probes in all jobs.");
	fprintf(out, "stepflame_probe_hits_total %" PRIu64 "\n", (uint64_t)metrics->cost.hits);
	if (metrics->pushes) {
		write_help(out, "stepflame_profiles_total", "counter",
			   "Profiles that were pushed, and that were lost.");
		fprintf(out,
			"stepflame_profiles_total{result=\"sent\"} %" PRIu64
			"\nstepflame_profiles_total{result=\"lost\"} %" PRIu64 "\n",
			metrics->sent, metrics->lost);
	}
	write_help(out, "stepflame_ring_bytes", "gauge", "Size of the ring on the disk.");
	fprintf(out, "stepflame_ring_bytes %" PRIu64 "\n", ring_bytes);
	write_help(out, "stepflame_cpu_seconds_total", "counter", "CPU time of stepflame and its children.");
	fprintf(out, "stepflame_cpu_seconds_total %.3f\n", metrics->cpu_ns / 1e9);
}

/* ---- labels ---- */

/* What a label may have: printable ASCII, and no quote or backslash. */
static void make_label(char *text)
{
	for (; *text; text++)
		*text = *text >= ' ' && *text < 127 && *text != '"' && *text != '\\' ? *text : '_';
}

/* Those that have ended keep theirs: another process may have their pid. */
void metrics__name(struct metrics *metrics, const struct watched_jobs *jobs)
{
	struct rank_metrics *rank = metrics->ranks.items;

	for (size_t i = 0; i < metrics->ranks.cnt; i++) {
		if (rank[i].ended_ns && rank[i].job[0])
			continue;
		watched_jobs__name(jobs, rank[i].pid, rank[i].job);
		make_label(rank[i].job);
	}
}

/* By labels: different names may have the same. */
static bool has_rank_of(const struct rank_metrics *a, const struct rank_metrics *b)
{
	return a != b && a->rank >= 0 && a->rank == b->rank && !strcmp(a->job, b->job);
}

/* Has a job that was started again another process of this rank? */
static bool is_replaced(const struct metrics *metrics, const struct rank_metrics *rank)
{
	const struct rank_metrics *all = metrics->ranks.items;
	bool replaced = false;

	for (size_t i = 0; i < metrics->ranks.cnt && !replaced; i++)
		replaced = !all[i].ended_ns && has_rank_of(rank, &all[i]);
	return replaced;
}

/*
 * Forgets who has ended long ago, has been replaced, or is of no job and makes no steps: it was told late that
 * a child trained, which has ended. And chooses labels, of which no two may be the same, whatever processes say
 * of themselves.
 */
static void settle_ranks(struct metrics *metrics, const struct watched_jobs *jobs, uint64_t now_ns)
{
	struct rank_metrics *rank = metrics->ranks.items;
	size_t kept = 0;

	metrics__name(metrics, jobs);
	for (size_t i = 0; i < metrics->ranks.cnt; i++)
		if (rank[i].ended_ns ? now_ns - rank[i].ended_ns >= ENDED_SHOWN_NS || is_replaced(metrics, &rank[i])
				     : !rank[i].last_step_ns && !watched_jobs__of(jobs, rank[i].pid))
			rank[i].pid = 0;
	for (size_t i = 0; i < metrics->ranks.cnt; i++)
		if (rank[i].pid)
			rank[kept++] = rank[i];
	metrics->ranks.cnt = kept;
	for (size_t i = 0; i < kept; i++) {
		rank[i].shown = rank[i].rank;
		for (size_t k = 0; k < i; k++)
			if (has_rank_of(&rank[i], &rank[k]))
				rank[i].shown = -1;
	}
}

int metrics__write(struct metrics *metrics, const struct watched_jobs *jobs, const struct session_progress *progress,
		   uint64_t ring_bytes, const char *path)
{
	struct output output;
	int err = output__open(path, &output);
	FILE *out;

	if (err)
		return err;
	settle_ranks(metrics, jobs, progress->now_ns);
	out = fdopen(output.fd, "w");
	if (!out) {
		err = -errno;
		close(output.fd);
	} else {
		write_durations(out, metrics);
		write_ranks(out, metrics, jobs);
		write_rests(out, metrics, progress->now_ns);
		write_overheads(out, metrics);
		write_host(out, metrics, jobs, progress, ring_bytes);
		if (fflush(out) || fchmod(fileno(out), 0644))
			err = -errno;
		err = err ?: output__keep(&output);
		fclose(out);
	}
	output__release(&output);
	return err;
}

bool metrics__progress(const struct metrics *metrics, uint32_t pid, struct rank_progress *out)
{
	const struct rank_metrics *rank = find_rank_metrics(metrics, pid);

	if (rank)
		*out = (struct rank_progress){
			.rank = rank->rank, .steps = rank->steps, .last_step_ns = rank->last_step_ns};
	return rank;
}

void metrics__forget(struct metrics *metrics)
{
	step_times__free(&metrics->times);
	free(metrics->ranks.items);
	metrics->times = (struct step_times){};
	metrics->ranks = (struct array){};
}

void metrics__free(struct metrics *metrics)
{
	metrics__forget(metrics);
	*metrics = (struct metrics){};
}
