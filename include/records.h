/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The records that BPF sends to user space and that a recording holds. user/recording/descriptors.h
 * says which types are cumulative (for each key, the last one counts), and how merge treats each.
 *
 * Every record starts with struct rec_hdr; `size` covers the whole record and is a multiple of 8.
 * Integers have the byte order of the machine that wrote them (the file header says which). Times
 * are CLOCK_MONOTONIC nanoseconds. A reader skips record types that it does not know.
 */
#ifndef STEPFLAME_INCLUDE_RECORDS_H
#define STEPFLAME_INCLUDE_RECORDS_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* Linux pids fit in these bits. In a merged recording the bits above tell the hosts apart. */
#define REC_PID_BITS   22
#define REC_PID(pid)   ((pid) & ((1u << REC_PID_BITS) - 1)) /* the pid on its own host */
#define REC_PID_HIDDEN REC_PID(~0u) /* a process without a number in stepflame's pid namespace */

#define REC_NAME_MAX   512 /* bytes of a name that a record holds */
#define AGG_BUCKETS    40  /* log2 histogram: bucket i counts durations in [2^i, 2^(i+1)) ns, the last one all longer */

enum rec_type {
	REC_HOST = 1,  /* user: a machine and its recorder, before its records */
	REC_TARGET,    /* user: one attached process */
	REC_NAME,      /* bpf, user: id -> text */
	REC_PROC,      /* bpf: a process of the job started, called exec, or ended */
	REC_WINDOW,    /* user: the time observed, cumulative */
	REC_AGG,       /* user: one row of the aggregate map, cumulative */
	REC_COUNTER,   /* user: one named counter, cumulative */
	REC_COST,      /* user: the cost of tracing, cumulative */
	REC_NOTE,      /* user: a message for the reader of the report */
	REC_OP,        /* user: one row of the operator table, cumulative */
	REC_OP_GROUP,  /* bpf: id -> what distinguishes calls of an operator: shapes, source line, module */
	REC_OP_WINDOW, /* bpf, user: a window in which operators were counted, cumulative by pid and index */
	REC_SPANS,     /* user: a stretch of the timeline, compressed */
	REC_SPAN,      /* bpf: one span of the timeline; not in files, which hold REC_SPANS */
	REC_CODE,      /* bpf, completed by user: id -> a Python function */
	REC_STACK,     /* bpf: id -> Python frames */
	REC_PATH,      /* bpf: id -> the spans around a sample */
	REC_SAMPLE,    /* bpf, completed by user: a stack, weighted in time */
	REC_INTERVAL,  /* bpf: a forward, an evaluation of a plain loop, or a garbage collection */
	REC_MODULES,   /* bpf: id -> torch.nn.Modules; in files a REC_NAME of that id */
	REC_CALLS,     /* user: calls of a Python function in an exact window, cumulative */
	REC_STEP,      /* bpf: a step boundary, in a recording with samples */
	REC_SYSCALL, /* user: system calls of a process, cumulative; structs of these, files and pipes: io_records.h */
	REC_FILE,    /* user: a file that a process reads or writes, cumulative */
	REC_GPU,     /* user: the source of a process's GPU figures, cumulative; structs of REC_GPU*: gpu_records.h */
	REC_GPU_CALLS,     /* user: calls of a function of CUDA or NCCL, cumulative */
	REC_GPU_CALL,      /* bpf: one such call, in a window that emits each */
	REC_GPU_STEP,      /* bpf: sums over the calls of a step */
	REC_GPU_ACTIVITY,  /* user: what the GPU did, from the injection library */
	REC_GPU_DEVICE,    /* user: one GPU */
	REC_GPU_USAGE,     /* user: how busy a GPU was, by NVML */
	REC_GPU_OBJECT,    /* bpf: first launch of a kernel, so that user space can look up its name; not in files */
	REC_GPU_WINDOW,    /* bpf, completed by user: a CUPTI window, cumulative by pid and index */
	REC_PIPE,          /* user: a pipe that a process reads or writes, cumulative */
	REC_AROUND,        /* bpf: the Python frames around a span */
	REC_DROPPED,       /* user: what was dropped of a recording: user/recording/recording.h */
	REC_DROPPED_STEPS, /* user: a histogram of the steps that were: user/recording/dropped_steps.h */
	REC_RESOURCES,     /* user: what a process has used so far, by /proc; one a second */
	REC_MACHINE,       /* user: what its machine uses, beside these */
	REC_LIMITS,        /* user: what its cgroups limit */
	REC_STEPS,         /* user: many REC_STEP, packed: user/recording/step_blocks.h. The reader unpacks them */
	REC_SHORTAGE,      /* user: what was short when a process ended */
	REC_REST,          /* user: a process is not recorded for a while, for --budget: cumulative by pid */
	REC_THROTTLE,      /* user: how often a quota of CPU time was used up; one a second */
	REC_AWAITED,       /* user: what a place of the program waits on: wait_records.h */
	REC_OVERHEAD,      /* user: by how much a recording with --budget slows a process, cumulative by pid */
	REC_JOB,           /* user: which job a process is of: resource_records.h */
	REC_GPU_USER,      /* user: a process uses a GPU, by NVML, cumulative */
	REC_COPIED,        /* user: pages that a forked process has copied: resource_records.h */
	REC_INSTALLED,     /* user: a package that was installed into a folder of PYTHONPATH */
	REC_RECORDED,      /* user: when a process of a merged recording was recorded: resource_records.h */
	REC__COUNT,
};

