/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What crosses from the kernel to user space, and what a recording holds: one enum of record types, one struct each.
 *
 * Every record starts with struct rec_hdr; `size` is that of the whole record, a multiple of 8. Integers are in the
 * byte order of the machine that wrote them (the file header says which). Times are CLOCK_MONOTONIC nanoseconds. A
 * reader skips record types that it does not know. A cumulative record may come several times for the same key: the last one
 * holds. Which are, and what merge does with each, is in user/recording/descriptors.h.
 */
#ifndef STEPFLAME_INCLUDE_RECORDS_H
#define STEPFLAME_INCLUDE_RECORDS_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/*
 * Linux's process numbers fit in so many bits. A merged recording tells processes of several hosts that have the same one
 * apart by the bits above.
 */
#define REC_PID_BITS 22
#define REC_PID(pid) ((pid) & ((1u << REC_PID_BITS) - 1)) /* as its host has it */

#define REC_NAME_MAX 512 /* bytes of a name that are kept */
#define AGG_BUCKETS \
	40 /* log2 histogram: bucket i counts durations in [2^i, 2^(i+1)) ns, the last one all longer ones */

enum rec_type {
	REC_HOST = 1,  /* user: a machine and its recorder, before its records */
	REC_TARGET,    /* user: one attached process */
	REC_NAME,      /* bpf, user: id -> text */
	REC_PROC,      /* bpf: a process of the job started, called exec, or ended */
	REC_WINDOW,    /* user: the time observed, cumulative */
	REC_AGG,       /* user: one row of the aggregate map, cumulative */
	REC_COUNTER,   /* user: one named counter, cumulative */
	REC_COST,      /* user: what observing cost, cumulative */
	REC_NOTE,      /* user: a message for the reader of the report */
	REC_OP,        /* user: one row of the operator table, cumulative */
	REC_OP_GROUP,  /* bpf: id -> what calls of an operator are told apart by: shapes, source line, module */
	REC_OP_WINDOW, /* bpf, user: a window in which operators were counted, cumulative by pid and index */
	REC_SPANS,     /* user: a stretch of the timeline, compressed */
	REC_SPAN,      /* bpf: one span of the timeline; not in files, which hold REC_SPANS */
	REC_CODE,      /* bpf, completed by user: id -> a Python function */
	REC_STACK,     /* bpf: id -> Python frames */
	REC_PATH,      /* bpf: id -> the spans around a sample */
	REC_SAMPLE,    /* bpf, completed by user: a stack, weighted in time */
	REC_INTERVAL,  /* bpf: a forward, an evaluation of a plain loop, or a collection of garbage */
	REC_MODULES,   /* bpf: id -> torch.nn.Modules; in files a REC_NAME of that id */
	REC_CALLS,     /* user: calls of a Python function in an exact window, cumulative */
	REC_STEP,      /* bpf: a step boundary, of a recording with samples */
	REC_SYSCALL,   /* user: system calls of a process, cumulative */
	REC_FILE,      /* user: a file that a process reads or writes, cumulative */
	REC_GPU, /* user: from where the figures about a process's GPU come, cumulative; gpu_records.h, as all below */
	REC_GPU_CALLS,    /* user: calls of a function of CUDA or NCCL, cumulative */
	REC_GPU_CALL,     /* bpf: one of them, in a window in which each is told */
	REC_GPU_STEP,     /* bpf: what the calls of a step come to */
	REC_GPU_ACTIVITY, /* user: what the GPU did, from the injection library */
	REC_GPU_DEVICE,   /* user: one GPU */
	REC_GPU_USAGE,    /* user: how busy a GPU was, by NVML */
	REC_GPU_OBJECT, /* bpf: a kernel is launched for the first time, and its name can be looked for; not in files */
	REC_GPU_WINDOW, /* bpf, completed by user: a window of CUPTI's, cumulative by pid and index */
	REC_PIPE,       /* user: a pipe that a process reads or writes, cumulative */
	REC_AROUND,     /* bpf: the Python frames around a span */
	REC__COUNT,
};

