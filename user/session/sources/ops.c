// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The operators of each process with torch: attaches their probes just before a window of the
 * schedule and detaches them after it. In: mapped libraries (user/runtime/torch/ops.h), the step
 * boundaries that BPF counts (struct op_proc), and the BPF arrays op_rows and op_procs, mapped. Out:
 * links, the BPF maps op_defs and node_classes, the fields of struct op_proc that user space writes,
 * REC_NAME, REC_OP and REC_OP_WINDOW.
 */
#include "user/session/sources/ops.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/elf/cache.h"
#include "user/lib/log.h"
#include "user/lib/map.h"
#include "user/lib/names.h"
#include "user/proc/getter.h"
#include "user/recording/spans.h"
#include "user/runtime/torch/flops.h"
#include "user/runtime/torch/torch.h"
#include "user/session/programs.h"

#define PEEK "_ZN2at15sequence_number4peekEv"

/* ---- the torch.nn.Modules around an operator ---- */

struct class_key {
	uint64_t pid, type;
};

struct class
{
	struct class_key key;
	uint32_t cnt;
};

/*
 * A module of a process. The class is part of the key: an object of another class at the same
 * address is another module.
 */
struct module_key {
	uint64_t pid, object, type;
};

struct module {
	struct module_key key;
	uint32_t number; /* among modules of its class, from 1 on; 0: not assigned yet */
};

/* The number of a module within its class, from 0 on; or -ENOMEM. */
static int64_t module__index(struct modules *m, uint32_t pid, const struct rec_module *rec)
{
	struct class_key class_key = {pid, rec->type};
	struct module_key key = {pid, rec->object, rec->type};
	struct module *module = MAP_ADD(&m->modules, struct module, &key);
	struct class *class = MAP_ADD(&m->classes, struct class, &class_key);

	if (!module || !class)
		return -ENOMEM;
	if (!module->number)
		module->number = ++class->cnt;
	return module->number - 1;
}

/*
 * Emits a name with the record's id: "Net_0/Sequential_1/Linear_0", the outermost first. Each part is
 * a class and the number of earlier modules of that class in the process, as in torch.profiler's
 * "nn.Module: Linear_0".
 */
static bool on_modules(struct session *s, const struct rec_hdr *record)
{
	_Alignas(struct rec_name) char room[sizeof(struct rec_name) + REC_NAME_MAX + 1] = {0};
	const struct rec_modules *rec = (const void *)record;
	struct rec_name *name = (void *)room;

	name->hdr.type = REC_NAME;
	name->id = rec->id;
	for (uint32_t i = rec->module_cnt; i-- > 0;) {
		const char *type = names__find_or_lost(&s->names, rec->modules[i].type);
		int64_t index = module__index(&ops__of(s)->modules, rec->pid, &rec->modules[i]);

		if (!type || index < 0)
			return true;
		name->whole_bytes += snprintf(name->text + name->bytes, REC_NAME_MAX + 1 - name->bytes, "%s%s_%d",
					      name->bytes ? "/" : "", type, (int)index);
		name->bytes = name->whole_bytes < REC_NAME_MAX ? name->whole_bytes : REC_NAME_MAX;
	}
	name->cut = name->bytes < name->whole_bytes;
	name->hdr.size = sizeof(*name) + ((name->bytes + 7) & ~7u);
	session__emit(s, &name->hdr);
	return true;
}

/* ---- the BPF arrays as records ---- */

static size_t mapped_bytes(const struct bpf_map *map)
{
	size_t page = sysconf(_SC_PAGESIZE), value = (bpf_map__value_size(map) + 7) & ~7ul;

	return (value * bpf_map__max_entries(map) + page - 1) & ~(page - 1);
}

static void *map_values(const struct bpf_map *map, int protection)
{
	void *at = mmap(NULL, mapped_bytes(map), protection, MAP_SHARED, bpf_map__fd(map), 0);

	return at == MAP_FAILED ? NULL : at;
}

static int emit_span(const struct rec_hdr *record, void *ctx)
{
	return session__emit(ctx, record);
}

/* 0 or -errno. */
static int map_ops(struct session *s)
{
	struct ops *ops = ops__of(s);

	ops->emitted = calloc(OP_ROWS, sizeof(*ops->emitted));
	ops->procs = map_values(s->skel->maps.op_procs, PROT_READ | PROT_WRITE);
	ops->rows = map_values(s->skel->maps.op_rows, PROT_READ);
	if (s->options.timeline)
		ops->spans = spans_encoder__new(emit_span, s);
	return ops->emitted && ops->procs && ops->rows && (ops->spans || !s->options.timeline) ? 0 : -ENOMEM;
}

