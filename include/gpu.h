/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The CUDA and NCCL functions that stepflame probes, and which of their arguments say what a call
 * does. User space reads the symbols and names here, BPF the argument numbers.
 *
 * Arguments are numbered from 1, as in the C declaration; 0: the function has no such argument. The
 * System V ABI passes the first six integers and pointers in registers; a dim3 takes two of these.
 */
#ifndef STEPFLAME_INCLUDE_GPU_H
#define STEPFLAME_INCLUDE_GPU_H

enum gpu_class {
	GPU_NONE,
	GPU_LAUNCH, /* of one kernel */
	GPU_GRAPH,  /* of a graph of kernels */
	GPU_COPY,
	GPU_SET,
	GPU_SYNC,  /* the CPU waits */
	GPU_EVENT, /* record or query an event, or make a stream wait for one */
	GPU_ALLOC,
	GPU_FREE,
	GPU_HOST_ALLOC, /* of pinned memory */
	GPU_COMM,       /* NCCL */
	GPU_CLASS__COUNT,
};

/* Direction of a copy. */
#define STEPFLAME_GPU_DIRECTIONS(X) \
	X(NONE, "")                 \
	X(HTOD, "host to device")   \
	X(DTOH, "device to host")   \
	X(DTOD, "device to device") \
	X(HTOH, "host to host")     \
	X(UNKNOWN, "direction not known") /* it depends on the addresses, which only the driver can classify */

enum gpu_direction {
#define X(id, name) GPU_##id##_DIRECTION,
	STEPFLAME_GPU_DIRECTIONS(X)
#undef X
		GPU_DIRECTION__COUNT,
};

/*
 * X(name, class, object, bytes, unit, direction)
 *
 *   name: of the C function, without _v2, _ptds, _ptsz.
 *   object: the argument that holds the kernel's host function or CUfunction, the graph, or the
 *       communicator.
 *   bytes: the argument that holds the size.
 *   unit: the bytes in one unit of the size; 0: the next argument is the data type.
 *   direction: an enum gpu_direction without affixes, or KIND: the argument after the size is an
 *       enum cudaMemcpyKind.
 */
