/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the double of libcudart defines the functions that it exports: each by calls of the driver. */
#ifndef STEPFLAME_TESTS_GPU_RUNTIME_H
#define STEPFLAME_TESTS_GPU_RUNTIME_H

/* All variants of the functions, each by its own name. */
#define __CUDA_API_VERSION_INTERNAL
#include <cupti_activity.h>
#include <cupti_runtime_cbid.h>
#include <generated_cuda_runtime_api_meta.h>

#include "tests/gpu/core.h"

const struct core *runtime__load(void); /* NULL: there is no driver */
void *runtime__driver_entry(const char *name);
int runtime__begin(void); /* the thread gets a context; 0 or an error */
int runtime__end(struct core_call *call, int result);
cudaError_t runtime__error(void); /* the thread's last */

/* What the call is about, for the log; these return the stream as it was. */
CUstream runtime__about(struct core_call *call, CUstream stream);
CUstream runtime__about_ptsz(struct core_call *call, CUstream stream);

#define DRIVER(name)                                                              \
	({                                                                        \
		static __typeof__(name) *entry;                                   \
		if (!entry)                                                       \
			entry = (__typeof__(name) *)runtime__driver_entry(#name); \
		entry;                                                            \
	})

#define WORDS(...) __VA_ARGS__

/*
 * What each does with its `call`, of which body says more. As CUDA's own functions, it ends by a look at what was returned
 * to it, and if that was an error, by another call.
 */
#define RUN(body)                                                     \
	do {                                                          \
		int error;                                            \
		if (!runtime__load())                                 \
			return cudaErrorInsufficientDriver;           \
		runtime__load()->enter(&call);                        \
		error = runtime__begin();                             \
		if (runtime__end(&call, error ? error : (int)(body))) \
			return runtime__error();                      \
		return cudaSuccess;                                   \
	} while (0)

/* A function that CUPTI tells of, by its name and version there. */
#define API(name_, version, arguments, names, body)                           \
	cudaError_t name_ arguments                                           \
	{                                                                     \
		name_##_##version##_params params = {WORDS names};            \
		struct core_call call = {                                     \
			.library = CORE_RUNTIME,                              \
			.cbid = CUPTI_RUNTIME_TRACE_CBID_##name_##_##version, \
			.name = #name_,                                       \
			.params = &params,                                    \
		};                                                            \
		RUN(body);                                                    \
	}

/* One without arguments. */
#define API0(name_, version, body)                                            \
	cudaError_t name_(void)                                               \
	{                                                                     \
		struct core_call call = {                                     \
			.library = CORE_RUNTIME,                              \
			.cbid = CUPTI_RUNTIME_TRACE_CBID_##name_##_##version, \
			.name = #name_,                                       \
		};                                                            \
		RUN(body);                                                    \
	}

#define ADDRESS(p) ((CUdeviceptr)(uintptr_t)(p))

#endif
