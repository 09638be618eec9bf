// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Finds the functions by symbol. In: an opened ELF file. Out: probes. No state. */
#include "user/session/sources/gpu_functions.h"

#include <errno.h>
#include <stdlib.h>

#include "include/probes.h"
#include "user/runtime/cuda/cuda.h"
#include "user/session/probe_cache.h"
#include "user/x86/sites.h"

#define FUNCTIONS_MAX 1024 /* per file; CUDA's libraries have some hundred */

struct gpu_search {
	const struct elf *elf;
	struct probe_list *ends, *begins;
	size_t cnt;
	uint64_t *found; /* vaddrs so far: a function may have several symbols */
};

static bool all_emulated(const struct sites *sites)
{
	for (uint32_t i = 0; i < sites->exit_cnt; i++)
		if (!sites->exit[i].emulated)
			return false;
	return true;
}

/*
 * Does a step make hundreds of these calls, or more? Then exit probes must not be single-stepped.
 */
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

static int add_exit_probes(struct gpu_search *search, const struct sites *sites, uint32_t end, uint32_t fn)
{
	int err = 0;

	for (uint32_t i = 0; i < sites->exit_cnt && !err; i++)
		err = probe_list__add_site(search->ends, &sites->exit[i], end, 0, fn);
	for (uint32_t i = 0; i < sites->unwind_cnt && !err; i++)
		err = probe_list__add_site(search->ends, &sites->unwind[i], end, 0, fn);
	return err;
}

static int add_call_sites(struct gpu_search *search, const struct sites *sites, uint32_t begin, uint32_t end,
			  uint32_t fn)
{
	return add_exit_probes(search, sites, end, fn)
		       ?: probe_list__add_site(search->begins, &sites->entry, begin, 0, fn);
}

/*
 * Adds a function whose return probes would be single-stepped, or lie in another function (`away`).
 */
static int add_soft_ended_call(struct gpu_search *search, const struct elf_symbol *symbol, const struct sites *sites,
			       enum gpu_api api, bool away)
{
	struct site ends[SOFT_ENDS_MAX];
	uint32_t cnt = soft_ends__find(search->elf, symbol->vaddr, symbol->size, ends);
	uint32_t flags = cnt ? COOKIE_SOFT_END : COOKIE_NO_END;
	int err = 0;

	/*
	 * The runtime's calls need their exact ends: BPF must know which other calls lie inside of
	 * them.
	 */
	if (!cnt && cuda__is_of_runtime(api) && !away)
		return add_call_sites(search, sites, PROBE_GPU_CALL, PROBE_GPU_RETURN, api);
	for (uint32_t i = 0; i < cnt && !err; i++)
		err = probe_list__add_site(search->ends, &ends[i], PROBE_GPU_RETURN, 0, api);
	return err ?: probe_list__add_site(search->begins, &sites->entry, PROBE_GPU_CALL, flags, api);
}

static int add_gpu_call(struct gpu_search *search, const struct elf_symbol *symbol, const struct sites *sites,
			enum gpu_api api)
{
	struct sites there;
	enum sites_away away = sites__away(search->elf, symbol->vaddr, symbol->size, sites, &there);

	if (away == SITES_ELSEWHERE)
		return 0; /* the function that does the work counts as the call */
	if (away == SITES_AWAY && there.exit_cnt && (!is_frequent(api) || all_emulated(&there)))
		return add_exit_probes(search, &there, PROBE_GPU_RETURN, api)
			       ?: probe_list__add_site(search->begins, &sites->entry, PROBE_GPU_CALL, COOKIE_SOFT_END,
						       api);
	if (away == SITES_AWAY || (is_frequent(api) && !all_emulated(sites)))
		return add_soft_ended_call(search, symbol, sites, api, away == SITES_AWAY);
	return add_call_sites(search, sites, PROBE_GPU_CALL, PROBE_GPU_RETURN, api);
}

/* The exit probe must be where the function has already written the handle. */
static int add_handle_function(struct gpu_search *search, const struct elf_symbol *symbol, const struct sites *sites,
			       uint32_t from)
{
	struct sites there;
	enum sites_away away = sites__away(search->elf, symbol->vaddr, symbol->size, sites, &there);

	if (away == SITES_HERE)
		return add_call_sites(search, sites, PROBE_GPU_HANDLE, PROBE_GPU_HANDLE_RETURN, from);
	if (away == SITES_ELSEWHERE || !there.exit_cnt)
		return 0;
	return add_exit_probes(search, &there, PROBE_GPU_HANDLE_RETURN, from)
		       ?: probe_list__add_site(search->begins, &sites->entry, PROBE_GPU_HANDLE, 0, from);
}

static int add_gpu_symbol(const struct elf_symbol *symbol, void *ctx)
{
	enum gpu_api api = symbol->function ? cuda__api(symbol->name) : GPU_API_NONE;
	int from = symbol->function && !api ? cuda__handle_from(symbol->name) : -1;
	struct gpu_search *search = ctx;
	struct sites sites;
	uint64_t *found;

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
		return add_handle_function(search, symbol, &sites, from);
	return add_gpu_call(search, symbol, &sites, api);
}

