/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The double of libcupti: records of what was done, of the kinds that are enabled. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/cupti_double.h"

#define KINDS                256
#define CBIDS_MAX            2048
#define EXTERNALS_MAX        16
#define HOUR_NS              (3600 * NS_PER_SEC)
#define ATTRIBUTE_THREAD_IDS 21 /* CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE, since 13.3 */

static struct {
	bool enabled[KINDS];
	bool api[3][CBIDS_MAX]; /* by core_library */
	bool system_tid;
	uint64_t made_gpu;
} activity;

static __thread struct {
	CUpti_ExternalCorrelationKind kind;
	uint64_t id;
} externals[EXTERNALS_MAX];
static __thread int external_count;

bool activity__enabled(CUpti_ActivityKind kind)
{
	return activity.enabled[kind];
}

static CUpti_ActivityKind kernel_kind(void)
{
	return activity.enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
								       : CUPTI_ACTIVITY_KIND_KERNEL;
}

/* What records of all kinds of work have, by the same names. */
#define PLACE(r)                                      \
	do {                                          \
		(r)->start = start;                   \
		(r)->end = end;                       \
		(r)->deviceId = op->device;           \
		(r)->contextId = op->context;         \
		(r)->streamId = op->stream;           \
		(r)->correlationId = op->correlation; \
	} while (0)

#define PLACE_IN_GRAPH(r)                          \
	do {                                       \
		(r)->graphNodeId = op->graph_node; \
		(r)->graphId = op->graph;          \
	} while (0)

static void kernel_record(record_kernel *r, const struct core_op *op, uint64_t start, uint64_t end)
{
	PLACE(r);
	PLACE_IN_GRAPH(r);
	r->gridX = op->grid[0];
	r->gridY = op->grid[1];
	r->gridZ = op->grid[2];
	r->blockX = op->block[0];
	r->blockY = op->block[1];
	r->blockZ = op->block[2];
	r->dynamicSharedMemory = op->shared_bytes;
	r->registersPerThread = op->registers;
	r->name = op->name;
	r->gridId = op->correlation;
}

static void copy_record(record_memcpy *r, const struct core_op *op, uint64_t start, uint64_t end)
{
	PLACE(r);
	PLACE_IN_GRAPH(r);
	r->copyKind = op->direction;
	r->flags = op->async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
	r->bytes = op->bytes;
}

static void peer_record(record_memcpy_peer *r, const struct core_op *op, uint64_t start, uint64_t end)
{
	PLACE(r);
	r->copyKind = op->direction;
	r->bytes = op->bytes;
	r->srcDeviceId = r->dstDeviceId = op->device;
}

static void set_record(record_memset *r, const struct core_op *op, uint64_t start, uint64_t end)
{
	PLACE(r);
	PLACE_IN_GRAPH(r);
	r->value = op->value;
	r->bytes = op->bytes;
}

static void graph_record(record_graph *r, const struct core_op *op, uint64_t start, uint64_t end)
{
	PLACE(r);
	r->graphId = op->graph;
}

static CUpti_ActivityKind kind_of(const struct core_op *op)
{
	switch (op->kind) {
	case CORE_KERNEL:
		return kernel_kind();
	case CORE_COPY:
		return op->direction == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP ? CUPTI_ACTIVITY_KIND_MEMCPY2
									: CUPTI_ACTIVITY_KIND_MEMCPY;
	case CORE_SET:
		return CUPTI_ACTIVITY_KIND_MEMSET;
	default:
		return CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
	}
}

