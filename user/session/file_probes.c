// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which probes a file means, found once per session; those of torch's libraries are kept for the next ones. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/cache.h"
#include "user/lib/log.h"
#include "user/session/calls.h"
#include "user/session/exact.h"
#include "user/session/gpu_functions.h"
#include "user/session/gpu_probes.h"
#include "user/session/landmarks.h"
#include "user/session/natives.h"
#include "user/session/nvtx_probes.h"
#include "user/session/state.h"
#include "user/session/xla.h"

static bool action_matches(const struct user_action *a, const struct mapped_file *file)
{
	const char *base = strrchr(file->path, '/');

	if (strchr(a->library, '/'))
		return !strcmp(file->path, a->library);
	return !strncmp(base ? base + 1 : file->path, a->library, strlen(a->library));
}

bool file_probes__has_action(const struct session *s, const struct mapped_file *file)
{
	for (size_t i = 0; i < s->options.action_cnt; i++)
		if (s->actions[i].library && action_matches(&s->actions[i], file))
			return true;
	return false;
}

static int add_actions(struct session *s, const struct mapped_file *file, const struct elf *elf,
		       struct probe_list *list)
{
	for (size_t i = 0; i < s->options.action_cnt; i++) {
		struct user_action *a = &s->actions[i];
		struct elf_symbol symbol;
		int err;

		if (!a->library || !action_matches(a, file) || elf__symbol(elf, a->symbol, &symbol))
			continue;
		err = probe_list__add_function(list, elf, symbol.vaddr, symbol.size, PROBE_FN, PROBE_FN_EXIT, 0,
					       natives__cnt() + i);
		if (err) {
			log__error("choose a function that it calls, or that calls it",
				   "no probe can be placed in %s of %s: its control flow is not understood", a->symbol,
				   file->path);
			return err;
		}
		a->found = true;
	}
	return 0;
}

/* What is kept of a library: offsets, cookies, and how many of them are in each set. */
#define LANDMARKS "landmarks"
#define GPU       "gpu" /* two sets, from PROBES_GPU_END on */

enum part { OFFSETS, COOKIES, COUNTS, PARTS };

static const struct cache_part units[PARTS] = {
	[OFFSETS].unit = sizeof(uint64_t),
	[COOKIES].unit = sizeof(uint64_t),
	[COUNTS].unit = sizeof(uint64_t),
};

static int load_kept(const struct elf *elf, const char *dir, const char *what, struct probe_list *sets, size_t set_cnt)
{
	struct cache_part part[PARTS];
	const uint64_t *offset, *cookie, *cnt;
	int err;

	memcpy(part, units, sizeof(part));
	err = cache__load(elf, dir, what, part, PARTS);
	if (err)
		return err;
	offset = part[OFFSETS].data;
	cookie = part[COOKIES].data;
	cnt = part[COUNTS].data;
	if (part[COUNTS].cnt != set_cnt || part[COOKIES].cnt != part[OFFSETS].cnt)
		err = -ENOENT;
	for (size_t i = 0, k = 0; i < set_cnt && !err; i++)
		for (size_t n = 0; n < cnt[i] && !err; n++, k++)
			err = k < part[OFFSETS].cnt ? probe_list__add(&sets[i], offset[k], cookie[k]) : -ENOENT;
	cache__release(part, PARTS);
	for (size_t i = 0; i < set_cnt && err; i++)
		probe_list__release(&sets[i]);
	return err;
}

static void cache_lists(const struct elf *elf, const char *dir, const char *what, const struct probe_list *sets,
			size_t set_cnt)
{
	struct probe_list all = {0};
	uint64_t cnt[PROBES__COUNT];
	struct cache_part part[PARTS];
	int err = 0;

	for (size_t i = 0; i < set_cnt; i++) {
		cnt[i] = sets[i].cnt;
		for (size_t k = 0; k < cnt[i] && !err; k++)
			err = probe_list__add(&all, sets[i].offsets[k], sets[i].cookies[k]);
	}
	memcpy(part, units, sizeof(part));
	part[OFFSETS].data = all.offsets;
	part[COOKIES].data = all.cookies;
	part[OFFSETS].cnt = part[COOKIES].cnt = all.cnt;
	part[COUNTS].data = cnt;
	part[COUNTS].cnt = set_cnt;
	if (!err)
		cache__save(elf, dir, what, part, PARTS);
	probe_list__release(&all);
}

/* Looking for them takes 80 to 220 ms a library. */
static void add_library(const struct session *s, const struct mapped_file *file, const struct elf *elf, bool torch,
			struct probe_list *sets)
{
	/* Collectives are many: attached one by one, each costs a tenth of a second when detaching. */
	bool natives = s->selftest.attacher.backend != ATTACH_PERF;
	char path[PATH_MAX];
	const char *dir = natives ? cache__dir(path, sizeof(path)) : NULL;
	int missing = 0;

