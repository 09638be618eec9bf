// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Operators and autograd nodes. For entries there is one program for each way to find the name; all
 * exits share one program, so that user space can arm exits first and disarm them last; one more
 * program sees allocations. In: a uprobe whose cookie (include/ops.h) says which operator. Out:
 * rows in op_rows, spans in the ring buffer.
 *
 * These programs run at every operator call of the target, so they handle only the usual case.
 * Spans that an exception left open, or a recording that starts in the middle of a call, take the
 * slow path through span.h.
 */
#include "bpf/hit.h"
#include "bpf/origin.h"
#include "bpf/sequence.h"
#include "bpf/shapes.h"
#include "bpf/span.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OP_NODES_MAX);
	__type(key, struct node_class);
	__type(value, struct node_val);
} node_classes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OPS_MAX);
	__type(key, u32);
	__type(value, struct op_def);
} op_defs SEC(".maps");

#define OP_SLOT(cookie) COOKIE_FLAGS(cookie)
#define ALLOCATIONS_MAX 65536

/* Counts a hit and returns its process. NULL: the probe is not ours. */
static __always_inline struct op_proc *op__hit(struct pt_regs *ctx, u64 cookie)
{
	u32 slot = OP_SLOT(cookie);
	struct op_proc *p = cookie != COOKIE_NONE ? bpf_map_lookup_elem(&op_procs, &slot) : NULL;

	if (!p)
		REFUSE_PRIVATE_STACK(ctx);
	else if (p->counting)
		__sync_fetch_and_add(&p->hits, 1);
	return p;
}

/*
 * Closes the spans whose native frames are gone. While the frame of the innermost span is alive, so
 * are all others: they lie above it on the stack.
 */
static __always_inline void op__repair(struct thread *t, u64 sp)
{
	const struct span *top;

	if (!t->framed)
		return;
	top = span__at(t, t->depth - 1);
	if (!top->frame || top->frame < sp)
		span__repair(t, sp);
}

/*
 * The current thread at the entry of a function, with its span stack repaired. NULL: p is NULL, or
 * no memory for the thread (counted).
 */
static __always_inline struct thread *op__thread(const struct op_proc *p, u64 frame)
{
	struct thread *t = p ? thread__of(bpf_get_current_task_btf()) : NULL;

	if (t)
		op__repair(t, frame + 1);
	return t;
}

static __always_inline u64 op__action(struct thread *t, const struct op_proc *p, u32 kind)
{
	if (!t->depth)
		return kind == SPAN_OP ? 0 : p->backward_action;
	return span__action(t, t->depth);
}

static __always_inline struct span *op__begin(struct thread *t, const struct op_proc *p, u32 kind, u64 token, u64 name,
					      u64 merged, u64 frame)
{
	u32 depth = t->depth;
	struct span *s;

	if (depth >= SPAN_DEPTH) {
		count(CNT_STACK_FULL);
		return NULL;
	}
	s = span__at(t, depth);
	s->frame = frame;
	s->token = token;
	s->name = name;
	s->action = op__action(t, p, kind);
	s->child_ns = 0;
	s->op_child_ns = 0;
	s->kind = kind;
	s->phase = t->phase;
	s->outer = span__outer(t, depth);
	s->op.merged = merged;
	s->op.group = 0;
	s->op.inside.cnt = 0;
	s->op.sequence = -1;
	__builtin_memset(s->op.self_bytes, 0, sizeof(s->op.self_bytes) + sizeof(s->op.child_bytes));
	t->depth = depth + 1;
	t->framed++;
	return s;
}

/* Does BPF distinguish the calls of one operator now, by shapes, source line or module? */
static __always_inline bool wants_groups(const struct op_proc *p)
{
	return (want_shapes || want_stacks || want_modules) && p->open;
}

/*
 * Adds the origin in Python to the group in s, and emits the group. Returns its id; 0: none
 * (counted).
 */
static __always_inline u64 op__group(struct thread *t, const struct op_proc *p, struct shapes *s)
{
	if (want_stacks || want_modules)
		origin__find(t, p->pid, &s->rec);
	return shapes__send(s);
}

