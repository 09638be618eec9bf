// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Calls of CUDA and NCCL. In: mapped files, the BPF maps gpu_rows (mapped) and gpu_handles. Out:
 * REC_GPU, REC_GPU_CALLS and names.
 */
#include "user/session/sources/gpu.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "include/probes.h"
#include "stepflame.skel.h"
#include "user/elf/demangle.h"
#include "user/lib/log.h"
#include "user/lib/map.h"
#include "user/proc/symbols.h"
#include "user/runtime/cuda/cuda.h"
#include "user/session/programs.h"
#include "user/x86/sites.h"

/* ---- the probes on a file's CUDA and NCCL functions, stripped or not: bpf/gpu.bpf.c ---- */

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

int gpu__add_functions(const struct elf *elf, struct probe_list *ends, struct probe_list *begins)
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

int gpu__find_functions(const struct elf *elf, struct probe_list sets[2])
{
	int cnt;

	if (!probe_lists__load(elf, "gpu", sets, 2))
		return 0;
	cnt = gpu__add_functions(elf, &sets[0], &sets[1]);
	if (cnt > 0 || (!cnt && elf__symbol_cnt(elf) > MANY_SYMBOLS))
		probe_lists__save(elf, "gpu", sets, 2);
	return cnt < 0 ? cnt : 0;
}

/* Removes all probes but those on waits for the GPU. */
static void keep_waits(struct probe_list *list)
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

/* ---- the session ---- */

#define MANGLED_MAX 4096

/* File state. */
struct gpu_file {
	bool searched, holds;
};

/* What a process launches: a host function or a handle. */
struct kernel_key {
	uint64_t pid, object;
};

struct kernel {
	struct kernel_key key;
	uint64_t name;   /* REC_NAME id; 0: unknown */
	bool name_final; /* a row has been emitted with it, so it must not change */
};

/* How often to look for more libraries: without CUDA's driver in the process, and with it. */
#define LOOK_FOR_DRIVER_NS (1000 * 1000000ULL)
#define LOOK_FOR_MORE_NS   (10000 * 1000000ULL)

enum gpu_set { SET_ENDS, SET_BEGINS }; /* each has a program of its own; exits attach first */

/* Session state. */
struct gpu {
	/* struct rec_gpu_calls, sorted by key: the current rows, and those that the sink has. */
	struct array rows, emitted;
	struct map kernels;      /* struct kernel */
	struct symbols *symbols; /* NULL: not needed yet */
	uint64_t unnamed;
	const struct gpu_entry *table; /* the map gpu_rows; NULL: stepflame does not count calls */
};

static struct gpu *state_of(const struct session *s)
{
	return session__state(s, SOURCE_GPU);
}

static size_t gpu_rows_bytes(void)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (GPU_ROWS * sizeof(struct gpu_entry) + page - 1) & ~(page - 1);
}

static int prepare(struct session *s)
{
	for (enum gpu_api api = GPU_API_NONE; api < GPU_API__COUNT; api++)
		if (cuda__class(api) == GPU_SYNC)
			session__emit_name(s, cuda__name(api));
	return 0;
}

/* With --gpu off, stepflame probes only waits for the GPU, which reports need in any case. */
static void configure(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend)
{
	bool counts = s && s->options.gpu != SESSION_GPU_OFF;
	uint64_t *names = (uint64_t *)skel->rodata->gpu_names;

	for (enum gpu_api api = GPU_API_NONE; s && api < GPU_API__COUNT; api++)
		if (cuda__class(api) == GPU_SYNC)
			names[api] = session__name_id(cuda__name(api));
	skel->rodata->want_gpu = counts;
	skel->rodata->want_gpu_windows = s && s->options.gpu_windows;
	if (!counts || backend == ATTACH_PERF) {
		bpf_map__set_max_entries(skel->maps.gpu_rows, 1);
		bpf_map__set_max_entries(skel->maps.gpu_handles, 1);
	}
	if (!s || backend == ATTACH_PERF) {
		bpf_program__set_autoload(skel->progs.gpu_enter, false);
		bpf_program__set_autoload(skel->progs.gpu_exit, false);
	}
}

