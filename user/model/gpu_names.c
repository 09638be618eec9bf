// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The names for include/gpu.h and gpu_records.h. */
#include <string.h>

#include "user/model/gpu.h"

static const struct {
	const char *name;
	enum gpu_class class;
} apis[] = {[GPU_API_NONE] = {"", GPU_NONE},
#define X(name, class, ...) [GPU_API_##name] = {#name, GPU_##class},
	    STEPFLAME_GPU_APIS(X)
#undef X
};

static const char *const directions[] = {
#define X(id, name) [GPU_##id##_DIRECTION] = name,
	STEPFLAME_GPU_DIRECTIONS(X)
#undef X
};

const char *gpu_api__name(unsigned int api)
{
	return apis[api < GPU_API__COUNT ? api : GPU_API_NONE].name;
}

const char *gpu_window__end_name(unsigned int end)
{
	static const char *const names[] = {
#define X(id, name) [GPU_WINDOW_##id] = name,
		STEPFLAME_GPU_WINDOW_ENDS(X)
#undef X
	};

	return names[end < GPU_WINDOW__COUNT ? end : GPU_WINDOW_OPEN];
}

static const struct overhead {
	uint32_t kind;
	const char *name, *meaning;
	bool profiling;
} overheads[] = {
#define X(id, number, name, profiling, meaning) {number, name, meaning, profiling},
	STEPFLAME_GPU_OVERHEADS(X)
#undef X
};

static const struct overhead *find_overhead(uint32_t kind)
{
	static const struct overhead other = {.name = "other", .meaning = "of a kind that is not known"};

	for (size_t i = 0; i < sizeof(overheads) / sizeof(*overheads); i++)
		if (overheads[i].kind == kind)
			return &overheads[i];
	return &other;
}

const char *gpu_overhead__name(uint32_t kind)
{
	return find_overhead(kind)->name;
}

const char *gpu_overhead__meaning(uint32_t kind)
{
	return find_overhead(kind)->meaning;
}

bool gpu_overhead__is_profiling(uint32_t kind)
{
	return find_overhead(kind)->profiling;
}

enum gpu_class gpu_api__class(unsigned int api)
{
	return apis[api < GPU_API__COUNT ? api : GPU_API_NONE].class;
}

const char *gpu_direction__name(unsigned int direction)
{
	return directions[direction < GPU_DIRECTION__COUNT ? direction : GPU_NONE_DIRECTION];
}

/*
 * Whether the text after a function's base name is a version suffix: "_v7000", "_v2", "_ptsz",
 * "_v3020_ptds".
 */
static bool is_version(const char *rest)
{
	while (*rest) {
		if (!strncmp(rest, "_ptsz", 5) || !strncmp(rest, "_ptds", 5)) {
			rest += 5;
		} else if (!strncmp(rest, "_v", 2) && rest[2] >= '0' && rest[2] <= '9') {
			rest += 2;
			rest += strspn(rest, "0123456789");
		} else {
			return false;
		}
	}
	return true;
}

enum gpu_api gpu_api__find(const char *name)
{
	for (int api = 1; api < GPU_API__COUNT; api++) {
		size_t len = strlen(apis[api].name);

		if (!strncmp(name, apis[api].name, len) && is_version(name + len))
			return api;
	}
	return GPU_API_NONE;
}
