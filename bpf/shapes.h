/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What an operator was given, as words (enum op_word): read from the arguments' registers and stack, and the tensors behind them. The words
 * make the group that tells calls of one operator apart; a group is sent to user space when it is first met.
 */
#ifndef STEPFLAME_SHAPES_H
#define STEPFLAME_SHAPES_H

#include <linux/errno.h>

#include "maps.h"
#include "name_hash.h"

#define SHAPE_WORDS 256 /* of a group, at most: what follows is cut */
#define SHAPE_DIMS  32  /* of a tensor or an int list, at most */
#define LIST_MAX    32  /* tensors of a list looked at */
#define GROUPS_MAX  16384

/* Room behind the last word for what one tensor may add, so that a bounded start is bound enough for the verifier. */
struct shapes {
	u32 cnt;
	u32 pad;
	u64 call[OP_PLACES]; /* what the call was given, by place: registers, then the stack above the return address */
	struct rec_op_group rec;
	u64 words[SHAPE_WORDS + SHAPE_DIMS + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct shapes);
} shapes SEC(".maps");

/* Groups that user space has been sent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GROUPS_MAX);
	__type(key, u64);
	__type(value, u8);
} groups SEC(".maps");

/* Set by user space before the first probe: where a TensorImpl has its sizes; the rest follows at fixed distances. 0: not known. */
volatile __u32 tensor_sizes = 0;

/*
 * c10/core/TensorImpl.h, the same distances from torch 1.13 to 2.15: SizesAndStrides {size_t size; union {int64_t *out; int64_t in[10]}},
 * storage_offset_, numel_, data_type_ (a u16), device_opt_, flags, key_set_.
 */
#define TENSOR_DTYPE   104
#define TENSOR_KEY_SET 112
#define INLINE_DIMS    5

/*
 * DispatchKey::NestedTensor in key_set_: bit 26 from 2.0 to 2.3, where 25 is SparseCsrCUDA, else 25, where 26 is BackendSelect, which no tensor has.
 */
#define NESTED_KEYS (3 << 25)

static __always_inline void shapes__word(struct shapes *s, u64 word)
{
	u64 i = s->cnt;

	if (i >= SHAPE_WORDS)
		return;
	s->words[BOUND_INDEX(i, SHAPE_WORDS)] = word;
	s->cnt = i + 1;
}

/* `cnt` values at `address`, behind a head that says so. */
__weak __noinline int shapes__values(struct shapes *s, u64 head, u64 address, u64 cnt)
{
	u64 i;

	if (!s)
		return 0;
	i = s->cnt;
	if (i >= SHAPE_WORDS)
		return 0;
	i = BOUND_INDEX(i, SHAPE_WORDS);
	cnt = cnt < SHAPE_DIMS ? cnt : SHAPE_DIMS;
	cnt = BOUND_INDEX(cnt, 2 * SHAPE_DIMS);
	if (cnt > SHAPE_DIMS)
		return 0;
	if (bpf_probe_read_user(&s->words[i + 1], cnt * 8, (const void *)address)) {
		count(CNT_BAD_READ);
		cnt = 0;
		head = OP_WORD_OPAQUE;
	}
	s->words[i] = head | cnt << 32;
	s->cnt = i + 1 + cnt;
	return 0;
}

__weak __noinline int shapes__tensor(struct shapes *s, u64 impl)
{
	u64 sizes, cnt = 0, key_set = 0, at;
	u16 dtype = 0;

	if (!s)
		return 0;
	sizes = impl + tensor_sizes;
	if (!impl || bpf_probe_read_user(&cnt, sizeof(cnt), (const void *)sizes) ||
	    bpf_probe_read_user(&key_set, sizeof(key_set), (const void *)(sizes + TENSOR_KEY_SET)) || !(u32)key_set) {
		shapes__word(s, OP_WORD_NONE); /* an undefined tensor has no device's keys, which are the lower ones */
		return 0;
	}
	if (key_set & NESTED_KEYS) {
		shapes__word(s, OP_WORD_OPAQUE);
		return 0;
	}
	bpf_probe_read_user(&dtype, sizeof(dtype), (const void *)(sizes + TENSOR_DTYPE));
	at = sizes + 8;
	if (cnt > INLINE_DIMS && bpf_probe_read_user(&at, sizeof(at), (const void *)at))
		at = 0;
	shapes__values(s, OP_WORD_TENSOR | (u64)(dtype & 0xff) << 8, at, cnt);
	return 0;
}