/* What a span is; the kind decides which report lists it, and under which switch. */
enum span_kind {
	SPAN_NONE = 0,
	SPAN_ACTION,     /* a Lightning profiler action */
	SPAN_LABEL,      /* torch record_function */
	SPAN_FORWARD,    /* derived: from the end of the last landmark to the start of backward */
	SPAN_BACKWARD,   /* torch::autograd::Engine::execute */
	SPAN_USER,       /* --action */
	SPAN_OP,         /* an operator: at::_ops::X::call, or a call through the boxed dispatcher */
	SPAN_EVALUATE,   /* torch::autograd::Engine::evaluate_function: "autograd::engine::evaluate_function: X" */
	SPAN_NODE,       /* the node X itself, inside that SPAN_EVALUATE */
	SPAN_STEP,       /* only in the timeline: from a step boundary to the next; sequence: boundaries before it */
	SPAN_GC,         /* a garbage collection by CPython */
	SPAN_COMM,       /* a collective, a send or a receive, or the wait for one: torch's c10d */
	SPAN_SYNC,       /* the CPU waits for the GPU */
	SPAN_SAVE,       /* torch.save, and other writers of torch's zip files */
	SPAN_VALIDATION, /* derived: evaluation in a plain loop, from its first fetch to its last or another loop's */
	SPAN_JIT,        /* a call of a JAX jitted function, from Python that is not being traced for another one */
	SPAN_COMPILE,    /* XLA compiles, or loads compiled code */
	SPAN_AWAIT,      /* the CPU waits for, or fetches, a result of XLA */
	SPAN_TRANSFER,   /* a transfer to an XLA device */
	SPAN_EXECUTE,    /* a call that makes a PJRT plugin execute */
	SPAN__COUNT,
};

struct rec_hdr {
	__u16 type;  /* enum rec_type */
	__u16 flags; /* enum rec_flag */
	__u32 size;  /* bytes, header included, multiple of 8 */
};

enum rec_flag {
	/* The last record of a row whose process has ended; a later one of this key begins at 0 again. */
	REC_ENDED = 1,
	REC_RESTED = 2, /* REC_STEP: its process has rested since the thread's boundary before: it ends no step */
};

struct rec_host {
	struct rec_hdr hdr;
	__u64 monotonic_ns; /* the same instant on both clocks */
	__u64 realtime_ns;
	__u32 cpus;
	__u32 pad;
	char version[32]; /* of stepflame */
	char hostname[64];
	char kernel[64];
};

enum target_role { ROLE_MAIN = 0, ROLE_CHILD, ROLE_WORKER };

