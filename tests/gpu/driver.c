/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The double of libcuda: devices, contexts, memory, streams, events, modules. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/driver.h"

#define DEVICE_BYTES (24ULL << 30)

/* Loads what CUDA_INJECTION64_PATH names, as the driver does when it is first initialized. */
static void inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	uint64_t start_ns = core__now();
	int (*initialize)(void) = NULL;
	void *library;
	int result;

	if (!path || !*path)
		return;
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library)
		initialize = (int (*)(void))dlsym(library, "InitializeInjection");
	if (!initialize) {
		core__log("{\"log\":\"error\",\"what\":\"cannot inject %s\"}", path);
		return;
	}
	result = initialize();
	core__log("{\"log\":\"injected\",\"result\":%d,\"start\":%lu,\"end\":%lu}", result, start_ns, core__now());
}

CUresult cuInit(unsigned int flags)
{
	/* another thread waits until it is done; what is injected may call it again */
	static pthread_mutex_t once = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	static bool done;
	cuInit_params params = {flags};
	struct core_call call = {
		.library = CORE_DRIVER, .cbid = CUPTI_DRIVER_TRACE_CBID_cuInit, .name = "cuInit", .params = &params};

	core__enter(&call);
	if (!sim__init())
		return core__leave(&call, CUDA_ERROR_NOT_INITIALIZED);
	pthread_mutex_lock(&once);
	if (!done) {
		done = true;
		inject();
	}
	pthread_mutex_unlock(&once);
	return core__leave(&call, sim__device_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
}

CUresult cuDriverGetVersion(int *version)
{
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

static bool is_device(CUdevice device)
{
	return device >= 0 && device < sim__device_count();
}

CUresult cuDeviceGetCount(int *count)
{
	*count = sim__device_count();
	return sim__ready() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	snprintf(name, size, "Double %d", device);
	return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	*bytes = DEVICE_BYTES;
	return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = 64 + device;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	default:
		*value = 0;
	}
	return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* --- contexts --- */

static int retain(CUcontext *context, CUdevice device)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*context = (CUcontext)sim__primary(device);
	return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device), retain(context, device))
API(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device),
    is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE)

static int set_current(CUcontext context)
{
	core__thread()->context = (struct sim_context *)context;
	return CUDA_SUCCESS;
}

static int create(CUcontext *context, CUdevice device)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*context = (CUcontext)sim__context_new(device);
	return set_current(*context);
}

API(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device), (context, flags, device),
    create(context, device))
API(cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams *how, unsigned int flags, CUdevice device),
    (context, how, flags, device), create(context, device))
API(cuCtxDestroy_v2, (CUcontext context), (context), (sim__sync_context((void *)context, false), CUDA_SUCCESS))
API(cuCtxSetCurrent, (CUcontext context), (context), set_current(context))

CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = (CUcontext)core__thread()->context;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	*device = sim__device_of(NULL);
	return core__thread()->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static int synchronize(struct core_call *call, struct sim_context *context)
{
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	call->context = context->id;
	call->device = context->device;
	sim__sync_context(context, true);
	return CUDA_SUCCESS;
}

API0(cuCtxSynchronize, synchronize(&call, core__thread()->context))
API(cuCtxSynchronize_v2, (CUcontext context), (context), synchronize(&call, (struct sim_context *)context))

/* --- memory --- */

static int allocate(struct core_call *call, CUdeviceptr *address, size_t bytes)
{
	static uint64_t next = ADDRESSES;

	call->bytes = bytes;
	call->device = sim__device_of(NULL);
	if (bytes > DEVICE_BYTES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = __atomic_fetch_add(&next, (bytes + 511) & ~511ULL, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

static int allocate_async(struct core_call *call, CUdeviceptr *address, size_t bytes, CUstream stream)
{
	return stream_of(call, stream) ? allocate(call, address, bytes) : CUDA_ERROR_INVALID_CONTEXT;
}

/* Waits for the device, as the real one does. */
static int release(CUdeviceptr address)
{
	struct sim_context *context = core__thread()->context;

	if (address && context)
		sim__sync_context(context, false);
	return CUDA_SUCCESS;
}

static int release_async(struct core_call *call, CUstream stream)
{
	return stream_of(call, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static int allocate_host(struct core_call *call, void **memory, size_t bytes)
{
	call->bytes = bytes;
	*memory = malloc(bytes);
	return *memory || !bytes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The first version had addresses of 32 bits; nobody calls it, but it is there. */
static int allocate_v1(struct core_call *call, CUdeviceptr_v1 *address, size_t bytes)
{
	CUdeviceptr wide = 0;
	int result = allocate(call, &wide, bytes);

	*address = (CUdeviceptr_v1)wide;
	return result;
}

API(cuMemAlloc, (CUdeviceptr_v1 * address, unsigned int bytes), (address, bytes), allocate_v1(&call, address, bytes))
API(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), (address, bytes), allocate(&call, address, bytes))
API(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned int flags), (address, bytes, flags),
    allocate(&call, address, bytes))
API(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream), (address, bytes, stream),
    allocate_async(&call, address, bytes, stream))
API(cuMemAllocAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream), (address, bytes, stream),
    allocate_async(&call, address, bytes, per_thread(stream)))
API(cuMemAllocFromPoolAsync, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
    (address, bytes, pool, stream), allocate_async(&call, address, bytes, stream))
API(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
    (address, bytes, pool, stream), allocate_async(&call, address, bytes, per_thread(stream)))
API(cuMemFree, (CUdeviceptr_v1 address), (address), release(address))
API(cuMemFree_v2, (CUdeviceptr address), (address), release(address))
API(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, stream), release_async(&call, stream))
API(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream), (address, stream),
    release_async(&call, per_thread(stream)))
