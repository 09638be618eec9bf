/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The double of libcupti: records of what was done. They wait, each until it is complete, and then go into the client's
 * buffers: full ones are given back by a thread of CUPTI's, all of them by cuptiActivityFlushAll.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cupti_double.h"
#include "cupti_records.h" /* record_kernel and so on: the newest struct of each that the header has */

#define KINDS         256
#define CBIDS_MAX     2048
#define UNKNOWN_KIND  0x7eadbeef
#define WORKER_NS     (5 * NS_PER_MS)
#define EXTERNALS_MAX 16

struct item {
	struct item *next;
	uint64_t ready_ns;
	uint32_t size;
	union {
		CUpti_Activity any;
		record_kernel kernel;
		record_memcpy copy;
		record_memcpy_peer peer;
		record_memset set;
		record_sync sync;
		record_overhead overhead;
		record_graph graph;
		record_device device;
		CUpti_ActivityAPI api;
		CUpti_ActivityExternalCorrelation external;
		uint8_t bytes[1];
	};
};

struct buffer {
	struct buffer *next;
	uint8_t *data;
	size_t size, used, count, max;
};

static struct {
	pthread_mutex_t lock;
	pthread_mutex_t delivering; /* held by who gives buffers back */
	CUpti_BuffersCallbackRequestFunc request;
	CUpti_BuffersCallbackCompleteFunc complete;
	bool enabled[KINDS];
	bool api[3][CBIDS_MAX];
	bool system_tid, worker;
	uint32_t period_ms;
	struct item *first, **last;
	struct buffer *empty;
	size_t pending_bytes, pending_count;
	uint64_t made, made_gpu, dropped;
	unsigned seed;
} activity = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.delivering = PTHREAD_MUTEX_INITIALIZER,
	.last = &activity.first,
};

static __thread struct {
	CUpti_ExternalCorrelationKind kind;
	uint64_t id;
} externals[EXTERNALS_MAX];
static __thread int external_count;

/* --- buffers --- */

/* Asks the client for one, in whatever thread this is. */
static struct buffer *request_buffer(void)
{
	CUpti_BuffersCallbackRequestFunc request = activity.request;
	struct buffer *buffer = calloc(1, sizeof(*buffer));

	if (!buffer)
		abort();
	if (request)
		request(&buffer->data, &buffer->size, &buffer->max);
	if ((uintptr_t)buffer->data % 8)
		cupti.core->log("{\"log\":\"error\",\"what\":\"a buffer that is not aligned\"}");
	if (buffer->data)
		return buffer;
	free(buffer);
	return NULL;
}

static bool has_room(const struct buffer *buffer, uint32_t size)
{
	uint64_t records = cupti.settings.buffer_records;

	return buffer->used + size <= buffer->size && (!buffer->max || buffer->count < buffer->max) &&
	       (!records || buffer->count < records);
}

static void give_back(struct buffer *buffer)
{
	cupti.core->log("{\"log\":\"delivered\",\"records\":%zu,\"bytes\":%zu,\"tid\":%u,\"time\":%lu}", buffer->count,
			buffer->used, cupti.core->tid(), cupti.core->now());
	activity.complete(NULL, 0, buffer->data, buffer->size, buffer->used);
	free(buffer);
}

static void drop(const struct item *item)
{
	__atomic_add_fetch(&activity.dropped, 1, __ATOMIC_RELAXED);
	cupti.core->log("{\"log\":\"dropped\",\"kind\":%d}", item->any.kind);
}

/* --- records that wait --- */

/* Makes it wait until it is complete; time_ns: the end of what it tells of. Whether it will come. */
static bool add(struct item *item, uint32_t size, uint64_t time_ns)
{
	struct buffer *buffer = NULL;
	bool kept, wanted;

	item->size = (size + 7) & ~7u;
	item->ready_ns = time_ns + cupti.settings.late_ms * NS_PER_MS;
	wanted = !activity.empty;
	if (wanted)
		buffer = request_buffer();
	pthread_mutex_lock(&activity.lock);
	if (buffer) {
		buffer->next = activity.empty;
		activity.empty = buffer;
	}
	activity.made++;
	kept = activity.empty && !(cupti.settings.drop && activity.made % cupti.settings.drop == 0);
	if (kept) {
		item->next = NULL;
		*activity.last = item;
		activity.last = &item->next;
		activity.pending_bytes += item->size;
		activity.pending_count++;
	}
	pthread_mutex_unlock(&activity.lock);
	if (!kept) {
		drop(item);
		free(item);
	}
	return kept;
}

