// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/resources/curves.h"

#include <errno.h>
#include <stdlib.h>

#include "user/analysis/gpu/gpu_readings.h"
#include "user/analysis/resources/machine.h"
#include "user/analysis/resources/resources.h"
#include "user/lib/compare.h"
#include "user/lib/map.h"
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
	bool shown = kind == CURVE_CPU || kind == CURVE_MEMORY;
	int err = 0;

	for (size_t i = 0; i < samples->cnt && !shown; i++)
		shown = value_of_process(kind, &items[i], i + 1 < samples->cnt ? &items[i + 1] : NULL) > 0;
	for (size_t i = 0; shown && i < samples->cnt && !err; i++) {
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
		bool shown = kind != CURVE_MACHINE_SWAP;

		for (size_t i = 0; i < samples->cnt && !shown; i++)
			shown = items[i].swap_bytes > items[i].swap_free_bytes;
		for (size_t i = 0; shown && i < samples->cnt && !err; i++) {
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

/* ---- curves for the page ---- */

#define LOOK_NS   100000000ULL /* the processes of one look are read within it */
#define VALUE_MAX (1ULL << 52)
#define GONE_NS   2000000000ULL /* a process without a look for so long before the end has ended */

struct use_curves {
	struct array all; /* struct use_curve */
	uint32_t recording_cnt;
};

/* A process in curves of one kind. */
struct user {
	uint64_t pid;
	uint64_t last_ns;
	double value; /* while the sum runs */
};

/* A change of a process' value. */
struct change {
	uint64_t time_ns;
	uint32_t user; /* index */
	double value;
};

/* Of one recording. */
struct collect {
	struct use_curves *uses;
	const struct steps *steps;
	uint64_t origin_ns;
	struct {
		struct map users;     /* struct user, by pid */
		struct array changes; /* struct change */
	} sums[USE_GPU];
	struct use_curve *last; /* the curve to which the last point went; NULL: none */
};

struct use_curves *use_curves__new(void)
{
	return calloc(1, sizeof(struct use_curves));
}

void use_curves__free(struct use_curves *uses)
{
	if (!uses)
		return;
	for (size_t i = 0; i < uses->all.cnt; i++)
		free(((struct use_curve *)uses->all.items)[i].points.items);
	free(uses->all.items);
	free(uses);
}

static struct use_curve *begin_curve(struct use_curves *uses, enum use_kind kind, uint32_t pid, uint32_t device)
{
	struct use_curve *curve = array__add(&uses->all, sizeof(*curve));

	if (curve)
		*curve = (struct use_curve){
			.recording = uses->recording_cnt, .kind = kind, .pid = pid, .device = device};
	return curve;
}

static int add_point(const struct collect *c, struct use_curve *curve, uint64_t time_ns, double value)
{
	struct use_point *point = curve ? array__add(&curve->points, sizeof(*point)) : NULL;

	if (!point)
		return -ENOMEM;
	point->time_ns = time_ns > c->origin_ns ? time_ns - c->origin_ns : 0;
	value = curve->kind == USE_MEMORY ? value : value * 1000 + 0.5;
	point->value = value < VALUE_MAX ? (uint64_t)value : VALUE_MAX; /* a recording may hold any numbers */
	return 0;
}

static bool makes_steps(const struct steps *steps, uint32_t pid)
{
	size_t cnt;
	const struct step_track *tracks = steps__tracks(steps, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (tracks[i].pid == pid)
			return true;
	return false;
}

static int add_change(struct collect *c, enum use_kind kind, const struct curve_point *point)
{
	const uint64_t key = point->pid;
	struct user *user = MAP_ADD(&c->sums[kind].users, struct user, &key);
	struct change *change = user ? array__add(&c->sums[kind].changes, sizeof(*change)) : NULL;

	if (!change)
		return -ENOMEM;
	user->last_ns = point->time_ns;
	*change = (struct change){point->time_ns, MAP_INDEX(&c->sums[kind].users, user), point->value};
	return 0;
}

static int take_point(const struct curve_point *point, void *ctx)
{
	struct collect *c = ctx;
	enum use_kind kind = point->kind == CURVE_MEMORY ? USE_MEMORY : point->kind == CURVE_CPU ? USE_CPU : USE_GPU;
	int err = 0;

	if (kind == USE_GPU && point->kind != CURVE_GPU_BUSY)
		return 0;
	if (kind != USE_GPU)
		err = add_change(c, kind, point);
	if (err || (kind != USE_GPU && !makes_steps(c->steps, point->pid)))
		return err;
	if (!c->last || c->last->kind != kind || c->last->pid != point->pid || c->last->device != point->device)
		c->last = begin_curve(c->uses, kind, point->pid, point->device);
	return add_point(c, c->last, point->time_ns, point->value);
}

/* ---- all processes ---- */

static int compare_changes(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	return COMPARE(x->time_ns, y->time_ns) ?: COMPARE(x->user, y->user);
}

/* Processes that have ended use nothing from then on. */
static int add_ends(struct map *users, struct array *changes)
{
	const struct user *all = users->items.items;
	uint64_t last_ns = 0;

	for (size_t i = 0; i < users->items.cnt; i++)
		last_ns = all[i].last_ns > last_ns ? all[i].last_ns : last_ns;
	for (size_t i = 0; i < users->items.cnt; i++) {
		struct change *change;

		if (last_ns - all[i].last_ns < GONE_NS)
			continue;
		change = array__add(changes, sizeof(*change));
		if (!change)
			return -ENOMEM;
		*change = (struct change){all[i].last_ns + 1, i, 0};
	}
	return 0;
}

/* One process that makes steps is all there is: it has its curve. */
static bool needs_sum(const struct collect *c, enum use_kind kind)
{
	const struct map *users = &c->sums[kind].users;

	return users->items.cnt &&
	       (users->items.cnt > 1 || !makes_steps(c->steps, ((struct user *)users->items.items)->pid));
}

static int add_sum(struct collect *c, enum use_kind kind)
{
	struct array *changes = &c->sums[kind].changes;
	struct user *users = c->sums[kind].users.items.items;
	const struct change *all;
	struct use_curve *curve;
	double sum = 0;
	int err = add_ends(&c->sums[kind].users, changes);

	if (err)
		return err;
	qsort(changes->items, changes->cnt, sizeof(struct change), compare_changes);
	all = changes->items;
	curve = begin_curve(c->uses, kind, 0, 0);
	for (size_t i = 0, first = 0; i < changes->cnt && !err; i++) {
		sum += all[i].value - users[all[i].user].value;
		users[all[i].user].value = all[i].value;
		if (i + 1 < changes->cnt && all[i + 1].time_ns - all[first].time_ns < LOOK_NS)
			continue;
		err = add_point(c, curve, all[first].time_ns, sum > 0 ? sum : 0);
		first = i + 1;
	}
	return err;
}

/* ---- what is left ---- */

/* Makes one point of several: of memory it has the most, of the others the mean. */
static void thin_curve(struct use_curve *curve)
{
	struct use_point *points = curve->points.items;
	size_t cnt = curve->points.cnt, several = (cnt + USE_POINTS_MAX - 1) / USE_POINTS_MAX;

	if (several < 2)
		return;
	curve->points.cnt = 0;
	for (size_t from = 0, to; from < cnt; from = to) {
		double sum = 0;
		uint64_t most = 0;

		for (to = from; to < cnt && to < from + several; to++) {
			sum += points[to].value;
			most = points[to].value > most ? points[to].value : most;
		}
		points[curve->points.cnt++] = (struct use_point){
			points[from].time_ns, curve->kind == USE_MEMORY ? most : (uint64_t)(sum / (to - from) + 0.5)};
	}
}

static bool is_empty(const struct use_curve *curve)
{
	const struct use_point *points = curve->points.items;

	for (size_t i = 0; i < curve->points.cnt; i++)
		if (points[i].value)
			return false;
	return true;
}

static void finish_curves(struct use_curves *uses)
{
	struct use_curve *all = uses->all.items;
	size_t kept = 0;

	for (size_t i = 0; i < uses->all.cnt; i++) {
		if (is_empty(&all[i])) {
			free(all[i].points.items);
			continue;
		}
		thin_curve(&all[i]);
		all[kept++] = all[i];
	}
	uses->all.cnt = kept;
}

int use_curves__add(struct use_curves *uses, struct job *job, const struct steps *steps, uint64_t origin_ns)
{
	struct collect c = {.uses = uses, .steps = steps, .origin_ns = origin_ns};
	int err = curves__each(job, take_point, &c);

	for (enum use_kind kind = USE_MEMORY; kind < USE_GPU; kind++) {
		if (!err && needs_sum(&c, kind))
			err = add_sum(&c, kind);
		map__free(&c.sums[kind].users);
		free(c.sums[kind].changes.items);
	}
	if (!err)
		finish_curves(uses);
	uses->recording_cnt++;
	return err;
}

const struct use_curve *use_curves__all(const struct use_curves *uses, size_t *cnt)
{
	*cnt = uses->all.cnt;
	return uses->all.items;
}
