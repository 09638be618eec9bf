// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A slow step is blamed on the main part of the time by which it exceeds an ordinary one: garbage
 * collection, torch.compile or a whole phase (checkpoint, validation) if that is half of it; else a
 * wait, or time on the CPU, if that is a third. If the step was on the CPU, or has no single cause,
 * it is blamed on a function that ordinary steps do not call, if that is half of it. Else the
 * samples of all steps with that blame decide which code was on the CPU: a single step has too few.
 */
#include "user/analysis/cause/blame.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/place/place.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/stacks.h"

#define ANY_PHASE (-1)
#define NO_SLOT   UINT32_MAX

/* The cause of one slow step. */
struct slow_cause {
	unsigned int cause; /* as in struct blame_group; CAUSE_NONE: on the CPU */
	int phase;
	uint64_t queue_ns;   /* excess over ordinary steps in waits for a CPU */
	uint64_t ns;         /* by this cause */
	uint32_t place;      /* for BLAME_EXTRA: 1 + index into extra; else 0 */
	uint64_t compile_ns; /* in torch.compile, judged by its samples */
	uint32_t sample_cnt;
};

/*
 * Slots of blame->places: the samples of each slow step, by its index in track->slow; then one slot
 * for all ordinary steps, and one for all waits for a CPU.
 */
struct blame_builder {
	struct job *job;
	const struct steps *steps;
	const struct step_track *track;
	const struct samples *samples;
	struct blame *blame;
	struct slow_cause *slow;         /* track->slow_cnt */
	struct array extra;              /* struct place */
	bool *in_gc;                     /* by path */
	bool *compiles;                  /* by stack */
	uint64_t (*classes)[CPU__COUNT]; /* by group: timer samples in its phase */
};

#define HALF        0.5
#define A_THIRD     (1 / 3.0)
#define CPU_TIMES   2 /* times as much CPU as wait: waits are timed, whereas CPU time is only what is left */
#define SAMPLES_MIN 3 /* needed to say what was on the CPU */

static const char *const blame_names[] = {
#define X(id, name) [BLAME_##id - CAUSE__END] = name,
	STEPFLAME_BLAMES(X)
#undef X
};

const char *blame_cause__name(unsigned int cause)
{
	if (cause < CAUSE__END)
		return sample_cause__name(cause);
	return cause < BLAME__END ? blame_names[cause - CAUSE__END] : "";
}

/* ---- sums ---- */

void step_sum__add(struct step_sum *sum, const struct step *step)
{
	sum->step_cnt++;
	sum->total_ns += step__ns(step);
	sum->gc_ns += step->gc_ns;
	for (uint32_t i = 0; i < step->part_cnt; i++)
		sum->ns[step->parts[i].phase][step->parts[i].cause] += step->parts[i].ns;
}

static void add_step_sums(struct blame_builder *b)
{
	const struct step_track *track = b->track;
	size_t slow = 0;

	for (size_t i = 0; i < track->step_cnt; i++) {
		step_sum__add(&b->blame->all, &track->steps[i]);
		if (slow == track->slow_cnt || track->slow[slow] != i)
			continue;
		step_sum__add(&b->blame->slow, &track->steps[i]);
		slow++;
	}
}

/* What an ordinary step has of a sum, on average. */
static double blame__ordinary(const struct blame *blame, uint64_t all, uint64_t slow)
{
	size_t cnt = blame->all.step_cnt - blame->slow.step_cnt;

	return cnt ? (double)(all - slow) / cnt : 0;
}

/* ---- slow steps ---- */

/* The excess of a step over an ordinary one. */
struct excess {
	double ns[PHASE__COUNT][CAUSE__END], gc_ns, compile_ns;
};

static void find_excess(const struct blame *blame, const struct step *step, struct excess *excess)
{
	for (int p = 0; p < PHASE__COUNT; p++)
		for (int c = 0; c < CAUSE__END; c++)
			excess->ns[p][c] = -blame__ordinary(blame, blame->all.ns[p][c], blame->slow.ns[p][c]);
	for (uint32_t i = 0; i < step->part_cnt; i++)
		excess->ns[step->parts[i].phase][step->parts[i].cause] += step->parts[i].ns;
	excess->gc_ns = step->gc_ns - blame__ordinary(blame, blame->all.gc_ns, blame->slow.gc_ns);
}

static double of_phase(const struct excess *excess, int phase)
{
	double sum = 0;

	for (int cause = 0; cause < CAUSE__END; cause++)
		if (cause != CAUSE_PAUSED) /* which no phase is to blame for */
			sum += excess->ns[phase][cause];
	return sum;
}

static double of_cause(const struct excess *excess, unsigned int cause)
{
	double sum = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		sum += excess->ns[phase][cause];
	return sum;
}

/*
 * The phase with the largest part of a cause's excess, if that is half of it. Not for waits for a
 * CPU and pauses, which may happen anywhere.
 */
static int main_phase(const struct excess *excess, unsigned int cause)
{
	int best = 0;

	for (int phase = 1; phase < PHASE__COUNT; phase++)
		if (excess->ns[phase][cause] > excess->ns[best][cause])
			best = phase;
	return !sample_cause__is_anywhere(cause) && excess->ns[best][cause] >= HALF * of_cause(excess, cause)
		       ? best
		       : ANY_PHASE;
}

/*
 * If the phases that are causes by themselves add up to half of the excess, returns the longest.
 * Sets *cause_ns and *phase.
 */
static unsigned int of_whole_phases(const struct excess *excess, double over, double *cause_ns, int *phase)
{
	static const struct {
		int phase;
		unsigned int cause;
	} whole[] = {{PHASE_CHECKPOINT, BLAME_CHECKPOINT},
		     {PHASE_VALIDATION, BLAME_VALIDATION},
		     {PHASE_COMPILE, BLAME_COMPILE}};
	double sum = 0;
	size_t best = 0;

	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++) {
		sum += fmax(0, of_phase(excess, whole[i].phase));
		if (of_phase(excess, whole[i].phase) > of_phase(excess, whole[best].phase))
			best = i;
	}
	*phase = whole[best].phase;
	*cause_ns = of_phase(excess, *phase);
	return sum >= HALF * over ? whole[best].cause : CAUSE_UNKNOWN;
}