#define STEPFLAME_GPU_APIS(X)                                 \
	X(cudaLaunchKernel, LAUNCH, 1, 0, 1, NONE)            \
	X(cudaLaunchKernelExC, LAUNCH, 2, 0, 1, NONE)         \
	X(cudaLaunchCooperativeKernel, LAUNCH, 1, 0, 1, NONE) \
	X(cuLaunchKernel, LAUNCH, 1, 0, 1, NONE)              \
	X(cuLaunchKernelEx, LAUNCH, 2, 0, 1, NONE)            \
	X(cuLaunchCooperativeKernel, LAUNCH, 1, 0, 1, NONE)   \
	X(cudaGraphLaunch, GRAPH, 1, 0, 1, NONE)              \
	X(cuGraphLaunch, GRAPH, 1, 0, 1, NONE)                \
	X(cudaMemcpy, COPY, 0, 3, 1, KIND)                    \
	X(cudaMemcpyAsync, COPY, 0, 3, 1, KIND)               \
	X(cudaMemcpyToSymbol, COPY, 0, 3, 1, HTOD)            \
	X(cudaMemcpyToSymbolAsync, COPY, 0, 3, 1, HTOD)       \
	X(cudaMemcpyPeer, COPY, 0, 5, 1, DTOD)                \
	X(cudaMemcpyPeerAsync, COPY, 0, 5, 1, DTOD)           \
	X(cudaMemcpy2D, COPY, 0, 0, 1, UNKNOWN)               \
	X(cudaMemcpy2DAsync, COPY, 0, 0, 1, UNKNOWN)          \
	X(cuMemcpy, COPY, 0, 3, 1, UNKNOWN)                   \
	X(cuMemcpyAsync, COPY, 0, 3, 1, UNKNOWN)              \
	X(cuMemcpyHtoD, COPY, 0, 3, 1, HTOD)                  \
	X(cuMemcpyHtoDAsync, COPY, 0, 3, 1, HTOD)             \
	X(cuMemcpyDtoH, COPY, 0, 3, 1, DTOH)                  \
	X(cuMemcpyDtoHAsync, COPY, 0, 3, 1, DTOH)             \
	X(cuMemcpyDtoD, COPY, 0, 3, 1, DTOD)                  \
	X(cuMemcpyDtoDAsync, COPY, 0, 3, 1, DTOD)             \
	X(cuMemcpyPeer, COPY, 0, 5, 1, DTOD)                  \
	X(cuMemcpyPeerAsync, COPY, 0, 5, 1, DTOD)             \
	X(cudaMemset, SET, 0, 3, 1, NONE)                     \
	X(cudaMemsetAsync, SET, 0, 3, 1, NONE)                \
	X(cuMemsetD8, SET, 0, 3, 1, NONE)                     \
	X(cuMemsetD8Async, SET, 0, 3, 1, NONE)                \
	X(cuMemsetD16, SET, 0, 3, 2, NONE)                    \
	X(cuMemsetD16Async, SET, 0, 3, 2, NONE)               \
	X(cuMemsetD32, SET, 0, 3, 4, NONE)                    \
	X(cuMemsetD32Async, SET, 0, 3, 4, NONE)               \
	X(cudaDeviceSynchronize, SYNC, 0, 0, 1, NONE)         \
	X(cudaStreamSynchronize, SYNC, 0, 0, 1, NONE)         \
	X(cudaEventSynchronize, SYNC, 0, 0, 1, NONE)          \
	X(cuCtxSynchronize, SYNC, 0, 0, 1, NONE)              \
	X(cuStreamSynchronize, SYNC, 0, 0, 1, NONE)           \
	X(cuEventSynchronize, SYNC, 0, 0, 1, NONE)            \
	X(cudaEventRecord, EVENT, 0, 0, 1, NONE)              \
	X(cudaEventRecordWithFlags, EVENT, 0, 0, 1, NONE)     \
	X(cudaEventQuery, EVENT, 0, 0, 1, NONE)               \
	X(cudaStreamQuery, EVENT, 0, 0, 1, NONE)              \
	X(cudaStreamWaitEvent, EVENT, 0, 0, 1, NONE)          \
	X(cuEventRecord, EVENT, 0, 0, 1, NONE)                \
	X(cuEventRecordWithFlags, EVENT, 0, 0, 1, NONE)       \
	X(cuEventQuery, EVENT, 0, 0, 1, NONE)                 \
	X(cuStreamQuery, EVENT, 0, 0, 1, NONE)                \
	X(cuStreamWaitEvent, EVENT, 0, 0, 1, NONE)            \
	X(cudaMalloc, ALLOC, 0, 2, 1, NONE)                   \
	X(cudaMallocAsync, ALLOC, 0, 2, 1, NONE)              \
	X(cudaMallocFromPoolAsync, ALLOC, 0, 2, 1, NONE)      \
	X(cudaMallocManaged, ALLOC, 0, 2, 1, NONE)            \
	X(cuMemAlloc, ALLOC, 0, 2, 1, NONE)                   \
	X(cuMemAllocAsync, ALLOC, 0, 2, 1, NONE)              \
	X(cuMemAllocManaged, ALLOC, 0, 2, 1, NONE)            \
	X(cudaFree, FREE, 0, 0, 1, NONE)                      \
	X(cudaFreeAsync, FREE, 0, 0, 1, NONE)                 \
	X(cuMemFree, FREE, 0, 0, 1, NONE)                     \
	X(cuMemFreeAsync, FREE, 0, 0, 1, NONE)                \
	X(cudaHostAlloc, HOST_ALLOC, 0, 2, 1, NONE)           \
	X(cudaMallocHost, HOST_ALLOC, 0, 2, 1, NONE)          \
	X(cudaFreeHost, HOST_ALLOC, 0, 0, 1, NONE)            \
	X(cuMemHostAlloc, HOST_ALLOC, 0, 2, 1, NONE)          \
	X(cuMemAllocHost, HOST_ALLOC, 0, 2, 1, NONE)          \
	X(cuMemFreeHost, HOST_ALLOC, 0, 0, 1, NONE)           \
	X(ncclAllReduce, COMM, 6, 3, 0, NONE)                 \
	X(ncclBroadcast, COMM, 6, 3, 0, NONE)                 \
	X(ncclBcast, COMM, 5, 2, 0, NONE)                     \
	X(ncclReduce, COMM, 0, 3, 0, NONE)                    \
	X(ncclAllGather, COMM, 5, 3, 0, NONE)                 \
	X(ncclReduceScatter, COMM, 6, 3, 0, NONE)             \
	X(ncclSend, COMM, 5, 2, 0, NONE)                      \
	X(ncclRecv, COMM, 5, 2, 0, NONE)                      \
	X(ncclGroupEnd, COMM, 0, 0, 1, NONE)                  \
	X(ncclAlltoAll, COMM, 5, 3, 0, NONE)                  \
	X(ncclGather, COMM, 6, 3, 0, NONE)                    \
	X(ncclScatter, COMM, 6, 3, 0, NONE)

