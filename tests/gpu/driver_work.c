/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The double of libcuda: what the GPU is given to do. */
#include <stdlib.h>

#include "tests/gpu/driver.h"

#define KERNEL_NS         10000 /* of a kernel that says nothing */
#define KERNEL_MAX_NS     (10 * NS_PER_SEC)
#define COPY_NS           2000
#define COPY_BYTES_PER_US 20000

static const char *const directions[] = {
	[CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN] = "",  [CUPTI_ACTIVITY_MEMCPY_KIND_HTOD] = "HTOD",
	[CUPTI_ACTIVITY_MEMCPY_KIND_DTOH] = "DTOH", [CUPTI_ACTIVITY_MEMCPY_KIND_DTOD] = "DTOD",
	[CUPTI_ACTIVITY_MEMCPY_KIND_HTOH] = "HTOH", [CUPTI_ACTIVITY_MEMCPY_KIND_PTOP] = "PTOP",
};

/* The first parameter of every kernel of the tests says how long it runs. */
static uint64_t duration(void **params)
{
	uint64_t ns = params && params[0] ? *(const uint64_t *)params[0] : KERNEL_NS;

	return ns < KERNEL_MAX_NS ? ns : KERNEL_MAX_NS;
}

static int launch(struct core_call *call, CUfunction f, const unsigned grid[3], const unsigned block[3],
		  unsigned shared_bytes, CUstream handle, void **params)
{
	const struct core_function *function = (const struct core_function *)f;
	struct sim_stream *stream = stream_of(call, handle);
	struct core_op op = {.kind = CORE_KERNEL, .duration_ns = duration(params), .shared_bytes = shared_bytes};

	if (!stream)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	call->object = (uintptr_t)function;
	call->text = op.name = function->name;
	op.registers = function->registers;
	for (int i = 0; i < 3; i++) {
		op.grid[i] = grid[i];
		op.block[i] = block[i];
		if (!grid[i] || !block[i])
			return CUDA_ERROR_INVALID_VALUE;
	}
	sim__enqueue(stream, &op);
	return CUDA_SUCCESS;
}

static int launch_config(struct core_call *call, const CUlaunchConfig *c, CUfunction f, CUstream stream, void **params)
{
	const unsigned grid[] = {c->gridDimX, c->gridDimY, c->gridDimZ};
	const unsigned block[] = {c->blockDimX, c->blockDimY, c->blockDimZ};

	return launch(call, f, grid, block, c->sharedMemBytes, stream, params);
}

#define LAUNCH(stream) \
	launch(&call, f, (const unsigned[]){gx, gy, gz}, (const unsigned[]){bx, by, bz}, shared, stream, p)

API(cuLaunchKernel,
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
     unsigned int shared, CUstream stream, void **p, void **extra),
    (f, gx, gy, gz, bx, by, bz, shared, stream, p, extra), LAUNCH(stream))
API(cuLaunchKernel_ptsz,
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
     unsigned int shared, CUstream stream, void **p, void **extra),
    (f, gx, gy, gz, bx, by, bz, shared, stream, p, extra), LAUNCH(per_thread(stream)))
API(cuLaunchCooperativeKernel,
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
     unsigned int shared, CUstream stream, void **p),
    (f, gx, gy, gz, bx, by, bz, shared, stream, p), LAUNCH(stream))
API(cuLaunchCooperativeKernel_ptsz,
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
     unsigned int shared, CUstream stream, void **p),
    (f, gx, gy, gz, bx, by, bz, shared, stream, p), LAUNCH(per_thread(stream)))
API(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **p, void **extra), (config, f, p, extra),
    launch_config(&call, config, f, config->hStream, p))
API(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *config, CUfunction f, void **p, void **extra), (config, f, p, extra),
    launch_config(&call, config, f, per_thread(config->hStream), p))

/* --- graphs --- */