/* Sets *cause_ns and *phase. CAUSE_NONE: time on the CPU. */
static unsigned int find_cause(const struct excess *excess, double over, double *cause_ns, int *phase)
{
	unsigned int best;

	*phase = ANY_PHASE;
	*cause_ns = excess->gc_ns;
	if (*cause_ns >= HALF * over)
		return BLAME_GC;
	*cause_ns = excess->compile_ns;
	if (*cause_ns >= HALF * over)
		return BLAME_COMPILE;
	best = of_whole_phases(excess, over, cause_ns, phase);
	if (best != CAUSE_UNKNOWN)
		return best;
	best = 0;
	for (unsigned int cause = 1; cause < CAUSE__END; cause++)
		if (of_cause(excess, cause) > of_cause(excess, best) / (best ? 1 : CPU_TIMES))
			best = cause;
	*cause_ns = of_cause(excess, best);
	*phase = main_phase(excess, best);
	if (*cause_ns >= A_THIRD * over)
		return best;
	*phase = ANY_PHASE;
	*cause_ns = 0;
	return CAUSE_UNKNOWN;
}

static void find_causes(struct blame_builder *b)
{
	const struct step_track *track = b->track;
	uint64_t compile_ns = 0;
	struct excess excess;

	for (size_t i = 0; i < track->slow_cnt; i++)
		compile_ns = saturating__add(compile_ns, b->slow[i].compile_ns);
	for (size_t i = 0; i < track->slow_cnt; i++) {
		const struct step *step = &track->steps[track->slow[i]];
		struct blame_step *blamed = &b->blame->steps[i];
		struct slow_cause *slow = &b->slow[i];
		double cause_ns;

		blamed->step = track->slow[i];
		blamed->over_ns = step__ns(step) - track->rule_of_slow.ordinary_ns;
		find_excess(b->blame, step, &excess);
		excess.compile_ns =
			fmax(0, slow->compile_ns - blame__ordinary(b->blame, b->blame->compile.ns, compile_ns));
		slow->cause = find_cause(&excess, blamed->over_ns, &cause_ns, &slow->phase);
		slow->ns = cause_ns;
		slow->queue_ns = fmin(fmax(of_cause(&excess, CAUSE_RUN_QUEUE), 0), blamed->over_ns);
	}
}

/* ---- groups ---- */

static bool is_same_cause(const struct slow_cause *a, const struct slow_cause *b)
{
	return a->cause == b->cause && a->phase == b->phase && a->place == b->place;
}

/*
 * The index of the group of slow step i: the group of an earlier step, or a new one. UINT32_MAX: no
 * memory.
 */
static uint32_t group_of(struct blame_builder *b, struct array *groups, struct array *firsts, size_t i)
{
	struct blame_group *group;
	uint32_t *first;

	for (size_t g = 0; g < firsts->cnt; g++)
		if (is_same_cause(&b->slow[((const uint32_t *)firsts->items)[g]], &b->slow[i]))
			return g;
	first = array__add(firsts, sizeof(*first));
	group = first ? array__add(groups, sizeof(*group)) : NULL;
	if (!group)
		return UINT32_MAX;
	*first = i;
	group->cause = b->slow[i].cause;
	group->phase = b->slow[i].phase;
	if (b->slow[i].place)
		group->place = ((const struct place *)b->extra.items)[b->slow[i].place - 1];
	return groups->cnt - 1;
}

static int make_blame_groups(struct blame_builder *b)
{
	struct array groups = {0}, firsts = {0};
	int err = 0;

	for (size_t i = 0; i < b->track->slow_cnt && !err; i++) {
		struct blame_step *blamed = &b->blame->steps[i];
		struct blame_group *group;

		blamed->cause_ns = b->slow[i].ns;
		blamed->group = group_of(b, &groups, &firsts, i);
		b->blame->groups = groups.items;
		b->blame->group_cnt = groups.cnt;
		if (blamed->group == UINT32_MAX) {
			err = -ENOMEM;
			break;
		}
		group = &b->blame->groups[blamed->group];
		group->step_cnt++;
		group->over_ns = saturating__add(group->over_ns, blamed->over_ns);
		group->cause_ns = saturating__add(group->cause_ns, blamed->cause_ns);
		group->queue_ns = saturating__add(group->queue_ns, b->slow[i].queue_ns);
		if (b->track->steps[blamed->step].gc_generation > group->gc_generation)
			group->gc_generation = b->track->steps[blamed->step].gc_generation;
	}
	free(firsts.items);
	return err;
}

static int compare_group_over_ns(const void *a, const void *b, void *groups)
{
	const struct blame_group *all = groups, *x = &all[*(const uint32_t *)a], *y = &all[*(const uint32_t *)b];

	return x->over_ns != y->over_ns ? COMPARE(y->over_ns, x->over_ns) : COMPARE(x, y);
}

/* Sorts groups by lost time, largest first, and renumbers them in the steps. */
static int sort_groups(struct blame_builder *b)
{
	struct blame *blame = b->blame;
	size_t cnt = blame->group_cnt;
	struct blame_group *sorted = calloc(cnt + 1, sizeof(*sorted));
	uint32_t *order = calloc(cnt + 1, sizeof(*order)), *place = calloc(cnt + 1, sizeof(*place));
	int err = sorted && order && place ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++)
		order[i] = i;
	if (cnt && !err)
		qsort_r(order, cnt, sizeof(*order), compare_group_over_ns, blame->groups);
	for (size_t i = 0; i < cnt && !err; i++) {
		sorted[i] = blame->groups[order[i]];
		place[order[i]] = i;
	}
	for (size_t i = 0; i < b->track->slow_cnt && !err; i++)
		blame->steps[i].group = place[blame->steps[i].group];
	if (!err) {
		free(blame->groups);
		blame->groups = sorted;
		sorted = NULL;
	}
	free(sorted);
	free(order);
	free(place);
	return err;
}

/* ---- samples ---- */

/* Maps an index into track->steps to an index into track->slow; NO_SLOT: the step is not slow. */
static uint32_t blame_builder__slow_at(const struct blame_builder *b, long step)
{
	size_t low = SEARCH(i, 0, b->track->slow_cnt, (long)b->track->slow[i] < step);
	return low < b->track->slow_cnt && (long)b->track->slow[low] == step ? low : NO_SLOT;
}

/*
 * Calls fn with each sample of the track's thread that lies in a step. Stops when fn returns
 * nonzero, and returns that.
 */
