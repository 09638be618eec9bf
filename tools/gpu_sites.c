// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Prints where calls of CUDA and NCCL would be probed in libraries, for developers. In: ELF files. Out: of each a
 * summary; with -v before it a line per function: how many symbols of it there are, of how many the entry is emulated
 * by the kernel, and how their ends are seen.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/probes.h"
#include "user/runtime/cuda/cuda.h"
#include "user/session/sources/gpu.h"
#include "user/x86/insn.h"

/* From the best to the worst; a function has that of the worst of its symbols. */
enum end { END_NONE_FOUND, END_EMULATED, END_SOFT, END_SHARED, END_STEPPED, END_UNTIMED, END_NO_PROBE, END__COUNT };

static const char *const end_names[END__COUNT] = {
	[END_NONE_FOUND] = "",     [END_EMULATED] = "emulated", [END_SOFT] = "soft",         [END_SHARED] = "shared",
	[END_STEPPED] = "stepped", [END_UNTIMED] = "untimed",   [END_NO_PROBE] = "no probe",
};

struct function {
	unsigned symbol_cnt, probe_cnt, emulated_cnt;
	enum end end;
};

struct look {
	const struct elf *elf;
	struct function functions[GPU_API__COUNT];
	uint64_t seen[1024]; /* vaddrs: a symbol stands in two tables */
	size_t seen_cnt;
};

static int count_symbol(const struct elf_symbol *symbol, void *ctx)
{
	enum gpu_api api = symbol->function ? cuda__api(symbol->name) : GPU_API_NONE;
	struct look *look = ctx;

	for (size_t i = 0; i < look->seen_cnt; i++)
		if (look->seen[i] == symbol->vaddr)
			return 0;
	if (!api || look->seen_cnt == sizeof(look->seen) / sizeof(*look->seen))
		return 0;
	look->seen[look->seen_cnt++] = symbol->vaddr;
	look->functions[api].symbol_cnt++;
	return 0;
}

static bool is_emulated(struct decoder *decoder, const struct elf *elf, uint64_t offset)
{
	struct flow_node node = {0};
	uint64_t vaddr;

	if (elf__vaddr(elf, offset, &vaddr))
		return false;
	decoder__node(decoder, elf, vaddr, 16, &node);
	return node.emulated;
}

static enum end end_of(struct decoder *decoder, const struct elf *elf, const struct probe_list *ends, uint64_t cookie)
{
	enum end end = END_SHARED; /* has none of its own, and is not untimed */

	if (COOKIE_FLAGS(cookie) & COOKIE_NO_END)
		return END_UNTIMED;
	if (COOKIE_FLAGS(cookie) & COOKIE_SOFT_END)
		return END_SOFT;
	for (size_t i = 0; i < ends->cnt; i++) {
		if (COOKIE_EVENT(ends->cookies[i]) != PROBE_GPU_RETURN ||
		    COOKIE_FN(ends->cookies[i]) != COOKIE_FN(cookie))
			continue;
		if (!is_emulated(decoder, elf, ends->offsets[i]))
			return END_STEPPED;
		end = END_EMULATED;
	}
	return end;
}

static void look_at(struct look *look, struct decoder *decoder, const struct probe_list *ends,
		    const struct probe_list *begins)
{
	for (size_t i = 0; i < begins->cnt; i++) {
		struct function *f = &look->functions[COOKIE_FN(begins->cookies[i])];
		enum end end;

		if (COOKIE_EVENT(begins->cookies[i]) != PROBE_GPU_CALL)
			continue;
		f->probe_cnt++;
		f->emulated_cnt += is_emulated(decoder, look->elf, begins->offsets[i]);
		end = end_of(decoder, look->elf, ends, begins->cookies[i]);
		f->end = end > f->end ? end : f->end;
	}
	for (enum gpu_api api = 0; api < GPU_API__COUNT; api++)
		if (look->functions[api].probe_cnt < look->functions[api].symbol_cnt)
			look->functions[api].end = END_NO_PROBE;
}

static void print_class(const struct look *look, const char *name, enum gpu_class first, enum gpu_class last)
{
	unsigned cnt = 0, timed = 0;

	for (enum gpu_api api = GPU_API_NONE + 1; api < GPU_API__COUNT; api++) {
		const struct function *f = &look->functions[api];

		if (cuda__class(api) < first || cuda__class(api) > last || !f->symbol_cnt)
			continue;
		cnt++;
		timed += f->end < END_UNTIMED;
	}
	if (cnt)
		printf(", %s timed %u/%u", name, timed, cnt);
}

static void print(const struct look *look, const char *path, bool verbose)
{
	unsigned cnt = 0, symbol_cnt = 0, probe_cnt = 0, emulated_cnt = 0, ends[END__COUNT] = {0};

	for (enum gpu_api api = GPU_API_NONE + 1; api < GPU_API__COUNT; api++) {
		const struct function *f = &look->functions[api];

		if (!f->symbol_cnt)
			continue;
		cnt++;
		symbol_cnt += f->symbol_cnt;
		probe_cnt += f->probe_cnt;
		emulated_cnt += f->emulated_cnt;
		ends[f->end]++;
		if (verbose)
			printf("  %-28s %u symbols, %u entries emulated, end %s\n", cuda__name(api), f->symbol_cnt,
			       f->emulated_cnt, end_names[f->end]);
	}
	printf("%s: %u functions, %u symbols, %u probed, %u entries emulated; ends:", path, cnt, symbol_cnt, probe_cnt,
	       emulated_cnt);
	for (enum end end = END_EMULATED; end < END__COUNT; end++)
		if (ends[end])
			printf(" %u %s", ends[end], end_names[end]);
	print_class(look, "launches", GPU_LAUNCH, GPU_GRAPH);
	print_class(look, "copies and sets", GPU_COPY, GPU_SET);
	print_class(look, "waits", GPU_SYNC, GPU_SYNC);
	print_class(look, "events", GPU_EVENT, GPU_EVENT);
	print_class(look, "memory", GPU_ALLOC, GPU_HOST_ALLOC);
	print_class(look, "collectives", GPU_COMM, GPU_COMM);
	printf("\n");
}

static int look_into(struct decoder *decoder, const char *path, bool verbose)
{
	struct probe_list ends = {0}, begins = {0};
	struct look look = {0};
	struct elf *elf = NULL;
	int err = elf__new(path, &elf);

	look.elf = elf;
	if (!err)
		err = gpu__add_functions(elf, &ends, &begins);
	if (err >= 0) {
		elf__each_symbol(elf, count_symbol, &look);
		look_at(&look, decoder, &ends, &begins);
		print(&look, path, verbose);
	} else {
		fprintf(stderr, "gpu_sites: %s: %s\n", path, strerror(-err));
	}
	probe_list__release(&ends);
	probe_list__release(&begins);
	elf__free(elf);
	return err < 0 ? err : 0;
}

int main(int argc, char **argv)
{
	bool verbose = argc > 1 && !strcmp(argv[1], "-v");
	struct decoder decoder;
	int failed = 0;

	if (argc < 2 + verbose) {
		fprintf(stderr, "usage: gpu_sites [-v] LIBRARY...\n");
		return 2;
	}
	if (decoder__open(&decoder))
		return 1;
	for (int i = 1 + verbose; i < argc; i++)
		failed |= look_into(&decoder, argv[i], verbose) != 0;
	decoder__close(&decoder);
	return failed;
}
