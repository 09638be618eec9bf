/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The injection library's decoder, on records as CUPTI's headers have them, and its side of the ring: read back by the
 * reader; and the buffers that it gives to CUPTI. Made where CUPTI's headers are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/inject/buffers.c"
#include "user/inject/decode.c"
#include "user/inject/ring.c"
#include "user/session/sources/gpu_ring.h"

static struct ring shared;
static struct decoder decoder;
static struct gpu_ring *reader;

static CUptiResult callback_name(CUpti_CallbackDomain domain, uint32_t id, const char **name)
{
	static const char *const names[] = {"cudaLaunchKernel_ptsz_v7000", "cudaGetDevice_v3020",
					    "cuMemcpyHtoDAsync_v2", "cuLaunchKernel"};

	*name = id < 4 ? names[id] : NULL;
	return id < 4 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

static const struct cupti cupti = {.GetCallbackName = callback_name};

/* A new window. */
static void begin(void)
{
	if (!reader) {
		assert_int_equal(ring__make(&shared), 0);
		assert_int_equal(gpu_ring__open(getpid(), getpid(), &reader), 0);
	}
	decoder.ring = &shared;
	decoder.cupti = &cupti;
	gpu_ring__stop(reader);
	gpu_ring__start(reader, 1, 1);
	ring__restart(&shared);
	decoder__restart(&decoder);
	shared.control->seen = shared.control->wanted;
}

static void decode(const void *record, size_t bytes)
{
	decoder__record(&decoder, record, bytes);
}

static union gpu_ring_record next(enum gpu_ring_type type)
{
	union gpu_ring_record out;

	assert_true(gpu_ring__next(reader, &out));
	assert_int_equal(out.hdr.type, type);
	return out;
}

static void assert_empty(void)
{
	union gpu_ring_record out;

	assert_false(gpu_ring__next(reader, &out));
}

#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 newest_kernel;
typedef CUpti_ActivityMemcpy6 newest_copy;
typedef CUpti_ActivityMemcpyPtoP4 newest_peer_copy;
typedef CUpti_ActivityMemset4 newest_set;
#else
typedef CUpti_ActivityKernel5 newest_kernel;
typedef CUpti_ActivityMemcpy4 newest_copy;
typedef CUpti_ActivityMemcpyPtoP2 newest_peer_copy;
typedef CUpti_ActivityMemset2 newest_set;
#endif

static const newest_kernel a_kernel = {
	.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
	.registersPerThread = 40,
	.start = 1000,
	.end = 2500,
	.deviceId = 1,
	.contextId = 2,
	.streamId = 7,
	.gridX = 3,
	.gridY = 4,
	.gridZ = 5,
	.blockX = 32,
	.blockY = 8,
	.blockZ = 1,
	.staticSharedMemory = 128,
	.dynamicSharedMemory = 4096,
	.correlationId = 99,
	.name = "_Z4gemmPf",
};

static void test_kernel(void **state)
{
	newest_kernel rec = a_kernel;
	struct gpu_ring_activity got;
	union gpu_ring_record name;

	begin();
	decode(&rec, sizeof(rec));
	name = next(GPU_RING_NAME_TEXT);
	assert_string_equal(name.name.text, "_Z4gemmPf");
	got = next(GPU_RING_ACTIVITY).activity;
	assert_int_equal(got.kind, GPU_ACTIVITY_KERNEL);
	assert_int_equal(got.name, name.name.id);
	assert_true(got.start_ns == 1000 && got.end_ns == 2500 && got.correlation == 99);
	assert_true(got.device == 1 && got.context == 2 && got.stream == 7 && got.bytes == 4096 + 128);
	assert_true(got.kernel.grid[0] == 3 && got.kernel.grid[1] == 4 && got.kernel.grid[2] == 5);
	assert_true(got.kernel.block[0] == 32 && got.kernel.block[1] == 8 && got.kernel.block[2] == 1);
	assert_true(got.kernel.registers == 40 && got.kernel.graph_node == 0 && !decoder.graphs);
	/* The name is told once; of a graph the node is told. */
	rec.graphNodeId = 0x500000003ULL;
	decode(&rec, sizeof(rec));
	got = next(GPU_RING_ACTIVITY).activity;
	assert_true(got.name == name.name.id && got.kernel.graph_node == 3 && decoder.graphs);
	rec.name = NULL;
	decode(&rec, sizeof(rec));
	assert_int_equal(next(GPU_RING_ACTIVITY).activity.name, 0);
	assert_empty();
	/* And once more in another window. */
	begin();
	decode(&a_kernel, sizeof(a_kernel));
	next(GPU_RING_NAME_TEXT);
	next(GPU_RING_ACTIVITY);
}

static void test_copies(void **state)
{
	static const enum gpu_direction directions[] = {GPU_UNKNOWN_DIRECTION, GPU_HTOD_DIRECTION, GPU_DTOH_DIRECTION,
							GPU_HTOD_DIRECTION,    GPU_DTOH_DIRECTION, GPU_DTOD_DIRECTION,
							GPU_DTOD_DIRECTION,    GPU_DTOD_DIRECTION, GPU_DTOD_DIRECTION,
							GPU_HTOH_DIRECTION,    GPU_DTOD_DIRECTION};
	newest_copy copied = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY, .bytes = 1ULL << 33, .start = 5, .end = 6};
	newest_peer_copy peer = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY2, .bytes = 17, .correlationId = 4, .streamId = 3};
	newest_set filled = {.kind = CUPTI_ACTIVITY_KIND_MEMSET, .bytes = 18, .correlationId = 5, .deviceId = 6};
	struct gpu_ring_activity got;

	begin();
	for (size_t i = 0; i < sizeof(directions) / sizeof(*directions); i++) {
		copied.copyKind = i;
		decode(&copied, sizeof(copied));
		got = next(GPU_RING_ACTIVITY).activity;
		assert_true(got.kind == GPU_ACTIVITY_COPY && got.bytes == 1ULL << 33 && got.direction == directions[i]);
	}
	decode(&peer, sizeof(peer));
	got = next(GPU_RING_ACTIVITY).activity;
	assert_true(got.kind == GPU_ACTIVITY_COPY && got.bytes == 17 && got.direction == GPU_DTOD_DIRECTION);
	assert_true(got.correlation == 4 && got.stream == 3);
	decode(&filled, sizeof(filled));
	got = next(GPU_RING_ACTIVITY).activity;
	assert_true(got.kind == GPU_ACTIVITY_SET && got.bytes == 18 && got.correlation == 5 && got.device == 6);
	assert_empty();
}