static int blame_builder__each(struct blame_builder *b,
			       int (*fn)(struct blame_builder *b, const struct sample *sample, enum phase phase,
					 uint32_t slow, void *ctx),
			       void *ctx)
{
	int err = 0;

	for (size_t i = 0; b->track->thread && i < samples__cnt(b->samples) && !err; i++) {
		struct sample sample;
		long step;

		if (samples__thread_of(b->samples, i) != b->track->thread)
			continue;
		sample = samples__get(b->samples, i);
		step = step_track__at(b->track, sample.time_ns);
		if (step >= 0)
			err = fn(b, &sample, step_track__phase(b->track, b->steps, &sample),
				 blame_builder__slow_at(b, step), ctx);
	}
	return err;
}

static int add_to_places(struct blame_builder *b, const struct sample *sample, enum phase phase, uint32_t slow,
			 void *ctx)
{
	long step = step_track__at(b->track, sample->time_ns);
	long *last = ctx;

	if (b->compiles[sample->stack]) {
		b->blame->compile.ns = saturating__add(b->blame->compile.ns, sample->weight_ns);
		b->blame->compile.step_cnt += step != *last;
		*last = step;
	}
	if (slow != NO_SLOT) {
		b->slow[slow].sample_cnt += sample->cause != CAUSE_RUN_QUEUE;
		if (b->compiles[sample->stack])
			b->slow[slow].compile_ns = saturating__add(b->slow[slow].compile_ns, sample->weight_ns);
	}
	/* Where a thread waits for a CPU is chance. */
	if (sample->cause == CAUSE_RUN_QUEUE)
		return places__add(&b->blame->places, b->track->slow_cnt + 1, sample);
	return places__add(&b->blame->places, slow != NO_SLOT ? slow : b->track->slow_cnt, sample);
}

/* ---- torch.compile ---- */

static bool is_one_of(const char *name, const char *const *names, size_t cnt)
{
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; i < cnt; i++)
		if (!strcmp(dot ? dot + 1 : name, names[i]))
			return true;
	return false;
}

/*
 * Files whose functions run only during compilation, once they are imported. Calls of compiled
 * functions pass through other files of dynamo, and through these functions: the replay of a CUDA
 * graph, what puts its inputs where it wants them, and what gives a function the arguments that it
 * expects. What records a CUDA graph is part of compilation.
 */
static bool is_compiler(const struct job *job, const struct code *code)
{
	static const char *const files[] = {"/torch/_dynamo/convert_frame.py", "/torch/_inductor/compile_fx.py"};
	static const char graphs[] = "/torch/_inductor/cudagraph_trees.py", *const record[] = {"record_function",
											       "_record"};
	static const char *const runs[] = {"<module>",
					   "run",
					   "wrapper",
					   "index_expanded_dims",
					   "index_expanded_dims_and_copy_",
					   "copy_misaligned_inputs",
					   "clone_preserve_strides"};
	const char *file = code->file ? job__name(job, code->file) : NULL;
	const char *name = (code->name ? job__name(job, code->name) : NULL) ?: "";

	if (compare__ends_with(file, graphs))
		return is_one_of(name, record, sizeof(record) / sizeof(*record));
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (compare__ends_with(file, files[i]))
			return !is_one_of(name, runs, sizeof(runs) / sizeof(*runs));
	return false;
}

bool *blame__compiles(const struct job *job)
{
	const struct stacks *stacks = job__stacks(job);
	size_t code_end = stacks__code_end(stacks), stack_end = stacks__stack_end(stacks);
	bool *codes = calloc(code_end + 1, sizeof(*codes)), *compiles = calloc(stack_end + 1, sizeof(*compiles));

	for (size_t i = 0; codes && i < code_end; i++) {
		struct code code = stacks__code(stacks, i);

		codes[i] = is_compiler(job, &code);
	}
	for (size_t i = 0; codes && compiles && i < stack_end; i++) {
		struct stack stack = stacks__stack(stacks, i);

		for (uint32_t f = 0; f < stack.cnt; f++)
			compiles[i] |= codes[stack.frames[f].code];
	}
	if (!codes) {
		free(compiles);
		compiles = NULL;
	}
	free(codes);
	return compiles;
}

/* ---- updates that were left out ---- */

/*
 * Finds steps that are made of several iterations, because an update was left out: by a GradScaler,
 * or a guard against NaN. Such a step has every phase as often as it has iterations, but one step of
 * the optimizer. A longer batch looks the same; so the program must also have called backward as
 * much more often than Optimizer.step as these steps say.
 */

#define PHASE_PART 0.05 /* of an ordinary step: smaller phases are not compared */
#define FEWER      0.8  /* times as long: chance makes a phase that much shorter, or the optimizer's longer */
#define MOST       100  /* iterations in a step */
#define LEAST      3    /* iterations too many, for a statement */
#define SEEN_LEAST 0.5  /* of the missing updates; other load on the machine hides some, */
#define SEEN_MOST  1.5  /* and makes other steps look alike */

static uint64_t calls_of(struct job *job, uint32_t pid, enum span_kind kind, const char *prefix, size_t *names)
{
	size_t cnt;
	const struct job_action *actions = job__actions(job, &cnt);
	uint64_t calls = 0;

	*names = 0;
	for (size_t i = 0; i < cnt; i++) {
		if (actions[i].pid != pid || actions[i].kind != kind ||
		    strncmp(actions[i].name, prefix, strlen(prefix)) != 0)
			continue;
		calls += actions[i].val.calls;
		++*names;
	}
	return calls;
}

static double ordinary_phase(const struct blame *blame, int phase)
{
	double ns = 0;

	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		ns += blame__ordinary(blame, blame->all.ns[phase][cause], blame->slow.ns[phase][cause]);
	return ns;
}

/* How many iterations the step seems to have; 0: one, or it does not seem so. */
static unsigned int count_iterations(const struct blame_builder *b, const struct step *step,
				     const double ordinary[PHASE__COUNT])
{
	double usual = b->track->rule_of_slow.ordinary_ns, times,
	       rest = ordinary[PHASE_FORWARD] + ordinary[PHASE_BACKWARD];

	times = rest > 0 ? round((step->phase_ns[PHASE_FORWARD] + step->phase_ns[PHASE_BACKWARD]) / rest) : 0;
	if (times < 2 || times > MOST || ordinary[PHASE_BACKWARD] < PHASE_PART * usual)
		return 0;
	for (int phase = 0; phase < PHASE__COUNT; phase++)
		/* What is in no phase may be the update's: a scaler's own work. */
		if (phase != PHASE_OPTIMIZER && phase != PHASE_OTHER && ordinary[phase] >= PHASE_PART * usual &&
		    step->phase_ns[phase] < (times - FEWER) * ordinary[phase])
			return 0;
	return step->phase_ns[PHASE_OPTIMIZER] < FEWER * times * ordinary[PHASE_OPTIMIZER] ? times : 0;
}

