/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every call of a Python function, from the interpreter's entry into its frame to the end of the
 * frame: a stack of calls per thread, and the row to which a call is added when it ends.
 *
 *   on_call -> exact_thread.calls[] -> on_return, on_clear -> call_rows
 *
 * A call is identified by the address of its native function's return address, and by its Python
 * frame. When another call reuses that address, the old call has ended without a probe hit: BPF
 * drops and counts it.
 */
#ifndef STEPFLAME_BPF_EXACT_H
#define STEPFLAME_BPF_EXACT_H

#include "bpf/path.h"
#include "bpf/pystack.h"
#include "bpf/span.h"

#define PY_MINOR_CLEARS 12   /* from this CPython on, the function that runs a frame also clears it */
#define CALL_DEPTH      1024 /* CPython's own limit of recursion is 1,000 */
#define CALL_THREADS    256
#define CALL_BUCKETS    512
#define CALL_ROWS       65536
#define NO_SLOT         (~0u)

/*
 * PyCodeObject.co_flags (CPython Include/cpython/code.h): CO_GENERATOR, CO_COROUTINE,
 * CO_ASYNC_GENERATOR
 */
#define CODE_GENERATES (0x20 | 0x80 | 0x200)

struct exact_call {
	u64 code; /* REC_CODE id; 0: unreadable, so the call does not count */
	u64 start_ns;
	u64 child_ns; /* time in inner calls that have ended */
	u64 frame;    /* address of its native return address; inner calls have lower ones */
	u64 py_frame;
	u64 path; /* REC_PATH id */
	u64 primitive;
};

/*
 * The state of one thread. It is too large for task storage, and needs no lock, since the programs
 * of one thread never interleave.
 */
struct exact_thread {
	u32 depth;
	u32 path_depth; /* when `path` was looked up: the number of spans, and the start of the innermost */
	u64 path_ns, path;
	struct name_buffer names;
	struct path_scratch scratch;
	u16 open[CALL_BUCKETS]; /* calls on the stack, by the low bits of `code` */
	struct exact_call calls[CALL_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CALL_THREADS);
	__type(key, u32);
	__type(value, struct exact_thread);
} exact_threads SEC(".maps");

/* Elements of exact_threads that no thread uses; user space fills it. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, CALL_THREADS);
	__uint(value_size, sizeof(u32));
} exact_free SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32); /* 1 + index in exact_threads; 0: none yet; NO_SLOT: none was free */
} exact_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CALL_ROWS);
	__type(key, struct call_key);
	__type(value, struct call_val);
} call_rows SEC(".maps");

static __always_inline struct exact_call *call__at(struct exact_thread *x, u64 i)
{
	return &x->calls[BOUND_INDEX(i, CALL_DEPTH)];
}

static __always_inline struct exact_thread *exact__thread(struct task_struct *task)
{
	u32 *slot = bpf_task_storage_get(&exact_slots, task, NULL, 0), at;

	if (!slot || !*slot)
		return NULL;
	at = *slot - 1; /* NO_SLOT - 1 is no valid index */
	return bpf_map_lookup_elem(&exact_threads, &at);
}

/*
 * The state of the current thread, assigned at its first use. NULL (counted once): too many
 * threads.
 */