static void unmap_ops(struct session *s)
{
	struct ops *ops = ops__of(s);

	if (ops->procs)
		munmap(ops->procs, mapped_bytes(s->skel->maps.op_procs));
	if (ops->rows)
		munmap((void *)ops->rows, mapped_bytes(s->skel->maps.op_rows));
	spans_encoder__free(ops->spans);
	free(ops->emitted);
	free(ops->names);
}

static int compare_op_names(const void *a, const void *b)
{
	const struct op_name *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* Adds the names of a file's operators and nodes. 0 or -ENOMEM. */
static int add_op_names(struct ops *ops, const struct torch_ops *found)
{
	struct op_name *names =
		reallocarray(ops->names, ops->name_cnt + found->fn_cnt + found->node_cnt + 1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	ops->names = names;
	for (size_t i = 0; i < found->fn_cnt; i++)
		if (found->fn[i].event == OP_CALL)
			names[ops->name_cnt++] = (struct op_name){.text = found->fn[i].name};
	for (size_t i = 0; i < found->node_cnt; i++)
		names[ops->name_cnt++] = (struct op_name){.text = found->node[i].name};
	for (size_t i = 0; i < ops->name_cnt; i++)
		names[i].id = session__name_id(names[i].text);
	qsort(names, ops->name_cnt, sizeof(*names), compare_op_names);
	return 0;
}

static void emit_row_name(struct session *s, uint64_t id)
{
	struct op_name key = {.id = id}, *name;

	name = bsearch(&key, ops__of(s)->names, ops__of(s)->name_cnt, sizeof(*name), compare_op_names);
	if (!name || name->emitted)
		return;
	session__emit_name(s, name->text);
	name->emitted = true;
}

static void emit_op_rows(struct session *s)
{
	for (size_t i = 0; i < OP_ROWS; i++) {
		const struct op_entry *row = &ops__of(s)->rows[i];
		struct rec_op rec = {.hdr = {.type = REC_OP, .size = sizeof(rec)}};

		if (!__atomic_load_n(&row->head.whole, __ATOMIC_ACQUIRE) || !row->key.name)
			continue;
		rec.key = row->key;
		rec.val = row->val;
		/*
		 * Also for an unchanged row: the timeline has calls that BPF has taken back from
		 * their row.
		 */
		emit_row_name(s, rec.key.name);
		if (!memcmp(&rec.val, &ops__of(s)->emitted[i], sizeof(rec.val)))
			continue;
		ops__of(s)->emitted[i] = rec.val;
		session__emit(s, &rec.hdr);
	}
}

/*
 * BPF emits a window when it ends. An open window is emitted as far as it has got, so that the file
 * has it too.
 */
static void emit_op_window(struct session *s, const struct op_proc *p)
{
	struct rec_op_window rec = {.hdr = {.type = REC_OP_WINDOW, .size = sizeof(rec)}};

	if (!p->open || !p->index)
		return;
	rec.pid = p->pid;
	rec.index = p->index - 1;
	rec.first_step = p->first_step;
	/* With a schedule, the first boundary counted here opened the window. */
	rec.steps = p->boundaries - p->first_step - (s->options.schedule[OP_ACTIVE] ? 1 : 0);
	rec.start_ns = p->window_start_ns;
	rec.end_ns = session__now_ns();
	rec.cut = p->cut;
	session__emit(s, &rec.hdr);
}

static void emit_windows(struct session *s)
{
	for (size_t slot = 0; slot < OP_PROCS_MAX; slot++)
		emit_op_window(s, &ops__of(s)->procs[slot]);
}

static bool on_span(struct session *s, const struct rec_hdr *record)
{
	if (ops__of(s)->spans)
		spans_encoder__add(ops__of(s)->spans, (const void *)record);
	return true;
}

static void flush_spans(struct session *s)
{
	if (ops__of(s)->spans)
		spans_encoder__flush(ops__of(s)->spans);
}

/* ---- the probes of a process ---- */

/* Describes a library's operators to BPF. Other functions leave their entries unused. */
static int define_operators(struct session *s, const struct op_file *file)
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
		def.wants_ints = flops__wants_ints(merged);
		memcpy(def.args, fn->arg, sizeof(def.args));
		for (uint32_t k = 0; k < def.arg_cnt; k++)
			def.on_stack |= def.args[k].place >= OP_ARG_STACK || def.args[k].place2 >= OP_ARG_STACK;
		if (bpf_map_update_elem(fd, &index, &def, BPF_ANY))
			return -errno;
	}
	return 0;
}

