// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The steps report as JSON. Steps are written one by one: 360,000 of them as objects would take a
 * gigabyte.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/json.h"
#include "user/recording/dropped_steps.h"
#include "user/report/common.h"
#include "user/report/csv.h"
#include "user/report/io_rows.h"
#include "user/report/steps_report.h"

#define FLAGS JSON_REAL_PRECISION(15)

json_t *steps_report__json_waits(const struct step_sum *sum, int phase)
{
	json_t *waits = json_object();

	for (unsigned int cause = CAUSE_NONE + 1; cause < CAUSE__END; cause++) {
		uint64_t ns = 0;

		for (int p = 0; p < PHASE__COUNT; p++)
			ns += phase < 0 || p == phase ? sum->ns[p][cause] : 0;
		if (ns)
			common__json_set(&waits, sample_cause__name(cause), json_real(ns / 1e9));
	}
	return waits;
}

/*
 * What steps of ns in total asked the GPU for, and how long it worked. A NULL gpu means that the
 * process has none.
 */
static json_t *json_gpu(const struct gpu_step *gpu, uint64_t ns)
{
	bool known = gpu && gpu->known, watched = gpu && gpu->watched_ns;
	json_t *busy;

	if (!known && !watched)
		return json_null();
	/* A single step needs a window over all of it: time outside a window is not idle time. */
	watched &= !ns || gpu_step__is_watched(gpu, ns);
	busy = common__json_real(watched, gpu->busy_ns / 1e9);
	return json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "launches", known ? json_integer(gpu->launches) : json_null(),
		"copies", known ? json_integer(gpu->copies) : json_null(), "copied_bytes",
		known ? json_integer(gpu->copied_bytes) : json_null(), "api_s",
		common__json_real(known, gpu->api_ns / 1e9), "sync_s", common__json_real(known, gpu->sync_ns / 1e9),
		"busy_s", busy, "idle_s", common__json_real(watched, (gpu->watched_ns - gpu->busy_ns) / 1e9));
}

static json_t *json_track_step(const struct step_track *track, const struct step *step, const struct gpu_step *gpu,
			       json_t *resources, const char *cause, uint64_t base_ns)
{
	struct step_sum sum = {0};
	json_t *phases = json_object();
	uint64_t on_cpu_ns = 0;
	int failed = 0;

	step_sum__add(&sum, step);
	for (int phase = 0; phase < PHASE__COUNT; phase++) {
		on_cpu_ns += sum.ns[phase][CAUSE_NONE];
		if (step->phase_ns[phase])
			failed |=
				json_object_set_new(phases, phase__name(phase), json_real(step->phase_ns[phase] / 1e9));
	}
	phases = common__json_unless_failed(phases, failed);
	return json_pack("{s:I, s:f, s:f, s:o, s:o, s:o, s:f, s:o, s:o, s:o}", "index", (json_int_t)step->index,
			 "start_s", (int64_t)(step->start_ns - base_ns) / 1e9, "duration_s", step__ns(step) / 1e9,
			 "phases", phases, "oncpu_s", common__json_real(track->thread, on_cpu_ns / 1e9), "waits",
			 track->thread ? steps_report__json_waits(&sum, -1) : json_null(), "gc_s", step->gc_ns / 1e9,
			 "gpu", json_gpu(gpu, step__ns(step)), "cause", cause ? json_string(cause) : json_null(),
			 "resources", resources);
}

/* slow counts the slow ones of the steps before this one. NULL: no memory. */
static json_t *json_step(struct job *job, const struct steps_of *of, size_t i, size_t *slow)
{
	const struct step_track *track = of->track;
	const char *cause = NULL;

	if (*slow < track->slow_cnt && track->slow[*slow] == i)
		cause = blame_cause__name(of->blame.groups[of->blame.steps[(*slow)++].group].cause);
	return json_track_step(track, &track->steps[i], of->gpu.steps ? &of->gpu.steps[i] : NULL,
			       steps_resources__json_step(of, &track->steps[i]), cause, job__window(job)->start_ns);
}

