// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/ticks.h"

#include <bpf/libbpf.h>
#include <math.h>
#include <string.h>

#include "include/resource_records.h"
#include "stepflame.skel.h"
#include "user/lib/compare.h"
#include "user/lib/percentile.h"
#include "user/session/sources/landmarks.h"
#include "user/session/state.h"

/* ---- by how much longer steps take: overhead__* ---- */

#define VALUE_NS     10000000ull
#define VALUES_MIN   2
#define USUAL_FACTOR 1.0 /* until it is measured: the jobs of docs/cost.md pay 0.8 to 1.2 times what is accounted, */
#define USUAL_ERROR  0.3 /* and others are thought to differ by so much */
#define FACTOR_MAX   20.0

static size_t kept(uint64_t cnt, size_t room)
{
	return cnt < room ? cnt : room;
}

static uint64_t median_ns(const uint64_t *values, uint64_t cnt)
{
	uint64_t sorted[OVERHEAD_VALUES];

	return cnt < VALUES_MIN ? 0 : percentile__of(values, kept(cnt, OVERHEAD_VALUES), 50, sorted);
}

static void add_border(struct overhead *overhead, const struct overhead_pair *border)
{
	struct overhead_pair *pair = &overhead->pairs[overhead->pair_cnt % OVERHEAD_PAIRS];

	if (overhead->has_border) {
		pair->longer = (overhead->border.longer + border->longer) / 2;
		pair->accounted = (overhead->border.accounted + border->accounted) / 2;
		pair->rest = (overhead->border.rest + border->rest) / 2;
		overhead->pair_cnt++;
	}
	overhead->has_border = !overhead->has_border;
	overhead->border = *border;
}

void overhead__begin(struct overhead *overhead, bool rests, double accounted, uint64_t from_ns)
{
	uint64_t first_ns = median_ns(overhead->first, overhead->value_cnt), before_ns = overhead->before_ns;
	uint64_t window_ns = overhead->rests ? before_ns : first_ns, rest_ns = overhead->rests ? first_ns : before_ns;
	struct overhead_pair border = {
		.accounted = overhead->rests ? overhead->before_accounted : accounted,
		.rest = overhead->rests ? accounted : overhead->before_accounted,
	};

	if (first_ns && before_ns) {
		border.longer = (double)window_ns / rest_ns * (1 + border.rest) - 1;
		add_border(overhead, &border);
	} else {
		overhead->has_border = false; /* two that are not next to each other make no pair */
	}
	overhead->before_ns = median_ns(overhead->last, overhead->value_cnt);
	overhead->before_accounted = accounted;
	overhead->rests = rests;
	overhead->from_ns = from_ns;
	overhead->begin_ns = overhead->ticks = overhead->value_cnt = 0;
}

void overhead__tick(struct overhead *overhead, uint64_t time_ns, uint32_t step_ticks)
{
	uint64_t value, at = overhead->value_cnt;

	if (time_ns < overhead->from_ns)
		return;
	if (!overhead->begin_ns) {
		overhead->begin_ns = time_ns;
		return;
	}
	overhead->ticks++;
	if (time_ns < overhead->begin_ns + VALUE_NS || (step_ticks && overhead->ticks % step_ticks))
		return;
	value = (time_ns - overhead->begin_ns) / overhead->ticks;
	if (at < OVERHEAD_VALUES)
		overhead->first[at] = value;
	overhead->last[at % OVERHEAD_VALUES] = value;
	overhead->value_cnt++;
	overhead->begin_ns = time_ns;
	overhead->ticks = 0;
}

static double median(double *values, size_t cnt)
{
	qsort(values, cnt, sizeof(*values), compare__double);
	return (values[(cnt - 1) / 2] + values[cnt / 2]) / 2;
}

bool overhead__estimate(const struct overhead *overhead, struct overhead_estimate *out)
{
	/* Of a normal distribution: its deviation over the median deviation; that of a median over that of a mean. */
	const double of_median_deviation = 1.4826, of_median = 1.2533, of_95_percent = 1.96;
	size_t cnt = kept(overhead->pair_cnt, OVERHEAD_PAIRS);
	double values[OVERHEAD_PAIRS], of_few;

	*out = (struct overhead_estimate){.pairs = cnt};
	if (cnt < OVERHEAD_PAIRS_MIN)
		return false;
	for (size_t i = 0; i < cnt; i++) {
		values[i] = overhead->pairs[i].longer;
		out->accounted += overhead->pairs[i].accounted / cnt;
		out->rest += overhead->pairs[i].rest / cnt;
	}
	out->longer = median(values, cnt);
	for (size_t i = 0; i < cnt; i++)
		values[i] = fabs(overhead->pairs[i].longer - out->longer);
	/* How far few values lie apart is itself not known well. Fitted: 2.8 for 4, 1.07 for 64. */
	of_few = 1 + 4.5 / (cnt - 1.5);
	out->error = of_few * of_95_percent * of_median * of_median_deviation * median(values, cnt) / sqrt(cnt);
	return true;
}

