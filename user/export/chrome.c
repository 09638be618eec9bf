// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Chrome trace as Kineto writes it (libkineto/src/output_json.cpp,
 * torch/csrc/autograd/profiler_kineto.cpp; torch 2.15), for Perfetto, chrome://tracing and Holistic
 * Trace Analysis. Events are written one per line, as they come; the text of a name or group is
 * made only once. Unlike Kineto, an operator has no strides and no values of scalars.
 */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "user/export/export.h"
#include "user/export/ranks.h"
#include "user/lib/json.h"
#include "user/lib/words.h"
#include "user/report/common.h"

/*
 * Kineto counts from the last multiple of this, so that microseconds with three decimals are exact
 * in a double, and traces of several ranks share a base.
 */
#define BASE_UNIT_NS (7889238 * 1000000000ull)

/*
 * A second track of a thread gets a thread id of its own, above all ids of real threads
 * (PID_MAX_LIMIT).
 */
#define LANE_TID       (1u << 22)

#define GPU_SORT_INDEX 5000000     /* as in Kineto */
#define GPU_PID        0x80000000u /* first GPU id of the second process with GPUs; 256 ids per process */

/* A CUDA call. */
struct chrome_call {
	uint64_t external; /* External id of the enclosing operator; 0: none */
	bool asked;        /* it caused work on the GPU */
};

struct chrome {
	FILE *out;
	const struct gpu *gpu;
	const struct gpu_act *activities;
	size_t activity_cnt;
	struct chrome_call *calls; /* by index in gpu__activities */
	uint64_t open
		[TIMELINE_DEPTH_MAX]; /* by depth on this track: the External id of the innermost operator; 0: none */
	uint32_t gpu_pid;             /* id of the current process's GPU 0 */
	uint32_t gpu_processes;
	const struct timeline_name *names;
	char **name_json;  /* by index in timeline__names */
	char **group_json; /* by index in timeline__groups: arguments, each after a comma */
	size_t name_cnt, group_cnt;
	uint64_t first_ns; /* start of the first event */
	uint64_t base_ns;  /* of the trace, on the real-time clock */
	uint64_t first_ts; /* of the first event, relative to base_ns */
	uint64_t event_cnt;
	const char *comma;
	bool kineto; /* nothing that torch.profiler does not write; steps are those of the reports */
};

/* The arguments of operators in a Chrome trace: shapes, source lines, modules. */

/* By c10::ScalarType: the result of scalarTypeToTypeMeta(type).name(). */
static const char *const type_names[] = {
	"unsigned char",
	"signed char",
	"short int",
	"int",
	"long int",
	"c10::Half",
	"float",
	"double",
	"c10::complex<c10::Half>",
	"c10::complex<float>",
	"c10::complex<double>",
	"bool",
	"c10::qint8",
	"c10::quint8",
	"c10::qint32",
	"c10::BFloat16",
	"c10::quint4x2",
	"c10::quint2x4",
	"c10::bits1x8",
	"c10::bits2x4",
	"c10::bits4x2",
	"c10::bits8",
	"c10::bits16",
	"c10::Float8_e5m2",
	"c10::Float8_e4m3fn",
	"c10::Float8_e5m2fnuz",
	"c10::Float8_e4m3fnuz",
	"short unsigned int",
	"unsigned int",
	"long unsigned int",
	[44] = "c10::Float8_e8m0fnu",
	"c10::Float4_e2m1fn_x2",
};

/* ---- arguments of operators ---- */

static const char *type_name(const struct word_arg *arg)
{
	switch (arg->tag) {
	case OP_WORD_TENSOR:
		if (arg->dtype < sizeof(type_names) / sizeof(*type_names) && type_names[arg->dtype])
			return type_names[arg->dtype];
		return "";
	case OP_WORD_TENSOR_LIST:
		return "TensorList";
	case OP_WORD_INTS:
		return "ScalarList";
	case OP_WORD_INT:
		return "Scalar";
	default:
		return "";
	}
}