/* Prints the list of steps. 0 or -ENOMEM. */
static int print_step_list(struct job *job, const struct steps_of *of, FILE *out)
{
	size_t slow = 0;
	int err = 0;

	fputc('[', out);
	for (size_t i = 0; i < of->track->step_cnt && !err; i++) {
		json_t *step = json_step(job, of, i, &slow);

		if (!step)
			return -ENOMEM;
		fputs(i ? ",\n    " : "\n    ", out);
		err = json__print(step, FLAGS, out);
		json_decref(step);
	}
	fputs("]", out);
	return err;
}

static json_t *json_texts(const struct array *list)
{
	char *const *texts = list->items;
	json_t *json = json_array();

	for (size_t i = 0; i < list->cnt; i++)
		common__json_append(&json, json_string(texts[i]));
	return json;
}

json_t *steps_report__json_verdict(const struct verdict *verdict)
{
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "class", verdict_class__name(verdict->class),
			 "why", verdict->why, "share", verdict->share ? json_real(verdict->share) : json_null(),
			 "cause", verdict->cause ? json_string(blame_cause__name(verdict->cause)) : json_null(),
			 "phase", verdict->phase < 0 ? json_null() : json_string(phase__name(verdict->phase)), "place",
			 common__json_text(verdict->place), "evidence", json_texts(&verdict->evidence), "next",
			 json_texts(&verdict->next));
}

static json_t *json_cpu(const struct step_sum *sum)
{
	static const char *const names[] = {"python", "op", "native", "kernel"};
	json_t *json = json_object();
	double share, error;

	for (int class = 0; class < CPU__COUNT; class ++)
		if (step_sum__cpu_share(sum, class, &share, &error))
			common__json_set(&json, names[class], json_pack("{s:f, s:f}", "share", share, "error", error));
	return json;
}

/* Returns where the time of all steps, or of the slow ones, goes. */
static json_t *json_sum(const struct steps_of *of, const struct step_sum *sum, const struct gpu_step *gpu)
{
	json_t *phases = json_array();
	struct table table = {.list = phases};
	int failed = steps_tables__phases(of, sum, &table);

	return json_pack("{s:I, s:f, s:f, s:o, s:o, s:o}", "steps", (json_int_t)sum->step_cnt, "total_s",
			 sum->total_ns / 1e9, "gc_s", sum->gc_ns / 1e9, "phases",
			 common__json_unless_failed(phases, failed), "cpu", json_cpu(sum), "gpu", json_gpu(gpu, 0));
}

json_t *steps_report__json_hotspots(struct job *job, const struct hotspot *hotspots, size_t cnt)
{
	const struct stacks *stacks = job__stacks(job);
	json_t *list = json_array();

	for (size_t i = 0; i < cnt && hotspots[i].ns; i++) {
		struct code code = stacks__code(stacks, hotspots[i].code);

		char *path = hotspots[i].file ? io_rows__path_of_name(job, hotspots[i].file) : NULL;

		common__json_append(&list,
				    json_pack("{s:o, s:I, s:o, s:f, s:o}", "file",
					      common__json_text(code.file ? job__name_or_lost(job, code.file) : NULL),
					      "line", (json_int_t)(hotspots[i].line ?: code.first_line), "name",
					      common__json_text(code.name ? job__name_or_lost(job, code.name) : NULL),
					      "seconds", hotspots[i].ns / 1e9, "path", common__json_text(path)));
		free(path);
	}
	return list;
}

static json_t *json_groups(struct job *job, const struct blame *blame)
{
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_unless_failed(list, steps_tables__groups(job, blame, 0, &table));
}

static json_t *json_slow(const struct step_track *track)
{
	json_t *list = json_array();

	for (size_t i = 0; i < track->slow_cnt; i++)
		common__json_append(&list, json_integer(track->steps[track->slow[i]].index));
	return list;
}

static json_t *json_outside(struct job *job, const struct outside_part *part)
{
	return json_pack("{s:f, s:f, s:o}", "seconds", part->ns / 1e9, "compile_s", part->compile_ns / 1e9, "where",
			 steps_report__json_hotspots(job, &part->hotspot, 1));
}