SEC("uprobe.multi")
int op_enter(struct pt_regs *ctx)
{
	u64 cookie = probe__cookie(ctx), frame = ctx->sp + COOKIE_DEPTH(cookie);
	u32 index = COOKIE_FN(cookie);
	struct op_def *def = bpf_map_lookup_elem(&op_defs, &index);
	struct op_proc *p = op__hit(ctx, cookie);
	struct thread *t = op__thread(p, frame);
	struct span *s;

	if (!t || !def)
		return 0;
	s = op__begin(t, p, SPAN_OP, index, def->name, def->merged, frame);
	if (!s)
		return 0;
	if (wants_groups(p)) {
		struct shapes *shapes = shapes__of_thread();

		if (shapes && (!want_shapes || shapes__call(shapes, ctx, def, frame)))
			s->op.group = op__group(t, p, shapes);
	}
	if (want_timeline)
		s->op.sequence = sequence__next(t, p);
	s->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* Offset of PyTypeObject.tp_name in CPython, without longer_heads. */
#define TYPE_NAME 24

/* Name id of a NUL-terminated text in the target; 0: unreadable (counted). */
static __always_inline u64 text__name(struct thread *t, u64 text)
{
	u64 name = name__read_text(&t->names, text);

	if (name)
		name__send(&t->names, name);
	return name;
}

/* Name id of a Python class; 0: unreadable (counted). */
static __always_inline u64 class__name(struct thread *t, const struct op_proc *p, u64 class)
{
	u64 text = 0;

	bpf_probe_read_user(&text, sizeof(text), (const void *)(class + TYPE_NAME + p->longer_heads));
	return text__name(t, text);
}

/*
 * Name id of an autograd node: of its C++ class, or of its Python class if Python defines the node.
 * 0: unknown (counted).
 */
static __always_inline u64 node__name(struct thread *t, const struct op_proc *p, u32 slot, u64 node)
{
	struct node_class class = {.slot = slot};
	struct node_val *val = NULL;
	u64 object, type;

	if (!bpf_probe_read_user(&class.vtable, sizeof(class.vtable), (const void *)node))
		val = bpf_map_lookup_elem(&node_classes, &class);
	if (val && val->name)
		return val->name;
	if (val && val->object && !bpf_probe_read_user(&object, sizeof(object), (const void *)(node + val->object)) &&
	    !bpf_probe_read_user(&type, sizeof(type), (const void *)(object + OBJECT_TYPE + p->longer_heads)))
		return class__name(t, p, type);
	count(CNT_NAME_LOST);
	return 0;
}

static __always_inline u64 register_value(const struct pt_regs *ctx, u32 place)
{
	return place == 0 ? LOAD_HERE(ctx->di) : place == 1 ? LOAD_HERE(ctx->si) : LOAD_HERE(ctx->dx);
}

/*
 * An operator that the target calls through the boxed dispatcher; def: the address of its
 * c10::Dispatcher::OperatorDef.
 */
struct handle {
	u64 slot;
	u64 def;
};

struct handle_names {
	u64 name, merged;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OPS_MAX);
	__type(key, struct handle);
	__type(value, struct handle_names);
} handles SEC(".maps");

/*
 * Reads a std::string of the target: {char *data; size_t size; ...}; `old`: before the C++11 ABI it
 * is a char * with the size 24 bytes before the text. Returns 0, or -1: unreadable.
 */
static __always_inline int read_string(u64 at, bool old, u64 string[2])
{
	if (bpf_probe_read_user(string, old ? 8 : 16, (const void *)at))
		return -1;
	return old ? bpf_probe_read_user(&string[1], 8, (const void *)(string[0] - 24)) : 0;
}

/*
 * Is the name just read that of an operator that torch hides from profilers
 * (ATen/core/dispatch/ObservedOperators.cpp)? Among these, profiler::_record_function_enter_new and
 * _exit must not become spans: the labels that they begin and end do not nest with them.
 */
static __always_inline bool is_unobserved(const struct thread *t)
{
	const u64 *word = (const u64 *)t->names.text;

	if (word[0] == WORD8("profiler"))
		return word[1] == WORD8("::_recor");
	if (word[0] == WORD8("aten::is"))
		return word[1] == WORD8("_leaf\0\0\0") || (word[1] == WORD8("_complex") && !word[2]);
	return (word[0] == WORD8("aten::si") && word[1] == WORD8("ze\0\0\0\0\0\0")) ||
	       (word[0] == WORD8("aten::ou") && word[1] == WORD8("tput_nr\0")) ||
	       (word[0] == WORD8("aten::_v") && word[1] == WORD8("ersion\0\0"));
}