/* Whether the program called backward about as much more often than the optimizer as these iterations say. */
static bool is_counted(const struct blame_builder *b, uint64_t extra)
{
	size_t backwards, optimizers;
	uint64_t backward = calls_of(b->job, b->track->pid, SPAN_BACKWARD, "", &backwards);
	uint64_t updates = calls_of(b->job, b->track->pid, SPAN_LABEL, "Optimizer.step#", &optimizers);
	double each = updates ? fmax(1, floor((double)backward / updates)) : 1; /* accumulation */
	double missing = backward / each - updates;

	return extra >= LEAST && optimizers == 1 && extra >= SEEN_LEAST * missing && extra <= SEEN_MOST * missing;
}

/* Finds the steps whose updates were left out. */
static void blame_builder__find_skipped(struct blame_builder *b)
{
	const struct step_track *track = b->track;
	double ordinary[PHASE__COUNT];
	uint64_t extra = 0;

	if (track->rule != STEP_OPTIMIZER && track->rule != STEP_LOADER_OPTIMIZER)
		return;
	for (int phase = 0; phase < PHASE__COUNT; phase++)
		ordinary[phase] = ordinary_phase(b->blame, phase);
	for (size_t i = 0; i < track->slow_cnt; i++) {
		unsigned int times = count_iterations(b, &track->steps[track->slow[i]], ordinary);

		extra += times ? times - 1 : 0;
	}
	if (!is_counted(b, extra))
		return;
	for (size_t i = 0; i < track->slow_cnt; i++) {
		struct slow_cause *slow = &b->slow[i];

		if (!count_iterations(b, &track->steps[track->slow[i]], ordinary))
			continue;
		slow->cause = BLAME_SKIPPED;
		slow->phase = ANY_PHASE;
		slow->ns = b->blame->steps[i].over_ns;
	}
}

/* ---- extra work ---- */

/*
 * Finds a second kind of work: slow steps that call a function that ordinary steps do not call,
 * such as an evaluation, a rollout, a log or a library's checkpoint, which have no landmark. Among
 * the steps that no single wait explains, finds the function that has the excess of all of them.
 * The steps that spend half of their own excess in it are one kind; the search then repeats with
 * the others.
 */

#define KINDS_MAX  8
#define NEARLY_ALL 0.8
#define ONE_WAIT   0.7 /* of the excess: the wait is the cause, although any work may contain it */

/*
 * Waits that any work may contain: an evaluation, too, waits for batches, and for answers of
 * workers and ranks.
 */
static bool is_common_wait(unsigned int cause)
{
	return cause == CAUSE_DATA_WAIT || cause == CAUSE_COLLECTIVE || cause == CAUSE_POLL || cause == CAUSE_PIPE ||
	       cause == CAUSE_SOCKET || cause == CAUSE_GPU_SYNC;
}

/* Whether one wait, or a phase of its own, explains most of the step's excess. */
static bool is_explained(const struct slow_cause *slow, uint64_t over_ns)
{
	if (slow->phase == PHASE_DATA)
		return true; /* every step gets data */
	/* Longer work also waits longer for a CPU. */
	if (slow->cause == CAUSE_NONE || slow->cause == CAUSE_UNKNOWN ||
	    (slow->cause == CAUSE_RUN_QUEUE && slow->ns < ONE_WAIT * over_ns))
		return false;
	return slow->cause >= CAUSE__END || !is_common_wait(slow->cause) || slow->ns >= ONE_WAIT * over_ns;
}

static size_t mark_open(const struct blame_builder *b, bool *open)
{
	size_t cnt = 0;

	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		open[i] = !b->slow[i].place && !is_explained(&b->slow[i], b->blame->steps[i].over_ns);
		cnt += open[i];
	}
	return cnt;
}

static int find_excess_place(struct blame_builder *b, const bool *open, size_t open_cnt, struct place *place)
{
	size_t slots = b->track->slow_cnt + 1;
	bool *ordinary = calloc(slots, sizeof(*ordinary));
	struct place_set rest = {ordinary, slots, b->blame->all.step_cnt - b->blame->slow.step_cnt};
	struct place_question ask = {.more = {open, b->track->slow_cnt, open_cnt}, .less = rest, .all = rest};
	int err = -ENOMEM;

	*place = (struct place){0};
	if (ordinary) {
		ordinary[slots - 1] = true;
		err = rest.steps ? places__find(&b->blame->places, &ask, place) : 0;
	}
	free(ordinary);
	return err;
}

static void put_cause(struct slow_cause *slow, uint64_t in_ns, uint32_t number)
{
	slow->cause = BLAME_EXTRA;
	slow->phase = ANY_PHASE;
	slow->place = number;
	slow->ns = in_ns;
}

/*
 * Assigns the steps whose samples are in the function, and returns their number. Also assigns steps
 * with too few samples, if the function holds nearly all of the open excess, and if the step is at
 * least half as slow as the others on average.
 */
static size_t assign_steps(struct blame_builder *b, const bool *open, const uint64_t *in_ns, uint32_t number)
{
	uint64_t over_ns = 0, all_in_ns = 0, put_ns = 0;
	size_t cnt = 0;

	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		uint64_t own_ns = b->blame->steps[i].over_ns;

		if (!open[i])
			continue;
		over_ns += own_ns;
		all_in_ns += in_ns[i];
		if (in_ns[i] < HALF * own_ns)
			continue;
		put_cause(&b->slow[i], in_ns[i], number);
		put_ns += own_ns;
		cnt++;
	}
	if (!cnt || all_in_ns < NEARLY_ALL * over_ns)
		return cnt;
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		if (open[i] && !b->slow[i].place && b->slow[i].sample_cnt < PLACE_SAMPLES &&
		    b->blame->steps[i].over_ns >= HALF * put_ns / cnt)
			put_cause(&b->slow[i], in_ns[i], number);
	return cnt;
}

/* Finds one kind. *more: there may be another. */
static int find_extra_kind(struct blame_builder *b, bool *open, uint64_t *in_ns, bool *more)
{
	size_t open_cnt = mark_open(b, open);
	struct place place, *added;
	int err;

	*more = false;
	err = open_cnt ? find_excess_place(b, open, open_cnt, &place) : 0;
	if (err || !open_cnt || !place.rare)
		return err;
	added = array__add(&b->extra, sizeof(*added));
	if (!added)
		return -ENOMEM;
	*added = place;
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		in_ns[i] = 0;
	places__in(&b->blame->places, place__main(&place)->code, in_ns, b->track->slow_cnt);
	*more = assign_steps(b, open, in_ns, b->extra.cnt);
	return 0;
}

