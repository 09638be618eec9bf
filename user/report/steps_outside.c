// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the text of the steps report says about time in torch.compile, and outside steps. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "user/recording/dropped_steps.h"
#include "user/report/print/text.h"
#include "user/report/steps_report.h"

#define SAID_SHARE    0.001 /* of the steps' time, or of time outside: omit a smaller share of compiles */
#define OUTSIDE_SHARE 0.02  /* share of the window */

/*
 * "2.31 s before the first (2.1 s of it in torch.compile; most of it in train.py:33 main)". 0 or
 * -ENOMEM.
 */
static int say_outside(struct job *job, const struct outside_part *part, const char *side, char **text)
{
	char *hotspot = part->hotspot.ns ? hotspot__text(job, &part->hotspot) : NULL, compile[64] = "";
	bool compiles = part->compile_ns >= SAID_SHARE * part->ns && part->compile_ns;
	int bytes;

	if (part->hotspot.ns && !hotspot)
		return -ENOMEM;
	if (compiles)
		snprintf(compile, sizeof(compile), "%.3g s of it in torch.compile%s", part->compile_ns / 1e9,
			 hotspot ? "; " : "");
	bytes = asprintf(text, "%.3g s %s%s%s%s%s%s", part->ns / 1e9, side, compiles || hotspot ? " (" : "", compile,
			 hotspot ? "most of it in " : "", hotspot ?: "", compiles || hotspot ? ")" : "");
	free(hotspot);
	return bytes < 0 ? -ENOMEM : 0;
}

/*
 * Prints nothing where the time outside steps is no more than that of the two steps that the window
 * cuts.
 */
int steps_report__print_outside(struct job *job, const struct steps_of *of, FILE *out)
{
	const struct outside_part *parts = of->outside.parts;
	uint64_t usual_ns = 2 * of->track->rule_of_slow.median_ns, ns = parts[0].ns + parts[1].ns;
	char *before = NULL, *after = NULL;
	int err;

	if (ns <= usual_ns || ns < OUTSIDE_SHARE * (ns + of->track->total_ns))
		return 0;
	err = say_outside(job, &parts[OUTSIDE_BEFORE], "before the first boundary", &before)
		      ?: say_outside(job, &parts[OUTSIDE_AFTER], "after the last", &after);
	if (!err)
		text__paragraph(out, "in no step: %s, %s", before, after);
	free(before);
	free(after);
	return err;
}

int steps_report__print_compile(struct job *job, const struct steps_of *of, FILE *out)
{
	const struct compile_sum *compile = &of->blame.compile;
	char *hotspot;

	if (compile->ns < SAID_SHARE * of->track->total_ns)
		return 0;
	hotspot = compile->hotspot.ns ? hotspot__text(job, &compile->hotspot) : NULL;
	if (compile->hotspot.ns && !hotspot)
		return -ENOMEM;
	text__paragraph(out, "compile: %.3g s in torch.compile, in %zu step%s, %.1f %% of the time, included above%s%s",
			compile->ns / 1e9, compile->step_cnt, compile->step_cnt == 1 ? "" : "s",
			100.0 * compile->ns / of->track->total_ns, hotspot ? "; called at " : "", hotspot ?: "");
	free(hotspot);
	return 0;
}

/* Their longest phases, "52 % forward, 20 % backward". */
static void list_phases(const struct rec_dropped_steps *dropped, char *text, size_t bytes)
{
	size_t at = 0;

	*text = 0;
	for (int p = 0; p < PHASE__COUNT; p++) {
		double share = 100.0 * dropped->phase_ns[p] / (dropped->total_ns ?: 1);

		if (share >= 1 && at < bytes)
			at += snprintf(text + at, bytes - at, "%s%.0f %% %s", at ? ", " : "; ", share, phase__name(p));
	}
}

void steps_report__print_dropped(struct job *job, const struct step_track *track, FILE *out)
{
	const struct rec_dropped_steps *dropped = job__dropped_steps(job, track->pid, track->tid, track->rule);
	char phases[256];

	if (!dropped)
		return;
	list_phases(dropped, phases, sizeof(phases));
	text__paragraph(out,
			"before: %" PRIu64
			" steps, of which the recording has kept only this (--max-size, --last): median "
			"%.4g ms, p99 %.4g ms (within 1.1 %%), shortest %.4g ms, longest %.4g ms, %.4g s in all%s",
			(uint64_t)dropped->steps, dropped_steps__percentile_ns(dropped, 50) / 1e6,
			dropped_steps__percentile_ns(dropped, 99) / 1e6, dropped->min_ns / 1e6, dropped->max_ns / 1e6,
			dropped->total_ns / 1e9, phases);
}

/* Says what a process did instead of steps. */
static int say_instead(struct job *job, const struct rec_target *target, FILE *out)
{
	struct outside_part part;
	char *text = NULL;
	int err = outside__all(job, target->pid, &part);

	if (err || (!part.hotspot.ns && !part.compile_ns))
		return err;
	err = say_outside(job, &part, "of its main thread", &text);
	if (!err)
		text__paragraph(out, "pid %u: %s", REC_PID(target->pid), text);
	free(text);
	return err;
}

int steps_report__explain_empty(struct job *job, FILE *out)
{
	const struct rec_window *window = job__window(job);
	const struct rec_target *targets;
	size_t cnt;
	int err = 0;

	job__boundaries(job, &cnt);
	if (cnt)
		text__paragraph(
			out, "No whole step is in this recording. Record for longer: stepflame record -p PID -d 30s");
	else if (window->steps)
		text__paragraph(out, "This recording counted its steps, but did not time them: record with samples, "
				     "without -F 0.");
	else
		text__paragraph(
			out, "No step was seen. Is the job training, past its set-up? Then record for longer, or say "
			     "what ends a step: stepflame record --step-at NAME");
	targets = job__targets(job, &cnt);
	for (size_t i = 0; i < cnt && !err; i++)
		if (targets[i].role == ROLE_MAIN)
			err = say_instead(job, &targets[i], out);
	return err;
}
