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
	unsigned long key; /* 8 * the name's address + direction; 0: free */
	unsigned long calls, bytes, ns;
} rows[ROWS_MAX];
static unsigned long delayed_ns;
static __thread int depth;

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

/* Without a lock, which would take time that is not in ns. */
int double_leave(const char *name, int direction, unsigned long bytes, unsigned long start)
{
	unsigned long ns = double_now() - start, key = 8 * (unsigned long)name + direction;
	int i = 0;

	if (--depth)
		return 0;
	while (rows[i].key != key && !__sync_bool_compare_and_swap(&rows[i].key, 0, key))
		i++;
	__sync_fetch_and_add(&rows[i].calls, 1);
	__sync_fetch_and_add(&rows[i].bytes, bytes);
	__sync_fetch_and_add(&rows[i].ns, ns);
	return 0;
}

void double_thread_ends(void)
{
	FILE *f = fopen("/proc/thread-self/schedstat", "r");
	unsigned long ran, delayed = 0;

	if (f && fscanf(f, "%lu %lu", &ran, &delayed) == 2)
		__sync_fetch_and_add(&delayed_ns, delayed);
	if (f)
		fclose(f);
}

/* An exception has left a call. */
void double_left(const char *name)
{
	double_leave(name, 0, 0, double_now());
}

void double_write(const char *path)
{
	FILE *f = fopen(path, "w");

	fprintf(f, "[[\"delayed\", 0, 0, 0, %lu]", delayed_ns);
	for (int i = 0; rows[i].key; i++)
		fprintf(f, ", [\"%s\", %lu, %lu, %lu, %lu]", (const char *)(rows[i].key / 8), rows[i].key % 8,
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

/* The next two end as CUDA's own: what they return is looked at in another function alone, that they call or jump to. */
static int __attribute__((noinline)) set(const char *name, unsigned long bytes)
{
	BODY(name, 0, bytes, cuMemsetD32Async(0, 0, bytes / 4, NULL));
}

int cudaMemset(void *at, int value, unsigned long bytes)
{
	char room[64];

	__asm__ volatile("" : : "r"(room) : "memory"); /* it may be in use: no jump */
	return set("cudaMemset", bytes);
}

int cudaMemsetAsync(void *at, int value, unsigned long bytes, void *stream)
{
	return set("cudaMemsetAsync", bytes);
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