static int map_gpu_rows(struct session *s)
{
	void *at = mmap(NULL, gpu_rows_bytes(), PROT_READ, MAP_SHARED, bpf_map__fd(s->skel->maps.gpu_rows), 0);

	if (at == MAP_FAILED)
		return -errno;
	state_of(s)->table = at;
	return 0;
}

static int start(struct session *s)
{
	if (s->options.gpu == SESSION_GPU_OFF)
		return 0;
	if (s->selftest.attacher.backend != ATTACH_PERF)
		return map_gpu_rows(s);
	if (s->options.gpu == SESSION_GPU_AUTO) {
		session__note(s, "this kernel attaches probes one by one: calls of CUDA were not counted; to count "
				 "them, " PROBES_TOGETHER);
		return 0;
	}
	log__error(PROBES_TOGETHER, "this kernel attaches probes one by one, and CUDA needs hundreds");
	return -EOPNOTSUPP;
}

static void free_gpu(struct session *s)
{
	struct gpu *g = state_of(s);

	if (g->table)
		munmap((void *)g->table, gpu_rows_bytes());
	symbols__free(g->symbols);
	map__free(&g->kernels);
	free(g->rows.items);
	free(g->emitted.items);
}

/* ---- files ---- */

/*
 * Returns 0 or -ESTALE: one process's path leads to another file, and another process may map this
 * one where it can be opened.
 */
static int look_for_gpu_functions(struct session *s, const struct mapped_file *file, bool *holds)
{
	struct probe_list sets[2] = {0};
	struct elf *elf;
	int err = file__elf(s, file, &elf);

	*holds = false;
	if (err)
		return err == -ESTALE ? err : 0;
	*holds = !gpu__find_functions(elf, sets) && sets[SET_BEGINS].cnt;
	elf__free(elf);
	probe_list__release(&sets[0]);
	probe_list__release(&sets[1]);
	return 0;
}

/*
 * Decides by the file's symbols, or with --gpu off, when stepflame probes only waits, by its name.
 * Searches a file only once.
 */
static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	struct gpu_file *f;

	if (s->selftest.attacher.backend == ATTACH_PERF)
		return HOLDS_NO;
	if (s->options.gpu == SESSION_GPU_OFF)
		return cuda__is_library(file->path) ? HOLDS_YES : HOLDS_NO;
	f = file__state(s, file->dev, file->inode, SOURCE_GPU);
	if (f && !f->searched)
		f->searched = !look_for_gpu_functions(s, file, &f->holds);
	return f && f->holds ? HOLDS_YES : HOLDS_NO;
}

static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	int err = gpu__find_functions(elf, sets);

	if (!err && s->options.gpu == SESSION_GPU_OFF) {
		keep_waits(&sets[SET_ENDS]);
		keep_waits(&sets[SET_BEGINS]);
	}
	return err;
}

static int mark_probed(struct session *s, struct target *t)
{
	struct gpu_target *own = gpu__of(t);

	if (s->options.gpu == SESSION_GPU_OFF || own->seen)
		return 0;
	own->seen = true;
	own->tier = GPU_TIER_PROBES;
	snprintf(own->why, sizeof(own->why), "%s",
		 s->options.gpu == SESSION_GPU_UPROBE ? "--gpu uprobe asks for calls alone"
						      : "stepflame's injection library is not in the process");
	return 0;
}

static uint64_t look_again_ns(const struct session *s, const struct target *t)
{
	if (s->options.gpu == SESSION_GPU_OFF || t->forked)
		return 0;
	return process__file(&t->process, "libcuda.so") ? LOOK_FOR_MORE_NS : LOOK_FOR_DRIVER_NS;
}

static bool watches(const struct session *s, const struct target *t)
{
	return gpu__of(t)->seen;
}

int gpu__emit_calls(struct session *s, const struct target *t, bool each)
{
	struct proc_command command = {.what = COMMAND_GPU, .pid = t->process.pid, .wait = each};

	return programs__command(s->skel, &command);
}

/* ---- kernels ---- */

/* Valid until the next call. NULL: no memory. */
static struct kernel *find_kernel(struct gpu *g, uint32_t pid, uint64_t object)
{
	struct kernel_key key = {pid, object};