static void write_shape(FILE *out, const struct word_arg *arg)
{
	size_t at = 0;

	fputc('[', out);
	for (uint32_t i = 0; arg->tag == OP_WORD_TENSOR && i < arg->cnt; i++)
		fprintf(out, "%s%" PRId64, i ? ", " : "", (int64_t)arg->values[i]);
	for (uint32_t i = 0; arg->tag == OP_WORD_TENSOR_LIST && i < arg->cnt; i++) {
		struct word_arg tensor;

		/*
		 * words__check has checked the list with its group. In a list that was cut off,
		 * OP_WORD_CUT is the last word.
		 */
		if (!words__next(arg->values, SIZE_MAX, &at, &tensor) || tensor.tag == OP_WORD_CUT)
			break;
		fputs(i ? ", " : "", out);
		write_shape(out, &tensor);
	}
	fputc(']', out);
}

static void write_shapes(FILE *out, const struct op_group *group)
{
	struct word_arg arg;
	size_t at = 0;

	fputs(", \"Input type\": [", out);
	for (const char *comma = ""; words__next(group->words, group->word_cnt, &at, &arg); comma = ", ")
		if (arg.tag != OP_WORD_CUT)
			fprintf(out, "%s\"%s\"", comma, type_name(&arg));
	at = 0;
	fputs("], \"Input Dims\": [", out);
	for (const char *comma = ""; words__next(group->words, group->word_cnt, &at, &arg); comma = ", ") {
		if (arg.tag == OP_WORD_CUT)
			continue;
		fputs(comma, out);
		write_shape(out, &arg);
	}
	fputc(']', out);
}

/* text is NULL where there was no memory for it. */
static int write_text_member(FILE *out, const char *key, const char *text)
{
	char *json = text ? export__json_text(text) : NULL;

	if (json)
		fprintf(out, ", \"%s\": %s", key, json);
	free(json);
	return json ? 0 : -ENOMEM;
}

static int write_origin(FILE *out, struct job *job, const struct op_group *group)
{
	int err = 0;

	if (group->source) {
		char *source = job__op_source(job, group);

		err = write_text_member(out, "Call stack", source);
		free(source);
	}
	if (group->module && !err)
		err = write_text_member(out, "Module Hierarchy", job__name_or_lost(job, group->module));
	return err;
}

/* The arguments of a group of operators, each after a comma; malloc'ed; NULL: no memory. */
static char *chrome__group_json(struct job *job, uint64_t id)
{
	struct op_group group;
	char *json = NULL;
	size_t bytes;
	FILE *out = open_memstream(&json, &bytes);
	int err = 0;

	if (!out)
		return NULL;
	if (job__op_group(job, id, &group)) {
		if (group.word_cnt)
			write_shapes(out, &group);
		err = write_origin(out, job, &group);
	}
	if (!fclose(out) && !err)
		return json;
	free(json);
	return NULL;
}

/*
 * TensorBoard's plugin takes each annotation with the name of a step for a step, and reads nothing
 * if what follows is no number. A job that profiles itself has such labels.
 */
static char *annotation_text(const struct timeline_name *name, const char *text)
{
	char *prefixed, *json;

	if (name->kind == SPAN_STEP || strncmp(text, EXPORT_STEP_PREFIX, strlen(EXPORT_STEP_PREFIX)))
		return export__json_text(text);
	if (asprintf(&prefixed, "label %s", text) < 0)
		return NULL;
	json = export__json_text(prefixed);
	free(prefixed);
	return json;
}

static int make_chrome_texts(struct chrome *c, struct job *job, const struct timeline *timeline)
{
	const uint64_t *groups = timeline__groups(timeline, &c->group_cnt);

	c->names = timeline__names(timeline, &c->name_cnt);
	c->name_json = export__names(job, timeline);
	c->group_json = calloc(c->group_cnt, sizeof(*c->group_json));
	if (!c->name_json || !c->group_json)
		return -ENOMEM;
	for (size_t i = 0; i < c->name_cnt; i++) {
		char *json =
			c->kineto ? annotation_text(&c->names[i], c->name_json[i]) : export__json_text(c->name_json[i]);

		free(c->name_json[i]);
		c->name_json[i] = json;
		if (!json)
			return -ENOMEM;
	}
	for (size_t i = 0; i < c->group_cnt; i++) {
		c->group_json[i] = chrome__group_json(job, groups[i]);
		if (!c->group_json[i])
			return -ENOMEM;
	}
	return 0;
}

