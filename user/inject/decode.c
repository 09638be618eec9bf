// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Decodes CUPTI's activity records into records of the ring. Each version of CUPTI made some of its
 * records longer and left their first fields alone. So the decoder reads all of them as the oldest
 * struct, and asserts that the newest one in these headers agrees with it.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "user/inject/inject.h"

/* Since CUDA 11.0. */
typedef CUpti_ActivityKernel5 oldest_kernel;
typedef CUpti_ActivityMemcpy4 oldest_copy;
typedef CUpti_ActivityMemcpyPtoP2 oldest_peer_copy;
typedef CUpti_ActivityMemset2 oldest_set;

#define SAME(old, new, field) \
	_Static_assert(offsetof(old, field) == offsetof(new, field), "CUPTI has moved a field of a record")

#if CUPTI_API_VERSION >= 130000
SAME(oldest_kernel, CUpti_ActivityKernel10, registersPerThread);
SAME(oldest_kernel, CUpti_ActivityKernel10, start);
SAME(oldest_kernel, CUpti_ActivityKernel10, blockZ);
SAME(oldest_kernel, CUpti_ActivityKernel10, correlationId);
SAME(oldest_kernel, CUpti_ActivityKernel10, name);
SAME(oldest_kernel, CUpti_ActivityKernel10, graphNodeId);
SAME(oldest_copy, CUpti_ActivityMemcpy6, correlationId);
SAME(oldest_copy, CUpti_ActivityMemcpy6, streamId);
SAME(oldest_peer_copy, CUpti_ActivityMemcpyPtoP4, correlationId);
SAME(oldest_set, CUpti_ActivityMemset4, correlationId);
SAME(CUpti_ActivitySynchronization, CUpti_ActivitySynchronization2, cudaEventId);
SAME(CUpti_ActivityOverhead, CUpti_ActivityOverhead3, objectId);
SAME(CUpti_ActivityOverhead, CUpti_ActivityOverhead3, end);
SAME(CUpti_ActivityGraphTrace, CUpti_ActivityGraphTrace2, streamId);
#define X(id, number, ...) \
	_Static_assert(CUPTI_ACTIVITY_OVERHEAD_##id == (number), "CUPTI has renumbered its overhead");
STEPFLAME_GPU_OVERHEADS(X)
#undef X
#endif

/*
 * Functions that submit work to a GPU or wait for it. Without this list, other calls would fill the
 * ring.
 */
static const char *const wanted_calls[] = {
	"cudaLaunch",
	"cuLaunch",
	"cudaGraphLaunch",
	"cuGraphLaunch",
	"cudaMemcpy",
	"cuMemcpy",
	"cudaMemset",
	"cuMemset",
	"cudaMemPrefetch",
	"cuMemPrefetch",
	"cudaDeviceSynchro",
	"cudaStreamSynchronize",
	"cudaEventSynchronize",
	"cuCtxSynchronize",
	"cuStreamSynchronize",
	"cuEventSynchronize",
	"cudaStreamWaitEvent",
	"cuStreamWaitEvent",
	"cudaThreadSynchronize",
};

void decoder__restart(struct decoder *d)
{
	if (d->names.cnt)
		memset(&d->names, 0, sizeof(d->names));
}

static uint64_t hash_text(const char *text, size_t bytes)
{
	uint64_t hash = 0x9e3779b97f4a7c15ULL ^ bytes;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = 0;

		memcpy(&word, text + i, bytes - i < 8 ? bytes - i : 8);
		hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
		hash ^= hash >> 32;
	}
	return hash;
}