static int begin_capture(struct core_call *call, CUstream handle)
{
	struct sim_stream *stream = stream_of(call, handle);

	if (!stream || stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	stream->capture = sim__graph_new(NULL);
	return CUDA_SUCCESS;
}

static int end_capture(struct core_call *call, CUstream handle, CUgraph *graph)
{
	struct sim_stream *stream = stream_of(call, handle);

	if (!stream || !stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	*graph = (CUgraph)stream->capture;
	stream->capture = NULL;
	return CUDA_SUCCESS;
}

static int launch_graph(struct core_call *call, CUgraphExec graph, CUstream handle)
{
	struct sim_stream *stream = stream_of(call, handle);
	struct core_op whole = {.kind = CORE_GRAPH};

	if (!stream || !graph)
		return CUDA_ERROR_INVALID_HANDLE;
	call->object = (uintptr_t)graph;
	sim__launch_graph(stream, (struct sim_graph *)graph, &whole);
	return CUDA_SUCCESS;
}

API(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode), begin_capture(&call, stream))
API(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph), end_capture(&call, stream, graph))
API(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags),
    (*exec = (CUgraphExec)sim__graph_new((struct sim_graph *)graph), CUDA_SUCCESS))
API(cuGraphLaunch, (CUgraphExec graph, CUstream stream), (graph, stream), launch_graph(&call, graph, stream))
API(cuGraphLaunch_ptsz, (CUgraphExec graph, CUstream stream), (graph, stream),
    launch_graph(&call, graph, per_thread(stream)))
API(cuGraphDestroy, (CUgraph graph), (graph), CUDA_SUCCESS)
API(cuGraphExecDestroy, (CUgraphExec graph), (graph), CUDA_SUCCESS)

/* --- copies --- */

/* Where the driver has to find the direction out, by the addresses that cuMemAlloc gives. */
static bool on_device(CUdeviceptr address)
{
	return address >= ADDRESSES && address < ADDRESSES_END;
}

static int unified(CUdeviceptr to, CUdeviceptr from)
{
	if (on_device(to))
		return on_device(from) ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD : CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
	return on_device(from) ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
}

static int copy(struct core_call *call, int direction, size_t bytes, CUstream handle, bool async)
{
	struct sim_stream *stream = stream_of(call, handle);
	struct core_op op = {
		.kind = CORE_COPY,
		.duration_ns = COPY_NS + bytes * 1000 / COPY_BYTES_PER_US,
		.bytes = bytes,
		.direction = direction,
		.async = async,
	};

	if (!stream)
		return CUDA_ERROR_INVALID_CONTEXT;
	call->bytes = bytes;
	call->text = directions[direction];
	sim__enqueue(stream, &op);
	if (!async)
		sim__sync_stream(stream, false);
	return CUDA_SUCCESS;
}

#define HTOD CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
#define DTOH CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
#define DTOD CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
#define PTOP CUPTI_ACTIVITY_MEMCPY_KIND_PTOP

/* Each with its variants: the first version had sizes of 32 bits. */
#define COPY(name, to_type, from_type, direction)                                                                   \
	API(name##_v2, (to_type to, from_type from, size_t bytes), (to, from, bytes),                               \
	    copy(&call, direction, bytes, NULL, false))                                                             \
	API(name##_v2_ptds, (to_type to, from_type from, size_t bytes), (to, from, bytes),                          \
	    copy(&call, direction, bytes, CU_STREAM_PER_THREAD, false))                                             \
	API(name##Async_v2, (to_type to, from_type from, size_t bytes, CUstream stream), (to, from, bytes, stream), \
	    copy(&call, direction, bytes, stream, true))                                                            \
	API(name##Async_v2_ptsz, (to_type to, from_type from, size_t bytes, CUstream stream),                       \
	    (to, from, bytes, stream), copy(&call, direction, bytes, per_thread(stream), true))
