/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libtarget.so: functions to put probes on. Built (see test_kernels.py) without endbr64 and with frame pointers set up
 * first, so that each begins with a push, which the kernel emulates.
 */
#include "tests/vm/target.h"

/* volatile, so that the calls are made and not computed at compile time. */
static volatile int sink;

static __attribute__((noinline)) int spin(int n)
{
	for (int i = 0; i < n; i++)
		sink = i;
	return n;
}

/* Calls a function, so that it needs a frame and begins with a push even though one path returns early. */
__attribute__((noinline)) int vm_work(int n)
{
	if (n <= 0)
		return -1;
	return spin(n) + 1;
}

__attribute__((noinline)) int vm_recurse(int n)
{
	if (n <= 0)
		return 0;
	/* With something left to do after the call: no tail call. */
	int depth = vm_recurse(n - 1);

	sink = depth;
	return depth + 1;
}