static int find_tensor_layout(struct session *s, const struct elf *elf)
{
	uint32_t offset;

	if (torch__sizes_offset(elf, &offset)) {
		log__warn("report this version of torch",
			  "the layout of its tensors was not found: shapes are missing");
		return 0;
	}
	s->skel->bss->tensor_sizes = offset;
	return 0;
}

static int drop_op_file(struct op_file *f, int err)
{
	torch_ops__free(f->found);
	f->found = NULL;
	return err;
}

/*
 * Finds the operators of a library, once per session. tensors: the library has the tensors, whose
 * layout `shapes` needs. 0 or -errno.
 */
static int find_op_file(struct session *s, const struct mapped_file *file, bool tensors, const struct op_file **out)
{
	struct ops *ops = ops__of(s);
	struct op_file *f = file__state(s, file->dev, file->inode, SOURCE_OPS);
	char cache[PATH_MAX];
	struct elf *elf;
	int err;

	if (!f)
		return -ENOMEM;
	*out = f;
	if (f->found)
		return 0;
	f->first = ops->def_cnt;
	err = file__elf(s, file, &elf);
	if (err)
		return err;
	err = torch_ops__find(elf, cache__dir(cache, sizeof(cache)), &f->found);
	if (!err && s->options.shapes && tensors)
		err = find_tensor_layout(s, elf);
	err = err ?: elf__error(elf);
	elf__free(elf);
	if (err)
		return drop_op_file(f, err);
	if (ops->def_cnt + f->found->fn_cnt > OP_DEF_MEMORY)
		err = -E2BIG;
	err = err ?: define_operators(s, f) ?: add_op_names(ops, f->found);
	if (err)
		return drop_op_file(f, err);
	ops->def_cnt += f->found->fn_cnt;
	return 0;
}

static enum op_link enter_link(uint8_t event)
{
	return event == OP_CALL ? LINK_ENTER : event == OP_BOXED ? LINK_BOXED : LINK_NODE;
}

/*
 * Profilers do not see these operators (ATen/core/dispatch/ObservedOperators.cpp). Probes on them
 * would cost time, and would take time away from the operators around them.
 */
static bool is_unobserved(const char *name)
{
	static const char *const names[] = {"aten::size", "aten::is_leaf", "aten::output_nr", "aten::_version",
					    "aten::is_complex"};
	size_t bytes = strcspn(name, ".");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == bytes && !strncmp(name, names[i], bytes))
			return true;
	return false;
}

static int add_op_function(struct op_library *library, const struct op_file *file, uint32_t i, uint32_t slot)
{
	const struct torch_fn *fn = &file->found->fn[i];
	const struct site *site = &file->found->site[fn->first_site];
	uint32_t index = fn->event == OP_CALL ? file->first + i : fn->subject;
	int err = 0;

	if (fn->event == OP_CALL && is_unobserved(fn->name))
		return 0;
	if (fn->stepped) /* some ten times the cost, on the path of every call */
		return 0;
	for (uint32_t k = 0; k < fn->exit_cnt + fn->unwind_cnt && !err; k++)
		err = probe_list__add_site(&library->lists[LINK_EXIT], &site[k], fn->event, slot, index);
	return err ?: probe_list__add_site(&library->lists[enter_link(fn->event)], &fn->entry, fn->event, slot, index);
}

static int add_node_classes(struct session *s, const struct torch_ops *found, uint64_t base, uint32_t slot)
{
	int fd = bpf_map__fd(s->skel->maps.node_classes);

	for (size_t i = 0; i < found->node_cnt; i++) {
		struct node_class key = {.slot = slot, .vtable = base + found->node[i].vtable};
		struct node_val val = {
			.name = found->node[i].name[0] ? session__name_id(found->node[i].name) : 0,
			.object = found->node[i].object,
		};

		if (bpf_map_update_elem(fd, &key, &val, BPF_ANY))
			return -errno;
	}
	return 0;
}

/* NULL: the file cannot be opened any more. */
static struct op_library *add_op_library(struct session *s, struct op_target *t, const struct mapped_file *file)
{
	struct op_library *library = &t->libraries[t->library_cnt++];
	int fd = file__open(s, file, true);

