/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The GPUs that the double of libcuda plays. One lock for all. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/gpu/sim.h"

#define LATENCY_NS      4000 /* between the call and the start on an idle GPU */
#define LEGACY_ID       7    /* as CUPTI numbers the default stream of a process's first context */
#define FIRST_STREAM_ID 13

static struct {
	pthread_mutex_t lock;
	bool ready, forked;
	uint32_t contexts, streams, events, graphs;
	struct sim_context *primary[SIM_DEVICES_MAX];
	struct core_function *functions;
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .streams = FIRST_STREAM_ID};

static void *make(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		abort();
	return p;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

int sim__device_count(void)
{
	const char *count = getenv("GPU_DOUBLE_DEVICES");
	int n = count ? atoi(count) : 2;

	return n < 0 ? 0 : n > SIM_DEVICES_MAX ? SIM_DEVICES_MAX : n;
}

bool sim__init(void)
{
	if (!sim.forked)
		sim.ready = true;
	return !sim.forked;
}

bool sim__ready(void)
{
	return sim.ready && !sim.forked;
}

/* A child cannot use what its parent has initialized, as with CUDA. */
void sim__forked(void)
{
	pthread_mutex_init(&sim.lock, NULL);
	sim.forked = sim.ready;
}

static void stream__init(struct sim_stream *stream, struct sim_context *context, uint32_t id, bool blocking)
{
	stream->context = context;
	stream->id = id;
	stream->blocking = blocking;
}

struct sim_context *sim__context_new(uint32_t device)
{
	struct sim_context *context = make(sizeof(*context));

	pthread_mutex_lock(&sim.lock);
	context->id = ++sim.contexts;
	context->device = device;
	stream__init(&context->legacy, context, context->id == 1 ? LEGACY_ID : sim.streams++, false);
	stream__init(&context->per_thread, context, sim.streams++, true);
	pthread_mutex_unlock(&sim.lock);
	return context;
}

struct sim_context *sim__primary(uint32_t device)
{
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&making);
	if (!sim.primary[device])
		sim.primary[device] = sim__context_new(device);
	pthread_mutex_unlock(&making);
	return sim.primary[device];
}

struct sim_stream *sim__stream_new(struct sim_context *context, bool blocking)
{
	struct sim_stream *stream = make(sizeof(*stream));

	pthread_mutex_lock(&sim.lock);
	stream__init(stream, context, sim.streams++, blocking);
	pthread_mutex_unlock(&sim.lock);
	return stream;
}

static struct sim_stream *stream_in(struct sim_context *context, const void *handle)
{
	uintptr_t value = (uintptr_t)handle;

	if (value > 2)
		return (struct sim_stream *)handle;
	if (!context)
		return NULL;
	return value == 2 ? &context->per_thread : &context->legacy; /* CU_STREAM_PER_THREAD, CU_STREAM_LEGACY */
}

struct sim_stream *sim__stream(const void *handle)
{
	return stream_in(core__thread()->context, handle);
}

struct sim_event *sim__event_new(void)
{
	struct sim_event *event = make(sizeof(*event));

	event->id = __atomic_add_fetch(&sim.events, 1, __ATOMIC_RELAXED);
	return event;
}

struct sim_graph *sim__graph_new(const struct sim_graph *like)
{
	struct sim_graph *graph = make(sizeof(*graph));

	graph->id = __atomic_add_fetch(&sim.graphs, 1, __ATOMIC_RELAXED);
	if (like && like->count) {
		graph->count = graph->room = like->count;
		graph->nodes = make(graph->room * sizeof(*graph->nodes));
		memcpy(graph->nodes, like->nodes, graph->count * sizeof(*graph->nodes));
	}
	return graph;
}

static void graph__add(struct sim_graph *graph, const struct core_op *op)
{
	if (graph->count == graph->room) {
		graph->room = graph->room * 2 + 16;
		graph->nodes = realloc(graph->nodes, graph->room * sizeof(*graph->nodes));
		if (!graph->nodes)
			abort();
	}
	graph->nodes[graph->count++] = *op;
}

