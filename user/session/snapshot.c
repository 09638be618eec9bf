// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Emits the BPF maps as cumulative records: rows, counters, window, and what the recording costs its
 * targets and stepflame itself. In: the session's maps. Out: its sink.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "include/counters.h"
#include "include/ops.h"
#include "stepflame.skel.h"
#include "user/session/state.h"

/* ---- cost ---- */

uint64_t session__cpu_ns(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000ULL +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000ULL;
}

uint64_t session__rss_bytes(void)
{
	unsigned long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f) {
		if (fscanf(f, "%lu %lu", &size, &resident) != 2)
			resident = 0;
		fclose(f);
	}
	return (uint64_t)resident * sysconf(_SC_PAGESIZE);
}

/* What tracing system calls cost a process, estimated from the calls that BPF timed. */
static uint64_t traced_calls_ns(const struct session *s, uint64_t sampled, uint64_t sampled_ns)
{
	return HITS_PER_SAMPLE * (sampled * s->call_ns + sampled_ns);
}

static double busiest_ns(const struct session *s, const struct hit_sums *sums)
{
	return sums->busiest.hits_ns + sums->busiest.sampler_ns +
	       traced_calls_ns(s, sums->busiest.calls_sampled, sums->busiest.calls_sampled_ns);
}

static uint64_t sources_hits(const struct session *s, const struct target *t)
{
	uint64_t hits = 0;

	for (int id = 0; id < SOURCE__COUNT; id++)
		hits += sources[id]->hits ? sources[id]->hits(s, t) : 0;
	return hits;
}

/*
 * What hits cost a process: the trap, its after-effects where other code of the thread ran since the
 * hit before, and the program. Operators follow each other so closely that the trap and their programs
 * take together what a trap takes elsewhere.
 */
static double hits_ns(const struct session *s, const struct target *t, const struct proc_cost *cost)
{
	double sampled = cost->sampled ?: 1, away = cost->sampled_away_ns / sampled / HIT_AWAY_NS;
	double hit_ns = s->selftest.hit_ns + away * s->selftest.after_ns + cost->sampled_ns / sampled;

	return (cost->hits - cost->ticks) * hit_ns + sources_hits(s, t) * s->selftest.hit_ns;
}

/* A tick is far from the one before, and costs a process the trap alone. */
static uint64_t besides_hits_ns(const struct session *s, const struct proc_cost *cost)
{
	return cost->sampler_ns + cost->ticks * (s->selftest.hit_ns + s->selftest.after_ns);
}

double target__paid_ns(const struct session *s, const struct target *t, const struct proc *proc)
{
	const struct proc_cost *cost = &proc->cost;

	return hits_ns(s, t, cost) + besides_hits_ns(s, cost) +
	       traced_calls_ns(s, cost->calls_sampled, cost->calls_sampled_ns);
}

void hit_sums__add(const struct session *s, struct hit_sums *sums, const struct target *t, const struct proc *proc)
{
	const struct proc_cost *cost = &proc->cost;
	struct hit_sums one = {
		.busiest = {cost->hits - cost->ticks + sources_hits(s, t), hits_ns(s, t, cost),
			    besides_hits_ns(s, cost), cost->calls_sampled, cost->calls_sampled_ns},
	};

	sums->hits += one.busiest.hits + cost->ticks;
	if (busiest_ns(s, &one) >= busiest_ns(s, sums))
		sums->busiest = one.busiest;
}

static void sum_cost(const struct session *s, const struct hit_sums *sums, struct rec_cost *cost)
{
	cost->hits = sums->hits;
	cost->busiest_hits = sums->busiest.hits;
	cost->busiest_sampler_ns = sums->busiest.sampler_ns;
	cost->busiest_calls = HITS_PER_SAMPLE * sums->busiest.calls_sampled;
	if (sums->busiest.calls_sampled)
		cost->call_ns = s->call_ns + sums->busiest.calls_sampled_ns / sums->busiest.calls_sampled;
	cost->hit_ns = sums->busiest.hits ? sums->busiest.hits_ns / sums->busiest.hits : s->selftest.hit_ns;
	cost->attach_ns = s->attach_ns;
	cost->detach_ns = s->detach_ns;
	SOURCES_CALL(cost, s, cost);
}