	for (int link = 0; link < LINK__COUNT; link++)
		probe_list__set_file(&library->lists[link], file, fd);
	return fd < 0 ? NULL : library;
}

/* Finds autograd's sequence numbers, by which the timeline links nodes to operators. */
static void find_sequence_numbers(struct session *s, const struct target *t, const struct mapped_file *file,
				  struct op_proc *p)
{
	struct thread_word word = {0};
	struct elf *elf = NULL;
	uint64_t first;
	int err = file__elf(s, file, &elf);

	err = err ?: elf__vaddr(elf, 0, &first);
	err = err ?: getter__thread_word(elf, t->process.pid, file->base - first, PEEK, &word);
	elf__free(elf);
	/* bpf/sequence.h expects glibc's dtv; musl's has 8-byte entries. */
	if (err || (word.module && process__file(&t->process, "ld-musl-"))) {
		log__warn("report this version of torch", "its sequence numbers were not found: the timeline does "
							  "not link nodes to operators");
		return;
	}
	p->sequence_module = word.module;
	p->sequence_offset = word.offset;
}

/* Adds the operators and nodes of a library. Only the library with the tensors must have some. */
static int add_torch_library(struct session *s, const struct mapped_file *file, bool tensors, uint32_t slot)
{
	struct op_proc *p = &ops__of(s)->procs[slot];
	struct op_library *library;
	const struct op_file *found;
	int err = find_op_file(s, file, tensors, &found);

	if (err)
		return err == -ENOENT && !tensors ? 0 : err;
	p->longer_heads = py_layout__longer(&ops__of(s)->targets[slot].target->python.process.layout);
	if (found->found->string_bytes == 8)
		p->old_strings = 1;
	if (found->found->sequence_nr)
		p->node_sequence = found->found->sequence_nr;
	if (tensors && s->options.timeline)
		find_sequence_numbers(s, ops__of(s)->targets[slot].target, file, p);
	library = add_op_library(s, &ops__of(s)->targets[slot], file);
	if (!library)
		return -ESTALE;
	for (uint32_t i = 0; !err && i < found->found->fn_cnt; i++)
		err = add_op_function(library, found, i, slot);
	return err ?: add_node_classes(s, found->found, file->base, slot);
}

/* Probes the allocators' reports, in libc10. */
static int add_memory_probes(struct session *s, const struct mapped_file *file, uint32_t slot)
{
	static const struct {
		const char *symbol;
		uint32_t event;
	} functions[] = {
		{"_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm", OP_ALLOCATE},
		{"_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv", OP_FREE},
		{"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", OP_REPORT},
		{"_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE", OP_REPORT}, /* 1.13 */
	};
	struct op_library *library = add_op_library(s, &ops__of(s)->targets[slot], file);
	struct elf *elf = NULL;
	int err = library ? file__elf(s, file, &elf) : -ESTALE;

	for (size_t i = 0; !err && i < sizeof(functions) / sizeof(functions[0]); i++) {
		struct elf_symbol symbol;

		if (!elf__symbol(elf, functions[i].symbol, &symbol))
			err = probe_list__add_function(&library->lists[LINK_MEMORY], elf, symbol.vaddr, symbol.size,
						       functions[i].event, PROBE_NONE, slot, 0);
	}
	elf__free(elf);
	return err;
}

/* Fills the target of `slot` with all probes of a process, by its mapped libraries. 0 or -errno. */
static int add_op_probes(struct session *s, struct target *t, uint32_t slot)
{
	const struct mapped_file *python = process__file(&t->process, "libtorch_python.so");
	const struct mapped_file *c10 = process__file(&t->process, "libc10.so");
	int err = add_torch_library(s, t->torch_file, true, slot);

	if (!err && python)
		err = add_torch_library(s, python, false, slot);
	if (!err && c10 && s->options.memory)
		err = add_memory_probes(s, c10, slot);
	return err;
}

/* ---- the session ---- */

/*
 * How long before a window the probes are attached, and how far away the next window must be for
 * stepflame to detach them in between.
 */
#define ATTACH_AHEAD_NS    500000000ULL
#define DETACH_FAR_NS      2000000000ULL
#define ATTACH_AHEAD_STEPS 20 /* steps before a window, while the duration of a step is unknown */

/*
 * How long after a fork stepflame removes the breakpoints that the child inherited, so that workers
 * forked together share one removal; and the least time between two removals.
 */