enum gpu_api {
	GPU_API_NONE,
#define X(name, ...) GPU_API_##name,
	STEPFLAME_GPU_APIS(X)
#undef X
		GPU_API__COUNT,
};

#define GPU_APIS 128 /* room for all of enum gpu_api; a power of two */
_Static_assert(GPU_API__COUNT <= GPU_APIS, "make GPU_APIS larger");

/*
 * The driver functions that return the handle of a kernel. Each writes the handle through its first
 * argument; the third argument names the kernel (OF_NAME), or the second is another handle of the
 * same kernel (OF_HANDLE).
 */
enum gpu_handle_from { GPU_HANDLE_OF_NAME, GPU_HANDLE_OF_HANDLE };

#define STEPFLAME_GPU_HANDLES(X)        \
	X(cuModuleGetFunction, OF_NAME) \
	X(cuLibraryGetKernel, OF_NAME)  \
	X(cuKernelGetFunction, OF_HANDLE)

/* Bytes of an element by ncclDataType_t, nccl.h: int8, uint8, int32, ... */
#define STEPFLAME_NCCL_TYPE_BYTES 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1

/* Kinds of activity that CUPTI reports, on a GPU or about one. */
enum gpu_activity {
	GPU_ACTIVITY_NONE,
	GPU_ACTIVITY_KERNEL,
	GPU_ACTIVITY_COPY,
	GPU_ACTIVITY_SET,
	GPU_ACTIVITY_GRAPH,    /* a whole graph, where CUPTI does not report its kernels one by one */
	GPU_ACTIVITY_SYNC,     /* a wait of the CPU or of a stream */
	GPU_ACTIVITY_CALL,     /* a runtime or driver function on the CPU, with this correlation id */
	GPU_ACTIVITY_OVERHEAD, /* of CUPTI itself */
	GPU_ACTIVITY__COUNT,
};

/*
 * X(id, CUpti_ActivityOverheadKind, name, is it the price of profiling, what it is): time that CUPTI
 * reports as overhead. Some of it CUDA takes without CUPTI, too.
 */
#define STEPFLAME_GPU_OVERHEADS(X)                                                                                   \
	X(DRIVER_COMPILER, 1, "compiler", 0, "the driver compiled a kernel")                                         \
	X(CUPTI_BUFFER_FLUSH, 1 << 16, "buffer_flush", 1, "CUPTI handed over its buffers")                           \
	X(CUPTI_INSTRUMENTATION, 2 << 16, "instrumentation", 1, "CUPTI put instructions of its own into kernels")    \
	X(CUPTI_RESOURCE, 3 << 16, "resource", 1, "CUPTI made or freed what it needs")                               \
	X(RUNTIME_TRIGGERED_MODULE_LOADING, 4 << 16, "module_loading", 0, "CUDA's runtime loaded a module")          \
	X(LAZY_FUNCTION_LOADING, 5 << 16, "function_loading", 0, "a kernel was loaded when it was first used")       \
	X(COMMAND_BUFFER_FULL, 6 << 16, "command_buffer_full", 0, "the CPU waited for room for commands to the GPU") \
	X(ACTIVITY_BUFFER_REQUEST, 7 << 16, "buffer_request", 1, "CUPTI asked for a buffer")                         \
	X(UVM_ACTIVITY_INIT, 8 << 16, "uvm_start", 1, "CUPTI began to watch unified memory")

/* The source of a process's GPU figures; a higher tier knows more. */
enum gpu_tier {
	GPU_TIER_NONE,   /* the process has no CUDA, or --gpu off */
	GPU_TIER_PROBES, /* only the calls on the CPU: kernel times are unknown */
	GPU_TIER_CUPTI,  /* the calls, and what the GPU did */
};

#endif