/* ---- the trace ---- */

static void chrome__write_us(FILE *out, const char *key, uint64_t ns)
{
	fprintf(out, ", \"%s\": %" PRIu64 ".%03u", key, ns / 1000, (unsigned int)(ns % 1000));
}

/* Begins an event, which the caller ends with "}". category: NULL: none. */
static void chrome__write_event(struct chrome *c, const char *phase, const char *category, const char *name_json,
				uint32_t pid, uint32_t tid, uint64_t start_ns)
{
	fprintf(c->out, "%s\n{\"ph\": \"%s\", ", c->comma, phase);
	if (category)
		fprintf(c->out, "\"cat\": \"%s\", ", category);
	fprintf(c->out, "\"name\": %s, \"pid\": %u, \"tid\": %u", name_json, pid, tid);
	chrome__write_us(c->out, "ts", start_ns - c->first_ns + c->first_ts);
	c->comma = ",";
}

/* 0 or -ENOMEM. */
static int chrome__write_metadata(struct chrome *c, const char *name_json, uint32_t pid, uint32_t tid, const char *key,
				  const char *value)
{
	char *json = export__json_text(value);

	if (!json)
		return -ENOMEM;
	chrome__write_event(c, "M", NULL, name_json, pid, tid, c->first_ns);
	fprintf(c->out, ", \"args\": {\"%s\": %s}}", key, json);
	free(json);
	return 0;
}

static void chrome__write_sort_index(struct chrome *c, const char *name_json, uint32_t pid, uint32_t tid,
				     uint64_t index)
{
	chrome__write_event(c, "M", NULL, name_json, pid, tid, c->first_ns);
	fprintf(c->out, ", \"args\": {\"sort_index\": %" PRIu64 "}}", index);
}

/*
 * In Kineto, a GPU's number is its process id. Where several processes have GPUs, only the first
 * process can keep that.
 */
static uint32_t track_pid(const struct chrome *c, const struct timeline_track *track)
{
	return track->gpu ? c->gpu_pid + track->gpu - 1 : track->pid;
}

static int write_process_names(struct chrome *c, const struct job *job, const struct timeline_track *track)
{
	struct rec_target target = common__target(job, track->pid);
	uint32_t pid = track_pid(c, track);
	char label[64] = "CPU";
	int err = chrome__write_metadata(c, "\"process_name\"", pid, 0, "name",
					 *target.command ? target.command : "(unknown)");

	if (track->gpu && c->gpu_pid)
		snprintf(label, sizeof(label), "GPU %u of process %u", track->gpu - 1, REC_PID(track->pid));
	else if (track->gpu)
		snprintf(label, sizeof(label), "GPU %u", track->gpu - 1);
	if (!err)
		err = chrome__write_metadata(c, "\"process_labels\"", pid, 0, "labels", label);
	chrome__write_sort_index(c, "\"process_sort_index\"", pid, 0,
				 track->gpu ? GPU_SORT_INDEX + (uint64_t)pid : pid);
	return err;
}

static uint32_t track_tid(const struct timeline_track *track)
{
	return track->tid + track->lane * LANE_TID;
}

static int write_thread_name(struct chrome *c, const struct timeline_track *track)
{
	char *name = export__track_name(track);
	uint32_t pid = track_pid(c, track);
	int err = name ? chrome__write_metadata(c, "\"thread_name\"", pid, track_tid(track), "name", name) : -ENOMEM;

	/* Puts the tracks of a thread below each other. */
	chrome__write_sort_index(c, "\"thread_sort_index\"", pid, track_tid(track),
				 (uint64_t)track->tid * 16 + track->lane);
	free(name);
	return err;
}

static void write_flow(struct chrome *c, const struct timeline_span *span, bool begins, uint32_t tid)
{
	chrome__write_event(c, begins ? "s" : "f", "fwdbwd", "\"fwdbwd\"", span->pid, tid, span->start_ns);
	fprintf(c->out, ", \"id\": %u%s}", span->flow, begins ? "" : ", \"bp\": \"e\"");
}

