/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The double of libnccl: each collective is a kernel, launched by the driver; inside of a group when the group ends. */
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/core.h"

#define OPS_MAX      256
#define LATENCY_NS   20000
#define BYTES_PER_US 10000

struct ncclComm {
	int rank, ranks, device;
};

static struct {
	const struct core *core;
	CUresult (*launch)(const CUlaunchConfig *config, CUfunction function, void **params, void **extra);
} nccl;

static __thread int group;
static __thread int queued_count;
static __thread struct {
	const char *kernel;
	uint64_t ns;
	cudaStream_t stream;
} queued[OPS_MAX];

static const struct core *load(void)
{
	void *driver;
	const struct core *(*get)(void);

	if (nccl.core)
		return nccl.core;
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver)
		abort();
	get = (const struct core *(*)(void))dlsym(driver, "gpu_double_core");
	*(void **)&nccl.launch = dlsym(driver, "cuLaunchKernelEx");
	nccl.core = get();
	return nccl.core;
}

static size_t size_of(ncclDataType_t type)
{
	switch ((int)type) {
	case ncclInt8:
	case ncclUint8:
		return 1;
	case ncclFloat16:
	case ncclBfloat16:
		return 2;
	case ncclInt64:
	case ncclUint64:
	case ncclFloat64:
		return 8;
	case ncclInt32:
	case ncclUint32:
	case ncclFloat32:
		return 4;
	default:
		return 1; /* of 8 bits */
	}
}

static ncclResult_t launch(const char *kernel, uint64_t ns, cudaStream_t stream)
{
	CUlaunchConfig config = {.gridDimX = 8,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 512,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = stream};
	void *params[] = {&ns};

	return nccl.launch(&config, (CUfunction)nccl.core->function(kernel), params, NULL) ? ncclUnhandledCudaError
											   : ncclSuccess;
}

static ncclResult_t end_group(void)
{
	ncclResult_t result = ncclSuccess;

	if (!group || --group)
		return group ? ncclSuccess : ncclInvalidUsage;
	for (int i = 0; i < queued_count && !result; i++)
		result = launch(queued[i].kernel, queued[i].ns, queued[i].stream);
	queued_count = 0;
	return result;
}

static ncclResult_t collective(struct core_call *call, const char *kernel, size_t count, ncclDataType_t type,
			       ncclComm_t comm, cudaStream_t stream)
{
	uint64_t bytes = count * size_of(type), ns = LATENCY_NS + bytes * 1000 / BYTES_PER_US;

	call->object = (uintptr_t)comm;
	call->bytes = bytes;
	call->text = kernel;
	call->stream = nccl.core->stream_id(NULL, stream);
	if (!comm)
		return ncclInvalidArgument;
	if (!group)
		return launch(kernel, ns, stream);
	if (queued_count == OPS_MAX)
		return ncclInternalError;
	queued[queued_count].kernel = kernel;
	queued[queued_count].ns = ns;
	queued[queued_count++].stream = stream;
	return ncclSuccess;
}

#define API(name_, arguments, body)                                             \
	ncclResult_t name_ arguments                                            \
	{                                                                       \
		struct core_call call = {.library = CORE_NCCL, .name = #name_}; \
		load()->enter(&call);                                           \
		return (ncclResult_t)nccl.core->leave(&call, body);             \
	}

/* As NCCL names them. */
#define KERNEL(text, length) "_Z" length "ncclDevKernel_" text "24ncclDevKernelArgsStorageILm4096EE"

API(ncclAllReduce,
    (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
     cudaStream_t stream),
    collective(&call, KERNEL("AllReduce_Sum_f32_RING_LL", "39"), count, type, comm, stream))
API(ncclBroadcast,
    (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
    collective(&call, KERNEL("Broadcast_RING_LL", "31"), count, type, comm, stream))
API(ncclBcast, (void *data, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
    collective(&call, KERNEL("Broadcast_RING_LL", "31"), count, type, comm, stream))
API(ncclReduce,
    (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
     cudaStream_t stream),
    collective(&call, KERNEL("Reduce_Sum_f32_RING_LL", "36"), count, type, comm, stream))
API(ncclAllGather,
    (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
    collective(&call, KERNEL("AllGather_RING_LL", "31"), count, type, comm, stream))
API(ncclReduceScatter,
    (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
     cudaStream_t stream),
    collective(&call, KERNEL("ReduceScatter_Sum_f32_RING_LL", "43"), count, type, comm, stream))
API(ncclSend, (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
    collective(&call, KERNEL("SendRecv", "22"), count, type, comm, stream))
API(ncclRecv, (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
    collective(&call, KERNEL("SendRecv", "22"), count, type, comm, stream))
/* Since 2.28, whose header may not be here. */
API(ncclAlltoAll, (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
    collective(&call, KERNEL("AlltoAll", "22"), count, type, comm, stream))
API(ncclGather,
    (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
    collective(&call, KERNEL("Gather", "20"), count, type, comm, stream))
API(ncclScatter,
    (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
    collective(&call, KERNEL("Scatter", "21"), count, type, comm, stream))
API(ncclGroupStart, (void), (group++, ncclSuccess))
API(ncclGroupEnd, (void), end_group())

ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	return result ? "error of a double" : "no error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	memset(id, 1, sizeof(*id));
	return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
	struct ncclComm *made = calloc(1, sizeof(*made));

	if (!made)
		return ncclSystemError;
	made->ranks = ranks;
	made->rank = rank;
	*comm = made;
	return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
	*count = comm->ranks;
	return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	*rank = comm->rank;
	return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	free(comm);
	return ncclSuccess;
}
