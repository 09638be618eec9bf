/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A client of CUPTI, by which the double of it is tested: loaded by CUDA_INJECTION64_PATH, it enables what the numbers in
 * GPU_COLLECTOR_KINDS say, writes each record as a line of JSON to GPU_COLLECTOR_OUT when the program ends, and counts
 * callbacks. With GPU_COLLECTOR_SILENT it drops the records.
 */
#include <cupti.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cupti_records.h"

#define BUFFER_BYTES (64 << 10)

static FILE *out;
static unsigned long entered, left;
static bool silent;

#define CUPTI(name) ((__typeof__(name) *)dlsym(library, #name))
static void *library;

static void request(uint8_t **buffer, size_t *size, size_t *max)
{
	*buffer = aligned_alloc(8, BUFFER_BYTES);
	*size = BUFFER_BYTES;
	*max = 0;
}

#define WORK(r)                                                                                                       \
	fprintf(out,                                                                                                  \
		"{\"kind\":%d,\"start\":%lu,\"end\":%lu,\"correlation\":%u,\"device\":%u,\"context\":%u,\"stream\":%" \
		"u,",                                                                                                 \
		r->kind, r->start, r->end, r->correlationId, r->deviceId, r->contextId, r->streamId)

static void tell(const CUpti_Activity *record)
{
	const record_kernel *kernel = (const void *)record;
	const record_memcpy *copy = (const void *)record;
	const record_memset *set = (const void *)record;
	const record_sync *sync = (const void *)record;
	const record_graph *graph = (const void *)record;
	const record_overhead *overhead = (const void *)record;
	const CUpti_ActivityAPI *api = (const void *)record;

	switch ((int)record->kind) {
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
		WORK(kernel);
		fprintf(out,
			"\"name\":\"%s\",\"grid\":[%d,%d,%d],\"block\":[%d,%d,%d],\"shared\":%d,\"graph_node\":%lu}\n",
			kernel->name, kernel->gridX, kernel->gridY, kernel->gridZ, kernel->blockX, kernel->blockY,
			kernel->blockZ, kernel->dynamicSharedMemory, kernel->graphNodeId);
		break;
	case CUPTI_ACTIVITY_KIND_MEMCPY:
		WORK(copy);
		fprintf(out, "\"bytes\":%lu,\"direction\":%d}\n", copy->bytes, copy->copyKind);
		break;
	case CUPTI_ACTIVITY_KIND_MEMSET:
		WORK(set);
		fprintf(out, "\"bytes\":%lu}\n", set->bytes);
		break;
	case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
		WORK(graph);
		fprintf(out, "\"graph\":%u}\n", graph->graphId);
		break;
	case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
		fprintf(out, "{\"kind\":%d,\"start\":%lu,\"end\":%lu,\"correlation\":%u,\"type\":%d}\n", record->kind,
			sync->start, sync->end, sync->correlationId, sync->type);
		break;
	case CUPTI_ACTIVITY_KIND_OVERHEAD:
		fprintf(out, "{\"kind\":%d,\"start\":%lu,\"end\":%lu}\n", record->kind, overhead->start, overhead->end);
		break;
	default:
		fprintf(out,
			"{\"kind\":%d,\"start\":%lu,\"end\":%lu,\"correlation\":%u,\"cbid\":%u,\"tid\":%u,\"result\":%"
			"u}\n",
			record->kind, api->start, api->end, api->correlationId, api->cbid, api->threadId,
			api->returnValue);
	}
}

static void complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	CUpti_Activity *record = NULL;
	CUptiResult result = CUPTI_ERROR_MAX_LIMIT_REACHED;

	while (!silent && !(result = CUPTI(cuptiActivityGetNextRecord)(buffer, valid, &record)))
		tell(record);
	if (valid && result != CUPTI_ERROR_MAX_LIMIT_REACHED)
		fprintf(out, "{\"kind\":-1,\"result\":%d}\n", result);
	free(buffer);
}

static void called(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
	const CUpti_CallbackData *call = data;

	__atomic_add_fetch(call->callbackSite == CUPTI_API_ENTER ? &entered : &left, 1, __ATOMIC_RELAXED);
}

static void end(void)
{
	const char *late = getenv("GPU_COLLECTOR_LATE_US");
	size_t dropped = 0;

	usleep(late ? atoi(late) : 0);
	CUPTI(cuptiActivityFlushAll)(0);
	CUPTI(cuptiActivityGetNumDroppedRecords)(NULL, 0, &dropped);
	fprintf(out, "{\"kind\":-2,\"dropped\":%zu,\"entered\":%lu,\"left\":%lu}\n", dropped, entered, left);
	fclose(out);
}

int InitializeInjection(void)
{
	const char *kinds = getenv("GPU_COLLECTOR_KINDS"), *path = getenv("GPU_COLLECTOR_OUT");
	CUpti_SubscriberHandle subscriber;
	CUptiResult result;

	library = dlopen("libcupti.so.13", RTLD_NOW);
	out = library && path ? fopen(path, "we") : NULL;
	if (!out)
		return 0;
	silent = getenv("GPU_COLLECTOR_SILENT");
	atexit(end);
	CUPTI(cuptiSetThreadIdType)(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
	result = CUPTI(cuptiSubscribe)(&subscriber, called, NULL);
	if (result) {
		fprintf(out, "{\"kind\":-3,\"result\":%d}\n", result);
		return 1;
	}
	if (!silent)
		CUPTI(cuptiEnableDomain)(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API);
	CUPTI(cuptiActivityRegisterCallbacks)(request, complete);
	for (char *rest = strdup(kinds ? kinds : ""), *word; (word = strsep(&rest, ","));)
		if (*word)
			CUPTI(cuptiActivityEnable)((CUpti_ActivityKind)atoi(word));
	return 1;
}
