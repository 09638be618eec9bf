/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints the probe sites that stepflame would choose in a library, for developers. In: an ELF file and a POSIX extended
 * regular expression over its (mangled) function names, or 0xADDRESS. Out: a line per function, "entry exit... name" as
 * file offsets, then a summary on stderr. With -v each site is followed by its depth, and by * when the kernel would
 * single-step it. `gpu`: those of functions of CUDA and NCCL, a line per probe.
 */
#include <errno.h>
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "user/elf/elf.h"
#include "user/runtime/cuda/cuda.h"
#include "user/session/sources/gpu.h"
#include "user/x86/sites.h"

#include "include/probes.h"

struct run {
	const struct elf *elf;
	regex_t want;
	enum sites_policy policy;
	bool verbose;
	uint64_t *seen; /* by hash of the address: a function has many names, and .symtab repeats .dynsym */
	size_t seen_cap;
	unsigned function_cnt, one_cnt, several_cnt, stepped_cnt, failed_cnt, entry_cnt, depth_cnt, site_cnt;
};

static bool seen(struct run *run, uint64_t vaddr)
{
	size_t i = (vaddr >> 4) * 0x9e3779b97f4a7c15 % run->seen_cap;

	while (run->seen[i] && run->seen[i] != vaddr)
		i = (i + 1) % run->seen_cap;
	if (run->seen[i] == vaddr)
		return true;
	run->seen[i] = vaddr;
	return false;
}

static void print_site(const struct run *run, const struct site *site)
{
	printf("%" PRIx64, site->offset);
	if (run->verbose)
		printf(":%d%s", site->depth, site->emulated ? "" : "*");
	printf(" ");
}

static void count(struct run *run, const struct sites *sites)
{
	unsigned stepped = 0;

	for (uint32_t i = 0; i < sites->exit_cnt; i++) {
		stepped += !sites->exit[i].emulated;
		run->depth_cnt += sites->exit[i].depth >= 0;
	}
	run->site_cnt += sites->exit_cnt;
	run->entry_cnt += sites->entry.emulated;
	if (stepped)
		run->stepped_cnt++;
	else if (sites->exit_cnt == 1)
		run->one_cnt++;
	else
		run->several_cnt++;
}

static void find(struct run *run, const struct elf_symbol *symbol)
{
	struct sites sites;
	int err = sites__find(run->elf, symbol->vaddr, symbol->size, run->policy, &sites);

	run->function_cnt++;
	if (err) {
		run->failed_cnt++;
		if (run->verbose)
			printf("%s: %s\n", symbol->name, strerror(-err));
		return;
	}
	print_site(run, &sites.entry);
	for (uint32_t i = 0; i < sites.exit_cnt; i++)
		print_site(run, &sites.exit[i]);
	printf("%s\n", symbol->name);
	count(run, &sites);
}

static int each(const struct elf_symbol *symbol, void *ctx)
{
	struct run *run = ctx;

	if (symbol->function && elf__is_code(run->elf, symbol->vaddr) &&
	    !regexec(&run->want, symbol->name, 0, NULL, 0) && !elf__is_part(run->elf, symbol->vaddr) &&
	    !seen(run, symbol->vaddr))
		find(run, symbol);
	return 0;
}

/* Ends by themselves, then entries: several functions may share an end. */
static int print_gpu(struct run *run)
{
	struct probe_list lists[2] = {0};
	int cnt = gpu__add_functions(run->elf, &lists[0], &lists[1]);

	for (size_t i = 0; i < 2; i++) {
		for (size_t k = 0; cnt > 0 && k < lists[i].cnt; k++) {
			uint32_t event = COOKIE_EVENT(lists[i].cookies[k]), fn = COOKIE_FN(lists[i].cookies[k]);
			const char *name =
				event == PROBE_GPU_CALL || event == PROBE_GPU_RETURN ? cuda__name(fn) : "handle";

			if (!regexec(&run->want, name, 0, NULL, 0))
				printf("%lx %s%s\n", lists[i].offsets[k], i ? "" : "end ", name);
		}
		probe_list__release(&lists[i]);
	}
	return cnt < 0 ? 1 : 0;
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct run run = {.policy = SITES_STRICT};
	struct elf *elf = NULL;
	double start = cpu_seconds();
	bool gpu = argc > 2 && !strcmp(argv[argc - 1], "gpu");
	int err;

	run.verbose = argc > 1 && !strcmp(argv[1], "-v");
	argv += run.verbose;
	argc -= run.verbose;
	if (argc == 4 && !strcmp(argv[3], "after-work"))
		run.policy = SITES_AFTER_WORK;
	else if (argc != 3 && !(argc == 4 && (gpu || !strcmp(argv[3], "strict")))) {
		fprintf(stderr, "usage: sites [-v] LIB REGEX|0xADDRESS [strict|after-work|gpu]\n");
		return 2;
	}
	err = elf__new(argv[1], &elf);
	if (err) {
		fprintf(stderr, "sites: %s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	run.elf = elf;
	run.seen_cap = 1 << 21;
	run.seen = calloc(run.seen_cap, sizeof(*run.seen));
	if (!run.seen || regcomp(&run.want, argv[2], REG_EXTENDED | REG_NOSUB)) {
		fprintf(stderr, "sites: %s: not a regular expression\n", argv[2]);
		elf__free(elf);
		free(run.seen);
		return 2;
	}
	if (gpu)
		err = print_gpu(&run);
	else if (!strncmp(argv[2], "0x", 2))
		find(&run, &(struct elf_symbol){.name = argv[2], .vaddr = strtoull(argv[2], NULL, 16)});
	else
		elf__each_symbol(elf, each, &run);
	if (!gpu)
		fprintf(stderr,
			"%u functions: %u one emulated exit, %u several, %u with a stepped exit, %u failed; "
			"%u entries emulated; depth known at %u of %u exits; %.3f s of CPU\n",
			run.function_cnt, run.one_cnt, run.several_cnt, run.stepped_cnt, run.failed_cnt, run.entry_cnt,
			run.depth_cnt, run.site_cnt, cpu_seconds() - start);
	regfree(&run.want);
	free(run.seen);
	elf__free(elf);
	return err;
}
