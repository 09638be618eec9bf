// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The steps report: what bounds the steps of a job, where their time goes, and which steps were
 * slow and why. In: the model's steps. The times of the table add up to the time of the steps.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/profile.h"
#include "user/report/common.h"
#include "user/report/print/text.h"
#include "user/report/rows.h"
#include "user/report/steps_report.h"

#define DEFAULT_LIMIT 10
#define SHOWN_SHARE   0.001 /* of the time: no mention of less */
#define LISTED_SHARE  0.005 /* of the time: groups of slow steps with less share one row */

const char *const steps_report__sort_keys[] = {"duration", "index", NULL};

/* ---- what is shown ---- */

int steps_view__new(struct job *job, const struct report_options *options, struct steps_view *view)
{
	*view = (struct steps_view){.job = job, .options = options, .steps = steps__new(job), .straggler.index = -1};
	view->gpu = view->steps ? job__gpu(job) : NULL;
	view->gpu_time = view->gpu ? gpu_time__new(job, view->steps) : NULL;
	if (!view->gpu_time) {
		steps_view__release(view);
		return -ENOMEM;
	}
	view->tracks = steps__tracks(view->steps, &view->track_cnt);
	view->ranks = ranks__new(job, view->tracks, view->track_cnt);
	if (view->ranks && !ranks__straggler(job, view->steps, view->ranks, view->track_cnt, &view->straggler))
		return 0;
	steps_view__release(view);
	return -ENOMEM;
}

void steps_view__release(struct steps_view *view)
{
	straggler__release(&view->straggler);
	free(view->ranks);
	gpu_time__free(view->gpu_time);
	steps__free(view->steps);
}

const struct step_track *steps_view__shown(const struct steps_view *view)
{
	size_t shown = 0;

	if (view->straggler.index >= 0)
		return &view->tracks[view->straggler.index];
	for (size_t i = 1; i < view->track_cnt; i++)
		if (view->ranks[i].rank < view->ranks[shown].rank)
			shown = i;
	return &view->tracks[shown];
}

static int compare_duration(const void *a, const void *b, void *ctx)
{
	const struct steps_of *of = ctx;
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	uint64_t x = of->blame.steps[i].over_ns, y = of->blame.steps[k].over_ns;

	return x != y ? (x < y) - (x > y) : (i > k) - (i < k);
}

int steps_of__new(const struct steps_view *view, const struct step_track *track, bool of_job, struct steps_of *of)
{
	const struct straggler *straggler = of_job && view->straggler.index >= 0 ? &view->straggler : NULL;
	const char *sort = view->options->sort;
	int err;

	*of = (struct steps_of){.track = track, .order = calloc(track->slow_cnt + 1, sizeof(*of->order))};
	err = of->order ? blame__new(view->job, view->steps, track, &of->blame) : -ENOMEM;
	if (!err)
		err = gpu_steps__new(view->gpu, view->gpu_time, track, &of->gpu);
	if (!err)
		err = verdict__new(view->job, view->steps, track, &of->blame, &of->gpu, straggler, &of->verdict);
	if (!err)
		err = outside__find(view->job, track, &of->outside);
	if (err) {
		steps_of__release(of);
		return err;
	}
	of->resources = resource_samples__of(view->job, track->pid);
	of->machine = machine_samples__of(view->job, track->pid);
	of->readings = gpu_readings__of(view->job, view->gpu);
	for (size_t i = 0; i < track->slow_cnt; i++)
		of->order[i] = i;
	if (!sort || !strcmp(sort, steps_report__sort_keys[0]))
		qsort_r(of->order, track->slow_cnt, sizeof(*of->order), compare_duration, of);
	return 0;
}

void steps_of__release(struct steps_of *of)
{
	verdict__release(&of->verdict);
	gpu_steps__release(&of->gpu);
	blame__release(&of->blame);
	free(of->order);
}

bool step_sum__cpu_share(const struct step_sum *sum, enum cpu_class class, double *share, double *error)
{
	double all = 0, cnt = 0;

	for (int phase = 0; phase < PHASE__COUNT; phase++) {
		cnt += sum->samples[phase][class];
		for (int c = 0; c < CPU__COUNT; c++)
			all += sum->samples[phase][c];
	}
	if (!all)
		return false;
	*share = cnt / all;
	/*
	 * Binomial error of a share. Even a share of 0 or 1 may be chance, so the error is at least
	 * that of one sample.
	 */
	*error = fmax(profile__error_ns(all * *share * (1 - *share)), 1) / all;
	return true;
}