static bool ends_wait(uint64_t cookie)
{
	uint32_t fn = COOKIE_FN(cookie);

	if (COOKIE_EVENT(cookie) != PROBE_GPU_RETURN)
		return false;
	return fn ? cuda__class(fn) == GPU_SYNC : COOKIE_FLAGS(cookie) & COOKIE_ENDS_WAITS;
}

/*
 * Many functions may jump to shared code to end. With a probe there for each function, each call of
 * any of them would hit all these probes. So functions with the same frame depth there share one
 * probe.
 */
static void merge_shared_ends(struct probe_list *ends)
{
	size_t cnt = 0, k;

	for (size_t i = 0; i < ends->cnt; i++) {
		uint64_t cookie = ends->cookies[i];
		uint32_t event = COOKIE_EVENT(cookie), flags;

		for (k = 0; k < cnt; k++)
			if (ends->offsets[k] == ends->offsets[i] && event == PROBE_GPU_RETURN &&
			    COOKIE_EVENT(ends->cookies[k]) == event &&
			    COOKIE_DEPTH(ends->cookies[k]) == COOKIE_DEPTH(cookie) &&
			    COOKIE_DEPTH(cookie) != COOKIE_DEPTH_UNKNOWN)
				break;
		if (k < cnt) {
			flags = ends_wait(cookie) || ends_wait(ends->cookies[k]) ? COOKIE_ENDS_WAITS : 0;
			ends->cookies[k] = COOKIE(event, flags, COOKIE_DEPTH(cookie), GPU_API_NONE);
			continue;
		}
		ends->offsets[cnt] = ends->offsets[i];
		ends->cookies[cnt++] = cookie;
	}
	ends->cnt = cnt;
}

#define SHARED_MAX 4 /* functions that may have separate probes at one place */

static size_t count_probes_at(const struct probe_list *list, unsigned long offset)
{
	size_t cnt = 0;

	for (size_t i = 0; i < list->cnt; i++)
		cnt += list->offsets[i] == offset;
	return cnt;
}

static bool is_call_end(uint64_t cookie)
{
	return COOKIE_EVENT(cookie) == PROBE_GPU_RETURN && COOKIE_FN(cookie);
}

/*
 * Drops exits where too many functions still have separate probes: stepflame does not time calls
 * that end there. 0 or -ENOMEM.
 */
static int drop_crowded_ends(struct probe_list *ends, struct probe_list *begins)
{
	bool lost[GPU_API__COUNT] = {0}, has[GPU_API__COUNT] = {0}, *drop = calloc(ends->cnt + 1, sizeof(*drop));
	size_t cnt = 0;

	if (!drop)
		return -ENOMEM;
	for (size_t i = 0; i < ends->cnt; i++) {
		drop[i] = is_call_end(ends->cookies[i]) && count_probes_at(ends, ends->offsets[i]) > SHARED_MAX;
		if (is_call_end(ends->cookies[i]))
			(drop[i] ? lost : has)[COOKIE_FN(ends->cookies[i])] = true;
	}
	for (size_t i = 0; i < ends->cnt; i++) {
		ends->offsets[cnt] = ends->offsets[i];
		ends->cookies[cnt] = ends->cookies[i];
		cnt += !drop[i];
	}
	ends->cnt = cnt;
	for (size_t i = 0; i < begins->cnt; i++) {
		uint64_t *cookie = &begins->cookies[i];
		uint32_t fn = COOKIE_FN(*cookie);

		if (COOKIE_EVENT(*cookie) == PROBE_GPU_CALL && lost[fn])
			*cookie = COOKIE(PROBE_GPU_CALL, has[fn] ? COOKIE_SOFT_END : COOKIE_NO_END,
					 COOKIE_DEPTH(*cookie), fn);
	}
	free(drop);
	return 0;
}

int gpu_functions__add(const struct elf *elf, struct probe_list *ends, struct probe_list *begins)
{
	struct gpu_search search = {.elf = elf, .ends = ends, .begins = begins};
	int err = elf__each_symbol(elf, add_gpu_symbol, &search);

	free(search.found);
	merge_shared_ends(ends);
	return err ?: drop_crowded_ends(ends, begins) ?: (int)search.cnt;
}

/*
 * An empty result is cached only if the search took long: a process maps a hundred libraries with
 * some thousand symbols each, which take 6 ms in all, and a few with hundreds of thousands.
 */
#define MANY_SYMBOLS 20000

int gpu_functions__find(const struct elf *elf, struct probe_list sets[2])
{
	int cnt;

	if (!probe_cache__load(elf, "gpu", sets, 2))
		return 0;
	cnt = gpu_functions__add(elf, &sets[0], &sets[1]);
	if (cnt > 0 || (!cnt && elf__symbol_cnt(elf) > MANY_SYMBOLS))
		probe_cache__save(elf, "gpu", sets, 2);
	return cnt < 0 ? cnt : 0;
}

void gpu_functions__keep_waits(struct probe_list *list)
{
	size_t cnt = 0;

	for (size_t i = 0; i < list->cnt; i++) {
		uint32_t event = COOKIE_EVENT(list->cookies[i]), fn = COOKIE_FN(list->cookies[i]);

		if (!ends_wait(list->cookies[i]) && (event != PROBE_GPU_CALL || cuda__class(fn) != GPU_SYNC))
			continue;
		list->offsets[cnt] = list->offsets[i];
		list->cookies[cnt++] = list->cookies[i];
	}
	list->cnt = cnt;
}