double overhead__factor(const struct overhead *overhead)
{
	const double usual_weight = 1 / (USUAL_ERROR * USUAL_ERROR);
	struct overhead_estimate estimate;
	double factor = USUAL_FACTOR, error, weight;

	if (overhead__estimate(overhead, &estimate) && estimate.accounted > 0) {
		error = estimate.error / estimate.accounted;
		weight = error > 0 ? 1 / (error * error) : 1e9;
		factor = (estimate.longer / estimate.accounted * weight + USUAL_FACTOR * usual_weight) /
			 (weight + usual_weight);
	}
	return fmin(fmax(factor, 1), FACTOR_MAX);
}

/* ---- the source ---- */

#define STEP_TICKS_MAX 64
#define STEPS_MIN      8   /* of which it is known how many ticks they have, before it is said of others */
#define STEPS_ALIKE    0.9 /* of them have as many */
#define STEPS_KEPT     1024
#define SERIAL_TICK    0x80000000u /* beyond what a thread numbers its boundaries with */

/* Ticks that cost more than this part of the budget are left alone a second after a rest has begun. */
#define TICKS_PART 0.25
#define TICKS_NS   1000000000ull
/* A tick is late after so many times the longest time between two, and so long. */
#define LATE    3
#define LATE_NS 1000000000ull

/* Target state. */
struct ticks {
	struct overhead overhead;
	uint64_t cnt, last_ns, usual_ns, longest_ns; /* usual: of the time between two */
	uint64_t looked_ns;                          /* last_ns as a window began */
	bool left_alone;                             /* in this rest, */
	bool missed;                                 /* as it was or is to be: so not all of it is known */
	/* How many ticks a step has, by the best rule so far: */
	uint32_t rule;
	uint64_t index; /* of its last boundary */
	uint32_t since_step;
	uint32_t step_cnt, steps_with[STEP_TICKS_MAX + 1];
	/* The last STEP_TICK: */
	uint32_t rest, in_step, serial;
	uint64_t boundary_ns;
};

static struct ticks *state_of(const struct target *t)
{
	return target__state(t, SOURCE_TICKS);
}

/* ---- the probe ---- */

static void configure(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend)
{
	bpf_program__set_autoload(skel->progs.tick, s && s->options.budget);
}

static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	return s->options.budget && file == t->torch_file ? HOLDS_YES : HOLDS_NO;
}

static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	if (probe_lists__load(elf, "ticks", sets, 1) && !landmarks__backward(sets, elf))
		probe_lists__save(elf, "ticks", sets, 1);
	return 0;
}

static struct bpf_program *program(const struct stepflame_bpf *skel)
{
	return skel->progs.tick;
}

static bool wanted(const struct session *s, const struct target *t)
{
	return !t->rest.rests || !state_of(t)->left_alone;
}

/* ---- how many ticks a step has ---- */

/* 0: not known, or not always as many. */
static uint32_t step_ticks(const struct ticks *ticks)
{
	uint32_t most = 0;

	for (uint32_t i = 1; i <= STEP_TICKS_MAX; i++)
		most = ticks->steps_with[i] > ticks->steps_with[most] ? i : most;
	return ticks->step_cnt >= STEPS_MIN && ticks->steps_with[most] >= STEPS_ALIKE * ticks->step_cnt ? most : 0;
}

static void learn_step(struct ticks *ticks)
{
	if (ticks->step_cnt == STEPS_KEPT) {
		ticks->step_cnt = 0;
		for (uint32_t i = 0; i <= STEP_TICKS_MAX; i++)
			ticks->step_cnt += ticks->steps_with[i] /= 2;
	}
	ticks->step_cnt++;
	ticks->steps_with[ticks->since_step <= STEP_TICKS_MAX ? ticks->since_step : 0]++;
}

static void see_boundary(struct session *s, const struct rec_step *step)
{
	struct target *t = targets__find(s, step->pid);
	struct ticks *ticks = t ? state_of(t) : NULL;

	if (!t || t->gone || (ticks->rule && ticks->rule < step->rule))
		return;
	if (ticks->rule != step->rule) {
		ticks->rule = step->rule;
		ticks->step_cnt = 0;
		memset(ticks->steps_with, 0, sizeof(ticks->steps_with));
	} else if (step->index == ticks->index + 1 && !(step->hdr.flags & REC_RESTED)) {
		learn_step(ticks);
	}
	ticks->index = step->index;
	ticks->since_step = 0;
}

/* ---- ticks ---- */

