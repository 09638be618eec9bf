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

#include "user/analysis/profile.h"
#include "user/report/common.h"
#include "user/report/io_rows.h"
#include "user/report/rows.h"
#include "user/report/steps_report.h"
#include "user/report/text.h"

#define DEFAULT_LIMIT 10
#define WAIT_COLUMNS  4
#define COLUMN        11    /* width in bytes */
#define SHOWN_SHARE   0.001 /* of the time: a smaller share has no column and no mention */
#define LISTED_SHARE  0.005

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

static uint64_t sum_of(const struct step_sum *sum, int phase, int cause)
{
	uint64_t ns = 0;

	for (int p = 0; p < PHASE__COUNT; p++)
		for (int c = 0; c < CAUSE__END; c++)
			if ((phase < 0 || p == phase) && (cause < 0 || c == cause))
				ns += sum->ns[p][c];
	return ns;
}

/* Chooses the causes that get columns, those with most time first. Returns their number. */
static int choose_columns(const struct step_sum *sum, unsigned int *columns)
{
	int cnt = 0;

	for (unsigned int cause = CAUSE_NONE + 1; cause < CAUSE__END; cause++) {
		uint64_t ns = sum_of(sum, -1, cause);
		unsigned int at = cnt;

		if (ns < SHOWN_SHARE * sum->total_ns)
			continue;
		for (; at > 0 && sum_of(sum, -1, columns[at - 1]) < ns; at--)
			if (at < WAIT_COLUMNS)
				columns[at] = columns[at - 1];
		if (at < WAIT_COLUMNS)
			columns[at] = cause;
		if (cnt < WAIT_COLUMNS)
			cnt++;
	}
	return cnt;
}

#define CAUSE_ANY   -1 /* including no cause */
#define CAUSE_OTHER -2 /* causes without a column */
#define COLUMNS_MAX (4 + WAIT_COLUMNS)

/* A column of the table of phases: mean ms per step. */
struct step_column {
	const char *head;
	const struct step_sum *sum;
	int cause;
};

static size_t make_columns(const struct steps_of *of, struct step_column *columns)
{
	const struct step_sum *all = &of->blame.all;
	unsigned int causes[WAIT_COLUMNS];
	int cause_cnt = choose_columns(all, causes);
	uint64_t shown = sum_of(all, -1, CAUSE_NONE);
	size_t cnt = 0;

	columns[cnt++] = (struct step_column){"ms/step", all, CAUSE_ANY};
	if (of->track->slow_cnt)
		columns[cnt++] = (struct step_column){"ms/slow", &of->blame.slow, CAUSE_ANY};
	if (of->track->thread)
		columns[cnt++] = (struct step_column){"on CPU", all, CAUSE_NONE};
	for (int i = 0; i < cause_cnt; i++) {
		columns[cnt++] = (struct step_column){sample_cause__name(causes[i]), all, causes[i]};
		shown += sum_of(all, -1, causes[i]);
	}
	if (shown < all->total_ns)
		columns[cnt++] = (struct step_column){"others", all, CAUSE_OTHER};
	return cnt;
}

static void print_ms(FILE *out, double ns, size_t cnt)
{
	if (ns && cnt)
		fprintf(out, "%*.3f", COLUMN, ns / cnt / 1e6);
	else
		fprintf(out, "%*s", COLUMN, "-");
}

static void print_phase(const struct step_column *columns, size_t cnt, const char *name, int phase, FILE *out)
{
	const struct step_sum *all = columns[0].sum;
	uint64_t ns = sum_of(all, phase, CAUSE_ANY), others = ns - sum_of(all, phase, CAUSE_NONE);

	fprintf(out, "%-11s%*.4g%7.1f %%", name, COLUMN, ns / 1e9, 100.0 * ns / all->total_ns);
	for (size_t i = 0; i < cnt; i++) {
		uint64_t part =
			columns[i].cause == CAUSE_OTHER ? others : sum_of(columns[i].sum, phase, columns[i].cause);

		if (columns[i].cause > CAUSE_NONE)
			others -= part;
		print_ms(out, part, columns[i].sum->step_cnt);
	}
	fputc('\n', out);
}

static void print_steps_dashes(size_t cnt, FILE *out)
{
	for (size_t i = 0; i < 11 + COLUMN + 9 + cnt * COLUMN; i++)
		fputc('-', out);
	fputc('\n', out);
}

