/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What comes out of a ring becomes records: with times of CLOCK_MONOTONIC, names as REC_NAME ids, and threads as we
 * number them.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_READER_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_READER_H

#include "include/gpu_ring.h"
#include "user/session/sources/gpu_clock.h"
#include "user/session/sources/gpu_tids.h"
#include "user/session/sources/gpu_window.h"

struct session;
struct target;
struct gpu_ring;

/* Begins zeroed. */
struct gpu_reader {
	struct gpu_clock clock;
	uint64_t *names; /* REC_NAME ids, by that of the ring; owned */
	uint32_t name_cnt;
	struct gpu_ring_activity *pending; /* that ended after the last pair of readings; owned */
	size_t pending_cnt, pending_room;
	struct gpu_tids tids;
	uint32_t device_cnt;
	uint64_t lost;
};

/* Texts, devices and the clock come anew with each window. */
void gpu_reader__restart(struct gpu_reader *r);
/* All that is in the ring; what is not known yet to be part of that window is kept until it is. */
void gpu_reader__drain(struct gpu_reader *r, struct session *s, const struct target *t, struct gpu_ring *ring,
		       struct gpu_window *window);
/* And what was kept: nothing more will be known. */
void gpu_reader__finish(struct gpu_reader *r, struct session *s, const struct target *t, struct gpu_window *window);
void gpu_reader__release(struct gpu_reader *r);

#endif
