// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The probes of operators in each process with torch: armed just before a window of the schedule, and gone after it. In: user/target/ops.h, and
 * the step boundaries that BPF counts (struct op_proc). Out: links, and the words of struct op_proc that user space writes.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../log.h"
#include "../target/torch.h"
#include "ops_private.h"
#include "programs.h"
#include "stepflame.skel.h"

/* How long before a window the probes are armed, and how far the next one must be for them to be taken away. */
#define ARM_AHEAD_NS  500000000ULL
#define DISARM_FAR_NS 2000000000ULL
#define ARM_BLIND     20 /* steps ahead, while it is not known how long a step takes */

int ops__new(struct session *s)
{
	if (!s->options.ops)
		return 0;
	if (s->selftest.backend == ATTACH_PERF) {
		log__error("record without --ops, or on Linux 6.10 or later",
			   "this kernel attaches probes one by one, and operators have thousands");
		return -EOPNOTSUPP;
	}
	s->ops = calloc(1, sizeof(*s->ops));
	return s->ops ? op_table__map(s) : -ENOMEM;
}

static void disarm(struct ops *ops, uint32_t slot)
{
	ops->procs[slot].armed = 0;
	/* Entries before exits: what has been entered still ends. */
	for (int i = LINK__COUNT - 1; i >= 0; i--)
		attachment__free_all(&ops->targets[slot].links[i], 1);
}

static int arm(struct session *s, uint32_t slot)
{
	struct bpf_program *const programs[LINK__COUNT] = {
		[LINK_EXIT] = s->skel->progs.op_exit,
		[LINK_ENTER] = s->skel->progs.op_enter,
		[LINK_NODE] = s->skel->progs.node_enter,
	};
	struct op_target *t = &s->ops->targets[slot];
	int err = 0;

	for (int i = 0; i < LINK__COUNT && !err; i++)
		err = attachment__new(programs[i], s->selftest.backend, t->target->process.pid, &t->lists[i],
				      &t->links[i]);
	if (err)
		disarm(s->ops, slot);
	else
		s->ops->procs[slot].armed = 1;
	return err;
}

void ops__free(struct session *s)
{
	struct ops *ops = s->ops;

	if (!ops)
		return;
	for (uint32_t slot = 0; ops->procs && slot < OP_PROCS_MAX; slot++) {
		disarm(ops, slot);
		for (int i = 0; i < LINK__COUNT; i++)
			probe_list__release(&ops->targets[slot].lists[i]);
	}
	op_table__unmap(s);
	for (size_t i = 0; i < ops->file_cnt; i++)
		torch_ops__free(ops->files[i].found);
	free(ops->files);
	free(ops);
	s->ops = NULL;
}

/* Where the sites of a library are kept: finding them takes most of a second. NULL: nowhere. */
static const char *cache_dir(char *path, size_t size)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (base && *base == '/')
		snprintf(path, size, "%s/stepflame", base);
	else if (home && *home == '/')
		snprintf(path, size, "%s/.cache/stepflame", home);
	else
		return NULL;
	return path;
}

/* Tells BPF of the operators of a library. Functions of other kinds leave their entries unused. */
static int define(struct session *s, const struct op_file *file)
{
	int fd = bpf_map__fd(s->skel->maps.op_defs);

	for (uint32_t i = 0; i < file->found->fn_cnt; i++) {
		const struct torch_fn *fn = &file->found->fn[i];
		struct op_def def = {.arg_cnt = fn->arg_cnt};
		uint32_t index = file->first + i;
		char merged[REC_NAME_MAX];

		if (fn->event != OP_CALL)
			continue;
		snprintf(merged, sizeof(merged), "%.*s", (int)strcspn(fn->name, "."), fn->name);
		def.name = session__name_id(fn->name);
		def.merged = session__name_id(merged);
		memcpy(def.args, fn->arg, sizeof(def.args));
		if (bpf_map_update_elem(fd, &index, &def, BPF_ANY))
			return -errno;
	}
	return 0;
}