static void test_calls(void **state)
{
	CUpti_ActivityAPI rec = {.kind = CUPTI_ACTIVITY_KIND_RUNTIME,
				 .start = 10,
				 .end = 20,
				 .threadId = 321,
				 .correlationId = 6,
				 .returnValue = 2};
	struct gpu_ring_activity got;

	begin();
	decode(&rec, sizeof(rec));
	assert_string_equal(next(GPU_RING_NAME_TEXT).name.text, "cudaLaunchKernel");
	got = next(GPU_RING_ACTIVITY).activity;
	assert_true(got.kind == GPU_ACTIVITY_CALL && got.correlation == 6 && got.call.tid == 321);
	assert_true(got.call.result == 2 && !got.call.driver && got.start_ns == 10 && got.end_ns == 20);
	/* Neither those that ask nothing of a GPU, nor those without a name. */
	for (uint32_t cbid = 1; cbid < 6; cbid += 4) {
		rec.cbid = cbid;
		decode(&rec, sizeof(rec));
		decode(&rec, sizeof(rec));
	}
	rec.cbid = 1u << 30;
	decode(&rec, sizeof(rec));
	assert_empty();
	rec.kind = CUPTI_ACTIVITY_KIND_DRIVER;
	rec.cbid = 2;
	decode(&rec, sizeof(rec));
	assert_string_equal(next(GPU_RING_NAME_TEXT).name.text, "cuMemcpyHtoDAsync");
	assert_int_equal(next(GPU_RING_ACTIVITY).activity.call.driver, 1);
	assert_empty();
}

