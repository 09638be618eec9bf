// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The curve of all processes is a running sum: it changes where that of a process does. */
#include "user/analysis/resources/use_curves.h"

#include <errno.h>
#include <stdlib.h>

#include "user/analysis/resources/curves.h"
#include "user/lib/compare.h"
#include "user/lib/map.h"

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
static void thin(struct use_curve *curve)
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

static void finish(struct use_curves *uses)
{
	struct use_curve *all = uses->all.items;
	size_t kept = 0;

	for (size_t i = 0; i < uses->all.cnt; i++) {
		if (is_empty(&all[i])) {
			free(all[i].points.items);
			continue;
		}
		thin(&all[i]);
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
		finish(uses);
	uses->recording_cnt++;
	return err;
}

const struct use_curve *use_curves__all(const struct use_curves *uses, size_t *cnt)
{
	*cnt = uses->all.cnt;
	return uses->all.items;
}