/*
 * Reads the names of an operator. OperatorDef begins with an OperatorEntry, which begins with an
 * OperatorName {std::string name, overload_name}. names->name 0: no span for this operator. False
 * (counted): unreadable.
 */
static __always_inline bool handle__read(struct thread *t, const struct op_proc *p, u64 def, struct handle_names *names)
{
	u64 name[2] = {}, overload[2] = {};

	if (read_string(def, p->old_strings, name) ||
	    read_string(def + (p->old_strings ? 8 : 32), p->old_strings, overload)) {
		count(CNT_NAME_LOST);
		return false;
	}
	names->name = names->merged = name__read(&t->names, name[0], name[1], NAME_UTF8);
	if (names->name && is_unobserved(t)) {
		names->name = 0;
		return true;
	}
	if (names->name && overload[1])
		names->name = name__join(&t->names, overload[0], overload[1]);
	if (names->name)
		name__send(&t->names, names->name);
	return names->name;
}

/*
 * c10::Dispatcher::callBoxed(OperatorHandle const &, ...): the cookie's index says which register
 * holds the handle.
 */
SEC("uprobe.multi")
int boxed_enter(struct pt_regs *ctx)
{
	u64 cookie = probe__cookie(ctx), frame = ctx->sp + COOKIE_DEPTH(cookie);
	struct op_proc *p = op__hit(ctx, cookie);
	struct thread *t = op__thread(p, frame);
	struct handle handle = {.slot = OP_SLOT(cookie)};
	struct handle_names names = {}, *known;
	struct span *s;

	if (!t)
		return 0;
	bpf_probe_read_user(&handle.def, sizeof(handle.def), (const void *)register_value(ctx, COOKIE_FN(cookie)));
	known = bpf_map_lookup_elem(&handles, &handle);
	if (known)
		names = *known;
	else if (!handle__read(t, p, handle.def, &names))
		return 0;
	else
		bpf_map_update_elem(&handles, &handle, &names, BPF_ANY);
	if (!names.name)
		return 0;
	s = op__begin(t, p, SPAN_OP, handle.def, names.name, names.merged, frame);
	if (!s)
		return 0;
	if (wants_groups(p)) {
		struct shapes *shapes = shapes__of_thread();

		/* the argument after the handle is the stack */
		if (shapes && (!want_shapes || shapes__boxed(shapes, register_value(ctx, COOKIE_FN(cookie) + 1))))
			s->op.group = op__group(t, p, shapes);
	}
	if (want_timeline)
		s->op.sequence = sequence__next(t, p);
	s->start_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline u32 node__kind(u32 event)
{
	return event == OP_EVALUATE ? SPAN_EVALUATE : event == OP_NODE ? SPAN_NODE : SPAN_OP;
}

/*
 * Engine::evaluate_function, Node::operator(), the apply of a torch.autograd.Function, and labels
 * of torch.compile. The cookie's index says which register holds the node, the class or the text.
 */
SEC("uprobe.multi")
int node_enter(struct pt_regs *ctx)
{
	u64 cookie = probe__cookie(ctx), frame = ctx->sp + COOKIE_DEPTH(cookie), name, subject;
	u32 event = COOKIE_EVENT(cookie), kind = node__kind(event);
	struct op_proc *p = op__hit(ctx, cookie);
	struct thread *t = op__thread(p, frame);
	struct span *s;

	if (!t)
		return 0;
	subject = register_value(ctx, COOKIE_FN(cookie));
	if (event == OP_TEXT)
		name = text__name(t, subject);
	else
		name = event == OP_PYTHON ? class__name(t, p, subject) : node__name(t, p, OP_SLOT(cookie), subject);
	if (!name)
		return 0;
	s = op__begin(t, p, kind, name, name, kind == SPAN_OP ? name : name ^ kind, frame);
	if (!s)
		return 0;
	if (want_shapes && p->open && event == OP_NODE)
		s->op.group = shapes__inputs(ctx->dx);
	if (want_timeline && event != OP_TEXT) /* torch.profiler has none for OP_TEXT either */
		s->op.sequence = kind == SPAN_OP ? sequence__next(t, p) : sequence__of_node(p, subject);
	s->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* An exit. In the usual case it ends the innermost span. */
SEC("uprobe.multi")
int op_exit(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns(), cookie = probe__cookie(ctx), frame = ctx->sp + COOKIE_DEPTH(cookie);
	struct op_proc *p = op__hit(ctx, cookie);
	struct thread *t = p ? thread__of(bpf_get_current_task_btf()) : NULL;
	struct span *s;
	u32 depth;

	if (!t)
		return 0;
	t->now_ns = now;
	depth = t->depth;
	s = span__at(t, depth - 1);
	if (depth && (s->frame != frame || !is_operator(s->kind))) {
		/* Where an exception leaves a function, the depth of its frame may be unknown. */
		if (COOKIE_DEPTH(cookie) == COOKIE_DEPTH_UNKNOWN)
			depth = span__unwind_out(t, ctx->sp,
						 COOKIE_EVENT(cookie) == OP_CALL ? COOKIE_FN(cookie) : TOKEN_ANY);
		else
			depth = span__unwind_to(t, frame);
		s = span__at(t, depth - 1);
	}
	if (!depth) {
		/*
		 * Excludes begins that found the stack full, which are counted already, and boxed
		 * operators, some of which begin no span.
		 */
		if (p->open && t->depth < SPAN_DEPTH && COOKIE_EVENT(cookie) != OP_BOXED)
			count(CNT_OPEN_AT_START);
		return 0;
	}
	t->depth = depth - 1;
	if (t->gap_depth >= depth) /* a landmark ended inside: the candidate forward goes on outside this operator */
		t->gap_depth = depth - 1;
	t->framed--;
	op__account(t, p, s, depth - 1);
	return 0;
}

/*
 * Memory that was allocated in a window and not freed yet. In the next window its address may
 * belong to another allocation.
 */
struct allocation {
	u32 slot;
	u32 window;
	u64 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ALLOCATIONS_MAX);
	__type(key, struct allocation);
	__type(value, u64);
} allocations SEC(".maps");

/* The innermost open operator, node or label of this thread; NULL: none. */
static __always_inline struct span *op__innermost(struct thread *t)
{
	u32 i = span__innermost(t, OP_ROW_KINDS, 0);

	return i ? span__at(t, i - 1) : NULL;
}

static __always_inline void memory__add(struct op_proc *p, u64 sp, u32 device, s64 bytes)
{
	static const u32 index = OP_DEF_MEMORY;
	struct op_def *def = bpf_map_lookup_elem(&op_defs, &index);
	struct thread *t = thread__of(bpf_get_current_task_btf());
	struct span outside = {.kind = SPAN_OP};
	struct span *s;

	if (!t || !def)
		return;
	op__repair(t, sp);
	s = op__innermost(t);
	if (s) {
		s->op.self_bytes[device] += bytes;
		return;
	}
	outside.name = def->name;
	outside.op.self_bytes[device] = bytes;
	op_row__add(p->pid, &outside, 0, 0);
}

/*
 * c10::ProfiledCPUMemoryReporter::New(this, address, bytes) and ::Delete(this, address), which the
 * CPU allocator calls with or without a profiler; and c10::reportMemoryUsageToProfiler(address,
 * bytes, allocated, reserved, device), which the other allocators call. As in torch.profiler,
 * freeing memory that was allocated before the window does not count.
 */
SEC("uprobe.multi")
int op_memory(struct pt_regs *ctx)
{
	u64 cookie = probe__cookie(ctx), *known, bytes;
	struct op_proc *p = op__hit(ctx, cookie);
	struct allocation allocation = {.slot = OP_SLOT(cookie), .address = ctx->si};

	if (!p || !p->open)
		return 0;
	allocation.window = p->index;
	bytes = ctx->dx;
	switch (COOKIE_EVENT(cookie)) {
	case OP_ALLOCATE:
		if (!bytes)
			return 0;
		bpf_map_update_elem(&allocations, &allocation, &bytes, BPF_ANY);
		memory__add(p, ctx->sp, OP_MEMORY_CPU, bytes);
		break;
	case OP_FREE:
		known = bpf_map_lookup_elem(&allocations, &allocation);
		if (!known)
			return 0;
		bytes = *known;
		bpf_map_delete_elem(&allocations, &allocation);
		memory__add(p, ctx->sp, OP_MEMORY_CPU, -bytes);
		break;
	case OP_REPORT:
		if (ctx->r8 & 0xff) /* c10::DeviceType, 0: the CPU */
			memory__add(p, ctx->sp, OP_MEMORY_DEVICE, ctx->si);
		break;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