static void write_span(struct chrome *c, const struct timeline_span *span, uint32_t tid)
{
	const struct timeline_name *name = &c->names[span->name];
	char step[64];

	snprintf(step, sizeof(step), "\"ProfilerStep#%" PRId64 "\"", span->sequence);
	chrome__write_event(c, "X", export_category__name(export__category(name, "")),
			    name->kind == SPAN_STEP ? step : c->name_json[span->name], span->pid, tid, span->start_ns);
	chrome__write_us(c->out, "dur", span->duration_ns);
	fprintf(c->out, ", \"args\": {\"External id\": %" PRIu64 ", \"Record function id\": 0", c->event_cnt + 1);
	if (export__is_op(name->kind) && span->sequence >= 0)
		fprintf(c->out, ", \"Sequence number\": %" PRId64 ", \"Fwd thread id\": %u", span->sequence,
			span->forward_tid);
	fprintf(c->out, "%s, \"Ev Idx\": %" PRIu64 "}}", c->group_json[span->group], c->event_cnt);
	c->event_cnt++;
	if (span->flow)
		write_flow(c, span, name->kind == SPAN_OP, tid);
}

/* ---- GPUs ---- */

/*
 * Writes the arguments that Kineto gives a kernel, copy or set (libkineto/src/CuptiActivity.cpp);
 * zeros are what Kineto writes for values that it does not know.
 */
static void write_work_args(struct chrome *c, const struct gpu_act *activity)
{
	const uint32_t *grid = activity->detail, *block = activity->detail + 3;
	FILE *out = c->out;

	if (activity->kind == GPU_ACTIVITY_KERNEL)
		fputs("\"queued\": 0, ", out);
	fprintf(out, "\"device\": %u, \"context\": %u, \"stream\": %u, \"correlation\": %u", activity->device,
		activity->context, activity->stream, activity->correlation);
	if (activity->kind == GPU_ACTIVITY_KERNEL) {
		fprintf(out,
			", \"registers per thread\": %u, \"shared memory\": %" PRIu64
			", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u]",
			activity->detail[6], activity->bytes, grid[0], grid[1], grid[2], block[0], block[1], block[2]);
		if (activity->detail[7])
			fprintf(out, ", \"graph node id\": %u", activity->detail[7]);
	} else if (activity->kind != GPU_ACTIVITY_GRAPH) {
		fprintf(out, ", \"bytes\": %" PRIu64 ", \"memory bandwidth (GB/s)\": %.9g", activity->bytes,
			activity->duration_ns ? (double)activity->bytes / activity->duration_ns : 0);
	}
}

static void write_launch_flow(struct chrome *c, const struct timeline_span *span, uint32_t pid, uint32_t tid)
{
	chrome__write_event(c, span->gpu ? "f" : "s", "ac2g", "\"ac2g\"", pid, tid, span->start_ns);
	fprintf(c->out, ", \"id\": %u%s}", c->activities[span->activity - 1].correlation,
		span->gpu ? ", \"bp\": \"e\"" : "");
}

static void write_activity_args(struct chrome *c, const struct timeline_span *span, uint32_t pid, uint32_t tid)
{
	const struct gpu_act *activity = span->activity ? &c->activities[span->activity - 1] : NULL;
	struct chrome_call *call =
		activity && activity->asked_by < c->activity_cnt ? &c->calls[activity->asked_by] : NULL;
	uint64_t external = span->gpu ? (call ? call->external : 0) : c->open[span->depth];
	const char *name = c->name_json[span->name];

	if (call && !span->gpu)
		call->external = external;
	/* Skips the quote with which the JSON text begins. */
	chrome__write_event(c, "X", export_category__name(export__category(&c->names[span->name], name + 1)), name, pid,
			    tid, span->start_ns);
	chrome__write_us(c->out, "dur", span->duration_ns);
	fputs(", \"args\": {", c->out);
	if (external)
		fprintf(c->out, "\"External id\": %" PRIu64 "%s", external, activity ? ", " : "");
	if (activity && span->gpu)
		write_work_args(c, activity);
	else if (activity)
		fprintf(c->out, "\"cbid\": %u, \"correlation\": %u", activity->detail[1], activity->correlation);
	fputs("}}", c->out);
	if (call && call->asked)
		write_launch_flow(c, span, pid, tid);
}