/* ---- the maps ---- */

/* Does this counter mean that data is missing? The others describe the recording's edges. */
static bool is_loss(enum counter c)
{
	return c != CNT_OPEN_AT_START && c != CNT_CALL_UNSEEN && c != CNT_UNWOUND && c != CNT_KERNELS_UNNAMED &&
	       c != CNT_GPU_UNTIMED;
}

/* Reads the next rows. A bucket without room for all of its rows would end the walk. */
static void read_batch(struct row_walk *walk)
{
	uint32_t cnt = ROW_BATCH;

	walk->done = bpf_map_lookup_batch(walk->fd, walk->begun ? &walk->batch : NULL, &walk->batch, walk->keys,
					  walk->vals, &cnt, NULL);
	walk->cnt = walk->done && errno != ENOENT ? 0 : cnt;
	walk->at = 0;
	walk->begun = true;
}

bool row_walk__next(const struct session *s, struct row_walk *walk)
{
	uint8_t *key = (uint8_t *)(walk->record + 1), *val = key + walk->key_bytes;
	size_t val_bytes = walk->record->size - sizeof(*walk->record) - walk->key_bytes;

	for (;;) {
		const struct ended_pid *pid;
		bool ended;

		while (walk->at == walk->cnt && !walk->done)
			read_batch(walk);
		if (walk->at == walk->cnt)
			return false;
		memcpy(key, walk->keys + walk->at * walk->key_bytes, walk->key_bytes);
		memcpy(val, walk->vals + walk->at * val_bytes, val_bytes);
		walk->at++;
		pid = MAP_FIND(&s->ended_pids, struct ended_pid, (const uint32_t *)key);
		ended = pid && !pid->reused;
		if (ended && bpf_map_lookup_and_delete_elem(walk->fd, key, val))
			continue;
		walk->record->flags = ended ? REC_ENDED : 0;
		walk->deleted += ended;
		return true;
	}
}

static int emit_rows(struct session *s)
{
	struct rec_agg rec = {.hdr = {.type = REC_AGG, .size = sizeof(rec)}};
	struct row_walk walk = {
		.fd = bpf_map__fd(s->skel->maps.aggs), .record = &rec.hdr, .key_bytes = sizeof(rec.key)};
	uint64_t calls = 0;

	while (row_walk__next(s, &walk)) {
		*(rec.hdr.flags & REC_ENDED ? &s->ended_calls : &calls) += rec.val.calls;
		if (rec.hdr.flags & REC_ENDED)
			SOURCES_CALL(on_ended_row, s, &rec);
		session__emit(s, &rec.hdr);
	}
	__sync_fetch_and_sub(&s->skel->bss->agg_row_cnt, walk.deleted);
	s->progress.calls = s->ended_calls + calls;
	return s->sink_err;
}

static int emit_counters(struct session *s)
{
	static const char *const names[CNT__COUNT] = {
#define X(id, name, meaning) name,
		STEPFLAME_COUNTERS(X)
#undef X
	};
	int cpus = libbpf_num_possible_cpus(), fd = bpf_map__fd(s->skel->maps.counters);
	uint64_t *values = calloc(cpus > 0 ? cpus : 1, sizeof(*values)),
		 total[CNT__COUNT] = {[CNT_PROCS_FULL] = s->procs_full};

	if (!values)
		return -ENOMEM;
	SOURCES_CALL(count, s, total);
	s->progress.lost = 0;
	for (uint32_t c = 0; c < CNT__COUNT; c++) {
		struct rec_counter rec = {.hdr = {.type = REC_COUNTER, .size = sizeof(rec)}, .value = total[c]};

		if (bpf_map_lookup_elem(fd, &c, values))
			continue;
		for (int i = 0; i < cpus; i++)
			rec.value += values[i];
		if (is_loss(c))
			s->progress.lost += rec.value;
		if (c == CNT_RING_FULL) {
			s->ring_filled = rec.value > s->ring_full;
			s->ring_full = rec.value;
		}
		snprintf(rec.name, sizeof(rec.name), "%s", names[c]);
		session__emit(s, &rec.hdr);
	}
	free(values);
	return s->sink_err;
}

