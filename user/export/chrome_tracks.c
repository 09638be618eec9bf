// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The tracks that every recording has (user/analysis/timeline/tracks.h) in a Chrome trace: slices, instants
 * and counters; their stacks as the format's stackFrames, to which "sf" refers. TensorBoard's form
 * has the steps alone, as torch.profiler writes them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/export/chrome_private.h"
#include "user/report/common.h"

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

static int put_names(struct chrome *c, const struct job *job, const struct track *track, bool process)
{
	uint32_t pid = shown_pid(track), tid = shown_tid(track);
	char *title = track__title(track);
	int err = title ? 0 : -ENOMEM;

	if (!err && process && track->pid) {
		struct rec_target target = common__target(job, track->pid);

		err = chrome__put_metadata(c, "\"process_name\"", pid, 0, "name",
					   *target.command ? target.command : "(unknown)");
	} else if (!err && process) {
		err = chrome__put_metadata(c, "\"process_name\"", pid, 0, "name", "host");
	}
	if (!err && process)
		chrome__put_sort_index(c, "\"process_sort_index\"", pid, 0, pid);
	/* A counter is no thread: its name stands above it. */
	if (!err && !track__is_counter(track)) {
		err = chrome__put_metadata(c, "\"thread_name\"", pid, tid, "name", title);
		chrome__put_sort_index(c, "\"thread_sort_index\"", pid, tid, track->kind);
	}
	free(title);
	return err;
}

static int put_args(struct chrome *c, const struct track_event *event, const struct track_arg *args)
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

static int put_event(struct chrome *c, const struct track *track, const struct track_event *event,
		     const struct track_arg *args)
{
	const char *category = export__track_category(track->kind);
	char *name = export__json_text(event->name);
	int err;

	if (!name)
		return -ENOMEM;
	chrome__put_event(c, event->instant ? "i" : "X", category, name, shown_pid(track), shown_tid(track),
			  event->start_ns);
	free(name);
	if (event->instant)
		fputs(", \"s\": \"t\"", c->out);
	else
		chrome__put_us(c->out, "dur", event->duration_ns);
	if (event->node)
		fprintf(c->out, ", \"sf\": %u", event->node);
	fputs(", \"args\": {", c->out);
	err = put_args(c, event, args);
	fputs("}}", c->out);
	return err;
}

static int put_counters(struct chrome *c, const struct track *track)
{
	char *title = track__title(track), *name = title ? export__json_text(title) : NULL;

	for (size_t i = 0; i < track->event_cnt && name; i++) {
		const struct track_event *event = &track->events[i];

		chrome__put_event(c, "C", export__track_category(track->kind), name, shown_pid(track), shown_tid(track),
				  event->start_ns);
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

static void put_kineto_steps(struct chrome *c, const struct track *track)
{
	char name[64];

	for (size_t i = 0; i < track->event_cnt; i++) {
		const struct track_event *event = &track->events[i];

		snprintf(name, sizeof(name), "\"" EXPORT_STEP_PREFIX "%" PRId64 "\"", event->value);
		chrome__put_event(c, "X", "user_annotation", name, track->pid, shown_tid(track), event->start_ns);
		chrome__put_us(c->out, "dur", event->duration_ns > ROUNDING_NS ? event->duration_ns - ROUNDING_NS : 0);
		fprintf(c->out,
			", \"args\": {\"External id\": %" PRIu64 ", \"Record function id\": 0, \"Ev Idx\": %" PRIu64
			"}}",
			c->event_cnt + 1, c->event_cnt);
		c->event_cnt++;
	}
}

static int put_track(struct chrome *c, const struct track *track, const struct track_arg *args)
{
	int err = 0;

	if (c->kineto)
		put_kineto_steps(c, track);
	else if (track__is_counter(track))
		err = put_counters(c, track);
	else
		for (size_t i = 0; i < track->event_cnt && !err; i++)
			err = put_event(c, track, &track->events[i], args);
	return err;
}

int chrome_tracks__put(struct chrome *c, struct job *job, const struct timeline *timeline,
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
		err = put_names(c, job, track, process) ?: put_track(c, track, tracks__args(options->tracks));
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

int chrome_tracks__put_stacks(struct chrome *c, const struct export_options *options)
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
