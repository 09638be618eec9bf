/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's clocks, in nanoseconds. */
#ifndef STEPFLAME_USER_LIB_CLOCK_H
#define STEPFLAME_USER_LIB_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock__ns(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

#endif