/* Have all sources with windows passed them? false if no source has windows. */
static bool windows_passed(const struct session *s, const struct target *t)
{
	bool any = false;

	for (int id = 0; id < SOURCE__COUNT; id++) {
		enum source_windows windows = sources[id]->windows ? sources[id]->windows(s, t) : WINDOWS_NONE;

		if (windows == WINDOWS_AHEAD)
			return false;
		any = any || windows == WINDOWS_PASSED;
	}
	return any;
}

void window_sums__add(struct window_sums *sums, const struct target *t, const struct proc *proc)
{
	uint64_t opened_ns = t->opened_ns ?: proc->window_start_ns; /* a rest moves that of proc */

	if (opened_ns && (!sums->start_ns || opened_ns < sums->start_ns))
		sums->start_ns = opened_ns;
	if (proc->window_end_ns > sums->end_ns)
		sums->end_ns = proc->window_end_ns;
	if (proc->steps.cnt >= sums->steps) {
		sums->steps = proc->steps.cnt;
		sums->step_rule = proc->steps.rule ?: proc->steps.seen_rule;
	}
}

/*
 * Reads BPF's state of each target, passes it to the sources, and derives window, cost and progress
 * from it.
 */
static void measure_window(struct session *s, struct rec_window *window, struct rec_cost *cost)
{
	struct window_sums mains = s->ended_window;
	struct hit_sums sums = s->ended;
	bool done = s->target_cnt || s->ended_mains;

	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];
		struct proc proc;

		if (!target__proc(s, t, &proc))
			continue;
		hit_sums__add(s, &sums, t, &proc);
		if (targets__has_steps(&proc) && t->role == ROLE_CHILD)
			targets__promote(s, t);
		SOURCES_CALL(observe, s, t, &proc);
		if (t->role != ROLE_MAIN)
			continue;
		done = done && (t->gone || proc.window == WINDOW_DONE || windows_passed(s, t));
		window_sums__add(&mains, t, &proc);
	}
	s->progress.done = done && (s->options.steps || s->options.schedule[OP_REPEAT]);
	s->progress.steps = window->steps = mains.steps;
	window->step_rule = mains.step_rule;
	window->start_ns = mains.start_ns ?: s->window_start_ns;
	window->end_ns = s->progress.done && mains.end_ns ? mains.end_ns : s->window_end_ns ?: session__now_ns();
	sum_cost(s, &sums, cost);
}

void snapshot__progress(struct session *s)
{
	struct rec_window window = {0};
	struct rec_cost cost = {0};

	measure_window(s, &window, &cost);
}

static int emit_window(struct session *s)
{
	struct rec_window window = {.hdr = {.type = REC_WINDOW, .size = sizeof(window)}};
	struct rec_cost cost = {.hdr = {.type = REC_COST, .size = sizeof(cost)}};

	measure_window(s, &window, &cost);
	cost.own_cpu_ns = session__cpu_ns() - s->cpu_start_ns;
	cost.own_rss_bytes = session__rss_bytes();
	session__emit(s, &window.hdr);
	return session__emit(s, &cost.hdr);
}

int snapshot__emit(struct session *s)
{
	int err = emit_window(s);

	err = err ?: emit_rows(s) ?: SOURCES_TRY(snapshot, s) ?: emit_counters(s);
	map__free(&s->ended_pids);
	if (s->ring_filled)
		targets__forget_unseen(s);
	/*
	 * If this is the recording's last snapshot, it must include what BPF has emitted so far:
	 * names of rows, steps.
	 */
	session__read_ring(s);
	return err ?: session__emit(s, NULL);
}
