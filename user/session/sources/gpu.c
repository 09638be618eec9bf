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

#include "stepflame.skel.h"
#include "user/elf/demangle.h"
#include "user/lib/log.h"
#include "user/lib/map.h"
#include "user/proc/symbols.h"
#include "user/runtime/cuda/cuda.h"
#include "user/session/programs.h"
#include "user/session/sources/gpu_functions.h"

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
	*holds = !gpu_functions__find(elf, sets) && sets[SET_BEGINS].cnt;
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
	int err = gpu_functions__find(elf, sets);

	if (!err && s->options.gpu == SESSION_GPU_OFF) {
		gpu_functions__keep_waits(&sets[SET_ENDS]);
		gpu_functions__keep_waits(&sets[SET_BEGINS]);
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