API(cuMemAllocHost, (void **memory, unsigned int bytes), (memory, bytes), allocate_host(&call, memory, bytes))
API(cuMemAllocHost_v2, (void **memory, size_t bytes), (memory, bytes), allocate_host(&call, memory, bytes))
API(cuMemHostAlloc, (void **memory, size_t bytes, unsigned int flags), (memory, bytes, flags),
    allocate_host(&call, memory, bytes))
API(cuMemFreeHost, (void *memory), (memory), (free(memory), CUDA_SUCCESS))

/* --- streams and events --- */

static int new_stream(CUstream *stream, unsigned int flags)
{
	struct sim_context *context = core__thread()->context;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*stream = (CUstream)sim__stream_new(context, !(flags & CU_STREAM_NON_BLOCKING));
	return CUDA_SUCCESS;
}

static int sync_stream(struct core_call *call, CUstream handle)
{
	struct sim_stream *stream = stream_of(call, handle);

	if (!stream)
		return CUDA_ERROR_INVALID_CONTEXT;
	sim__sync_stream(stream, true);
	return CUDA_SUCCESS;
}

static int query_stream(struct core_call *call, CUstream handle)
{
	struct sim_stream *stream = stream_of(call, handle);

	if (!stream)
		return CUDA_ERROR_INVALID_CONTEXT;
	return sim__tail(stream) <= core__now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags), new_stream(stream, flags))
API(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority), (stream, flags, priority),
    new_stream(stream, flags))
API(cuStreamDestroy_v2, (CUstream stream), (stream), stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE)
API(cuStreamSynchronize, (CUstream stream), (stream), sync_stream(&call, stream))
API(cuStreamSynchronize_ptsz, (CUstream stream), (stream), sync_stream(&call, per_thread(stream)))
API(cuStreamQuery, (CUstream stream), (stream), query_stream(&call, stream))
API(cuStreamQuery_ptsz, (CUstream stream), (stream), query_stream(&call, per_thread(stream)))

static int record(struct core_call *call, CUevent event, CUstream handle)
{
	struct sim_stream *stream = stream_of(call, handle);

	if (!stream || !event)
		return CUDA_ERROR_INVALID_HANDLE;
	sim__record(stream, (struct sim_event *)event);
	return CUDA_SUCCESS;
}

static int wait_event(struct core_call *call, CUstream handle, CUevent event)
{
	struct sim_stream *stream = stream_of(call, handle);

	if (!stream || !event)
		return CUDA_ERROR_INVALID_HANDLE;
	sim__wait_event(stream, (struct sim_event *)event);
	return CUDA_SUCCESS;
}

static int query_event(CUevent event)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return ((struct sim_event *)event)->time_ns <= core__now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static int elapsed(float *ms, CUevent start, CUevent end)
{
	struct sim_event *a = (struct sim_event *)start, *b = (struct sim_event *)end;

	if (!a || !b || !a->time_ns || !b->time_ns)
		return CUDA_ERROR_INVALID_HANDLE;
	*ms = ((double)b->time_ns - (double)a->time_ns) / NS_PER_MS;
	return CUDA_SUCCESS;
}

API(cuEventCreate, (CUevent * event, unsigned int flags), (event, flags),
    (*event = (CUevent)sim__event_new(), CUDA_SUCCESS))
API(cuEventDestroy_v2, (CUevent event), (event), CUDA_SUCCESS)
API(cuEventRecord, (CUevent event, CUstream stream), (event, stream), record(&call, event, stream))
API(cuEventRecord_ptsz, (CUevent event, CUstream stream), (event, stream), record(&call, event, per_thread(stream)))
API(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags),
    record(&call, event, stream))
API(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags),
    record(&call, event, per_thread(stream)))
API(cuEventQuery, (CUevent event), (event), query_event(event))
API(cuEventSynchronize, (CUevent event), (event),
    event ? (sim__sync_event((struct sim_event *)event), CUDA_SUCCESS) : CUDA_ERROR_INVALID_HANDLE)
API(cuEventElapsedTime_v2, (float *ms, CUevent start, CUevent end), (ms, start, end), elapsed(ms, start, end))
API(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags),
    wait_event(&call, stream, event))
API(cuStreamWaitEvent_ptsz, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags),
    wait_event(&call, per_thread(stream), event))

/* --- modules, names, entry points --- */

/* A module is nothing: its functions are known by their names. */
API(cuModuleLoadData, (CUmodule * module, const void *image), (module, image), (*module = (CUmodule)1, CUDA_SUCCESS))
API(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name), (function, module, name),
    (*function = (CUfunction)sim__function(name), CUDA_SUCCESS))

CUresult cuFuncGetName(const char **name, CUfunction function)
{
	*name = ((const struct core_function *)function)->name;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
	*text = error ? "CUDA_ERROR_OF_A_DOUBLE" : "CUDA_SUCCESS";
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	*text = error ? "error of a double" : "no error";
	return CUDA_SUCCESS;
}

/* The newest variant that is exported, as the real one gives for a new cudaVersion. */
CUresult cuGetProcAddress_v2(const char *symbol, void **entry, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	static const char *const tails[] = {"_v4", "_v3", "_v2", ""};
	bool each = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	Dl_info self;
	void *library = dladdr((void *)cuInit, &self) ? dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	char name[128];

	*entry = NULL;
	for (int i = 0; library && i < 12 && !*entry; i++) {
		static const char *const threads[] = {"_ptsz", "_ptds", ""};

		if (!each && i < 8)
			continue;
		snprintf(name, sizeof(name), "%s%s%s", symbol, tails[i % 4], threads[i / 4]);
		*entry = dlsym(library, name);
	}
	if (status)
		*status = *entry ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *entry ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
