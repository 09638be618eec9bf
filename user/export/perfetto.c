// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Perfetto's own format (https://perfetto.dev/docs/reference/trace-packet-proto): packets of track
 * events. Each track is a packet sequence with an incremental clock and a name table of its own, so
 * that most packets are a time difference and two numbers.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/export/export.h"
#include "user/export/proto.h"
#include "user/lib/words.h"
#include "user/report/common.h"

/* Field numbers, by message (protos/perfetto/trace/perfetto_trace.proto). */
enum { TRACE_PACKET = 1 };
enum packet_field {
	PACKET_CLOCK_SNAPSHOT = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE_ID = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_INTERNED_DATA = 12,
	PACKET_SEQUENCE_FLAGS = 13,
	PACKET_DEFAULTS = 59,
	PACKET_TRACK_DESCRIPTOR = 60,
};
enum defaults_field { DEFAULTS_TRACK_EVENT = 11, DEFAULTS_CLOCK_ID = 58 };
enum { EVENT_DEFAULTS_TRACK = 11 };
enum snapshot_field { SNAPSHOT_CLOCKS = 1, SNAPSHOT_PRIMARY = 2 };
enum clock_field { CLOCK_ID = 1, CLOCK_TIMESTAMP = 2, CLOCK_IS_INCREMENTAL = 3 };
enum descriptor_field {
	DESCRIPTOR_UUID = 1,
	DESCRIPTOR_NAME = 2,
	DESCRIPTOR_PROCESS = 3,
	DESCRIPTOR_THREAD = 4,
	DESCRIPTOR_PARENT = 5,
	DESCRIPTOR_COUNTER = 8,
};
enum { COUNTER_UNIT = 3, COUNTER_UNIT_NAME = 6, UNIT_BYTES = 3 };
enum process_field { PROCESS_PID = 1, PROCESS_NAME = 6 };
enum thread_field { THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum event_field {
	EVENT_CATEGORY_IIDS = 3,
	EVENT_ANNOTATIONS = 4,
	EVENT_TYPE = 9,
	EVENT_NAME_IID = 10,
	EVENT_CATEGORIES = 22,
	EVENT_NAME = 23,
	EVENT_COUNTER_VALUE = 30,
	EVENT_DOUBLE_COUNTER_VALUE = 44,
	EVENT_FLOW_IDS = 47,
	EVENT_TERMINATING_FLOW_IDS = 48,
};
enum annotation_field {
	ANNOTATION_NAME_IID = 1,
	ANNOTATION_INT = 4,
	ANNOTATION_DOUBLE = 5,
	ANNOTATION_TEXT = 6,
	ANNOTATION_NAME = 10,
	ANNOTATION_TEXT_IID = 17,
};
enum interned_field { INTERNED_CATEGORIES = 1, INTERNED_NAMES = 2, INTERNED_ANNOTATIONS = 3, INTERNED_TEXTS = 29 };
enum { ITEM_IID = 1, ITEM_TEXT = 2 };

enum event_type { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4 };
enum sequence_flag { STATE_CLEARED = 1, NEEDS_STATE = 2 };
enum packet_clock { CLOCK_REALTIME_ID = 1, CLOCK_MONOTONIC_ID = 3, CLOCK_OF_SEQUENCE = 64 };

#define PERFETTO_GROUP_TEXTS 5

/*
 * The texts of a group. The id of an interned text is (group index) * PERFETTO_GROUP_TEXTS +
 * annotation.
 */
struct op_group_texts {
	char *texts[PERFETTO_GROUP_TEXTS]; /* malloc'ed; NULL: none */
};

struct perfetto {
	FILE *out;
	struct proto packet;
	const struct gpu_act *activities;
	size_t activity_cnt;
	bool *asked; /* by index in gpu__activities: the call caused work on the GPU */
	const struct timeline_name *names;
	char **texts;
	struct op_group_texts *groups;
	size_t name_cnt, group_cnt;
	/* The track that is being written: */
	uint32_t sequence;
	uint64_t now_ns;
	unsigned char *name_sent, *group_sent; /* by index */
};

/* Each sequence interns a category once; ids must not be 0. */
#define CATEGORY_IID(category) ((category) + 1)
enum annotation {
	ANNOTATION_SEQUENCE = 1,
	ANNOTATION_SHAPES, /* from here on: texts of a group */
	ANNOTATION_SOURCE,
	ANNOTATION_MODULE,
	ANNOTATION__GROUP_END,
	ANNOTATION_CORRELATION = ANNOTATION__GROUP_END, /* from here on: GPU activities */
	ANNOTATION_BYTES,
	ANNOTATION_SHARED,
	ANNOTATION_REGISTERS,
	ANNOTATION_GRID,
	ANNOTATION_BLOCK,
	ANNOTATION__COUNT,
};

_Static_assert(ANNOTATION__GROUP_END == PERFETTO_GROUP_TEXTS, "struct op_group_texts holds them");

static const char *const annotation_names[] = {
	[ANNOTATION_SEQUENCE] = "Sequence number",
	[ANNOTATION_SHAPES] = "Input Dims",
	[ANNOTATION_SOURCE] = "Call stack",
	[ANNOTATION_MODULE] = "Module Hierarchy",
	[ANNOTATION_CORRELATION] = "correlation",
	[ANNOTATION_BYTES] = "bytes",
	[ANNOTATION_SHARED] = "shared memory",
	[ANNOTATION_REGISTERS] = "registers per thread",
	[ANNOTATION_GRID] = "grid",
	[ANNOTATION_BLOCK] = "block",
};

/* Begins a packet of the current sequence in p->packet. */
static size_t perfetto__begin_packet(struct perfetto *p)
{
	size_t begun = proto__begin(&p->packet, TRACE_PACKET);

	proto__int(&p->packet, PACKET_SEQUENCE_ID, p->sequence);
	return begun;
}

/* Writes it. 0 or -ENOMEM. */
static int perfetto__end_packet(struct perfetto *p, size_t begun)
{
	proto__end(&p->packet, begun);
	if (p->packet.failed)
		return -ENOMEM;
	fwrite(p->packet.bytes, 1, p->packet.cnt, p->out);
	p->packet.cnt = 0;
	return 0;
}

static void write_item(struct proto *packet, enum interned_field field, uint64_t iid, const char *text)
{
	size_t item = proto__begin(packet, field);

	proto__int(packet, ITEM_IID, iid);
	proto__text(packet, ITEM_TEXT, text);
	proto__end(packet, item);
}

static void write_clock(struct proto *packet, enum packet_clock id, uint64_t ns)
{
	size_t clock = proto__begin(packet, SNAPSHOT_CLOCKS);

	proto__int(packet, CLOCK_ID, id);
	proto__int(packet, CLOCK_TIMESTAMP, ns);
	if (id == CLOCK_OF_SEQUENCE)
		proto__int(packet, CLOCK_IS_INCREMENTAL, 1);
	proto__end(packet, clock);
}

/* ---- processes and tracks ---- */

/* A thread has fewer than 16 lanes. */
static uint64_t make_uuid(uint32_t pid, uint32_t tid, uint32_t lane)
{
	return ((uint64_t)pid << 32 | tid) << 5 | lane;
}

/* Stream numbers are small. */
static uint64_t track_uuid(const struct timeline_track *track)
{
	if (!track->gpu)
		return make_uuid(track->pid, track->tid, track->lane);
	return make_uuid(track->pid, track->gpu << 24 ^ track->tid, 16 + track->lane);
}

static uint64_t perfetto__process_uuid(uint32_t pid)
{
	return make_uuid(pid, 0, 31);
}

static int write_clocks(struct perfetto *p, const struct rec_host *host)
{
	size_t packet = perfetto__begin_packet(p), snapshot = proto__begin(&p->packet, PACKET_CLOCK_SNAPSHOT);

	write_clock(&p->packet, CLOCK_MONOTONIC_ID, host->monotonic_ns);
	write_clock(&p->packet, CLOCK_REALTIME_ID, host->realtime_ns);
	proto__int(&p->packet, SNAPSHOT_PRIMARY, CLOCK_MONOTONIC_ID);
	proto__end(&p->packet, snapshot);
	return perfetto__end_packet(p, packet);
}

/* Writes the track under which those of a process stand. 0 or -ENOMEM. */
static int perfetto__write_process(struct perfetto *p, const struct job *job, uint32_t pid)
{
	struct rec_target target = common__target(job, pid);
	size_t packet = perfetto__begin_packet(p), descriptor = proto__begin(&p->packet, PACKET_TRACK_DESCRIPTOR),
	       process;

	proto__int(&p->packet, DESCRIPTOR_UUID, perfetto__process_uuid(pid));
	process = proto__begin(&p->packet, DESCRIPTOR_PROCESS);
	proto__int(&p->packet, PROCESS_PID, pid);
	proto__text(&p->packet, PROCESS_NAME, target.command);
	proto__end(&p->packet, process);
	proto__end(&p->packet, descriptor);
	return perfetto__end_packet(p, packet);
}

static int write_thread_track(struct perfetto *p, const struct timeline_track *track)
{
	size_t packet = perfetto__begin_packet(p), descriptor = proto__begin(&p->packet, PACKET_TRACK_DESCRIPTOR),
	       thread;
	char *name = export__track_name(track), text[64];
	int err;

	proto__int(&p->packet, DESCRIPTOR_UUID, track_uuid(track));
	proto__int(&p->packet, DESCRIPTOR_PARENT, perfetto__process_uuid(track->pid));
	if (track->gpu) {
		snprintf(text, sizeof(text), "GPU %u %s", track->gpu - 1, name ? name : "");
		proto__text(&p->packet, DESCRIPTOR_NAME, text);
	} else if (track->lane) {
		proto__text(&p->packet, DESCRIPTOR_NAME, name ? name : "");
	} else {
		thread = proto__begin(&p->packet, DESCRIPTOR_THREAD);
		proto__int(&p->packet, THREAD_PID, track->pid);
		proto__int(&p->packet, THREAD_TID, track->tid);
		proto__text(&p->packet, THREAD_NAME, name ? name : "");
		proto__end(&p->packet, thread);
	}
	proto__end(&p->packet, descriptor);
	err = perfetto__end_packet(p, packet);
	free(name);
	return name ? err : -ENOMEM;
}

/*
 * Writes what comes before the first event of a sequence: its clock, which starts with the track,
 * its defaults, and the texts that every track uses.
 */
static int write_sequence(struct perfetto *p, const struct timeline_track *track)
{
	size_t packet = perfetto__begin_packet(p), message, inner;

	p->now_ns = track->spans[0].start_ns;
	proto__int(&p->packet, PACKET_SEQUENCE_FLAGS, STATE_CLEARED);
	message = proto__begin(&p->packet, PACKET_CLOCK_SNAPSHOT);
	write_clock(&p->packet, CLOCK_MONOTONIC_ID, p->now_ns);
	write_clock(&p->packet, CLOCK_OF_SEQUENCE, p->now_ns);
	proto__end(&p->packet, message);
	message = proto__begin(&p->packet, PACKET_DEFAULTS);
	proto__int(&p->packet, DEFAULTS_CLOCK_ID, CLOCK_OF_SEQUENCE);
	inner = proto__begin(&p->packet, DEFAULTS_TRACK_EVENT);
	proto__int(&p->packet, EVENT_DEFAULTS_TRACK, track_uuid(track));
	proto__end(&p->packet, inner);
	proto__end(&p->packet, message);
	message = proto__begin(&p->packet, PACKET_INTERNED_DATA);
	for (int i = 0; i < EXPORT_CATEGORY__COUNT; i++)
		write_item(&p->packet, INTERNED_CATEGORIES, CATEGORY_IID(i), export_category__name(i));
	for (int i = 1; i < ANNOTATION__COUNT; i++)
		write_item(&p->packet, INTERNED_ANNOTATIONS, i, annotation_names[i]);
	proto__end(&p->packet, message);
	memset(p->name_sent, 0, p->name_cnt);
	memset(p->group_sent, 0, p->group_cnt);
	return perfetto__end_packet(p, packet);
}

/* ---- slices ---- */

static size_t event__begin(struct perfetto *p, size_t *packet, uint64_t time_ns)
{
	*packet = perfetto__begin_packet(p);
	proto__int(&p->packet, PACKET_TIMESTAMP, time_ns - p->now_ns);
	p->now_ns = time_ns;
	proto__int(&p->packet, PACKET_SEQUENCE_FLAGS, NEEDS_STATE);
	return proto__begin(&p->packet, PACKET_TRACK_EVENT);
}

static int write_end(struct perfetto *p, uint64_t end_ns)
{
	size_t packet, event = event__begin(p, &packet, end_ns);

	proto__int(&p->packet, EVENT_TYPE, SLICE_END);
	proto__end(&p->packet, event);
	return perfetto__end_packet(p, packet);
}

static uint64_t text_iid(uint32_t group, int annotation)
{
	return (uint64_t)group * ANNOTATION__GROUP_END + annotation;
}

static void write_uint_annotation(struct perfetto *p, enum annotation which, uint64_t value)
{
	size_t annotation = proto__begin(&p->packet, EVENT_ANNOTATIONS);

	proto__int(&p->packet, ANNOTATION_NAME_IID, which);
	proto__int(&p->packet, ANNOTATION_INT, value);
	proto__end(&p->packet, annotation);
}

static void write_annotations(struct perfetto *p, const struct timeline_span *span, bool is_op)
{
	size_t annotation;

	if (is_op && span->sequence >= 0)
		write_uint_annotation(p, ANNOTATION_SEQUENCE, span->sequence);
	for (int i = ANNOTATION_SHAPES; i < ANNOTATION__GROUP_END; i++) {
		if (!p->groups[span->group].texts[i])
			continue;
		annotation = proto__begin(&p->packet, EVENT_ANNOTATIONS);
		proto__int(&p->packet, ANNOTATION_NAME_IID, i);
		proto__int(&p->packet, ANNOTATION_TEXT_IID, text_iid(span->group, i));
		proto__end(&p->packet, annotation);
	}
}

static void write_dims_annotation(struct perfetto *p, enum annotation which, const uint32_t *dims)
{
	size_t annotation = proto__begin(&p->packet, EVENT_ANNOTATIONS);
	char text[64];

	snprintf(text, sizeof(text), "[%u, %u, %u]", dims[0], dims[1], dims[2]);
	proto__int(&p->packet, ANNOTATION_NAME_IID, which);
	proto__text(&p->packet, ANNOTATION_TEXT, text);
	proto__end(&p->packet, annotation);
}

/*
 * Writes the arguments of a call or a GPU activity, and its end of the arrow from one to the other.
 * A correlation is unique in a process only, but a flow id must be unique in the trace.
 */
static void write_activity_annotations(struct perfetto *p, const struct timeline_span *span)
{
	const struct gpu_act *activity = &p->activities[span->activity - 1];
	uint64_t flow = 1ull << 63 | (uint64_t)span->pid << 32 | activity->correlation;

	write_uint_annotation(p, ANNOTATION_CORRELATION, activity->correlation);
	if (activity->kind == GPU_ACTIVITY_COPY || activity->kind == GPU_ACTIVITY_SET)
		write_uint_annotation(p, ANNOTATION_BYTES, activity->bytes);
	if (activity->kind == GPU_ACTIVITY_KERNEL) {
		write_uint_annotation(p, ANNOTATION_SHARED, activity->bytes);
		write_uint_annotation(p, ANNOTATION_REGISTERS, activity->detail[6]);
		write_dims_annotation(p, ANNOTATION_GRID, activity->detail);
		write_dims_annotation(p, ANNOTATION_BLOCK, activity->detail + 3);
	}
	if (activity->asked_by < p->activity_cnt && p->asked[activity->asked_by])
		proto__fixed64(&p->packet, span->gpu ? EVENT_TERMINATING_FLOW_IDS : EVENT_FLOW_IDS, flow);
}

/* Writes the texts that this sequence uses for the first time. */
static void write_new_texts(struct perfetto *p, const struct timeline_span *span, bool named)
{
	size_t interned;

	if ((named || p->name_sent[span->name]) && p->group_sent[span->group])
		return;
	interned = proto__begin(&p->packet, PACKET_INTERNED_DATA);
	if (!named && !p->name_sent[span->name])
		write_item(&p->packet, INTERNED_NAMES, span->name + 1, p->texts[span->name]);
	for (int i = ANNOTATION_SHAPES; i < ANNOTATION__GROUP_END && !p->group_sent[span->group]; i++)
		if (p->groups[span->group].texts[i])
			write_item(&p->packet, INTERNED_TEXTS, text_iid(span->group, i),
				   p->groups[span->group].texts[i]);
	proto__end(&p->packet, interned);
	p->name_sent[span->name] = p->group_sent[span->group] = 1;
}

static int write_begin(struct perfetto *p, const struct timeline_span *span)
{
	enum span_kind kind = p->names[span->name].kind;
	bool is_op = export__is_op(kind);
	size_t packet, event = event__begin(p, &packet, span->start_ns);
	char step[64];

	proto__int(&p->packet, EVENT_TYPE, SLICE_BEGIN);
	proto__int(&p->packet, EVENT_CATEGORY_IIDS,
		   CATEGORY_IID(export__category(&p->names[span->name], p->texts[span->name])));
	if (kind == SPAN_STEP) {
		snprintf(step, sizeof(step), "%s%" PRId64, p->texts[span->name], span->sequence);
		proto__text(&p->packet, EVENT_NAME, step);
	} else {
		proto__int(&p->packet, EVENT_NAME_IID, span->name + 1);
	}
	write_annotations(p, span, is_op);
	if (span->activity)
		write_activity_annotations(p, span);
	if (span->flow)
		proto__fixed64(&p->packet, kind == SPAN_OP ? EVENT_FLOW_IDS : EVENT_TERMINATING_FLOW_IDS, span->flow);
	proto__end(&p->packet, event);
	write_new_texts(p, span, kind == SPAN_STEP);
	return perfetto__end_packet(p, packet);
}

/*
 * Writes begins and ends in order of time: spans nest, so the depth of a span tells which ones
 * ended before it begins.
 */
static int write_slices(struct perfetto *p, const struct timeline_track *track)
{
	uint64_t ends[TIMELINE_DEPTH_MAX];
	size_t open = 0;
	int err = 0;

	for (size_t i = 0; i < track->span_cnt && !err; i++) {
		const struct timeline_span *span = &track->spans[i];

		while (open > span->depth && !err)
			err = write_end(p, ends[--open]);
		if (!err)
			err = write_begin(p, span);
		ends[open++] = span->start_ns + span->duration_ns;
	}
	while (open && !err)
		err = write_end(p, ends[--open]);
	return err;
}

/* ---- the tracks of user/analysis/timeline/tracks.h ---- */

/*
 * Slices, instants and counters. Times are absolute; a stack is a text, which a sequence tells once.
 */

#define UUID_BIT (1ull << 63) /* no track of the timeline has it */

enum { STACK_KEY = 1 };

struct sequence {
	struct perfetto *p;
	const struct track *track;
	const struct export_options *options;
	uint64_t uuid;
	uint32_t *interned; /* by node: the sequence that has its stack as a text */
};

static int write_descriptor(const struct sequence *s)
{
	struct proto *packet = &s->p->packet;
	size_t begun = perfetto__begin_packet(s->p), descriptor = proto__begin(packet, PACKET_TRACK_DESCRIPTOR),
	       counter;
	char *title = track__title(s->track);
	int err;

	proto__int(packet, DESCRIPTOR_UUID, s->uuid);
	proto__text(packet, DESCRIPTOR_NAME, title ?: "");
	if (s->track->pid)
		proto__int(packet, DESCRIPTOR_PARENT, perfetto__process_uuid(s->track->pid));
	if (track__is_counter(s->track)) {
		counter = proto__begin(packet, DESCRIPTOR_COUNTER);
		if (!strcmp(track__unit(s->track), "bytes"))
			proto__int(packet, COUNTER_UNIT, UNIT_BYTES);
		else
			proto__text(packet, COUNTER_UNIT_NAME, track__unit(s->track));
		proto__end(packet, counter);
	}
	proto__end(packet, descriptor);
	err = perfetto__end_packet(s->p, begun);
	free(title);
	return title ? err : -ENOMEM;
}

/* Writes the clock of the sequence, its track, and the name of the one argument whose values are interned. */
static int write_defaults(const struct sequence *s)
{
	struct proto *packet = &s->p->packet;
	size_t begun = perfetto__begin_packet(s->p), message, inner;

	proto__int(packet, PACKET_SEQUENCE_FLAGS, STATE_CLEARED);
	message = proto__begin(packet, PACKET_DEFAULTS);
	proto__int(packet, DEFAULTS_CLOCK_ID, CLOCK_MONOTONIC_ID);
	inner = proto__begin(packet, DEFAULTS_TRACK_EVENT);
	proto__int(packet, EVENT_DEFAULTS_TRACK, s->uuid);
	proto__end(packet, inner);
	proto__end(packet, message);
	message = proto__begin(packet, PACKET_INTERNED_DATA);
	inner = proto__begin(packet, INTERNED_ANNOTATIONS);
	proto__int(packet, ITEM_IID, STACK_KEY);
	proto__text(packet, ITEM_TEXT, "stack, innermost first");
	proto__end(packet, inner);
	proto__end(packet, message);
	return perfetto__end_packet(s->p, begun);
}

/* malloc'ed; NULL: no memory. */
static char *stack_text(const struct calltree *tree, uint32_t node)
{
	size_t cnt;
	const struct calltree_node *nodes = calltree__nodes(tree, &cnt);
	const struct calltree_frame *frames = calltree__frames(tree, &cnt);
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	for (const char *comma = ""; node && nodes[node].parent; node = nodes[node].parent, comma = "\n") {
		const struct calltree_frame *frame = &frames[nodes[node].frame];

		if (frame->kind <= CALLTREE_THREAD)
			break;
		fprintf(out, "%s%s", comma, frame->name);
		if (frame->file)
			fprintf(out, " (%s:%" PRIu32 ")", frame->file, frame->line);
	}
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

static int write_stack_text(const struct sequence *s, uint32_t node)
{
	struct proto *packet = &s->p->packet;
	size_t interned, item;
	char *text;

	if (!node || s->interned[node] == s->p->sequence)
		return 0;
	text = stack_text(tracks__stacks(s->options->tracks), node);
	if (!text)
		return -ENOMEM;
	s->interned[node] = s->p->sequence;
	interned = proto__begin(packet, PACKET_INTERNED_DATA);
	item = proto__begin(packet, INTERNED_TEXTS);
	proto__int(packet, ITEM_IID, node);
	proto__text(packet, ITEM_TEXT, text);
	proto__end(packet, item);
	proto__end(packet, interned);
	free(text);
	return 0;
}

static void write_arg(struct proto *packet, const struct track_arg *arg)
{
	size_t annotation = proto__begin(packet, EVENT_ANNOTATIONS);
	uint64_t bits;

	proto__text(packet, ANNOTATION_NAME, arg->key);
	memcpy(&bits, &arg->number, sizeof(bits));
	if (arg->text)
		proto__text(packet, ANNOTATION_TEXT, arg->text);
	else
		proto__fixed64(packet, ANNOTATION_DOUBLE, bits);
	proto__end(packet, annotation);
}

static size_t begin_event(const struct sequence *s, uint64_t time_ns, enum event_type type, size_t *begun)
{
	struct proto *packet = &s->p->packet;
	size_t event;

	*begun = perfetto__begin_packet(s->p);
	proto__int(packet, PACKET_TIMESTAMP, time_ns);
	proto__int(packet, PACKET_SEQUENCE_FLAGS, NEEDS_STATE);
	event = proto__begin(packet, PACKET_TRACK_EVENT);
	proto__int(packet, EVENT_TYPE, type);
	return event;
}

static int write_event(const struct sequence *s, const struct track_event *event)
{
	const struct track_arg *args = tracks__args(s->options->tracks);
	struct proto *packet = &s->p->packet;
	size_t begun, message = begin_event(s, event->start_ns, event->instant ? INSTANT : SLICE_BEGIN, &begun), inner;
	int err;

	proto__text(packet, EVENT_CATEGORIES, export__track_category(s->track->kind));
	proto__text(packet, EVENT_NAME, event->name);
	for (uint32_t i = 0; i < event->arg_cnt; i++)
		write_arg(packet, &args[event->arg + i]);
	if (event->node) {
		inner = proto__begin(packet, EVENT_ANNOTATIONS);
		proto__int(packet, ANNOTATION_NAME_IID, STACK_KEY);
		proto__int(packet, ANNOTATION_TEXT_IID, event->node);
		proto__end(packet, inner);
	}
	proto__end(packet, message);
	err = write_stack_text(s, event->node);
	err = perfetto__end_packet(s->p, begun) ?: err;
	if (err || event->instant)
		return err;
	message = begin_event(s, event->start_ns + event->duration_ns, SLICE_END, &begun);
	proto__end(packet, message);
	return perfetto__end_packet(s->p, begun);
}

static int write_counter(const struct sequence *s, const struct track_event *event)
{
	size_t begun, message = begin_event(s, event->start_ns, COUNTER, &begun);
	uint64_t bits;

	if (track__is_curve(s->track)) {
		memcpy(&bits, &event->real, sizeof(bits));
		proto__fixed64(&s->p->packet, EVENT_DOUBLE_COUNTER_VALUE, bits);
	} else {
		proto__int(&s->p->packet, EVENT_COUNTER_VALUE, event->value);
	}
	proto__end(&s->p->packet, message);
	return perfetto__end_packet(s->p, begun);
}

static int write_track(const struct sequence *s)
{
	int err = write_descriptor(s) ?: write_defaults(s);

	for (size_t i = 0; i < s->track->event_cnt && !err; i++)
		err = track__is_counter(s->track) ? write_counter(s, &s->track->events[i])
						  : write_event(s, &s->track->events[i]);
	return err;
}

/*
 * In perfetto_tracks.c: writes the tracks (tracks.h) that the options choose. timeline: whose
 * processes have a track already. 0 or -ENOMEM.
 */
static int perfetto_tracks__write(struct perfetto *p, const struct job *job, const struct timeline *timeline,
				  const struct export_options *options)
{
	size_t cnt, node_cnt = 0;
	const struct track *tracks = export__tracks(options, &cnt), *last = NULL;
	struct sequence s = {.p = p, .options = options};
	int err = 0;

	if (!cnt)
		return 0;
	calltree__nodes(tracks__stacks(options->tracks), &node_cnt);
	s.interned = calloc(node_cnt + 1, sizeof(*s.interned));
	if (!s.interned)
		return -ENOMEM;
	for (size_t i = 0; i < cnt && !err; i++) {
		const struct track *track = &tracks[i];

		if (!export__has_track(options, track))
			continue;
		p->sequence++;
		if (track->pid && (!last || last->pid != track->pid) && !export__is_in_timeline(timeline, track->pid))
			err = perfetto__write_process(p, job, track->pid);
		s.track = track;
		s.uuid = UUID_BIT | i;
		err = err ?: write_track(&s);
		last = track;
	}
	free(s.interned);
	return err;
}

/* ---- the trace ---- */

static char *name_or_null(struct job *job, uint64_t id, int *err)
{
	const char *text = id ? job__name_or_lost(job, id) : NULL;
	char *copy = text ? strdup(text) : NULL;

	if (id && !copy)
		*err = -ENOMEM;
	return copy;
}

static int make_perfetto_texts(struct perfetto *p, struct job *job, const struct timeline *timeline)
{
	const uint64_t *groups = timeline__groups(timeline, &p->group_cnt);
	int err = 0;

	p->names = timeline__names(timeline, &p->name_cnt);
	p->texts = export__names(job, timeline);
	p->groups = calloc(p->group_cnt, sizeof(*p->groups));
	p->name_sent = calloc(p->name_cnt + 1, 1);
	p->group_sent = calloc(p->group_cnt, 1);
	if (!p->texts || !p->groups || !p->name_sent || !p->group_sent)
		return -ENOMEM;
	for (size_t i = 0; i < p->group_cnt && !err; i++) {
		char **texts = p->groups[i].texts;
		struct op_group group;

		if (!job__op_group(job, groups[i], &group))
			continue;
		texts[ANNOTATION_SOURCE] = group.source ? job__op_source(job, &group) : NULL;
		if (group.source && !texts[ANNOTATION_SOURCE])
			err = -ENOMEM;
		texts[ANNOTATION_MODULE] = name_or_null(job, group.module, &err);
		if (!group.word_cnt)
			continue;
		texts[ANNOTATION_SHAPES] = words__shapes(group.words, group.word_cnt);
		if (!texts[ANNOTATION_SHAPES])
			err = -ENOMEM;
	}
	return err;
}

static int mark_asking_activities(struct perfetto *p, struct job *job)
{
	const struct gpu *gpu = job__gpu(job);

	if (!gpu)
		return -ENOMEM;
	p->activities = gpu__activities(gpu, &p->activity_cnt);
	p->asked = calloc(p->activity_cnt + 1, sizeof(*p->asked));
	if (!p->asked)
		return -ENOMEM;
	for (size_t i = 0; i < p->activity_cnt; i++)
		if (gpu_act__is_work(&p->activities[i]) && p->activities[i].asked_by < p->activity_cnt)
			p->asked[p->activities[i].asked_by] = true;
	return 0;
}

static int write_perfetto_tracks(struct perfetto *p, const struct job *job, const struct timeline *timeline,
				 uint32_t only_pid)
{
	size_t cnt;
	const struct timeline_track *tracks = timeline__tracks(timeline, &cnt);
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		if (only_pid && tracks[i].pid != only_pid)
			continue;
		p->sequence++;
		if (!i || tracks[i - 1].pid != tracks[i].pid)
			err = perfetto__write_process(p, job, tracks[i].pid);
		if (!err)
			err = write_thread_track(p, &tracks[i]);
		if (!err)
			err = write_sequence(p, &tracks[i]);
		if (!err)
			err = write_slices(p, &tracks[i]);
	}
	return err;
}

static int write_perfetto(struct job *job, const struct timeline *timeline, const struct export_options *options,
			  FILE *out)
{
	struct perfetto p = {.out = out, .sequence = 1};
	int err = make_perfetto_texts(&p, job, timeline);

	if (!err)
		err = mark_asking_activities(&p, job);
	if (!err)
		err = write_clocks(&p, job__host(job));
	if (!err)
		err = write_perfetto_tracks(&p, job, timeline, options->pid);
	if (!err)
		err = perfetto_tracks__write(&p, job, timeline, options);
	export__free_texts(p.texts, p.name_cnt);
	for (size_t i = 0; p.groups && i < p.group_cnt; i++)
		for (int a = 0; a < ANNOTATION__GROUP_END; a++)
			free(p.groups[i].texts[a]);
	free(p.groups);
	free(p.asked);
	free(p.name_sent);
	free(p.group_sent);
	free(p.packet.bytes);
	return err;
}

const struct export_ops export_perfetto = {.name = "perfetto", .binary = true, .write = write_perfetto};
