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
#include "user/report/io_rows.h"
#include "user/report/print/csv.h"
#include "user/report/print/shape.h"
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

SHAPE(step_gpu_shape, "step_gpu",
      "launches:I? copies:I? copied_bytes:I? api_s:f? sync_s:f? busy_s:f? idle_s:f? profiling_s:f?");

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
	return SHAPE_PACK(step_gpu_shape, known ? json_integer(gpu->launches) : json_null(),
			  known ? json_integer(gpu->copies) : json_null(),
			  known ? json_integer(gpu->copied_bytes) : json_null(),
			  common__json_real(known, gpu->api_ns / 1e9), common__json_real(known, gpu->sync_ns / 1e9),
			  busy, common__json_real(watched, (gpu->watched_ns - gpu->busy_ns) / 1e9),
			  common__json_real(watched, gpu->profiling_ns / 1e9));
}

SHAPE(step_shape, "step",
      "index:I start_s:f duration_s:f phases:{f} oncpu_s:f? waits:{f}? gc_s:f gpu:step_gpu? cause:s? "
      "resources:step_resources?");

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
	return SHAPE_PACK(step_shape, json_integer(step->index), json_real((int64_t)(step->start_ns - base_ns) / 1e9),
			  json_real(step__ns(step) / 1e9), phases, common__json_real(track->thread, on_cpu_ns / 1e9),
			  track->thread ? steps_report__json_waits(&sum, -1) : json_null(),
			  json_real(step->gc_ns / 1e9), json_gpu(gpu, step__ns(step)),
			  cause ? json_string(cause) : json_null(), resources);
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

SHAPE(verdict_shape, "verdict", "class:s why:s share:f? cause:s? phase:s? place:s? evidence:[s] next:[s]");

json_t *steps_report__json_verdict(const struct verdict *verdict)
{
	return SHAPE_PACK(verdict_shape, json_string(verdict_class__name(verdict->class)), json_string(verdict->why),
			  verdict->share ? json_real(verdict->share) : json_null(),
			  verdict->cause ? json_string(blame_cause__name(verdict->cause)) : json_null(),
			  verdict->phase < 0 ? json_null() : json_string(phase__name(verdict->phase)),
			  common__json_text(verdict->place), json_texts(&verdict->evidence),
			  json_texts(&verdict->next));
}

SHAPE(cpu_share_shape, "cpu_share", "share:f error:f");

static json_t *json_cpu(const struct step_sum *sum)
{
	static const char *const names[] = {"python", "op", "native", "kernel"};
	json_t *json = json_object();
	double share, error;

	for (int class = 0; class < CPU__COUNT; class ++)
		if (step_sum__cpu_share(sum, class, &share, &error))
			common__json_set(&json, names[class],
					 SHAPE_PACK(cpu_share_shape, json_real(share), json_real(error)));
	return json;
}

SHAPE(step_sum_shape, "step_sum", "steps:I total_s:f gc_s:f phases:[phase] cpu:{cpu_share} gpu:step_gpu?");

/* Returns where the time of all steps, or of the slow ones, goes. */
static json_t *json_sum(const struct steps_of *of, const struct step_sum *sum, const struct gpu_step *gpu)
{
	json_t *phases = json_array();
	struct table table = {.list = phases};
	int failed = steps_tables__phases(of, sum, &table);

	return SHAPE_PACK(step_sum_shape, json_integer(sum->step_cnt), json_real(sum->total_ns / 1e9),
			  json_real(sum->gc_ns / 1e9), common__json_unless_failed(phases, failed), json_cpu(sum),
			  json_gpu(gpu, 0));
}

SHAPE(hotspot_shape, "hotspot", "file:s? line:I name:s? seconds:f path:s?");