/* What a span is; decides in which report and under which switch it is listed. */
enum span_kind {
	SPAN_NONE = 0,
	SPAN_ACTION,   /* a Lightning profiler action */
	SPAN_LABEL,    /* torch record_function */
	SPAN_FORWARD,  /* derived: from the end of the last landmark to the start of backward */
	SPAN_BACKWARD, /* torch::autograd::Engine::execute */
	SPAN_USER,     /* --action */
	SPAN_OP,       /* an operator: at::_ops::X::call, or a call through the boxed dispatcher */
	SPAN_EVALUATE, /* torch::autograd::Engine::evaluate_function: "autograd::engine::evaluate_function: X" */
	SPAN_NODE,     /* the node X itself, inside */
	SPAN_STEP,     /* of the timeline alone: from a step boundary to the next; sequence: boundaries before it */
	SPAN_GC,       /* a collection of garbage by CPython */
	SPAN_COMM,     /* a call of a collective or of send or receive, or the wait for one: torch's c10d */
	SPAN_SYNC,     /* the CPU waits for the GPU */
	SPAN_SAVE,     /* torch.save, and what else writes torch's zip files */
	SPAN_VALIDATION, /* derived: an evaluation of a plain loop, from its first fetch to its last, or to the next loop's first */
	SPAN_JIT,      /* a call of one of JAX's jitted functions, from Python that is not being traced for another */
	SPAN_COMPILE,  /* XLA compiles, or loads what it had compiled */
	SPAN_AWAIT,    /* the CPU waits for what XLA computes, or gets it */
	SPAN_TRANSFER, /* values go to a device of XLA's */
	SPAN_EXECUTE,  /* a PJRT plugin is told to execute */
	SPAN__COUNT,
};

struct rec_hdr {
	__u16 type;  /* enum rec_type */
	__u16 flags; /* 0 */
	__u32 size;  /* bytes, header included, multiple of 8 */
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
	__u32 pid;   /* as stepflame sees it */
	__u32 nspid; /* as the process sees itself */
	__u32 role;  /* enum target_role */
	__s32 rank;  /* of RANK in its environment, -1 if unknown */
	__u32 parent_pid;
	__u32 pad;
	char python[16];
	char torch[32];
	char jax[16]; /* version of jaxlib, "?" where it is not known; "": there is none */
	char command[128];
};

/* How the bytes of a name are encoded in the target. */
enum name_encoding { NAME_UTF8 = 0, NAME_LATIN1 = 1, NAME_UCS2 = 2, NAME_UCS4 = 4 };

struct rec_name {
	struct rec_hdr hdr;
	__u64 id;          /* hash of the bytes and of whole_bytes; never 0 */
	__u8 encoding;     /* enum name_encoding */
	__u8 cut;          /* 1: only the first REC_NAME_MAX bytes are here */
	__u16 bytes;       /* length of text, not 0-terminated */
	__u32 whole_bytes; /* of the name in the target */
	char text[];       /* padded to a multiple of 8 */
};

enum proc_event { PROC_FORK = 1, PROC_EXEC, PROC_EXIT, PROC_LIGHTNING /* its first Lightning action */ };

struct rec_proc {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u32 event; /* enum proc_event */
	__u32 pid;
	__u32 parent_pid;
	__s32 exit_code; /* wait(2) status, for PROC_EXIT */
	char comm[16];
};

/* By what steps are told apart, the better before the worse: bpf/steps.h. */
enum step_rule {
	STEP_NONE = 0,
	STEP_LIGHTNING,
	STEP_LOADER_OPTIMIZER,
	STEP_OPTIMIZER,
	STEP_PROFILER,
	STEP_ANNOTATION, /* JAX's StepTraceAnnotation */
	STEP_BACKWARD,
	STEP_JIT, /* calls of one of JAX's jitted functions */
	STEP_LOADER,
	STEP_USER, /* --step-at, which is asked alone */
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
	__u64 calls;
	__u64 total_ns;
	__u64 self_ns; /* total less the time in spans inside */
	__u64 min_ns;
	__u64 max_ns;
	__u64 first_ns; /* start of the first call */
	__u32 hist[AGG_BUCKETS];
};

struct rec_agg {
	struct rec_hdr hdr;
	struct agg_key key;
	struct agg_val val;
};

/*
 * Operators. A row is told apart by process, name, enclosing action and group; readers add rows up as they like. Kinds:
 * SPAN_OP (name: "aten::add.Tensor", the overload behind the first dot), SPAN_EVALUATE and SPAN_NODE (name: the node's
 * class, "AddmmBackward0"; of EVALUATE without its prefix), SPAN_LABEL. As in torch.profiler, a call whose only child
 * has its own name (overloads merged) is one with that child.
 */
struct op_key {
	__u32 pid;
	__u32 kind;   /* enum span_kind */
	__u64 name;   /* REC_NAME id */
	__u64 action; /* name id of the innermost action, backward or --action around it; 0 none */
	__u64 group;  /* REC_OP_GROUP id; 0: not told apart */
};

enum op_memory { OP_MEMORY_CPU, OP_MEMORY_DEVICE, OP_MEMORY__COUNT };

