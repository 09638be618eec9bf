/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls of CUDA and NCCL on the CPU. BPF counts a call in its row as it begins, and times it as it
 * ends; a nested call is part of the outer one. Waits for the GPU are also spans, whether BPF
 * counts calls or not.
 *
 *   gpu__enter -> thread.gpu, gpu_rows -> gpu__leave -> gpu_rows, the sums of the process, REC_GPU_CALL
 */
#ifndef STEPFLAME_BPF_GPU_H
#define STEPFLAME_BPF_GPU_H

#include "bpf/path.h"
#include "bpf/row.h"
#include "bpf/span.h"
#include "bpf/steps.h"

#define GPU_HANDLES   16384
#define GPU_ROW_TRIES 16 /* rows tried before the table counts as full */

/*
 * An array, so that the verifier inlines look-ups (every CUDA call of the target makes one) and
 * user space can map it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, GPU_ROWS);
	__type(key, u32);
	__type(value, struct gpu_entry);
} gpu_rows __weak SEC(".maps");

struct gpu_handle {
	u64 pid;
	u64 handle;
};

/* Name ids of kernels, by the handle that a driver function returned. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GPU_HANDLES);
	__type(key, struct gpu_handle);
	__type(value, u64);
} gpu_handles __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct path_scratch);
} gpu_paths __weak SEC(".maps");

#define GPU_KIND_DIRECTION 0xff /* the argument after the size says which */

/* The table of include/gpu.h. */
static const struct gpu_function {
	u8 class, object, bytes, unit, direction;
} gpu_functions[GPU_APIS] = {
#define X(name, class, object, bytes, unit, direction) \
	[GPU_API_##name] = {GPU_##class, object, bytes, unit, GPU_##direction##_DIRECTION},
	STEPFLAME_GPU_APIS(X)
#undef X
};

/*
 * 64 elements, since the compiler puts a small array into a section for constants, which bpftool's
 * linker mistakes for .rodata.
 */
static const u8 nccl_type_bytes[64] = {STEPFLAME_NCCL_TYPE_BYTES};

static __always_inline const struct gpu_function *gpu_function__at(u32 api)
{
	return &gpu_functions[BOUND_INDEX(api, GPU_APIS)];
}

/* The n-th argument, counted from 1. */
static __always_inline u64 gpu__argument(const struct pt_regs *ctx, u32 n)
{
	switch (n) {
	case 1:
		return LOAD_HERE(ctx->di);
	case 2:
		return LOAD_HERE(ctx->si);
	case 3:
		return LOAD_HERE(ctx->dx);
	case 4:
		return LOAD_HERE(ctx->cx);
	case 5:
		return LOAD_HERE(ctx->r8);
	case 6:
		return LOAD_HERE(ctx->r9);
	}
	return 0;
}

/* enum cudaMemcpyKind, driver_types.h */
static __always_inline u32 gpu__direction(u32 kind)
{
	switch (kind) {
	case 0:
		return GPU_HTOH_DIRECTION;
	case 1:
		return GPU_HTOD_DIRECTION;
	case 2:
		return GPU_DTOH_DIRECTION;
	case 3:
		return GPU_DTOD_DIRECTION;
	}
	return GPU_UNKNOWN_DIRECTION;
}

/* Name id of the innermost open operator or node; 0: none. */
static __always_inline u64 gpu__operator(struct thread *t)
{
	u32 i = span__innermost(t, OPERATOR_KINDS, 0);

	return i ? span__at(t, i - 1)->name : 0;
}

/*
 * Name id of the action that a call counts towards; 0: none. The autograd engine's own threads work
 * for the action that called Engine::execute; any other thread without spans has no action.
 */
static __always_inline u64 gpu__action(struct thread *t, const struct proc *proc, struct task_struct *task)
{
	if (t->depth)
		return span__action(t, t->depth);
	return proc->steps.backward_action && task__is_engine(task) ? proc->steps.backward_action : 0;
}

static __always_inline void gpu__send_object(const struct gpu_calls_key *key)
{
	struct rec_gpu_object *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_RING_FULL);
		return;
	}
	rec->hdr.type = REC_GPU_OBJECT;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->pid = key->pid;
	rec->api = key->api;
	rec->object = key->object;
	bpf_ringbuf_submit(rec, 0); /* not delayed, since the process may end soon */
}