json_t *steps_report__json_hotspots(struct job *job, const struct hotspot *hotspots, size_t cnt)
{
	const struct stacks *stacks = job__stacks(job);
	json_t *list = json_array();

	for (size_t i = 0; i < cnt && hotspots[i].ns; i++) {
		struct code code = stacks__code(stacks, hotspots[i].code);

		char *path = hotspots[i].file ? io_rows__path_of_name(job, hotspots[i].file) : NULL;

		common__json_append(&list,
				    SHAPE_PACK(hotspot_shape,
					       common__json_text(code.file ? job__name_or_lost(job, code.file) : NULL),
					       json_integer((hotspots[i].line ?: code.first_line)),
					       common__json_text(code.name ? job__name_or_lost(job, code.name) : NULL),
					       json_real(hotspots[i].ns / 1e9), common__json_text(path)));
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

SHAPE(outside_part_shape, "outside_part", "seconds:f compile_s:f where:[hotspot]");

static json_t *json_outside(struct job *job, const struct outside_part *part)
{
	return SHAPE_PACK(outside_part_shape, json_real(part->ns / 1e9), json_real(part->compile_ns / 1e9),
			  steps_report__json_hotspots(job, &part->hotspot, 1));
}

SHAPE(dropped_shape, "dropped_steps", "steps:I seconds:f median_s:f p99_s:f min_s:f max_s:f phases:{f}");

/* NULL: no memory. */
static json_t *json_dropped(const struct rec_dropped_steps *dropped)
{
	json_t *phases = json_object();

	for (int p = 0; p < PHASE__COUNT; p++)
		common__json_set(&phases, phase__name(p), json_real(dropped->phase_ns[p] / 1e9));
	return SHAPE_PACK(dropped_shape, json_integer(dropped->steps), json_real(dropped->total_ns / 1e9),
			  json_real(dropped_steps__percentile_ns(dropped, 50) / 1e9),
			  json_real(dropped_steps__percentile_ns(dropped, 99) / 1e9), json_real(dropped->min_ns / 1e9),
			  json_real(dropped->max_ns / 1e9), phases);
}

SHAPE(compile_shape, "compile", "seconds:f steps:I where:[hotspot]");

SHAPE(outside_shape, "outside", "before:outside_part after:outside_part");

SHAPE(track_shape, "track",
      "median_s:f p99_s:f ordinary_s:f limit_s:f? lost_steps:I remainder_s:f slow:[I] causes:[cause] all:step_sum "
      "of_slow:step_sum verdict:verdict compile:compile outside:outside dropped?:dropped_steps");

/* Sets all keys of a track except its steps. */
static int set_track(struct job *job, const struct steps_of *of, json_t *object)
{
	const struct step_track *track = of->track;
	const struct slow_rule *rule = &track->rule_of_slow;
	const struct rec_dropped_steps *dropped = job__dropped_steps(job, track->pid, track->tid, track->rule);
	json_t *compile = SHAPE_PACK(compile_shape, json_real(of->blame.compile.ns / 1e9),
				     json_integer(of->blame.compile.step_cnt),
				     steps_report__json_hotspots(job, &of->blame.compile.hotspot, 1));
	json_t *outside = SHAPE_PACK(outside_shape, json_outside(job, &of->outside.parts[OUTSIDE_BEFORE]),
				     json_outside(job, &of->outside.parts[OUTSIDE_AFTER]));
	json_t *more = SHAPE_PACK(track_shape, json_real(rule->median_ns / 1e9), json_real(rule->p99_ns / 1e9),
				  json_real(rule->ordinary_ns / 1e9),
				  common__json_real(rule->limit_ns != UINT64_MAX, rule->limit_ns / 1e9),
				  json_integer(track->lost), json_real(track->misfit_ns / 1e9), json_slow(track),
				  json_groups(job, &of->blame), json_sum(of, &of->blame.all, &of->gpu.all),
				  json_sum(of, &of->blame.slow, &of->gpu.slow),
				  steps_report__json_verdict(&of->verdict), compile, outside);

	if (dropped)
		common__json_set(&more, "dropped", json_dropped(dropped));
	return json_object_update_new(object, more);
}

SHAPE(no_verdict_shape, "no_verdict", "class:s why:s evidence:[s] next:[s]");
SHAPE(no_track_shape, "no_track", "steps:[step] median_s:f? p99_s:f? slow:[I] verdict:no_verdict");

/* Sets the same keys where there are no steps. */
static int set_no_track(json_t *object)
{
	json_t *verdict = SHAPE_PACK(no_verdict_shape, json_string(verdict_class__name(VERDICT_UNCLEAR)),
				     json_string("no whole step is in the recording"), json_array(), json_array());

	return json_object_update_new(
		object, SHAPE_PACK(no_track_shape, json_array(), json_null(), json_null(), json_array(), verdict));
}

SHAPE(straggler_shape, "straggler", "pid:I rank:I? why:s");

static json_t *json_straggler(const struct steps_view *view)
{
	if (view->straggler.index < 0)
		return json_null();
	return SHAPE_PACK(straggler_shape, json_integer(view->tracks[view->straggler.index].pid),
			  view->straggler.rank < 0 ? json_null() : json_integer(view->straggler.rank),
			  json_string(view->straggler.why));
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
	const struct rec_target target = {
		.pid = view->tracks[track].pid, .role = ROLE_MAIN, .rank = view->ranks[track].rank};

	return common__json_process(&target, NULL, NULL);
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

SHAPE(steps_process_shape, "steps_of_process", "@process @track steps:[step]");
SHAPE(of_all_shape, "steps_of_all", "straggler:straggler? resources:[resources] machines:[machine]");
SHAPE_REPORT(steps_shape, "steps", "steps", "@report @steps_of_all @track steps:[step] processes?:[steps_of_process]");
SHAPE_REPORT(no_steps_shape, "no_steps", "steps", "@report @steps_of_all @no_track");

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