/* In a rest, each tick that ends a step is a boundary; the first one only begins a step. */
static void emit_boundary(struct session *s, const struct target *t, const struct rec_step *tick)
{
	struct ticks *ticks = state_of(t);
	uint32_t each = step_ticks(ticks);
	bool first = ticks->rest != t->rest.cnt;
	struct rec_step boundary = *tick;

	if (!each || ticks->missed || (!first && ++ticks->in_step < each))
		return;
	boundary.hdr.flags = first ? REC_RESTED : 0;
	boundary.index = ticks->cnt / each;
	boundary.serial = SERIAL_TICK | ticks->serial++;
	boundary.phase_ns[PHASE_OTHER] = first ? 0 : tick->time_ns - ticks->boundary_ns;
	ticks->rest = t->rest.cnt;
	ticks->in_step = 0;
	ticks->boundary_ns = tick->time_ns;
	session__emit(s, &boundary.hdr);
}

static void see_tick(struct session *s, struct target *t, const struct rec_step *tick)
{
	struct ticks *ticks = state_of(t);
	uint64_t ns = tick->time_ns - ticks->last_ns;

	if (ticks->last_ns && tick->time_ns > ticks->last_ns) {
		ticks->longest_ns = ns > ticks->longest_ns ? ns : ticks->longest_ns;
		ticks->usual_ns = ticks->usual_ns ? ticks->usual_ns - ticks->usual_ns / 8 + ns / 8 : ns;
	}
	ticks->cnt++;
	ticks->since_step++;
	ticks->last_ns = tick->time_ns;
	overhead__tick(&ticks->overhead, tick->time_ns, step_ticks(ticks));
	if (tick->hdr.flags & REC_RESTED)
		emit_boundary(s, t, tick);
}

static bool on_step(struct session *s, const struct rec_hdr *record)
{
	const struct rec_step *step = (const void *)record;
	struct target *t;

	if (step->rule != STEP_TICK) {
		if (s->options.budget)
			see_boundary(s, step);
		return false;
	}
	t = targets__find(s, step->pid);
	if (t && !t->gone)
		see_tick(s, t, step);
	return true;
}

static bool costs_too_much(const struct session *s, const struct ticks *ticks)
{
	return ticks->usual_ns && s->selftest.hit_ns > TICKS_PART * s->options.budget * ticks->usual_ns;
}

/* Where steps are so short that even this probe costs too much, the rest is without it. */
static void tend(struct session *s)
{
	uint64_t now = session__now_ns();

	for (size_t i = 0; i < s->target_cnt && s->options.budget; i++) {
		struct target *t = s->targets[i];
		struct ticks *ticks = state_of(t);

		if (t->gone || !t->rest.rests || ticks->left_alone || now - t->rest.from_ns < TICKS_NS ||
		    !costs_too_much(s, ticks))
			continue;
		session__read_ring(s);
		target__detach_set(s, t, SOURCE_TICKS, 0, 0, 0);
		ticks->left_alone = ticks->missed = true;
	}
}

/* ---- what is made of them ---- */

double ticks__factor(const struct target *t)
{
	return overhead__factor(&state_of(t)->overhead);
}

bool ticks__measures(const struct target *t)
{
	return state_of(t)->cnt >= STEPS_MIN;
}

bool ticks__is_late(const struct target *t, uint64_t read_ns)
{
	const struct ticks *ticks = state_of(t);
	uint64_t ns = LATE * ticks->longest_ns > LATE_NS ? LATE * ticks->longest_ns : LATE_NS;

	return ticks__measures(t) && !ticks->left_alone && ticks->looked_ns != ticks->last_ns &&
	       read_ns > ticks->last_ns + ns;
}

static uint32_t micros(double share)
{
	return share > 0 ? fmin(share * 1e6 + 0.5, UINT32_MAX) : 0;
}

static void emit_overhead(struct session *s, const struct target *t)
{
	struct rec_overhead rec = {.hdr = {.type = REC_OVERHEAD, .size = sizeof(rec)}, .pid = t->process.pid};
	struct overhead_estimate estimate;

	if (!overhead__estimate(&state_of(t)->overhead, &estimate))
		return;
	rec.pairs = estimate.pairs;
	rec.accounted_micros = micros(estimate.accounted);
	rec.measured_micros = micros(estimate.longer);
	rec.error_micros = micros(estimate.error);
	rec.rest_micros = micros(estimate.rest);
	session__emit(s, &rec.hdr);
}

void ticks__begin(struct session *s, struct target *t, double accounted, uint64_t from_ns)
{
	struct ticks *ticks = state_of(t);

	overhead__begin(&ticks->overhead, t->rest.rests, accounted, from_ns);
	ticks->left_alone = false;
	ticks->missed = costs_too_much(s, ticks);
	ticks->looked_ns = t->rest.rests ? 0 : ticks->last_ns;
	emit_overhead(s, t);
}

const struct source source_ticks = {
	.target_bytes = sizeof(struct ticks),
	.sets = {{.program = program, .in_rests = true, .wanted = wanted}},
	.records = {{REC_STEP, sizeof(struct rec_step), on_step}},
	.configure = configure,
	.holds = holds,
	.find = find,
	.tend = tend,
};
