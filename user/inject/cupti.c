// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds libcupti: the one that is mapped, which other tools would also use; else the one beside the
 * program's own CUDA libraries, as pip and the toolkit install them; else any that the loader
 * finds.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/inject/inject.h"

#if CUPTI_API_VERSION >= 130000
#define SAME(ours, theirs)                                                                                            \
	_Static_assert(offsetof(struct cupti_params, ours) == offsetof(CUpti_SubscriberParams, theirs), "its place"); \
	_Static_assert(sizeof(((struct cupti_params *)0)->ours) == sizeof(((CUpti_SubscriberParams *)0)->theirs),     \
		       "its size")
SAME(size, structSize);
SAME(name, subscriberName);
SAME(holder, oldSubscriberName);
SAME(holder_bytes, oldSubscriberSize);
#if CUPTI_API_VERSION >= 130200
SAME(several, allowMultipleSubscribers);
#endif
_Static_assert(CUPTI_HOLDER_BYTES >= CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN, "room for a name");
#endif

static const char *const sonames[] = {"libcupti.so.13",   "libcupti.so.12",   "libcupti.so.11.8", "libcupti.so.11.7",
				      "libcupti.so.11.6", "libcupti.so.11.5", "libcupti.so.11.4", "libcupti.so"};

/*
 * From the folder of libcudart: the folder itself; nvidia/cuda_cupti/lib beside
 * nvidia/cuda_runtime/lib; the toolkit's.
 */
static const char *const besides[] = {"", "/../../cuda_cupti/lib", "/../extras/CUPTI/lib64",
				      "/../../../extras/CUPTI/lib64"};
/* From the folder of torch's libraries. */
static const char *const of_torch[] = {"/../../nvidia/cu13/lib", "/../../nvidia/cuda_cupti/lib", ""};

struct mapped {
	char cupti[PATH_MAX], cudart[PATH_MAX], torch[PATH_MAX];
};

static int look_at_library(struct dl_phdr_info *info, size_t size, void *ctx)
{
	const char *path = info->dlpi_name ?: "", *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	struct mapped *mapped = ctx;

	/* Of several, the program's libraries bind to the functions of the first. */
	if (!*mapped->cupti && !strncmp(base, "libcupti.so", 11))
		snprintf(mapped->cupti, PATH_MAX, "%s", path);
	else if (slash && !strncmp(base, "libcudart.so", 12))
		snprintf(mapped->cudart, PATH_MAX, "%.*s", (int)(slash - path), path);
	else if (slash && !strncmp(base, "libtorch_cuda.so", 16))
		snprintf(mapped->torch, PATH_MAX, "%.*s", (int)(slash - path), path);
	return 0;
}

static void *open_in(const char *folder, const char *const *places, size_t place_cnt)
{
	char path[PATH_MAX];

	for (size_t i = 0; *folder && i < place_cnt; i++)
		for (size_t k = 0; k < sizeof(sonames) / sizeof(*sonames); k++) {
			int bytes = snprintf(path, sizeof(path), "%s%s/%s", folder, places[i], sonames[k]);
			void *library = bytes < PATH_MAX ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

			if (library)
				return library;
		}
	return NULL;
}

static void *open_library(const char *path)
{
	struct mapped *mapped = calloc(1, sizeof(*mapped));
	void *library = NULL;

	if (path && *path) {
		free(mapped);
		return dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	if (!mapped)
		return NULL;
	dl_iterate_phdr(look_at_library, mapped);
	if (*mapped->cupti)
		library = dlopen(mapped->cupti, RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		library = open_in(mapped->cudart, besides, sizeof(besides) / sizeof(*besides));
	if (!library)
		library = open_in(mapped->torch, of_torch, sizeof(of_torch) / sizeof(*of_torch));
	for (size_t i = 0; !library && i < sizeof(sonames) / sizeof(*sonames); i++)
		library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
	free(mapped);
	return library;
}

int cupti__open(struct cupti *cupti, const char *path)
{
	void *library;
	bool whole = true;

	if (cupti->library)
		return 0;
	library = open_library(path);
	if (!library)
		return -ENOENT;
#define X(name, needed)                              \
	cupti->name = dlsym(library, "cupti" #name); \
	whole = whole && (cupti->name || !needed);
	INJECT_CUPTI(X)
#undef X
	cupti->Subscribe_v2 = dlsym(library, "cuptiSubscribe_v2");
	cupti->may_share = cupti->Subscribe_v2;
#define X(name, arguments)                           \
	cupti->name = dlsym(library, "cupti" #name); \
	cupti->may_share = cupti->may_share && cupti->name;
	INJECT_CUPTI_SHARED(X)
#undef X
	if (!whole || cupti->GetVersion(&cupti->version))
		return -ENOTSUP;
	cupti->may_share = cupti->may_share && cupti->version >= CUPTI_SEVERAL_VERSION;
	cupti->library = library;
	return 0;
}

CUptiResult cupti__subscribe(struct cupti *cupti, CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc on_call,
			     void *ctx, char holder[CUPTI_HOLDER_BYTES])
{
	struct cupti_params params = {.size = sizeof(params),
				      .name = "stepflame",
				      .holder = holder,
				      .holder_bytes = CUPTI_HOLDER_BYTES,
				      .several = 1};

	memset(holder, 0, CUPTI_HOLDER_BYTES);
	cupti->subscriber = NULL;
	if (!cupti->Subscribe_v2)
		return cupti->Subscribe(subscriber, on_call, ctx);
	/* Refused by an older driver, and where another tool wants to be alone. */
	if (cupti->may_share && !cupti->Subscribe_v2(subscriber, on_call, ctx, &params)) {
		cupti->subscriber = *subscriber;
		return CUPTI_SUCCESS;
	}
	params.size = CUPTI_PARAMS_ALONE;
	return cupti->Subscribe_v2(subscriber, on_call, ctx, &params);
}