/* Sets the External id of the innermost operator that is open within a span. */
static void open_span(struct chrome *c, const struct timeline_span *span)
{
	c->open[span->depth] = export__is_op(c->names[span->name].kind) ? c->event_cnt + 1
			       : span->depth                            ? c->open[span->depth - 1]
									: 0;
}

static int find_calls(struct chrome *c, struct job *job)
{
	c->gpu = job__gpu(job);
	if (!c->gpu)
		return -ENOMEM;
	c->activities = gpu__activities(c->gpu, &c->activity_cnt);
	c->calls = calloc(c->activity_cnt + 1, sizeof(*c->calls));
	if (!c->calls)
		return -ENOMEM;
	for (size_t i = 0; i < c->activity_cnt; i++)
		if (gpu_act__is_work(&c->activities[i]) && c->activities[i].asked_by < c->activity_cnt)
			c->calls[c->activities[i].asked_by].asked = true;
	return 0;
}

/* NULL: no memory. */
static json_t *json_device_properties(const struct chrome *c, const struct export_options *options)
{
	size_t cnt;
	const struct rec_gpu_device *devices = gpu__devices(c->gpu, &cnt);
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < cnt; i++)
		if (!options->pid || devices[i].pid == options->pid)
			failed |= json_array_append_new(
				list,
				json_pack("{s:I, s:s, s:I, s:I, s:I, s:I}", "id", (json_int_t)devices[i].device, "name",
					  devices[i].name, "totalGlobalMem", (json_int_t)devices[i].memory_bytes,
					  "computeMajor", (json_int_t)(devices[i].compute >> 16), "computeMinor",
					  (json_int_t)(devices[i].compute & 0xffff), "numSms",
					  (json_int_t)devices[i].multiprocessors));
	if (!failed)
		return list;
	json_decref(list);
	return NULL;
}

static int write_devices(struct chrome *c, const struct export_options *options)
{
	json_t *list = json_device_properties(c, options);
	char *text = list ? json__text(list, 0) : NULL;

	json_decref(list);
	if (!text)
		return -ENOMEM;
	fprintf(c->out, "\"deviceProperties\": %s,\n", text);
	free(text);
	return 0;
}

/* "numbered_ranks": the pids that have been given a rank, with that rank. */
static void write_given_ranks(const struct chrome *c, const struct export_ranks *ranks)
{
	const char *comma = "";

	if (!ranks->any_given)
		return;
	fputs("\"numbered_ranks\": {", c->out);
	for (size_t i = 0; i < ranks->cnt; i++) {
		if (!ranks->items[i].given)
			continue;
		fprintf(c->out, "%s\"%u\": %d", comma, ranks->items[i].pid, ranks->items[i].rank);
		comma = ", ";
	}
	fputs("},\n", c->out);
}

/*
 * Writes the keys before the events. HTA finds the rank by the line, so the line must come before
 * the events.
 */
static int write_trace_head(struct chrome *c, struct job *job, int rank, const struct export_options *options)
{
	const struct rec_host *host = job__host(job);
	char *host_name, *version;
	int err;

	fputs("{\n\"schemaVersion\": 1,\n", c->out);
	err = write_devices(c, options);
	if (err)
		return err;
	host_name = export__json_text(host->hostname);
	version = export__json_text(host->version);
	if (rank >= 0)
		fprintf(c->out, "\"distributedInfo\": {\"rank\": %d},\n", rank);
	write_given_ranks(c, options->ranks);
	if (host_name && version)
		fprintf(c->out, "\"host_name\": %s,\n\"stepflame\": %s,\n", host_name, version);
	fprintf(c->out, "\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": %" PRIu64 ",\n\"traceEvents\": [",
		c->base_ns);
	free(version);
	free(host_name);
	return host_name && version ? 0 : -ENOMEM;
}

static bool is_exported(const struct timeline_track *track, const struct export_options *options)
{
	return !options->pid || track->pid == options->pid;
}

