// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/curves.h"

#include <errno.h>

#include "user/analysis/gpu/gpu_readings.h"
#include "user/analysis/resources/machine.h"
#include "user/analysis/resources/resources.h"
#include "user/model/gpu.h"
#include "user/model/resources.h"

const char *curve__title(enum curve_kind kind)
{
	static const char *const titles[] = {
#define X(id, title, unit) [CURVE_##id] = title,
		CURVES(X)
#undef X
	};

	return titles[kind];
}

const char *curve__unit(enum curve_kind kind)
{
	static const char *const units[] = {
#define X(id, title, unit) [CURVE_##id] = unit,
		CURVES(X)
#undef X
	};

	return units[kind];
}

struct visit {
	curve_fn fn;
	void *ctx;
};

/* ---- processes ---- */

/* a: a look; b: the next one, or NULL. Below 0: not known. */
static double value_of_process(enum curve_kind kind, const struct rec_resources *a, const struct rec_resources *b)
{
	struct resource_rates rates;

	if (kind == CURVE_MEMORY)
		return a->known & RESOURCES_MEMORY ? (double)a->rss_bytes : -1;
	if (kind == CURVE_SWAP)
		return a->known & RESOURCES_SWAP ? (double)a->swap_bytes : -1;
	if (!b)
		return -1;
	rates = resource_rates__between(a, b);
	return kind == CURVE_CPU        ? rates.cpu_percent
	       : kind == CURVE_READ     ? rates.read_per_s
	       : kind == CURVE_WRITTEN  ? rates.written_per_s
	       : kind == CURVE_RECEIVED ? rates.received_per_s
					: rates.sent_per_s;
}

static int visit_process_curve(const struct visit *v, enum curve_kind kind, const struct resource_samples *samples)
{
	const struct rec_resources *items = samples->items;
	bool told = kind == CURVE_CPU || kind == CURVE_MEMORY;
	int err = 0;

	for (size_t i = 0; i < samples->cnt && !told; i++)
		told = value_of_process(kind, &items[i], i + 1 < samples->cnt ? &items[i + 1] : NULL) > 0;
	for (size_t i = 0; told && i < samples->cnt && !err; i++) {
		const struct curve_point point = {
			.kind = kind,
			.pid = items->pid,
			.time_ns = items[i].time_ns,
			.value = value_of_process(kind, &items[i], i + 1 < samples->cnt ? &items[i + 1] : NULL),
		};

		if (point.value >= 0)
			err = v->fn(&point, v->ctx);
	}
	return err;
}

static int visit_processes(const struct visit *v, struct job *job)
{
	struct resource_samples part;
	size_t cnt, to;
	const struct rec_resources *all = resources__samples(job__resources(job), &cnt);
	int err = 0;

	for (size_t from = 0; from < cnt && !err; from = to) {
		const struct rec_target *target = job__target(job, all[from].pid);
		bool main = target && target->role == ROLE_MAIN;

		for (to = from; to < cnt && all[to].pid == all[from].pid; to++)
			;
		part = (struct resource_samples){&all[from], to - from};
		for (enum curve_kind kind = CURVE_CPU; kind <= (main ? CURVE_SENT : CURVE_WRITTEN) && !err; kind++)
			err = visit_process_curve(v, kind, &part);
	}
	return err;
}

/* ---- machines ---- */

static int visit_machine(const struct visit *v, uint32_t pid, const struct machine_samples *samples)
{
	const struct rec_machine *items = samples->items;
	int err = 0;

	for (enum curve_kind kind = CURVE_MACHINE_CPU; kind <= CURVE_MACHINE_SWAP && !err; kind++) {
		bool told = kind != CURVE_MACHINE_SWAP;

		for (size_t i = 0; i < samples->cnt && !told; i++)
			told = items[i].swap_bytes > items[i].swap_free_bytes;
		for (size_t i = 0; told && i < samples->cnt && !err; i++) {
			struct machine_percent percent =
				machine_percent__between(&items[i], i + 1 < samples->cnt ? &items[i + 1] : NULL);
			const struct curve_point point = {
				.kind = kind,
				.pid = pid,
				.time_ns = items[i].time_ns,
				.value = kind == CURVE_MACHINE_CPU      ? percent.cpu
					 : kind == CURVE_MACHINE_MEMORY ? percent.memory
									: percent.swap,
			};

			if (point.value >= 0)
				err = v->fn(&point, v->ctx);
		}
	}
	return err;
}

static int visit_machines(const struct visit *v, struct job *job)
{
	size_t cnt, to;
	const struct rec_machine *all = resources__machines(job__resources(job), &cnt);
	bool several = job__target_host(job, 0);
	int err = 0;

	for (size_t from = 0; from < cnt && !err; from = to) {
		struct machine_samples part = machine_samples__of(job, all[from].pid);

		for (to = from; to < cnt && all[to].pid == all[from].pid; to++)
			;
		/* Of two recordings of one machine, the first tells it. */
		if (part.items == &all[from])
			err = visit_machine(v, several ? all[from].pid : 0, &part);
	}
	return err;
}

/* ---- GPUs ---- */

static double value_of_gpu(enum curve_kind kind, const struct rec_gpu_usage *usage)
{
	return kind == CURVE_GPU_BUSY     ? gpu_reading__value(usage->busy_percent, 1)
	       : kind == CURVE_GPU_MEMORY ? (usage->memory_bytes ? (double)usage->memory_used_bytes : -1)
	       : kind == CURVE_GPU_POWER  ? gpu_reading__value(usage->power_mw, 1e-3)
					  : gpu_reading__value(usage->temperature_c, 1);
}

static int visit_gpus(const struct visit *v, struct job *job)
{
	const struct gpu *gpu = job__gpu(job);
	size_t cnt = 0;
	const struct rec_gpu_usage *usages = gpu ? gpu__usages(gpu, &cnt) : NULL;
	int err = gpu ? 0 : -ENOMEM;

	if (job__target_host(job, 0))
		return err;
	for (enum curve_kind kind = CURVE_GPU_BUSY; kind < CURVE__COUNT; kind++) {
		for (size_t i = 0; i < cnt && !err; i++) {
			const struct curve_point point = {
				.kind = kind,
				.device = usages[i].device,
				.time_ns = usages[i].time_ns,
				.value = value_of_gpu(kind, &usages[i]),
			};

			if (point.value >= 0)
				err = v->fn(&point, v->ctx);
		}
	}
	return err;
}

int curves__each(struct job *job, curve_fn fn, void *ctx)
{
	const struct visit v = {fn, ctx};

	return visit_processes(&v, job) ?: visit_machines(&v, job) ?: visit_gpus(&v, job);
}