#define CLEAN_DELAY_NS      1000000000ULL
#define CLEAN_INTERVAL_NS   10000000000ULL

#define TIMELINE_RING_BYTES (32 << 20) /* some 400,000 spans between two polls */

/* Target state. */
struct ops_target {
	uint32_t slot; /* 1 + index in ops.procs and ops.targets; 0: not recorded */
	bool searched; /* stepflame has searched for its operators */
	uint64_t hits; /* of slots that it had before */
};

static struct ops_target *target_state(const struct target *t)
{
	return target__state(t, SOURCE_OPS);
}

/* BPF's operator state of the target. NULL: stepflame does not record its operators. */
static struct op_proc *op_proc_of(const struct session *s, const struct target *t)
{
	uint32_t slot = target_state(t)->slot;

	return slot ? &ops__of(s)->procs[slot - 1] : NULL;
}

static void configure(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend)
{
	/* ATTACH_PERF cannot attach so many probes. */
	if (!s || !s->options.ops || backend == ATTACH_PERF) {
		bpf_program__set_autoload(skel->progs.op_enter, false);
		bpf_program__set_autoload(skel->progs.node_enter, false);
		bpf_program__set_autoload(skel->progs.boxed_enter, false);
		bpf_program__set_autoload(skel->progs.op_exit, false);
		bpf_program__set_autoload(skel->progs.op_memory, false);
		bpf_map__set_max_entries(skel->maps.op_rows, 1);
		bpf_map__set_max_entries(skel->maps.op_procs, 1);
		bpf_map__set_max_entries(skel->maps.op_defs, 1);
		bpf_map__set_max_entries(skel->maps.node_classes, 1);
		bpf_map__set_max_entries(skel->maps.handles, 1);
		bpf_map__set_max_entries(skel->maps.groups, 1);
		bpf_map__set_max_entries(skel->maps.allocations, 1);
	}
	if (!s)
		return;
	memcpy((void *)skel->rodata->op_schedule, s->options.schedule, sizeof(s->options.schedule));
	skel->rodata->want_ops = s->options.ops;
	skel->rodata->want_timeline = s->options.timeline;
	skel->rodata->want_shapes = s->options.shapes;
	skel->rodata->want_stacks = s->options.stacks;
	skel->rodata->want_modules = s->options.modules;
	if (s->options.timeline)
		bpf_map__set_max_entries(skel->maps.ring, TIMELINE_RING_BYTES);
}

static int prepare(struct session *s)
{
	s->keeps_names = s->keeps_names || s->options.modules;
	return 0;
}

/*
 * Defines the row for memory that was allocated outside operators, under torch.profiler's name for
 * it.
 */
static int define_memory_row(struct session *s)
{
	uint64_t name = session__emit_name(s, "[memory]");
	struct op_def def = {.name = name, .merged = name};
	uint32_t index = OP_DEF_MEMORY;

	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.op_defs), &index, &def, BPF_ANY) ? -errno : 0;
}

static int start(struct session *s)
{
	if (!s->options.ops)
		return 0;
	if (s->selftest.attacher.backend == ATTACH_PERF) {
		log__error(PROBES_TOGETHER, "this kernel attaches probes one by one, and operators need thousands");
		return -EOPNOTSUPP;
	}
	return (s->options.memory ? define_memory_row(s) : 0) ?: map_ops(s);
}

static void hand_over_op_links(struct op_target *t, bool exits, struct detachment *d)
{
	for (size_t i = 0; i < t->library_cnt; i++)
		detachment__add(d, &t->libraries[i].links[exits ? LINK_EXIT : LINK_ENTER],
				exits ? 1 : LINK__COUNT - LINK_ENTER);
}

static void detach_operators(struct session *s, uint32_t slot)
{
	struct ops *ops = ops__of(s);
	struct detachment d = {};

	ops->procs[slot].armed = 0;
	/* Exits detach last, so that operators that have been entered still end. */
	hand_over_op_links(&ops->targets[slot], false, &d);
	guardian__detach(s->guardian, &d);
	hand_over_op_links(&ops->targets[slot], true, &d);
	guardian__detach(s->guardian, &d);
}

