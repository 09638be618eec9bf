/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions with the names of CUDA's and NCCL's, which do nothing but take time, and count themselves: built several
 * times, with DRIVER, RUNTIME or NCCL. A call that another one makes is not counted.
 */
#include "double.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#ifdef DRIVER

#define ROWS_MAX 256

static struct {
	const char *name;
	int direction;
	unsigned long calls, bytes, ns;
} rows[ROWS_MAX];
static __thread int depth;
static volatile int lock;

void (*double_hook)(void);

unsigned long double_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000UL + ts.tv_nsec;
}

unsigned long double_enter(void)
{
	depth++;
	return double_now();
}

void double_reset(void)
{
	depth = 0;
	memset(rows, 0, sizeof(rows));
}

int double_error(const char *name)
{
	fprintf(stderr, "%s failed\n", name);
	return 999;
}

int double_leave(const char *name, int direction, unsigned long bytes, unsigned long start)
{
	unsigned long ns = double_now() - start;
	int i = 0;

	if (--depth)
		return 0;
	while (__sync_lock_test_and_set(&lock, 1))
		;
	while (rows[i].name && (strcmp(rows[i].name, name) || rows[i].direction != direction))
		i++;
	rows[i].name = name;
	rows[i].direction = direction;
	rows[i].calls++;
	rows[i].bytes += bytes;
	rows[i].ns += ns;
	__sync_lock_release(&lock);
	return 0;
}

/* An exception has left a call. */
void double_left(const char *name)
{
	double_leave(name, 0, 0, double_now());
}

void double_write(const char *path)
{
	FILE *f = fopen(path, "w");

	fputs("[", f);
	for (int i = 0; rows[i].name; i++)
		fprintf(f, "%s[\"%s\", %d, %lu, %lu, %lu]", i ? ", " : "", rows[i].name, rows[i].direction,
			rows[i].calls, rows[i].bytes, rows[i].ns);
	fputs("]\n", f);
	fclose(f);
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared, void *stream, void **params, void **extra)
{
	BODY("cuLaunchKernel", 0, 0, double_spin(2000));
}

int cuMemcpyHtoDAsync_v2(unsigned long to, const void *from, unsigned long bytes, void *stream)
{
	BODY("cuMemcpyHtoDAsync", HTOD, bytes, double_spin(3000));
}

int cuMemsetD32Async(unsigned long at, unsigned value, unsigned long cnt, void *stream)
{
	BODY("cuMemsetD32Async", 0, 4 * cnt, double_spin(1000));
}

int cuMemAlloc_v2(unsigned long *at, unsigned long bytes)
{
	BODY("cuMemAlloc", 0, bytes, double_spin(1000));
}

int cuStreamSynchronize(void *stream)
{
	BODY("cuStreamSynchronize", 0, 0, double_spin(50000));
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = (void *)name;
	return 0;
}

#endif
#ifdef RUNTIME

int cudaLaunchKernel(const void *function, struct dim3 grid, struct dim3 block, void **args, unsigned long shared,
		     void *stream)
{
	BODY("cudaLaunchKernel", 0, 0,
	     cuLaunchKernel((void *)function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, args,
			    0));
}

int cudaMemcpyAsync(void *to, const void *from, unsigned long bytes, int kind, void *stream)
{
	BODY("cudaMemcpyAsync",
	     kind == 1   ? HTOD
	     : kind == 2 ? DTOH
	     : kind == 3 ? DTOD
	     : kind      ? UNKNOWN
			 : HTOH,
	     bytes, cuMemcpyHtoDAsync_v2((unsigned long)to, from, bytes, stream));
}

int cudaMemcpyAsync_ptsz(void *to, const void *from, unsigned long bytes, int kind, void *stream)
{
	BODY("cudaMemcpyAsync", kind == 1 ? HTOD : DTOH, bytes,
	     cuMemcpyHtoDAsync_v2((unsigned long)to, from, bytes, stream));
}

int cudaMalloc(void **at, unsigned long bytes)
{
	BODY("cudaMalloc", 0, bytes, cuMemAlloc_v2((unsigned long *)at, bytes));
}

int cudaStreamSynchronize(void *stream)
{
	BODY("cudaStreamSynchronize", 0, 0, cuStreamSynchronize(stream));
}

int cudaEventQuery(void *event)
{
	BODY("cudaEventQuery", 0, 0, double_hook ? double_hook() : double_spin(500));
}

#endif
#ifdef NCCL

int ncclAllReduce(const void *from, void *to, unsigned long cnt, int type, int op, void *comm, void *stream)
{
	static const int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

	BODY("ncclAllReduce", 0, cnt * bytes[type], cuLaunchKernel(comm, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0));
}

#endif
