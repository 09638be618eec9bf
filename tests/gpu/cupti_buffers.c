/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The double of libcupti: records wait, each until it is complete, and then go into the client's buffers: full ones are
 * given back by a thread of CUPTI's, all of them by cuptiActivityFlushAll.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/cupti_double.h"

#define UNKNOWN_KIND 0x7eadbeef
#define WORKER_NS    (5 * NS_PER_MS)

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
	CUpti_BuffersCallbackRequestFunc_v2 request_beside; /* of a subscriber beside others, instead */
	CUpti_BuffersCallbackCompleteFunc_v2 complete_beside;
	uint32_t worker; /* odd: its thread works; grows by one at each change */
	uint32_t period_ms;
	struct item *first, **last;
	struct buffer *empty;
	struct buffer *begun; /* has records, and is not full; of who delivers */
	size_t pending_bytes, pending_count;
	uint64_t made, dropped;
	unsigned seed;
} buffers = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.delivering = PTHREAD_MUTEX_INITIALIZER,
	.last = &buffers.first,
};

/* --- buffers --- */

/* Asks the client for one, in whatever thread this is. */
static struct buffer *request_buffer(void)
{
	CUpti_BuffersCallbackRequestFunc request = buffers.request;
	struct buffer *buffer = calloc(1, sizeof(*buffer));

	if (!buffer)
		abort();
	if (buffers.request_beside)
		buffers.request_beside(&buffer->data, &buffer->size, &buffer->max, NULL);
	else if (request)
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
	if (buffers.complete_beside)
		buffers.complete_beside(buffer->data, buffer->size, buffer->used, NULL);
	else
		buffers.complete(NULL, 0, buffer->data, buffer->size, buffer->used);
	free(buffer);
}

/* late: it was said to come. */
static void drop(const struct item *item, bool late)
{
	__atomic_add_fetch(&buffers.dropped, 1, __ATOMIC_RELAXED);
	cupti.core->log("{\"log\":\"dropped\",\"kind\":%d,\"late\":%s}", item->any.kind, late ? "true" : "false");
}

/* --- records that wait --- */

/* Makes it wait until it is complete; time_ns: the end of what it tells of. Whether it will come. */
bool item__add(struct item *item, uint32_t size, uint64_t time_ns)
{
	struct buffer *buffer;
	bool kept;

	item->size = (size + 7) & ~7u;
	item->ready_ns = time_ns + cupti.settings.late_ms * NS_PER_MS;
	pthread_mutex_lock(&buffers.lock);
	if (!buffers.empty) {
		pthread_mutex_unlock(&buffers.lock);
		buffer = request_buffer();
		pthread_mutex_lock(&buffers.lock);
		if (buffer) {
			buffer->next = buffers.empty;
			buffers.empty = buffer;
		}
	}
	buffers.made++;
	kept = buffers.empty && !(cupti.settings.drop && buffers.made % cupti.settings.drop == 0);
	if (kept) {
		item->next = NULL;
		*buffers.last = item;
		buffers.last = &item->next;
		buffers.pending_bytes += item->size;
		buffers.pending_count++;
	}
	pthread_mutex_unlock(&buffers.lock);
	if (!kept) {
		drop(item, false);
		free(item);
	}
	return kept;
}