/*
 * Finds the steps that were on the CPU, or had no single cause, and spent their
 * excess in one function that ordinary steps hardly call. 0 or -ENOMEM.
 */
static int blame_builder__find_extra(struct blame_builder *b)
{
	bool *open = calloc(b->track->slow_cnt + 1, sizeof(*open)), more = true;
	uint64_t *in_ns = calloc(b->track->slow_cnt + 1, sizeof(*in_ns));
	int err = open && in_ns ? 0 : -ENOMEM;

	for (int i = 0; i < KINDS_MAX && !err && more; i++)
		err = find_extra_kind(b, open, in_ns, &more);
	free(open);
	free(in_ns);
	return err;
}

/* ---- a slower CPU ---- */

/*
 * Slow steps whose CPU was slower, and which did no more than others: a hypervisor took the CPU
 * meanwhile, another program used the same core, caches or memory. Then each phase takes longer by
 * about the same factor, the optimizer's too, whose work is the same whatever the batch is; and the
 * steps come in no rhythm.
 */

#define STEPS_LEAST 8
#define COMPARED    0.04 /* of an ordinary step's time on the CPU: smaller phases are not compared */
#define PHASES      3    /* least number of them, with the optimizer */
#define EVEN_LEAST  0.6  /* of the excess that a phase has if all have the same factor */
#define EVEN_MOST   1.6

/*
 * Whether a phase has half of a step's excess, and more than its part: then that phase is slow, and not the CPU. Such steps
 * do not hide the others.
 */
static bool is_lopsided(const double ordinary[PHASE__COUNT], const struct step *step)
{
	double all = 0, over = 0, now[PHASE__COUNT] = {0};

	for (uint32_t i = 0; i < step->part_cnt; i++)
		if (step->parts[i].cause == CAUSE_NONE)
			now[step->parts[i].phase] += step->parts[i].ns;
	for (int p = 0; p < PHASE__COUNT; p++) {
		all += ordinary[p];
		over += now[p] - ordinary[p];
	}
	for (int p = 0; p < PHASE__COUNT; p++)
		if (now[p] - ordinary[p] >= HALF * over && now[p] - ordinary[p] > EVEN_MOST * over * ordinary[p] / all)
			return true;
	return false;
}

static void find_ordinary(const struct blame *blame, double ordinary[PHASE__COUNT])
{
	for (int p = 0; p < PHASE__COUNT; p++)
		ordinary[p] = blame__ordinary(blame, blame->all.ns[p][CAUSE_NONE], blame->slow.ns[p][CAUSE_NONE]);
}

/* Sets is_asked by slow step: it is slow for what it does on the CPU, in no single phase. */
static void find_asked(const struct blame_builder *b, bool *is_asked)
{
	double ordinary[PHASE__COUNT];

	find_ordinary(b->blame, ordinary);
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		is_asked[i] =
			b->slow[i].cause == CAUSE_NONE && !is_lopsided(ordinary, &b->track->steps[b->track->slow[i]]);
}

static bool has_rhythm(const struct blame_builder *b, const bool *is_asked, uint64_t *indexes, uint64_t *over_ns)
{
	size_t cnt = 0;

	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		if (!is_asked[i])
			continue;
		indexes[cnt] = b->track->steps[b->track->slow[i]].index;
		over_ns[cnt++] = b->blame->steps[i].over_ns;
	}
	return rhythm__find(indexes, over_ns, cnt, false).shortest;
}

bool slower_cpu__is_even(const double ordinary[PHASE__COUNT], const double now[PHASE__COUNT])
{
	double all = 0, over = 0;
	int phases = 0;

	for (int p = 0; p < PHASE__COUNT; p++) {
		all += ordinary[p];
		over += now[p] - ordinary[p];
	}
	if (over <= 0 || ordinary[PHASE_OPTIMIZER] < COMPARED * all)
		return false;
	for (int p = 0; p < PHASE__COUNT; p++) {
		double even = over * ordinary[p] / all, is = now[p] - ordinary[p];

		if (ordinary[p] < COMPARED * all)
			continue;
		phases++;
		if (is < EVEN_LEAST * even || is > EVEN_MOST * even)
			return false;
	}
	return phases >= PHASES;
}

static bool is_even(const struct blame *blame, const struct step_sum *sum)
{
	double ordinary[PHASE__COUNT], now[PHASE__COUNT];

	find_ordinary(blame, ordinary);
	for (int p = 0; p < PHASE__COUNT; p++)
		now[p] = (double)sum->ns[p][CAUSE_NONE] / sum->step_cnt;
	return slower_cpu__is_even(ordinary, now);
}

static int blame_builder__find_slower_cpu(struct blame_builder *b)
{
	size_t room = b->track->slow_cnt + 1;
	uint64_t *indexes = calloc(2 * room, sizeof(*indexes));
	struct step_sum *sum = calloc(1, sizeof(*sum));
	bool *is_asked = calloc(room, sizeof(*is_asked)), found = false;
	int err = indexes && sum && is_asked ? 0 : -ENOMEM;

	if (err)
		goto out;
	find_asked(b, is_asked);
	for (size_t i = 0; i < b->track->slow_cnt; i++)
		if (is_asked[i])
			step_sum__add(sum, &b->track->steps[b->track->slow[i]]);
	if (sum->step_cnt >= STEPS_LEAST)
		found = is_even(b->blame, sum) && !has_rhythm(b, is_asked, indexes, indexes + room);
	for (size_t i = 0; found && i < b->track->slow_cnt; i++) {
		if (!is_asked[i])
			continue;
		b->slow[i].cause = CAUSE_UNKNOWN;
		b->slow[i].phase = ANY_PHASE;
		b->slow[i].ns = 0;
	}
out:
	free(indexes);
	free(sum);
	free(is_asked);
	return err;
}

/* ---- kinds of code ---- */

static int count_class(struct blame_builder *b, const struct sample *sample, enum phase phase, uint32_t slow, void *ctx)
{
	enum cpu_class class;

	if (sample->kind != SAMPLE_CPU || samples__awaits_gpu(b->samples, sample->path))
		return 0;
	class = cpu_class__of(b->job, sample, phase);
	b->blame->all.samples[phase][class]++;
	b->blame->all.sampled_ns += sample->weight_ns;
	if (slow != NO_SLOT) {
		uint32_t number = b->blame->steps[slow].group;
		const struct blame_group *group = &b->blame->groups[number];

		b->blame->slow.samples[phase][class]++;
		b->blame->slow.sampled_ns += sample->weight_ns;
		b->classes[number][class] += group->phase == ANY_PHASE || group->phase == (int)phase;
	}
	return 0;
}

