/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of the current thread: BPF hashes the frames to an id, and emits each function
 * and each stack the first time.
 *
 *   thread state -> frame -> code object -> codes: its id  --+
 *                   frame ...                                +--> stacks: id of all
 *
 * The program runs on that thread, so the frames cannot change meanwhile. But a sample may
 * interrupt the thread while it creates or leaves a frame: a frame without a code object ends the
 * walk and is counted.
 */
#ifndef STEPFLAME_BPF_PYSTACK_H
#define STEPFLAME_BPF_PYSTACK_H

#include "bpf/pyframe.h"

#define CODES_MAX    16384
#define CODES_CLOSE  4096 /* a power of two */
#define STACKS_MAX   32768
#define STACKS_CLOSE 4096 /* a power of two */

/*
 * Function ids, by a hash of the code object's address and of the fields that distinguish it from
 * later code objects at that address (code__id).
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CODES_MAX);
	__type(key, u64);
	__type(value, u64);
} codes __weak SEC(".maps");

/*
 * Those of the last walks, by the low bits of their hash: a look-up in `codes` costs as much as the
 * reads. Two CPUs may write an element at the same time, so its check tells whether it is whole.
 */
struct code_close {
	u64 id;
	u64 check; /* id ^ hash */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CODES_CLOSE);
	__type(key, u32);
	__type(value, struct code_close);
} codes_close __weak SEC(".maps");

/*
 * Ids of the stacks of the last walks, by the addresses of their code objects: where the process tells
 * of each code object that ends (struct proc_codes), these say what the stack is, and the objects,
 * which are mostly in no cache, need not be read. As for codes_close.
 */
struct stack_close {
	u64 id;
	u64 check; /* id ^ the hash of the addresses */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STACKS_CLOSE);
	__type(key, u32);
	__type(value, struct stack_close);
} stacks_close __weak SEC(".maps");

__u32 stacks_again __weak; /* user space changes it to have all stacks emitted again */

/* Stacks already emitted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STACKS_MAX);
	__type(key, u64);
	__type(value, u8);
} stacks __weak SEC(".maps");

/*
 * Ids of the functions that call a torch.nn.Module (code__calls_module); each installation of torch
 * has its own.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, u64);
	__type(value, u8);
} module_calls __weak SEC(".maps");

/* Scratch memory of a walk. One per CPU, for programs that only an NMI can interrupt. */
struct stack_scratch {
	u32 busy;
	u32 pad;
	struct name_buffer names;
	struct frame_page page;
	struct rec_stack stack;
	struct stack_frame frames[STACK_FRAMES_MAX];
};

/* Is this Module._call_impl or Module._wrapped_call_impl of torch/nn/modules/module.py? */
__weak __noinline int code__calls_module(const struct py_layout *py, u64 code)
{
	u64 head[2], tail[2];

	if (!py || !py__head(py, read_u64(code + py->code_name), head))
		return false;
	if (!HEAD_IS(head, "_wrapped_call_im") && !HEAD_IS(head, "_call_impl\0\0\0\0\0\0"))
		return false;
	return py__tail(py, read_u64(code + py->code_filename), tail) && TAIL_IS(tail, "odules/module.py");
}

/* What BPF emits about a function. */
struct code_head {
	u64 id, file, name;
	u64 table; /* address of the line table, a bytes object */
	u64 table_bytes;
	u32 pid, first_line;
};

#define CODE_TABLE_SMALL 512
#define CODE_TABLE_LARGE 4096
#define CODE_TABLE_HUGE  65536 /* a module's own code */

/*
 * Emits a function, with its line table if that has at most `room` bytes. User space reads a longer
 * table by its address, if it still can.
 */
static __always_inline bool code__submit(const struct code_head *head, u32 data, u32 room)
{
	struct rec_code *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec) + room, 0);
	s32 bytes = head->table_bytes;

	if (!rec) {
		count(CNT_RING_FULL);
		return false;
	}
	if (head->table_bytes > room || bpf_probe_read_user(rec + 1, head->table_bytes & (2 * CODE_TABLE_HUGE - 1),
							    (const void *)(head->table + data)))
		bytes = -1;
	rec->hdr.type = REC_CODE;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec) + room;
	rec->id = head->id;
	rec->file = head->file;
	rec->name = head->name;
	rec->line_table = head->table;
	rec->pid = head->pid;
	rec->first_line = head->first_line;
	rec->line_cnt = 0;
	rec->table_bytes = bytes;
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	return true;
}

