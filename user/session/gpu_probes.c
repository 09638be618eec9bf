// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* In: mapped files, the BPF maps gpu_rows (mapped) and gpu_handles. Out: REC_GPU, REC_GPU_CALLS and names. */
#include "user/session/gpu_probes.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/elf/kernel_name.h"
#include "user/lib/compare.h"
#include "user/lib/log.h"
#include "user/proc/symbols.h"
#include "user/runtime/cuda/cuda.h"
#include "user/session/gpu_functions.h"
#include "user/session/programs.h"

#define MANGLED_MAX 4096

struct looked_at {
	uint64_t dev, inode;
	bool holds;
};

/* What a process launches: a host function or a handle. */
struct kernel {
	uint32_t pid;
	uint64_t object;
	uint64_t name; /* REC_NAME id, 0: not known */
	bool settled;  /* a row bears it: it stays */
};

struct gpu_probes {
	struct array files;      /* struct looked_at */
	struct array rows, sent; /* struct rec_gpu_calls, by key: as they are, as the sink has them */
	void *kernels;           /* a tree (tsearch) */
	struct symbols *symbols; /* NULL: none was needed */
	uint64_t unnamed;
	const struct gpu_entry *table; /* gpu_rows; NULL: no calls are counted */
};

static size_t table_bytes(void)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (GPU_ROWS * sizeof(struct gpu_entry) + page - 1) & ~(page - 1);
}

static int map_table(struct session *s)
{
	void *at = mmap(NULL, table_bytes(), PROT_READ, MAP_SHARED, bpf_map__fd(s->skel->maps.gpu_rows), 0);

	if (at == MAP_FAILED)
		return -errno;
	s->gpu->table = at;
	return 0;
}

int gpu_probes__new(struct session *s)
{
	s->gpu = calloc(1, sizeof(*s->gpu));
	if (!s->gpu)
		return -ENOMEM;
	if (s->options.gpu == SESSION_GPU_OFF)
		return 0;
	if (s->selftest.attacher.backend != ATTACH_PERF)
		return map_table(s);
	if (s->options.gpu == SESSION_GPU_AUTO) {
		session__note(s, "this kernel attaches probes one by one: calls of CUDA were not counted; to have "
				 "them, " PROBES_TOGETHER);
		return 0;
	}
	log__error(PROBES_TOGETHER, "this kernel attaches probes one by one, and the functions of CUDA have hundreds");
	return -EOPNOTSUPP;
}

void gpu_probes__free(struct session *s)
{
	if (!s->gpu)
		return;
	if (s->gpu->table)
		munmap((void *)s->gpu->table, table_bytes());
	symbols__free(s->gpu->symbols);
	tdestroy(s->gpu->kernels, free);
	free(s->gpu->files.items);
	free(s->gpu->rows.items);
	free(s->gpu->sent.items);
	free(s->gpu);
	s->gpu = NULL;
}

/* ---- files ---- */

static bool look_into(const struct mapped_file *file)
{
	struct probe_list sets[2] = {0};
	struct elf *elf;
	bool holds;

	if (elf__new(file->open_path, &elf))
		return false;
	holds = !file_probes__find_gpu(elf, sets) && sets[1].cnt;
	elf__free(elf);
	probe_list__release(&sets[0]);
	probe_list__release(&sets[1]);
	return holds;
}

bool gpu_probes__holds(struct session *s, const struct mapped_file *file)
{
	struct looked_at *files = s->gpu->files.items, *f;

	if (s->selftest.attacher.backend == ATTACH_PERF)
		return false;
	if (s->options.gpu == SESSION_GPU_OFF)
		return cuda__is_library(file->path);
	for (size_t i = 0; i < s->gpu->files.cnt; i++)
		if (files[i].dev == file->dev && files[i].inode == file->inode)
			return files[i].holds;
	f = array__add(&s->gpu->files, sizeof(*f));
	if (!f)
		return false;
	*f = (struct looked_at){file->dev, file->inode, look_into(file)};
	return f->holds;
}

