// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* By symbols. In: an opened ELF file. Out: probes. No state. */
#include "gpu_functions.h"

#include <errno.h>
#include <stdlib.h>

#include "../../include/probes.h"
#include "../target/cuda.h"
#include "../target/soft_ends.h"

#define FUNCTIONS_MAX 1024 /* of a file; those of CUDA have some hundred */

struct search {
	const struct elf *elf;
	struct probe_list *ends, *begins;
	size_t cnt;
	uint64_t *found; /* vaddrs: a symbol stands in two tables, or has two names */
};

static bool all_emulated(const struct sites *sites)
{
	for (uint32_t i = 0; i < sites->exit_cnt; i++)
		if (!sites->exit[i].emulated)
			return false;
	return true;
}

/* Those that a step makes hundreds or thousands of: not one of them may end at a stepped probe. */
static bool is_frequent(enum gpu_api api)
{
	switch (cuda__class(api)) {
	case GPU_LAUNCH:
	case GPU_COPY:
	case GPU_SET:
	case GPU_EVENT:
		return true;
	default:
		return false;
	}
}

static int add_sites(struct search *search, const struct sites *sites, uint32_t begin, uint32_t end, uint32_t fn)
{
	int err = 0;

	for (uint32_t i = 0; i < sites->exit_cnt && !err; i++)
		err = probe_list__add_site(search->ends, &sites->exit[i], end, 0, fn);
	for (uint32_t i = 0; i < sites->unwind_cnt && !err; i++)
		err = probe_list__add_site(search->ends, &sites->unwind[i], end, 0, fn);
	return err ?: probe_list__add_site(search->begins, &sites->entry, begin, 0, fn);
}

/* A function whose returns would be stepped, or that jumps to where its work is done. */
static int add_softly(struct search *search, const struct elf_symbol *symbol, const struct sites *sites,
		      enum gpu_api api, bool jumps_away)
{
	struct site ends[SOFT_ENDS_MAX];
	uint32_t cnt = soft_ends__find(search->elf, symbol->vaddr, symbol->size, ends);
	uint32_t flags = cnt ? COOKIE_SOFT_END : COOKIE_NO_END;
	int err = 0;

	/* What the runtime calls must be known to lie inside of it. */
	if (!cnt && cuda__is_of_runtime(api) && !jumps_away)
		return add_sites(search, sites, PROBE_GPU_CALL, PROBE_GPU_RETURN, api);
	for (uint32_t i = 0; i < cnt && !err; i++)
		err = probe_list__add_site(search->ends, &ends[i], PROBE_GPU_RETURN, 0, api);
	return err ?: probe_list__add_site(search->begins, &sites->entry, PROBE_GPU_CALL, flags, api);
}

static int add_function(const struct elf_symbol *symbol, void *ctx)
{
	enum gpu_api api = symbol->function ? cuda__api(symbol->name) : GPU_API_NONE;
	int from = symbol->function && !api ? cuda__handle_from(symbol->name) : -1;
	struct search *search = ctx;
	struct sites sites;
	uint64_t *found;
	bool jumps_away;

	if ((!api && from < 0) || search->cnt == FUNCTIONS_MAX)
		return 0;
	for (size_t i = 0; i < search->cnt; i++)
		if (search->found[i] == symbol->vaddr)
			return 0;
	if (sites__find(search->elf, symbol->vaddr, symbol->size, SITES_STRICT, &sites))
		return 0;
	found = reallocarray(search->found, search->cnt + 1, sizeof(*found));
	if (!found)
		return -ENOMEM;
	search->found = found;
	found[search->cnt++] = symbol->vaddr;
	if (!api)
		return add_sites(search, &sites, PROBE_GPU_HANDLE, PROBE_GPU_HANDLE_RETURN, from);
	jumps_away = sites__jump_away(search->elf, symbol->vaddr, symbol->size, &sites);
	if (jumps_away || (is_frequent(api) && !all_emulated(&sites)))
		return add_softly(search, symbol, &sites, api, jumps_away);
	return add_sites(search, &sites, PROBE_GPU_CALL, PROBE_GPU_RETURN, api);
}

int gpu_functions__add(const struct elf *elf, struct probe_list *ends, struct probe_list *begins)
{
	struct search search = {.elf = elf, .ends = ends, .begins = begins};
	int err = elf__each_symbol(elf, add_function, &search);

	free(search.found);
	return err ?: (int)search.cnt;
}

void gpu_functions__keep_waits(struct probe_list *list)
{
	size_t cnt = 0;

	for (size_t i = 0; i < list->cnt; i++) {
		uint32_t event = COOKIE_EVENT(list->cookies[i]), fn = COOKIE_FN(list->cookies[i]);

		if ((event != PROBE_GPU_CALL && event != PROBE_GPU_RETURN) || fn >= GPU_API__COUNT ||
		    cuda__class(fn) != GPU_SYNC)
			continue;
		list->offsets[cnt] = list->offsets[i];
		list->cookies[cnt++] = list->cookies[i];
	}
	list->cnt = cnt;
}
