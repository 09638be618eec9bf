/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reader's side of the memory that the injection library shares (include/gpu_ring.h). All that is in it is the target's,
 * and may change while it is read: it is copied out first, then checked.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_RING_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/gpu.h"
#include "include/gpu_ring.h"

struct gpu_ring;

/* One record, whole and within bounds; by hdr.type. The text of a name is 0-terminated. */
union gpu_ring_record {
	struct gpu_ring_hdr hdr;
	struct gpu_ring_activity activity;
	struct gpu_ring_clock clock;
	struct gpu_ring_device device;
	struct gpu_ring_name name;
	char bytes[sizeof(struct gpu_ring_name) + GPU_RING_TEXT_MAX + 8];
};

struct gpu_ring_status {
	uint32_t state; /* enum gpu_ring_state, as the target says: of no effect here */
	uint32_t error;
	uint32_t cupti_version;
	bool seen;                   /* the last start or stop was acted on: of a stop, all is in the ring */
	bool begun;                  /* the window of the last start has begun: there may be records */
	uint64_t begun_ns, ended_ns; /* as in struct gpu_ring_control */
	/* since that start */
	uint64_t full, dropped, unknown; /* as in struct gpu_ring_control */
	uint64_t bad; /* records that were not as they should be, and stretches that could not be read */
};

/*
 * Finds and maps that of a process. 0 or -errno: -ENOENT it has none, -EPROTO it is of another version or not as it
 * should be, -EBUSY another stepflame has it. Free with gpu_ring__free, which stops.
 */
int gpu_ring__open(pid_t pid, pid_t nspid, struct gpu_ring **out);
/* The same of an open file, which is the ring's afterwards, also on failure. */
int gpu_ring__of_file(int fd, pid_t nspid, struct gpu_ring **out);
void gpu_ring__free(struct gpu_ring *ring); /* accepts NULL */

/* Wants a window with these kinds (1 << enum gpu_activity). now_ns: CLOCK_MONOTONIC. */
void gpu_ring__start(struct gpu_ring *ring, uint32_t kinds, uint64_t now_ns);
/* To be called at least once a second in a window. */
void gpu_ring__live(struct gpu_ring *ring, uint64_t now_ns);
/* Wants no window any more; records may come until the status says that this was seen. */
void gpu_ring__stop(struct gpu_ring *ring);
void gpu_ring__status(struct gpu_ring *ring, struct gpu_ring_status *out);
/* The next record of the window. false: there is none now. */
bool gpu_ring__next(struct gpu_ring *ring, union gpu_ring_record *out);

#endif
