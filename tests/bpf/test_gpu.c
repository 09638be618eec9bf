/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Calls of CUDA and NCCL (bpf/gpu.bpf.c): rows, what lies inside of another call, sums of steps, names of kernels. */
#include "tests/bpf/native/job.h"

#define LICENSE LICENSE_OF_GPU /* job.h has included a program with one of its own */
#include "bpf/gpu.bpf.c"
#undef LICENSE

/* Return addresses that lie on a stack of our own, since they are read: call n's is at SLOT(n), deeper ones lower. */
static u64 slots[64];
#define SLOT(n) ((u64)&slots[32 - 4 * (n)])

struct arguments {
	u64 di, si, dx, cx, r8, r9;
};

#define ARGS(...) arguments((u64[6]){__VA_ARGS__})

static struct arguments arguments(const u64 *a)
{
	return (struct arguments){a[0], a[1], a[2], a[3], a[4], a[5]};
}

static void hit_gpu(int (*program)(struct pt_regs *), enum probe_event event, u32 flags, u32 fn, u64 sp, u64 frame,
		    struct arguments a)
{
	struct pt_regs regs = {.sp = sp, .di = a.di, .si = a.si, .dx = a.dx, .cx = a.cx, .r8 = a.r8, .r9 = a.r9};

	native.cookie = COOKIE(event, flags, frame ? frame - sp : COOKIE_DEPTH_UNKNOWN, fn);
	program(&regs);
}

static void begin(u32 api, u64 frame, struct arguments a)
{
	*(u64 *)frame = 0xabcdef00 + api; /* who called */
	hit_gpu(gpu_enter, PROBE_GPU_CALL, 0, api, frame - 16, frame, a);
}

static void end(u32 api, u64 frame)
{
	hit_gpu(gpu_exit, PROBE_GPU_RETURN, 0, api, frame - 8, frame, ARGS(0));
}

static void call(u32 api, u64 frame, u64 ns, struct arguments a)
{
	begin(api, frame, a);
	wait_ns(ns);
	end(api, frame);
}

struct find {
	struct gpu_calls_key key;
	const struct gpu_entry *row;
	u32 cnt;
};

static bool find__visit(const void *key, void *value, void *arg)
{
	const struct gpu_entry *row = value;
	struct find *find = arg;

	(void)key;
	find->cnt += row->head.hash != 0;
	if (row->head.hash && !memcmp(&row->key, &find->key, sizeof(find->key)))
		find->row = row;
	return true;
}

static const struct gpu_calls_val *row_of(u32 api, u32 direction, u32 dtype, u64 action, u64 object)
{
	struct find find = {.key = {JOB_PID, api, direction, dtype, action, 0, object}};

	native_map__each(&gpu_rows, find__visit, &find);
	return find.row ? &find.row->val : NULL;
}

static u32 row_cnt(void)
{
	struct find find = {};

	native_map__each(&gpu_rows, find__visit, &find);
	return find.cnt;
}

static void expect_calls(const struct gpu_calls_val *val, u64 calls, u64 total_ns, u64 max_ns, u64 bytes)
{
	assert_non_null(val);
	assert_int_equal(val->calls, calls);
	assert_int_equal(val->total_ns, total_ns);
	assert_int_equal(val->max_ns, max_ns);
	assert_int_equal(val->bytes, bytes);
}

static int gpu_setup(void **state)
{
	(void)state;
	job__start(12);
	native__set_knob(&want_gpu, 1);
	memset(slots, 0, sizeof(slots));
	return 0;
}

static int gpu_teardown(void **state)
{
	native__set_knob(&want_gpu, 0);
	return teardown(state);
}

