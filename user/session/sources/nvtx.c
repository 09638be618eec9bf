// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds where code pushes and pops NVTX ranges (bpf/nvtx.h). In: mapped files. Out: probes, the BPF
 * map nvtx_sites.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stepflame.skel.h"
#include "user/elf/cache.h"
#include "user/runtime/nvtx/nvtx.h"
#include "user/session/state.h"

#define PERIOD_NS 200000000ULL  /* interval over which stepflame counts hits */
#define MAX_SHARE 0.03          /* share of one thread's time that hits may take */
#define PERF_MAX  16            /* places per file, where the kernel attaches probes one by one */
#define MAX_NS    1000000000ULL /* how long hits may take a larger share */

/* File state. */
struct nvtx_file {
	bool searched;
	struct array places; /* struct nvtx_place */
	size_t missed;
	char name[64];
};

/* Session state. */
struct nvtx {
	const struct nvtx_file *owner[NVTX_SITES_MAX]; /* of each site; NULL: it is free */
};

/* Target state. */
struct nvtx_target {
	uint64_t hits;    /* at read_ns */
	uint64_t read_ns; /* when `hits` was last read */
	uint64_t over_ns; /* how long hits have taken more than MAX_SHARE */
	bool detached;    /* for the rest of the recording */
};

static struct nvtx *state_of(const struct session *s)
{
	return session__state(s, SOURCE_NVTX);
}

static struct nvtx_target *target_state(const struct target *t)
{
	return target__state(t, SOURCE_NVTX);
}

static struct nvtx_file *file_state(struct session *s, const struct mapped_file *file)
{
	return file__state(s, file->dev, file->inode, SOURCE_NVTX);
}

/* Parts of the cache entry of a file with sites. */
enum part { OFFSETS, SITES, MISSED, PARTS };

static const struct cache_part units[PARTS] = {
	[OFFSETS].unit = sizeof(uint64_t),
	[SITES].unit = sizeof(struct nvtx_site),
	[MISSED].unit = sizeof(uint64_t),
};

static bool load_cached_sites(struct nvtx_file *f, const struct elf *elf, const char *dir)
{
	struct cache_part part[PARTS];
	bool found;

	memcpy(part, units, sizeof(part));
	if (cache__load(elf, dir, "nvtx", part, PARTS))
		return false;
	found = part[SITES].cnt == part[OFFSETS].cnt && part[MISSED].cnt == 1 &&
		!array__grow(&f->places, part[OFFSETS].cnt, sizeof(struct nvtx_place));
	for (size_t i = 0; found && i < part[OFFSETS].cnt; i++)
		((struct nvtx_place *)f->places.items)[i] = (struct nvtx_place){
			.offset = ((uint64_t *)part[OFFSETS].data)[i],
			.site = ((struct nvtx_site *)part[SITES].data)[i],
		};
	if (found)
		f->missed = *(uint64_t *)part[MISSED].data;
	cache__release(part, PARTS);
	return found;
}

static void cache_sites(const struct nvtx_file *f, const struct elf *elf, const char *dir)
{
	const struct nvtx_place *place = f->places.items;
	uint64_t *offsets = calloc(f->places.cnt + 1, sizeof(*offsets)), missed = f->missed;
	struct nvtx_site *sites = calloc(f->places.cnt + 1, sizeof(*sites));
	struct cache_part part[PARTS];

	memcpy(part, units, sizeof(part));
	for (size_t i = 0; offsets && sites && i < f->places.cnt; i++) {
		offsets[i] = place[i].offset;
		sites[i] = place[i].site;
	}
	part[OFFSETS].data = offsets;
	part[SITES].data = sites;
	part[MISSED].data = &missed;
	part[OFFSETS].cnt = part[SITES].cnt = f->places.cnt;
	part[MISSED].cnt = 1;
	if (offsets && sites && (missed || f->places.cnt))
		cache__save(elf, dir, "nvtx", part, PARTS);
	free(offsets);
	free(sites);
}

/*
 * Returns 0 or -ESTALE: one process's path leads to another file, and another process may map this
 * one where it can be opened.
 */
static int search_nvtx_file(struct session *s, struct nvtx_file *f, const struct mapped_file *file)
{
	char path[PATH_MAX];
	const char *dir = cache__dir(path, sizeof(path));
	const char *slash = strrchr(file->path, '/');
	struct elf *elf;
	int err;

	snprintf(f->name, sizeof(f->name), "%.63s", slash ? slash + 1 : file->path);
	if (nvtx__is_internal(file->path))
		return 0;
	err = file__elf(s, file, &elf);
	if (err)
		return err == -ESTALE ? err : 0;
	if (!load_cached_sites(f, elf, dir) && !nvtx__find(elf, &f->places, &f->missed))
		cache_sites(f, elf, dir);
	elf__free(elf);
	return 0;
}