/* ---- the verdict ---- */

static void print_list(const char *title, const struct array *list, FILE *out)
{
	char *const *texts = list->items;

	for (size_t i = 0; i < list->cnt; i++)
		text__paragraph(out, "%s: %s", title, texts[i]);
}

static void print_verdict(const struct verdict *verdict, FILE *out)
{
	text__paragraph(out, "verdict: %s: %s", verdict_class__name(verdict->class), verdict->why);
	print_list("evidence", &verdict->evidence, out);
	print_list("next", &verdict->next, out);
	fputc('\n', out);
}

/* ---- where the time of a step goes ---- */

static int print_phases(const struct steps_of *of, FILE *out)
{
	struct table table = {
		.out = out,
		.title = "Where the time of a step goes, in ms of a step on average",
		.rules = RULES_WIDE,
	};

	return steps_tables__phases(of, &of->blame.all, &table);
}

static void print_cpu(const char *title, const struct step_sum *sum, FILE *out)
{
	static const char *const names[] = {"Python", "operators", "other native code", "kernel"};
	double share, error, worst = 0;
	char parts[160] = "";
	size_t used = 0;
	uint64_t cnt = 0;

	for (int class = 0; class < CPU__COUNT; class ++) {
		if (!step_sum__cpu_share(sum, class, &share, &error))
			return;
		used += snprintf(parts + used, sizeof(parts) - used, "%s%.0f %% %s", used ? ", " : "", 100 * share,
				 names[class]);
		worst = fmax(worst, error);
		for (int phase = 0; phase < PHASE__COUNT; phase++)
			cnt += sum->samples[phase][class];
	}
	text__paragraph(out, "%s: %s (+-%.0f %%; of %" PRIu64 " sample%s)", title, parts, 100 * worst, cnt,
			cnt == 1 ? "" : "s");
}

static void print_gpu(const char *title, const struct gpu_step *sum, FILE *out)
{
	char calls[160] = "", busy[96] = "", profiling[64] = "";

	if (sum->known)
		snprintf(calls, sizeof(calls),
			 "%.4g launches, %.4g copies (%.3g MB) a step; %.4g ms of it in these calls, %.4g ms in waits",
			 (double)sum->launches / sum->known, (double)sum->copies / sum->known,
			 sum->copied_bytes / 1e6 / sum->known, sum->api_ns / 1e6 / sum->known,
			 sum->sync_ns / 1e6 / sum->known);
	if (sum->watched_ns)
		snprintf(busy, sizeof(busy), "busy for %.1f %% of the %.3g s that CUPTI watched",
			 100 * gpu_step__busy(sum), sum->watched_ns / 1e9);
	if (sum->profiling_ns)
		snprintf(profiling, sizeof(profiling), "; %.3g s of these steps lost to CUPTI",
			 sum->profiling_ns / 1e9);
	if (*calls || *busy)
		text__paragraph(out, "%s: %s%s%s%s", title, calls, *calls && *busy ? "; " : "", busy, profiling);
}

static void print_below(const struct steps_of *of, FILE *out)
{
	const struct step_track *track = of->track;

	print_cpu("on CPU", &of->blame.all, out);
	if (track->slow_cnt)
		print_cpu("on CPU in slow steps", &of->blame.slow, out);
	print_gpu("GPU", &of->gpu.all, out);
	if (track->slow_cnt)
		print_gpu("GPU in slow steps", &of->gpu.slow, out);
	if (of->blame.all.gc_ns >= SHOWN_SHARE * track->total_ns)
		text__paragraph(out, "gc: %.4g s of collections, %.1f %% of the time, included above",
				of->blame.all.gc_ns / 1e9, 100.0 * of->blame.all.gc_ns / track->total_ns);
	if (!track->thread)
		text__paragraph(
			out,
			"waits: not known, because the recording has no samples of the thread that makes the steps");
	if (!track->has_phases)
		text__paragraph(out, "phases: not known, so all time is in \"other\"");
	text__paragraph(out, "remainder: %.2f %% of the time was counted twice, or lies outside of its step or phase",
			100.0 * track->misfit_ns / track->total_ns);
}

