/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The memory that the injection library shares with stepflame: a memfd of its process, which stepflame opens through
 * /proc/PID/fd and maps. One page of control, then a ring of records.
 *
 * The library sleeps on `wanted` (a futex, not a private one) until stepflame makes it odd, which is a window. It goes
 * to sleep again when it is even, or when `alive_ns` stands still for GPU_RING_PATIENCE_NS: then stepflame is gone. One
 * thread of the library writes records at a time; stepflame alone reads. All in there is the target's, and stepflame
 * believes none of it.
 */
#ifndef STEPFLAME_INCLUDE_GPU_RING_H
#define STEPFLAME_INCLUDE_GPU_RING_H

#include <stdint.h>

#define GPU_RING_NAME        "stepflame-gpu"       /* of the memfd: /memfd:stepflame-gpu */
#define GPU_RING_MAGIC       0x31677072666c7473ULL /* "stlfrpg1", little-endian */
#define GPU_RING_VERSION     2
#define GPU_RING_CONTROL     4096       /* bytes before the ring */
#define GPU_RING_BYTES       (8u << 20) /* a power of two; pages that were never written cost nothing */
#define GPU_RING_PATIENCE_NS 5000000000ULL

enum gpu_ring_state {
	GPU_RING_ASLEEP = 0, /* nothing of CUPTI is in use */
	GPU_RING_STARTING,
	GPU_RING_ACTIVE,
	GPU_RING_STOPPING,  /* flushing, then waiting for a call of the program's, in which CUPTI can be left */
	GPU_RING_BUSY,      /* another tool has CUPTI: the window is lost */
	GPU_RING_FAILED,    /* `error` says why */
	GPU_RING_NO_CUPTI,  /* libcupti cannot be opened */
	GPU_RING_NO_DRIVER, /* libcuda is not mapped: CUPTI must not be called */
};

struct gpu_ring_control {
	uint64_t magic;
	uint32_t version;
	uint32_t pid;           /* of the process that made it, as it sees itself */
	uint32_t ring_bytes;    /* GPU_RING_BYTES of its version */
	uint32_t cupti_version; /* CUPTI_API_VERSION of the library that was opened; 0: not yet */

	/* stepflame writes these */
	uint32_t wanted;   /* odd: a window is wanted; grows by one at each change */
	uint32_t kinds;    /* 1 << enum gpu_activity: what is wanted */
	uint64_t alive_ns; /* CLOCK_MONOTONIC, anew each second while it watches */
	uint64_t tail;     /* bytes read since the ring was made */

	/* the library writes these */
	uint32_t state; /* enum gpu_ring_state */
	uint32_t error; /* CUptiResult of the last failure */
	uint32_t seen;  /* the last `wanted` that it acted on: of an end, when all is in the ring */
	uint32_t pad;
	uint64_t head;               /* bytes written since the ring was made */
	uint64_t full;               /* records that found no room */
	uint64_t dropped;            /* records that CUPTI says it lost */
	uint64_t unknown;            /* records of kinds, or in a form, that the library does not know */
	uint64_t start;              /* head when the window that is `seen` began; what lies before is nobody's */
	uint64_t begun_ns, ended_ns; /* CLOCK_MONOTONIC: CUPTI has told of all in between; ended 0: it still does */
};

/* Records of the ring: a header, then one of the structs; each starts at a multiple of 8, and may wrap at the end. */
enum gpu_ring_type {
	GPU_RING_NAME_TEXT = 1, /* id, then text up to the record's end, not 0-terminated */
	GPU_RING_ACTIVITY,
	GPU_RING_CLOCK,
	GPU_RING_DEVICE,
};

struct gpu_ring_hdr {
	uint16_t type; /* enum gpu_ring_type */
	uint16_t pad;
	uint32_t size; /* bytes, header included, a multiple of 8 */
};

/* Texts are sent once a window. */
struct gpu_ring_name {
	struct gpu_ring_hdr hdr;
	uint32_t id;
	uint32_t bytes; /* of text */
	char text[];    /* of a kernel mangled, of a function as C has it; padded to a multiple of 8 */
};

#define GPU_RING_TEXT_MAX 4096

/* The same instant: on CUPTI's clock, and CLOCK_MONOTONIC before and behind the reading of it. */
struct gpu_ring_clock {
	struct gpu_ring_hdr hdr;
	uint64_t cupti_ns;
	uint64_t before_ns, behind_ns;
};

struct gpu_ring_device {
	struct gpu_ring_hdr hdr;
	uint32_t device;
	uint32_t multiprocessors;
	uint64_t memory_bytes;
	uint32_t compute_major, compute_minor;
	char name[64];
};

/* Times are CUPTI's; 0: not known. */
struct gpu_ring_activity {
	struct gpu_ring_hdr hdr;
	uint64_t start_ns, end_ns;
	uint32_t correlation;
	uint16_t kind;      /* enum gpu_activity */
	uint16_t direction; /* enum gpu_direction, of COPY */
	uint32_t name;      /* of a gpu_ring_name; 0: none */
	uint32_t device, context, stream;
	uint64_t bytes; /* COPY, SET; of KERNEL its shared memory, static and dynamic */
	union {
		struct {
			uint32_t grid[3], block[3];
			uint32_t registers;  /* per thread */
			uint32_t graph_node; /* low word of its id; 0: of no graph */
		} kernel;
		struct {
			uint32_t tid;    /* as its process sees it */
			uint32_t cbid;   /* CUPTI's number of the function */
			uint32_t driver; /* 1: of the driver's table, 0: of the runtime's */
			int32_t result;
		} call;
		struct {
			uint32_t
				type; /* CUpti_ActivitySynchronizationType, CUpti_ActivityOverheadKind; of GRAPH its id */
			uint32_t event; /* id of the CUDA event; 0: none */
		} other;
		uint32_t words[8];
	};
};

#endif