struct op_val {
	__u64 calls;
	__u64 total_ns;
	__u64 self_ns;                       /* total less operators, nodes and labels inside */
	__s64 self_bytes[OP_MEMORY__COUNT];  /* allocated less freed, by itself */
	__s64 total_bytes[OP_MEMORY__COUNT]; /* with what is inside */
};

struct rec_op {
	struct rec_hdr hdr;
	struct op_key key;
	struct op_val val;
};

/*
 * What an argument was, as a word of a group: tag in bits 0-7, dtype (c10::ScalarType) in 8-15, and a count in 32-63,
 * followed by `count` words. Arguments come in the order of the operator's schema.
 */
enum op_word {
	OP_WORD_NONE = 0,    /* not a tensor, or an undefined one: [] in torch.profiler's shapes */
	OP_WORD_TENSOR,      /* count dims follow */
	OP_WORD_TENSOR_LIST, /* count OP_WORD_TENSOR groups follow */
	OP_WORD_INTS,        /* count values of an int list follow (only for operators whose FLOPs need them) */
	OP_WORD_INT,         /* one value follows; count 1 */
	OP_WORD_OPAQUE,      /* a tensor without sizes: nested, or not readable */
	OP_WORD_CUT,         /* what follows did not fit; the last word */
};

struct rec_op_group {
	struct rec_hdr hdr;
	__u64 id;
	__u64 source; /* REC_CODE id of the Python function that called it, 0 none */
	__u64 module; /* name id of the module path, 0 none */
	__u32 word_cnt;
	__u32 source_offset; /* of the instruction that calls, as in struct stack_frame */
	__u64 words[];       /* empty without --shapes */
};

struct rec_op_window {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 index;      /* of the window: 0, 1, ... */
	__u64 first_step; /* boundaries before it, from the start of the recording */
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
	__s64 sequence; /* of SPAN_NODE and SPAN_EVALUATE: Node::sequence_nr; of SPAN_OP: that of the first node made in it; -1: none, not known */
	__u16 kind; /* enum span_kind: those of struct op_key, and SPAN_ACTION, SPAN_BACKWARD, SPAN_FORWARD, SPAN_USER */
	__u16 depth; /* spans around it on its thread */
	__u32 pad;
};

/*
 * Spans of one thread, in the order in which they ended. `bytes` of payload: zlib's deflate of the encoding in
 * user/recording/spans.h.
 */
struct rec_spans {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 tid;
	__u32 span_cnt;
	__u32 bytes; /* of payload */
	__u64 base_ns;
	__u8 payload[]; /* padded to a multiple of 8 */
};

/*
 * A Python function, as its code object tells. The same function in another process, or its code object made anew, has
 * the same id. BPF sends line_cnt 0 and the line table behind the struct, or of a long one where it is in its process;
 * files hold the lines, or none where the table could not be read.
 */
struct rec_code {
	struct rec_hdr hdr;
	__u64 id;   /* hash of file, name and first_line */
	__u64 file; /* REC_NAME ids: co_filename, and co_qualname (before 3.11 co_name); 0: not readable */
	__u64 name;
	__u64 line_table; /* address of the bytes object; 0 in files */
	__u32 pid;
	__u32 first_line;
	__u32 line_cnt;
	__s32 table_bytes; /* of the line table behind the struct; -1: it is not there. 0 in files */
	struct code_line {
		__u32 offset; /* of the first byte of code, from the function's first; ascending */
		__s32 line;   /* up to the next offset; 0: none */
	} lines[];
};

/* Python frames, the innermost first. */
struct rec_stack {
	struct rec_hdr hdr;
	__u64 id;
	__u32 frame_cnt;
	__u32 cut; /* 1: there were more, or one could not be read */
	struct stack_frame {
		__u64 code;   /* REC_CODE id */
		__u32 offset; /* of the instruction at hand, in bytes of code */
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
		__u32 group; /* of the path of a REC_GPU_CALL: low half of the operator's REC_OP_GROUP id; else 0 */
	} spans[];
};

/*
 * The Python stack as a span ends in which samples were taken. What their stacks share with it is around the span, not in it. Told of the
 * first few spans of each path.
 */
struct rec_around {
	struct rec_hdr hdr;
	__u64 name;   /* REC_NAME id, as in struct path_span */
	__u64 stack;  /* REC_STACK id */
	__u32 kind;   /* enum span_kind */
	__u32 nested; /* spans of this kind and name around it */
};

enum sample_kind {
	SAMPLE_CPU = 1, /* the timer met the thread running */
	SAMPLE_WAIT,    /* the thread runs again: it was blocked, or others ran */
};

