/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operators: the cookie of a probe on one, and how BPF finds an operator's arguments.
 * user/session/op_probes.c fills these structs from user/runtime/torch/ops.h; bpf/ops.bpf.c and
 * bpf/shapes.h read them.
 */
#ifndef STEPFLAME_INCLUDE_OPS_H
#define STEPFLAME_INCLUDE_OPS_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#include "include/records.h"
#include "include/row.h"

#define OPS_MAX       8192          /* operators and node classes in all torch libraries of a session */
#define OP_ARGS_MAX   24            /* arguments that BPF reads; the 3,110 operators of torch 2.15 have at most 23 */
#define OP_DEF_MEMORY (OPS_MAX - 1) /* entry of op_defs for memory allocated outside all operators: "[memory]" */
#define OP_ROWS       16384
#define OP_PROCS_MAX  256   /* processes whose operators are recorded at once */
#define OP_NODES_MAX  65536 /* their node classes: torch 2.15 has 736 in each process */

/*
 * Cookie: event in bits 0-7, slot of the process in 8-15, depth (bytes from the stack pointer to
 * the return address) in 16-31, index in op_defs in 32-63.
 */
enum op_event {
	OP_CALL,     /* at::_ops::X::call */
	OP_BOXED,    /* a call with an OperatorHandle *: %rdi */
	OP_EVALUATE, /* Engine::evaluate_function(this, graph_task, Node *, ...): %rdx */
	OP_ALLOCATE, /* c10::ProfiledCPUMemoryReporter::New */
	OP_FREE,     /* ... ::Delete */
	OP_REPORT,   /* c10::reportMemoryUsageToProfiler */
	OP_NODE,     /* Node::operator()(this, ...), or a class's apply: the Node * in cookie's register */
	OP_PYTHON,   /* THPFunction_apply(cls, ...), of a torch.autograd.Function: the class in %rdi */
	OP_TEXT,     /* _pytorch_record_function_enter(name), of torch.compile: the text in %rdi */
};

/* How an argument is passed, System V x86-64 ABI. */
enum op_arg_kind {
	OP_ARG_OTHER,           /* not a tensor, and BPF does not need it */
	OP_ARG_TENSOR,          /* Tensor const &: pointer to a TensorImpl * */
	OP_ARG_OPTIONAL,        /* std::optional<Tensor> const &: {TensorImpl *, bool engaged}; not engaged: garbage */
	OP_ARG_TENSOR_LIST,     /* ArrayRef<Tensor>: {Tensor *, size_t} in two consecutive places */
	OP_ARG_INTS,            /* ArrayRef<long>, ArrayRef<SymInt>: likewise */
	OP_ARG_INT,             /* long, bool */
	OP_ARG_OPTIONAL_LIST,   /* c10::List<std::optional<Tensor>> const & */
	OP_ARG_TENSOR_LIST_REF, /* c10::IListRef<Tensor> const &: {Tensor *, size_t, int tag} when tag is 0 */
	OP_ARG_INT_REF,         /* c10::SymInt by value: pointer to a long, a symbol when it is below -2^62 */
	OP_ARG_OPTIONAL_OLD,    /* c10::optional<Tensor> const &: {bool engaged, TensorImpl *} */
	OP_ARG__COUNT,
};

#define OP_PLACES    32
#define OP_ARG_STACK 8 /* place: 0-5 rdi rsi rdx rcx r8 r9; OP_ARG_STACK + i: the i-th word above the return address */

struct op_arg {
	__u8 kind;   /* enum op_arg_kind */
	__u8 place;  /* of its first word */
	__u8 place2; /* of its second word, for lists */
	__u8 pad;
};

struct op_def {
	__u64 name;   /* REC_NAME id of "aten::add.Tensor"; 0: an unused entry */
	__u64 merged; /* of "aten::add" */
	__u16 arg_cnt;
	__u8 on_stack;   /* at least one argument is not in a register */
	__u8 wants_ints; /* counting its FLOPs needs the int arguments */
	struct op_arg args[OP_ARGS_MAX];
	__u32 pad;
};

/* A row of the operator table, an open hash table in an array. */
struct op_entry {
	struct row_head head;
	struct op_key key;
	struct op_val val;
};

/*
 * A process whose operators are probed, by slot. BPF and user space write it in place: each word
 * has one writer.
 */
struct op_proc {
	__u32 pid;
	__u32 open;  /* operators are counted; set at step boundaries, or by user space when there is no schedule */
	__u32 armed; /* written by user space: the probes are attached */
	__u32 index; /* windows begun so far */
	__u64 window_start_ns; /* of the last window */
	__u64 window_end_ns;   /* 0: that window is open */
	__u64 first_step;      /* boundaries before the last window */
	__u64 boundaries;      /* step boundaries seen */
	__u64 first_boundary_ns;
	__u64 last_boundary_ns;
	__u64 cut;         /* spans of the last window that did not fit in the ring buffer */
	__u64 hits;        /* probe hits while `counting` */
	__u64 counting;    /* written by user space, and by BPF when windows begin and end */
	__u32 old_strings; /* the process uses the std::string of before the C++11 ABI */
	/*
	 * For the timeline: where at::sequence_number stores a thread's next number, as a
	 * thread_word (user/proc/getter.h; both fields 0: unknown), and the bytes from a Node to
	 * its number (0: unknown).
	 */
	__u32 sequence_module;
	__u32 longer_heads; /* of Python's objects: py_layout__longer */
	__u64 sequence_offset;
	__u64 node_sequence;
	__u64 backward_action; /* action around Engine::execute, which nodes on the engine's threads inherit */
};

/* torch.profiler.schedule: its numbers of steps, counted from the first boundary. */
enum op_schedule_word {
	OP_SKIP_FIRST,
	OP_WAIT,
	OP_WARMUP,
	OP_ACTIVE, /* 0: no schedule, operators are always counted */
	OP_REPEAT, /* 0: repeat without end */
	OP_SCHEDULE__COUNT,
};

/* Key of the map from a Node's vtable pointer, its first word, to its class. */
struct node_class {
	__u64 slot;
	__u64 vtable;
};

struct node_val {
	__u64 name;   /* REC_NAME id; 0: the node's Python class names it */
	__u64 object; /* then: bytes from the node to its pointer to the Python object; 0: unknown */
};

#endif
