// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The kernel's maps as records: rows, counters, window and cost, cumulative. In: the session's maps. Out: its sink. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "include/counters.h"
#include "stepflame.skel.h"
#include "user/session/exact.h"
#include "user/session/gpu_probes.h"
#include "user/session/io.h"
#include "user/session/nvml.h"
#include "user/session/op_probes.h"
#include "user/session/state.h"

/* The counters that mean that something is missing from the report; the others tell of the recording's edges. */
static bool is_loss(enum counter c)
{
	return c != CNT_OPEN_AT_START && c != CNT_CALL_UNSEEN && c != CNT_UNWOUND && c != CNT_KERNELS_UNNAMED &&
	       c != CNT_GPU_UNTIMED;
}

static int emit_rows(struct session *s)
{
	int fd = bpf_map__fd(s->skel->maps.aggs);
	struct agg_key key, *prev = NULL;
	uint64_t calls = 0;

	while (!bpf_map_get_next_key(fd, prev, &key)) {
		struct rec_agg rec = {
			.hdr = {.type = REC_AGG, .size = sizeof(rec)},
			.key = key,
		};

		if (!bpf_map_lookup_elem(fd, &key, &rec.val)) {
			calls += rec.val.calls;
			session__emit(s, &rec.hdr);
		}
		prev = &key;
	}
	s->progress.calls = calls;
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
	struct gpu_cupti_losses lost;
	uint64_t *values = calloc(cpus > 0 ? cpus : 1, sizeof(*values));

	if (!values)
		return -ENOMEM;
	gpu_cupti__losses(s, &lost);
	s->progress.lost = 0;
	for (uint32_t c = 0; c < CNT__COUNT; c++) {
		struct rec_counter rec = {.hdr = {.type = REC_COUNTER, .size = sizeof(rec)}};

		if (bpf_map_lookup_elem(fd, &c, values))
			continue;
		for (int i = 0; i < cpus; i++)
			rec.value += values[i];
		if (c == CNT_LINES_LOST)
			rec.value = s->lines_lost;
		if (c == CNT_KERNELS_UNNAMED)
			rec.value = gpu_probes__unnamed(s);
		if (c == CNT_GPU_DROPPED)
			rec.value = lost.dropped;
		if (c == CNT_GPU_RING_FULL)
			rec.value = lost.full;
		if (c == CNT_GPU_BAD)
			rec.value = lost.bad;
		if (is_loss(c))
			s->progress.lost += rec.value;
		snprintf(rec.name, sizeof(rec.name), "%s", names[c]);
		session__emit(s, &rec.hdr);
	}
	free(values);
	return s->sink_err;
}

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

/* What a process paid for its system calls. */
static uint64_t calls_ns(const struct session *s, uint64_t sampled, uint64_t sampled_ns)
{
	return HITS_PER_SAMPLE * (sampled * s->call_ns + sampled_ns);
}

static uint64_t busiest_ns(const struct session *s, const struct hit_sums *sums)
{
	return sums->busiest.hits * s->selftest.hit_ns + sums->busiest.sampler_ns +
	       calls_ns(s, sums->busiest.calls_sampled, sums->busiest.calls_sampled_ns);
}

void hit_sums__add(const struct session *s, struct hit_sums *sums, const struct proc *proc, uint64_t op_hits)
{
	struct hit_sums one = {
		.busiest = {proc->hits + op_hits, proc->sampler_ns, proc->calls_sampled, proc->calls_sampled_ns},
	};

	sums->hits += one.busiest.hits;
	sums->sampled += proc->sampled;
	sums->sampled_ns += proc->sampled_ns;
	if (busiest_ns(s, &one) >= busiest_ns(s, sums))
		sums->busiest = one.busiest;
}

/* Those of operators, of CUPTI's, or both. */
static bool windows_done(const struct session *s, const struct target *t)
{
	return (!s->options.ops || op_probes__done(s, t)) && (!s->options.gpu_windows || gpu_cupti__done(s, t)) &&
	       (s->options.ops || s->options.gpu_windows);
}

/* Window and cost, from the processes' own counts. */
static void measure_window(struct session *s, struct rec_window *window, struct rec_cost *cost)
{
	uint64_t start = 0, end = 0;
	struct hit_sums sums = s->ended;
	bool done = s->target_cnt > 0;

	for (size_t i = 0; i < s->target_cnt; i++) {
		struct target *t = s->targets[i];
		uint32_t pid = t->process.pid;
		struct proc proc;

		if (bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.procs), &pid, &proc))
			continue;
		hit_sums__add(s, &sums, &proc, op_probes__hits(s, t));
		if (targets__has_steps(&proc) && t->role == ROLE_CHILD)
			targets__trains(s, t);
		s->step_at_seen = s->step_at_seen || proc.step_rule == STEP_USER;
		if (t->role != ROLE_MAIN)
			continue;
		done = done && (t->gone || proc.window == WINDOW_DONE || windows_done(s, t));
		if (proc.window_start_ns && (!start || proc.window_start_ns < start))
			start = proc.window_start_ns;
		if (proc.window_end_ns > end)
			end = proc.window_end_ns;
		if (proc.steps >= window->steps) {
			window->steps = proc.steps;
			window->step_rule = proc.step_rule ?: proc.seen_rule;
		}
	}
	s->progress.done = done && (s->options.steps || s->options.schedule[OP_REPEAT]);
	s->progress.steps = window->steps;
	window->start_ns = start ?: s->window_start_ns;
	window->end_ns = s->progress.done && end ? end : s->window_end_ns ?: session__now_ns();
	cost->hits = sums.hits;
	cost->busiest_hits = sums.busiest.hits;
	cost->busiest_sampler_ns = sums.busiest.sampler_ns;
	cost->busiest_calls = HITS_PER_SAMPLE * sums.busiest.calls_sampled;
	if (sums.busiest.calls_sampled)
		cost->call_ns = s->call_ns + sums.busiest.calls_sampled_ns / sums.busiest.calls_sampled;
	cost->hit_ns = s->selftest.hit_ns + (sums.sampled ? sums.sampled_ns / sums.sampled : 0);
	cost->attach_ns = s->attach_ns;
	cost->detach_ns = s->detach_ns;
	cost->own_cpu_ns = session__cpu_ns() + nvml__cpu_ns(s) - s->cpu_start_ns;
	cost->own_rss_bytes = session__rss_bytes() + nvml__rss_bytes(s);
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
	session__emit(s, &window.hdr);
	return session__emit(s, &cost.hdr);
}

int snapshot__emit(struct session *s)
{
	int err = emit_window(s);

	err = err ?: emit_rows(s) ?: op_table__snapshot(s) ?: exact__snapshot(s) ?: io__snapshot(s) ?: gpu_probes__snapshot(s) ?:
	      emit_counters(s);
	/* What was told up to here, names of rows and steps, is to be there if this snapshot is the recording's last. */
	ring_buffer__consume(s->ring);
	return err ?: session__emit(s, NULL);
}