struct item *item__new(CUpti_ActivityKind kind)
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

	pthread_mutex_lock(&buffers.lock);
	for (struct item **at = &buffers.first; *at;) {
		struct item *item = *at;

		if (!all && item->ready_ns > now_ns) {
			at = &item->next;
			continue;
		}
		*at = item->next;
		buffers.pending_bytes -= item->size;
		buffers.pending_count--;
		if (cupti.settings.shuffle && rand_r(&buffers.seed) % 2) {
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
	for (buffers.last = &buffers.first; *buffers.last;)
		buffers.last = &(*buffers.last)->next;
	pthread_mutex_unlock(&buffers.lock);
	return taken;
}

static struct buffer *pop_empty(void)
{
	struct buffer *buffer;

	pthread_mutex_lock(&buffers.lock);
	buffer = buffers.empty;
	if (buffer)
		buffers.empty = buffer->next;
	pthread_mutex_unlock(&buffers.lock);
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

	if (!activity__enabled(CUPTI_ACTIVITY_KIND_OVERHEAD))
		return;
	item = item__new(CUPTI_ACTIVITY_KIND_OVERHEAD);
	item->overhead.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
	item->overhead.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
	item->overhead.objectId.pt.processId = getpid();
	item->overhead.objectId.pt.threadId = cupti.core->tid();
	item->overhead.start = cupti__time(start_ns);
	item->overhead.end = cupti__time(end_ns);
	cupti.core->log("{\"log\":\"overhead\",\"tid\":%u,\"start\":%lu,\"end\":%lu}", cupti.core->tid(), start_ns,
			end_ns);
	item__add(item, sizeof(item->overhead), end_ns);
}

/* Gives back the buffer that is not full, and, where all are wanted, those with nothing in them. */
static void give_back_rest(bool all)
{
	struct buffer *buffer;

	if (buffers.begun)
		give_back(buffers.begun);
	buffers.begun = NULL;
	pthread_mutex_lock(&buffers.lock);
	buffer = all ? buffers.empty : NULL;
	if (buffer)
		buffers.empty = NULL;
	pthread_mutex_unlock(&buffers.lock);
	for (struct buffer *next; buffer; buffer = next) {
		next = buffer->next;
		give_back(buffer);
	}
}

/* all: also what is not complete. flush: also buffers that are not full. */
static void deliver(bool all, bool flush)
{
	uint64_t start_ns = cupti.core->now(), n = 0;
	struct item *item, *next, strange = {.size = 16, .any.kind = (CUpti_ActivityKind)UNKNOWN_KIND};
	bool any;

	pthread_mutex_lock(&buffers.delivering);
	item = take(all);
	any = item != NULL;
	for (; item; item = next) {
		uint32_t size = item->size + (cupti.settings.unknown ? strange.size : 0);

		next = item->next;
		if (buffers.begun && !has_room(buffers.begun, size)) {
			give_back(buffers.begun);
			buffers.begun = NULL;
		}
		if (!buffers.begun)
			buffers.begun = pop_empty();
		if (all)
			cut_short(item);
		if (buffers.begun && has_room(buffers.begun, size)) {
			if (cupti.settings.unknown && ++n % cupti.settings.unknown == 0)
				put(buffers.begun, &strange);
			put(buffers.begun, item);
		} else {
			drop(item, true);
		}
		free(item);
	}
	if (flush)
		give_back_rest(all);
	pthread_mutex_unlock(&buffers.delivering);
	if (any)
		add_overhead(start_ns);
}

/* CUPTI's own thread gives back full buffers alone. */
static bool is_full(void)
{
	uint64_t records = cupti.settings.buffer_records;
	bool full;

	pthread_mutex_lock(&buffers.lock);
	full = buffers.empty &&
	       (buffers.pending_bytes >= buffers.empty->size || (records && buffers.pending_count >= records) ||
		(buffers.empty->max && buffers.pending_count >= buffers.empty->max));
	pthread_mutex_unlock(&buffers.lock);
	return full;
}

static void *work(void *arg)
{
	uint32_t mine = (uintptr_t)arg;

	for (;;) {
		uint64_t ns = buffers.period_ms ? buffers.period_ms * NS_PER_MS : WORKER_NS;
		struct timespec period = {.tv_sec = ns / NS_PER_SEC, .tv_nsec = ns % NS_PER_SEC};

		nanosleep(&period, NULL);
		if (__atomic_load_n(&buffers.worker, __ATOMIC_ACQUIRE) != mine)
			return NULL;
		if (is_full())
			deliver(false, false);
	}
}

void buffers__start(void)
{
	pthread_t id;

	pthread_mutex_lock(&buffers.lock);
	if (buffers.worker % 2 == 0) {
		buffers.worker++;
		if (pthread_create(&id, NULL, work, (void *)(uintptr_t)buffers.worker))
			abort();
		pthread_setname_np(id, "gpu-double-cupt");
		pthread_detach(id);
	}
	pthread_mutex_unlock(&buffers.lock);
}

void buffers__set_period(uint32_t ms)
{
	buffers.period_ms = ms;
}

uint64_t buffers__dropped(void)
{
	return __atomic_exchange_n(&buffers.dropped, 0, __ATOMIC_RELAXED);
}

CUptiResult buffers__register(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete)
{
	if (!request || !complete)
		return CUPTI_ERROR_INVALID_PARAMETER;
	buffers.request = request;
	buffers.complete = complete;
	buffers.request_beside = NULL;
	buffers.complete_beside = NULL;
	return CUPTI_SUCCESS;
}

CUptiResult buffers__register_beside(CUpti_BuffersCallbackRequestFunc_v2 request,
				     CUpti_BuffersCallbackCompleteFunc_v2 complete)
{
	if (!request || !complete)
		return CUPTI_ERROR_INVALID_PARAMETER;
	buffers.request_beside = request;
	buffers.complete_beside = complete;
	return CUPTI_SUCCESS;
}

CUptiResult buffers__flush(uint32_t flag)
{
	if (!buffers.complete && !buffers.complete_beside)
		return CUPTI_ERROR_INVALID_OPERATION;
	if (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)
		callback__alone("a forced flush");
	deliver(flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, true);
	return CUPTI_SUCCESS;
}

/* forked: the locks are as they were in another thread, and CUPTI's thread is not there. What waits is lost. */
void buffers__reset(bool forked)
{
	if (forked) {
		pthread_mutex_init(&buffers.lock, NULL);
		pthread_mutex_init(&buffers.delivering, NULL);
	}
	pthread_mutex_lock(&buffers.lock);
	buffers.worker += buffers.worker % 2;
	buffers.period_ms = 0;
	for (struct item *item = buffers.first, *next; item; item = next) {
		next = item->next;
		drop(item, true);
		free(item);
	}
	free(buffers.begun);
	buffers.begun = NULL;
	buffers.first = NULL;
	buffers.last = &buffers.first;
	buffers.pending_bytes = buffers.pending_count = 0;
	pthread_mutex_unlock(&buffers.lock);
}

uint32_t buffers__record_size(CUpti_ActivityKind kind)
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

static CUptiResult next_record(uint8_t *buffer, size_t bytes, CUpti_Activity **record)
{
	uint8_t *at;

	if (!buffer)
		return CUPTI_ERROR_INVALID_PARAMETER;
	at = *record ? (uint8_t *)*record + ((buffers__record_size((*record)->kind) + 7) & ~7u) : buffer;
	if (at >= buffer + bytes)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*record = (CUpti_Activity *)at;
	return buffers__record_size((*record)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, CUpti_Activity **record)
{
	CUptiResult result = callback__alone(__func__);

	return result ? result : next_record(buffer, bytes, record);
}

CUptiResult cuptiActivityGetNextRecord_v2(CUpti_SubscriberHandle subscriber, uint8_t *buffer, size_t bytes,
					  CUpti_Activity **record)
{
	return callback__beside(subscriber) ? next_record(buffer, bytes, record) : CUPTI_ERROR_INVALID_PARAMETER;
}