static const char *const no_injection = "stepflame's injection library is not in the process";

void gpu_probes__found(struct session *s, struct target *t)
{
	if (s->options.gpu == SESSION_GPU_OFF || t->gpu.seen)
		return;
	t->gpu.seen = true;
	t->gpu.tier = GPU_TIER_PROBES;
	snprintf(t->gpu.why, sizeof(t->gpu.why), "%s",
		 s->options.gpu == SESSION_GPU_UPROBE ? "--gpu uprobe asks for calls alone" : no_injection);
}

int gpu_probes__tell(struct session *s, const struct target *t, bool each)
{
	struct proc_command command = {.what = COMMAND_GPU, .pid = t->process.pid, .wait = each};

	return programs__command(s->skel, &command);
}

/* ---- kernels ---- */

static int compare_kernels(const void *a, const void *b)
{
	const struct kernel *x = a, *y = b;

	return COMPARE(x->pid, y->pid) ?: COMPARE(x->object, y->object);
}

/* NULL: no memory. */
static struct kernel *find_kernel(struct gpu_probes *g, uint32_t pid, uint64_t object)
{
	struct kernel key = {.pid = pid, .object = object}, **found = tsearch(&key, &g->kernels, compare_kernels);

	if (!found || *found != &key)
		return found ? *found : NULL;
	*found = malloc(sizeof(key));
	if (*found) {
		**found = key;
		return *found;
	}
	*found = &key; /* so that the tree can be searched for it */
	tdelete(&key, &g->kernels, compare_kernels);
	return NULL;
}

/* The name of a host function. */
static uint64_t host_name(struct session *s, const struct kernel *kernel)
{
	char mangled[MANGLED_MAX], name[REC_NAME_MAX + 1];

	if (!s->gpu->symbols)
		s->gpu->symbols = symbols__new();
	if (!s->gpu->symbols ||
	    symbols__function(s->gpu->symbols, kernel->pid, kernel->object, mangled, sizeof(mangled)) || !mangled[0])
		return 0;
	kernel_name__to_keep(mangled, name, sizeof(name));
	return session__emit_name(s, name);
}

/* The name of a handle of the driver's, which BPF has sent. */
static uint64_t handle_name(const struct session *s, const struct kernel *kernel)
{
	struct {
		uint64_t pid, handle;
	} key = {kernel->pid, kernel->object};
	uint64_t name = 0;

	return bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.gpu_handles), &key, &name) ? 0 : name;
}

static void find_name(struct session *s, struct kernel *kernel, enum gpu_api api)
{
	if (!kernel->name && !kernel->settled)
		kernel->name = cuda__is_of_runtime(api) ? host_name(s, kernel) : handle_name(s, kernel);
}

void gpu_probes__object(struct session *s, const struct rec_gpu_object *rec)
{
	struct kernel *kernel = find_kernel(s->gpu, rec->pid, rec->object);

	if (kernel && rec->api < GPU_API__COUNT)
		find_name(s, kernel, rec->api);
}

/* Rows that bore one name bear it to the end: they are cumulative. */
static uint64_t settled_name(struct session *s, const struct gpu_calls_key *key)
{
	struct kernel *kernel = key->object ? find_kernel(s->gpu, key->pid, key->object) : NULL;

	if (!kernel)
		return 0;
	find_name(s, kernel, key->api);
	if (!kernel->settled && !kernel->name)
		s->gpu->unnamed++;
	kernel->settled = true;
	return kernel->name;
}

uint64_t gpu_probes__unnamed(const struct session *s)
{
	return s->gpu->unnamed;
}

/* ---- rows ---- */

static int compare_rows(const void *a, const void *b)
{
	const struct rec_gpu_calls *x = a, *y = b;

	return memcmp(&x->key, &y->key, sizeof(x->key));
}

