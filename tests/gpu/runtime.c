/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The double of libcudart: it does all by calls of the driver, whose library it opens when it is first called, as the
 * real one does.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/runtime.h"

#define KERNELS_MAX 4096

static struct {
	pthread_mutex_t lock;
	void *driver;
	const struct core *core;
	uint32_t count;
	struct {
		const void *host;
		const struct core_function *function; /* NULL: not looked up yet */
		const char *name;
	} kernels[KERNELS_MAX];
} runtime = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread struct {
	int device;
	bool chosen; /* by cudaSetDevice, and not yet current */
	int error;
} mine;

void *runtime__driver_entry(const char *name)
{
	void *entry = dlsym(runtime.driver, name);

	if (!entry) {
		fprintf(stderr, "the double of libcuda has no %s\n", name);
		abort();
	}
	return entry;
}

const struct core *runtime__load(void)
{
	const struct core *(*get)(void);

	if (__atomic_load_n(&runtime.core, __ATOMIC_ACQUIRE))
		return runtime.core;
	pthread_mutex_lock(&runtime.lock);
	if (!runtime.driver)
		runtime.driver = dlopen("libcuda.so.1", RTLD_NOW);
	get = runtime.driver ? (const struct core *(*)(void))dlsym(runtime.driver, "gpu_double_core") : NULL;
	if (get)
		__atomic_store_n(&runtime.core, get(), __ATOMIC_RELEASE);
	pthread_mutex_unlock(&runtime.lock);
	return runtime.core;
}

/* Sees to it that the thread has a context: that of the device it chose, or another that is current already. */
int runtime__begin(void)
{
	static __thread bool initialized;
	CUcontext context = NULL;
	int error = initialized ? 0 : DRIVER(cuInit)(0);

	if (error)
		return error;
	initialized = true;
	DRIVER(cuCtxGetCurrent)(&context);
	if (context && !mine.chosen)
		return 0;
	error = DRIVER(cuDevicePrimaryCtxRetain)(&context, mine.device);
	if (!error)
		error = DRIVER(cuCtxSetCurrent)(context);
	mine.chosen = false;
	return error;
}

int runtime__end(struct core_call *call, int result)
{
	if (result)
		mine.error = result;
	return runtime.core->leave(call, result);
}

cudaError_t runtime__error(void)
{
	return (cudaError_t)mine.error;
}

/* --- kernels --- */

void **__cudaRegisterFatBinary(void *binary)
{
	return binary;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
}

void __cudaUnregisterFatBinary(void **handle)
{
}

