/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Converts the contents of an injection library's ring into records: times on CLOCK_MONOTONIC,
 * names as REC_NAME ids, and threads by stepflame's numbers.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_READER_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_READER_H

#include "include/gpu_ring.h"
#include "user/lib/intern.h"
#include "user/session/sources/gpu_clock.h"
#include "user/session/sources/gpu_tids.h"
#include "user/session/sources/gpu_window.h"

struct session;
struct target;
struct gpu_ring;

/* Begins zeroed. */
struct gpu_reader {
	struct gpu_clock clock;
	uint64_t *names; /* REC_NAME ids, indexed by the ring's name ids; owned */
	uint32_t name_cnt;
	struct gpu_ring_activity *pending; /* activities that ended after the last clock pair */
	size_t pending_cnt, pending_room;
	uint64_t told_ns; /* the ring held all that ended before, as far as it was read */
	struct gpu_tids tids;
	struct intern texts; /* REC_NAME ids that the session has emitted for it */
	uint32_t device_cnt;
	uint64_t lost;
};

/* Starts a window: the library then sends texts, devices and the clock again. */
void gpu_reader__restart(struct gpu_reader *r);
/* Drains the ring; holds back activities until it is known whether they belong to the window. */
void gpu_reader__drain(struct gpu_reader *r, struct session *s, const struct target *t, struct gpu_ring *ring,
		       struct gpu_window *window);
/* Emits or drops the activities held back: call when the window is complete. */
void gpu_reader__finish(struct gpu_reader *r, struct session *s, const struct target *t, struct gpu_window *window);
/* Frees all but the count of losses. */
void gpu_reader__release(struct gpu_reader *r);

#endif
