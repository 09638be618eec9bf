// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The model of GPUs, and names of kernels. What joins and what is idle is in tests/replay/test_gpu_report.py. */
#include "tests/unit/library.h"

#include "tests/unit/build_job.h"
#include "user/analysis/gpu/gpu_time.h"
#include "user/elf/demangle.h"
#include "user/model/gpu.h"

static void test_functions(void **state)
{
	static const struct {
		const char *name;
		enum gpu_api api;
	} names[] = {
		{"cudaMemcpy_v3020", GPU_API_cudaMemcpy},
		{"cudaMemcpyAsync_ptsz_v7000", GPU_API_cudaMemcpyAsync},
		{"cuMemcpyHtoDAsync_v2_ptsz", GPU_API_cuMemcpyHtoDAsync},
		{"cudaLaunchKernel", GPU_API_cudaLaunchKernel},
		{"cudaLaunchKernelExC_v11060", GPU_API_cudaLaunchKernelExC},
		{"cudaMemcpy3DAsync_v3020", GPU_API_NONE},
		{"cudaMemcpy_v", GPU_API_NONE},
		{"cudaMemcpy_", GPU_API_NONE},
		{"", GPU_API_NONE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_int_equal(gpu_api__find(names[i].name), names[i].api);
	assert_string_equal(gpu_api__name(GPU_API_ncclAllReduce), "ncclAllReduce");
	assert_int_equal(gpu_api__class(GPU_API_ncclAllReduce), GPU_COMM);
	assert_string_equal(gpu_api__name(60000), "");
	assert_int_equal(gpu_api__class(60000), GPU_NONE);
	assert_string_equal(gpu_direction__name(GPU_DTOH_DIRECTION), "device to host");
	assert_string_equal(gpu_direction__name(77), "");
}

static void test_kernel_names(void **state)
{
	/* As nvcc makes them, and torch has them. */
	static const char *const names[][2] = {
		{"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
		 "at::native::vectorized_elementwise_kernel<CUDAFunctor_add ...>"},
		{"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sum_"
		 "functorIfffEclERNS_14TensorIteratorEEUlffE_EEjfLi4EEEEEvT1_",
		 "at::native::reduce_kernel<ReduceOp func_wrapper_t sum_functor ...>"},
		{"_ZN7cutlass6KernelI42cutlass_80_simt_sgemm_128x64_8x5_nn_align1EEvNT_6ParamsE",
		 "cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1 ...>"},
		{"_Z4gemmPf", "gemm"},
		{"ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"},
		{"", ""},
		{"_Z", "_Z"},
		{"_ZN99999999999999999999x", "_ZN99999999999999999999x"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char *name = demangle__kernel(names[i][0]);

		assert_string_equal(name, names[i][1]);
		free(name);
	}
}

static void test_names_to_keep(void **state)
{
	/* Two that differ behind what a recording has room for, one that has just room. */
	char long_name[800], kept[2][REC_NAME_MAX + 1];

	(void)state;
	for (int i = 0; i < 2; i++) {
		strcpy(long_name, "_ZN7cutlass6KernelI");
		for (int k = 0; k < 80; k++)
			strcat(long_name, "6Shapes");
		sprintf(long_name + strlen(long_name), "Li%dEEEvNT_6ParamsE", i);
		demangle__kernel_to_keep(long_name, kept[i], sizeof(kept[i]));
		assert_non_null(strstr(kept[i], "cutlass::Kernel<Shapes ...> #"));
		assert_int_equal(kept[i][strlen(kept[i]) - 9], '#');
	}
	assert_string_not_equal(kept[0], kept[1]);
	memset(long_name, 'k', REC_NAME_MAX);
	long_name[REC_NAME_MAX] = 0;
	demangle__kernel_to_keep(long_name, kept[0], sizeof(kept[0]));
	assert_string_equal(kept[0], long_name);
	demangle__kernel_to_keep("_Z4gemmPf", kept[0], sizeof(kept[0]));
	assert_string_equal(kept[0], "_Z4gemmPf");
	demangle__kernel_to_keep("long", kept[0], 4);
	assert_int_equal(strlen(kept[0]), 3);
}

static void add_activity(struct job *job, enum gpu_activity kind, __u64 start_ns, __u64 duration_ns)
{
	struct rec_gpu_activity activity = {.hdr = {.type = REC_GPU_ACTIVITY, .size = sizeof(activity)},
					    .pid = 1,
					    .kind = kind,
					    .start_ns = start_ns,
					    .duration_ns = duration_ns};

	assert_int_equal(add_copy(job, &activity), 0);
}

static void test_spans(void **state)
{
	struct job *job = job__new();
	const struct gpu_line *line;
	struct gpu_time *time;
	size_t cnt;

	(void)state;
	add_activity(job, GPU_ACTIVITY_KERNEL, 300, 50);
	add_activity(job, GPU_ACTIVITY_KERNEL, 100, 50);
	add_activity(job, GPU_ACTIVITY_COPY, 120, 80);
	add_activity(job, GPU_ACTIVITY_SET, 200, 0);
	time = gpu_time__new(job, NULL);
	line = gpu_time__lines(time, &cnt);
	assert_int_equal(cnt, 1);
	assert_int_equal(line->work.cnt, 2);
	assert_int_equal(gpu_spans__total(&line->work), 150);
	assert_int_equal(gpu_spans__total(&line->kernels), 100);
	assert_int_equal(gpu_spans__within(&line->work, 0, UINT64_MAX), 150);
	assert_int_equal(gpu_spans__within(&line->work, 150, 310), 60);
	assert_int_equal(gpu_spans__within(&line->work, 200, 300), 0);
	assert_int_equal(gpu_spans__within(&line->work, 310, 150), 0);
	assert_int_equal(gpu_spans__total(&line->idle[GPU_IDLE_OTHER]), 100); /* who asked is not known */
	assert_int_equal(line->watched_ns, 250);
	assert_int_equal(gpu_time__watched(time, 1, 0, 200), 100);
	assert_int_equal(gpu_time__watched(time, 2, 0, 200), 0);
	gpu_time__free(time);
	job__free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_kernel_names),
		cmocka_unit_test(test_names_to_keep),
		cmocka_unit_test(test_spans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