struct rec_target {
	struct rec_hdr hdr;
	__u32 pid;   /* in stepflame's pid namespace */
	__u32 nspid; /* in the process's own pid namespace */
	__u32 role;  /* enum target_role */
	__s32 rank;  /* as user/identity/job_id.h finds it; -1: unknown */
	__u32 parent_pid, pad;
	char python[16];
	char torch[32];
	char jax[16]; /* version of jaxlib; "?": unknown, "": no jaxlib */
	char command[128];
};

/* How the bytes of a name are encoded in the target. */
enum name_encoding { NAME_UTF8 = 0, NAME_LATIN1 = 1, NAME_UCS2 = 2, NAME_UCS4 = 4 };

struct rec_name {
	struct rec_hdr hdr;
	__u64 id;          /* hash of the bytes and of whole_bytes; never 0 */
	__u8 encoding;     /* enum name_encoding */
	__u8 cut;          /* 1: text holds only the first REC_NAME_MAX bytes */
	__u16 bytes;       /* length of text, not 0-terminated */
	__u32 whole_bytes; /* of the name in the target */
	char text[];       /* padded to a multiple of 8 */
};

enum proc_event { PROC_FORK = 1, PROC_EXEC, PROC_EXIT, PROC_LIGHTNING /* its first Lightning action */ };

struct rec_proc {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u32 event; /* enum proc_event */
	__u32 pid, parent_pid;
	__s32 exit_code; /* wait(2) status, for PROC_EXIT */
	char comm[16];
};

/* The rules that find step boundaries, better ones first: bpf/steps.h. */
enum step_rule {
	STEP_NONE = 0,
	STEP_LIGHTNING,
	STEP_LOADER_OPTIMIZER,
	STEP_OPTIMIZER,
	STEP_PROFILER,
	STEP_ANNOTATION, /* JAX's StepTraceAnnotation */
	STEP_BACKWARD,
	STEP_JIT, /* calls of one JAX jitted function */
	STEP_LOADER,
	STEP_USER, /* --step-at, which replaces all other rules */
	STEP_TICK, /* in a rest of --budget: as many backwards have begun as a step has; only rec_step.phase_ns[0] */
	STEP__COUNT,
};

struct rec_window {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 end_ns; /* so far */
	__u64 steps;
	__u32 step_rule; /* enum step_rule */
	__u32 pad;
};

struct agg_key {
	__u32 pid;
	__u32 kind;   /* enum span_kind */
	__u64 name;   /* REC_NAME id */
	__u64 parent; /* name id of the enclosing action, 0 if none */
};

struct agg_val {
	__u64 calls, total_ns;
	__u64 self_ns; /* total less the time in nested spans */
	__u64 min_ns, max_ns;
	__u64 first_ns; /* start of the first call */
	__u32 hist[AGG_BUCKETS];
};

struct rec_agg {
	struct rec_hdr hdr;
	struct agg_key key;
	struct agg_val val;
};

/*
 * Operators. BPF counts one row per process, kind, name, enclosing action and group. Kinds: SPAN_OP
 * (name: "aten::add.Tensor", the overload after the first dot), SPAN_EVALUATE and SPAN_NODE (name:
 * the class of the node, without a prefix, "AddmmBackward0"), SPAN_LABEL. As in torch.profiler, a
 * call whose only child has the same name (overloads merged) counts as one call with that child.
 */
struct op_key {
	__u32 pid;
	__u32 kind;   /* enum span_kind */
	__u64 name;   /* REC_NAME id */
	__u64 action; /* name id of the innermost action, backward or --action around it; 0: none */
	__u64 group;  /* REC_OP_GROUP id; 0: calls are not grouped */
};

enum op_memory { OP_MEMORY_CPU, OP_MEMORY_DEVICE, OP_MEMORY__COUNT };

struct op_val {
	__u64 calls, total_ns;
	__u64 self_ns;                       /* total less nested operators, nodes and labels */
	__s64 self_bytes[OP_MEMORY__COUNT];  /* allocated less freed, outside nested ones */
	__s64 total_bytes[OP_MEMORY__COUNT]; /* including nested ones */
};

struct rec_op {
	struct rec_hdr hdr;
	struct op_key key;
	struct op_val val;
};