/* Rows that differ by addresses alone become one. */
static void merge_rows(struct array *rows)
{
	struct rec_gpu_calls *row = rows->items;
	size_t cnt = 0;

	if (rows->cnt)
		qsort(row, rows->cnt, sizeof(*row), compare_rows);
	for (size_t i = 0; i < rows->cnt; i++) {
		struct rec_gpu_calls *last = cnt ? &row[cnt - 1] : NULL;

		if (!last || compare_rows(last, &row[i])) {
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

static int read_rows(struct session *s, struct array *rows)
{
	const struct gpu_entry *table = s->gpu->table;

	rows->cnt = 0;
	for (size_t i = 0; table && i < GPU_ROWS; i++) {
		struct rec_gpu_calls rec = {.hdr = {.type = REC_GPU_CALLS, .size = sizeof(rec)}}, *row;

		if (!__atomic_load_n(&table[i].whole, __ATOMIC_ACQUIRE) || table[i].key.api >= GPU_API__COUNT)
			continue;
		rec.key = table[i].key;
		rec.val = table[i].val;
		if (cuda__class(rec.key.api) == GPU_LAUNCH)
			rec.key.object = settled_name(s, &rec.key);
		row = array__add(rows, sizeof(*row));
		if (!row)
			return -ENOMEM;
		*row = rec;
	}
	return 0;
}

static void emit_changed(struct session *s)
{
	const struct rec_gpu_calls *row = s->gpu->rows.items, *sent = s->gpu->sent.items;
	size_t k = 0;

	for (size_t i = 0; i < s->gpu->rows.cnt; i++) {
		while (k < s->gpu->sent.cnt && compare_rows(&sent[k], &row[i]) < 0)
			k++;
		if (k == s->gpu->sent.cnt || memcmp(&sent[k], &row[i], sizeof(row[i])))
			session__emit(s, &row[i].hdr);
	}
}

static void emit_tiers(struct session *s)
{
	for (size_t i = 0; i < s->target_cnt; i++) {
		const struct target *t = s->targets[i];
		struct rec_gpu rec = {
			.hdr = {.type = REC_GPU, .size = sizeof(rec)},
			.pid = t->process.pid,
			.tier = t->gpu.tier,
			.cupti_ns = t->gpu.cupti_ns,
			.lost = t->gpu.lost,
			.cupti_version = t->gpu.cupti_version,
		};

		memcpy(rec.why, t->gpu.why, sizeof(rec.why));
		if (t->gpu.seen)
			session__emit(s, &rec.hdr);
	}
}

int gpu_probes__snapshot(struct session *s)
{
	struct array before = s->gpu->sent;
	int err;

	if (s->options.gpu == SESSION_GPU_OFF)
		return s->sink_err;
	emit_tiers(s);
	gpu_cupti__snapshot(s);
	err = read_rows(s, &s->gpu->rows);
	if (err)
		return err;
	merge_rows(&s->gpu->rows);
	emit_changed(s);
	s->gpu->sent = s->gpu->rows;
	s->gpu->rows = before;
	return s->sink_err;
}

void gpu_probes__say_missing(const struct session *s, const struct target *t)
{
	if (s->options.gpu != SESSION_GPU_OFF && !t->gpu.seen && s->selftest.attacher.backend != ATTACH_PERF)
		log__warn(NULL, "process %d has not loaded CUDA yet: stepflame looks for it each second",
			  t->process.pid);
}

void gpu_probes__note(struct session *s)
{
	for (size_t i = 0; s->options.gpu != SESSION_GPU_OFF && i < s->target_cnt; i++) {
		const struct target *t = s->targets[i];

		if (t->role == ROLE_MAIN && !t->gpu.seen && s->selftest.attacher.backend != ATTACH_PERF)
			session__note(s, "process %d had no functions of CUDA mapped: there are no figures of its GPU",
				      t->process.pid);
	}
}
