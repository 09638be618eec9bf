/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reader of the memory that the injection library shares (include/gpu_ring.h). The target can
 * change that memory at any time, so the reader copies data out first and then checks the copy.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GPU_RING_H
#define STEPFLAME_USER_SESSION_SOURCES_GPU_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/gpu.h"
#include "include/gpu_ring.h"

struct gpu_ring;

/* One record, complete and within bounds; hdr.type selects the member. Texts are 0-terminated. */
union gpu_ring_record {
	struct gpu_ring_hdr hdr;
	struct gpu_ring_activity activity;
	struct gpu_ring_clock clock;
	struct gpu_ring_device device;
	struct gpu_ring_name name;
	char bytes[sizeof(struct gpu_ring_name) + GPU_RING_TEXT_MAX + 8];
};

struct gpu_ring_status {
	uint32_t state; /* enum gpu_ring_state, as the target claims; do not rely on it */
	uint32_t error;
	uint32_t cupti_version;
	char holder[64]; /* printable ASCII, NUL-terminated */
	/* The library acted on the last start or stop. After a stop, the ring is complete. */
	bool seen;
	bool begun;                  /* the last window has begun: records may follow */
	uint64_t begun_ns, ended_ns; /* as in struct gpu_ring_control */
	/* since the last start */
	uint64_t full, dropped, unknown; /* as in struct gpu_ring_control */
	uint64_t bad;                    /* malformed records, and unreadable stretches */
};

/*
 * Finds and maps the ring of a process. 0 or -errno: -ENOENT: no ring; -EPROTO: another version, or
 * malformed; -EBUSY: another stepflame uses it. Free with gpu_ring__free, which stops the window.
 */
int gpu_ring__open(pid_t pid, pid_t nspid, struct gpu_ring **out);
/* Likewise for an open file; takes ownership of fd, also on failure. */
int gpu_ring__of_file(int fd, pid_t nspid, struct gpu_ring **out);
void gpu_ring__free(struct gpu_ring *ring); /* accepts NULL */

/* Requests a window with these kinds (1 << enum gpu_activity). now_ns: CLOCK_MONOTONIC. */
void gpu_ring__start(struct gpu_ring *ring, uint32_t kinds, uint64_t now_ns);
/* Call at least once a second during a window. */
void gpu_ring__live(struct gpu_ring *ring, uint64_t now_ns);
/* Requests the end of the window; records may follow until status.seen. */
void gpu_ring__stop(struct gpu_ring *ring);
void gpu_ring__status(struct gpu_ring *ring, struct gpu_ring_status *out);
/* Reads the next record of the window. false: no record now. */
bool gpu_ring__next(struct gpu_ring *ring, union gpu_ring_record *out);

#endif