	return MAP_ADD(&g->kernels, struct kernel, &key);
}

/* Emits the name of a host function. 0: unknown. */
static uint64_t emit_host_name(struct session *s, const struct kernel *kernel)
{
	char mangled[MANGLED_MAX], name[REC_NAME_MAX + 1];

	if (!state_of(s)->symbols)
		state_of(s)->symbols = symbols__new();
	if (!state_of(s)->symbols ||
	    symbols__function(state_of(s)->symbols, kernel->key.pid, kernel->key.object, mangled, sizeof(mangled)) ||
	    !mangled[0])
		return 0;
	demangle__kernel_to_keep(mangled, name, sizeof(name));
	return session__emit_name(s, name);
}

/* The name of a handle of the driver, which BPF has emitted. 0: unknown. */
static uint64_t driver_handle_name(const struct session *s, const struct kernel *kernel)
{
	uint64_t name = 0;

	return bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.gpu_handles), &kernel->key, &name) ? 0 : name;
}

static void find_kernel_name(struct session *s, struct kernel *kernel, enum gpu_api api)
{
	if (!kernel->name && !kernel->name_final)
		kernel->name = cuda__is_of_runtime(api) ? emit_host_name(s, kernel) : driver_handle_name(s, kernel);
}

/* The first launch of a kernel: finds the kernel's name while the process still exists. */
static bool on_object(struct session *s, const struct rec_hdr *record)
{
	const struct rec_gpu_object *rec = (const void *)record;
	struct kernel *kernel = find_kernel(state_of(s), rec->pid, rec->object);

	if (kernel && rec->api < GPU_API__COUNT)
		find_kernel_name(s, kernel, rec->api);
	return true;
}

/* The name for a row, which stays the same to the end: rows are cumulative. */
static uint64_t final_kernel_name(struct session *s, const struct gpu_calls_key *key)
{
	struct kernel *kernel = key->object ? find_kernel(state_of(s), key->pid, key->object) : NULL;

	if (!kernel)
		return 0;
	find_kernel_name(s, kernel, key->api);
	if (!kernel->name_final && !kernel->name)
		state_of(s)->unnamed++;
	kernel->name_final = true;
	return kernel->name;
}

static void count(const struct session *s, uint64_t counters[CNT__COUNT])
{
	counters[CNT_KERNELS_UNNAMED] += state_of(s)->unnamed;
}

/* ---- rows ---- */

static int compare_gpu_rows(const void *a, const void *b)
{
	const struct rec_gpu_calls *x = a, *y = b;

	return memcmp(&x->key, &y->key, sizeof(x->key));
}

/* Merges rows that differ only in addresses. */
static void merge_gpu_rows(struct array *rows)
{
	struct rec_gpu_calls *row = rows->items;
	size_t cnt = 0;

	if (rows->cnt)
		qsort(row, rows->cnt, sizeof(*row), compare_gpu_rows);
	for (size_t i = 0; i < rows->cnt; i++) {
		struct rec_gpu_calls *last = cnt ? &row[cnt - 1] : NULL;

		if (!last || compare_gpu_rows(last, &row[i])) {
			row[cnt++] = row[i];
			continue;
		}
		last->val.calls += row[i].val.calls;
		last->val.total_ns += row[i].val.total_ns;
		last->val.bytes += row[i].val.bytes;
		if (row[i].val.max_ns > last->val.max_ns)
			last->val.max_ns = row[i].val.max_ns;
	}
	rows->cnt = cnt;
}

static int read_gpu_rows(struct session *s, struct array *rows)
{
	const struct gpu_entry *table = state_of(s)->table;

	rows->cnt = 0;
	for (size_t i = 0; table && i < GPU_ROWS; i++) {
		struct rec_gpu_calls rec = {.hdr = {.type = REC_GPU_CALLS, .size = sizeof(rec)}}, *row;

		if (!__atomic_load_n(&table[i].head.whole, __ATOMIC_ACQUIRE) || table[i].key.api >= GPU_API__COUNT)
			continue;
		rec.key = table[i].key;
		rec.val = table[i].val;
		if (cuda__class(rec.key.api) == GPU_LAUNCH)
			rec.key.object = final_kernel_name(s, &rec.key);
		row = array__add(rows, sizeof(*row));
		if (!row)
			return -ENOMEM;
		*row = rec;
	}
	return 0;
}

