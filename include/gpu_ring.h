/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The memory that the injection library shares with stepflame: a memfd of the target, which
 * stepflame opens through /proc/PID/fd and maps. One control page, then a ring of records.
 *
 * The library sleeps on `wanted` (a futex, not a private one) until stepflame makes `wanted` odd,
 * which opens a window. The library goes back to sleep when `wanted` is even, or when `alive_ns`
 * has not changed for GPU_RING_PATIENCE_NS: then stepflame is gone. One thread of the library
 * writes records at a time; only stepflame reads. The target can write anything here, so stepflame
 * trusts no byte of it.
 */
#ifndef STEPFLAME_INCLUDE_GPU_RING_H
#define STEPFLAME_INCLUDE_GPU_RING_H

#include <stdint.h>

#define GPU_RING_NAME        "stepflame-gpu"       /* of the memfd, seen as /memfd:stepflame-gpu */
#define GPU_RING_MAGIC       0x31677072666c7473ULL /* "stlfrpg1", little-endian */
#define GPU_RING_VERSION     4
#define GPU_RING_CONTROL     4096       /* bytes before the ring */
#define GPU_RING_BYTES       (8u << 20) /* a power of two; unwritten pages cost nothing */
#define GPU_RING_PATIENCE_NS 5000000000ULL

/*
 * Whose records the library can read, by CUPTI_API_VERSION: those of CUDA 11.0 (13) to 12.9 (28) and of
 * 13.x (130000 and more) all begin with the same fields.
 */
#define GPU_RING_KNOWS_CUPTI(version) \
	(((version) >= 13 && (version) <= 99) || ((version) >= 130000 && (version) < 140000))

enum gpu_ring_state {
	GPU_RING_ASLEEP = 0, /* CUPTI is not in use */
	GPU_RING_STARTING,
	GPU_RING_ACTIVE,
	GPU_RING_STOPPING,  /* flushing, then waiting for a CUDA call of the program, in which CUPTI can be detached */
	GPU_RING_BUSY,      /* another tool uses CUPTI: the window is lost */
	GPU_RING_FAILED,    /* `error` says why */
	GPU_RING_NO_CUPTI,  /* libcupti cannot be opened */
	GPU_RING_NO_DRIVER, /* libcuda is not mapped: CUPTI must not be called */
};

struct gpu_ring_control {
	uint64_t magic;
	uint32_t version;
	uint32_t pid;           /* of the process that created the memfd, in its own pid namespace */
	uint32_t ring_bytes;    /* GPU_RING_BYTES of the library's version */
	uint32_t cupti_version; /* CUPTI_API_VERSION of the open libcupti; 0: none yet */

	/* stepflame writes these */
	uint32_t wanted;   /* odd: stepflame wants a window; it adds one at each change */
	uint32_t kinds;    /* bits 1 << enum gpu_activity: the kinds that stepflame wants */
	uint64_t alive_ns; /* CLOCK_MONOTONIC, updated each second while stepflame reads */
	uint64_t tail;     /* bytes read since the ring was created */

	/* the library writes these */
	uint32_t state; /* enum gpu_ring_state */
	uint32_t error; /* CUptiResult of the last failure */
	uint32_t seen; /* last `wanted` that it acted on; at a window's end, set after the last record is in the ring */
	uint32_t pad;
	uint64_t head;               /* bytes written since the ring was created */
	uint64_t full;               /* records dropped because the ring was full */
	uint64_t dropped;            /* records that CUPTI reports lost */
	uint64_t unknown;            /* records whose kind or layout the library does not know */
	uint64_t start;              /* head when window `seen` began; the reader skips what lies before */
	uint64_t begun_ns, ended_ns; /* CLOCK_MONOTONIC: CUPTI reported everything in between; ended 0: active */
	char holder[64];             /* with GPU_RING_BUSY: who holds CUPTI, as CUPTI names it; "": not known */
};

/*
 * Records of the ring: a header, then one of the structs; each starts at a multiple of 8 and may
 * wrap at the end.
 */
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

/* The library sends each text once per window. */
struct gpu_ring_name {
	struct gpu_ring_hdr hdr;
	uint32_t id;
	uint32_t bytes; /* of text */
	char text[];    /* a kernel's mangled name or a function's C name; padded to a multiple of 8 */
};

#define GPU_RING_TEXT_MAX 4096

/* One reading of CUPTI's clock, and CLOCK_MONOTONIC before and after that reading. */
struct gpu_ring_clock {
	struct gpu_ring_hdr hdr;
	uint64_t cupti_ns;
	uint64_t before_ns, behind_ns;
	uint64_t told_ns; /* CLOCK_MONOTONIC: the ring has all that ended before; 0: nobody asked CUPTI */
};

struct gpu_ring_device {
	struct gpu_ring_hdr hdr;
	uint32_t device;
	uint32_t multiprocessors;
	uint64_t memory_bytes;
	uint32_t compute_major, compute_minor;
	char name[64];
};

/* Times are on CUPTI's clock; 0: unknown. */
struct gpu_ring_activity {
	struct gpu_ring_hdr hdr;
	uint64_t start_ns, end_ns;
	uint32_t correlation;
	uint16_t kind;      /* enum gpu_activity */
	uint16_t direction; /* enum gpu_direction, for COPY */
	uint32_t name;      /* id of a gpu_ring_name; 0: none */
	uint32_t device, context, stream;
	uint64_t bytes; /* for COPY and SET; for KERNEL its shared memory, static and dynamic */
	union {
		struct {
			uint32_t grid[3], block[3];
			uint32_t registers;  /* per thread */
			uint32_t graph_node; /* low word of its graph node's id; 0: not in a graph */
		} kernel;
		struct {
			uint32_t tid;    /* in the target's pid namespace */
			uint32_t cbid;   /* CUPTI's number of the function */
			uint32_t driver; /* 1: cbid is of the driver API, 0: of the runtime API */
			int32_t result;
		} call;
		struct {
			uint32_t type;  /* CUpti_ActivitySynchronizationType, ...OverheadKind; for GRAPH its id */
			uint32_t event; /* id of the CUDA event; 0: none */
			uint32_t tid;   /* for OVERHEAD: in the target's pid namespace; 0: of no thread */
		} other;
		uint32_t words[8];
	};
};

#endif