	if (!load_kept(elf, dir, LANDMARKS, sets, PROBES__COUNT))
		return;
	if (torch)
		missing = landmarks__torch(&sets[PROBES_LANDMARKS], elf);
	if (missing == -ENOENT)
		log__warn(NULL, "%s exports none of torch's landmarks: labels and backward cannot be seen", file->path);
	if (natives && natives__add(&sets[PROBES_KEPT], elf) >= 0 && !missing)
		cache_lists(elf, dir, LANDMARKS, sets, PROBES__COUNT);
}

/*
 * Where there is nothing, that is kept only if it took long to see: a process maps a hundred libraries of some thousand
 * symbols, all of which are looked through in 6 ms, and a few of hundreds of thousands.
 */
#define MANY_SYMBOLS 20000

int file_probes__find_gpu(const struct elf *elf, struct probe_list *sets)
{
	char path[PATH_MAX];
	const char *dir = cache__dir(path, sizeof(path));
	int cnt;

	if (!load_kept(elf, dir, GPU, sets, 2))
		return 0;
	cnt = gpu_functions__add(elf, &sets[0], &sets[1]);
	if (cnt > 0 || (!cnt && elf__symbol_cnt(elf) > MANY_SYMBOLS))
		cache_lists(elf, dir, GPU, sets, 2);
	return cnt < 0 ? cnt : 0;
}

static void add_gpu(const struct session *s, const struct elf *elf, struct probe_list *sets)
{
	if (file_probes__find_gpu(elf, &sets[PROBES_GPU_END]) || s->options.gpu != SESSION_GPU_OFF)
		return;
	gpu_functions__keep_waits(&sets[PROBES_GPU_END]);
	gpu_functions__keep_waits(&sets[PROBES_GPU]);
}

static void add_python(struct session *s, const struct mapped_file *file, const struct elf *elf,
		       const struct python *python, struct file_probes *f)
{
	if (landmarks__python(&f->sets[PROBES_LANDMARKS], &f->sets[PROBES_LATE], elf, &python->functions))
		log__warn("build Python without stripping its builtin tables, or report this interpreter",
			  "the builtin next() of %s was not found: Lightning's actions cannot be seen", file->path);
	if (landmarks__gc(&f->sets[PROBES_KEPT], elf, &python->functions))
		log__warn(NULL, "%s has no place for a probe on garbage collection: those rows will be missing",
			  file->path);
	calls__add_probes(s, &f->sets[PROBES_ACTIONS], elf, python);
	if (exact__add_probes(s, &f->sets[PROBES_EXACT], elf, python, &f->exact))
		f->exact.why = "out of memory";
}

/* JAX's functions, or those of a PJRT plugin. */
static void add_xla(const struct process *process, const struct mapped_file *file, const struct elf *elf,
		    enum file_holds holds, struct probe_list *list)
{
	char why[128];
	int cnt = holds == HOLDS_JAX ? xla__add_jax(list, elf, why, sizeof(why))
				     : xla__add_plugin(list, process, file, elf, why, sizeof(why));

	if (cnt < 0 || why[0])
		log__warn(NULL, "%s: %s: rows of it will be missing", file->path, cnt < 0 ? strerror(-cnt) : why);
}

struct file_probes *file_probes__of(struct session *s, const struct process *process, const struct mapped_file *file,
				    const struct python *python, struct elf *elf, enum file_holds holds)
{
	struct file_probes *files, *f;
	struct elf *own = NULL;

	for (size_t i = 0; i < s->file_cnt; i++)
		if (s->files[i].dev == file->dev && s->files[i].inode == file->inode)
			return &s->files[i];
	files = reallocarray(s->files, s->file_cnt + 1, sizeof(*files));
	if (!files)
		return NULL;
	s->files = files;
	if (!elf) {
		if (elf__new(file->open_path, &own))
			return NULL;
		elf = own;
	}
	f = &files[s->file_cnt++];
	*f = (struct file_probes){.dev = file->dev, .inode = file->inode};
	if (python)
		add_python(s, file, elf, python, f);
	if (holds == HOLDS_TORCH || natives__wanted(file->path))
		add_library(s, file, elf, holds == HOLDS_TORCH, f->sets);
	if (holds == HOLDS_JAX || holds == HOLDS_PLUGIN)
		add_xla(process, file, elf, holds, &f->sets[PROBES_KEPT]);
	if (gpu_probes__holds(s, file))
		add_gpu(s, elf, f->sets);
	if (nvtx_probes__holds(s, file))
		nvtx_probes__add(s, file, &f->sets[PROBES_NVTX]);
	add_actions(s, file, elf, &f->sets[PROBES_ACTIONS]);
	elf__free(own);
	return f;
}
