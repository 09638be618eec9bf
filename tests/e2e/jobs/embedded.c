/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program with an interpreter in it: embedded LIBPYTHON SCRIPT ROUNDS GO. It waits, with the library mapped and no interpreter in it, until the
 * file GO is there; then it makes an interpreter, which runs the script, and ends it, ROUNDS times. Meanwhile a thread runs that has nothing to do
 * with Python.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int done;

static void *native(void *arg)
{
	while (!done)
		;
	return arg;
}

int main(int argc, char **argv)
{
	void *lib = argc == 5 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	void (*initialize)(int) = lib ? (void (*)(int))dlsym(lib, "Py_InitializeEx") : NULL;
	int (*run)(const char *) = lib ? (int (*)(const char *))dlsym(lib, "PyRun_SimpleString") : NULL;
	int (*finalize)(void) = lib ? (int (*)(void))dlsym(lib, "Py_FinalizeEx") : NULL;
	char code[4096];
	pthread_t thread;

	if (!initialize || !run || !finalize)
		return 2;
	snprintf(code, sizeof(code), "import runpy; runpy.run_path('%s')", argv[2]);
	printf("ready\n");
	fflush(stdout);
	while (access(argv[4], F_OK))
		usleep(1000);
	pthread_create(&thread, NULL, native, NULL);
	for (int i = 0; i < atoi(argv[3]); i++) {
		initialize(0);
		if (run(code) || finalize())
			return 3;
	}
	done = 1;
	pthread_join(thread, NULL);
	return 0;
}