static int attach_operators(struct session *s, uint32_t slot)
{
	struct bpf_program *const programs[LINK__COUNT] = {
		[LINK_EXIT] = s->skel->progs.op_exit,     [LINK_ENTER] = s->skel->progs.op_enter,
		[LINK_NODE] = s->skel->progs.node_enter,  [LINK_BOXED] = s->skel->progs.boxed_enter,
		[LINK_MEMORY] = s->skel->progs.op_memory,
	};
	struct op_target *t = &ops__of(s)->targets[slot];
	int err = 0, wait_err;

	for (int link = 0; link < LINK__COUNT; link++)
		for (size_t i = 0; i < t->library_cnt && !err; i++)
			err = target__compare(t->target, &t->libraries[i].lists[link]);
	for (int link = 0; link < LINK__COUNT; link++)
		for (size_t i = 0; i < t->library_cnt && !err; i++)
			err = guardian__attach(s->guardian, programs[link], t->target->process.pid,
					       &t->libraries[i].lists[link], &t->libraries[i].links[link]);
	wait_err = guardian__await(s->guardian);
	err = err ?: wait_err;
	if (err)
		detach_operators(s, slot);
	else
		ops__of(s)->procs[slot].armed = 1;
	return err;
}

/* Deletes what a map has of a slot, with which each of its keys begins. */
static void forget_slot(const struct bpf_map *map, uint32_t slot)
{
	int fd = bpf_map__fd(map);
	uint32_t key[4], next[4]; /* as long as each key */
	bool more = !bpf_map_get_next_key(fd, NULL, next);

	/* It begins again at a key that BPF has deleted meanwhile. */
	for (uint32_t i = 2 * bpf_map__max_entries(map); i && more; i--) {
		memcpy(key, next, sizeof(key));
		more = !bpf_map_get_next_key(fd, key, next);
		if (key[0] == slot)
			bpf_map_delete_elem(fd, key);
	}
}

static void release_op_target(const struct session *s, struct op_target *t)
{
	for (size_t i = 0; i < t->library_cnt; i++)
		for (int link = 0; link < LINK__COUNT; link++) {
			attacher__forget(&s->selftest.attacher, &t->libraries[i].lists[link]);
			probe_list__release(&t->libraries[i].lists[link]);
		}
	*t = (struct op_target){};
}

/* The slot is free for another process; the counts stay. Its probes are detached. */
static void free_slot(struct session *s, struct target *t, uint32_t slot)
{
	struct op_proc *p = &ops__of(s)->procs[slot];

	emit_op_window(s, p);
	forget_slot(s->skel->maps.node_classes, slot);
	forget_slot(s->skel->maps.handles, slot);
	if (s->options.memory)
		forget_slot(s->skel->maps.allocations, slot);
	target_state(t)->hits += p->hits;
	target_state(t)->slot = 0;
	*p = (struct op_proc){};
	release_op_target(s, &ops__of(s)->targets[slot]);
}

static void free_ops(struct session *s)
{
	struct ops *ops = ops__of(s);

	for (uint32_t slot = 0; slot < OP_PROCS_MAX; slot++)
		release_op_target(s, &ops->targets[slot]);
	unmap_ops(s);
	map__free(&ops->modules.modules);
	map__free(&ops->modules.classes);
}

/* Rows have its names, and the processes that it was mapped in its descriptor. */
static bool needs_file(const struct session *s, const struct known_file *file)
{
	const struct op_file *own = file->state[SOURCE_OPS];
	const struct op_target *t = ops__of(s)->targets;

	if (own && own->found)
		return true;
	for (uint32_t slot = 0; slot < OP_PROCS_MAX; slot++)
		for (size_t i = 0; i < t[slot].library_cnt; i++)
			if (t[slot].libraries[i].lists->dev == file->id.dev &&
			    t[slot].libraries[i].lists->inode == file->id.inode)
				return true;
	return false;
}

static void free_file(void *state)
{
	torch_ops__free(((struct op_file *)state)->found);
}

static int find_free_slot(const struct ops *ops)
{
	for (int slot = 0; slot < OP_PROCS_MAX; slot++)
		if (!ops->targets[slot].target)
			return slot;
	return -ENOSPC;
}

/*
 * Finds the operators of a process with torch, and attaches their probes unless the first window of
 * the schedule is far. 0 or -errno.
 */
