/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the records of `record` go: to the file, to the model for the summary at the end, and to the
 * trigger of --until. The file is opened, which discards what it held, only after the targets are
 * attached; until then the few records are buffered.
 */
#ifndef STEPFLAME_USER_CMD_RECORD_SINK_H
#define STEPFLAME_USER_CMD_RECORD_SINK_H

#include "user/analysis/live/trigger.h"
#include "user/model/job.h"
#include "user/recording/recording.h"
#include "user/session/session.h"

/* Set job, and trigger if there is one; zero the rest. */
struct record_sink {
	struct recording_writer *writer; /* NULL until the file is open */
	struct job *job;
	struct trigger *trigger; /* NULL: none */
	int write_err;           /* first error of the file */
	char *buffered;
	size_t buffered_bytes;
	size_t name_cnt;   /* in the job */
	uint64_t now_ns;   /* CLOCK_MONOTONIC, at the last look */
	uint64_t event_ns; /* the time before this is kept: now, or trigger__before */
};

/* A session_sink. */
int record_sink__add(const struct rec_hdr *record, void *sink);
/*
 * Opens the file. max_bytes: of disk, last_ns: what it keeps of the past (recording.h); 0: any. 0 or
 * -errno, after a message.
 */
int record_sink__open(struct record_sink *sink, const char *path, uint64_t max_bytes, uint64_t last_ns);
/* To be called some times a second. 0 or -errno, also that of the file. */
int record_sink__look(struct record_sink *sink, uint64_t now_ns);
/* Frees all that the sink has. */
void record_sink__release(struct record_sink *sink);

#endif