/* The id of a text, which is sent first if it is new. 0: there is no text, or no room for it. */
static uint32_t name_id(struct decoder *d, const char *text)
{
	union {
		struct gpu_ring_name name;
		char bytes[sizeof(struct gpu_ring_name) + GPU_RING_TEXT_MAX + 8];
	} rec;
	size_t bytes, size, at;
	uint64_t hash;

	if (!text)
		return 0;
	bytes = strnlen(text, GPU_RING_TEXT_MAX);
	hash = hash_text(text, bytes);
	for (at = hash & (NAMES_MAX - 1); d->names.slots[at].id; at = (at + 1) & (NAMES_MAX - 1))
		if (d->names.slots[at].hash == hash)
			return d->names.slots[at].id;
	if (d->names.cnt >= NAMES_MAX / 4 * 3)
		return 0;
	size = (sizeof(rec.name) + bytes + 7) & ~(size_t)7;
	memset(rec.bytes + size - 8, 0, 8);
	rec.name.hdr = (struct gpu_ring_hdr){.type = GPU_RING_NAME_TEXT, .size = size};
	rec.name.id = d->names.cnt + 1;
	rec.name.bytes = bytes;
	memcpy(rec.name.text, text, bytes);
	if (!ring__write(d->ring, &rec, size))
		return 0;
	d->names.cnt++;
	d->names.slots[at].hash = hash;
	return d->names.slots[at].id = rec.name.id;
}

static enum gpu_direction direction_of(uint8_t kind)
{
	switch (kind) {
	case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
	case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
		return GPU_HTOD_DIRECTION;
	case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
	case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
		return GPU_DTOH_DIRECTION;
	case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
	case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
	case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
	case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
	case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
		return GPU_DTOD_DIRECTION;
	case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
		return GPU_HTOH_DIRECTION;
	default:
		return GPU_UNKNOWN_DIRECTION;
	}
}

/* Fields common to all records of work on a device. */
#define ON_DEVICE(out, r)                                                                                 \
	((out)->start_ns = (r)->start, (out)->end_ns = (r)->end, (out)->correlation = (r)->correlationId, \
	 (out)->device = (r)->deviceId, (out)->context = (r)->contextId, (out)->stream = (r)->streamId)

static void kernel(struct decoder *d, const oldest_kernel *r, struct gpu_ring_activity *out)
{
	ON_DEVICE(out, r);
	out->kind = GPU_ACTIVITY_KERNEL;
	out->name = name_id(d, r->name);
	out->bytes = (int64_t)r->staticSharedMemory + r->dynamicSharedMemory;
	out->kernel.grid[0] = r->gridX;
	out->kernel.grid[1] = r->gridY;
	out->kernel.grid[2] = r->gridZ;
	out->kernel.block[0] = r->blockX;
	out->kernel.block[1] = r->blockY;
	out->kernel.block[2] = r->blockZ;
	out->kernel.registers = r->registersPerThread;
	out->kernel.graph_node = r->graphNodeId;
	d->graphs = d->graphs || r->graphNodeId;
}

/* Turns "cuMemcpyHtoDAsync_v2_ptsz" and "cudaLaunchKernel_v7000" into the names used in C. */
static void cut_suffixes(char *name)
{
	char *at;

	while ((at = strrchr(name, '_')) && at > name) {
		if (strcmp(at, "_ptsz") && strcmp(at, "_ptds") &&
		    (at[1] != 'v' || !isdigit((unsigned char)at[2]) || at[2 + strspn(at + 2, "0123456789")]))
			return;
		*at = 0;
	}
}

/* Returns false for a call that does not go into the ring. */
static bool call(struct decoder *d, const CUpti_ActivityAPI *r, bool driver, struct gpu_ring_activity *out)
{
	uint8_t *verdict = r->cbid < CALLS_MAX ? &d->calls[driver][r->cbid] : NULL;
	const char *name = NULL;
	char text[128];

	if (!verdict || *verdict == CALL_UNWANTED || !d->cupti->GetCallbackName ||
	    d->cupti->GetCallbackName(driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, r->cbid,
				      &name) ||
	    !name)
		return false;
	if (*verdict == CALL_NEW) {
		*verdict = CALL_UNWANTED;
		for (size_t i = 0; i < sizeof(wanted_calls) / sizeof(*wanted_calls); i++)
			if (!strncmp(name, wanted_calls[i], strlen(wanted_calls[i])))
				*verdict = CALL_WANTED;
		if (*verdict == CALL_UNWANTED)
			return false;
	}
	d->graphs = d->graphs || strstr(name, "GraphLaunch");
	out->kind = GPU_ACTIVITY_CALL;
	out->start_ns = r->start;
	out->end_ns = r->end;
	out->correlation = r->correlationId;
	out->device = out->context = out->stream = UINT32_MAX;
	snprintf(text, sizeof(text), "%s", name);
	cut_suffixes(text);
	out->name = name_id(d, text);
	out->call.tid = r->threadId;
	out->call.cbid = r->cbid;
	out->call.driver = driver;
	out->call.result = r->returnValue;
	return true;
}