static void test_arguments(void **state)
{
	(void)state;
	call(GPU_API_cudaMemcpyAsync, SLOT(1), 10, ARGS(1, 2, 300, 1, 5, 6));
	call(GPU_API_cudaMemcpyAsync, SLOT(1), 30, ARGS(1, 2, 400, 0xffffffff00000001, 5, 6));
	call(GPU_API_cudaMemcpyAsync, SLOT(1), 5, ARGS(1, 2, 7, 4, 5, 6));
	call(GPU_API_cuMemsetD32Async, SLOT(1), 5, ARGS(1, 2, 25, 4, 5, 6));
	call(GPU_API_cudaMemcpyPeer, SLOT(1), 5, ARGS(1, 2, 3, 4, 5, 6));
	call(GPU_API_ncclAllReduce, SLOT(1), 5, ARGS(1, 2, 100, 7, 0, 0x77));
	call(GPU_API_ncclAllReduce, SLOT(1), 5, ARGS(1, 2, 100, 200, 0, 0x77));
	call(GPU_API_cudaLaunchKernelExC, SLOT(1), 5, ARGS(1, 0x55, 3));
	call(GPU_API_cudaLaunchKernelExC, SLOT(1), 5, ARGS(1, 0x55, 3));
	expect_calls(row_of(GPU_API_cudaMemcpyAsync, GPU_HTOD_DIRECTION, 0, 0, 0), 2, 40, 30, 700);
	expect_calls(row_of(GPU_API_cudaMemcpyAsync, GPU_UNKNOWN_DIRECTION, 0, 0, 0), 1, 5, 5, 7);
	expect_calls(row_of(GPU_API_cuMemsetD32Async, 0, 0, 0, 0), 1, 5, 5, 100);
	expect_calls(row_of(GPU_API_cudaMemcpyPeer, GPU_DTOD_DIRECTION, 0, 0, 0), 1, 5, 5, 5);
	expect_calls(row_of(GPU_API_ncclAllReduce, 0, 7, 0, 0x77), 1, 5, 5, 400);
	expect_calls(row_of(GPU_API_ncclAllReduce, 0, 200, 0, 0x77), 1, 5, 5, 0); /* no such type */
	expect_calls(row_of(GPU_API_cudaLaunchKernelExC, 0, 0, 0, 0x55), 2, 10, 5, 0);
	assert_int_equal(row_cnt(), 7);
	/* a kernel is told once */
	assert_int_equal(((const struct rec_gpu_object *)record(REC_GPU_OBJECT, 0))->object, 0x55);
	assert_null(record(REC_GPU_OBJECT, 1));
	expect_counters(CNT__COUNT);
}

static bool called_once(const void *key, void *value, void *arg)
{
	const struct gpu_entry *row = value;

	(void)key;
	(void)arg;
	if (row->head.hash)
		expect_calls(&row->val, 1, 5, 5, 0);
	return true;
}

/* What finds no room is lost, counted, and in no other row. */
static void test_table_full(void **state)
{
	(void)state;
	for (u64 i = 0; i < 2 * GPU_ROWS; i++)
		call(GPU_API_cuLaunchKernel, SLOT(1), 5, ARGS(0x1000 + 64 * i));
	native_map__each(&gpu_rows, called_once, NULL);
	assert_in_range(row_cnt(), GPU_ROWS / 2, GPU_ROWS);
	assert_int_equal(counter(CNT_GPU_CALLS_LOST) + row_cnt(), 2 * GPU_ROWS);
	assert_int_equal(job.proc->gpu.sums.launches, 2 * GPU_ROWS);
}

static void test_inside(void **state)
{
	(void)state;
	begin(GPU_API_cudaMemcpyAsync, SLOT(1), ARGS(1, 2, 300, 1));
	wait_ns(3);
	call(GPU_API_cuMemcpyHtoDAsync, SLOT(2), 10, ARGS(1, 2, 300));
	call(GPU_API_cuStreamSynchronize, SLOT(2), 20, ARGS(1)); /* a span, but no call */
	wait_ns(4);
	end(GPU_API_cudaMemcpyAsync, SLOT(1));
	end(GPU_API_cudaMemcpyAsync, SLOT(1)); /* once more: it has ended */
	expect_calls(row_of(GPU_API_cudaMemcpyAsync, GPU_HTOD_DIRECTION, 0, 0, 0), 1, 37, 37, 300);
	assert_int_equal(row_cnt(), 1);
	expect_row(SPAN_SYNC, 0, 0, 1, 20, 20);
	assert_int_equal(job.proc->gpu.sums.copies, 1);
	assert_int_equal(job.proc->gpu.sums.copied_bytes, 300);
	assert_int_equal(job.proc->gpu.sums.api_ns, 37);
	assert_int_equal(job.proc->gpu.sums.sync_ns, 0);
	expect_counters(CNT__COUNT);
}

/* One probe where several functions end: the frame says which one did. */
static void test_shared_end(void **state)
{
	(void)state;
	begin(GPU_API_cudaMemcpyAsync, SLOT(1), ARGS(1, 2, 300, 1));
	wait_ns(7);
	end(GPU_API_NONE, SLOT(2)); /* another call's */
	end(GPU_API_NONE, 0);
	end(GPU_API_NONE, SLOT(1));
	expect_calls(row_of(GPU_API_cudaMemcpyAsync, GPU_HTOD_DIRECTION, 0, 0, 0), 1, 7, 7, 300);
	begin(GPU_API_cuStreamSynchronize, SLOT(1), ARGS(1));
	wait_ns(20);
	end(GPU_API_NONE, SLOT(1));
	expect_row(SPAN_SYNC, 0, 0, 1, 20, 20);
	expect_counters(CNT__COUNT);
}