static void emit_changed_rows(struct session *s)
{
	const struct rec_gpu_calls *row = state_of(s)->rows.items, *emitted = state_of(s)->emitted.items;
	size_t k = 0;

	for (size_t i = 0; i < state_of(s)->rows.cnt; i++) {
		while (k < state_of(s)->emitted.cnt && compare_gpu_rows(&emitted[k], &row[i]) < 0)
			k++;
		if (k == state_of(s)->emitted.cnt || memcmp(&emitted[k], &row[i], sizeof(row[i])))
			session__emit(s, &row[i].hdr);
	}
}

static void emit_gpu_tier(struct session *s, const struct target *t)
{
	const struct gpu_target *own = gpu__of(t);
	struct rec_gpu rec = {
		.hdr = {.type = REC_GPU, .size = sizeof(rec)},
		.pid = t->process.pid,
		.tier = own->tier,
		.cupti_ns = own->cupti_ns,
		.lost = own->lost,
		.cupti_version = own->cupti_version,
	};

	memcpy(rec.why, own->why, sizeof(rec.why));
	if (own->seen)
		session__emit(s, &rec.hdr);
}

static int snapshot(struct session *s)
{
	struct gpu *g = state_of(s);
	struct array before = g->emitted;
	int err;

	if (s->options.gpu == SESSION_GPU_OFF)
		return s->sink_err;
	for (size_t i = 0; i < s->target_cnt; i++)
		emit_gpu_tier(s, s->targets[i]);
	err = read_gpu_rows(s, &g->rows);
	if (err)
		return err;
	merge_gpu_rows(&g->rows);
	emit_changed_rows(s);
	g->emitted = g->rows;
	g->rows = before;
	return s->sink_err;
}

/* Warns that a process which the user named has not loaded CUDA yet. */
static int attached(struct session *s, struct target *t)
{
	if (s->options.gpu != SESSION_GPU_OFF && !gpu__of(t)->seen && s->selftest.attacher.backend != ATTACH_PERF)
		log__warn(NULL, "process %d has not loaded CUDA yet: stepflame looks for it each second",
			  t->process.pid);
	return 0;
}

static void note_unseen(struct session *s, const struct target *t)
{
	if (s->options.gpu != SESSION_GPU_OFF && t->role == ROLE_MAIN && !gpu__of(t)->seen &&
	    s->selftest.attacher.backend != ATTACH_PERF)
		session__note(s, "process %d mapped no functions of CUDA: the recording has no figures of its GPU",
			      t->process.pid);
}

static void note(struct session *s)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		note_unseen(s, s->targets[i]);
}

static void forget(struct session *s, struct target *t)
{
	if (s->options.gpu != SESSION_GPU_OFF)
		emit_gpu_tier(s, t);
	note_unseen(s, t);
}

/* At the target's exit, keeps the state for the last REC_GPU. */
static void keep_gpu_state(struct session *s, struct target *t)
{
}

static struct bpf_program *end_program(const struct stepflame_bpf *skel)
{
	return skel->progs.gpu_exit;
}

static struct bpf_program *begin_program(const struct stepflame_bpf *skel)
{
	return skel->progs.gpu_enter;
}

const struct source source_gpu = {
	.session_bytes = sizeof(struct gpu),
	.target_bytes = sizeof(struct gpu_target),
	.file_bytes = sizeof(struct gpu_file),
	.sets = {[SET_ENDS] = {.program = end_program},
		 [SET_BEGINS] = {.program = begin_program, .attached = mark_probed}},
	.records = {{REC_GPU_OBJECT, sizeof(struct rec_gpu_object), on_object}},
	.prepare = prepare,
	.configure = configure,
	.start = start,
	.snapshot = snapshot,
	.note = note,
	.forget = forget,
	.count = count,
	.free = free_gpu,
	.holds = holds,
	.find = find,
	.look_again_ns = look_again_ns,
	.watches = watches,
	.attached = attached,
	.on_exit = keep_gpu_state,
};
