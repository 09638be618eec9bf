// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A PJRT plugin that computes nothing. Its table is made when it is first asked for, as XLA's own plugins make theirs;
 * LIE says what is wrong with it. Built and stripped by tests/e2e/test_pjrt.py.
 */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define FUNCTIONS 137

enum lie {
	NONE,
	TOO_LARGE, /* struct_size says more than there is */
	ODD_SIZE,  /* struct_size is no multiple of a word */
	TOO_SMALL, /* a table of another kind: without what is looked for */
	VERSION_SIZE,
	OUTSIDE, /* a function that is not in the plugin's code */
	IN_DATA, /* a function that is no code at all */
	MISSING, /* none where one is needed */
	ANOTHER, /* a second table that says something else */
};

#ifndef LIE
#define LIE NONE
#endif

struct api {
	size_t struct_size;
	void *extension_start;
	struct {
		size_t struct_size;
		void *extension_start;
		int major, minor;
	} version;
	void *(*function[FUNCTIONS])(void *args);
};

static struct api api;
struct api another;
static volatile uint64_t calls[FUNCTIONS];

__attribute__((noinline)) static void take(long ns)
{
	struct timespec time = {.tv_nsec = ns};

	nanosleep(&time, NULL);
}

#define FUNCTION(n, ns)                              \
	static void *function_##n(void *args)        \
	{                                            \
		take(ns);                            \
		calls[n]++;                          \
		return args ? (void *)0 : (void *)1; \
	}

FUNCTION(8, 3000000)
FUNCTION(20, 20000000)
FUNCTION(22, 1000000)
FUNCTION(55, 2000000)
FUNCTION(70, 500000)
FUNCTION(0, 1000)

static void fill(struct api *a)
{
	*a = (struct api){.struct_size = sizeof(*a), .version = {24, NULL, 0, 114}};
	for (int i = 0; i < FUNCTIONS; i++)
		a->function[i] = function_0;
	a->function[8] = function_8;
	a->function[20] = function_20;
	a->function[22] = function_22;
	a->function[55] = function_55;
	a->function[70] = function_70;
}

__attribute__((visibility("default"))) const void *GetPjrtApi(void)
{
	fill(&api);
	switch (LIE) {
	case TOO_LARGE:
		api.struct_size = 1ull << 40;
		break;
	case ODD_SIZE:
		api.struct_size--;
		break;
	case TOO_SMALL:
		api.struct_size = 8 * 20;
		break;
	case VERSION_SIZE:
		api.version.struct_size = 16;
		break;
	case OUTSIDE:
		api.function[55] = (void *(*)(void *))malloc;
		break;
	case IN_DATA:
		api.function[3] = (void *(*)(void *))calls;
		break;
	case MISSING:
		api.function[55] = NULL;
		break;
	case ANOTHER:
		fill(&another);
		another.function[55] = function_22;
		break;
	default:
		break;
	}
	return &api;
}