/*
 * Emits a function. Returns its id; 0: its names are unreadable, or the ring buffer is full (both
 * counted).
 */
__weak __noinline u64 code__send(struct name_buffer *b, const struct py_layout *py, u32 pid, u64 code)
{
	struct code_head head = {.pid = pid};
	u64 file = 0, name = 0, id;
	struct py_text text;
	u32 first_line = 0;
	bool sent;

	if (!b || !py)
		return 0;
	bpf_probe_read_user(&first_line, sizeof(first_line), (const void *)(code + py->code_firstlineno));
	if (!py__text(py, read_u64(code + py->code_filename), &text))
		file = name__intern(b, text.address, text.bytes, text.encoding);
	if (!py__text(py, read_u64(code + (py->code_qualname ? py->code_qualname : py->code_name)), &text))
		name = name__intern(b, text.address, text.bytes, text.encoding);
	if (!file || !name)
		return 0;
	id = name_hash__end(name_hash__add(name_hash__add(file, name), first_line));
	head.id = id;
	head.file = file;
	head.name = name;
	head.first_line = first_line;
	head.table = read_u64(code + py->code_linetable);
	head.table_bytes = head.table ? read_u64(head.table + py->bytes_length) : 0;
	if (head.table_bytes <= CODE_TABLE_SMALL)
		sent = code__submit(&head, py->bytes_data, CODE_TABLE_SMALL);
	else if (head.table_bytes <= CODE_TABLE_LARGE)
		sent = code__submit(&head, py->bytes_data, CODE_TABLE_LARGE);
	else if (head.table_bytes <= CODE_TABLE_HUGE)
		sent = code__submit(&head, py->bytes_data, CODE_TABLE_HUGE);
	else
		sent = code__submit(&head, 0, 0);
	return sent ? id : 0;
}

/*
 * The id of the code that the interpreter itself puts between the call of a class and its __init__
 * (3.12 and later: _Py_InitCleanup, CPython Objects/codeobject.c). Its code object is like any
 * other, except that it has no lines, and that one text is both its file and its name.
 */
#define CODE_SHIM (~0ULL)

static __always_inline bool code__is_shim(const struct py_layout *py, const struct name_buffer *b)
{
	return buffer_word(b, py->code_filename) == buffer_word(b, py->code_name) &&
	       !(u32)buffer_word(b, py->code_firstlineno);
}

/*
 * The key of a code object in `codes`; 0: not a code object, or unreadable; CODE_SHIM: see above.
 *
 * It contains the pid, since two forks of one process may load different code at the same address.
 * Where code objects end unseen, a later one at this address should have another key: so it contains
 * three objects that only this one uses, its line, and the length and the hash of its name, since the
 * objects' addresses may be those of the one before, too.
 */
__weak __noinline u64 code__key(struct name_buffer *b, const struct proc *proc, u32 pid, u64 code)
{
	const struct py_layout *py;
	u64 key, name[2] = {};

	if (!b || !proc)
		return 0;
	py = &proc->py.layout;
	if (bpf_probe_read_user(b->text, (py->code_linetable + 8) & (REC_NAME_MAX - 1), (const void *)code) ||
	    buffer_word(b, py->object_type) != proc->py.code_type)
		return 0;
	if (code__is_shim(py, b))
		return CODE_SHIM;
	key = name_hash__add(name_hash__add(code, pid), buffer_word(b, py->code_filename));
	key = name_hash__add(key, buffer_word(b, py->code_name));
	key = name_hash__add(key, buffer_word(b, py->code_linetable));
	key = name_hash__add(key, (u32)buffer_word(b, py->code_firstlineno));
	if (proc->codes.told_since_ns)
		return name_hash__end(name_hash__add(key, proc->codes.told_since_ns));
	bpf_probe_read_user(name, sizeof(name), (const void *)(buffer_word(b, py->code_name) + py->str_length));
	return name_hash__end(name_hash__add(name_hash__add(key, name[0]), name[1]));
}