/*
 * A word of a group describes an argument: tag in bits 0-7, dtype (c10::ScalarType) in 8-15, and a
 * count in 32-63, followed by `count` words. Arguments are in the order of the operator's schema.
 */
enum op_word {
	OP_WORD_NONE = 0,    /* not a tensor, or an undefined one: [] in torch.profiler's shapes */
	OP_WORD_TENSOR,      /* count dims follow */
	OP_WORD_TENSOR_LIST, /* count OP_WORD_TENSOR groups follow */
	OP_WORD_INTS,        /* count values of an int list follow (only for operators whose FLOPs need them) */
	OP_WORD_INT,         /* one value follows; count 1 */
	OP_WORD_OPAQUE,      /* a tensor without sizes: nested, or unreadable */
	OP_WORD_CUT,         /* the last word: the rest did not fit */
};

struct rec_op_group {
	struct rec_hdr hdr;
	__u64 id;
	__u64 source; /* REC_CODE id of the calling Python function; 0: none */
	__u64 module; /* name id of the module path; 0: none */
	__u32 word_cnt;
	__u32 source_offset; /* of the calling instruction, as in struct stack_frame */
	__u64 words[];       /* empty without --shapes */
};

struct rec_op_window {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 index;      /* of the window: 0, 1, ... */
	__u64 first_step; /* step boundaries before it since the recording started */
	__u64 steps;      /* in it, so far */
	__u64 start_ns;
	__u64 end_ns; /* so far */
	__u64 cut;    /* spans of the timeline that did not fit */
};

struct rec_span {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 tid;
	__u64 start_ns;
	__u64 duration_ns;
	__u64 name;     /* REC_NAME id, as in struct op_key */
	__u64 group;    /* REC_OP_GROUP id or 0 */
	__s64 sequence; /* Node::sequence_nr of NODE, EVALUATE; of the first node that an OP makes; -1: none, unknown */
	__u16 kind;     /* enum span_kind: as in struct op_key, or SPAN_ACTION, _BACKWARD, _FORWARD, _USER */
	__u16 depth;    /* spans around it on its thread */
	__u32 pad;
};

/* Spans of one thread, in the order of their ends: by user/recording/spans.h, compressed by zlib's deflate. */
struct rec_spans {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 tid;
	__u32 span_cnt;
	__u32 bytes; /* of payload */
	__u64 base_ns;
	__u8 payload[]; /* padded to a multiple of 8 */
};

/* What was installed is not the user's own: the name of a package's folder, with the '/', or of a module's file. */
struct rec_installed {
	struct rec_hdr hdr;
	__u64 path;
};

/*
 * A Python function. It has the same id in every process, also after Python has recreated its code
 * object. BPF sends line_cnt 0 and the line table after the struct, or only the address of a long
 * table; files hold the lines, or none if the table was unreadable.
 */
struct rec_code {
	struct rec_hdr hdr;
	__u64 id;   /* hash of file, name and first_line */
	__u64 file; /* REC_NAME ids: co_filename, and co_qualname (before 3.11 co_name); 0: unreadable */
	__u64 name;
	__u64 line_table; /* address of the bytes object; 0 in files */
	__u32 pid;
	__u32 first_line;
	__u32 line_cnt;
	__s32 table_bytes; /* of the line table after the struct; -1: it is not included. 0 in files */
	struct code_line {
		__u32 offset; /* of the first byte of code, from the start of the function; ascending */
		__s32 line;   /* valid up to the next offset; 0: none */
	} lines[];
};

/* Python frames, the innermost first. */
struct rec_stack {
	struct rec_hdr hdr;
	__u64 id;
	__u32 frame_cnt;
	__u32 cut; /* 1: there were more frames, or one was unreadable */
	struct stack_frame {
		__u64 code;   /* REC_CODE id */
		__u32 offset; /* of the current instruction, in bytes of code */
		__u32 pad;
	} frames[];
};

#define STACK_FRAMES_MAX 512