static struct item *new_item(CUpti_ActivityKind kind)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		abort();
	item->any.kind = kind;
	return item;
}

/* Those that are complete, or all; in the order of making, or in any. */
static struct item *take(bool all)
{
	uint64_t now_ns = cupti.core->now();
	struct item *taken = NULL, **end = &taken;

	pthread_mutex_lock(&activity.lock);
	for (struct item **at = &activity.first; *at;) {
		struct item *item = *at;

		if (!all && item->ready_ns > now_ns) {
			at = &item->next;
			continue;
		}
		*at = item->next;
		activity.pending_bytes -= item->size;
		activity.pending_count--;
		if (cupti.settings.shuffle && rand_r(&activity.seed) % 2) {
			item->next = taken;
			if (!taken)
				end = &item->next;
			taken = item;
		} else {
			item->next = NULL;
			*end = item;
			end = &item->next;
		}
	}
	for (activity.last = &activity.first; *activity.last;)
		activity.last = &(*activity.last)->next;
	pthread_mutex_unlock(&activity.lock);
	return taken;
}

static struct buffer *pop_empty(void)
{
	struct buffer *buffer;

	pthread_mutex_lock(&activity.lock);
	buffer = activity.empty;
	if (buffer)
		activity.empty = buffer->next;
	pthread_mutex_unlock(&activity.lock);
	return buffer ? buffer : request_buffer();
}

static void put(struct buffer *buffer, const struct item *item)
{
	memcpy(buffer->data + buffer->used, item->bytes, item->size);
	buffer->used += item->size;
	buffer->count++;
}

