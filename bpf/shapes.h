/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The inputs of an operator, as words (enum op_word). BPF reads the argument registers, the stack,
 * and the tensors that they point to. The words form the group that distinguishes calls of one
 * operator; BPF emits each group the first time.
 */
#ifndef STEPFLAME_BPF_SHAPES_H
#define STEPFLAME_BPF_SHAPES_H

#include <linux/errno.h>

#include "bpf/maps.h"
#include "include/name_hash.h"

#define SHAPE_WORDS 256 /* words of a group; BPF cuts the rest */
#define SHAPE_DIMS  32  /* values of a tensor's sizes or of an int list */
#define LIST_MAX    32  /* tensors of a list */
#define GROUPS_MAX  16384

/*
 * A group under construction. Behind SHAPE_WORDS there is room for one more tensor, so that a start
 * below SHAPE_WORDS is all that the verifier needs to know.
 */
struct shapes {
	u32 cnt;
	u32 cut;             /* BPF left something out: OP_WORD_CUT ends the words */
	u64 call[OP_PLACES]; /* arguments by place: registers, then the stack above the return address */
	struct rec_op_group rec;
	u64 words[SHAPE_WORDS + SHAPE_DIMS + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct shapes);
} shapes SEC(".maps");

/* Groups: 1 once emitted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GROUPS_MAX);
	__type(key, u64);
	__type(value, u8);
} groups SEC(".maps");

/*
 * Offset of the sizes in a TensorImpl, which user space sets before the first probe; 0: unknown.
 * The other fields follow at fixed distances.
 */
volatile __u32 tensor_sizes = 0;

/*
 * c10/core/TensorImpl.h, the same distances from torch 1.13 to 2.15: SizesAndStrides {size_t size;
 * union {int64_t *out; int64_t in[10]}}, storage_offset_, numel_, data_type_ (a u16), device_opt_,
 * flags, key_set_.
 */
#define TENSOR_DIMS    1 /* in words of 8 bytes */
#define TENSOR_DTYPE   13
#define TENSOR_KEY_SET 14
#define TENSOR_WORDS   15
#define INLINE_DIMS    5

/*
 * DispatchKey::NestedTensor in key_set_: bit 26 from torch 2.0 to 2.3, where bit 25 is
 * SparseCsrCUDA; in other versions bit 25, where bit 26 is BackendSelect, which no tensor has.
 */
#define NESTED_KEYS (3 << 25)

/* False (counted): the target's memory is unreadable. */
static __always_inline bool shapes__read(void *to, u32 bytes, u64 from)
{
	if (!bpf_probe_read_user(to, bytes, (const void *)from))
		return true;
	count(CNT_BAD_READ);
	return false;
}

/* Index for the words of the next argument; SHAPE_WORDS: no room. */
static __always_inline u64 shapes__at(struct shapes *s)
{
	u64 i = s->cnt;

	if (i < SHAPE_WORDS)
		return BOUND_INDEX(i, SHAPE_WORDS);
	s->cut = 1;
	return SHAPE_WORDS;
}

static __always_inline void shapes__word(struct shapes *s, u64 word)
{
	u64 i = shapes__at(s);

	if (i >= SHAPE_WORDS)
		return;
	s->words[i] = word;
	s->cnt = i + 1;
}

static __always_inline void shapes__int(struct shapes *s, u64 value)
{
	u64 i = shapes__at(s);

	if (i >= SHAPE_WORDS)
		return;
	s->words[i] = OP_WORD_INT | 1ULL << 32;
	s->words[i + 1] = value;
	s->cnt = i + 2;
}

/* Adds a head word with the count, then the `cnt` values at `address`. */
__weak __noinline int shapes__values(struct shapes *s, u64 head, u64 address, u64 cnt)
{
	u64 i;

	if (!s)
		return 0;
	i = shapes__at(s);
	if (i >= SHAPE_WORDS)
		return 0;
	if (cnt > SHAPE_DIMS) {
		count(CNT_SHAPES_CUT);
		cnt = 0;
		head = OP_WORD_OPAQUE;
	}
	cnt = BOUND_INDEX(cnt, 2 * SHAPE_DIMS);
	if (cnt > SHAPE_DIMS)
		return 0;
	if (!shapes__read(&s->words[i + 1], cnt * 8, address)) {
		cnt = 0;
		head = OP_WORD_OPAQUE;
	}
	s->words[i] = head | cnt << 32;
	s->cnt = i + 1 + cnt;
	return 0;
}

