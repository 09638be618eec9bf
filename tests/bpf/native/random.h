/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Random numbers, the same in each run of the same seed. */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_RANDOM_H
#define STEPFLAME_TESTS_BPF_NATIVE_RANDOM_H

#include <stdlib.h>

#include "tests/bpf/native/kernel.h"

static u64 seed;

static inline u64 random_u64(void)
{
	u64 z = seed += 0x9e3779b97f4a7c15ULL; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static inline u64 random_below(u64 n)
{
	return random_u64() % n;
}

static inline u64 environment(const char *name, u64 otherwise)
{
	const char *value = getenv(name);

	return value ? strtoull(value, NULL, 0) : otherwise;
}

#endif