/* What a thread waited for, as the kernel sees it. */
#define STEPFLAME_WAIT_CAUSES(X)                                                              \
	X(NONE, "")                                                                           \
	X(RUN_QUEUE, "run_queue") /* others ran */                                            \
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
	X(POLL, "poll")     /* poll, select, epoll: for any of several files */               \
	X(UNKNOWN, "unknown")

enum wait_cause {
#define X(id, name) CAUSE_##id,
	STEPFLAME_WAIT_CAUSES(X)
#undef X
		CAUSE__COUNT,
};

#define WAIT_THRESHOLD_NS 100000 /* a wait so long has a sample of its own */

/*
 * Of one thread. Waits too short for a sample of their own, and those for the GIL, are in the weight of one of them, which
 * is then like the sample of a timer: that it is this one is as likely as it is long.
 */
struct rec_sample {
	struct rec_hdr hdr;
	__u64 time_ns;   /* when the timer ran out; when the wait, or its part of this cause, ended */
	__u64 weight_ns; /* of SAMPLE_CPU the period of its CPU's timer then */
	__u64 stack;     /* REC_STACK id, of a lost one that of none; 0: no Python frames */
	__u64 path;      /* REC_PATH id; 0: no spans */
	__u64 native;    /* user instruction pointer; in files the REC_NAME id of "symbol (library)", 0 not known */
	__u64 kernel;    /* kernel instruction pointer, 0 none; in files the REC_NAME id of the symbol */
	__u32 pid;
	__u32 tid;
	__u32 step;      /* boundaries in the process before it */
	__u32 waits;     /* in the weight: 1, or more that were short */
	__s16 syscall;   /* number, -1: in none */
	__u8 kind;       /* enum sample_kind */
	__u8 cause;      /* enum wait_cause */
	__u32 waker_pid; /* of a wait: whose thread of the job ended it; 0: none of the job's, or not known */
	__u32 waker_tid;
	__u32 pad;
	__u64 file; /* that its call reads, writes or syncs, or a page of which it faults in: name of struct file_val; 0 none */
};

/*
 * What samples are seen against: collections of garbage, forwards (of a plain loop: from the end of the last landmark to the start of
 * backward) in which a sample was taken, and evaluations of plain loops. The last two come after the samples in them, whose paths lack them.
 */
struct rec_interval {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 tid;
	__u64 start_ns;
	__u64 duration_ns;
	__u64 name;  /* REC_NAME id */
	__u32 kind;  /* enum span_kind: SPAN_FORWARD, SPAN_VALIDATION, SPAN_GC */
	__u32 depth; /* spans around it */
	__u32 step;  /* boundaries in the process before its end */
	__u32 rule; /* enum step_rule: it is one where the thread's steps are by that; STEP_NONE: whatever they are by */
};

#define MODULES_MAX 32

/* Modules whose calls are around an operator, the innermost first. */
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

/* Where every call was counted. As in cProfile: a primitive call is one that is in no other call of its function. */
struct rec_calls {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 pad;
	__u64 code; /* REC_CODE id */
	__u64 path; /* REC_PATH id of the spans around it, 0 none */
	__u64 calls;
	__u64 primitive_calls;
	__u64 self_ns;
	__u64 total_ns; /* of the primitive calls */
};

/* What a step is made of. */
#define STEPFLAME_PHASES(X)                                                                         \
	X(OTHER, "other")                                                                           \
	X(DATA, "data")       /* a DataLoader's next */                                             \
	X(FORWARD, "forward") /* training_step; of a plain loop from the end of data to backward */ \
	X(BACKWARD, "backward")                                                                     \
	X(OPTIMIZER, "optimizer")   /* step, zero_grad */                                           \
	X(COMM, "comm")             /* collectives */                                               \
	X(CHECKPOINT, "checkpoint") /* saving one */                                                \
	X(VALIDATION, "validation") /* evaluation between steps */                                  \
	X(JIT, "jit")               /* JAX: in a call of a jitted function */                       \
	X(COMPILE, "compile")       /* XLA compiles */                                              \
	X(AWAIT, "await")           /* for what XLA computes */                                     \
	X(TRANSFER, "transfer")     /* to a device of XLA's */

enum phase {
#define X(id, name) PHASE_##id,
	STEPFLAME_PHASES(X)
#undef X
		PHASE__COUNT,
};

/*
 * An instant at which a thread ended a step and began the next, by a rule. Until a better rule is seen in the process none
 * can be ruled out: so a thread may make boundaries by several, of which one rule's are its steps.
 *
 * The phases are those of the thread since its last boundary by any rule, each instant in that of the innermost span that
 * has one: they add up to that time, and those of all boundaries in a step to the step.
 */