/* Where graphs are traced as wholes, their nodes are not told. */
bool activity__op(const struct core_op *op)
{
	CUpti_ActivityKind kind = kind_of(op);
	struct item *item;
	uint64_t start = cupti__time(op->start_ns), end = cupti__time(op->end_ns), made;

	if (!activity.enabled[kind] ||
	    (op->kind != CORE_GRAPH && op->graph && activity.enabled[CUPTI_ACTIVITY_KIND_GRAPH_TRACE]))
		return false;
	made = __atomic_add_fetch(&activity.made_gpu, 1, __ATOMIC_RELAXED);
	if (cupti.settings.no_time && made % cupti.settings.no_time == 0)
		start = end = 0;
	if (cupti.settings.stale && made % cupti.settings.stale == 0) {
		start -= HOUR_NS;
		end -= HOUR_NS;
	}
	item = item__new(kind);
	switch ((int)kind) {
	case CUPTI_ACTIVITY_KIND_MEMCPY:
		copy_record(&item->copy, op, start, end);
		return item__add(item, sizeof(item->copy), op->end_ns);
	case CUPTI_ACTIVITY_KIND_MEMCPY2:
		peer_record(&item->peer, op, start, end);
		return item__add(item, sizeof(item->peer), op->end_ns);
	case CUPTI_ACTIVITY_KIND_MEMSET:
		set_record(&item->set, op, start, end);
		return item__add(item, sizeof(item->set), op->end_ns);
	case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
		graph_record(&item->graph, op, start, end);
		return item__add(item, sizeof(item->graph), op->end_ns);
	default:
		kernel_record(&item->kernel, op, start, end);
		return item__add(item, sizeof(item->kernel), op->end_ns);
	}
}