static const char *const kinds[] = {
	[CORE_KERNEL] = "kernel", [CORE_COPY] = "copy", [CORE_SET] = "set",
	[CORE_GRAPH] = "graph",   [CORE_HOST] = "host",
};

static void tell_op(const struct core_op *op)
{
	const struct core_hooks *hooks = core__hooks();
	bool recorded = hooks && hooks->op(op);

	core__log("{\"log\":\"op\",\"kind\":\"%s\",\"name\":\"%s\",\"device\":%u,\"context\":%u,\"stream\":%u,"
		  "\"queued\":%lu,"
		  "\"start\":%lu,\"end\":%lu,\"correlation\":%u,\"bytes\":%lu,\"direction\":%u,\"grid\":[%u,%u,%u],"
		  "\"block\":[%u,%u,%u],\"shared\":%u,\"graph\":%u,\"graph_node\":%lu,\"recorded\":%s}",
		  kinds[op->kind], op->name ? op->name : "", op->device, op->context, op->stream, op->queued_ns,
		  op->start_ns, op->end_ns, op->correlation, op->bytes, op->direction, op->grid[0], op->grid[1],
		  op->grid[2], op->block[0], op->block[1], op->block[2], op->shared_bytes, op->graph, op->graph_node,
		  recorded ? "true" : "false");
}

/* Under the lock: when it runs. */
static void place(struct sim_stream *stream, struct core_op *op)
{
	struct sim_context *context = stream->context;
	bool legacy = stream == &context->legacy;

	op->queued_ns = core__now();
	op->start_ns = later(op->queued_ns + LATENCY_NS, stream->tail_ns);
	if (legacy)
		op->start_ns = later(op->start_ns, context->blocking_tail_ns);
	else if (stream->blocking)
		op->start_ns = later(op->start_ns, context->legacy.tail_ns);
	op->end_ns = op->start_ns + op->duration_ns;
	op->device = context->device;
	op->context = context->id;
	op->stream = stream->id;
	op->correlation = core__thread()->correlation;
	stream->tail_ns = op->end_ns;
	context->tail_ns = later(context->tail_ns, op->end_ns);
	if (stream->blocking)
		context->blocking_tail_ns = later(context->blocking_tail_ns, op->end_ns);
}

void sim__enqueue(struct sim_stream *stream, struct core_op *op)
{
	bool captured;

	pthread_mutex_lock(&sim.lock);
	captured = stream->capture;
	if (captured)
		graph__add(stream->capture, op);
	else
		place(stream, op);
	pthread_mutex_unlock(&sim.lock);
	if (!captured)
		tell_op(op);
}

void sim__launch_graph(struct sim_stream *stream, struct sim_graph *graph, struct core_op *whole)
{
	for (uint32_t i = 0; i < graph->count; i++) {
		struct core_op op = graph->nodes[i];

		op.graph = graph->id;
		op.graph_node = (uint64_t)graph->id << 32 | (i + 1);
		sim__enqueue(stream, &op);
		if (!i)
			*whole = op;
		whole->end_ns = op.end_ns;
	}
	whole->kind = CORE_GRAPH;
	whole->name = NULL;
	whole->graph = graph->id;
	whole->graph_node = 0;
	if (graph->count)
		tell_op(whole);
}

uint64_t sim__tail(struct sim_stream *stream)
{
	uint64_t tail_ns;

	pthread_mutex_lock(&sim.lock);
	tail_ns = stream->tail_ns;
	if (stream == &stream->context->legacy)
		tail_ns = later(tail_ns, stream->context->blocking_tail_ns);
	pthread_mutex_unlock(&sim.lock);
	return tail_ns;
}

void sim__record(struct sim_stream *stream, struct sim_event *event)
{
	event->time_ns = later(core__now(), sim__tail(stream));
}

