/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * calls MODE --wait GO --out OUT: rounds of calls of all kinds, one after the other. It says `ready PID`, waits until GO is
 * there, makes its calls, writes OUT, and ends when GO is gone. The truth is in the log of the doubles; OUT has when
 * the calls began, how long its threads were ready and did not run, and the rounds that it made.
 *
 * threads: four of them. fork: a child makes calls too, which fail, as CUDA's do in a child. idle: none. longjmp: calls
 * are left. forever: until GO is gone.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/core.h"
#include "tests/gpu/kernels.h"

#define THREADS 4
#define ROUNDS  500
#define LEFT    100 /* calls */

cudaError_t cudaMemcpyAsync_ptsz(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
				 cudaStream_t stream);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);

static const char *mode, *go, *out;
static unsigned long delayed_ns, rounds_made;

/* Only in the program's own symbols, and not registered: its launches fail. */
static void hidden(void) __asm__("_Z6hiddenPf");
static void __attribute__((noinline)) hidden(void)
{
	__asm__ volatile("");
}

static void round_of_calls(int i)
{
	dim3 one = {1, 1, 1};
	void *at;

	cudaLaunchKernel((const void *)_Z9layernormmPf, one, one, NULL, 0, NULL);
	cudaLaunchKernel((const void *)hidden, one, one, NULL, 0, NULL);
	cudaLaunchKernel((const void *)16, one, one, NULL, 0, NULL); /* no function's address */
	cudaMemcpyAsync(NULL, NULL, 1000 + i, i % 5, NULL);
	cudaMemcpyAsync_ptsz(NULL, NULL, 10, cudaMemcpyHostToDevice, NULL);
	cuMemsetD32Async(0, 0, 25, NULL);
	cudaMemset(NULL, 0, 32);
	cudaMemsetAsync(NULL, 0, 64, NULL);
	ncclAllReduce(NULL, NULL, 100, ncclFloat32, ncclSum, (ncclComm_t)0x1234, NULL);
	if (i % 10)
		return;
	cudaMalloc(&at, 4096);
	cudaStreamSynchronize(NULL);
}

static void thread_ends(void)
{
	FILE *f = fopen("/proc/thread-self/schedstat", "r");
	unsigned long ran, delayed = 0;

	if (f && fscanf(f, "%lu %lu", &ran, &delayed) == 2)
		__sync_fetch_and_add(&delayed_ns, delayed);
	if (f)
		fclose(f);
}

static void *rounds(void *arg)
{
	CUfunction function;

	cuModuleGetFunction(&function, NULL, "_Z3getv");
	for (int i = 0; i < ROUNDS; i++) {
		round_of_calls(i);
		cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	}
	thread_ends();
	return arg;
}

static void threads(void)
{
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, rounds, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

/* --- calls that are left, as by an exception of what CUDA calls back --- */

static jmp_buf back;
static struct core_call left; /* for the log */

static void leave(struct core_call *call)
{
	if (strcmp(call->name, "cudaEventQuery"))
		return;
	left = *call;
	longjmp(back, 1);
}

static void nothing(struct core_call *call)
{
}

static bool no_op(const struct core_op *op)
{
	return false;
}

static bool no_sync(const struct core_sync *sync)
{
	return false;
}

static void __attribute__((noinline)) left_calls(void)
{
	static const struct core_hooks hooks = {.enter = leave, .leave = nothing, .op = no_op, .sync = no_sync};
	volatile char room[256]; /* frames of the calls that follow lie elsewhere */

	room[0] = 0;
	(void)room[0];
	for (volatile int i = 0; i < LEFT; i++) {
		gpu_double_core()->set_hooks(&hooks);
		if (!setjmp(back))
			cudaEventQuery(NULL);
		gpu_double_core()->set_hooks(NULL);
		gpu_double_core()->leave(&left, 0);
		round_of_calls(i);
	}
	thread_ends();
}

/* --- */

static void wait_for(bool there)
{
	while (access(go, F_OK) != (there ? 0 : -1))
		usleep(1000);
}

static void make_calls(pid_t *child)
{
	*child = -1;
	if (!strcmp(mode, "threads"))
		threads();
	if (!strcmp(mode, "longjmp"))
		left_calls();
	while (!strcmp(mode, "forever") && !access(go, F_OK)) {
		round_of_calls(1);
		rounds_made++;
	}
	if (strcmp(mode, "fork"))
		return;
	rounds(NULL);
	*child = fork();
	if (*child) {
		waitpid(*child, NULL, 0);
	} else {
		delayed_ns = 0;
		sleep(1); /* until probes are there */
		rounds(NULL);
	}
}

static void write_out(unsigned long begin_ns)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s.new", out);
	f = fopen(path, "w");
	if (!f)
		exit(1);
	fprintf(f, "{\"begin\": %lu, \"delayed\": %lu, \"rounds\": %lu}\n", begin_ns, delayed_ns, rounds_made);
	if (fclose(f) || rename(path, out))
		exit(1);
}

int main(int argc, char **argv)
{
	unsigned long begin_ns;
	char childs[4096];
	pid_t child;

	if (argc != 6 || strcmp(argv[2], "--wait") || strcmp(argv[4], "--out"))
		return 2;
	mode = argv[1];
	go = argv[3];
	out = argv[5];
	cudaFree(NULL);
	printf("ready %d\n", getpid());
	fflush(stdout);
	wait_for(true);
	begin_ns = gpu_double_core()->now();
	make_calls(&child);
	if (!child) {
		snprintf(childs, sizeof(childs), "%s.child", out);
		out = childs;
	}
	write_out(begin_ns);
	if (child)
		wait_for(false);
	return 0;
}
