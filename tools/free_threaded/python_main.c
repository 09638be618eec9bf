/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Makes a Python of a frozen application's launcher, in which a whole interpreter is: loaded by
 * LD_PRELOAD, it calls Py_BytesMain, as python3 does, instead of the launcher's main.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

typedef int (*main_function)(int, char **, char **);
typedef int (*start_function)(main_function, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

static int python_main(int argc, char **argv, char **environment)
{
	int (*bytes_main)(int, char **) = (int (*)(int, char **))dlsym(RTLD_DEFAULT, "Py_BytesMain");

	(void)environment;
	unsetenv("LD_PRELOAD"); /* of its children, too */
	return bytes_main ? bytes_main(argc, argv) : 127;
}

int __libc_start_main(main_function launcher, int argc, char **argv, void (*init)(void), void (*fini)(void),
		      void (*loader_fini)(void), void *stack_end);

int __libc_start_main(main_function launcher, int argc, char **argv, void (*init)(void), void (*fini)(void),
		      void (*loader_fini)(void), void *stack_end)
{
	start_function next = (start_function)dlsym(RTLD_NEXT, "__libc_start_main");

	(void)launcher;
	return next(python_main, argc, argv, init, fini, loader_fini, stack_end);
}