static __always_inline struct exact_thread *exact__enter(struct task_struct *task)
{
	struct exact_thread *x = exact__thread(task);
	u32 *slot, at;

	if (x)
		return x;
	slot = bpf_task_storage_get(&exact_slots, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (slot && *slot)
		return NULL;
	if (!slot || bpf_map_pop_elem(&exact_free, &at)) {
		count(CNT_NO_STORAGE);
		if (slot)
			*slot = NO_SLOT; /* counted once */
		return NULL;
	}
	x = bpf_map_lookup_elem(&exact_threads, &at);
	if (!x)
		return NULL;
	*slot = at + 1;
	x->depth = 0;
	x->path_depth = 0;
	__builtin_memset(x->open, 0, sizeof(x->open));
	return x;
}

static __always_inline void exact__leave(struct task_struct *task)
{
	u32 *slot = bpf_task_storage_get(&exact_slots, task, NULL, 0), at;

	if (!slot || !*slot || *slot == NO_SLOT)
		return;
	at = *slot - 1;
	*slot = 0;
	bpf_map_push_elem(&exact_free, &at, 0);
}

/*
 * Is a call of this function on the stack? The search begins at the innermost call, where it finds
 * a recursion at once.
 */
__weak __noinline int calls__has(struct exact_thread *x, u64 code)
{
	u32 depth;

	if (!x)
		return 0;
	depth = x->depth;
	for (u32 n = 0; n < CALL_DEPTH; n++) {
		if (n >= depth)
			break;
		if (call__at(x, depth - 1 - n)->code == code)
			return 1;
	}
	return 0;
}

/* Pops the innermost call. */
static __always_inline struct exact_call *call__pop(struct exact_thread *x)
{
	struct exact_call *call;

	x->depth--;
	call = call__at(x, x->depth);
	x->open[BOUND_INDEX(call->code, CALL_BUCKETS)]--;
	return call;
}

/*
 * Drops the calls below sp: they have ended unseen. Their ended children become children of the
 * outer call.
 */
__weak __noinline int calls__drop_below(struct exact_thread *x, u64 sp)
{
	u32 cnt = 0;

	if (!x)
		return 0;
	for (u32 n = 0; n < CALL_DEPTH; n++) {
		struct exact_call *call;

		if (!x->depth || call__at(x, x->depth - 1)->frame >= sp)
			break;
		call = call__pop(x);
		if (x->depth)
			call__at(x, x->depth - 1)->child_ns += call->child_ns;
		cnt++;
	}
	count_many(CNT_UNWOUND, cnt);
	return 0;
}

static __always_inline void calls__repair(struct exact_thread *x, u64 sp)
{
	if (x->depth && call__at(x, x->depth - 1)->frame < sp)
		calls__drop_below(x, sp);
}

__weak __noinline int call__account(const struct call_key *key, u64 total_ns, u64 self_ns, u32 primitive)
{
	static const struct call_val zero = {};
	struct call_key k;
	struct call_val *val;

	if (!key)
		return 0;
	k = *key;
	val = bpf_map_lookup_elem(&call_rows, &k);
	if (!val) {
		bpf_map_update_elem(&call_rows, &k, &zero, BPF_NOEXIST);
		val = bpf_map_lookup_elem(&call_rows, &k);
		if (!val) {
			count(CNT_MAP_FULL);
			return 0;
		}
	}
	__sync_fetch_and_add(&val->calls, 1);
	__sync_fetch_and_add(&val->self_ns, self_ns);
	if (primitive) {
		__sync_fetch_and_add(&val->primitive_calls, 1);
		__sync_fetch_and_add(&val->total_ns, total_ns);
	}
	return 0;
}

/* The innermost call ends. */
static __always_inline void call__end(struct exact_thread *x, const struct proc *proc, u32 pid, u64 now)
{
	struct exact_call *call = call__pop(x);
	struct call_key key = {.pid = pid, .code = call->code, .path = call->path};
	u64 total = now - call->start_ns;

	if (x->depth)
		call__at(x, x->depth - 1)->child_ns += total;
	if (call->code && in_window(proc, call->start_ns))
		call__account(&key, total, total > call->child_ns ? total - call->child_ns : 0, call->primitive);
}

/*
 * REC_PATH id of the spans around what runs now; looked up only if spans have begun or ended since.
 */
static __always_inline u64 exact__path(struct exact_thread *x, struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);
	const struct span *s;
	u32 depth;

	if (!t)
		return 0;
	depth = t->depth;
	if (!depth || depth > SPAN_DEPTH)
		return 0;
	s = span__at(t, depth - 1);
	/*
	 * A SPAN_NONE below the innermost span has ended; it leaves the stack with the span above
	 * it.
	 */
	if (x->path_depth != depth || x->path_ns != s->start_ns) {
		x->path = path__of(&x->scratch, t);
		x->path_ns = s->start_ns;
		x->path_depth = depth;
	}
	return x->path;
}

/*
 * The code object of a frame that is about to run. 0: unreadable, or the call only makes a
 * generator, which cProfile does not count as a call either: from 3.11 on the function's first
 * instruction makes the generator, in the function's own frame.
 */
static __always_inline u64 frame__code(struct name_buffer *b, const struct py_layout *py, u64 frame)
{
	u32 flags = 0;
	u64 code;

	if (!py->code_instructions)
		return read_u64(frame + py->frame_code);
	if (bpf_probe_read_user(b->text, py->frame_locals & (REC_NAME_MAX - 1), (const void *)frame))
		return 0;
	code = buffer_word(b, py->frame_code) & ~(u64)py->ref_mask;
	if ((u8)buffer_word(b, py->frame_owner))
		return code; /* the frame of a generator */
	bpf_probe_read_user(&flags, sizeof(flags), (const void *)(code + py->code_flags));
	return flags & CODE_GENERATES ? 0 : code;
}

