/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the double of libcuda defines the functions that it exports. */
#ifndef STEPFLAME_TESTS_GPU_DRIVER_H
#define STEPFLAME_TESTS_GPU_DRIVER_H

/* All variants of the functions, each by its own name. */
#define __CUDA_API_VERSION_INTERNAL
#include <cupti_activity.h>
#include <cupti_driver_cbid.h>
#include <generated_cuda_meta.h>

#include "tests/gpu/sim.h"

/* Addresses of device memory: nothing is there, and nothing else either. */
#define ADDRESSES     0x700000000000ULL
#define ADDRESSES_END 0x710000000000ULL

#define WORDS(...)    __VA_ARGS__

/* As CUDA's own functions, it ends by a look at what was returned to it, and if that was an error, by another call. */
#define RUN(body)                                                                           \
	do {                                                                                \
		core__enter(&call);                                                         \
		if (core__leave(&call, sim__ready() ? (body) : CUDA_ERROR_NOT_INITIALIZED)) \
			return core__error();                                               \
		return CUDA_SUCCESS;                                                        \
	} while (0)

/* A function that CUPTI tells of. body: what it does and returns, with `call` for what the log shall say. */
#define API(name_, arguments, names, body)                       \
	CUresult name_ arguments                                 \
	{                                                        \
		name_##_params params = {WORDS names};           \
		struct core_call call = {                        \
			.library = CORE_DRIVER,                  \
			.cbid = CUPTI_DRIVER_TRACE_CBID_##name_, \
			.name = #name_,                          \
			.params = &params,                       \
		};                                               \
		RUN(body);                                       \
	}

/* One without arguments. */
#define API0(name_, body)                                        \
	CUresult name_(void)                                     \
	{                                                        \
		struct core_call call = {                        \
			.library = CORE_DRIVER,                  \
			.cbid = CUPTI_DRIVER_TRACE_CBID_##name_, \
			.name = #name_,                          \
		};                                               \
		RUN(body);                                       \
	}

/* The default stream of the variants for one per thread. */
static inline CUstream per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

/* The stream that a call is about, noted in it; NULL: there is no context. */
static inline struct sim_stream *stream_of(struct core_call *call, CUstream handle)
{
	struct sim_stream *stream = sim__stream(handle);

	if (stream) {
		call->stream = stream->id;
		call->context = stream->context->id;
		call->device = stream->context->device;
	}
	return stream;
}

#endif