/* Whether the steps' thread waits at that time for autograd's engine. Sets *phase. */
static bool awaits_engine(const struct blame_builder *b, const struct by_thread *by_thread, uint64_t time_ns,
			  enum phase *phase)
{
	size_t next = by_thread__ended(by_thread, b->track->thread, time_ns);
	struct sample wait;

	if (next == by_thread__cnt(by_thread, b->track->thread))
		return false;
	wait = by_thread__get(by_thread, b->track->thread, next);
	*phase = step_track__phase(b->track, b->steps, &wait);
	return samples__runs_backward(b->samples, &wait) && wait.time_ns - wait.weight_ns <= time_ns;
}

/* Counts the samples of threads that run autograd's engine while the steps' thread waits for it. */
static int count_threads(struct blame_builder *b, const bool *is_engine)
{
	struct by_thread by_thread = {0};
	int err = by_thread__new(b->samples, &by_thread);

	for (size_t i = 0; i < samples__cnt(b->samples) && !err; i++) {
		struct sample sample;
		enum phase phase;
		long step;

		if (!is_engine[samples__thread_of(b->samples, i)])
			continue;
		sample = samples__get(b->samples, i);
		step = step_track__at(b->track, sample.time_ns);
		if (step >= 0 && sample.kind == SAMPLE_CPU && awaits_engine(b, &by_thread, sample.time_ns, &phase))
			err = count_class(b, &sample, phase, blame_builder__slow_at(b, step), NULL);
	}
	by_thread__release(&by_thread);
	return err;
}

/* What runs on the threads that the steps' thread waits for in autograd's engine is the steps' work, too. */
static int count_engine(struct blame_builder *b)
{
	bool *is_engine = calloc(samples__thread_end(b->samples) + 1, sizeof(*is_engine)), found = false;
	int err = is_engine ? 0 : -ENOMEM;

	for (size_t i = 0; !err && b->track->thread && i < samples__cnt(b->samples); i++) {
		struct sample sample;
		uint32_t waker;

		if (samples__thread_of(b->samples, i) != b->track->thread)
			continue;
		sample = samples__get(b->samples, i);
		waker = samples__runs_backward(b->samples, &sample) ? samples__waker_of(b->samples, i) : 0;
		if (!waker || waker == b->track->thread)
			continue;
		is_engine[waker] = found = true;
	}
	err = found ? count_threads(b, is_engine) : err;
	free(is_engine);
	return err;
}

/*
 * The kind of code that made steps slow on the CPU: the one with the most samples beyond those in
 * equally many ordinary steps.
 */
static unsigned int find_class(const struct blame_builder *b, const struct blame_group *group, const uint64_t *counts)
{
	const struct step_sum *all = &b->blame->all, *slow = &b->blame->slow;
	double best_cnt = 0, total = 0;
	int best = 0;

	for (int class = 0; class < CPU__COUNT; class ++) {
		double cnt = counts[class];

		for (int p = 0; p < PHASE__COUNT; p++)
			if (group->phase == ANY_PHASE || group->phase == p)
				cnt -= group->step_cnt *
				       blame__ordinary(b->blame, all->samples[p][class], slow->samples[p][class]);
		total += cnt > 0 ? cnt : 0;
		if (cnt <= best_cnt)
			continue;
		best_cnt = cnt;
		best = class;
	}
	return best_cnt >= SAMPLES_MIN && best_cnt >= HALF * total ? BLAME_PYTHON + best : CAUSE_UNKNOWN;
}

static void find_classes(struct blame_builder *b)
{
	for (size_t i = 0; i < b->blame->group_cnt; i++) {
		struct blame_group *group = &b->blame->groups[i];

		if (group->cause == CAUSE_NONE)
			group->cause = find_class(b, group, b->classes[i]);
	}
}

/* ---- where ---- */

static bool stack_has(const struct blame_builder *b, uint32_t number, uint32_t code)
{
	struct stack stack = stacks__stack(job__stacks(b->job), number);

	for (uint32_t i = 0; i < stack.cnt; i++)
		if (stack.frames[i].code == code)
			return true;
	return false;
}

static bool is_of(const struct blame_builder *b, const struct blame_group *group, const struct sample *sample,
		  enum phase phase)
{
	switch (group->cause) {
	case BLAME_GC:
		return b->in_gc[sample->path];
	case BLAME_COMPILE:
		return b->compiles[sample->stack] || phase == PHASE_COMPILE;
	case BLAME_EXTRA:
		return stack_has(b, sample->stack, place__main(&group->place)->code);
	}
	if (group->phase != ANY_PHASE && group->phase != (int)phase)
		return false;
	if (group->cause == CAUSE_UNKNOWN || group->cause == BLAME_SKIPPED || group->cause == BLAME_CHECKPOINT ||
	    group->cause == BLAME_VALIDATION)
		return true;
	if (group->cause < CAUSE__END)
		return sample->kind == SAMPLE_WAIT && sample->cause == group->cause;
	return sample->kind == SAMPLE_CPU && cpu_class__of(b->job, sample, phase) == group->cause - BLAME_PYTHON;
}

/* A pause meets whatever the program does just then; one more iteration is all of it. */
static bool has_place(unsigned int cause)
{
	return cause != CAUSE_UNKNOWN && cause != CAUSE_PAUSED && cause != BLAME_SKIPPED;
}

/*
 * By group: lines, causes of waits, and wakers. By slow step, after the groups: lines. `places` has
 * a slot for the samples of each group's cause, then for the comparable samples of ordinary steps,
 * then for all samples of ordinary steps.
 */
struct where_search {
	struct hotspots hotspots;
	struct places places;
	struct histograms waits, wakers;
	struct intern waker_ids; /* pid and tid */
};

static int add_ordinary(struct blame_builder *b, struct where_search *where, const struct sample *sample,
			enum phase phase)
{
	size_t cnt = b->blame->group_cnt;
	int err = places__add(&where->places, 2 * cnt, sample);

	for (size_t g = 0; g < cnt && !err; g++)
		if (is_of(b, &b->blame->groups[g], sample, phase))
			err = places__add(&where->places, cnt + g, sample);
	return err;
}