static void test_others(void **state)
{
	CUpti_ActivitySynchronization waited = {.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
						.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE,
						.start = 1,
						.end = 9,
						.correlationId = 8,
						.streamId = 4,
						.cudaEventId = UINT32_MAX};
	CUpti_ActivityOverhead own = {.kind = CUPTI_ACTIVITY_KIND_OVERHEAD, .start = 3, .end = 4};
	struct gpu_ring_activity got;

	begin();
	decode(&waited, sizeof(waited));
	got = next(GPU_RING_ACTIVITY).activity;
	assert_true(got.kind == GPU_ACTIVITY_SYNC && got.correlation == 8 && got.stream == 4 && !got.other.event);
	assert_int_equal(got.other.type, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
	decode(&own, sizeof(own));
	assert_int_equal(next(GPU_RING_ACTIVITY).activity.kind, GPU_ACTIVITY_OVERHEAD);
	assert_empty();
}

/* What is cut off by the buffer's end, and what is of no kind that was asked for. */
static void test_unknown(void **state)
{
	uint64_t before;
	newest_kernel rec = a_kernel;

	begin();
	before = shared.control->unknown;
	decode(&rec, sizeof(oldest_kernel) - 8);
	rec.kind = CUPTI_ACTIVITY_KIND_PCIE;
	decode(&rec, sizeof(rec));
	assert_int_equal(shared.control->unknown, before + 2);
	assert_empty();
}

/* Nobody reads: what finds no room is counted, what did is whole, and another window has all the room. */
static void test_full(void **state)
{
	uint64_t full, read = 0, cnt = 2 * GPU_RING_BYTES / sizeof(struct gpu_ring_activity);
	union gpu_ring_record out;

	begin();
	full = shared.control->full;
	for (uint64_t i = 0; i < cnt; i++)
		decode(&a_kernel, sizeof(a_kernel));
	while (gpu_ring__next(reader, &out))
		read += out.hdr.type == GPU_RING_ACTIVITY;
	assert_true(read > cnt / 3);
	assert_int_equal(read + shared.control->full - full, cnt);
	for (uint64_t i = 0; i < cnt; i++)
		decode(&a_kernel, sizeof(a_kernel));
	begin();
	decode(&a_kernel, sizeof(a_kernel));
	next(GPU_RING_NAME_TEXT);
	next(GPU_RING_ACTIVITY);
	assert_empty();
}

static void test_many_names(void **state)
{
	newest_kernel rec = a_kernel;
	uint32_t named = 0, unnamed = 0;
	union gpu_ring_record out;
	char name[64];

	begin();
	rec.name = name;
	for (int i = 0; i < NAMES_MAX; i++) {
		snprintf(name, sizeof(name), "kernel_%d", i);
		decode(&rec, sizeof(rec));
		while (gpu_ring__next(reader, &out))
			if (out.hdr.type == GPU_RING_NAME_TEXT)
				named++, assert_string_equal(out.name.text, name);
			else
				unnamed += !out.activity.name;
	}
	assert_int_equal(named, NAMES_MAX / 4 * 3);
	assert_int_equal(named + unnamed, NAMES_MAX);
}

/* Takes all, one for each turn of the clock; *cnt: how many there were. */
static void take_all(struct buffer *taken[BUFFERS_MAX + 1], int *cnt)
{
	for (*cnt = 0; *cnt <= BUFFERS_MAX && (taken[*cnt] = buffers__take(100 + *cnt)); ++*cnt)
		;
}

static void test_buffers(void **state)
{
	static struct buffer *taken[BUFFERS_MAX + 1];
	uint32_t held;
	int cnt;

	buffers__begin();
	assert_true(buffers__held(&held) == UINT64_MAX && held == 0);
	take_all(taken, &cnt);
	assert_int_equal(cnt, BUFFERS_MAX);
	for (int i = 0; i < cnt; i++) {
		taken[i]->memory[0] = taken[i]->memory[BUFFER_BYTES - 1] = 1; /* no two share it */
		assert_ptr_equal(buffers__find(taken[i]->memory), taken[i]);
		for (int k = 0; k < i && i < 50; k++)
			assert_true(taken[k]->memory + BUFFER_BYTES <= taken[i]->memory ||
				    taken[i]->memory + BUFFER_BYTES <= taken[k]->memory);
	}
	assert_null(buffers__find(NULL));
	assert_null(buffers__find(taken[0]->memory + 8));
	assert_true(buffers__held(&held) == 100 && held == BUFFERS_MAX);
	/* What is complete up to when: that of the oldest one. */
	for (int i = 0; i < 7; i++)
		buffers__release(taken[i]);
	assert_true(buffers__held(&held) == 107 && held == BUFFERS_MAX - 7);
	assert_ptr_equal(buffers__take(5000), taken[0]);
	assert_int_equal(buffers__held(&held), 107);
	/* Those that CUPTI keeps are not of the next window, and their contents stay. */
	buffers__begin();
	assert_true(buffers__held(&held) == UINT64_MAX && !buffer__is_of_window(taken[9]));
	buffers__give_memory_back();
	assert_true(taken[9]->memory[0] == 1 && taken[3]->memory[0] == 0);
	assert_ptr_equal(buffers__take(6000), taken[1]);
	assert_true(buffers__held(&held) == 6000 && held == 1 && buffer__is_of_window(taken[1]));
	for (int i = 0; i < cnt; i++)
		buffers__release(taken[i]);
	buffers__give_memory_back();
}

static void test_forked(void **state)
{
	int status;
	pid_t pid;

	begin();
	pid = fork();
	if (!pid) {
		unsigned char resident;

		_exit(mincore(shared.control, 4096, &resident) ? 0 : 1); /* it is not mapped there */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel),     cmocka_unit_test(test_copies),  cmocka_unit_test(test_calls),
		cmocka_unit_test(test_others),     cmocka_unit_test(test_unknown), cmocka_unit_test(test_full),
		cmocka_unit_test(test_many_names), cmocka_unit_test(test_buffers), cmocka_unit_test(test_forked),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	gpu_ring__free(reader);
	return failed;
}
