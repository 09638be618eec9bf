/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The double of libcudart: copies and sets. */
#include "tests/gpu/runtime.h"

static const char *const directions[] = {"HTOH", "HTOD", "DTOH", "DTOD", ""}; /* by cudaMemcpyKind */

/* By kind, as the real one chooses. suffix: of the function of the driver; plain: the one that finds the direction out. */
#define COPY(kind, to, from, size, suffix, plain, ...)                                                                \
	({                                                                                                            \
		call.bytes = size;                                                                                    \
		call.text = (unsigned)kind < 5 ? directions[kind] : "";                                               \
		kind == cudaMemcpyHostToDevice ? DRIVER(cuMemcpyHtoD##suffix)(ADDRESS(to), from, size, ##__VA_ARGS__) \
		: kind == cudaMemcpyDeviceToHost                                                                      \
			? DRIVER(cuMemcpyDtoH##suffix)(to, ADDRESS(from), size, ##__VA_ARGS__)                        \
		: kind == cudaMemcpyDeviceToDevice                                                                    \
			? DRIVER(cuMemcpyDtoD##suffix)(ADDRESS(to), ADDRESS(from), size, ##__VA_ARGS__)               \
			: DRIVER(plain)(ADDRESS(to), ADDRESS(from), size, ##__VA_ARGS__);                             \
	})

#define COPY_ARGUMENTS       (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
#define COPY_ASYNC_ARGUMENTS (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
#define COPY_NAMES           (to, from, bytes, kind)
#define COPY_ASYNC_NAMES     (to, from, bytes, kind, stream)

API(cudaMemcpy, v3020, COPY_ARGUMENTS, COPY_NAMES,
    (runtime__about(&call, NULL), COPY(kind, to, from, bytes, _v2, cuMemcpy)))
API(cudaMemcpy_ptds, v7000, COPY_ARGUMENTS, COPY_NAMES,
    (runtime__about_ptsz(&call, NULL), COPY(kind, to, from, bytes, _v2_ptds, cuMemcpy_ptds)))
API(cudaMemcpyAsync, v3020, COPY_ASYNC_ARGUMENTS, COPY_ASYNC_NAMES,
    (runtime__about(&call, stream), COPY(kind, to, from, bytes, Async_v2, cuMemcpyAsync, stream)))
API(cudaMemcpyAsync_ptsz, v7000, COPY_ASYNC_ARGUMENTS, COPY_ASYNC_NAMES,
    (runtime__about_ptsz(&call, stream), COPY(kind, to, from, bytes, Async_v2_ptsz, cuMemcpyAsync_ptsz, stream)))

#define SYMBOL_ARGUMENTS (const void *to, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
#define SYMBOL_ASYNC_ARGUMENTS \
	(const void *to, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
#define SYMBOL_NAMES       (to, from, bytes, offset, kind)
#define SYMBOL_ASYNC_NAMES (to, from, bytes, offset, kind, stream)
#define SYMBOL(cu, ...) \
	(call.bytes = bytes, call.text = "HTOD", DRIVER(cu)(ADDRESS(to) + offset, from, bytes, ##__VA_ARGS__))

API(cudaMemcpyToSymbol, v3020, SYMBOL_ARGUMENTS, SYMBOL_NAMES, SYMBOL(cuMemcpyHtoD_v2))
API(cudaMemcpyToSymbol_ptds, v7000, SYMBOL_ARGUMENTS, SYMBOL_NAMES, SYMBOL(cuMemcpyHtoD_v2_ptds))
API(cudaMemcpyToSymbolAsync, v3020, SYMBOL_ASYNC_ARGUMENTS, SYMBOL_ASYNC_NAMES,
    SYMBOL(cuMemcpyHtoDAsync_v2, runtime__about(&call, stream)))
API(cudaMemcpyToSymbolAsync_ptsz, v7000, SYMBOL_ASYNC_ARGUMENTS, SYMBOL_ASYNC_NAMES,
    SYMBOL(cuMemcpyHtoDAsync_v2_ptsz, runtime__about_ptsz(&call, stream)))

#define PEER(cu, ...)                            \
	(call.bytes = bytes, call.text = "PTOP", \
	 DRIVER(cu)(ADDRESS(to), NULL, ADDRESS(from), NULL, bytes, ##__VA_ARGS__))

API(cudaMemcpyPeer, v4000, (void *to, int to_device, const void *from, int from_device, size_t bytes),
    (to, to_device, from, from_device, bytes), PEER(cuMemcpyPeer))
API(cudaMemcpyPeerAsync, v4000,
    (void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream),
    (to, to_device, from, from_device, bytes, stream), PEER(cuMemcpyPeerAsync, runtime__about(&call, stream)))

/* The real ones call cuMemcpy2D, which no double has. */
#define PLANE_ARGUMENTS                                                                               \
	(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, \
	 enum cudaMemcpyKind kind)
#define PLANE_ASYNC_ARGUMENTS                                                                         \
	(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, \
	 enum cudaMemcpyKind kind, cudaStream_t stream)
#define PLANE_NAMES       (to, to_pitch, from, from_pitch, width, height, kind)
#define PLANE_ASYNC_NAMES (to, to_pitch, from, from_pitch, width, height, kind, stream)

API(cudaMemcpy2D, v3020, PLANE_ARGUMENTS, PLANE_NAMES, COPY(kind, to, from, width *height, _v2, cuMemcpy))
API(cudaMemcpy2D_ptds, v7000, PLANE_ARGUMENTS, PLANE_NAMES,
    COPY(kind, to, from, width *height, _v2_ptds, cuMemcpy_ptds))
API(cudaMemcpy2DAsync, v3020, PLANE_ASYNC_ARGUMENTS, PLANE_ASYNC_NAMES,
    COPY(kind, to, from, width *height, Async_v2, cuMemcpyAsync, runtime__about(&call, stream)))
API(cudaMemcpy2DAsync_ptsz, v7000, PLANE_ASYNC_ARGUMENTS, PLANE_ASYNC_NAMES,
    COPY(kind, to, from, width *height, Async_v2_ptsz, cuMemcpyAsync_ptsz, runtime__about_ptsz(&call, stream)))

/*
 * Two that have what is returned looked at in another function alone, that they call last of all, or jump to: as some of
 * CUDA's own.
 */
static __attribute__((noinline)) cudaError_t set(uint32_t cbid, const char *name, void *to, int value, size_t bytes,
						 cudaStream_t stream)
{
	cudaMemsetAsync_v3020_params params = {to, value, bytes, stream}; /* cudaMemset's are the first of them */
	struct core_call call = {
		.library = CORE_RUNTIME, .cbid = cbid, .name = name, .params = &params, .bytes = bytes};

	if (cbid == CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020)
		RUN(DRIVER(cuMemsetD8_v2)(ADDRESS(to), value, bytes));
	RUN(DRIVER(cuMemsetD8Async)(ADDRESS(to), value, bytes, runtime__about(&call, stream)));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
	char room[64];

	__asm__ volatile("" : : "r"(room) : "memory"); /* it may be in use: no jump */
	return set(CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020, "cudaMemset", to, value, bytes, NULL);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
	return set(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, "cudaMemsetAsync", to, value, bytes, stream);
}

#define SET(cu, ...) (call.bytes = bytes, DRIVER(cu)(ADDRESS(to), value, bytes, ##__VA_ARGS__))

API(cudaMemset_ptds, v7000, (void *to, int value, size_t bytes), (to, value, bytes), SET(cuMemsetD8_v2_ptds))
API(cudaMemsetAsync_ptsz, v7000, (void *to, int value, size_t bytes, cudaStream_t stream), (to, value, bytes, stream),
    SET(cuMemsetD8Async_ptsz, runtime__about_ptsz(&call, stream)))
