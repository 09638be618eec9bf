/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_LIB_COMPARE_H
#define STEPFLAME_USER_LIB_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/*
 * Below, equal to or above 0, as qsort expects; a subtraction could overflow. Evaluates both
 * arguments twice.
 */
#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

/* For qsort and bsearch, of uint64_t. */
static inline int compare__u64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return COMPARE(*x, *y);
}

/* The same of pid_t, of uint32_t, and of double. */
static inline int compare__pid(const void *a, const void *b)
{
	const pid_t *x = a, *y = b;

	return COMPARE(*x, *y);
}

static inline int compare__u32(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return COMPARE(*x, *y);
}

static inline int compare__double(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return COMPARE(*x, *y);
}

/* Has the text that end? text: NULL: no. */
static inline bool compare__ends_with(const char *text, const char *end)
{
	size_t length = text ? strlen(text) : 0, wanted = strlen(end);

	return length >= wanted && !strcmp(text + length - wanted, end);
}

#endif