static __always_inline u64 gpu_key__hash(const struct gpu_calls_key *key)
{
	return row__hash(((u64)key->pid << 32 | (u32)key->api << 16 | (u32)key->direction << 8 | key->dtype) ^
			 key->action * 0x9e3779b97f4a7c15ULL ^ key->op * 0xd6e8feb86659fd93ULL ^
			 key->object * 0xa0761d6478bd642fULL);
}

static __always_inline struct gpu_entry *gpu_row__at(u32 i)
{
	return bpf_map_lookup_elem(&gpu_rows, &i);
}

/*
 * Index of the row with this key, created if it does not exist; GPU_ROWS (counted): the table is
 * full.
 */
static __always_inline u32 gpu_row__find(const struct gpu_calls_key *key)
{
	u64 hash = gpu_key__hash(key);
	bool fresh;
	u32 i = ROW_CLAIM(&gpu_rows, GPU_ROWS, GPU_ROW_TRIES, hash, &fresh);
	struct gpu_entry *row = fresh ? gpu_row__at(i) : NULL;

	if (row) {
		row->key = *key;
		row__publish(&row->head);
		if (key->object && gpu_function__at(key->api)->class == GPU_LAUNCH)
			gpu__send_object(key);
	}
	if (i == GPU_ROWS)
		count(CNT_GPU_CALLS_LOST);
	return i;
}

/* Counts the open call of a thread as it begins. */
__weak __noinline int gpu_row__begin(struct gpu_open *open, struct proc *proc)
{
	struct gpu_entry *row;
	u32 class;

	if (!open || !proc)
		return 0;
	open->row = gpu_row__find(&open->key);
	row = gpu_row__at(open->row);
	if (row) {
		__sync_fetch_and_add(&row->val.calls, 1);
		if (open->bytes)
			__sync_fetch_and_add(&row->val.bytes, open->bytes);
	}
	class = gpu_function__at(open->key.api)->class;
	if (class == GPU_LAUNCH || class == GPU_GRAPH)
		__sync_fetch_and_add(&proc->gpu.sums.launches, 1);
	if (class == GPU_COPY) {
		__sync_fetch_and_add(&proc->gpu.sums.copies, 1);
		__sync_fetch_and_add(&proc->gpu.sums.copied_bytes, open->bytes);
	}
	return 0;
}

/* Times the open call of a thread as it ends. */
static __always_inline void gpu_row__end(const struct gpu_open *open, struct proc *proc, u64 ns)
{
	struct gpu_entry *row = gpu_row__at(open->row);
	u64 old;

	if (row) {
		__sync_fetch_and_add(&row->val.total_ns, ns);
		old = row->val.max_ns;
		/* As in agg__add: one retry is enough. */
		if (ns > old && __sync_val_compare_and_swap(&row->val.max_ns, old, ns) != old && ns > row->val.max_ns)
			row->val.max_ns = ns;
	}
	if (gpu_function__at(open->key.api)->class == GPU_SYNC)
		__sync_fetch_and_add(&proc->gpu.sums.sync_ns, ns);
	else
		__sync_fetch_and_add(&proc->gpu.sums.api_ns, ns);
}

/* Does BPF emit each call now? */
static __always_inline bool gpu__emits(const struct proc *proc, u64 start_ns)
{
	u32 slot = proc->ops.slot - 1;
	const struct op_proc *p = want_timeline && proc->ops.slot ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;

	if (proc->gpu.emits && want_gpu_windows)
		return proc->gpu.window_ns && start_ns >= proc->gpu.window_ns;
	return proc->gpu.emits || (p && p->open && start_ns >= p->window_start_ns);
}