static int add_where(struct blame_builder *b, const struct sample *sample, enum phase phase, uint32_t slow, void *ctx)
{
	struct where_search *where = ctx;
	struct blame_group *group;
	uint32_t waker, number;
	int err;

	if (slow == NO_SLOT)
		return add_ordinary(b, where, sample, phase);
	number = b->blame->steps[slow].group;
	group = &b->blame->groups[number];
	if (!is_of(b, group, sample, phase))
		return 0;
	err = places__add(&where->places, number, sample) ?: hotspots__add(&where->hotspots, number, sample) ?:
	      hotspots__add(&where->hotspots, b->blame->group_cnt + slow, sample);
	if (err || sample->kind != SAMPLE_WAIT)
		return err;
	group->wait_ns = saturating__add(group->wait_ns, sample->weight_ns);
	if (sample->passed)
		group->passed_ns = saturating__add(group->passed_ns, sample->weight_ns);
	err = histograms__add(&where->waits, number, sample->cause, sample->weight_ns);
	if (err || !sample->waker_pid)
		return err;
	return intern__add(&where->waker_ids, (uint64_t)sample->waker_pid << 32 | sample->waker_tid, &waker)
		       ?: histograms__add(&where->wakers, number, waker, sample->weight_ns);
}

/*
 * Where a thread waits for a CPU is chance: lines hold that time, but no function is to blame for
 * it.
 */
static bool group_has_place(const struct blame_group *group)
{
	return group->cause != CAUSE_RUN_QUEUE && group->cause != BLAME_EXTRA && group->cause != BLAME_COMPILE;
}

static int find_group_place(struct blame_builder *b, struct where_search *where, size_t number)
{
	struct blame_group *group = &b->blame->groups[number];
	size_t cnt = b->blame->group_cnt, slots = 2 * cnt + 1;
	double ordinary_cnt = b->blame->all.step_cnt - b->blame->slow.step_cnt;
	bool *more = calloc(3 * slots, sizeof(*more)), *less = more + slots, *all = less + slots;
	struct place_question ask = {
		.more = {more, slots, group->step_cnt},
		.less = {less, slots, ordinary_cnt},
		.all = {all, slots, ordinary_cnt},
	};
	int err = more ? 0 : -ENOMEM;

	if (!err && ordinary_cnt) {
		more[number] = less[cnt + number] = all[2 * cnt] = true;
		err = places__find(&where->places, &ask, &group->place);
	}
	free(more);
	return err;
}

/* Puts the place's hotspot first, and preserves what is known about its line. */
static void put_first(struct blame_group *group)
{
	struct hotspot first = *place__main(&group->place);
	int at = 0;

	while (at < BLAME_HOTSPOTS - 1 &&
	       (group->hotspots[at].code != first.code || group->hotspots[at].line != first.line))
		at++;
	for (int i = 0; i < BLAME_HOTSPOTS; i++)
		if (group->hotspots[i].code == first.code && !first.file)
			first.file = group->hotspots[i].file;
	for (; at > 0; at--)
		group->hotspots[at] = group->hotspots[at - 1];
	group->hotspots[0] = first;
}

static int put_where(struct blame_builder *b, struct where_search *where)
{
	size_t group_cnt = b->blame->group_cnt, slots = group_cnt + b->track->slow_cnt;
	struct hotspot(*hotspots)[BLAME_HOTSPOTS] = calloc(slots + 1, sizeof(*hotspots));
	struct histogram_top *waits = calloc(group_cnt + 1, sizeof(*waits));
	struct histogram_top *wakers = calloc(group_cnt + 1, sizeof(*wakers));
	int err = -ENOMEM;

	if (hotspots && waits && wakers)
		err = hotspots__top(&where->hotspots, slots, BLAME_HOTSPOTS, *hotspots);
	if (err)
		goto out;
	histograms__top(&where->waits, group_cnt, 1, waits);
	histograms__top(&where->wakers, group_cnt, 1, wakers);
	for (size_t i = 0; i < group_cnt && !err; i++) {
		struct blame_group *group = &b->blame->groups[i];
		uint64_t waker = intern__key(&where->waker_ids, wakers[i].value);

		group->wait = waits[i].value;
		group->waker_pid = waker >> 32;
		group->waker_tid = waker;
		group->waker_ns = wakers[i].total;
		if (!has_place(group->cause))
			continue;
		for (int k = 0; k < BLAME_HOTSPOTS; k++)
			group->hotspots[k] = hotspots[i][k];
		if (group_has_place(group))
			err = find_group_place(b, where, i);
		/* A library's waiting function says nothing; the process or thread that it waits for does. */
		if (!group->place.users &&
		    (group->cause == CAUSE_DATA_WAIT ||
		     (group->cause < CAUSE__END && group->waker_ns && group->waker_ns >= HALF * group->cause_ns)))
			group->place = (struct place){0};
		if (group->place.outer.code)
			put_first(group);
	}
	for (size_t i = 0; i < b->track->slow_cnt; i++) {
		const struct blame_group *group = &b->blame->groups[b->blame->steps[i].group];

		if (has_place(group->cause))
			b->blame->steps[i].hotspot =
				group->cause == BLAME_EXTRA ? group->hotspots[0] : hotspots[group_cnt + i][0];
	}
out:
	free(hotspots);
	free(waits);
	free(wakers);
	return err;
}

static int find_where(struct blame_builder *b)
{
	struct where_search where = {.hotspots = {.places = &b->blame->places, .lines = b->blame->lines},
				     .places.job = b->job};
	int err = blame_builder__each(b, add_where, &where) ?: put_where(b, &where);

	hotspots__free(&where.hotspots);
	places__free(&where.places);
	histograms__free(&where.waits);
	histograms__free(&where.wakers);
	intern__free(&where.waker_ids);
	return err;
}

/* ---- groups that are one ---- */

/* Both do what other steps hardly do, in the same function: only the cause that most of it has differs. */
static bool is_alike(const struct blame_group *a, const struct blame_group *b)
{
	return a->step_cnt && b->step_cnt && a->place.rare && b->place.rare &&
	       a->place.outer.code == b->place.outer.code;
}

static void merge_into(struct blame_group *to, struct blame_group *from)
{
	to->step_cnt += from->step_cnt;
	to->over_ns = saturating__add(to->over_ns, from->over_ns);
	to->cause_ns = saturating__add(to->cause_ns, from->cause_ns);
	to->queue_ns = saturating__add(to->queue_ns, from->queue_ns);
	if (from->gc_generation > to->gc_generation)
		to->gc_generation = from->gc_generation;
	from->step_cnt = 0;
}