/* ---- slow steps ---- */

static void print_steps_line(struct job *job, const struct steps_of *of, FILE *out)
{
	const struct step_track *track = of->track;
	const struct slow_rule *rule = &track->rule_of_slow;

	text__paragraph(out, "steps: %zu (%s): median %.4g ms, p99 %.4g ms, shortest %.4g ms, longest %.4g ms",
			track->step_cnt, common__step_rule(track->rule), rule->median_ns / 1e6, rule->p99_ns / 1e6,
			rule->min_ns / 1e6, rule->max_ns / 1e6);
	steps_report__print_dropped(job, track, out);
	if (track->lost)
		text__paragraph(out, "lost: %" PRIu64 " step%s, whose boundaries the recording lacks", track->lost,
				track->lost == 1 ? "" : "s");
	if (rule->limit_ns == UINT64_MAX)
		text__paragraph(out, "slow: not determined, because there are fewer than %d steps", SLOW_MIN_CNT);
	else
		text__paragraph(out, "slow: %zu step%s longer than %.4g ms (an ordinary one: %.4g ms)", track->slow_cnt,
				track->slow_cnt == 1 ? "" : "s", rule->limit_ns / 1e6, rule->ordinary_ns / 1e6);
	fputc('\n', out);
}

static int print_groups(struct job *job, const struct steps_of *of, FILE *out)
{
	struct table table = {
		.out = out,
		.title = "Slow steps, by what makes them longer than ordinary steps",
		.gap = "  ",
		.rules = RULES_NONE,
	};
	int err = steps_tables__groups(job, &of->blame, LISTED_SHARE, &table);

	fputc('\n', out);
	return err;
}

static int print_slow(struct job *job, const struct steps_of *of, const struct report_options *options, FILE *out)
{
	size_t limit = report_options__limit(options, DEFAULT_LIMIT), cnt = of->track->slow_cnt;
	struct table table = {.out = out, .gap = "  ", .rules = RULES_NONE};
	int err = steps_tables__slow(job, of, limit, &table);

	if (limit < cnt)
		text__paragraph(out, "%zu more slow step%s (--limit 0: all)", cnt - limit, cnt - limit == 1 ? "" : "s");
	fputc('\n', out);
	return err;
}

/* ---- together ---- */

static int print_ranks(const struct steps_view *view, FILE *out)
{
	struct table table = {.out = out, .unknown = "-", .rules = RULES_NONE};
	int err = steps_tables__ranks(view, &table);

	if (view->straggler.index >= 0)
		text__paragraph(out, "straggler: %s: %s", view->straggler.name, view->straggler.why);
	fputc('\n', out);
	return err;
}

static int print_track_text(const struct steps_view *view, const struct step_track *track, FILE *out)
{
	struct steps_of of;
	int err = steps_of__new(view, track, !view->options->per_rank, &of);

	if (err)
		return err;
	print_verdict(&of.verdict, out);
	print_steps_line(view->job, &of, out);
	err = print_phases(&of, out);
	print_below(&of, out);
	err = err ?: steps_report__print_compile(view->job, &of, out) ?: steps_report__print_outside(view->job, &of, out);
	fputc('\n', out);
	if (track->slow_cnt && !err)
		err = print_groups(view->job, &of, out) ?: print_slow(view->job, &of, view->options, out);
	steps_of__release(&of);
	return err;
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	struct steps_view view;
	int err = steps_view__new(job, options, &view);

	if (err)
		return err;
	fputs("Step Report\n\n", out);
	if (!view.track_cnt)
		err = steps_report__explain_empty(job, out);
	if (view.track_cnt > 1)
		err = print_ranks(&view, out);
	for (size_t i = 0; i < view.track_cnt && !err; i++) {
		const struct step_track *track = &view.tracks[i];
		struct rec_target target = common__target(job, track->pid);

		if (!options->per_rank && track != steps_view__shown(&view))
			continue;
		if (view.track_cnt > 1)
			common__process(&target, out);
		err = print_track_text(&view, track, out);
	}
	err = err ?: steps_resources__print(&view, out);
	steps_view__release(&view);
	return common__end(err, job, out);
}

const struct report_ops report_steps = {
	.name = "steps",
	.sort_keys = steps_report__sort_keys,
	.text = print_text,
	.json = steps_report__json,
};