/* Spans that are open on a thread, the outermost first. */
struct rec_path {
	struct rec_hdr hdr;
	__u64 id;
	__u32 span_cnt;
	__u32 pad;
	struct path_span {
		__u64 name;  /* REC_NAME id, as in struct agg_key and struct op_key */
		__u32 kind;  /* enum span_kind */
		__u32 group; /* in the path of a REC_GPU_CALL: low half of the operator's REC_OP_GROUP id; else 0 */
	} spans[];
};

/*
 * The Python stack at the end of a span that has samples: frames that the samples share with it are
 * around the span, not in it. BPF emits it for the first few spans of each path.
 */
struct rec_around {
	struct rec_hdr hdr;
	__u64 name;   /* REC_NAME id, as in struct path_span */
	__u64 stack;  /* REC_STACK id */
	__u32 kind;   /* enum span_kind */
	__u32 nested; /* spans of this kind and name around it */
};

enum sample_kind {
	SAMPLE_CPU = 1, /* the timer found the thread running */
	SAMPLE_WAIT,    /* the thread runs again, after it was blocked or other threads ran */
};

/* What a thread waited for, as the kernel sees it. */
#define STEPFLAME_WAIT_CAUSES(X)                                                              \
	X(NONE, "")                                                                           \
	X(RUN_QUEUE, "run_queue") /* other threads ran */                                     \
	X(LOCK, "lock")           /* futex */                                                 \
	X(GIL, "gil")                                                                         \
	X(DISK_READ, "disk_read") /* read of a file, or another call that waits for a disk */ \
	X(DISK_WRITE, "disk_write")                                                           \
	X(FSYNC, "fsync")                                                                     \
	X(PAGE_FAULT, "page_fault")                                                           \
	X(SLEEP, "sleep")                                                                     \
	X(CHILD_WAIT, "child_wait")                                                           \
	X(PIPE, "pipe")     /* read or write of a pipe */                                     \
	X(SOCKET, "socket") /* read, write, receive, send, accept, connect */                 \
	X(POLL, "poll")     /* poll, select, epoll: any of several files */                   \
	X(UNKNOWN, "unknown")                                                                 \
	X(PAUSED, "pauses") /* from outside: a stop signal, a debugger, the cgroup freezer, suspend */

enum wait_cause {
#define X(id, name) CAUSE_##id,
	STEPFLAME_WAIT_CAUSES(X)
#undef X
		CAUSE__COUNT,
};

#define WAIT_THRESHOLD_NS 100000 /* a wait at least this long gets its own sample */

/*
 * A sample of one thread. Waits too short for a sample of their own, and waits for the GIL, add up
 * to the weight of one of them, chosen with a probability proportional to its length.
 */
struct rec_sample {
	struct rec_hdr hdr;
	__u64 time_ns;   /* when the timer fired; when the wait, or its part with this cause, ended */
	__u64 weight_ns; /* for SAMPLE_CPU the current period of the CPU's timer */
	__u64 stack;     /* REC_STACK id, without a record when the stack was lost; 0: no Python frames */
	__u64 path;      /* REC_PATH id; 0: no spans */
	__u64 native;    /* user instruction pointer; in files the REC_NAME id of "symbol (library)", 0: unknown */
	__u64 kernel;    /* kernel instruction pointer, 0: none; in files the REC_NAME id of the symbol */
	__u32 pid;
	__u32 tid;
	__u32 step;      /* step boundaries in the process before the sample */
	__u32 waits;     /* 1: the weight is this wait, which ended at time_ns; else 1 + the number of waits in it */
	__s16 syscall;   /* number; -1: not in a system call */
	__u8 kind;       /* enum sample_kind */
	__u8 cause;      /* enum wait_cause */
	__u32 waker_pid; /* for a wait: the process in the job that ended it; 0: outside the job, or unknown */
	__u32 waker_tid;
	__u32 ran_pid; /* for CAUSE_RUN_QUEUE: the process that had its CPU; 0: none, or unknown; REC_PID_HIDDEN */
	__u64 file;    /* file_val.name of the file that a call or a page fault reads, writes or syncs; 0: none */
};