static void test_left(void **state)
{
	(void)state;
	/* by an exception, out of two frames: the next call is further up */
	begin(GPU_API_cudaMalloc, SLOT(3), ARGS(1, 10));
	call(GPU_API_cudaFree, SLOT(2), 5, ARGS(1));
	expect_calls(row_of(GPU_API_cudaMalloc, 0, 0, 0, 0), 1, 0, 0, 10);
	expect_calls(row_of(GPU_API_cudaFree, 0, 0, 0, 0), 1, 5, 5, 0);
	expect_counters(CNT_UNWOUND, 1, CNT__COUNT);
	/* the next call is deeper, and another frame has come to lie where the one left was */
	begin(GPU_API_cudaMalloc, SLOT(1), ARGS(1, 10));
	*(u64 *)SLOT(1) = 99;
	call(GPU_API_cudaFree, SLOT(2), 5, ARGS(1));
	expect_calls(row_of(GPU_API_cudaFree, 0, 0, 0, 0), 2, 10, 5, 0);
	expect_counters(CNT_UNWOUND, 2, CNT__COUNT);
}

/* Ends that not each return passes, and none. */
static void test_soft_ends(void **state)
{
	(void)state;
	*(u64 *)SLOT(1) = 1;
	for (u32 n = 0; n < 3; n++) {
		hit_gpu(gpu_enter, PROBE_GPU_CALL, COOKIE_SOFT_END, GPU_API_cudaEventQuery, SLOT(1) - 16, SLOT(1),
			ARGS(0));
		wait_ns(7);
		/* of another function that ends there, too; above the frame, where it cannot be; and its own */
		hit_gpu(gpu_exit, PROBE_GPU_RETURN, 0, GPU_API_cudaStreamQuery, SLOT(2), 0, ARGS(0));
		hit_gpu(gpu_exit, PROBE_GPU_RETURN, 0, GPU_API_cudaEventQuery, SLOT(0), 0, ARGS(0));
		if (n != 1)
			hit_gpu(gpu_exit, PROBE_GPU_RETURN, 0, GPU_API_cudaEventQuery, SLOT(2), 0, ARGS(0));
		wait_ns(100);
	}
	hit_gpu(gpu_enter, PROBE_GPU_CALL, COOKIE_NO_END, GPU_API_cuEventQuery, SLOT(1) - 16, SLOT(1), ARGS(0));
	call(GPU_API_cudaFree, SLOT(2), 5, ARGS(0));
	expect_calls(row_of(GPU_API_cudaEventQuery, 0, 0, 0, 0), 3, 14, 7, 0);
	expect_calls(row_of(GPU_API_cuEventQuery, 0, 0, 0, 0), 1, 0, 0, 0);
	expect_calls(row_of(GPU_API_cudaFree, 0, 0, 0, 0), 1, 5, 5, 0);
	expect_counters(CNT_GPU_UNTIMED, 2, CNT__COUNT);
}

static void test_actions(void **state)
{
	u64 action = action__new("work"), name;

	(void)state;
	action__next(action, FRAME(1));
	name = latin_id("work");
	call(GPU_API_cudaFree, SLOT(1), 5, ARGS(1));
	action__next(action, FRAME(1));
	expect_calls(row_of(GPU_API_cudaFree, 0, 0, name, 0), 1, 5, 5, 0);
	/* the engine's own threads belong to backward, others to nothing */
	fn__enter(FN_BACKWARD, FRAME(1));
	native.task = &job.thread;
	call(GPU_API_cudaFree, SLOT(1), 5, ARGS(1));
	strcpy(job.thread.comm, "pt_autograd_0");
	call(GPU_API_cudaFree, SLOT(1), 6, ARGS(1));
	native.task = &job.task;
	fn__exit(FN_BACKWARD, FRAME(1));
	expect_calls(row_of(GPU_API_cudaFree, 0, 0, 0, 0), 1, 5, 5, 0);
	expect_calls(row_of(GPU_API_cudaFree, 0, 0, FIXED_ID(BACKWARD), 0), 1, 6, 6, 0);
	expect_counters(CNT__COUNT);
}

