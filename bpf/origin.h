/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where Python calls an operator: the innermost frame, and the torch.nn.Modules whose calls enclose
 * the operator. Both become part of the operator's group (shapes.h).
 */
#ifndef STEPFLAME_BPF_ORIGIN_H
#define STEPFLAME_BPF_ORIGIN_H

#include "bpf/pystack.h"
#include "bpf/shapes.h"

#define ORIGIN_FRAMES 256 /* frames that are searched for modules */

/* Module paths already emitted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GROUPS_MAX);
	__type(key, u64);
	__type(value, u8);
} module_paths SEC(".maps");

/* The current walk of a thread, in the form of its record. */
struct origin {
	u64 frame, last;
	u64 code; /* of the innermost Python frame; 0: none yet */
	u64 hash;
	u32 offset;
	u32 lost;
	struct rec_modules rec;
	struct rec_module modules[MODULES_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct origin);
} origins SEC(".maps");

struct origin_walk {
	struct origin *origin;
	struct name_buffer *names;
	const struct proc *proc;
	u32 pid;
	u32 pad;
};

/*
 * The module that this frame calls: the `self` of Module._call_impl, or of the function that wraps
 * it from torch 2.1 on; 0: another function. If an inner function uses `self` too, the frame holds
 * a cell instead, and the wrapper's frame has the module.
 */
static __always_inline u64 frame__module(const struct py_layout *py, u64 frame, u64 code)
{
	if (!bpf_map_lookup_elem(&module_calls, &code))
		return 0;
	return read_u64(frame + py->frame_locals) & ~(u64)py->ref_mask;
}

/* Adds a module to the path, unless it is a cell or the last one added. */
__weak __noinline int origin__add(struct origin *o, struct name_buffer *b, const struct proc *proc, u64 object)
{
	struct rec_module *slot;
	u64 type, name;

	if (!o || !b || !proc || object == o->last || o->rec.module_cnt >= MODULES_MAX)
		return 0;
	type = read_u64(object + proc->py.layout.object_type);
	if (type == proc->py.cell_type)
		return 0;
	name = name__read_text(b, read_u64(type + proc->py.layout.type_name));
	if (!name)
		return 0;
	name__send(b, name);
	slot = &o->modules[BOUND_INDEX(o->rec.module_cnt, MODULES_MAX)];
	slot->object = object;
	slot->type = name;
	o->last = object;
	o->hash = name_hash__add(name_hash__add(o->hash, object), name);
	o->rec.module_cnt++;
	return 0;
}

static long origin__step(u32 i, struct origin_walk *walk)
{
	const struct py_layout *py = &walk->proc->py.layout;
	struct origin *o = walk->origin;
	struct py_frame frame = {};
	u64 code, at = o->frame, module;

	if (!at)
		return 1;
	if (!py_frame__read(walk->names, py, at, &frame)) {
		o->lost = 1;
		return 1;
	}
	o->frame = frame.previous;
	if (!frame.code)
		return 0;
	code = code__id(walk->names, walk->proc, walk->pid, frame.code);
	if (!code) {
		o->lost = 1;
		return 1;
	}
	if (code == CODE_SHIM)
		return 0;
	if (!o->code) {
		o->code = code;
		o->offset = frame.offset;
	}
	if (!want_modules)
		return 1;
	module = frame__module(py, at, code);
	if (module)
		origin__add(o, walk->names, walk->proc, module);
	return 0;
}

/*
 * Emits the path, unless BPF has emitted it before. Returns its id; 0: no modules, or the ring
 * buffer is full (counted).
 */
__weak __noinline u64 origin__send(struct origin *o, u32 pid)
{
	u32 size;
	u8 one = 1;
	u64 id;

	if (!o || !o->rec.module_cnt || o->rec.module_cnt > MODULES_MAX)
		return 0;
	id = name_hash__end(name_hash__add(o->hash, pid));
	if (bpf_map_lookup_elem(&module_paths, &id))
		return id;
	size = sizeof(o->rec) + o->rec.module_cnt * sizeof(struct rec_module);
	o->rec.hdr.type = REC_MODULES;
	o->rec.hdr.size = size;
	o->rec.id = id;
	o->rec.pid = pid;
	if (size > sizeof(o->rec) + sizeof(o->modules) || bpf_ringbuf_output(&ring, &o->rec, size, BPF_RB_NO_WAKEUP)) {
		count(CNT_RING_FULL);
		return 0;
	}
	bpf_map_update_elem(&module_paths, &id, &one, BPF_ANY);
	return id;
}

/* Fills in the source and the module of a group: where the current thread is in Python. */
__weak __noinline int origin__find(struct thread *t, u32 pid, struct rec_op_group *group)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct origin_walk walk = {.pid = pid, .proc = proc};
	struct py_walk py;
	u64 tstate = 0;

	if (!t || !group || !proc || !proc->py.code_type)
		return 0;
	walk.names = &t->names;
	walk.origin = bpf_task_storage_get(&origins, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!walk.origin) {
		count(CNT_NO_STORAGE);
		return 0;
	}
	py__own_tstate(&proc->py, task, &tstate);
	py__walk(&py, &proc->py.layout, tstate ? tstate : t->tstate);
	walk.origin->frame = py.frame;
	walk.origin->code = walk.origin->last = walk.origin->hash = 0;
	walk.origin->lost = walk.origin->rec.module_cnt = 0;
	bpf_loop(want_modules ? ORIGIN_FRAMES : 8, origin__step, &walk, 0);
	if (walk.origin->lost)
		count(CNT_STACK_LOST);
	if (want_stacks) {
		group->source = walk.origin->code;
		group->source_offset = walk.origin->offset;
	}
	group->module = origin__send(walk.origin, pid);
	return 0;
}

#endif
