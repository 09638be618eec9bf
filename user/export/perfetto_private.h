/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of Perfetto's format share. */
#ifndef STEPFLAME_USER_EXPORT_PERFETTO_PRIVATE_H
#define STEPFLAME_USER_EXPORT_PERFETTO_PRIVATE_H

#include "user/export/export.h"
#include "user/export/proto.h"

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

/* Begins a packet of the current sequence in p->packet. */
size_t perfetto__begin_packet(struct perfetto *p);
/* Writes it. 0 or -ENOMEM. */
int perfetto__end_packet(struct perfetto *p, size_t begun);
/* Writes the track under which those of a process stand. 0 or -ENOMEM. */
int perfetto__put_process(struct perfetto *p, const struct job *job, uint32_t pid);
uint64_t perfetto__process_uuid(uint32_t pid);

/*
 * In perfetto_tracks.c: writes the tracks (tracks.h) that the options choose. timeline: whose
 * processes have a track already. 0 or -ENOMEM.
 */
int perfetto_tracks__put(struct perfetto *p, const struct job *job, const struct timeline *timeline,
			 const struct export_options *options);

#endif