/* Tensors that lie one behind the other. */
__weak __noinline int shapes__tensors(struct shapes *s, u64 address, u64 cnt)
{
	if (!s)
		return 0;
	for (u32 i = 0; i < LIST_MAX; i++) {
		u64 impl = 0;

		if (i >= cnt)
			break;
		bpf_probe_read_user(&impl, sizeof(impl), (const void *)(address + 8 * i));
		shapes__tensor(s, impl);
	}
	if (cnt > LIST_MAX)
		shapes__word(s, OP_WORD_CUT);
	return 0;
}

/* An ArrayRef<Tensor>. */
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
	u64 first = call_word(s, arg->place), second[3] = {};

	switch (arg->kind) {
	case OP_ARG_TENSOR:
	case OP_ARG_OPTIONAL:
		/* Tensor {TensorImpl *}; std::optional<Tensor> {TensorImpl *, bool} */
		bpf_probe_read_user(second, arg->kind == OP_ARG_TENSOR ? 8 : 9, (const void *)first);
		shapes__tensor(s, arg->kind == OP_ARG_TENSOR || (second[1] & 1) ? second[0] : 0);
		break;
	case OP_ARG_TENSOR_LIST:
		shapes__list(s, first, call_word(s, arg->place2));
		break;
	case OP_ARG_TENSOR_LIST_REF:
		/* c10::IListRef {Tensor *, size_t, int tag}; tag 0: as an ArrayRef */
		bpf_probe_read_user(second, 20, (const void *)first);
		if ((u32)second[2])
			shapes__word(s, OP_WORD_NONE);
		else
			shapes__list(s, second[0], second[1]);
		break;
	case OP_ARG_INTS:
		if (def->wants_ints)
			shapes__values(s, OP_WORD_INTS, first, call_word(s, arg->place2));
		else
			shapes__word(s, OP_WORD_NONE);
		break;
	case OP_ARG_INT_REF:
		bpf_probe_read_user(&first, sizeof(first), (const void *)first);
		/* fall through */
	case OP_ARG_INT:
		if (def->wants_ints) {
			shapes__word(s, OP_WORD_INT | 1ULL << 32);
			shapes__word(s, first);
		} else {
			shapes__word(s, OP_WORD_NONE);
		}
		break;
	default:
		shapes__word(s, OP_WORD_NONE);
	}
}

/* Sends the group whose words are in s, unless it was sent before. Returns its id, 0 when it could not be sent (counted). */
static __always_inline u64 shapes__send(struct shapes *s)
{
	u64 hash = name_hash__seed(0, s->cnt);
	u32 cnt = s->cnt, bytes;
	u8 one = 1;

	if (cnt >= SHAPE_WORDS)
		count(CNT_SHAPES_CUT);
	for (u32 i = 0; i < SHAPE_WORDS + SHAPE_DIMS; i++) {
		if (i >= cnt)
			break;
		hash = name_hash__add(hash, s->words[i]);
	}
	hash = name_hash__end(hash);
	if (bpf_map_lookup_elem(&groups, &hash))
		return hash;
	if (bpf_map_update_elem(&groups, &hash, &one, BPF_NOEXIST)) {
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
		bpf_map_delete_elem(&groups, &hash); /* the next call tries again */
	}
	return hash;
}

/* Room for the words of a group, without any yet. NULL (counted): no memory. */
static __always_inline struct shapes *shapes__of_thread(void)
{
	struct shapes *s =
		bpf_task_storage_get(&shapes, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (s)
		s->cnt = 0;
	else
		count(CNT_NO_STORAGE);
	return s;
}

/* The group of a call of `def`, whose return address is at `frame`. 0: none. */
static __always_inline u64 shapes__group(struct pt_regs *ctx, const struct op_def *def, u64 frame)
{
	struct shapes *s = shapes__of_thread();

	if (!s)
		return 0;
	s->call[0] = ctx->di;
	s->call[1] = ctx->si;
	s->call[2] = ctx->dx;
	s->call[3] = ctx->cx;
	s->call[4] = ctx->r8;
	s->call[5] = ctx->r9;
	if (def->on_stack)
		bpf_probe_read_user(&s->call[OP_ARG_STACK], 8 * (OP_PLACES - OP_ARG_STACK), (const void *)(frame + 8));
	for (u32 i = 0; i < OP_ARGS_MAX; i++) {
		if (i >= def->arg_cnt)
			break;
		shapes__argument(s, def, &def->args[i]);
	}
	return shapes__send(s);
}

/* The group of a node that is given a std::vector<Tensor> {Tensor *begin, *end, ...}. 0: none. */
static __always_inline u64 shapes__inputs(u64 vector)
{
	struct shapes *s = shapes__of_thread();
	u64 bounds[2] = {};

	if (!s)
		return 0;
	bpf_probe_read_user(bounds, sizeof(bounds), (const void *)vector);
	shapes__tensors(s, bounds[0], (bounds[1] - bounds[0]) / 8);
	return shapes__send(s);
}

#endif
