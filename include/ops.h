/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operators: what a probe on one knows by its cookie, and what the BPF side must know of an operator's arguments.
 * Filled by user/session/ops.c from user/target/ops.h, read by bpf/ops.h.
 */
#ifndef STEPFLAME_OPS_H
#define STEPFLAME_OPS_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define OPS_MAX      8192 /* operators and node classes of all torch libraries of a session */
#define OP_ARGS_MAX  24   /* arguments looked at; of the 3,110 operators of torch 2.15 none has more than 23 */
#define OP_ROWS      16384
#define OP_PROCS_MAX 256 /* processes whose operators are recorded at once */

/*
 * Cookie: event in bits 0-7, slot of the process in 8-15, depth (bytes from the stack pointer to the return address) in 16-31, index in
 * op_defs in 32-63.
 */
enum op_event {
	OP_CALL,     /* at::_ops::X::call */
	OP_BOXED,    /* a call with an OperatorHandle *: %rdi */
	OP_EVALUATE, /* Engine::evaluate_function(this, graph_task, Node *, ...): %rdx */
	OP_NODE,     /* Node::operator()(this, ...), or a class's apply: the Node * in cookie's register */
};

/* How an argument is passed, System V x86-64 ABI. */
enum op_arg_kind {
	OP_ARG_OTHER,           /* neither a tensor nor needed */
	OP_ARG_TENSOR,          /* Tensor const &: pointer to a TensorImpl * */
	OP_ARG_OPTIONAL,        /* std::optional<Tensor> const &: {TensorImpl *, bool engaged}; else garbage */
	OP_ARG_TENSOR_LIST,     /* ArrayRef<Tensor>: {Tensor *, size_t} in two places, the second behind the first */
	OP_ARG_INTS,            /* ArrayRef<long>, ArrayRef<SymInt>: the same */
	OP_ARG_INT,             /* long, bool */
	OP_ARG_OPTIONAL_LIST,   /* c10::List<std::optional<Tensor>> const & */
	OP_ARG_TENSOR_LIST_REF, /* c10::IListRef<Tensor> const &: {Tensor *, size_t, int tag} when tag is 0 */
	OP_ARG_INT_REF,         /* c10::SymInt by value: pointer to a long, a symbol when it is below -2^62 */
	OP_ARG_OPTIONAL_OLD,    /* c10::optional<Tensor> const &: {bool engaged, TensorImpl *} */
	OP_ARG__COUNT,
};

#define OP_ARG_STACK 16 /* place: 0-5 rdi rsi rdx rcx r8 r9; OP_ARG_STACK + i: the i-th word above the return address */

struct op_arg {
	__u8 kind;   /* enum op_arg_kind */
	__u8 place;  /* of its first word */
	__u8 place2; /* of its second word, for lists */
	__u8 pad;
};

struct op_def {
	__u64 name;   /* REC_NAME id of "aten::add.Tensor"; 0: an unused entry */
	__u64 merged; /* of "aten::add" */
	__u32 arg_cnt;
	struct op_arg args[OP_ARGS_MAX];
	__u32 pad;
};

/* Where a TensorImpl keeps what is read. Offsets in bytes. */
struct tensor_layout {
	__u16 sizes;   /* c10::impl::SizesAndStrides: {size_t size; int64 inline[5] | int64 *out_of_line} */
	__u16 dtype;   /* caffe2::TypeMeta: u16 */
	__u16 key_set; /* c10::DispatchKeySet */
	__u16 pad;
};

#endif