static void sync_of(const CUpti_ActivitySynchronization *r, struct gpu_ring_activity *out)
{
	out->kind = GPU_ACTIVITY_SYNC;
	out->start_ns = r->start;
	out->end_ns = r->end;
	out->correlation = r->correlationId;
	out->device = UINT32_MAX;
	out->context = r->contextId;
	out->stream = r->streamId;
	out->other.type = r->type;
	out->other.event = r->cudaEventId == UINT32_MAX ? 0 : r->cudaEventId;
}

static void overhead(const CUpti_ActivityOverhead *r, struct gpu_ring_activity *out)
{
	out->kind = GPU_ACTIVITY_OVERHEAD;
	out->start_ns = r->start;
	out->end_ns = r->end;
	out->device = out->context = out->stream = UINT32_MAX;
	out->other.type = r->overheadKind;
	if (r->objectKind == CUPTI_ACTIVITY_OBJECT_THREAD)
		out->other.tid = r->objectId.pt.threadId;
}

static void decode_copy(const oldest_copy *r, struct gpu_ring_activity *out)
{
	ON_DEVICE(out, r);
	out->kind = GPU_ACTIVITY_COPY;
	out->direction = direction_of(r->copyKind);
	out->bytes = r->bytes;
}

static void peer_copy(const oldest_peer_copy *r, struct gpu_ring_activity *out)
{
	ON_DEVICE(out, r);
	out->kind = GPU_ACTIVITY_COPY;
	out->direction = GPU_DTOD_DIRECTION;
	out->bytes = r->bytes;
}

static void set(const oldest_set *r, struct gpu_ring_activity *out)
{
	ON_DEVICE(out, r);
	out->kind = GPU_ACTIVITY_SET;
	out->bytes = r->bytes;
}

static void graph(struct decoder *d, const CUpti_ActivityGraphTrace *r, struct gpu_ring_activity *out)
{
	ON_DEVICE(out, r);
	out->kind = GPU_ACTIVITY_GRAPH;
	out->other.type = r->graphId;
	d->graphs = true;
}

void decoder__record(struct decoder *d, const CUpti_Activity *record, size_t bytes)
{
	struct gpu_ring_activity out = {.hdr = {.type = GPU_RING_ACTIVITY, .size = sizeof(out)}};
	const void *r = record;
	bool decoded = false;

	switch (record->kind) {
#define AS(kind, type, decode)            \
	case kind:                        \
		if (bytes < sizeof(type)) \
			break;            \
		decode;                   \
		decoded = true;           \
		break;
		AS(CUPTI_ACTIVITY_KIND_KERNEL, oldest_kernel, kernel(d, r, &out))
		AS(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, oldest_kernel, kernel(d, r, &out))
		AS(CUPTI_ACTIVITY_KIND_MEMCPY, oldest_copy, decode_copy(r, &out))
		AS(CUPTI_ACTIVITY_KIND_MEMCPY2, oldest_peer_copy, peer_copy(r, &out))
		AS(CUPTI_ACTIVITY_KIND_MEMSET, oldest_set, set(r, &out))
		AS(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUpti_ActivitySynchronization, sync_of(r, &out))
		AS(CUPTI_ACTIVITY_KIND_OVERHEAD, CUpti_ActivityOverhead, overhead(r, &out))
		AS(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, CUpti_ActivityGraphTrace, graph(d, r, &out))
#undef AS
	case CUPTI_ACTIVITY_KIND_RUNTIME:
	case CUPTI_ACTIVITY_KIND_DRIVER:
		if (bytes < sizeof(CUpti_ActivityAPI))
			break;
		if (!call(d, r, record->kind == CUPTI_ACTIVITY_KIND_DRIVER, &out))
			return;
		decoded = true;
		break;
	default:
		break;
	}
	if (decoded)
		ring__write(d->ring, &out, sizeof(out));
	else
		__atomic_fetch_add(&d->ring->control->unknown, 1, __ATOMIC_RELAXED);
}