static int add_op_target(struct session *s, struct target *t)
{
	struct proc_command command = {.what = COMMAND_OPERATORS, .pid = t->process.pid};
	int slot = find_free_slot(ops__of(s)), err;

	if (slot < 0)
		return slot;
	ops__of(s)->targets[slot].target = t;
	err = add_op_probes(s, t, slot);
	if (err) {
		free_slot(s, t, slot);
		return err;
	}
	target_state(t)->slot = slot + 1;
	ops__of(s)->procs[slot].pid = command.pid;
	command.op_slot = slot + 1;
	programs__command(s->skel, &command);
	/*
	 * The first window may begin with the first step: attach the probes before the recording
	 * starts.
	 */
	if (s->options.schedule[OP_SKIP_FIRST] + s->options.schedule[OP_WAIT] <= ATTACH_AHEAD_STEPS)
		err = attach_operators(s, slot);
	if (err) {
		command.op_slot = 0;
		programs__command(s->skel, &command);
		free_slot(s, t, slot);
	}
	return err;
}

static const char *explain_operators(int err, const char **fix)
{
	if (err != -ENOSPC && err != -E2BIG)
		return mapped_file__explain(err, fix) ?: strerror(-err);
	*fix = "record fewer processes with their operators";
	return "those of too many processes, or libraries, are recorded already";
}

static void note_refused(struct session *s, const struct target *t, int err)
{
	const char *fix;

	session__note(s, "cannot probe the operators of process %d: %s", t->process.pid, explain_operators(err, &fix));
}

/* Without a schedule, operators count from here on. */
static int open_target(struct session *s, struct target *t)
{
	struct op_proc *p = op_proc_of(s, t);

	if (!p || s->options.schedule[OP_ACTIVE] || p->open)
		return 0;
	p->window_start_ns = session__now_ns();
	p->index = 1;
	p->counting = 1;
	__atomic_store_n(&p->open, 1, __ATOMIC_RELEASE);
	return 0;
}

/* A process whose operators cannot be probed is recorded without them. */
static int looked_at(struct session *s, struct target *t)
{
	const char *fix = "report this version of torch", *why;
	int err;

	if (!s->options.ops || target_state(t)->searched || t->role != ROLE_MAIN || !t->torch_file)
		return 0;
	target_state(t)->searched = true;
	err = add_op_target(s, t);
	if (err && err != -ESRCH) {
		why = explain_operators(err, &fix);
		log__error(fix, "cannot probe the operators of process %d: %s", t->process.pid, why);
		note_refused(s, t, err);
		err = 0;
	}
	return err ?: t->open ? open_target(s, t) : 0;
}

/* Detaches the probes; the counts stay. */
static void remove_op_target(struct session *s, struct target *t)
{
	uint32_t slot = target_state(t)->slot;

	if (!slot)
		return;
	detach_operators(s, slot - 1);
	free_slot(s, t, slot - 1);
}

static void on_exec(struct session *s, struct target *t)
{
	remove_op_target(s, t);
	target_state(t)->searched = false;
}

/*
 * The number of steps before the next window, counted from the step that begins next; UINT64_MAX:
 * no further window.
 */
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
		return UINT64_MAX; /* this is the last window */
	return cycle - at % cycle + lead;
}

/* Attaches the probes. After a failure, does not try again: this runs many times per second. */
static void attach_once(struct session *s, uint32_t slot)
{
	struct op_target *t = &ops__of(s)->targets[slot];
	int err = t->refused ? 0 : attach_operators(s, slot);

	if (!err)
		return;
	t->refused = true;
	if (err != -ESRCH)
		note_refused(s, t->target, err);
}

static void follow_schedule(struct session *s, uint32_t slot)
{
	const struct op_proc *p = &ops__of(s)->procs[slot];
	uint64_t ahead = steps_ahead(s->options.schedule, p->boundaries), step_ns = 0;

	if (p->open)
		return;
	if (p->boundaries > 1)
		step_ns = (p->last_boundary_ns - p->first_boundary_ns) / (p->boundaries - 1);
	if (!p->armed && (step_ns ? ahead < ATTACH_AHEAD_NS / step_ns + 1 : ahead <= ATTACH_AHEAD_STEPS))
		attach_once(s, slot);
	else if (p->armed && (ahead == UINT64_MAX || (step_ns && ahead > DETACH_FAR_NS / step_ns + 1)))
		detach_operators(s, slot);
}

/* Schedules the removal of the breakpoints that the child inherits. */
static void on_fork(struct session *s, struct target *parent, struct target *child, bool followed)
{
	uint32_t slot = target_state(parent)->slot;
	struct op_target *t = slot ? &ops__of(s)->targets[slot - 1] : NULL;
	uint64_t now = session__now_ns();

	/*
	 * A removal takes as long as attaching: the spans of a timeline may overflow the ring
	 * buffer meanwhile.
	 */
	if (!t || t->clean_at_ns || s->options.timeline)
		return;
	t->clean_at_ns = now + CLEAN_DELAY_NS;
	if (t->cleaned_ns && t->clean_at_ns < t->cleaned_ns + CLEAN_INTERVAL_NS)
		t->clean_at_ns = t->cleaned_ns + CLEAN_INTERVAL_NS;
}