static __always_inline u64 gpu__path(struct thread *t, struct task_struct *task)
{
	struct path_scratch *scratch;

	if (!sample_period_ns)
		return 0;
	scratch = bpf_task_storage_get(&gpu_paths, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!scratch)
		return 0;
	scratch->by_group = 1;
	return path__of(scratch, t);
}

static __always_inline void gpu__emit(struct thread *t, const struct proc *proc, struct task_struct *task, u64 ns)
{
	u32 class = gpu_function__at(t->gpu.key.api)->class;
	struct rec_gpu_call *rec;
	u64 path;

	if (class != GPU_LAUNCH && class != GPU_GRAPH && class != GPU_COPY && class != GPU_SET && class != GPU_SYNC &&
	    class != GPU_COMM)
		return;
	path = gpu__path(t, task);
	rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);
	if (!rec) {
		count(CNT_SPANS_CUT);
		return;
	}
	rec->hdr.type = REC_GPU_CALL;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->start_ns = t->gpu.start_ns;
	rec->duration_ns = ns;
	rec->key = t->gpu.key;
	rec->bytes = t->gpu.bytes;
	rec->path = path;
	rec->tid = task_tid(task);
	rec->step = proc->steps.cnt;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

/*
 * Does this frame lie inside the open call? If an exception, a longjmp or a return without a probe
 * has left that call, closes and counts it.
 */
static __always_inline bool gpu__is_inside(struct gpu_open *open, u64 frame)
{
	if (!open->frame)
		return false;
	if (frame < open->frame && read_u64(open->frame) == open->caller)
		return true;
	open->frame = 0;
	count(open->soft ? CNT_GPU_UNTIMED : CNT_UNWOUND);
	return false;
}

static __always_inline void gpu__fill(struct pt_regs *ctx, struct gpu_open *open, const struct gpu_function *f)
{
	u64 bytes = gpu__argument(ctx, f->bytes), next = f->bytes ? (u32)gpu__argument(ctx, f->bytes + 1) : 0;

	open->key.direction = f->direction;
	open->key.dtype = 0;
	if (f->direction == GPU_KIND_DIRECTION) {
		open->key.direction = gpu__direction(next);
	} else if (f->bytes && !f->unit) {
		open->key.dtype = next; /* an enum: 32 bits */
		bytes *= next & ~63u ? 0 : nccl_type_bytes[BOUND_INDEX(next, 64)];
	} else {
		bytes *= f->unit;
	}
	open->bytes = bytes;
	open->key.object = gpu__argument(ctx, f->object);
}

/*
 * Like thread__enter, but reads the clock only where needed: that read is a third of the program's
 * cost.
 */
static __always_inline struct thread *gpu__thread(struct task_struct *task, u64 sp)
{
	struct thread *t = thread__of(task);

	if (t)
		t->before_ns = t->now_ns;
	if (t && t->framed) {
		t->now_ns = bpf_ktime_get_ns();
		span__repair(t, sp);
	}
	return t;
}