/* Finds the clock of the trace, and the rank of the first process that has one. */
static void find_clock_and_rank(struct chrome *c, const struct job *job, const struct timeline *timeline,
				const struct export_options *options, int *rank)
{
	const struct rec_host *host = job__host(job);
	size_t cnt;
	const struct timeline_track *tracks = timeline__tracks(timeline, &cnt);
	const struct track *all;
	uint64_t real_ns;

	*rank = -1;
	c->first_ns = UINT64_MAX;
	for (size_t i = 0; i < cnt; i++) {
		if (!is_exported(&tracks[i], options))
			continue;
		if (tracks[i].spans[0].start_ns < c->first_ns)
			c->first_ns = tracks[i].spans[0].start_ns;
		if (*rank < 0)
			*rank = export_ranks__of(options->ranks, tracks[i].pid);
	}
	all = export__tracks(options, &cnt);
	for (size_t i = 0; i < cnt; i++) {
		if (!export__has_track(options, &all[i]))
			continue;
		if (all[i].events[0].start_ns < c->first_ns)
			c->first_ns = all[i].events[0].start_ns;
		if (*rank < 0 && all[i].pid)
			*rank = export_ranks__of(options->ranks, all[i].pid);
	}
	if (c->first_ns == UINT64_MAX) /* nothing is exported */
		c->first_ns = host->monotonic_ns;
	real_ns = c->first_ns - host->monotonic_ns + host->realtime_ns;
	if (real_ns > INT64_MAX) /* a recording may claim any time, and readers take a signed number */
		real_ns = 0;
	c->base_ns = real_ns - real_ns % BASE_UNIT_NS;
	c->first_ts = real_ns - c->base_ns;
}

/* Assigns ids to the GPUs of the next process. */
static void number_gpus(struct chrome *c)
{
	c->gpu_pid = c->gpu_processes ? GPU_PID + (c->gpu_processes << 8) : 0;
	c->gpu_processes++;
}

static void write_spans(struct chrome *c, const struct timeline_track *track, bool steps)
{
	for (size_t i = 0; i < track->span_cnt; i++) {
		const struct timeline_span *span = &track->spans[i];

		open_span(c, span);
		if (!steps && c->names[span->name].kind == SPAN_STEP)
			continue;
		if (c->names[span->name].kind == SPAN_NONE)
			write_activity_args(c, span, track_pid(c, track), track_tid(track));
		else
			write_span(c, span, track_tid(track));
	}
}

static int write_chrome_tracks(struct chrome *c, struct job *job, const struct timeline *timeline,
			       const struct export_options *options)
{
	size_t cnt;
	const struct timeline_track *tracks = timeline__tracks(timeline, &cnt);
	bool begins;
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct timeline_track *track = &tracks[i];

		if (!is_exported(track, options))
			continue;
		begins = !i || tracks[i - 1].pid != track->pid;
		if (track->gpu && (begins || !tracks[i - 1].gpu))
			number_gpus(c);
		if (begins || tracks[i - 1].gpu != track->gpu)
			err = write_process_names(c, job, track);
		if (!err)
			err = write_thread_name(c, track);
		if (!err)
			write_spans(c, track, !c->kineto || !export__steps_of(options, track->pid));
	}
	return err;
}

/* ---- the tracks of user/analysis/timeline/tracks.h ---- */

/*
 * Slices, instants and counters; their stacks as the format's stackFrames, to which "sf" refers. TensorBoard's form has the steps
 * alone, as torch.profiler writes them.
 */

#define FIRST_LANE 16          /* above those of the timeline */
#define HOST_PID   0x7fffffffu /* GPUs have the small numbers */

static uint32_t shown_pid(const struct track *track)
{
	return track->pid ?: HOST_PID;
}

static uint32_t shown_tid(const struct track *track)
{
	return track->tid + (FIRST_LANE + track->kind) * LANE_TID;
}

static int write_names(struct chrome *c, const struct job *job, const struct track *track, bool process)
{
	uint32_t pid = shown_pid(track), tid = shown_tid(track);
	char *title = track__title(track);
	int err = title ? 0 : -ENOMEM;

	if (!err && process && track->pid) {
		struct rec_target target = common__target(job, track->pid);

		err = chrome__write_metadata(c, "\"process_name\"", pid, 0, "name",
					     *target.command ? target.command : "(unknown)");
	} else if (!err && process) {
		err = chrome__write_metadata(c, "\"process_name\"", pid, 0, "name", "host");
	}
	if (!err && process)
		chrome__write_sort_index(c, "\"process_sort_index\"", pid, 0, pid);
	/* A counter is no thread: its name stands above it. */
	if (!err && !track__is_counter(track)) {
		err = chrome__write_metadata(c, "\"thread_name\"", pid, tid, "name", title);
		chrome__write_sort_index(c, "\"thread_sort_index\"", pid, tid, track->kind);
	}
	free(title);
	return err;
}

