/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the native targets share: the functions of libtarget.so that get probed, and the wait that lets a tracer attach
 * before the first call.
 */
#ifndef STEPFLAME_TESTS_VM_TARGET_H
#define STEPFLAME_TESTS_VM_TARGET_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns early for n <= 0; otherwise works a little. */
int vm_work(int n);

/* Calls itself n times: n + 1 calls in all. */
int vm_recurse(int n);

#ifdef __cplusplus
}
#endif

/* Says "ready" on stdout, then waits until the file `path` exists; gives up, and exits with 3, after two minutes. */
static inline void target__wait_or_die(const char *path)
{
	int tries = 0;

	puts("ready");
	fflush(stdout);
	for (; access(path, F_OK); usleep(10000)) {
		if (++tries > 12000)
			exit(3);
	}
}

#endif