#define COPY_V1(name, to_type, from_type, direction)                                                                   \
	API(name, (to_type to, from_type from, unsigned int bytes), (to, from, bytes),                                 \
	    copy(&call, direction, bytes, NULL, false))                                                                \
	API(name##Async, (to_type to, from_type from, unsigned int bytes, CUstream stream), (to, from, bytes, stream), \
	    copy(&call, direction, bytes, stream, true))

COPY(cuMemcpyHtoD, CUdeviceptr, const void *, HTOD)
COPY(cuMemcpyDtoH, void *, CUdeviceptr, DTOH)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr, DTOD)
COPY_V1(cuMemcpyHtoD, CUdeviceptr_v1, const void *, HTOD)
COPY_V1(cuMemcpyDtoH, void *, CUdeviceptr_v1, DTOH)
COPY_V1(cuMemcpyDtoD, CUdeviceptr_v1, CUdeviceptr_v1, DTOD)

API(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes),
    copy(&call, unified(to, from), bytes, NULL, false))
API(cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes),
    copy(&call, unified(to, from), bytes, CU_STREAM_PER_THREAD, false))
API(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream),
    copy(&call, unified(to, from), bytes, stream, true))
API(cuMemcpyAsync_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream),
    copy(&call, unified(to, from), bytes, per_thread(stream), true))

#define PEER      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)
#define PEER_ARGS (to, to_context, from, from_context, bytes)
#define PEER_ASYNC \
	(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream)
#define PEER_ASYNC_ARGS (to, to_context, from, from_context, bytes, stream)

API(cuMemcpyPeer, PEER, PEER_ARGS, copy(&call, PTOP, bytes, NULL, false))
API(cuMemcpyPeer_ptds, PEER, PEER_ARGS, copy(&call, PTOP, bytes, CU_STREAM_PER_THREAD, false))
API(cuMemcpyPeerAsync, PEER_ASYNC, PEER_ASYNC_ARGS, copy(&call, PTOP, bytes, stream, true))
API(cuMemcpyPeerAsync_ptsz, PEER_ASYNC, PEER_ASYNC_ARGS, copy(&call, PTOP, bytes, per_thread(stream), true))

/* --- sets --- */

/* Asynchronous where memory of the device is set, as the real ones are. */
static int set(struct core_call *call, uint32_t value, size_t count, size_t unit, CUstream handle)
{
	struct sim_stream *stream = stream_of(call, handle);
	struct core_op op = {
		.kind = CORE_SET,
		.duration_ns = COPY_NS + count * unit * 1000 / COPY_BYTES_PER_US,
		.bytes = count * unit,
		.value = value,
		.async = true,
	};

	if (!stream)
		return CUDA_ERROR_INVALID_CONTEXT;
	call->bytes = op.bytes;
	sim__enqueue(stream, &op);
	return CUDA_SUCCESS;
}

#define SET(name, type, unit)                                                                                          \
	API(name, (CUdeviceptr_v1 to, type value, unsigned int count), (to, value, count),                             \
	    set(&call, value, count, unit, NULL))                                                                      \
	API(name##_v2, (CUdeviceptr to, type value, size_t count), (to, value, count),                                 \
	    set(&call, value, count, unit, NULL))                                                                      \
	API(name##_v2_ptds, (CUdeviceptr to, type value, size_t count), (to, value, count),                            \
	    set(&call, value, count, unit, CU_STREAM_PER_THREAD))                                                      \
	API(name##Async, (CUdeviceptr to, type value, size_t count, CUstream stream), (to, value, count, stream),      \
	    set(&call, value, count, unit, stream))                                                                    \
	API(name##Async_ptsz, (CUdeviceptr to, type value, size_t count, CUstream stream), (to, value, count, stream), \
	    set(&call, value, count, unit, per_thread(stream)))

SET(cuMemsetD8, unsigned char, 1)
SET(cuMemsetD16, unsigned short, 2)
SET(cuMemsetD32, unsigned int, 4)