bool activity__sync(const struct core_sync *sync)
{
	struct item *item;

	if (!activity.enabled[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION])
		return false;
	item = item__new(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
	item->sync.type = (CUpti_ActivitySynchronizationType)sync->kind;
	item->sync.start = cupti__time(sync->start_ns);
	item->sync.end = cupti__time(sync->end_ns);
	item->sync.correlationId = sync->correlation;
	item->sync.contextId = sync->context;
	item->sync.streamId = sync->stream;
	item->sync.cudaEventId = sync->event;
	return item__add(item, sizeof(item->sync), sync->end_ns);
}

static uint32_t thread_id(void)
{
	return activity.system_tid ? cupti.core->tid() : (uint32_t)pthread_self();
}

static void add_external(const struct core_call *call)
{
	struct item *item;

	if (!external_count || !activity.enabled[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION])
		return;
	item = item__new(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
	item->external.externalKind = externals[external_count - 1].kind;
	item->external.externalId = externals[external_count - 1].id;
	item->external.correlationId = call->correlation;
	item__add(item, sizeof(item->external), call->inner_end_ns);
}

void activity__call(struct core_call *call)
{
	struct item *item;

	if (!activity.api[call->library][call->cbid])
		return;
	add_external(call);
	item = item__new(call->library == CORE_DRIVER ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME);
	item->api.cbid = call->cbid;
	item->api.start = cupti__time(call->inner_start_ns);
	item->api.end = cupti__time(call->inner_end_ns);
	item->api.processId = getpid();
	item->api.threadId = thread_id();
	item->api.correlationId = call->correlation;
	item->api.returnValue = call->result;
	call->recorded = item__add(item, sizeof(item->api), call->inner_end_ns);
}

void activity__reset(bool forked)
{
	memset(&activity, 0, sizeof(activity));
	buffers__reset(forked);
}

/* --- the functions --- */

static CUptiResult enable(CUpti_ActivityKind kind, bool on)
{
	if ((unsigned)kind >= CUPTI_ACTIVITY_KIND_COUNT)
		return CUPTI_ERROR_INVALID_KIND;
	if (cupti.settings.busy == 1 && on)
		cupti.core->log("{\"log\":\"error\",\"what\":\"a kind is enabled while another tool has CUPTI\"}");
	activity.enabled[kind] = on;
	if (kind == CUPTI_ACTIVITY_KIND_DRIVER || kind == CUPTI_ACTIVITY_KIND_RUNTIME)
		memset(activity.api[kind == CUPTI_ACTIVITY_KIND_DRIVER ? CORE_DRIVER : CORE_RUNTIME], on, CBIDS_MAX);
	if (on)
		buffers__start();
	return CUPTI_SUCCESS;
}

static CUptiResult enable_api(enum core_library library, CUpti_CallbackId cbid, bool on)
{
	if (cbid >= CBIDS_MAX)
		return CUPTI_ERROR_INVALID_PARAMETER;
	activity.api[library][cbid] = on;
	if (on)
		buffers__start();
	return CUPTI_SUCCESS;
}

/* What works for a subscriber alone, and what for one beside others. */
#define ALONE(body)              (callback__alone(__func__) ?: (body))
#define BESIDE(subscriber, body) (callback__beside(subscriber) ? (body) : CUPTI_ERROR_INVALID_PARAMETER)

static CUptiResult set_attribute(CUpti_ActivityAttribute attribute, const size_t *size, const void *value)
{
	if ((int)attribute == ATTRIBUTE_THREAD_IDS && *size == sizeof(CUpti_ActivityThreadIdType))
		activity.system_tid =
			*(const CUpti_ActivityThreadIdType *)value == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM;
	return CUPTI_SUCCESS;
}

CUPTI(cuptiActivityRegisterCallbacks,
      (CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete), 0,
      ALONE(buffers__register(request, complete)))
CUPTI(cuptiActivityRegisterCallbacks_v2,
      (CUpti_SubscriberHandle subscriber, CUpti_BuffersCallbackRequestFunc_v2 request,
       CUpti_BuffersCallbackCompleteFunc_v2 complete),
      0, BESIDE(subscriber, buffers__register_beside(request, complete)))
CUPTI(cuptiActivityEnable_v2,
      (CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, CUpti_ActivityConfig *config), kind,
      BESIDE(subscriber, enable(kind, true)))
CUPTI(cuptiActivityDisable_v2,
      (CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, CUpti_ActivityConfig *config), kind,
      BESIDE(subscriber, enable(kind, false)))
CUPTI(cuptiActivityGetNumDroppedRecords_v2,
      (CUpti_SubscriberHandle subscriber, CUcontext context, uint32_t stream, size_t *dropped), 0,
      BESIDE(subscriber, (*dropped = buffers__dropped(), CUPTI_SUCCESS)))
CUPTI(cuptiActivitySetAttribute_v2,
      (CUpti_SubscriberHandle subscriber, CUpti_ActivityAttribute attribute, size_t *size, void *value), attribute,
      BESIDE(subscriber, set_attribute(attribute, size, value)))

CUptiResult cuptiGetTimestamp_v2(CUpti_SubscriberHandle subscriber, uint64_t *timestamp)
{
	return BESIDE(subscriber, cuptiGetTimestamp(timestamp));
}

CUPTI(cuptiActivityEnable, (CUpti_ActivityKind kind), kind, ALONE(enable(kind, true)))
CUPTI(cuptiActivityEnableAndDump, (CUpti_ActivityKind kind), kind, ALONE(enable(kind, true)))
CUPTI(cuptiActivityDisable, (CUpti_ActivityKind kind), kind, ALONE(enable(kind, false)))
CUPTI(cuptiActivityEnableDriverApi, (CUpti_CallbackId cbid, uint8_t on), cbid, enable_api(CORE_DRIVER, cbid, on))
CUPTI(cuptiActivityEnableRuntimeApi, (CUpti_CallbackId cbid, uint8_t on), cbid, enable_api(CORE_RUNTIME, cbid, on))
CUPTI(cuptiActivityFlushAll, (uint32_t flag), flag, buffers__flush(flag))
CUPTI(cuptiActivityFlushPeriod, (uint32_t ms), ms, ALONE((buffers__set_period(ms), CUPTI_SUCCESS)))
CUPTI(cuptiActivityGetNumDroppedRecords, (CUcontext context, uint32_t stream, size_t *dropped), 0,
      ALONE((*dropped = buffers__dropped(), CUPTI_SUCCESS)))
CUPTI(cuptiSetThreadIdType, (CUpti_ActivityThreadIdType type), type,
      ALONE((activity.system_tid = type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM, CUPTI_SUCCESS)))
CUPTI(cuptiActivitySetAttribute, (CUpti_ActivityAttribute attribute, size_t *size, void *value), attribute,
      CUPTI_SUCCESS)
CUPTI(cuptiActivityEnableLatencyTimestamps, (uint8_t on), on, CUPTI_SUCCESS)

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
	if (external_count == EXTERNALS_MAX)
		return CUPTI_ERROR_OUT_OF_MEMORY;
	externals[external_count].kind = kind;
	externals[external_count++].id = id;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last)
{
	if (!external_count)
		return CUPTI_ERROR_QUEUE_EMPTY;
	external_count--;
	if (last)
		*last = externals[external_count].id;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetContextId(CUcontext context, uint32_t *id)
{
	*id = cupti.core->context_id(context);
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *id)
{
	*id = cupti.core->device_of(context);
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread, uint32_t *id)
{
	*id = cupti.core->stream_id(context, per_thread && !stream ? CU_STREAM_PER_THREAD : stream);
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function)
{
	return CUPTI_ERROR_NOT_SUPPORTED;
}