/* A forced flush gives what is not over yet without its times. */
static void cut_short(struct item *item)
{
	if (item->ready_ns <= cupti.core->now())
		return;
	if (item->any.kind == CUPTI_ACTIVITY_KIND_KERNEL || item->any.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
		item->kernel.start = item->kernel.end = 0;
	else if (item->any.kind == CUPTI_ACTIVITY_KIND_MEMCPY)
		item->copy.start = item->copy.end = 0;
	else if (item->any.kind == CUPTI_ACTIVITY_KIND_MEMSET)
		item->set.start = item->set.end = 0;
}

static void add_overhead(uint64_t start_ns)
{
	struct item *item;
	uint64_t end_ns = cupti.core->now();

	if (!activity.enabled[CUPTI_ACTIVITY_KIND_OVERHEAD])
		return;
	item = new_item(CUPTI_ACTIVITY_KIND_OVERHEAD);
	item->overhead.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
	item->overhead.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
	item->overhead.objectId.pt.processId = getpid();
	item->overhead.objectId.pt.threadId = cupti.core->tid();
	item->overhead.start = cupti__time(start_ns);
	item->overhead.end = cupti__time(end_ns);
	cupti.core->log("{\"log\":\"overhead\",\"start\":%lu,\"end\":%lu}", start_ns, end_ns);
	add(item, sizeof(item->overhead), end_ns);
}

/* all: also what is not complete, and buffers with nothing in them. */
static void deliver(bool all)
{
	uint64_t start_ns = cupti.core->now(), n = 0;
	struct item *item, *next, strange = {.size = 16, .any.kind = (CUpti_ActivityKind)UNKNOWN_KIND};
	struct buffer *buffer = NULL;

	pthread_mutex_lock(&activity.delivering);
	item = take(all);
	n = item != NULL;
	for (; item; item = next) {
		uint32_t size = item->size + (cupti.settings.unknown ? strange.size : 0);

		next = item->next;
		if (buffer && !has_room(buffer, size)) {
			give_back(buffer);
			buffer = NULL;
		}
		if (!buffer)
			buffer = pop_empty();
		if (all)
			cut_short(item);
		if (buffer && has_room(buffer, size)) {
			if (cupti.settings.unknown && ++n % cupti.settings.unknown == 0)
				put(buffer, &strange);
			put(buffer, item);
		} else {
			drop(item);
		}
		free(item);
	}
	if (buffer)
		give_back(buffer);
	pthread_mutex_lock(&activity.lock);
	buffer = all ? activity.empty : NULL;
	if (buffer)
		activity.empty = NULL;
	pthread_mutex_unlock(&activity.lock);
	for (struct buffer *after; buffer; buffer = after) {
		after = buffer->next;
		give_back(buffer);
	}
	pthread_mutex_unlock(&activity.delivering);
	if (n)
		add_overhead(start_ns);
}

/* CUPTI's own thread gives back full buffers alone. */
static bool is_full(void)
{
	uint64_t records = cupti.settings.buffer_records;
	bool full;

	pthread_mutex_lock(&activity.lock);
	full = activity.empty &&
	       (activity.pending_bytes >= activity.empty->size || (records && activity.pending_count >= records) ||
		(activity.empty->max && activity.pending_count >= activity.empty->max));
	pthread_mutex_unlock(&activity.lock);
	return full;
}

static void *work(void *arg)
{
	for (;;) {
		uint64_t ns = activity.period_ms ? activity.period_ms * NS_PER_MS : WORKER_NS;
		struct timespec period = {.tv_sec = ns / NS_PER_SEC, .tv_nsec = ns % NS_PER_SEC};

		nanosleep(&period, NULL);
		if (!__atomic_load_n(&activity.worker, __ATOMIC_ACQUIRE))
			return arg;
		if (is_full())
			deliver(false);
	}
}

static void start_worker(void)
{
	pthread_t id;

	if (__atomic_exchange_n(&activity.worker, true, __ATOMIC_ACQ_REL))
		return;
	if (pthread_create(&id, NULL, work, NULL))
		abort();
	pthread_setname_np(id, "gpu-double-cupt");
	pthread_detach(id);
}

/* --- what is told --- */

static CUpti_ActivityKind kernel_kind(void)
{
	return activity.enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
								       : CUPTI_ACTIVITY_KIND_KERNEL;
}

static void kernel_record(record_kernel *r, const struct core_op *op, uint64_t start, uint64_t end)
{
	r->start = start;
	r->end = end;
	r->deviceId = op->device;
	r->contextId = op->context;
	r->streamId = op->stream;
	r->correlationId = op->correlation;
	r->gridX = op->grid[0];
	r->gridY = op->grid[1];
	r->gridZ = op->grid[2];
	r->blockX = op->block[0];
	r->blockY = op->block[1];
	r->blockZ = op->block[2];
	r->dynamicSharedMemory = op->shared_bytes;
	r->registersPerThread = op->registers;
	r->name = op->name;
	r->graphNodeId = op->graph_node;
	r->graphId = op->graph;
	r->gridId = op->correlation;
}

static void copy_record(struct item *item, const struct core_op *op, uint64_t start, uint64_t end)
{
	record_memcpy *r = &item->copy;

	r->copyKind = op->direction;
	r->flags = op->async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
	r->bytes = op->bytes;
	r->start = start;
	r->end = end;
	r->deviceId = op->device;
	r->contextId = op->context;
	r->streamId = op->stream;
	r->correlationId = op->correlation;
	r->graphNodeId = op->graph_node;
	r->graphId = op->graph;
}

static void peer_record(struct item *item, const struct core_op *op, uint64_t start, uint64_t end)
{
	record_memcpy_peer *r = &item->peer;

	r->copyKind = op->direction;
	r->bytes = op->bytes;
	r->start = start;
	r->end = end;
	r->deviceId = r->srcDeviceId = r->dstDeviceId = op->device;
	r->contextId = op->context;
	r->streamId = op->stream;
	r->correlationId = op->correlation;
}

static void set_record(record_memset *r, const struct core_op *op, uint64_t start, uint64_t end)
{
	r->value = op->value;
	r->bytes = op->bytes;
	r->start = start;
	r->end = end;
	r->deviceId = op->device;
	r->contextId = op->context;
	r->streamId = op->stream;
	r->correlationId = op->correlation;
	r->graphNodeId = op->graph_node;
	r->graphId = op->graph;
}

static void graph_record(record_graph *r, const struct core_op *op, uint64_t start, uint64_t end)
{
	r->start = start;
	r->end = end;
	r->deviceId = op->device;
	r->contextId = op->context;
	r->streamId = op->stream;
	r->correlationId = op->correlation;
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
	uint64_t start = cupti__time(op->start_ns), end = cupti__time(op->end_ns);

	if (!activity.enabled[kind] ||
	    (op->kind != CORE_GRAPH && op->graph && activity.enabled[CUPTI_ACTIVITY_KIND_GRAPH_TRACE]))
		return false;
	if (cupti.settings.no_time &&
	    __atomic_add_fetch(&activity.made_gpu, 1, __ATOMIC_RELAXED) % cupti.settings.no_time == 0)
		start = end = 0;
	item = new_item(kind);
	switch ((int)kind) {
	case CUPTI_ACTIVITY_KIND_MEMCPY:
		copy_record(item, op, start, end);
		return add(item, sizeof(item->copy), op->end_ns);
	case CUPTI_ACTIVITY_KIND_MEMCPY2:
		peer_record(item, op, start, end);
		return add(item, sizeof(item->peer), op->end_ns);
	case CUPTI_ACTIVITY_KIND_MEMSET:
		set_record(&item->set, op, start, end);
		return add(item, sizeof(item->set), op->end_ns);
	case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
		graph_record(&item->graph, op, start, end);
		return add(item, sizeof(item->graph), op->end_ns);
	default:
		kernel_record(&item->kernel, op, start, end);
		return add(item, sizeof(item->kernel), op->end_ns);
	}
}

bool activity__sync(const struct core_sync *sync)
{
	struct item *item;

	if (!activity.enabled[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION])
		return false;
	item = new_item(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
	item->sync.type = (CUpti_ActivitySynchronizationType)sync->kind;
	item->sync.start = cupti__time(sync->start_ns);
	item->sync.end = cupti__time(sync->end_ns);
	item->sync.correlationId = sync->correlation;
	item->sync.contextId = sync->context;
	item->sync.streamId = sync->stream;
	item->sync.cudaEventId = sync->event;
	return add(item, sizeof(item->sync), sync->end_ns);
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
	item = new_item(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
	item->external.externalKind = externals[external_count - 1].kind;
	item->external.externalId = externals[external_count - 1].id;
	item->external.correlationId = call->correlation;
	add(item, sizeof(item->external), call->inner_end_ns);
}

void activity__call(struct core_call *call)
{
	struct item *item;

	if (!activity.api[call->library][call->cbid])
		return;
	add_external(call);
	item = new_item(call->library == CORE_DRIVER ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME);
	item->api.cbid = call->cbid;
	item->api.start = cupti__time(call->inner_start_ns);
	item->api.end = cupti__time(call->inner_end_ns);
	item->api.processId = getpid();
	item->api.threadId = thread_id();
	item->api.correlationId = call->correlation;
	item->api.returnValue = call->result;
	call->recorded = add(item, sizeof(item->api), call->inner_end_ns);
}

/* forked: the locks are as they were in another thread, and CUPTI's thread is not there. */
void activity__reset(bool forked)
{
	if (forked) {
		pthread_mutex_init(&activity.lock, NULL);
		pthread_mutex_init(&activity.delivering, NULL);
	}
	pthread_mutex_lock(&activity.lock);
	memset(activity.enabled, 0, sizeof(activity.enabled));
	memset(activity.api, 0, sizeof(activity.api));
	activity.worker = false;
	activity.period_ms = 0;
	for (struct item *item = activity.first, *next; item; item = next) {
		next = item->next;
		cupti.core->log("{\"log\":\"abandoned\",\"kind\":%d}", item->any.kind);
		free(item);
	}
	activity.first = NULL;
	activity.last = &activity.first;
	activity.pending_bytes = activity.pending_count = 0;
	pthread_mutex_unlock(&activity.lock);
}

/* --- the functions --- */

static CUptiResult register_callbacks(CUpti_BuffersCallbackRequestFunc request,
				      CUpti_BuffersCallbackCompleteFunc complete)
{
	if (!request || !complete)
		return CUPTI_ERROR_INVALID_PARAMETER;
	activity.request = request;
	activity.complete = complete;
	return CUPTI_SUCCESS;
}

static CUptiResult enable(CUpti_ActivityKind kind, bool on)
{
	if ((unsigned)kind >= CUPTI_ACTIVITY_KIND_COUNT)
		return CUPTI_ERROR_INVALID_KIND;
	if (cupti.settings.busy && on)
		cupti.core->log("{\"log\":\"error\",\"what\":\"a kind is enabled while another tool has CUPTI\"}");
	activity.enabled[kind] = on;
	if (kind == CUPTI_ACTIVITY_KIND_DRIVER || kind == CUPTI_ACTIVITY_KIND_RUNTIME)
		memset(activity.api[kind == CUPTI_ACTIVITY_KIND_DRIVER ? CORE_DRIVER : CORE_RUNTIME], on, CBIDS_MAX);
	if (on)
		start_worker();
	return CUPTI_SUCCESS;
}

static CUptiResult enable_api(enum core_library library, CUpti_CallbackId cbid, bool on)
{
	if (cbid >= CBIDS_MAX)
		return CUPTI_ERROR_INVALID_PARAMETER;
	activity.api[library][cbid] = on;
	if (on)
		start_worker();
	return CUPTI_SUCCESS;
}

static CUptiResult flush_all(uint32_t flag)
{
	if (!activity.complete)
		return CUPTI_ERROR_INVALID_OPERATION;
	deliver(flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	return CUPTI_SUCCESS;
}

CUPTI(cuptiActivityRegisterCallbacks,
      (CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete), 0,
      register_callbacks(request, complete))
CUPTI(cuptiActivityEnable, (CUpti_ActivityKind kind), kind, enable(kind, true))
CUPTI(cuptiActivityEnableAndDump, (CUpti_ActivityKind kind), kind, enable(kind, true))
CUPTI(cuptiActivityDisable, (CUpti_ActivityKind kind), kind, enable(kind, false))
CUPTI(cuptiActivityEnableDriverApi, (CUpti_CallbackId cbid, uint8_t on), cbid, enable_api(CORE_DRIVER, cbid, on))
CUPTI(cuptiActivityEnableRuntimeApi, (CUpti_CallbackId cbid, uint8_t on), cbid, enable_api(CORE_RUNTIME, cbid, on))
CUPTI(cuptiActivityFlushAll, (uint32_t flag), flag, flush_all(flag))
CUPTI(cuptiActivityFlushPeriod, (uint32_t ms), ms, (activity.period_ms = ms, CUPTI_SUCCESS))
CUPTI(cuptiActivityGetNumDroppedRecords, (CUcontext context, uint32_t stream, size_t *dropped), 0,
      (*dropped = __atomic_exchange_n(&activity.dropped, 0, __ATOMIC_RELAXED), CUPTI_SUCCESS))
CUPTI(cuptiSetThreadIdType, (CUpti_ActivityThreadIdType type), type,
      (activity.system_tid = type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM, CUPTI_SUCCESS))
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

static uint32_t record_size(CUpti_ActivityKind kind)
{
	switch ((int)kind) {
	case CUPTI_ACTIVITY_KIND_KERNEL:
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
		return sizeof(record_kernel);
	case CUPTI_ACTIVITY_KIND_MEMCPY:
		return sizeof(record_memcpy);
	case CUPTI_ACTIVITY_KIND_MEMCPY2:
		return sizeof(record_memcpy_peer);
	case CUPTI_ACTIVITY_KIND_MEMSET:
		return sizeof(record_memset);
	case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
		return sizeof(record_sync);
	case CUPTI_ACTIVITY_KIND_OVERHEAD:
		return sizeof(record_overhead);
	case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
		return sizeof(record_graph);
	case CUPTI_ACTIVITY_KIND_DEVICE:
		return sizeof(record_device);
	case CUPTI_ACTIVITY_KIND_DRIVER:
	case CUPTI_ACTIVITY_KIND_RUNTIME:
		return sizeof(CUpti_ActivityAPI);
	case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
		return sizeof(CUpti_ActivityExternalCorrelation);
	case UNKNOWN_KIND:
		return 16;
	default:
		return 0;
	}
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, CUpti_Activity **record)
{
	uint8_t *at;

	if (!buffer)
		return CUPTI_ERROR_INVALID_PARAMETER;
	at = *record ? (uint8_t *)*record + ((record_size((*record)->kind) + 7) & ~7u) : buffer;
	if (at >= buffer + bytes)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*record = (CUpti_Activity *)at;
	return record_size((*record)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}