/* The operators of a library, found once per session. 0 or -errno. */
static int find_file(struct session *s, const struct mapped_file *file, struct op_file **out)
{
	struct ops *ops = s->ops;
	struct op_file *files, *f;
	char cache[PATH_MAX];
	struct elf *elf;
	int err;

	for (size_t i = 0; i < ops->file_cnt; i++) {
		*out = &ops->files[i];
		if ((*out)->dev == file->dev && (*out)->inode == file->inode)
			return 0;
	}
	files = reallocarray(ops->files, ops->file_cnt + 1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	ops->files = files;
	f = &files[ops->file_cnt];
	*f = (struct op_file){.dev = file->dev, .inode = file->inode, .first = ops->def_cnt};
	err = elf__new(file->open_path, &elf);
	if (err)
		return err;
	err = torch_ops__find(elf, cache_dir(cache, sizeof(cache)), &f->found);
	elf__free(elf);
	if (err)
		return err;
	if (ops->def_cnt + f->found->fn_cnt > OPS_MAX)
		err = -E2BIG;
	err = err ?: define(s, f) ?: op_table__add_names(ops, f->found);
	if (err) {
		torch_ops__free(f->found);
		return err;
	}
	ops->def_cnt += f->found->fn_cnt;
	ops->file_cnt++;
	*out = f;
	return 0;
}

static int add_function(struct op_target *t, const struct op_file *file, uint32_t i, uint32_t slot)
{
	const struct torch_fn *fn = &file->found->fn[i];
	const struct site *site = &file->found->site[fn->first_site];
	uint32_t index = fn->event == OP_CALL ? file->first + i : fn->subject;
	int err = 0;

	if (fn->stepped) /* some ten times dearer, and on the path of every call */
		return 0;
	for (uint32_t k = 0; k < fn->exit_cnt + fn->unwind_cnt && !err; k++)
		err = probe_list__add_site(&t->lists[LINK_EXIT], &site[k], fn->event, slot, index);
	return err
		       ?: probe_list__add_site(&t->lists[fn->event == OP_CALL ? LINK_ENTER : LINK_NODE], &fn->entry,
					       fn->event, slot, index);
}

static int add_nodes(struct session *s, const struct torch_ops *found, uint64_t base, uint32_t slot)
{
	int fd = bpf_map__fd(s->skel->maps.node_classes);

	for (size_t i = 0; i < found->node_cnt; i++) {
		struct node_class key = {.slot = slot, .vtable = base + found->node[i].vtable};
		uint64_t name = found->node[i].name[0] ? session__name_id(found->node[i].name) : 0;

		if (bpf_map_update_elem(fd, &key, &name, BPF_ANY))
			return -errno;
	}
	return 0;
}

static int free_slot(const struct ops *ops)
{
	for (int slot = 0; slot < OP_PROCS_MAX; slot++)
		if (!ops->targets[slot].target && !ops->procs[slot].pid)
			return slot;
	return -ENOSPC;
}

/* All probes of one process, by the libraries that it has mapped. */
static int add_probes(struct session *s, struct target *t, uint32_t slot)
{
	struct op_target *ot = &s->ops->targets[slot];
	const struct mapped_file *file = torch__file(&t->process);
	struct op_file *found;
	int err = find_file(s, file, &found);

	for (int i = 0; i < LINK__COUNT; i++)
		snprintf(ot->lists[i].path, sizeof(ot->lists[i].path), "%s", file->open_path);
	for (uint32_t i = 0; !err && i < found->found->fn_cnt; i++)
		err = add_function(ot, found, i, slot);
	return err ?: add_nodes(s, found->found, file->base, slot);
}

int ops__add_target(struct session *s, struct target *t)
{
	struct proc_order order = {.what = ORDER_OPERATORS, .pid = t->process.pid};
	int slot, err;

	if (!s->ops || t->op_slot || t->role != ROLE_MAIN)
		return 0;
	slot = free_slot(s->ops);
	if (slot < 0)
		return slot;
	s->ops->targets[slot].target = t;
	err = add_probes(s, t, slot);
	if (err) {
		log__error("report this version of torch", "the operators of process %u cannot be seen: %s", order.pid,
			   strerror(-err));
		s->ops->targets[slot].target = NULL;
		return err;
	}
	t->op_slot = slot + 1;
	s->ops->procs[slot].pid = order.pid;
	order.op_slot = t->op_slot;
	programs__order(s->skel, &order);
	/* A window that may begin with the first step: the probes are there before the recording is. */
	return s->options.schedule[OP_SKIP_FIRST] + s->options.schedule[OP_WAIT] <= ARM_BLIND ? arm(s, slot) : 0;
}

void ops__open(struct session *s, struct target *t)
{
	struct op_proc *p = s->ops && t->op_slot ? &s->ops->procs[t->op_slot - 1] : NULL;

	if (!p || s->options.schedule[OP_ACTIVE])
		return;
	p->window_start_ns = session__now_ns();
	p->index = 1;
	__atomic_store_n(&p->open, 1, __ATOMIC_RELEASE);
}

void ops__remove_target(struct session *s, struct target *t)
{
	if (!s->ops || !t->op_slot)
		return;
	disarm(s->ops, t->op_slot - 1);
	s->ops->targets[t->op_slot - 1].target = NULL;
}

/* Steps from the one that begins next to the first one that is to be recorded; UINT64_MAX: none is. */
static uint64_t steps_ahead(const uint64_t *schedule, uint64_t step)
{
	uint64_t lead = schedule[OP_WAIT] + schedule[OP_WARMUP], cycle = lead + schedule[OP_ACTIVE], at;

	if (step < schedule[OP_SKIP_FIRST])
		return schedule[OP_SKIP_FIRST] - step + lead;
	at = step - schedule[OP_SKIP_FIRST];
	if (schedule[OP_REPEAT] && at / cycle >= schedule[OP_REPEAT])
		return UINT64_MAX;
	if (at % cycle <= lead)
		return lead - at % cycle;
	if (schedule[OP_REPEAT] && at / cycle + 1 == schedule[OP_REPEAT])
		return UINT64_MAX; /* in the last window: nothing follows */
	return cycle - at % cycle + lead;
}

static void tend(struct session *s, uint32_t slot)
{
	const struct op_proc *p = &s->ops->procs[slot];
	uint64_t ahead = steps_ahead(s->options.schedule, p->boundaries), step_ns = 0;

	if (p->open)
		return;
	if (p->boundaries > 1)
		step_ns = (p->last_boundary_ns - p->first_boundary_ns) / (p->boundaries - 1);
	if (!p->armed && (step_ns ? ahead < ARM_AHEAD_NS / step_ns + 1 : ahead <= ARM_BLIND))
		arm(s, slot);
	else if (p->armed && (ahead == UINT64_MAX || (step_ns && ahead > DISARM_FAR_NS / step_ns + 1)))
		disarm(s->ops, slot);
}

void ops__tend(struct session *s)
{
	if (!s->ops || !s->options.schedule[OP_ACTIVE] || !s->opened)
		return;
	for (uint32_t slot = 0; slot < OP_PROCS_MAX; slot++)
		if (s->ops->targets[slot].target)
			tend(s, slot);
}

void ops__close(struct session *s)
{
	for (uint32_t slot = 0; s->ops && slot < OP_PROCS_MAX; slot++) {
		struct op_proc *p = &s->ops->procs[slot];

		if (p->open)
			p->window_end_ns = session__now_ns();
		__atomic_store_n(&p->open, 0, __ATOMIC_RELEASE);
	}
}

void ops__disarm_all(struct session *s)
{
	for (uint32_t slot = 0; s->ops && slot < OP_PROCS_MAX; slot++)
		disarm(s->ops, slot);
}

uint64_t ops__hits(const struct session *s, const struct target *t)
{
	return s->ops && t->op_slot ? s->ops->procs[t->op_slot - 1].hits : 0;
}

bool ops__done(const struct session *s, const struct target *t)
{
	const struct op_proc *p = s->ops && t->op_slot ? &s->ops->procs[t->op_slot - 1] : NULL;

	return p && s->options.schedule[OP_REPEAT] && !p->open && p->boundaries &&
	       steps_ahead(s->options.schedule, p->boundaries) == UINT64_MAX;
}
