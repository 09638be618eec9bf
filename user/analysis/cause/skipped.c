// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds steps that are made of several iterations, because an update was left out: by a GradScaler,
 * or a guard against NaN. Such a step has every phase as often as it has iterations, but one step of
 * the optimizer. A longer batch looks the same; so the program must also have called backward as
 * much more often than Optimizer.step as these steps say.
 */
#include <math.h>
#include <string.h>

#include "user/analysis/cause/blame_private.h"

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

void blame_builder__find_skipped(struct blame_builder *b)
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