static void print_steps_table(const struct steps_of *of, FILE *out)
{
	struct step_column columns[COLUMNS_MAX];
	size_t cnt = make_columns(of, columns);

	fputs("Where the time of a step goes, in ms of a step on average\n", out);
	print_steps_dashes(cnt, out);
	fprintf(out, "%-11s%*s%9s", "phase", COLUMN, "total s", "share");
	for (size_t i = 0; i < cnt; i++)
		fprintf(out, "%*s", COLUMN, columns[i].head);
	fputc('\n', out);
	print_steps_dashes(cnt, out);
	for (int phase = 0; phase < PHASE__COUNT; phase++) {
		int at = (phase + 1) % PHASE__COUNT; /* PHASE_OTHER comes last */

		if (sum_of(&of->blame.all, at, CAUSE_ANY))
			print_phase(columns, cnt, phase__name(at), at, out);
	}
	print_steps_dashes(cnt, out);
	print_phase(columns, cnt, "all", -1, out);
	print_steps_dashes(cnt, out);
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
	char calls[160] = "", busy[96] = "";

	if (sum->known)
		snprintf(calls, sizeof(calls),
			 "%.4g launches, %.4g copies (%.3g MB) a step; %.4g ms of it in these calls, %.4g ms in waits",
			 (double)sum->launches / sum->known, (double)sum->copies / sum->known,
			 sum->copied_bytes / 1e6 / sum->known, sum->api_ns / 1e6 / sum->known,
			 sum->sync_ns / 1e6 / sum->known);
	if (sum->watched_ns)
		snprintf(busy, sizeof(busy), "busy for %.1f %% of the %.3g s that CUPTI watched",
			 100 * gpu_step__busy(sum), sum->watched_ns / 1e9);
	if (*calls || *busy)
		text__paragraph(out, "%s: %s%s%s", title, calls, *calls && *busy ? "; " : "", busy);
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

static void print_steps_line(const struct steps_of *of, FILE *out)
{
	const struct step_track *track = of->track;
	const struct slow_rule *rule = &track->rule_of_slow;

	text__paragraph(out, "steps: %zu (%s): median %.4g ms, p99 %.4g ms, shortest %.4g ms, longest %.4g ms",
			track->step_cnt, common__step_rule(track->rule), rule->median_ns / 1e6, rule->p99_ns / 1e6,
			rule->min_ns / 1e6, rule->max_ns / 1e6);
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

/* "gc generation 2", "data_wait in data". */
static void cause_text(const struct blame_group *group, char text[64])
{
	if (group->cause == BLAME_GC)
		snprintf(text, 64, "gc generation %u", group->gc_generation);
	else if ((group->cause == BLAME_CHECKPOINT || group->cause == BLAME_VALIDATION) && group->wait)
		snprintf(text, 64, "%s (%s)", blame_cause__name(group->cause), blame_cause__name(group->wait));
	else if (group->phase < 0 || group->cause == BLAME_CHECKPOINT || group->cause == BLAME_VALIDATION)
		snprintf(text, 64, "%s", blame_cause__name(group->cause));
	else
		snprintf(text, 64, "%s in %s", blame_cause__name(group->cause), phase__name(group->phase));
}

/* Ends a line. */
static void print_hotspot(struct job *job, const struct hotspot *hotspot, FILE *out)
{
	char *text = hotspot->ns ? hotspot__text(job, hotspot) : NULL;
	char *path = hotspot->file ? io_rows__path_of_name(job, hotspot->file) : NULL;

	text__line(out, "%s%s%s", text ?: "", path ? ": " : "", path ?: "");
	free(text);
	free(path);
}

/* Groups that cost little share one line. */
static int print_groups(struct job *job, const struct steps_of *of, FILE *out)
{
	const struct blame *blame = &of->blame;
	uint32_t step_cnt = 0;
	uint64_t over_ns = 0;

	fprintf(out, "Slow steps, by what makes them longer than ordinary steps\n%-28s%8s%10s%9s  %-22s%s\n",
		"because of", "steps", "lost s", "share", "rhythm", "where");
	for (size_t i = 0; i < blame->group_cnt; i++) {
		const struct blame_group *group = &blame->groups[i];
		char *rhythm, cause[64];

		if (i && group->over_ns < LISTED_SHARE * blame->all.total_ns) {
			step_cnt += group->step_cnt;
			over_ns += group->over_ns;
			continue;
		}
		rhythm = rhythm__text(&group->rhythm);
		if (!rhythm)
			return -ENOMEM;
		cause_text(group, cause);
		fprintf(out, "%-28s%8u%10.4g%7.1f %%  %-22s", cause, group->step_cnt, group->over_ns / 1e9,
			100.0 * group->over_ns / blame->all.total_ns, *rhythm ? rhythm : "-");
		free(rhythm);
		print_hotspot(job, &group->hotspots[0], out);
	}
	if (step_cnt)
		fprintf(out, "%-28s%8u%10.4g%7.1f %%\n", "others", step_cnt, over_ns / 1e9,
			100.0 * over_ns / blame->all.total_ns);
	fputc('\n', out);
	return 0;
}

static void print_slow(struct job *job, const struct steps_of *of, const struct report_options *options, FILE *out)
{
	const struct step_track *track = of->track;
	size_t limit = report_options__limit(options, DEFAULT_LIMIT);
	uint64_t start_ns = job__window(job)->start_ns;

	fprintf(out, "%9s%11s%13s%8s  %-28s%10s  %s\n", "step", "at s", "ms", "times", "because of", "ms of it",
		"where");
	for (size_t i = 0; i < track->slow_cnt && i < limit; i++) {
		const struct blame_step *blamed = &of->blame.steps[of->order[i]];
		const struct step *step = &track->steps[blamed->step];
		char cause[64];

		cause_text(&of->blame.groups[blamed->group], cause);
		fprintf(out, "%9" PRIu64 "%11.3f%13.3f%8.1f  %-28s%10.3f  ", step->index,
			(int64_t)(step->start_ns - start_ns) / 1e9, step__ns(step) / 1e6,
			(double)step__ns(step) / track->rule_of_slow.ordinary_ns, cause, blamed->cause_ns / 1e6);
		print_hotspot(job, &blamed->hotspot, out);
	}
	if (limit < track->slow_cnt)
		text__paragraph(out, "%zu more slow step%s (--limit 0: all)", track->slow_cnt - limit,
				track->slow_cnt - limit == 1 ? "" : "s");
	fputc('\n', out);
}

/* ---- together ---- */

static void print_ranks(const struct steps_view *view, FILE *out)
{
	fprintf(out, "%9s%6s%9s%12s%12s%12s%8s\n", "pid", "rank", "steps", "median ms", "on CPU", "collectives",
		"slow");
	for (size_t i = 0; i < view->track_cnt; i++) {
		const struct rank *rank = &view->ranks[i];
		char number[16] = "-";

		if (rank->rank >= 0)
			snprintf(number, sizeof(number), "%d", rank->rank);
		fprintf(out, "%9u%6s%9zu%12.3f", rank->track->pid, number, rank->track->step_cnt,
			rank->track->rule_of_slow.median_ns / 1e6);
		print_ms(out, sum_of(&rank->sum, -1, CAUSE_NONE), rank->sum.step_cnt);
		print_ms(out, rank->comm_ns, rank->sum.step_cnt);
		fprintf(out, "%8zu\n", rank->track->slow_cnt);
	}
	if (view->straggler.index >= 0)
		text__paragraph(out, "straggler: rank %d: %s", view->straggler.rank, view->straggler.why);
	fputc('\n', out);
}

static int print_track_text(const struct steps_view *view, const struct step_track *track, FILE *out)
{
	struct steps_of of;
	int err = steps_of__new(view, track, !view->options->per_rank, &of);

	if (err)
		return err;
	print_verdict(&of.verdict, out);
	print_steps_line(&of, out);
	print_steps_table(&of, out);
	print_below(&of, out);
	err = steps_report__print_compile(view->job, &of, out) ?: steps_report__print_outside(view->job, &of, out);
	fputc('\n', out);
	if (track->slow_cnt && !err)
		err = print_groups(view->job, &of, out);
	if (track->slow_cnt && !err)
		print_slow(view->job, &of, view->options, out);
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
		print_ranks(&view, out);
	for (size_t i = 0; i < view.track_cnt && !err; i++) {
		const struct step_track *track = &view.tracks[i];
		struct rec_target target = common__target(job, track->pid);

		if (!options->per_rank && track != steps_view__shown(&view))
			continue;
		if (view.track_cnt > 1)
			common__process(&target, out);
		err = print_track_text(&view, track, out);
	}
	steps_view__release(&view);
	return common__end(err, job, out);
}

const struct report_ops report_steps = {
	.name = "steps",
	.sort_keys = steps_report__sort_keys,
	.text = print_text,
	.json = steps_report__json,
};
