/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * calls MODE OUT: a program with the doubles. It says "ready", waits for a line, makes its calls, and writes what the
 * doubles counted to OUT (a forked child to OUT.child).
 *
 * threads: four of them make launches, copies and waits. fork: the child does, too. idle: none. longjmp: calls are left.
 * forever: until a second line comes.
 */
#include "double.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS  500

void axpy(void) __asm__("_Z4axpyPfi");
void axpy(void)
{
}

static void hidden(void) __asm__("_Z6hiddenPf");
static void __attribute__((noinline)) hidden(void)
{
	__asm__ volatile("");
}

static void round_of_calls(int i)
{
	struct dim3 one = {1, 1, 1};
	void *at;

	cudaLaunchKernel(axpy, one, one, NULL, 0, NULL);
	cudaLaunchKernel(hidden, one, one, NULL, 0, NULL);
	cudaLaunchKernel((void *)16, one, one, NULL, 0, NULL);
	cudaMemcpyAsync(NULL, NULL, 1000 + i, i % 5, NULL);
	cudaMemcpyAsync_ptsz(NULL, NULL, 10, 1, NULL);
	cuMemsetD32Async(0, 0, 25, NULL);
	cudaMemset(NULL, 0, 32);
	cudaMemsetAsync(NULL, 0, 64, NULL);
	ncclAllReduce(NULL, NULL, 100, 7, 0, (void *)0x1234, NULL);
	if (i % 10)
		return;
	cudaMalloc(&at, 4096);
	cudaStreamSynchronize(NULL);
}

static void *rounds(void *arg)
{
	static const char name[] = "_Z3getv";
	void *function;

	cuModuleGetFunction(&function, NULL, name);
	for (int i = 0; i < ROUNDS; i++) {
		round_of_calls(i);
		cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	}
	double_thread_ends();
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

static jmp_buf back;

static void leave(void)
{
	longjmp(back, 1);
}

static void __attribute__((noinline)) left_calls(void)
{
	volatile char room[256]; /* frames of the calls that follow lie elsewhere */

	room[0] = 0;
	(void)room[0];
	for (volatile int i = 0; i < 100; i++) {
		double_hook = leave;
		if (!setjmp(back))
			cudaEventQuery(NULL);
		else
			double_left("cudaEventQuery");
		double_hook = NULL;
		round_of_calls(i);
	}
	double_thread_ends();
}

static void wait_for_line(void)
{
	char line[16];

	if (!fgets(line, sizeof(line), stdin))
		exit(1);
}

static void forever(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};

	while (poll(&in, 1, 0) == 0)
		round_of_calls(1);
}

int main(int argc, char **argv)
{
	char path[4096];
	pid_t child;

	setvbuf(stdin, NULL, _IONBF, 0);
	printf("ready %d\n", getpid());
	fflush(stdout);
	wait_for_line();
	snprintf(path, sizeof(path), "%s", argv[2]);
	if (!strcmp(argv[1], "threads"))
		threads();
	if (!strcmp(argv[1], "longjmp"))
		left_calls();
	if (!strcmp(argv[1], "forever"))
		forever();
	if (!strcmp(argv[1], "fork")) {
		rounds(NULL);
		child = fork();
		if (!child) {
			double_reset();
			snprintf(path, sizeof(path), "%s.child", argv[2]);
			sleep(1); /* until probes are there */
			rounds(NULL);
		} else {
			waitpid(child, NULL, 0);
		}
	}
	double_write(path);
	if (strcmp(argv[1], "fork") || child)
		wait_for_line();
	return 0;
}