static int write_args(struct chrome *c, const struct track_event *event, const struct track_arg *args)
{
	for (uint32_t i = 0; i < event->arg_cnt; i++) {
		const struct track_arg *arg = &args[event->arg + i];
		char *text = arg->text ? export__json_text(arg->text) : NULL;

		if (arg->text && !text)
			return -ENOMEM;
		if (text)
			fprintf(c->out, "%s\"%s\": %s", i ? ", " : "", arg->key, text);
		else
			fprintf(c->out, "%s\"%s\": %.9g", i ? ", " : "", arg->key, arg->number);
		free(text);
	}
	return 0;
}

static int write_event(struct chrome *c, const struct track *track, const struct track_event *event,
		       const struct track_arg *args)
{
	const char *category = export__track_category(track->kind);
	char *name = export__json_text(event->name);
	int err;

	if (!name)
		return -ENOMEM;
	chrome__write_event(c, event->instant ? "i" : "X", category, name, shown_pid(track), shown_tid(track),
			    event->start_ns);
	free(name);
	if (event->instant)
		fputs(", \"s\": \"t\"", c->out);
	else
		chrome__write_us(c->out, "dur", event->duration_ns);
	if (event->node)
		fprintf(c->out, ", \"sf\": %u", event->node);
	fputs(", \"args\": {", c->out);
	err = write_args(c, event, args);
	fputs("}}", c->out);
	return err;
}

static int write_counters(struct chrome *c, const struct track *track)
{
	char *title = track__title(track), *name = title ? export__json_text(title) : NULL;

	for (size_t i = 0; i < track->event_cnt && name; i++) {
		const struct track_event *event = &track->events[i];

		chrome__write_event(c, "C", export__track_category(track->kind), name, shown_pid(track),
				    shown_tid(track), event->start_ns);
		if (track__is_curve(track))
			fprintf(c->out, ", \"args\": {\"value\": %.15g}}", event->real);
		else
			fprintf(c->out, ", \"args\": {\"value\": %" PRId64 "}}", event->value);
	}
	free(title);
	free(name);
	return name ? 0 : -ENOMEM;
}

/*
 * A step ends where the next one begins. The plugin adds begin and duration as doubles of
 * microseconds, of which several bits are lost, and takes what then overlaps for a mistake.
 */
#define ROUNDING_NS 2

static void write_kineto_steps(struct chrome *c, const struct track *track)
{
	char name[64];

	for (size_t i = 0; i < track->event_cnt; i++) {
		const struct track_event *event = &track->events[i];

		snprintf(name, sizeof(name), "\"" EXPORT_STEP_PREFIX "%" PRId64 "\"", event->value);
		chrome__write_event(c, "X", "user_annotation", name, track->pid, shown_tid(track), event->start_ns);
		chrome__write_us(c->out, "dur",
				 event->duration_ns > ROUNDING_NS ? event->duration_ns - ROUNDING_NS : 0);
		fprintf(c->out,
			", \"args\": {\"External id\": %" PRIu64 ", \"Record function id\": 0, \"Ev Idx\": %" PRIu64
			"}}",
			c->event_cnt + 1, c->event_cnt);
		c->event_cnt++;
	}
}

static int write_track(struct chrome *c, const struct track *track, const struct track_arg *args)
{
	int err = 0;

	if (c->kineto)
		write_kineto_steps(c, track);
	else if (track__is_counter(track))
		err = write_counters(c, track);
	else
		for (size_t i = 0; i < track->event_cnt && !err; i++)
			err = write_event(c, track, &track->events[i], args);
	return err;
}