/* NULL: no memory. */
static json_t *json_dropped(const struct rec_dropped_steps *dropped)
{
	json_t *phases = json_object();

	for (int p = 0; p < PHASE__COUNT; p++)
		common__json_set(&phases, phase__name(p), json_real(dropped->phase_ns[p] / 1e9));
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "steps", (json_int_t)dropped->steps, "seconds",
			 dropped->total_ns / 1e9, "median_s", dropped_steps__percentile_ns(dropped, 50) / 1e9, "p99_s",
			 dropped_steps__percentile_ns(dropped, 99) / 1e9, "min_s", dropped->min_ns / 1e9, "max_s",
			 dropped->max_ns / 1e9, "phases", phases);
}

/* Sets all keys of a track except its steps. */
static int set_track(struct job *job, const struct steps_of *of, json_t *object)
{
	const struct step_track *track = of->track;
	const struct slow_rule *rule = &track->rule_of_slow;
	const struct rec_dropped_steps *dropped = job__dropped_steps(job, track->pid, track->tid, track->rule);
	json_t *compile = json_pack("{s:f, s:I, s:o}", "seconds", of->blame.compile.ns / 1e9, "steps",
				    (json_int_t)of->blame.compile.step_cnt, "where",
				    steps_report__json_hotspots(job, &of->blame.compile.hotspot, 1));
	json_t *outside = json_pack("{s:o, s:o}", "before", json_outside(job, &of->outside.parts[OUTSIDE_BEFORE]),
				    "after", json_outside(job, &of->outside.parts[OUTSIDE_AFTER]));
	json_t *more = json_pack(
		"{s:f, s:f, s:f, s:o, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "median_s", rule->median_ns / 1e9,
		"p99_s", rule->p99_ns / 1e9, "ordinary_s", rule->ordinary_ns / 1e9, "limit_s",
		common__json_real(rule->limit_ns != UINT64_MAX, rule->limit_ns / 1e9), "lost_steps",
		(json_int_t)track->lost, "remainder_s", track->misfit_ns / 1e9, "slow", json_slow(track), "causes",
		json_groups(job, &of->blame), "all", json_sum(of, &of->blame.all, &of->gpu.all), "of_slow",
		json_sum(of, &of->blame.slow, &of->gpu.slow), "verdict", steps_report__json_verdict(&of->verdict),
		"compile", compile, "outside", outside);

	if (dropped)
		common__json_set(&more, "dropped", json_dropped(dropped));
	return json_object_update_new(object, more);
}

/* Sets the same keys where there are no steps. */
static int set_no_track(json_t *object)
{
	return json_object_update_new(object, json_pack("{s:[], s:n, s:n, s:[], s:{s:s, s:s, s:[], s:[]}}", "steps",
							"median_s", "p99_s", "slow", "verdict", "class",
							verdict_class__name(VERDICT_UNCLEAR), "why",
							"no whole step is in the recording", "evidence", "next"));
}

static json_t *json_straggler(const struct steps_view *view)
{
	if (view->straggler.index < 0)
		return json_null();
	return json_pack("{s:I, s:o, s:s}", "pid", (json_int_t)view->tracks[view->straggler.index].pid, "rank",
			 view->straggler.rank < 0 ? json_null() : json_integer(view->straggler.rank), "why",
			 view->straggler.why);
}

/*
 * Prints an object with the track's keys and then its steps, but leaves the object open. Takes the
 * object over.
 */
static int print_track_json(const struct steps_view *view, const struct step_track *track, bool of_job, json_t *object,
			    FILE *out)
{
	struct steps_of of;
	char *text = NULL;
	int err = object ? steps_of__new(view, track, of_job, &of) : -ENOMEM;

	if (!err) {
		if (!set_track(view->job, &of, object))
			text = json__text(object, FLAGS | JSON_INDENT(2));
		if (text) {
			*strrchr(text, '\n') = 0;
			fprintf(out, "%s,\n  \"steps\": ", text);
		}
		err = text ? print_step_list(view->job, &of, out) : -ENOMEM;
		steps_of__release(&of);
	}
	free(text);
	json_decref(object);
	return err;
}

