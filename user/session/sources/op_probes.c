// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Makes the probes for a process's operators. In: its mapped libraries (user/runtime/torch/ops.h).
 * Out: probe lists, and the BPF maps op_defs and node_classes.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stepflame.skel.h"
#include "user/elf/cache.h"
#include "user/lib/log.h"
#include "user/proc/getter.h"
#include "user/runtime/torch/flops.h"
#include "user/runtime/torch/torch.h"
#include "user/session/sources/ops.h"

#define PEEK "_ZN2at15sequence_number4peekEv"

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
	err = err ?: define_operators(s, f) ?: ops__add_names(ops, f->found);
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

int op_probes__add(struct session *s, struct target *t, uint32_t slot)
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