/* Writes the tracks (tracks.h) that the options choose. timeline: whose processes have names already. 0 or -ENOMEM. */
static int chrome_tracks__put(struct chrome *c, struct job *job, const struct timeline *timeline,
			      const struct export_options *options)
{
	size_t cnt;
	const struct track *tracks = export__tracks(options, &cnt), *last = NULL;
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct track *track = &tracks[i];
		bool process;

		if (!export__has_track(options, track) || (c->kineto && track->kind != TRACK_STEPS))
			continue;
		process = (!last || last->pid != track->pid) && !export__is_in_timeline(timeline, track->pid);
		err = write_names(c, job, track, process) ?: write_track(c, track, tracks__args(options->tracks));
		last = track;
	}
	return err;
}

static bool has_stacks(const struct export_options *options)
{
	size_t cnt;
	const struct track *tracks = export__tracks(options, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (export__has_track(options, &tracks[i]) &&
		    (tracks[i].kind == TRACK_WAITS || tracks[i].kind == TRACK_SAMPLES))
			return true;
	return false;
}

/* Writes the stacks to which their events refer, behind a comma. 0 or -ENOMEM. */
static int chrome_tracks__put_stacks(struct chrome *c, const struct export_options *options)
{
	size_t node_cnt, frame_cnt;
	const struct calltree_node *nodes;
	const struct calltree_frame *frames;

	if (!has_stacks(options))
		return 0;
	nodes = calltree__nodes(tracks__stacks(options->tracks), &node_cnt);
	frames = calltree__frames(tracks__stacks(options->tracks), &frame_cnt);
	fputs(",\n\"stackFrames\": {", c->out);
	for (size_t i = 1; i < node_cnt; i++) {
		const struct calltree_frame *frame = &frames[nodes[i].frame];
		char *name = export__json_text(frame->name),
		     *file = frame->file ? export__json_text(frame->file) : NULL;

		if (name)
			fprintf(c->out, "%s\n\"%zu\": {\"name\": %s", i > 1 ? "," : "", i, name);
		if (name && file)
			fprintf(c->out, ", \"category\": %s", file);
		if (name && file && frame->line)
			fprintf(c->out, ", \"line\": %u", frame->line);
		if (name && nodes[i].parent)
			fprintf(c->out, ", \"parent\": \"%u\"", nodes[i].parent);
		fputc('}', c->out);
		free(name);
		free(file);
		if (!name || (frame->file && !file))
			return -ENOMEM;
	}
	fputs("\n}", c->out);
	return 0;
}

/* ---- together ---- */

static int write_trace(struct job *job, const struct timeline *timeline, const struct export_options *options,
		       FILE *out, bool kineto)
{
	struct chrome *c = calloc(1, sizeof(*c));
	char *name = export__json_text(options->name);
	int err = -ENOMEM, rank;

	if (!c || !name)
		goto out;
	c->out = out;
	c->comma = "";
	c->kineto = kineto;
	err = make_chrome_texts(c, job, timeline);
	if (!err)
		err = find_calls(c, job);
	if (err)
		goto out;
	find_clock_and_rank(c, job, timeline, options, &rank);
	err = write_trace_head(c, job, rank, options);
	if (!err)
		err = write_chrome_tracks(c, job, timeline, options);
	if (!err)
		err = chrome_tracks__put(c, job, timeline, options);
	fputs("\n]", out);
	if (!err && !kineto)
		err = chrome_tracks__put_stacks(c, options);
	fprintf(out, ",\n\"traceName\": %s\n}\n", name);
out:
	if (c) {
		export__free_texts(c->name_json, c->name_cnt);
		export__free_texts(c->group_json, c->group_cnt);
		free(c->calls);
	}
	free(c);
	free(name);
	return err;
}

static int write_chrome(struct job *job, const struct timeline *timeline, const struct export_options *options,
			FILE *out)
{
	return write_trace(job, timeline, options, out, false);
}

static int write_tensorboard(struct job *job, const struct timeline *timeline, const struct export_options *options,
			     FILE *out)
{
	return write_trace(job, timeline, options, out, true);
}

const struct export_ops export_chrome = {.name = "chrome", .ranked = true, .write = write_chrome};
const struct export_ops export_tensorboard = {
	.name = "tensorboard", .gzip = true, .ranked = true, .folder = true, .write = write_tensorboard};