struct rec_step {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u64 index; /* boundaries of the thread by this rule, with it; in a window of --steps but for the first: 0 */
	__u32 pid;
	__u32 rule; /* enum step_rule */
	__u32 tid;
	__u32 serial;                 /* one more than in the thread's boundary before it, by whatever rule */
	__u64 forward_ns;             /* of the time in PHASE_OTHER: forward, if this is the rule */
	__u64 phase_ns[PHASE__COUNT]; /* all 0: of the thread's first boundary */
};

#define SYSCALL_NUMBERS 1024 /* numbers below are told apart */
#define SYSCALL_UNKNOWN 0xffffffffu
#define SYSCALL_ERRORS  4096 /* results above its negative are errors; linux/err.h */

struct syscall_key {
	__u32 pid;
	__u32 number; /* or SYSCALL_UNKNOWN */
};

/* Calls that began and returned in the window. */
struct syscall_val {
	__u64 calls;
	__u64 errors; /* of them: those that returned one */
	__u64 total_ns;
	__u64 bytes;      /* read, written, sent or received; 0 of calls that return no such number */
	__u64 unfinished; /* threads that are in it as the window closes, not in calls */
};

struct rec_syscall {
	struct rec_hdr hdr;
	struct syscall_key key;
	struct syscall_val val;
};

struct file_key {
	__u32 pid;
	__u32 dev; /* of its file system: major << 20 | minor */
	__u64 inode;
};

enum file_flag {
	FILE_DIRECTORY = 1,     /* so many files that those of this directory are together */
	FILE_MOUNT_UNKNOWN = 2, /* the path begins at the root of its file system */
	FILE_DISK = 4, /* no file, but a disk itself, the key's device: what its file system keeps beside files */
};

/*
 * By calls that take a descriptor: read, write and their like, sendfile and copy_file_range (as reads of what they
 * read). From disk is what came into the page cache in a read or a page fault, with what the kernel reads ahead, or
 * passed it by (O_DIRECT).
 */
struct file_val {
	__u64 name; /* REC_NAME id of its path as the process saw it when it first used it; 0: not known */
	__u64 reads, writes;
	__u64 read_bytes, written_bytes;
	__u64 total_ns;   /* in reads and writes */
	__u64 disk_reads; /* of reads: those for which the disk was read */
	__u64 faults;     /* page faults of mapped files for which it was */
	__u64 disk_bytes;
	__u64 last_ns; /* when it was last used */
	__u32 flags;   /* enum file_flag */
	__u32 pad;
};

struct rec_file {
	struct rec_hdr hdr;
	struct file_key key;
	struct file_val val;
};

/*
 * By read and write. A DataLoader's iterator has a pipe of its own, which its workers write and no other's do. A message is a read
 * of 4 bytes: Python's multiprocessing reads the length first, and then what is so long. What lies between two messages of a pipe is
 * active time, unless the process read several ones of another pipe in a row meanwhile.
 */
struct pipe_val {
	__u64 writes;
	__u64 messages;
	__u64 first_ns; /* message; 0: none */
	__u64 last_ns;  /* message or write */
	__u64 active_ns;
	__u64 active_cnt; /* of messages, those that active time lay before */
	__u64 rows;       /* of others: for the kernel side alone */
};

struct rec_pipe {
	struct rec_hdr hdr;
	struct file_key key;
	struct pipe_val val;
};

struct rec_counter {
	struct rec_hdr hdr;
	__u64 value;
	char name[32];
};

struct rec_cost {
	struct rec_hdr hdr;
	__u64 hits;         /* probe hits in the targets */
	__u64 busiest_hits; /* of the target that paid most */
	__u64 hit_ns;    /* price of one hit on this machine: the trap, measured at start, and the program, sampled */
	__u64 attach_ns; /* from the first probe to the last armed */
	__u64 detach_ns;
	__u64 own_cpu_ns;         /* stepflame's CPU time while recording */
	__u64 own_rss_bytes;      /* its resident set */
	__u64 busiest_sampler_ns; /* in the sampler's programs, of that target */
	__u64 busiest_calls;      /* system calls of that target, counted by HITS_PER_SAMPLE */
	__u64 call_ns;            /* price of one of them, as that of a hit */
};

struct rec_note {
	struct rec_hdr hdr;
	__u32 bytes; /* length of text, not 0-terminated */
	__u32 pad;
	char text[]; /* UTF-8, padded to a multiple of 8 */
};

#endif