__weak __noinline int shapes__tensor(struct shapes *s, u64 impl)
{
	u64 tensor[TENSOR_WORDS] = {}, head, i;

	if (!s)
		return 0;
	if (impl && !shapes__read(tensor, sizeof(tensor), impl + tensor_sizes)) {
		shapes__word(s, OP_WORD_OPAQUE);
		return 0;
	}
	if (!(u32)tensor[TENSOR_KEY_SET]) { /* undefined: it has no keys of a device, which are the low bits */
		shapes__word(s, OP_WORD_NONE);
		return 0;
	}
	if (tensor[TENSOR_KEY_SET] & NESTED_KEYS) {
		shapes__word(s, OP_WORD_OPAQUE);
		return 0;
	}
	head = OP_WORD_TENSOR | (tensor[TENSOR_DTYPE] & 0xff) << 8;
	if (tensor[0] > INLINE_DIMS) {
		shapes__values(s, head, tensor[TENSOR_DIMS], tensor[0]);
		return 0;
	}
	i = shapes__at(s);
	if (i >= SHAPE_WORDS)
		return 0;
	s->words[i] = head | tensor[0] << 32;
	for (u32 k = 0; k < INLINE_DIMS; k++)
		s->words[i + 1 + k] = tensor[TENSOR_DIMS + k];
	s->cnt = i + 1 + tensor[0];
	return 0;
}

/* Adds `cnt` tensors that lie next to each other. */
__weak __noinline int shapes__tensors(struct shapes *s, u64 address, u64 cnt)
{
	if (!s)
		return 0;
	for (u32 i = 0; i < LIST_MAX; i++) {
		u64 impl = 0;

		if (i >= cnt || s->cut)
			break;
		if (shapes__read(&impl, sizeof(impl), address + 8 * i))
			shapes__tensor(s, impl);
		else
			shapes__word(s, OP_WORD_OPAQUE);
	}
	if (cnt > LIST_MAX)
		s->cut = 1;
	return 0;
}

/* Adds an ArrayRef<Tensor>. */
static __always_inline void shapes__list(struct shapes *s, u64 address, u64 cnt)
{
	shapes__word(s, OP_WORD_TENSOR_LIST | (cnt < LIST_MAX ? cnt : LIST_MAX) << 32);
	shapes__tensors(s, address, cnt);
}

static __always_inline u64 call_word(const struct shapes *s, u32 place)
{
	return s->call[BOUND_INDEX(place, OP_PLACES)];
}

static __always_inline void shapes__argument(struct shapes *s, const struct op_def *def, const struct op_arg *arg)
{
	u64 first = call_word(s, arg->place), object[3] = {};
	/*
	 *   Tensor {TensorImpl *}
	 *   std::optional<Tensor> {TensorImpl *, bool}
	 *   c10::IListRef {Tensor *, size_t, int tag}
	 */
	u32 bytes = arg->kind == OP_ARG_TENSOR ? 8 : arg->kind == OP_ARG_OPTIONAL ? 9 : 20;
	bool is_int = arg->kind == OP_ARG_INTS || arg->kind == OP_ARG_INT || arg->kind == OP_ARG_INT_REF;

	if (is_int && !def->wants_ints) {
		shapes__word(s, OP_WORD_NONE);
		return;
	}
	switch (arg->kind) {
	case OP_ARG_TENSOR:
	case OP_ARG_OPTIONAL:
	case OP_ARG_TENSOR_LIST_REF:
		if (!shapes__read(object, bytes, first))
			shapes__word(s, OP_WORD_OPAQUE);
		else if (arg->kind != OP_ARG_TENSOR_LIST_REF)
			shapes__tensor(s, arg->kind == OP_ARG_TENSOR || object[1] & 1 ? object[0] : 0);
		else if (!(u32)object[2]) /* tag 0: the same as an ArrayRef */
			shapes__list(s, object[0], object[1]);
		else
			shapes__word(s, OP_WORD_NONE);
		break;
	case OP_ARG_TENSOR_LIST:
		shapes__list(s, first, call_word(s, arg->place2));
		break;
	case OP_ARG_INTS:
		shapes__values(s, OP_WORD_INTS, first, call_word(s, arg->place2));
		break;
	case OP_ARG_INT_REF:
		if (shapes__read(&first, sizeof(first), first))
			shapes__int(s, first);
		else
			shapes__word(s, OP_WORD_OPAQUE);
		break;
	case OP_ARG_INT:
		shapes__int(s, first);
		break;
	default:
		shapes__word(s, OP_WORD_NONE);
	}
}

static __always_inline void shapes__end_cut(struct shapes *s)
{
	u64 i = s->cnt;

	count(CNT_SHAPES_CUT);
	if (i > SHAPE_WORDS + SHAPE_DIMS)
		return;
	s->words[i] = OP_WORD_CUT;
	s->cnt = i + 1;
}