/*
 * Removes inherited breakpoints from forked children: a child pays for each hit, although the
 * programs of its parent's links do not run in it.
 */
static void clean_children(struct session *s, uint32_t slot, uint64_t now)
{
	struct op_target *t = &ops__of(s)->targets[slot];

	t->clean_at_ns = 0;
	if (!ops__of(s)->procs[slot].armed)
		return; /* they were removed together with the parent's */
	for (size_t i = 0; i < t->library_cnt; i++)
		for (int link = 0; link < LINK__COUNT; link++)
			guardian__clean(s->guardian, s->skel->progs.op_exit, &t->libraries[i].lists[link]);
	t->cleaned_ns = now;
}

/* Attaches and detaches probes by the schedule, and removes inherited breakpoints from children. */
static void tend(struct session *s)
{
	uint64_t now = session__now_ns();

	if (!s->options.ops || !s->opened)
		return;
	for (uint32_t slot = 0; slot < OP_PROCS_MAX; slot++) {
		if (!ops__of(s)->targets[slot].target)
			continue;
		if (s->options.schedule[OP_ACTIVE])
			follow_schedule(s, slot);
		if (ops__of(s)->targets[slot].clean_at_ns && ops__of(s)->targets[slot].clean_at_ns <= now)
			clean_children(s, slot, now);
	}
}

/* Stops counting. */
static void close_windows(struct session *s)
{
	if (!s->options.ops)
		return;
	emit_windows(s); /* windows that end here rather than in BPF */
	for (uint32_t slot = 0; slot < OP_PROCS_MAX; slot++) {
		struct op_proc *p = &ops__of(s)->procs[slot];

		__atomic_store_n(&p->open, 0, __ATOMIC_RELEASE);
		p->counting = 0;
	}
}

static int snapshot(struct session *s)
{
	if (!s->options.ops)
		return 0;
	emit_op_rows(s);
	emit_windows(s);
	return s->sink_err;
}

/* Exits detach last, so that operators that have been entered still end. */
static void detach(struct session *s, bool last, struct detachment *d)
{
	for (uint32_t slot = 0; slot < OP_PROCS_MAX; slot++)
		hand_over_op_links(&ops__of(s)->targets[slot], last, d);
}

static uint64_t hits(const struct session *s, const struct target *t)
{
	const struct op_proc *p = op_proc_of(s, t);

	return target_state(t)->hits + (p ? p->hits : 0);
}

static enum source_windows windows(const struct session *s, const struct target *t)
{
	const struct op_proc *p = op_proc_of(s, t);

	if (!s->options.ops)
		return WINDOWS_NONE;
	if (!p && target_state(t)->searched) /* they were refused */
		return s->options.schedule[OP_REPEAT] ? WINDOWS_PASSED : WINDOWS_AHEAD;
	return p && s->options.schedule[OP_REPEAT] && !p->open && p->boundaries &&
			       steps_ahead(s->options.schedule, p->boundaries) == UINT64_MAX
		       ? WINDOWS_PASSED
		       : WINDOWS_AHEAD;
}

/* ---- records ---- */

static bool on_window(struct session *s, const struct rec_hdr *record)
{
	flush_spans(s);
	return false;
}

const struct source source_ops = {
	.session_bytes = sizeof(struct ops),
	.target_bytes = sizeof(struct ops_target),
	.file_bytes = sizeof(struct op_file),
	.records = {{REC_SPAN, sizeof(struct rec_span), on_span},
		    {REC_OP_WINDOW, sizeof(struct rec_op_window), on_window},
		    {REC_MODULES, sizeof(struct rec_modules), on_modules}},
	.prepare = prepare,
	.configure = configure,
	.start = start,
	.tend = tend,
	.close = close_windows,
	.snapshot = snapshot,
	.drained = flush_spans,
	.detach = detach,
	.free = free_ops,
	.needs_file = needs_file,
	.free_file = free_file,
	.looked_at = looked_at,
	.open_target = open_target,
	.hits = hits,
	.windows = windows,
	.on_fork = on_fork,
	.on_exec = on_exec,
	.on_exit = remove_op_target,
	.forget = remove_op_target,
};