/* HOLDS_NO if stepflame understands none of the file's places. Searches a file once per session. */
static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	struct nvtx_file *f = file_state(s, file);

	if (!f)
		return HOLDS_NO;
	if (!f->searched) {
		f->searched = !search_nvtx_file(s, f, file);
		if (s->selftest.attacher.backend == ATTACH_PERF && f->places.cnt > PERF_MAX) {
			f->missed += f->places.cnt;
			f->places.cnt = 0;
		}
	}
	return f->places.cnt ? HOLDS_YES : HOLDS_NO;
}

/* The first of so many free sites in a row; NVTX_SITES_MAX: there are none. */
static uint32_t free_sites(const struct nvtx *own, uint32_t cnt)
{
	for (uint32_t at = 0, run = 0; at < NVTX_SITES_MAX; at++) {
		run = own->owner[at] ? 0 : run + 1;
		if (run == cnt)
			return at + 1 - cnt;
	}
	return NVTX_SITES_MAX;
}

/* Adds the probe of a place, and the descriptions of it and of those that follow it to the map nvtx_sites. */
static int add_place(struct session *s, const struct nvtx_file *f, const struct nvtx_place *place, uint32_t cnt,
		     struct probe_list *list)
{
	int fd = bpf_map__fd(s->skel->maps.nvtx_sites);
	uint32_t first = free_sites(state_of(s), cnt);

	if (first == NVTX_SITES_MAX)
		return -ENOSPC;
	for (uint32_t i = 0, site = first; i < cnt; i++, site++) {
		if (bpf_map_update_elem(fd, &site, &place[i].site, BPF_ANY))
			return -errno;
		state_of(s)->owner[site] = f;
	}
	return probe_list__add(list, place->offset, COOKIE(PROBE_NVTX, 0, COOKIE_DEPTH_UNKNOWN, first));
}

static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	struct nvtx_file *f = file_state(s, file);
	const struct nvtx_place *place = f->places.items;

	for (size_t i = 0, cnt; i < f->places.cnt; i += cnt) {
		for (cnt = 1; i + cnt < f->places.cnt && place[i + cnt - 1].site.more; cnt++)
			;
		if (add_place(s, f, &place[i], cnt, sets)) {
			f->missed += f->places.cnt - i;
			break;
		}
	}
	return 0;
}

static bool wanted(const struct session *s, const struct target *t)
{
	return !target_state(t)->detached;
}

static void on_fork(struct session *s, struct target *parent, struct target *child, bool followed)
{
	if (child)
		target_state(child)->detached = target_state(parent)->detached;
}

/* Detaches the probes for the rest of the recording if a process pays too much for them. */
static void observe(struct session *s, struct target *t, const struct proc *proc)
{
	struct nvtx_target *own = target_state(t);
	uint64_t now = session__now_ns(), elapsed = now - own->read_ns, hits = proc->nvtx.hits - own->hits;
	bool first = !own->read_ns;

	if (t->gone || elapsed < PERIOD_NS || s->window_end_ns)
		return;
	own->hits = proc->nvtx.hits;
	own->read_ns = now;
	if (first || hits > proc->nvtx.hits || /* the process has just called exec */
	    hits * s->selftest.hit_ns <= MAX_SHARE * elapsed) {
		own->over_ns = 0;
		return;
	}
	own->over_ns += elapsed;
	if (own->detached || own->over_ns < MAX_NS)
		return;
	own->detached = true;
	target__detach_set(s, t, SOURCE_NVTX, 0, 0, 0);
	s->skel->bss->nvtx_epoch++;
	session__note(s,
		      "process %d pushes and pops NVTX ranges %.0f times a second, and counting them cost too much: "
		      "stepflame stopped %.1f s after the start",
		      t->process.pid, hits * 1e9 / elapsed, (now - s->window_start_ns) / 1e9);
}

static void note_missed(struct session *s, const struct nvtx_file *f)
{
	if (f->missed)
		session__note(s,
			      "stepflame cannot probe %zu of %zu places in %s that push or pop NVTX ranges: those "
			      "ranges are missing",
			      f->missed, f->missed + f->places.cnt, f->name);
}

static void note(struct session *s)
{
	const struct known_file *files = s->files.items.items;

	for (size_t i = 0; i < s->files.items.cnt; i++)
		if (files[i].state[SOURCE_NVTX])
			note_missed(s, files[i].state[SOURCE_NVTX]);
}

static void forget_file(struct session *s, void *state)
{
	note_missed(s, state);
	for (uint32_t site = 0; site < NVTX_SITES_MAX; site++)
		if (state_of(s)->owner[site] == state)
			state_of(s)->owner[site] = NULL;
}

static void free_file(void *state)
{
	free(((struct nvtx_file *)state)->places.items);
}

const struct source source_nvtx = {
	.session_bytes = sizeof(struct nvtx),
	.target_bytes = sizeof(struct nvtx_target),
	.file_bytes = sizeof(struct nvtx_file),
	.sets = {{.wanted = wanted}},
	.holds = holds,
	.find = find,
	.forget_file = forget_file,
	.free_file = free_file,
	.observe = observe,
	.on_fork = on_fork,
	.note = note,
};