/*
 * Emits the group in s, unless BPF has emitted it before. Returns its id; 0 (counted): too many
 * groups, or the ring buffer is full. Then the next call with this group tries again.
 */
static __always_inline u64 shapes__send(struct shapes *s)
{
	u8 sent = 0, *known;
	u32 cnt, bytes;
	u64 hash;

	if (s->cut)
		shapes__end_cut(s);
	cnt = s->cnt;
	hash = name_hash__seed(0, cnt);
	if (want_stacks || want_modules) {
		hash = name_hash__add(name_hash__add(hash, s->rec.source), s->rec.source_offset);
		hash = name_hash__add(hash, s->rec.module);
	}
	for (u32 i = 0; i < SHAPE_WORDS + SHAPE_DIMS + 1; i++) {
		if (i >= cnt)
			break;
		hash = name_hash__add(hash, s->words[i]);
	}
	hash = name_hash__end(hash);
	known = bpf_map_lookup_elem(&groups, &hash);
	if (known && *known)
		return hash;
	/* -EEXIST: another thread has just claimed the row; the group is then emitted twice. */
	if (!known && bpf_map_update_elem(&groups, &hash, &sent, BPF_NOEXIST) == -E2BIG) {
		count(CNT_GROUPS_FULL);
		return 0;
	}
	bytes = sizeof(s->rec) + 8 * cnt;
	if (bytes > sizeof(s->rec) + sizeof(s->words))
		return 0;
	s->rec.hdr.type = REC_OP_GROUP;
	s->rec.hdr.size = bytes;
	s->rec.id = hash;
	s->rec.word_cnt = cnt;
	if (bpf_ringbuf_output(&ring, &s->rec, bytes, BPF_RB_NO_WAKEUP)) {
		count(CNT_RING_FULL);
		return 0;
	}
	sent = 1;
	bpf_map_update_elem(&groups, &hash, &sent, BPF_ANY);
	return hash;
}

/* The thread's buffer for a group, emptied. NULL (counted): no memory. */
static __always_inline struct shapes *shapes__of_thread(void)
{
	struct shapes *s =
		bpf_task_storage_get(&shapes, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (s) {
		s->cnt = s->cut = 0;
		s->rec.source = s->rec.module = s->rec.source_offset = 0;
	} else
		count(CNT_NO_STORAGE);
	return s;
}

/*
 * Adds the arguments of a call of `def` whose return address is at `frame`. False (counted):
 * unreadable.
 */
static __always_inline bool shapes__call(struct shapes *s, struct pt_regs *ctx, const struct op_def *def, u64 frame)
{
	s->call[0] = ctx->di;
	s->call[1] = ctx->si;
	s->call[2] = ctx->dx;
	s->call[3] = ctx->cx;
	s->call[4] = ctx->r8;
	s->call[5] = ctx->r9;
	if (def->on_stack && !shapes__read(&s->call[OP_ARG_STACK], 8 * (OP_PLACES - OP_ARG_STACK), frame + 8))
		return false;
	for (u32 i = 0; i < OP_ARGS_MAX; i++) {
		if (i >= def->arg_cnt || s->cut)
			break;
		shapes__argument(s, def, &def->args[i]);
	}
	return true;
}

/* c10::IValue {union payload; u32 tag}: the payload of a tensor is its TensorImpl *. */
#define IVALUE_WORDS  2
#define IVALUE_TENSOR 1

/*
 * Adds the arguments of a boxed call: all elements of a std::vector<IValue>. False (counted):
 * unreadable.
 */
static __always_inline bool shapes__boxed(struct shapes *s, u64 vector)
{
	u64 bounds[2] = {}, value[IVALUE_WORDS], cnt;

	if (!shapes__read(bounds, sizeof(bounds), vector))
		return false;
	cnt = (bounds[1] - bounds[0]) / sizeof(value);
	for (u32 i = 0; i < OP_ARGS_MAX; i++) {
		if (i >= cnt || s->cut)
			break;
		if (shapes__read(value, sizeof(value), bounds[0] + i * sizeof(value)) && (u32)value[1] == IVALUE_TENSOR)
			shapes__tensor(s, value[0]);
		else
			shapes__word(s, OP_WORD_NONE);
	}
	if (cnt > OP_ARGS_MAX)
		s->cut = 1;
	return true;
}

/* Group id for the inputs of a node, a std::vector<Tensor> {Tensor *begin, *end, ...}; 0: none. */
static __always_inline u64 shapes__inputs(u64 vector)
{
	struct shapes *s = shapes__of_thread();
	u64 bounds[2] = {};

	if (!s || !shapes__read(bounds, sizeof(bounds), vector))
		return 0;
	shapes__tensors(s, bounds[0], (bounds[1] - bounds[0]) / 8);
	return shapes__send(s);
}

#endif