/* Moves group i up to where its lost time puts it; numbers[] follow the groups. */
static void move_up(struct blame_group *groups, uint32_t *numbers, size_t i)
{
	for (; i && groups[i].over_ns > groups[i - 1].over_ns; i--) {
		struct blame_group group = groups[i];
		uint32_t number = numbers[i];

		groups[i] = groups[i - 1];
		groups[i - 1] = group;
		numbers[i] = numbers[i - 1];
		numbers[i - 1] = number;
	}
}

static int merge_alike(struct blame_builder *b)
{
	struct blame *blame = b->blame;
	size_t cnt = blame->group_cnt, kept = 0;
	uint32_t *into = calloc(2 * cnt + 1, sizeof(*into)), *numbers = into + cnt;

	if (!into)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		into[i] = i;
	for (size_t i = 0; i < cnt; i++)
		for (size_t k = i + 1; k < cnt; k++)
			if (is_alike(&blame->groups[i], &blame->groups[k])) {
				merge_into(&blame->groups[i], &blame->groups[k]);
				into[k] = i;
			}
	for (size_t i = 0; i < cnt; i++) {
		if (!blame->groups[i].step_cnt)
			continue;
		blame->groups[kept] = blame->groups[i];
		numbers[kept] = i;
		move_up(blame->groups, numbers, kept++);
	}
	blame->group_cnt = kept;
	for (size_t s = 0; s < b->track->slow_cnt; s++) {
		uint32_t was = into[blame->steps[s].group], is = 0;

		while (numbers[is] != was)
			is++;
		blame->steps[s].group = is;
	}
	free(into);
	return 0;
}

/* ---- rhythms ---- */

static int find_rhythms(struct blame_builder *b)
{
	size_t room = b->track->slow_cnt + 1;
	uint64_t *indexes = calloc(2 * room, sizeof(*indexes));

	for (size_t g = 0; indexes && g < b->blame->group_cnt; g++) {
		size_t cnt = 0;

		for (size_t i = 0; i < b->track->slow_cnt; i++) {
			const struct blame_step *blamed = &b->blame->steps[i];

			if (blamed->group != g)
				continue;
			indexes[cnt] = b->track->steps[blamed->step].index;
			indexes[room + cnt++] = blamed->over_ns;
		}
		b->blame->groups[g].rhythm = rhythm__find(indexes, indexes + room, cnt, b->blame->groups[g].place.rare);
	}
	free(indexes);
	return indexes ? 0 : -ENOMEM;
}

/* The line that called most of what was compiled. */
static int find_compiled(struct blame_builder *b)
{
	struct hotspots hotspots = {.places = &b->blame->places, .lines = b->blame->lines};
	int err = 0;

	for (size_t i = 0; b->blame->compile.ns && i < samples__cnt(b->samples) && !err; i++) {
		struct sample sample;

		if (samples__thread_of(b->samples, i) != b->track->thread)
			continue;
		sample = samples__get(b->samples, i);
		if (b->compiles[sample.stack] && step_track__at(b->track, sample.time_ns) >= 0)
			err = hotspots__add(&hotspots, 0, &sample);
	}
	err = err ?: hotspots__top(&hotspots, 1, 1, &b->blame->compile.hotspot);
	hotspots__free(&hotspots);
	return err;
}

/* Chooses the lines that represent stacks, relative to all steps. */
static int find_lines(struct blame_builder *b)
{
	size_t slots = b->track->slow_cnt + 2;
	bool *all = malloc(slots);
	struct place_set set = {all, slots, b->track->step_cnt};

	for (size_t i = 0; all && i < slots; i++)
		all[i] = true;
	b->blame->lines = all ? places__lines(&b->blame->places, &set) : NULL;
	free(all);
	return b->blame->lines ? 0 : -ENOMEM;
}

/*
 * Finds places, lines, wakers and rhythms of groups whose causes and steps are set.
 * 0 or -ENOMEM.
 */
static int blame_builder__find_where(struct blame_builder *b)
{
	int err;

	b->classes = calloc(b->blame->group_cnt + 1, sizeof(*b->classes));
	err = b->classes ? blame_builder__each(b, count_class, NULL) ?: count_engine(b) : -ENOMEM;
	if (err)
		return err;
	find_classes(b);
	return find_lines(b) ?: find_where(b) ?: merge_alike(b) ?: find_rhythms(b) ?: find_compiled(b);
}

/* ---- together ---- */

static int find_gc_paths(struct blame_builder *b)
{
	const struct stacks *stacks = job__stacks(b->job);
	size_t end = stacks__path_end(stacks);

	b->in_gc = calloc(end, sizeof(*b->in_gc));
	for (size_t i = 0; b->in_gc && i < end; i++) {
		struct path path = stacks__path(stacks, i);

		for (uint32_t s = 0; s < path.cnt; s++)
			b->in_gc[i] |= path.spans[s].kind == SPAN_GC;
	}
	return b->in_gc ? 0 : -ENOMEM;
}

static int find_blame(struct blame_builder *b)
{
	long last = -1;
	int err = blame_builder__each(b, add_to_places, &last);

	if (err)
		return err;
	add_step_sums(b);
	find_causes(b);
	blame_builder__find_skipped(b);
	return blame_builder__find_extra(b) ?: blame_builder__find_slower_cpu(b) ?: make_blame_groups(b) ?: sort_groups(b) ?: blame_builder__find_where(b);
}

int blame__new(struct job *job, const struct steps *steps, const struct step_track *track, struct blame *blame)
{
	struct blame_builder b = {
		.job = job, .steps = steps, .track = track, .samples = job__samples(job), .blame = blame};
	int err = -ENOMEM;

	*blame = (struct blame){.steps = calloc(track->slow_cnt + 1, sizeof(*blame->steps)), .places.job = job};
	b.slow = calloc(track->slow_cnt + 1, sizeof(*b.slow));
	b.compiles = b.samples ? blame__compiles(job) : NULL;
	if (blame->steps && b.slow && b.compiles && !find_gc_paths(&b))
		err = find_blame(&b);
	free(b.slow);
	free(b.extra.items);
	free(b.in_gc);
	free(b.compiles);
	free(b.classes);
	if (err)
		blame__release(blame);
	return err;
}

void blame__release(struct blame *blame)
{
	free(blame->groups);
	free(blame->steps);
	free(blame->lines);
	places__free(&blame->places);
	*blame = (struct blame){0};
}
