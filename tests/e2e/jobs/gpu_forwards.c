/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions that jump to where their work is done. With DRIVER: through a table, as libcuda before 580. With STUB: through
 * one that dlsym fills, as implib.so makes them, of which XLA has its stubs. Else a program that calls the latter, which
 * call the former: argv[1]: where it writes what it did.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef DRIVER

/* 0x321cba00 says that the driver has been taken down. */
__attribute__((visibility("hidden"))) int state;

#define JUMP(name)                                                                                                \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ": cmpl $0x321cba00, state(%rip)\n" \
		"je 1f\njmp *table_" #name "(%rip)\n"                                                             \
		"1: mov $4, %eax\nret\n.size " #name ", . - " #name "\n"                                          \
		".data\n.align 8\ntable_" #name ": .quad do_" #name "\n.text\n");

JUMP(cuStreamSynchronize)
JUMP(cuLaunchKernel)
JUMP(cuModuleGetFunction)

/* Not two equal ends, which the compiler would make one. */
__attribute__((visibility("hidden"), used)) int do_cuStreamSynchronize(void *stream)
{
	const struct timespec pause = {.tv_nsec = 2000000};

	return nanosleep(&pause, NULL);
}

__attribute__((visibility("hidden"), used)) int do_cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz)
{
	return f ? 0 : (int)(gx + gy + gz);
}

__attribute__((visibility("hidden"), used)) int do_cuModuleGetFunction(void **out, void *module, const char *name)
{
	*out = (void *)(0x1000 + (size_t)name[0]);
	return 0;
}

#elif defined STUB

__attribute__((visibility("hidden"), used)) void *table[3];

__attribute__((visibility("hidden"), used)) void resolve(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (!driver)
		abort();
	table[0] = dlsym(driver, "cuStreamSynchronize");
	table[1] = dlsym(driver, "cuLaunchKernel");
	table[2] = dlsym(driver, "cuModuleGetFunction");
}

__asm__(".text\nsave_and_resolve: push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\nsub $8, %rsp\n"
	"call resolve\nadd $8, %rsp\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\nret\n");

#define STUB_OF(name, n)                                                                                   \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ": cmpq $0, table + 8 * " #n \
		"(%rip)\nje 2f\n"                                                                          \
		"1: jmp *table + 8 * " #n "(%rip)\n"                                                       \
		"2: push $" #n "\ncall save_and_resolve\nadd $8, %rsp\njmp 1b\n"                           \
		".size " #name ", . - " #name "\n");

STUB_OF(cuStreamSynchronize, 0)
STUB_OF(cuLaunchKernel, 1)
STUB_OF(cuModuleGetFunction, 2)

#else

int cuStreamSynchronize(void *stream);
int cuLaunchKernel(void *f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
		   void **);
int cuModuleGetFunction(void **out, void *module, const char *name);

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double waited = 0;
	void *kernel = NULL;
	FILE *out;

	cuStreamSynchronize(NULL); /* the stub is filled */
	printf("ready 0\n");
	fflush(stdout);
	getchar();
	cuModuleGetFunction(&kernel, NULL, "axpy");
	for (int i = 0; i < 300; i++) {
		double start = now();

		cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		if (i % 3)
			continue;
		start = now();
		cuStreamSynchronize(NULL);
		waited += now() - start;
	}
	out = fopen(argv[1], "w");
	fprintf(out, "{\"launches\": 300, \"waits\": 100, \"waited\": %.9f}\n", waited);
	fclose(out);
	getchar();
	return 0;
}

#endif
