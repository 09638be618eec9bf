// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/runtime/cuda/cuda.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	enum gpu_class class;
} apis[GPU_API__COUNT] = {[GPU_API_NONE] = {"", GPU_NONE},
#define X(name, class, ...) [GPU_API_##name] = {#name, GPU_##class},
			  STEPFLAME_GPU_APIS(X)
#undef X
};

static const struct {
	const char *name;
	enum gpu_handle_from from;
} handles[] = {
#define X(name, from) {#name, GPU_HANDLE_##from},
	STEPFLAME_GPU_HANDLES(X)
#undef X
};

static bool ends_in(const char *text, size_t size, const char *end)
{
	size_t bytes = strlen(end);

	return size > bytes && !memcmp(text + size - bytes, end, bytes);
}

/* Length of the symbol without the suffixes of its variants. */
static size_t base_size(const char *symbol)
{
	static const char *const variants[] = {"_ptsz", "_ptds"}, *const versions[] = {"_v2", "_v3"};
	size_t size = strlen(symbol);

	for (size_t i = 0; i < 2; i++)
		if (ends_in(symbol, size, variants[i]))
			size -= strlen(variants[i]);
	for (size_t i = 0; i < 2; i++)
		if (ends_in(symbol, size, versions[i]))
			size -= strlen(versions[i]);
	return size;
}

static bool is_named(const char *symbol, size_t size, const char *name)
{
	return !strncmp(symbol, name, size) && !name[size];
}

/* A fast filter: it runs for each symbol of each file that a process maps. */
static bool may_be_one(const char *symbol)
{
	return (symbol[0] == 'c' && symbol[1] == 'u') || (symbol[0] == 'n' && symbol[1] == 'c');
}

enum gpu_api cuda__api(const char *symbol)
{
	size_t size;

	if (!may_be_one(symbol))
		return GPU_API_NONE;
	size = base_size(symbol);
	for (enum gpu_api api = GPU_API_NONE + 1; api < GPU_API__COUNT; api++)
		if (is_named(symbol, size, apis[api].name))
			return api;
	return GPU_API_NONE;
}

int cuda__handle_from(const char *symbol)
{
	size_t size = may_be_one(symbol) ? base_size(symbol) : 0;

	for (size_t i = 0; size && i < sizeof(handles) / sizeof(*handles); i++)
		if (is_named(symbol, size, handles[i].name))
			return handles[i].from;
	return -1;
}

const char *cuda__name(enum gpu_api api)
{
	return apis[api].name;
}

enum gpu_class cuda__class(enum gpu_api api)
{
	return apis[api].class;
}

bool cuda__is_of_runtime(enum gpu_api api)
{
	return !strncmp(apis[api].name, "cuda", 4);
}

static const char *path_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool cuda__is_library(const char *path)
{
	/* Prefixes, since old wheels of torch have libcudart-SOMETHING.so. */
	static const char *const files[] = {"libcudart.so", "libcudart-", "libcuda.so", "libnccl.so", "libnccl-"};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (!strncmp(path_base_name(path), files[i], strlen(files[i])))
			return true;
	return false;
}

void cuda__libraries(const struct process *process, char *text, uint32_t size)
{
	size_t used = 0;

	text[0] = 0;
	for (size_t i = 0; i < process->file_cnt && used < size; i++)
		if (cuda__is_library(process->files[i].path))
			used += snprintf(text + used, size - used, "%s%s", used ? ", " : "",
					 path_base_name(process->files[i].path));
}

/*
 * "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build ...": the
 * first number with a dot.
 */
int nvidia__version(FILE *file, char *version, size_t size)
{
	char line[512], *rest, *word;

	if (!fgets(line, sizeof(line), file) || strncmp(line, "NVRM version:", 13))
		return -ENODATA;
	for (word = strtok_r(line, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest)) {
		if (!isdigit((unsigned char)word[0]) || !strchr(word, '.') || word[strspn(word, "0123456789.")])
			continue;
		snprintf(version, size, "%s", word);
		return 0;
	}
	return -ENODATA;
}

int nvidia__restricts_profiling(FILE *file)
{
	char line[512];

	while (fgets(line, sizeof(line), file)) {
		const char *value = strchr(line, ':');

		if (value &&
		    (!strncmp(line, "RmProfilingAdminOnly:", 21) || strstr(line, "RestrictProfilingToAdminUsers:")))
			return atoi(value + 1) != 0;
	}
	return -ENODATA;
}