void __cudaRegisterFunction(void **handle, const char *host, char *device_function, const char *device_name,
			    int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size)
{
	pthread_mutex_lock(&runtime.lock);
	if (runtime.count < KERNELS_MAX) {
		runtime.kernels[runtime.count].host = host;
		runtime.kernels[runtime.count].name = device_name;
		__atomic_store_n(&runtime.count, runtime.count + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&runtime.lock);
}

/* NULL: no kernel has been registered with it. */
static CUfunction function_of(struct core_call *call, const void *host)
{
	uint32_t count = __atomic_load_n(&runtime.count, __ATOMIC_ACQUIRE);

	if (call) {
		call->object = (uintptr_t)host;
		call->stream = call->context = 0;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (runtime.kernels[i].host != host)
			continue;
		if (!runtime.kernels[i].function)
			runtime.kernels[i].function = runtime.core->function(runtime.kernels[i].name);
		if (call)
			call->text = runtime.kernels[i].name;
		return (CUfunction)runtime.kernels[i].function;
	}
	return NULL;
}

CUstream runtime__about(struct core_call *call, CUstream stream)
{
	call->stream = runtime.core->stream_id(NULL, stream);
	call->context = runtime.core->context_id(NULL);
	call->device = runtime.core->device_of(NULL);
	return stream;
}

CUstream runtime__about_ptsz(struct core_call *call, CUstream stream)
{
	runtime__about(call, stream ? stream : CU_STREAM_PER_THREAD);
	return stream;
}

#define LAUNCH_ARGUMENTS (const void *host, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
#define LAUNCH_NAMES     (host, grid, block, args, shared, stream)
#define LAUNCH(cu, about, ...)                                                                                  \
	({                                                                                                      \
		CUfunction f = function_of(&call, host);                                                        \
		about(&call, stream);                                                                           \
		f ? (int)DRIVER(cu)(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, args, \
				    ##__VA_ARGS__)                                                              \
		  : cudaErrorInvalidDeviceFunction;                                                             \
	})

API(cudaLaunchKernel, v7000, LAUNCH_ARGUMENTS, LAUNCH_NAMES, LAUNCH(cuLaunchKernel, runtime__about, NULL))
API(cudaLaunchKernel_ptsz, v7000, LAUNCH_ARGUMENTS, LAUNCH_NAMES,
    LAUNCH(cuLaunchKernel_ptsz, runtime__about_ptsz, NULL))
API(cudaLaunchCooperativeKernel, v9000, LAUNCH_ARGUMENTS, LAUNCH_NAMES,
    LAUNCH(cuLaunchCooperativeKernel, runtime__about))
API(cudaLaunchCooperativeKernel_ptsz, v9000, LAUNCH_ARGUMENTS, LAUNCH_NAMES,
    LAUNCH(cuLaunchCooperativeKernel_ptsz, runtime__about_ptsz))

static CUlaunchConfig config_of(const cudaLaunchConfig_t *c)
{
	return (CUlaunchConfig){
		.gridDimX = c->gridDim.x,
		.gridDimY = c->gridDim.y,
		.gridDimZ = c->gridDim.z,
		.blockDimX = c->blockDim.x,
		.blockDimY = c->blockDim.y,
		.blockDimZ = c->blockDim.z,
		.sharedMemBytes = c->dynamicSmemBytes,
		.hStream = c->stream,
	};
}

#define LAUNCH_EX(cu, about)                                                             \
	({                                                                               \
		CUfunction f = function_of(&call, host);                                 \
		CUlaunchConfig c = config_of(config);                                    \
		about(&call, c.hStream);                                                 \
		f ? (int)DRIVER(cu)(&c, f, args, NULL) : cudaErrorInvalidDeviceFunction; \
	})

API(cudaLaunchKernelExC, v11060, (const cudaLaunchConfig_t *config, const void *host, void **args),
    (config, host, args), LAUNCH_EX(cuLaunchKernelEx, runtime__about))
API(cudaLaunchKernelExC_ptsz, v11060, (const cudaLaunchConfig_t *config, const void *host, void **args),
    (config, host, args), LAUNCH_EX(cuLaunchKernelEx_ptsz, runtime__about_ptsz))

cudaError_t cudaFuncGetName(const char **name, const void *host)
{
	CUfunction f = runtime__load() ? function_of(NULL, host) : NULL;

	if (!f)
		return cudaErrorInvalidDeviceFunction;
	return (cudaError_t)DRIVER(cuFuncGetName)(name, f);
}

/* --- graphs --- */

static int launch_graph(struct core_call *call, cudaGraphExec_t graph)
{
	call->object = (uintptr_t)graph;
	return 0;
}

#define CAPTURE_ARGUMENTS (cudaStream_t stream, enum cudaStreamCaptureMode mode)
#define GRAPH_ARGUMENTS   (cudaGraphExec_t graph, cudaStream_t stream)

API(cudaStreamBeginCapture, v10000, CAPTURE_ARGUMENTS, (stream, mode),
    DRIVER(cuStreamBeginCapture_v2)(runtime__about(&call, stream), (CUstreamCaptureMode)mode))
API(cudaStreamEndCapture, v10000, (cudaStream_t stream, cudaGraph_t *graph), (stream, graph),
    DRIVER(cuStreamEndCapture)(runtime__about(&call, stream), graph))
API(cudaGraphInstantiate, v12000, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
    (exec, graph, flags), DRIVER(cuGraphInstantiateWithFlags)(exec, graph, flags))
API(cudaGraphLaunch, v10000, GRAPH_ARGUMENTS, (graph, stream),
    (launch_graph(&call, graph), DRIVER(cuGraphLaunch)(graph, runtime__about(&call, stream))))
API(cudaGraphLaunch_ptsz, v10000, GRAPH_ARGUMENTS, (graph, stream),
    (launch_graph(&call, graph), DRIVER(cuGraphLaunch_ptsz)(graph, runtime__about_ptsz(&call, stream))))
API(cudaGraphDestroy, v10000, (cudaGraph_t graph), (graph), DRIVER(cuGraphDestroy)(graph))
API(cudaGraphExecDestroy, v10000, (cudaGraphExec_t graph), (graph), DRIVER(cuGraphExecDestroy)(graph))

/* --- devices and waits --- */

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = 0;
	return runtime__load() ? (cudaError_t)DRIVER(cuDriverGetVersion)(version) : cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	int error = mine.error;

	mine.error = 0;
	return (cudaError_t)error;
}

cudaError_t cudaPeekAtLastError(void)
{
	return (cudaError_t)mine.error;
}

const char *cudaGetErrorName(cudaError_t error)
{
	return error ? "cudaErrorOfADouble" : "cudaSuccess";
}

const char *cudaGetErrorString(cudaError_t error)
{
	return error ? "error of a double" : "no error";
}

static int choose(int device)
{
	int count = 0, error = DRIVER(cuDeviceGetCount)(&count);

	if (error || device < 0 || device >= count)
		return error ? error : cudaErrorInvalidDevice;
	mine.device = device;
	mine.chosen = true;
	return runtime__begin();
}

static int properties(struct cudaDeviceProp *p, int device)
{
	size_t bytes;

	memset(p, 0, sizeof(*p));
	DRIVER(cuDeviceTotalMem_v2)(&bytes, device);
	p->totalGlobalMem = bytes;
	DRIVER(cuDeviceGetAttribute)(&p->multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	DRIVER(cuDeviceGetAttribute)(&p->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	return DRIVER(cuDeviceGetName)(p->name, sizeof(p->name), device);
}

API(cudaGetDeviceCount, v3020, (int *count), (count), DRIVER(cuDeviceGetCount)(count))
API(cudaSetDevice, v3020, (int device), (device), choose(device))
API(cudaGetDevice, v3020, (int *device), (device), (*device = mine.device, 0))
API(cudaGetDeviceProperties, v12000, (struct cudaDeviceProp * prop, int device), (prop, device),
    properties(prop, device))
API0(cudaDeviceSynchronize, v3020, (runtime__about(&call, NULL), call.stream = 0, DRIVER(cuCtxSynchronize)()))

/* --- streams and events --- */

API(cudaStreamCreate, v3020, (cudaStream_t * stream), (stream), DRIVER(cuStreamCreate)(stream, 0))
API(cudaStreamCreateWithFlags, v5000, (cudaStream_t * stream, unsigned int flags), (stream, flags),
    DRIVER(cuStreamCreate)(stream, flags))
API(cudaStreamCreateWithPriority, v5050, (cudaStream_t * stream, unsigned int flags, int priority),
    (stream, flags, priority), DRIVER(cuStreamCreateWithPriority)(stream, flags, priority))
API(cudaStreamDestroy, v5050, (cudaStream_t stream), (stream), DRIVER(cuStreamDestroy_v2)(stream))
API(cudaStreamSynchronize, v3020, (cudaStream_t stream), (stream),
    DRIVER(cuStreamSynchronize)(runtime__about(&call, stream)))
API(cudaStreamSynchronize_ptsz, v7000, (cudaStream_t stream), (stream),
    DRIVER(cuStreamSynchronize_ptsz)(runtime__about_ptsz(&call, stream)))
API(cudaStreamQuery, v3020, (cudaStream_t stream), (stream), DRIVER(cuStreamQuery)(runtime__about(&call, stream)))
API(cudaStreamQuery_ptsz, v7000, (cudaStream_t stream), (stream),
    DRIVER(cuStreamQuery_ptsz)(runtime__about_ptsz(&call, stream)))
API(cudaStreamWaitEvent, v3020, (cudaStream_t stream, cudaEvent_t event, unsigned int flags), (stream, event, flags),
    DRIVER(cuStreamWaitEvent)(runtime__about(&call, stream), event, flags))
API(cudaStreamWaitEvent_ptsz, v7000, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
    (stream, event, flags), DRIVER(cuStreamWaitEvent_ptsz)(runtime__about_ptsz(&call, stream), event, flags))

API(cudaEventCreate, v3020, (cudaEvent_t * event), (event), DRIVER(cuEventCreate)(event, 0))
API(cudaEventCreateWithFlags, v3020, (cudaEvent_t * event, unsigned int flags), (event, flags),
    DRIVER(cuEventCreate)(event, flags))
API(cudaEventDestroy, v3020, (cudaEvent_t event), (event), DRIVER(cuEventDestroy_v2)(event))
API(cudaEventRecord, v3020, (cudaEvent_t event, cudaStream_t stream), (event, stream),
    DRIVER(cuEventRecord)(event, runtime__about(&call, stream)))
API(cudaEventRecord_ptsz, v7000, (cudaEvent_t event, cudaStream_t stream), (event, stream),
    DRIVER(cuEventRecord_ptsz)(event, runtime__about_ptsz(&call, stream)))
API(cudaEventRecordWithFlags, v11010, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
    (event, stream, flags), DRIVER(cuEventRecordWithFlags)(event, runtime__about(&call, stream), flags))
API(cudaEventRecordWithFlags_ptsz, v11010, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
    (event, stream, flags), DRIVER(cuEventRecordWithFlags_ptsz)(event, runtime__about_ptsz(&call, stream), flags))
API(cudaEventQuery, v3020, (cudaEvent_t event), (event), DRIVER(cuEventQuery)(event))
API(cudaEventSynchronize, v3020, (cudaEvent_t event), (event), DRIVER(cuEventSynchronize)(event))
API(cudaEventElapsedTime, v12080, (float *ms, cudaEvent_t start, cudaEvent_t stop), (ms, start, stop),
    DRIVER(cuEventElapsedTime_v2)(ms, start, stop))

/* --- memory --- */

#define ALLOCATE(cu, ...) (call.bytes = bytes, DRIVER(cu)((CUdeviceptr *)memory, bytes, ##__VA_ARGS__))

API(cudaMalloc, v3020, (void **memory, size_t bytes), (memory, bytes), ALLOCATE(cuMemAlloc_v2))
API(cudaMallocManaged, v6000, (void **memory, size_t bytes, unsigned int flags), (memory, bytes, flags),
    ALLOCATE(cuMemAllocManaged, flags))
API(cudaMallocAsync, v11020, (void **memory, size_t bytes, cudaStream_t stream), (memory, bytes, stream),
    ALLOCATE(cuMemAllocAsync, runtime__about(&call, stream)))
API(cudaMallocAsync_ptsz, v11020, (void **memory, size_t bytes, cudaStream_t stream), (memory, bytes, stream),
    ALLOCATE(cuMemAllocAsync_ptsz, runtime__about_ptsz(&call, stream)))
API(cudaMallocFromPoolAsync, v11020, (void **memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
    (memory, bytes, pool, stream), ALLOCATE(cuMemAllocFromPoolAsync, pool, runtime__about(&call, stream)))
API(cudaMallocFromPoolAsync_ptsz, v11020, (void **memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
    (memory, bytes, pool, stream), ALLOCATE(cuMemAllocFromPoolAsync_ptsz, pool, runtime__about_ptsz(&call, stream)))
API(cudaFree, v3020, (void *memory), (memory), DRIVER(cuMemFree_v2)(ADDRESS(memory)))
API(cudaFreeAsync, v11020, (void *memory, cudaStream_t stream), (memory, stream),
    DRIVER(cuMemFreeAsync)(ADDRESS(memory), runtime__about(&call, stream)))
API(cudaFreeAsync_ptsz, v11020, (void *memory, cudaStream_t stream), (memory, stream),
    DRIVER(cuMemFreeAsync_ptsz)(ADDRESS(memory), runtime__about_ptsz(&call, stream)))
API(cudaHostAlloc, v3020, (void **memory, size_t bytes, unsigned int flags), (memory, bytes, flags),
    (call.bytes = bytes, DRIVER(cuMemHostAlloc)(memory, bytes, flags)))
API(cudaMallocHost, v3020, (void **memory, size_t bytes), (memory, bytes),
    (call.bytes = bytes, DRIVER(cuMemHostAlloc)(memory, bytes, 0)))
API(cudaFreeHost, v3020, (void *memory), (memory), DRIVER(cuMemFreeHost)(memory))
