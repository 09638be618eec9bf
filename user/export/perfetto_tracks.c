// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The tracks that every recording has (user/analysis/timeline/tracks.h) in Perfetto's format: slices,
 * instants and counters. Each track is a packet sequence. Times are absolute; a stack is a text,
 * which a sequence tells once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/export/perfetto_private.h"

#define UUID_BIT (1ull << 63) /* no track of the timeline has it */

enum { STACK_KEY = 1 };

struct sequence {
	struct perfetto *p;
	const struct track *track;
	const struct export_options *options;
	uint64_t uuid;
	uint32_t *told; /* by node: the sequence that has its stack as a text */
};

static int put_descriptor(const struct sequence *s)
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
static int put_defaults(const struct sequence *s)
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

static int put_stack_text(const struct sequence *s, uint32_t node)
{
	struct proto *packet = &s->p->packet;
	size_t interned, item;
	char *text;

	if (!node || s->told[node] == s->p->sequence)
		return 0;
	text = stack_text(tracks__stacks(s->options->tracks), node);
	if (!text)
		return -ENOMEM;
	s->told[node] = s->p->sequence;
	interned = proto__begin(packet, PACKET_INTERNED_DATA);
	item = proto__begin(packet, INTERNED_TEXTS);
	proto__int(packet, ITEM_IID, node);
	proto__text(packet, ITEM_TEXT, text);
	proto__end(packet, item);
	proto__end(packet, interned);
	free(text);
	return 0;
}

static void put_arg(struct proto *packet, const struct track_arg *arg)
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

static int put_event(const struct sequence *s, const struct track_event *event)
{
	const struct track_arg *args = tracks__args(s->options->tracks);
	struct proto *packet = &s->p->packet;
	size_t begun, message = begin_event(s, event->start_ns, event->instant ? INSTANT : SLICE_BEGIN, &begun), inner;
	int err;

	proto__text(packet, EVENT_CATEGORIES, export__track_category(s->track->kind));
	proto__text(packet, EVENT_NAME, event->name);
	for (uint32_t i = 0; i < event->arg_cnt; i++)
		put_arg(packet, &args[event->arg + i]);
	if (event->node) {
		inner = proto__begin(packet, EVENT_ANNOTATIONS);
		proto__int(packet, ANNOTATION_NAME_IID, STACK_KEY);
		proto__int(packet, ANNOTATION_TEXT_IID, event->node);
		proto__end(packet, inner);
	}
	proto__end(packet, message);
	err = put_stack_text(s, event->node);
	err = perfetto__end_packet(s->p, begun) ?: err;
	if (err || event->instant)
		return err;
	message = begin_event(s, event->start_ns + event->duration_ns, SLICE_END, &begun);
	proto__end(packet, message);
	return perfetto__end_packet(s->p, begun);
}

static int put_counter(const struct sequence *s, const struct track_event *event)
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

static int put_track(const struct sequence *s)
{
	int err = put_descriptor(s) ?: put_defaults(s);

	for (size_t i = 0; i < s->track->event_cnt && !err; i++)
		err = track__is_counter(s->track) ? put_counter(s, &s->track->events[i])
						  : put_event(s, &s->track->events[i]);
	return err;
}

int perfetto_tracks__put(struct perfetto *p, const struct job *job, const struct timeline *timeline,
			 const struct export_options *options)
{
	size_t cnt, node_cnt = 0;
	const struct track *tracks = export__tracks(options, &cnt), *last = NULL;
	struct sequence s = {.p = p, .options = options};
	int err = 0;

	if (!cnt)
		return 0;
	calltree__nodes(tracks__stacks(options->tracks), &node_cnt);
	s.told = calloc(node_cnt + 1, sizeof(*s.told));
	if (!s.told)
		return -ENOMEM;
	for (size_t i = 0; i < cnt && !err; i++) {
		const struct track *track = &tracks[i];

		if (!export__has_track(options, track))
			continue;
		p->sequence++;
		if (track->pid && (!last || last->pid != track->pid) && !export__is_in_timeline(timeline, track->pid))
			err = perfetto__put_process(p, job, track->pid);
		s.track = track;
		s.uuid = UUID_BIT | i;
		err = err ?: put_track(&s);
		last = track;
	}
	free(s.told);
	return err;
}
