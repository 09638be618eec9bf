// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a recording costs its targets and stepflame itself. In: struct proc. Out: REC_COST. */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "user/session/state.h"

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

void hit_sums__cost(const struct session *s, const struct hit_sums *sums, struct rec_cost *cost)
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
	cost->own_cpu_ns = session__cpu_ns() - s->cpu_start_ns;
	cost->own_rss_bytes = session__rss_bytes();
	SOURCES_CALL(cost, s, cost);
}
