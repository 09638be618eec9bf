/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The double of libcupti: a record goes into the buffer of the thread that makes it, at once, and is complete when what
 * it tells of is over. A buffer is given back when all of its records are complete: full ones by a thread of CUPTI's,
 * the others by cuptiActivityFlushAll, which forced gives back all.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/cupti_double.h"

#define UNKNOWN_KIND 0x7eadbeef
#define WORKER_NS    (5 * NS_PER_MS)
#define REFUSABLE    27 /* before, CUPTI crashed where it was refused a buffer */

struct buffer {
	struct buffer *next;
	uint8_t *data;
	size_t size, used, count, max;
	uint32_t owner; /* thread; 0: all of them */
	bool full;
	uint64_t ready_ns; /* all of its records are complete then */
	struct item *first, **last;
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
	struct buffer *first; /* those that the client gave, the newest first */
	uint64_t made, dropped;
	unsigned seed;
} buffers = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.delivering = PTHREAD_MUTEX_INITIALIZER,
};

/* --- buffers --- */

/* Asks the client for one, in whatever thread this is. */
static struct buffer *request_buffer(uint32_t owner)
{
	CUpti_BuffersCallbackRequestFunc request = buffers.request;
	struct buffer *buffer = calloc(1, sizeof(*buffer));

	if (!buffer)
		abort();
	buffer->owner = owner;
	buffer->last = &buffer->first;
	if (buffers.request_beside)
		buffers.request_beside(&buffer->data, &buffer->size, &buffer->max, NULL);
	else if (request)
		request(&buffer->data, &buffer->size, &buffer->max);
	if ((uintptr_t)buffer->data % 8)
		cupti.core->log("{\"log\":\"error\",\"what\":\"a buffer that is not aligned\"}");
	if (buffer->data)
		return buffer;
	if (request && cupti.settings.version < REFUSABLE)
		cupti.core->log("{\"log\":\"error\",\"what\":\"no buffer, where CUPTI crashes without\"}");
	free(buffer);
	return NULL;
}

static bool has_room(const struct buffer *buffer, uint32_t size)
{
	uint64_t records = cupti.settings.buffer_records;

	return !buffer->full && buffer->used + size <= buffer->size && (!buffer->max || buffer->count < buffer->max) &&
	       (!records || buffer->count < records);
}

static void put(struct buffer *buffer, size_t *at, const struct item *item)
{
	memcpy(buffer->data + *at, item->bytes, item->size);
	*at += item->size;
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

/* Writes the records, in the order of making or in any. */
static void fill(struct buffer *buffer)
{
	size_t at = 0;

	memset(buffer->data, 0, buffer->size);
	while (buffer->first) {
		struct item **from = &buffer->first, *item;

		while (cupti.settings.shuffle && (*from)->next && rand_r(&buffers.seed) % 2)
			from = &(*from)->next;
		item = *from;
		*from = item->next;
		cut_short(item);
		put(buffer, &at, item);
		free(item);
	}
}

static void give_back(struct buffer *buffer)
{
	fill(buffer);
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

/* --- records --- */

struct item *item__new(CUpti_ActivityKind kind)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		abort();
	item->any.kind = kind;
	return item;
}

static void append(struct buffer *buffer, struct item *item)
{
	item->next = NULL;
	*buffer->last = item;
	buffer->last = &item->next;
	buffer->used += item->size;
	buffer->count++;
	if (item->ready_ns > buffer->ready_ns)
		buffer->ready_ns = item->ready_ns;
}

/* Of an owner, with room for a record; another one of its, which has none, is full. Locked. */
static struct buffer *find_room(uint32_t owner, uint32_t size)
{
	for (struct buffer *b = buffers.first; b; b = b->next) {
		if (b->owner != owner || b->full)
			continue;
		if (has_room(b, size))
			return b;
		b->full = true;
	}
	return NULL;
}

/* Takes it over; time_ns: the end of what it tells of. Whether it will come. */
bool item__add(struct item *item, uint32_t size, uint64_t time_ns)
{
	uint32_t owner = cupti.settings.per_thread ? cupti.core->tid() : 0;
	struct item *strange = NULL;
	struct buffer *buffer;
	bool kept;

	item->size = (size + 7) & ~7u;
	item->ready_ns = time_ns + cupti.settings.late_ms * NS_PER_MS;
	pthread_mutex_lock(&buffers.lock);
	buffers.made++;
	kept = !cupti.settings.drop || buffers.made % cupti.settings.drop;
	if (cupti.settings.unknown && buffers.made % cupti.settings.unknown == 0) {
		strange = item__new((CUpti_ActivityKind)UNKNOWN_KIND);
		strange->size = 16;
	}
	size = item->size + (strange ? strange->size : 0);
	buffer = kept ? find_room(owner, size) : NULL;
	if (kept && !buffer) {
		pthread_mutex_unlock(&buffers.lock);
		buffer = request_buffer(owner);
		pthread_mutex_lock(&buffers.lock);
		if (buffer) {
			buffer->next = buffers.first;
			buffers.first = buffer;
		}
		kept = buffer && buffer->used + size <= buffer->size;
	}
	if (kept && strange)
		append(buffer, strange);
	else
		free(strange);
	if (kept)
		append(buffer, item);
	pthread_mutex_unlock(&buffers.lock);
	if (!kept) {
		drop(item, false);
		free(item);
	}
	return kept;
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

static bool is_full(const struct buffer *buffer)
{
	return buffer->full || !has_room(buffer, sizeof(struct item));
}

/* Takes those that may be given back, the oldest first. all: also those of which records are not complete. */
static struct buffer *take(bool all, bool flush)
{
	uint64_t now_ns = cupti.core->now();
	struct buffer *taken = NULL;

	pthread_mutex_lock(&buffers.lock);
	for (struct buffer **at = &buffers.first; *at;) {
		struct buffer *buffer = *at;

		if (!all && (buffer->ready_ns > now_ns || !(flush || is_full(buffer)))) {
			at = &buffer->next;
			continue;
		}
		*at = buffer->next;
		buffer->next = taken;
		taken = buffer;
	}
	pthread_mutex_unlock(&buffers.lock);
	return taken;
}

static void deliver(bool all, bool flush)
{
	uint64_t start_ns = cupti.core->now();
	struct buffer *buffer, *next;
	bool any;

	pthread_mutex_lock(&buffers.delivering);
	buffer = take(all, flush);
	any = buffer != NULL;
	for (; buffer; buffer = next) {
		next = buffer->next;
		give_back(buffer);
	}
	pthread_mutex_unlock(&buffers.delivering);
	if (any)
		add_overhead(start_ns);
}

/* CUPTI's own thread gives back full buffers alone. */
static void *work(void *arg)
{
	uint32_t mine = (uintptr_t)arg;

	for (;;) {
		uint64_t ns = buffers.period_ms ? buffers.period_ms * NS_PER_MS : WORKER_NS;
		struct timespec period = {.tv_sec = ns / NS_PER_SEC, .tv_nsec = ns % NS_PER_SEC};

		nanosleep(&period, NULL);
		if (__atomic_load_n(&buffers.worker, __ATOMIC_ACQUIRE) != mine)
			return NULL;
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
	for (struct buffer *buffer = buffers.first, *next; buffer; buffer = next) {
		next = buffer->next;
		for (struct item *item = buffer->first, *after; item; item = after) {
			after = item->next;
			drop(item, true);
			free(item);
		}
		free(buffer);
	}
	buffers.first = NULL;
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