static void tell_sync(enum core_sync_kind kind, struct sim_stream *stream, uint32_t context, uint32_t event,
		      uint64_t start_ns)
{
	const struct core_hooks *hooks = core__hooks();
	struct core_sync sync = {
		.kind = kind,
		.context = context,
		.stream = stream ? stream->id : UINT32_MAX,
		.event = event,
		.correlation = core__thread()->correlation,
		.start_ns = start_ns,
		.end_ns = core__now(),
	};
	bool recorded = hooks && hooks->sync(&sync);

	core__log("{\"log\":\"sync\",\"kind\":%u,\"context\":%u,\"stream\":%u,\"event\":%u,\"start\":%lu,\"end\":%lu,"
		  "\"correlation\":%u,\"recorded\":%s}",
		  kind, sync.context, sync.stream, event, start_ns, sync.end_ns, sync.correlation,
		  recorded ? "true" : "false");
}

void sim__wait_event(struct sim_stream *stream, struct sim_event *event)
{
	uint64_t start_ns = core__now();

	pthread_mutex_lock(&sim.lock);
	stream->tail_ns = later(stream->tail_ns, event->time_ns);
	pthread_mutex_unlock(&sim.lock);
	tell_sync(CORE_SYNC_STREAM_WAIT, stream, stream->context->id, event->id, start_ns);
}

/* CUDA spins by default where there are CPUs enough; tests have few. */
static void wait_until(uint64_t time_ns)
{
	struct timespec t = {.tv_sec = time_ns / NS_PER_SEC, .tv_nsec = time_ns % NS_PER_SEC};

	if (getenv("GPU_DOUBLE_SPIN"))
		while (core__now() < time_ns)
			;
	while (core__now() < time_ns)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* told: as a synchronization of its own, not as part of a copy. */
void sim__sync_stream(struct sim_stream *stream, bool told)
{
	uint64_t start_ns = core__now();

	wait_until(sim__tail(stream));
	if (told)
		tell_sync(CORE_SYNC_STREAM, stream, stream->context->id, 0, start_ns);
}

void sim__sync_context(struct sim_context *context, bool told)
{
	uint64_t start_ns = core__now(), tail_ns;

	pthread_mutex_lock(&sim.lock);
	tail_ns = context->tail_ns;
	pthread_mutex_unlock(&sim.lock);
	wait_until(tail_ns);
	if (told)
		tell_sync(CORE_SYNC_CONTEXT, NULL, context->id, 0, start_ns);
}

void sim__sync_event(struct sim_event *event)
{
	struct sim_context *context = core__thread()->context;
	uint64_t start_ns = core__now();

	wait_until(event->time_ns);
	tell_sync(CORE_SYNC_EVENT, NULL, context ? context->id : 0, event->id, start_ns);
}

const struct core_function *sim__function(const char *name)
{
	struct core_function *function;

	pthread_mutex_lock(&sim.lock);
	for (function = sim.functions; function && strcmp(function->name, name); function = function->next)
		;
	if (!function) {
		function = make(sizeof(*function));
		function->name = strdup(name);
		function->registers = 32 + strlen(name) % 200;
		function->next = sim.functions;
		sim.functions = function;
	}
	pthread_mutex_unlock(&sim.lock);
	return function;
}

uint32_t sim__context_id(const void *context)
{
	const struct sim_context *c = context ? context : core__thread()->context;

	return c ? c->id : 0;
}

uint32_t sim__device_of(const void *context)
{
	const struct sim_context *c = context ? context : core__thread()->context;

	return c ? c->device : 0;
}

uint32_t sim__stream_id(const void *context, const void *stream)
{
	const struct sim_stream *s =
		stream_in(context ? (struct sim_context *)context : core__thread()->context, stream);

	return s ? s->id : 0;
}

void *sim__current(void)
{
	return core__thread()->context;
}