/* Entry of _PyEval_EvalFrameDefault, to run the frame py_frame. */
static __always_inline void on_call(struct task_struct *task, const struct proc *proc, u32 pid, u64 frame, u64 py_frame)
{
	struct exact_thread *x = exact__enter(task);
	struct exact_call *call;
	u64 code, id, path;
	u32 primitive, depth;
	u16 *open;

	if (!x)
		return;
	calls__repair(x, frame + 1); /* a call in the very same place is dead too */
	code = frame__code(&x->names, &proc->py.layout, py_frame);
	if (!code)
		return;
	depth = x->depth;
	if (depth >= CALL_DEPTH) {
		count(CNT_STACK_FULL);
		return;
	}
	id = code__id(&x->names, proc, pid, code);
	open = &x->open[BOUND_INDEX(id, CALL_BUCKETS)];
	primitive = !*open || !calls__has(x, id);
	++*open;
	path = exact__path(x, task);
	call = call__at(x, depth);
	call->code = id;
	call->child_ns = 0;
	call->frame = frame;
	call->py_frame = py_frame;
	call->path = path;
	call->primitive = primitive;
	x->depth = depth + 1;
	call->start_ns = bpf_ktime_get_ns();
}

/* The native function with this frame returns, or has returned. */
static __always_inline void on_return(struct task_struct *task, const struct proc *proc, u32 pid, u64 frame)
{
	u64 now = bpf_ktime_get_ns();
	struct exact_thread *x = exact__enter(task);

	if (!x)
		return;
	calls__repair(x, frame);
	if (x->depth && call__at(x, x->depth - 1)->frame == frame)
		call__end(x, proc, pid, now);
	else if (!x->depth && proc->py.layout.minor < PY_MINOR_CLEARS) /* else on_clear has ended the call */
		count(CNT_CALL_UNSEEN);
}

/*
 * Is this the interpreter's own frame that checks what __init__ returns? In its code object one
 * text is both the name and the file name (CPython 3.13 Python/ceval.c: _Py_InitCleanup).
 */
static __always_inline bool is_shim(const struct py_layout *py, u64 py_frame)
{
	u64 code = read_u64(py_frame + py->frame_code) & ~(u64)py->ref_mask;
	u64 name = read_u64(code + py->code_name);

	return name && name == read_u64(code + py->code_filename);
}

/*
 * The interpreter clears a frame whose begin BPF did not see. From CPython 3.13 on that may be an
 * __init__, which a call of its class enters without leaving the interpreter's loop, whatever
 * eval_frame is: BPF counts the call, but does not time it.
 */
static __always_inline void on_unseen(struct exact_thread *x, struct task_struct *task, const struct proc *proc,
				      u32 pid, u64 now, u64 py_frame)
{
	const struct py_layout *py = &proc->py.layout;
	struct call_key key = {.pid = pid};
	u8 owner = 0;

	bpf_probe_read_user(&owner, sizeof(owner), (const void *)(py_frame + py->frame_owner));
	if (owner || is_shim(py, py_frame))
		return; /* the frame of a discarded generator, or not a call */
	if (!is_shim(py, read_u64(py_frame + py->frame_previous) & ~(u64)py->ref_mask)) {
		if (!x->depth) /* else the call was nested too deeply */
			count(CNT_CALL_UNSEEN);
		return;
	}
	if (!in_window(proc, now))
		return;
	key.code = code__id(&x->names, proc, pid, read_u64(py_frame + py->frame_code) & ~(u64)py->ref_mask);
	key.path = exact__path(x, task);
	if (key.code)
		call__account(&key, 0, 0, !calls__has(x, key.code));
}

/*
 * The interpreter clears a frame: in the native function that runs it, as that function ends; that
 * of a generator also when the generator is discarded.
 */
static __always_inline void on_clear(struct task_struct *task, const struct proc *proc, u32 pid, u64 sp, u64 py_frame)
{
	u64 now = bpf_ktime_get_ns();
	struct exact_thread *x = exact__enter(task);

	if (!x)
		return;
	calls__repair(x, sp);
	if (x->depth && call__at(x, x->depth - 1)->py_frame == py_frame)
		call__end(x, proc, pid, now);
	else
		on_unseen(x, task, proc, pid, now, py_frame);
}

#endif