/* The function id of a key; 0: BPF has not emitted it, or not lately. */
__weak __noinline u64 code__known(u64 key)
{
	u32 slot = BOUND_INDEX(key, CODES_CLOSE);
	struct code_close *close = bpf_map_lookup_elem(&codes_close, &slot);
	u64 id, *known;

	if (!close)
		return 0;
	id = close->id;
	if (id && (id ^ close->check) == key)
		return id;
	known = bpf_map_lookup_elem(&codes, &key);
	if (!known)
		return 0;
	id = *known;
	close->id = id;
	close->check = id ^ key;
	return id;
}

/* BPF has emitted the function. */
__weak __noinline int code__remember(const struct py_layout *py, u64 code, u64 key, u64 id)
{
	u8 one = 1;

	if (want_modules && py && code__calls_module(py, code))
		bpf_map_update_elem(&module_calls, &id, &one, BPF_ANY);
	bpf_map_update_elem(&codes, &key, &id, BPF_ANY);
	return 0;
}

/* A code object ends. False: it is unreadable. */
__weak __noinline int code__forget(struct name_buffer *b, const struct proc *proc, u32 pid, u64 code)
{
	u64 key = code__key(b, proc, pid, code);
	u32 slot = BOUND_INDEX(key, CODES_CLOSE);
	struct code_close *close = bpf_map_lookup_elem(&codes_close, &slot);

	if (close)
		close->id = 0;
	bpf_map_delete_elem(&codes, &key);
	return key != 0;
}

/* The id of the function with this code object; 0 and CODE_SHIM: as for code__key. */
static __always_inline u64 code__id(struct name_buffer *b, const struct proc *proc, u32 pid, u64 code)
{
	u64 key = code__key(b, proc, pid, code), id;

	if (!key || key == CODE_SHIM)
		return key;
	id = code__known(key);
	if (id)
		return id;
	id = code__send(b, &proc->py.layout, pid, code);
	if (id)
		code__remember(&proc->py.layout, code, key, id);
	return id;
}

struct stack_walk {
	struct stack_scratch *scratch;
	const struct proc *proc;
	u64 frame, hash;
	u32 pid, cnt;
	u32 cut; /* 1 + the counter that says why the walk ended early; 0: it did not */
};

/* Adds one frame to the walk, with the address of its code object. Returns 1 to end the walk. */
static long stack__step(u32 i, struct stack_walk *walk)
{
	struct stack_scratch *scratch = walk->scratch;
	struct stack_frame *slot;
	struct py_frame frame = {};

	if (!walk->frame)
		return 1;
	if (!py_frame__read_paged(&scratch->page, &walk->proc->py.layout, walk->frame, &frame)) {
		walk->cut = CNT_STACK_LOST + 1;
		return 1;
	}
	walk->frame = frame.previous;
	if (!frame.code)
		return 0;
	if (walk->cnt >= STACK_FRAMES_MAX) {
		walk->cut = CNT_STACK_CUT + 1;
		return 1;
	}
	slot = &scratch->frames[BOUND_INDEX(walk->cnt, STACK_FRAMES_MAX)];
	slot->code = frame.code;
	slot->offset = frame.offset;
	slot->pad = 0;
	walk->hash = name_hash__add(name_hash__add(walk->hash, frame.code), frame.offset);
	walk->cnt++;
	return 0;
}

/* Replaces the address of a frame's code object by the function's id. Returns 1 to end the stack there. */
static long stack__name(u32 i, struct stack_walk *walk)
{
	struct stack_scratch *scratch = walk->scratch;
	struct stack_frame *from = &scratch->frames[BOUND_INDEX(i, STACK_FRAMES_MAX)], *to;
	u64 code = code__id(&scratch->names, walk->proc, walk->pid, from->code);

	if (!code) {
		walk->cut = CNT_STACK_LOST + 1;
		return 1;
	}
	if (code == CODE_SHIM)
		return 0;
	to = &scratch->frames[BOUND_INDEX(walk->cnt, STACK_FRAMES_MAX)];
	to->code = code;
	to->offset = from->offset;
	walk->hash = name_hash__add(name_hash__add(walk->hash, code), to->offset);
	walk->cnt++;
	return 0;
}