/* Context of samples. BPF emits forwards and evaluations of plain loops after their samples, whose paths lack them. */
struct rec_interval {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 tid;
	__u64 start_ns;
	__u64 duration_ns;
	__u64 name;  /* REC_NAME id */
	__u32 kind;  /* enum span_kind: SPAN_FORWARD, SPAN_VALIDATION, SPAN_GC */
	__u32 depth; /* spans around it */
	__u32 step;  /* step boundaries in the process before its end */
	__u32 rule;  /* enum step_rule: counts only where this rule makes the thread's steps; STEP_NONE: always */
};

#define MODULES_MAX 32

/* Modules whose calls enclose an operator, the innermost first. */
struct rec_modules {
	struct rec_hdr hdr;
	__u64 id;
	__u32 pid;
	__u32 module_cnt;
	struct rec_module {
		__u64 object;
		__u64 type; /* REC_NAME id of its class */
	} modules[];
};

/* As in cProfile, a primitive call is not nested in another call of its function. */
struct rec_calls {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 pad;
	__u64 code; /* REC_CODE id */
	__u64 path; /* REC_PATH id of the spans around it; 0: none */
	__u64 calls;
	__u64 primitive_calls;
	__u64 self_ns;
	__u64 total_ns; /* of the primitive calls */
};

/* What a step is made of. */
#define STEPFLAME_PHASES(X)                                                                         \
	X(OTHER, "other")                                                                           \
	X(DATA, "data")       /* a DataLoader's next */                                             \
	X(FORWARD, "forward") /* training_step; in a plain loop from the end of data to backward */ \
	X(BACKWARD, "backward")                                                                     \
	X(OPTIMIZER, "optimizer")   /* step, zero_grad */                                           \
	X(COMM, "comm")             /* collectives */                                               \
	X(CHECKPOINT, "checkpoint") /* saves one */                                                 \
	X(VALIDATION, "validation") /* evaluation between steps */                                  \
	X(JIT, "jit")               /* JAX: inside a call of a jitted function */                   \
	X(COMPILE, "compile")       /* XLA compiles */                                              \
	X(AWAIT, "await")           /* waits for a result of XLA */                                 \
	X(TRANSFER, "transfer")     /* to an XLA device */

enum phase {
#define X(id, name) PHASE_##id,
	STEPFLAME_PHASES(X)
#undef X
		PHASE__COUNT,
};

/*
 * An instant at which, by one rule, a thread ended a step and began the next. A thread may make
 * boundaries by several rules, since a better rule may appear late; readers choose the rule.
 *
 * The phases divide the thread's time since its last boundary by any rule: each instant belongs to
 * the phase of the innermost span that has one. Over all boundaries in a step they add up to the
 * step.
 */
struct rec_step {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u64 index; /* boundaries of the thread by this rule, with this one; 0 after the first of --steps */
	__u32 pid;
	__u32 rule; /* enum step_rule */
	__u32 tid;
	__u32 serial;                 /* one more than at the thread's previous boundary of any rule */
	__u64 forward_ns;             /* part of PHASE_OTHER that is forward if this is the rule */
	__u64 phase_ns[PHASE__COUNT]; /* all 0 at the thread's first boundary */
};

struct rec_counter {
	struct rec_hdr hdr;
	__u64 value;
	char name[32];
};

struct rec_cost {
	struct rec_hdr hdr;
	__u64 hits, busiest_hits; /* probe hits: in the targets; in the one that paid most, without ticks */
	__u64 hit_ns; /* of the busiest: the trap and what it leaves behind, measured at start, and the program, sampled */
	__u64 attach_ns, detach_ns;      /* from attaching the first probe to the last */
	__u64 own_cpu_ns, own_rss_bytes; /* stepflame's: CPU time while recording; resident set */
	__u64 busiest_sampler_ns;        /* in the sampler's programs and at ticks, for that target */
	__u64 busiest_calls;             /* system calls of that target, estimated from one in HITS_PER_SAMPLE */
	__u64 call_ns;                   /* cost of one such call, like hit_ns */
};

struct rec_note {
	struct rec_hdr hdr;
	__u32 bytes, pad; /* bytes: of text, which is not 0-terminated */
	char text[];      /* UTF-8, padded to a multiple of 8 */
};

#endif
