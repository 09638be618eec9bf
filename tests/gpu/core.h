/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the doubles share: the GPUs that they play, the bookkeeping of calls, and the log. It lives in the double of
 * libcuda, once in a process; the others find it by core__get(), when they are first called, as the real ones find the
 * driver.
 *
 * Simulated time is CLOCK_MONOTONIC. What a stream is given to do has its start and its end from the beginning: that of
 * what is before it in the stream, and how long it takes. So no thread plays the GPU; who waits for it sleeps.
 */
#ifndef STEPFLAME_TESTS_GPU_CORE_H
#define STEPFLAME_TESTS_GPU_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_SEC 1000000000ULL
#define NS_PER_MS  1000000ULL

enum core_library {
	CORE_DRIVER = 1, /* these two as in CUpti_CallbackDomain */
	CORE_RUNTIME = 2,
	CORE_NCCL,
	CORE_CUPTI,
	CORE_NVML,
};

/* A call of a function of a library. The first part is given, the second says more of it for the log, the last is core's. */
struct core_call {
	enum core_library library;
	uint32_t cbid;
	const char *name;
	const void *params; /* as CUPTI's generated structs have them */

	uint64_t object; /* host function, CUfunction, graph, communicator */
	uint64_t bytes;
	const char *text; /* of a launch the kernel's name, of a copy the direction */
	uint32_t stream, context, device;

	uint64_t start_ns, end_ns;             /* of the whole */
	uint64_t inner_start_ns, inner_end_ns; /* without CUPTI's callbacks */
	uint32_t correlation;
	uint32_t depth; /* calls around it */
	uint64_t data;  /* CUPTI's correlationData */
	bool recorded;  /* CUPTI makes a record of it */
	bool called_back;
	int result;
};

enum core_op_kind {
	CORE_KERNEL,
	CORE_COPY,
	CORE_SET,
	CORE_GRAPH, /* a whole graph, from its first node to its last */
	CORE_HOST,  /* nothing on the GPU: an empty graph, a marker */
};

/* What a GPU does. */
struct core_op {
	enum core_op_kind kind;
	const char *name; /* of a kernel; stays */
	uint64_t duration_ns;
	uint64_t bytes;
	uint32_t direction; /* CUpti_ActivityMemcpyKind */
	uint32_t value;     /* of a set */
	uint32_t grid[3], block[3];
	uint32_t shared_bytes; /* dynamic */
	uint32_t registers;
	bool async;

	/* core fills these in */
	uint64_t queued_ns, start_ns, end_ns;
	uint32_t device, context, stream, correlation;
	uint64_t graph_node;
	uint32_t graph;
};

enum core_sync_kind { /* as CUpti_ActivitySynchronizationType */
		      CORE_SYNC_EVENT = 1,
		      CORE_SYNC_STREAM_WAIT = 2,
		      CORE_SYNC_STREAM = 3,
		      CORE_SYNC_CONTEXT = 4,
};

struct core_sync {
	enum core_sync_kind kind;
	uint32_t context, stream, event, correlation;
	uint64_t start_ns, end_ns;
};

/* A kernel. */
struct core_function {
	struct core_function *next;
	const char *name;
	uint32_t registers;
};

/* What CUPTI wants to be told; op and sync return whether a record will be made. */
struct core_hooks {
	void (*enter)(struct core_call *call);
	void (*leave)(struct core_call *call);
	bool (*op)(const struct core_op *op);
	bool (*sync)(const struct core_sync *sync);
	void (*forked)(void); /* in the child */
};

/* The double of libcuda, for the others. */
struct core {
	void (*enter)(struct core_call *call);
	int (*leave)(struct core_call *call, int result); /* returns the result */
	void (*set_hooks)(const struct core_hooks *hooks);
	void (*log)(const char *format, ...) __attribute__((format(printf, 1, 2)));
	const struct core_function *(*function)(const char *name); /* the same for the same name */
	uint64_t (*now)(void);
	uint32_t (*context_id)(const void *context); /* NULL: the current one, 0: none */
	uint32_t (*device_of)(const void *context);
	uint32_t (*stream_id)(const void *context, const void *stream);
	void *(*current)(void);
	uint32_t (*tid)(void);
};

/* Exported by the double of libcuda. */
const struct core *gpu_double_core(void);

#endif
