/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_TESTS_GPU_DOUBLE_H
#define STEPFLAME_TESTS_GPU_DOUBLE_H

enum { HTOD = 1, DTOH, DTOD, HTOH, UNKNOWN }; /* as enum gpu_direction */

struct dim3 {
	unsigned x, y, z;
};

/* Called in cudaEventQuery, where it is set. */
extern void (*double_hook)(void);

unsigned long double_now(void);
unsigned long double_enter(void);
int double_leave(const char *name, int direction, unsigned long bytes, unsigned long start); /* 0 */
int double_error(const char *name);
void double_left(const char *name);
void double_thread_ends(void); /* how long it was ready and did not run goes into the log */
void double_reset(void);
void double_write(const char *path);

static inline int double_spin(unsigned long ns)
{
	unsigned long end = double_now() + ns;

	while (double_now() < end)
		;
	return 0;
}

/* As CUDA's own functions, it ends by a look at what was returned to it. */
#define BODY(name, direction, bytes, work)                        \
	do {                                                      \
		unsigned long start_ = double_enter();            \
		work;                                             \
		if (double_leave(name, direction, bytes, start_)) \
			return double_error(name);                \
		return 0;                                         \
	} while (0)

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared, void *stream, void **params, void **extra);
int cuMemcpyHtoDAsync_v2(unsigned long to, const void *from, unsigned long bytes, void *stream);
int cuMemsetD32Async(unsigned long at, unsigned value, unsigned long cnt, void *stream);
int cuMemAlloc_v2(unsigned long *at, unsigned long bytes);
int cuStreamSynchronize(void *stream);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cudaLaunchKernel(const void *function, struct dim3 grid, struct dim3 block, void **args, unsigned long shared,
		     void *stream);
int cudaMemcpyAsync(void *to, const void *from, unsigned long bytes, int kind, void *stream);
int cudaMemcpyAsync_ptsz(void *to, const void *from, unsigned long bytes, int kind, void *stream);
int cudaMemset(void *at, int value, unsigned long bytes);
int cudaMemsetAsync(void *at, int value, unsigned long bytes, void *stream);
int cudaMalloc(void **at, unsigned long bytes);
int cudaStreamSynchronize(void *stream);
int cudaEventQuery(void *event);
int ncclAllReduce(const void *from, void *to, unsigned long cnt, int type, int op, void *comm, void *stream);

#endif
