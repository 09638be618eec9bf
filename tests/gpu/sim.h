/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The GPUs that the double of libcuda plays: contexts, streams, events, graphs. All is kept until the process ends. */
#ifndef STEPFLAME_TESTS_GPU_SIM_H
#define STEPFLAME_TESTS_GPU_SIM_H

#include "tests/gpu/core.h"

#define SIM_DEVICES_MAX 8

struct sim_graph {
	uint32_t id;
	uint32_t count, room;
	struct core_op *nodes;
};

struct sim_stream {
	struct sim_context *context;
	uint32_t id;
	bool blocking;    /* waits for the legacy default stream, and is waited for by it */
	uint64_t tail_ns; /* all that was given to it is done by then */
	struct sim_graph *capture;
};

struct sim_event {
	uint32_t id;
	uint64_t time_ns; /* it happens then; 0: it was never recorded, which counts as done */
};

struct sim_context {
	uint32_t id, device;
	struct sim_stream legacy, per_thread; /* one per-thread stream serves for all threads */
	uint64_t tail_ns;                     /* of all its streams */
	uint64_t blocking_tail_ns;            /* of those that the legacy stream waits for */
};

struct core_thread {
	int error; /* of the last call that failed */
	uint32_t tid, depth, correlation;
	uint32_t api_depth;          /* calls of CUDA alone, which have correlation ids */
	struct sim_context *context; /* current */
};

/* core.c */
uint64_t core__now(void);
uint32_t core__tid(void);
struct core_thread *core__thread(void);
void core__enter(struct core_call *call);
int core__leave(struct core_call *call, int result);
int core__error(void); /* what the last call of the thread that failed returned */
void core__log(const char *format, ...) __attribute__((format(printf, 1, 2)));
const struct core_hooks *core__hooks(void);

/* sim.c */
int sim__device_count(void);
bool sim__init(void); /* false: the process was forked from one that had done it */
bool sim__ready(void);
void sim__forked(void);
struct sim_context *sim__context_new(uint32_t device);
struct sim_context *sim__primary(uint32_t device);
struct sim_stream *sim__stream_new(struct sim_context *context, bool blocking);
struct sim_stream *sim__stream(
	const void *handle); /* of the current context where it is a default one; NULL: no context */
struct sim_event *sim__event_new(void);
struct sim_graph *sim__graph_new(const struct sim_graph *like);
void sim__enqueue(struct sim_stream *stream, struct core_op *op);
void sim__launch_graph(struct sim_stream *stream, struct sim_graph *graph, struct core_op *whole);
void sim__record(struct sim_stream *stream, struct sim_event *event);
void sim__wait_event(struct sim_stream *stream, struct sim_event *event);
void sim__sync_stream(struct sim_stream *stream, bool told);
void sim__sync_context(struct sim_context *context, bool told);
void sim__sync_event(struct sim_event *event);
uint64_t sim__tail(struct sim_stream *stream);

const struct core_function *sim__function(const char *name);
uint32_t sim__context_id(const void *context);
uint32_t sim__device_of(const void *context);
uint32_t sim__stream_id(const void *context, const void *stream);
void *sim__current(void);

#endif