static json_t *json_track_process(const struct steps_view *view, size_t track)
{
	int rank = view->ranks[track].rank;

	return json_pack("{s:I, s:s, s:o}", "pid", (json_int_t)view->tracks[track].pid, "role", "main", "rank",
			 rank < 0 ? json_null() : json_integer(rank));
}

static int print_track_objects(const struct steps_view *view, FILE *out)
{
	int err = 0;

	fputs(",\n  \"processes\": [", out);
	for (size_t i = 0; i < view->track_cnt && !err; i++) {
		fputs(i ? ",\n" : "\n", out);
		err = print_track_json(view, &view->tracks[i], false, json_track_process(view, i), out);
		fputs("\n}", out);
	}
	fputs("]", out);
	return err;
}

static int print_json(const struct steps_view *view, FILE *out)
{
	json_t *object = common__json(view->job, report_steps.name);
	int err, failed = json_object_set_new(object, "straggler", json_straggler(view)) |
			  json_object_set_new(object, "resources", steps_resources__json(view)) |
			  json_object_set_new(object, "machines", steps_resources__json_machines(view->job));

	if (!view->track_cnt) {
		failed |= set_no_track(object);
		return common__print_json(common__json_unless_failed(object, failed), out);
	}
	err = print_track_json(view, steps_view__shown(view), true, common__json_unless_failed(object, failed), out);
	if (!err && view->options->per_rank)
		err = print_track_objects(view, out);
	fputs("\n}\n", out);
	return err ?: common__flush(out);
}

/* ---- CSV: a row for each step ---- */

/* The heads name all phases and causes, so that the rows of several recordings fit together. */
static int print_step_heads(const struct steps_view *view, struct csv *csv)
{
	const struct gpu_step gpu = {.known = 1};
	struct step_part parts[CAUSE__END];
	struct step step = {.end_ns = 1, .parts = parts, .part_cnt = CAUSE__END};
	json_t *row = view->options->per_rank ? json_pack("{s:n, s:n, s:n}", "pid", "role", "rank") : json_object();
	int failed;

	for (int phase = 0; phase < PHASE__COUNT; phase++)
		step.phase_ns[phase] = 1;
	for (unsigned int cause = 0; cause < CAUSE__END; cause++)
		parts[cause] = (struct step_part){.cause = cause, .ns = 1};
	failed = json_object_update_new(row, json_track_step(&(struct step_track){.thread = 1}, &step, &gpu,
							     steps_resources__json_step_heads(view), NULL, 0));
	return csv__heads(csv, common__json_unless_failed(row, failed));
}

static int print_track_csv(const struct steps_view *view, size_t track, struct csv *csv)
{
	struct steps_of of;
	size_t slow = 0;
	int err = steps_of__new(view, &view->tracks[track], false, &of);

	if (err)
		return err;
	for (size_t i = 0; i < of.track->step_cnt && !err; i++) {
		json_t *row = view->options->per_rank ? json_track_process(view, track) : json_object();
		int failed = json_object_update_new(row, json_step(view->job, &of, i, &slow));

		err = csv__row(csv, common__json_unless_failed(row, failed));
	}
	steps_of__release(&of);
	return err;
}

static int print_csv(const struct steps_view *view, FILE *out)
{
	struct csv csv = {.out = out};
	int err = print_step_heads(view, &csv);

	for (size_t i = 0; i < view->track_cnt && !err; i++)
		if (view->options->per_rank || &view->tracks[i] == steps_view__shown(view))
			err = print_track_csv(view, i, &csv);
	csv__release(&csv);
	return err ?: common__flush(out);
}

int steps_report__json(struct job *job, const struct report_options *options, FILE *out)
{
	struct steps_view view;
	int err = steps_view__new(job, options, &view);

	if (err)
		return err;
	err = (options->csv ? print_csv : print_json)(&view, out);
	steps_view__release(&view);
	return err;
}