static void test_steps(void **state)
{
	const struct rec_gpu_step *step;
	u64 from_ns;

	(void)state;
	call(GPU_API_cudaGraphLaunch, SLOT(1), 5, ARGS(1));
	for (u32 n = 0; n < 3; n++) {
		label__run(OPTIMIZER_LABEL, 100, FRAME(1));
		call(GPU_API_cudaLaunchKernel, SLOT(1), 5 + n, ARGS(1));
		call(GPU_API_cudaStreamSynchronize, SLOT(1), 9, ARGS(1));
	}
	step = record(REC_GPU_STEP, 0);
	assert_non_null(step);
	assert_int_equal(step->time_ns - step->from_ns, 100 + 5 + 9); /* from the first boundary to the second */
	from_ns = step->from_ns;
	for (u32 n = 0; n < 2; n++, from_ns = step->time_ns) {
		step = record(REC_GPU_STEP, n);
		assert_non_null(step);
		assert_int_equal(step->pid, JOB_PID);
		assert_int_equal(step->from_ns, from_ns);
		assert_int_equal(step->launches, 1);
		assert_int_equal(step->copies, 0);
		assert_int_equal(step->api_ns, 5 + n);
		assert_int_equal(step->sync_ns, 9);
	}
	assert_null(record(REC_GPU_STEP, 2));
	expect_counters(CNT__COUNT);
}

static void test_told(void **state)
{
	const struct rec_gpu_call *told;

	(void)state;
	call(GPU_API_cudaMemset, SLOT(1), 5, ARGS(1, 0, 64));
	job.proc->gpu.emits = 1;
	call(GPU_API_cudaMemset, SLOT(1), 6, ARGS(1, 0, 64));
	call(GPU_API_cudaMalloc, SLOT(1), 6, ARGS(1, 64)); /* not of those that are */
	told = record(REC_GPU_CALL, 0);
	assert_non_null(told);
	assert_int_equal(told->duration_ns, 6);
	assert_int_equal(told->start_ns + 12, native.now_ns);
	assert_int_equal(told->key.api, GPU_API_cudaMemset);
	assert_int_equal(told->bytes, 64);
	assert_int_equal(told->tid, JOB_PID);
	assert_null(record(REC_GPU_CALL, 1));
}

static void test_handles(void **state)
{
	struct gpu_handle key = {JOB_PID, 0x4444}, other = {JOB_PID, 0x5555};
	u64 out = 0, *name;

	(void)state;
	hit_gpu(gpu_enter, PROBE_GPU_HANDLE, 0, GPU_HANDLE_OF_NAME, FRAME(1) - 8, FRAME(1),
		ARGS((u64)&out, 1, (u64) "_Z4axpyPfi"));
	out = 0x4444;
	hit_gpu(gpu_exit, PROBE_GPU_HANDLE_RETURN, 0, GPU_HANDLE_OF_NAME, FRAME(1) - 8, FRAME(1), ARGS(0));
	name = bpf_map_lookup_elem(&gpu_handles, &key);
	assert_non_null(name);
	assert_int_equal(*name, utf8_id("_Z4axpyPfi"));
	hit_gpu(gpu_enter, PROBE_GPU_HANDLE, 0, GPU_HANDLE_OF_HANDLE, FRAME(1) - 8, FRAME(1), ARGS((u64)&out, 0x4444));
	out = 0x5555;
	hit_gpu(gpu_exit, PROBE_GPU_HANDLE_RETURN, 0, GPU_HANDLE_OF_HANDLE, FRAME(1) - 8, FRAME(1), ARGS(0));
	assert_int_equal(*(u64 *)bpf_map_lookup_elem(&gpu_handles, &other), *name);
	/* not readable: neither the name nor where it is to be */
	hit_gpu(gpu_enter, PROBE_GPU_HANDLE, 0, GPU_HANDLE_OF_NAME, FRAME(1) - 8, FRAME(1), ARGS(8, 1, 16));
	hit_gpu(gpu_exit, PROBE_GPU_HANDLE_RETURN, 0, GPU_HANDLE_OF_NAME, FRAME(1) - 8, FRAME(1), ARGS(0));
	assert_int_equal(native_map__cnt(&gpu_handles), 2);
	expect_counters(CNT_NAME_LOST, 1, CNT__COUNT);
}

/* With --gpu off waits are spans, and nothing else is there. */
static void test_off(void **state)
{
	(void)state;
	native__set_knob(&want_gpu, 0);
	call(GPU_API_cudaStreamSynchronize, SLOT(1), 9, ARGS(1));
	expect_row(SPAN_SYNC, 0, 0, 1, 9, 9);
	assert_int_equal(row_cnt(), 0);
	end(GPU_API_cudaStreamSynchronize, SLOT(1));
	expect_counters(CNT_OPEN_AT_START, 1, CNT__COUNT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_arguments, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_table_full, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_inside, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_shared_end, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_left, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_soft_ends, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_actions, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_steps, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_told, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_handles, gpu_setup, gpu_teardown),
		cmocka_unit_test_setup_teardown(test_off, gpu_setup, gpu_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
