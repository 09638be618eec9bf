/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What nvcc adds to a program: its kernels are registered before main. */
#include "tests/gpu/kernels.h"

void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *tid,
			    void *bid, void *block, void *grid, int *warp_size);

__attribute__((constructor)) static void register_all(void)
{
	static int binary;
	void **handle = __cudaRegisterFatBinary(&binary);

	kernels__register(__cudaRegisterFunction);
	__cudaRegisterFatBinaryEnd(handle);
}