/*
 * Emits a stack, unless BPF has emitted it before. Returns 0 on failure (a full ring buffer is
 * counted).
 */
__weak __noinline int stack__send(struct stack_scratch *scratch, u64 id)
{
	u32 size, cnt;
	u8 one = 1;

	if (!scratch)
		return 0;
	if (bpf_map_lookup_elem(&stacks, &id))
		return 1;
	cnt = scratch->stack.frame_cnt;
	if (cnt > STACK_FRAMES_MAX)
		return 0;
	size = sizeof(struct rec_stack) + cnt * sizeof(struct stack_frame);
	if (size > sizeof(struct rec_stack) + sizeof(scratch->frames))
		return 0;
	scratch->stack.hdr.type = REC_STACK;
	scratch->stack.hdr.flags = 0;
	scratch->stack.hdr.size = size;
	scratch->stack.id = id;
	if (bpf_ringbuf_output(&ring, &scratch->stack, size, BPF_RB_NO_WAKEUP)) {
		count(CNT_RING_FULL);
		return 0;
	}
	bpf_map_update_elem(&stacks, &id, &one, BPF_ANY);
	return 1;
}

/* A process without Python frames that BPF can read has no stack to walk, and none to lose. */
static __always_inline bool stack__has_python(const struct proc *proc)
{
	return proc->py.layout.minor && proc->py.code_type;
}

static __always_inline struct stack_close *stack__close(u64 hash)
{
	u32 slot = BOUND_INDEX(hash, STACKS_CLOSE);

	return bpf_map_lookup_elem(&stacks_close, &slot);
}

/*
 * The id of the current thread's Python stack, which BPF emits the first time; 0: it has no Python
 * frames. The id of a stack that is lost (counted) has no record.
 */
static __always_inline u64 stack__of(struct stack_scratch *scratch, const struct proc *proc, u32 pid)
{
	struct stack_walk walk = {.scratch = scratch, .proc = proc, .pid = pid};
	u64 told = proc->codes.told_since_ns, addresses, known;
	struct stack_close *close;
	u32 cnt;

	if (!stack__has_python(proc))
		return 0;
	if (!py__own_frame(&proc->py, &walk.frame)) {
		walk.frame = 0;
		walk.cut = CNT_STACK_LOST + 1;
	}
	scratch->page.bytes = 0;
	walk.hash = name_hash__add(name_hash__add(name_hash__seed(0, pid), told), proc->codes.ended);
	walk.hash = name_hash__add(walk.hash, stacks_again);
	/* Half of the frames may be C's. */
	bpf_loop(2 * STACK_FRAMES_MAX, stack__step, &walk, 0);
	if (walk.frame && !walk.cut)
		walk.cut = CNT_STACK_CUT + 1;
	cnt = walk.cnt;
	if (!cnt && !walk.cut)
		return 0;
	addresses = walk.hash;
	close = told && !walk.cut ? stack__close(addresses) : NULL;
	known = close ? close->id : 0;
	if (known && (known ^ close->check) == addresses)
		return known;
	walk.cnt = 0;
	walk.hash = name_hash__seed(0, 0);
	bpf_loop(cnt < STACK_FRAMES_MAX ? cnt : STACK_FRAMES_MAX, stack__name, &walk, 0);
	if (walk.cut)
		count(walk.cut - 1);
	if (!walk.cnt && !walk.cut)
		return 0;
	scratch->stack.frame_cnt = walk.cnt;
	scratch->stack.cut = walk.cut != 0;
	walk.hash = name_hash__end(name_hash__add(walk.hash, walk.cut));
	if (walk.cnt && stack__send(scratch, walk.hash) && close && !walk.cut) {
		close->id = walk.hash;
		close->check = walk.hash ^ addresses;
	}
	return walk.hash;
}

#endif