static __always_inline void gpu__enter(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
				       u32 api, u64 frame, u32 flags)
{
	const struct gpu_function *f = gpu_function__at(api);
	struct thread *t = gpu__thread(task, entry_sp(ctx, frame));
	struct gpu_open *open;
	struct span *s = NULL;
	bool counts;

	if (!t)
		return;
	if (!frame)
		frame = ctx->sp;
	open = &t->gpu;
	counts = want_gpu && proc->window == WINDOW_OPEN && !gpu__is_inside(open, frame);
	if (counts) {
		gpu__fill(ctx, open, f);
		open->key.pid = pid;
		open->key.api = api;
		open->key.action = gpu__action(t, proc, task);
		open->key.op = proc->ops.slot ? gpu__operator(t) : 0;
	}
	if (f->class == GPU_SYNC && !(flags & COOKIE_NO_END) && !is_part(t, SPAN_SYNC))
		s = span__begin(t, SPAN_SYNC, api, gpu_names[BOUND_INDEX(api, GPU_APIS)], frame);
	if (!counts)
		return;
	gpu_row__begin(open, proc);
	if (flags & COOKIE_NO_END) {
		open->start_ns = bpf_ktime_get_ns();
		count(CNT_GPU_UNTIMED);
		if (gpu__emits(proc, open->start_ns))
			gpu__emit(t, proc, task, 0);
		return;
	}
	open->soft = flags & COOKIE_SOFT_END;
	open->frame = frame;
	open->caller = read_u64(frame);
	open->start_ns = bpf_ktime_get_ns();
	if (s)
		s->start_ns = open->start_ns;
}

/*
 * Does the open call end here? `frame` 0: unknown. `api` 0: several functions share this exit, and
 * the frame shows which one ends.
 */
static __always_inline bool gpu__ends(const struct pt_regs *ctx, const struct gpu_open *open, u32 api, u64 frame)
{
	return open->frame && (!api || open->key.api == api) && ctx->sp <= open->frame &&
	       (frame ? frame == open->frame : api);
}

static __always_inline void gpu__leave(struct pt_regs *ctx, struct task_struct *task, struct proc *proc, u32 pid,
				       u32 api, u64 frame)
{
	bool waits = !api || gpu_function__at(api)->class == GPU_SYNC;
	struct thread *t = gpu__thread(task, ctx->sp);
	struct gpu_open *open;
	bool ends;
	u64 ns;

	if (!t || (!api && !frame))
		return;
	open = &t->gpu;
	ends = gpu__ends(ctx, open, api, frame);
	if (!ends && !waits)
		return;
	t->now_ns = bpf_ktime_get_ns();
	if (waits && !span__end(t, proc, pid, span__find(t, SPAN_SYNC, api ? api : TOKEN_ANY, frame)) && api &&
	    !is_part(t, SPAN_SYNC))
		count(CNT_OPEN_AT_START);
	if (!ends)
		return;
	ns = t->now_ns - open->start_ns;
	open->frame = 0;
	if (proc->window != WINDOW_OPEN)
		return;
	gpu_row__end(open, proc, ns);
	if (gpu__emits(proc, open->start_ns))
		gpu__emit(t, proc, task, ns);
}

/* The program asks the driver for a kernel's handle, by the kernel's name or by another handle. */
static __always_inline void gpu__request_handle(struct pt_regs *ctx, struct task_struct *task, u32 pid, u32 from)
{
	struct gpu_handle key = {.pid = pid, .handle = ctx->si};
	struct thread *t = thread__of(task);
	u64 *name;

	if (!t)
		return;
	t->gpu.handle_at = 0;
	if (from == GPU_HANDLE_OF_HANDLE) {
		name = bpf_map_lookup_elem(&gpu_handles, &key);
		t->gpu.handle_name = name ? *name : 0;
	} else {
		t->gpu.handle_name = name__read_text(&t->names, ctx->dx);
		if (t->gpu.handle_name)
			name__send(&t->names, t->gpu.handle_name);
	}
	if (t->gpu.handle_name)
		t->gpu.handle_at = ctx->di;
}

static __always_inline void gpu__store_handle(struct task_struct *task, u32 pid)
{
	struct gpu_handle key = {.pid = pid};
	struct thread *t = thread__of(task);

	if (!t || !t->gpu.handle_at)
		return;
	key.handle = read_u64(t->gpu.handle_at);
	t->gpu.handle_at = 0;
	if (key.handle)
		bpf_map_update_elem(&gpu_handles, &key, &t->gpu.handle_name, BPF_ANY);
}

#endif
