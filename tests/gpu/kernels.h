/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Host functions of kernels, as nvcc makes them of template<int N> void gemm_tile(unsigned long ns, float *) and so on:
 * mangled names, registered with the runtime before the first of them is launched. The first parameter is how long the kernel runs.
 */
#ifndef STEPFLAME_TESTS_GPU_KERNELS_H
#define STEPFLAME_TESTS_GPU_KERNELS_H

#define KERNELS(X)                  \
	X(_Z9gemm_tileILi64EEvmPf)  \
	X(_Z9gemm_tileILi128EEvmPf) \
	X(_Z4relumPKfPf)            \
	X(_Z9layernormmPf)          \
	X(_Z13backward_gemmmPf)     \
	X(_Z9adam_stepmPfS_)

#define X(name) void name(void);
KERNELS(X)
#undef X

/* __cudaRegisterFunction */
typedef void (*kernels_register)(void **handle, const char *host, char *device, const char *name, int threads,
				 void *tid, void *bid, void *block, void *grid, int *warp_size);

void kernels__register(kernels_register register_function);

/* cudaLaunchKernel, where a dim3 lies as it does in registers */
typedef int (*kernels_launch)(const void *host, unsigned long grid_xy, unsigned long grid_z, unsigned long block_xy,
			      unsigned long block_z, void **args, unsigned long shared, void *stream);

/* Launches so many, by turns, and does nothing else. The first error, or 0. */
int kernels__launch(kernels_launch launch, unsigned long cnt, void *stream);

#endif
