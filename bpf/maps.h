/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps and knobs that the sources share, and the counters. Included by each source; the linker merges the
 * definitions.
 */
#ifndef STEPFLAME_BPF_MAPS_H
#define STEPFLAME_BPF_MAPS_H

#include "bpf/kernel.h"

#include "include/counters.h"
#include "include/gpu_records.h"
#include "include/ops.h"
#include "include/probes.h"
#include "include/records.h"

#define SPAN_DEPTH 32 /* keeps struct thread below two pages, the most that a task storage of Linux 7 takes */
#define SENT_NAMES 32
#define PHASE_ROOM 16 /* a power of two, for the verifier */
#define RULE_ROOM  16
#define AGG_ROWS   16384
#define NAMES_MAX  16384
#define RING_BYTES (1 << 20)
#define PROCS_MAX  4096

_Static_assert(PHASE__COUNT <= PHASE_ROOM, "make PHASE_ROOM larger");
_Static_assert(STEP__COUNT <= RULE_ROOM, "make RULE_ROOM larger");

/* The name being read, ready to be sent. */
struct name_buffer {
	u64 sent[SENT_NAMES]; /* names that user space knows, by their low bits: spares the look-up */
	struct rec_name name;
	char text[REC_NAME_MAX + 8];
};

/* The calls directly inside of a span that have ended: how many, and the last, which is one with the span if it is the only one. */
struct op_ended {
	u32 cnt;
	u32 row;    /* 1 + its row; 0: not counted */
	u64 merged; /* 0: its end was lost */
	u64 total_ns, self_ns;
	s64 self_bytes[OP_MEMORY__COUNT];
};

/* What the operator table needs of a span. */
struct op_span {
	u64 merged; /* name without the overload */
	u64 group;
	s64 sequence; /* for the timeline; -1 not known */
	s64 self_bytes[OP_MEMORY__COUNT], child_bytes[OP_MEMORY__COUNT];
	struct op_ended inside;
};

/* An interval that is open on a thread. */
struct span {
	u64 start_ns;
	u64 child_ns; /* time in the spans inside that have ended */
	u64 frame;    /* address of the return address of its native function; 0: not bound to a native frame */
	u64 token;    /* what its end is known by: generator, record handle, function */
	u64 name;
	u64 action;      /* name of the innermost action around it, 0 none */
	u64 op_child_ns; /* time in the operators, nodes and labels inside that have ended */
	u16 kind;        /* enum span_kind */
	/* enum label, of a SPAN_LABEL; of a SPAN_ACTION 1: it is an optimizer_step hook; of a SPAN_JIT 1: XLA compiled in it */
	u8 label;
	u8 phase;  /* enum phase: its own, or that around it */
	u16 outer; /* 1 + index of the innermost span around it that is no operator's; 0: none */
	u16 also;  /* enum fixed_name + 1 of a second row that gets the same duration; 0: none */
	struct op_span op;
};

/* Fetches of a DataLoader that may be those of an evaluation: bpf/pass.h. Loops: hashes, 0: none. */
struct pass {
	u64 loop;         /* whose fetches these are */
	u64 fetching;     /* the last that fetched; 0: it found no batch, or is not known */
	u64 trained;      /* whose batches the last backward, or optimizer's step, was for */
	u64 start_ns;     /* of the first fetch */
	u64 child_ns;     /* as in struct span */
	u64 before_ns[2]; /* of phase_ns at start_ns: PHASE_OTHER, PHASE_DATA */
	u32 fetches;
	u32 depth;  /* spans around */
	u32 trains; /* the thread had a backward, or an optimizer's step */
	u32 empty;  /* the last fetch found no batch */
};

/* The call of CUDA or NCCL that a thread is in. */
struct gpu_open {
	u64 frame;  /* address of its return address; 0: there is none */
	u64 caller; /* that return address: a frame that was left has another one there, sooner or later */
	u64 start_ns;
	u64 bytes;
	struct gpu_calls_key key;
	u32 row;       /* index in gpu_rows */
	u32 soft;      /* it may end unseen */
	u64 handle_at; /* where a kernel's handle will be; 0: nowhere */
	u64 handle_name;
};

/*
 * One thread. Programs of one thread never interleave, so this needs no lock; a per-CPU buffer would not do, since
 * uprobe programs can be preempted.
 */
struct thread {
	u64 now_ns; /* of the event at hand */
	u32 depth;
	u32 framed;      /* open spans that are bound to a native frame */
	u32 gap_depth;   /* depth at which gap_ns was taken */
	u32 gap_sampled; /* a sample was taken since gap_ns */
	u32 sampled;     /* by index of a span: it is to be told what is around it, when it ends */
	u32 around_kind, around_nested;
	u32 pad;
	u64 around; /* as around_kind, around_nested in struct rec_around: of the span that ended at this hit; 0: none */
	u64 gap_ns; /* end of the last data, optimizer or backward span: forward begins there; 0: unknown */
	u64 gap_child_ns;
	u64 gap_apart_ns; /* of zero_grad since gap_ns, which is no part of forward */
	u64 phase_since_ns;
	u8 phase;                 /* enum phase since then */
	u8 gap_phase;             /* the one in which gap_ns was taken */
	u8 evaluation;            /* 1 + spans around Lightning's evaluation loop; 0: not in it */
	u8 backward;              /* BACKWARD_: bpf/steps.h */
	u8 step_ended;            /* a span of --step-at has, and no boundary was made of it yet */
	u32 nvtx_epoch;           /* that of its NVTX ranges */
	u64 phase_ns[PHASE_ROOM]; /* from phases_from_ns to phase_since_ns */
	u64 gap_phase_ns;         /* of phase_ns[gap_phase] at gap_ns */
	u64 phases_from_ns;       /* the last step boundary that it made in this step_epoch; 0: none */
	u64 forward_ns;           /* struct rec_step's of the boundary at hand */
	u32 step_serial, step_epoch;
	u32 rule_steps[RULE_ROOM]; /* boundaries by each rule, in this step_epoch */
	u32 data_seen;             /* of its own DataLoader: bpf/steps.h */
	u64 sequence_at;           /* address of its word in at::sequence_number; 0: not known yet */
	u64 tstate; /* its PyThreadState, as seen when it held the GIL; torch's calls release it. 0: not seen yet */
	struct span spans[SPAN_DEPTH];
	struct pass pass;
	struct span derived; /* being made: programs' stacks are too small for it */
	struct gpu_open gpu;
	struct name_buffer names;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROCS_MAX);
	__type(key, u32);
	__type(value, struct proc);
} procs __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, AGG_ROWS);
	__type(key, struct agg_key);
	__type(value, struct agg_val);
} aggs __weak SEC(".maps");

/* Names that user space has been sent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NAMES_MAX);
	__type(key, u64);
	__type(value, u8);
} names __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FN_MAX);
	__type(key, u32);
	__type(value, struct probe_fn);
} fns __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FN_MAX);
	__type(key, u32);
	__type(value, struct py_call);
} py_calls __weak SEC(".maps");

/* JAX's jitted functions, of which one may be called once a step. */
struct jit_key {
	u64 name;
	u32 pid, pad;
};

struct jit_val {
	u64 calls, ns; /* without those in which XLA compiled */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct jit_key);
	__type(value, struct jit_val);
} jits __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NVTX_SITES_MAX);
	__type(key, u32);
	__type(value, struct nvtx_site);
} nvtx_sites __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CNT__COUNT);
	__type(key, u32);
	__type(value, u64);
} counters __weak SEC(".maps");

/* The operator table, in an array that the verifier inlines and user space maps. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OP_ROWS);
	__type(key, u32);
	__type(value, struct op_entry);
} op_rows __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OP_PROCS_MAX);
	__type(key, u32);
	__type(value, struct op_proc);
} op_procs __weak SEC(".maps");

/*
 * Empty: its one use is that a program with a tail call gets no private stack. From 6.13 on the kernel gives programs
 * of this type a stack per CPU, though another thread's uprobe can preempt this one there: 7.3 crashed on the values
 * spilled to it. So every uprobe program has a REFUSE_PRIVATE_STACK on some path that it hardly takes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} nothing __weak SEC(".maps");

#define REFUSE_PRIVATE_STACK(ctx) bpf_tail_call(ctx, &nothing, 0)

/* Knobs, set before load. */
extern const volatile __u64 fixed_names[FIXED_NAMES]; /* REC_NAME ids */
extern const volatile __u64 step_limit;               /* steps after which a process is done; 0: none */
extern const volatile __u64 step_at[2];               /* --step-at: REC_NAME ids, 0: none */
extern const volatile __u64 py_call_cnt;              /* elements of py_calls in use */
extern const volatile __u64 py_call_lengths;          /* bit n: a name in py_calls is n bytes long, modulo 64 */
extern const volatile __u64 op_schedule[OP_SCHEDULE__COUNT];
extern const volatile __u64 gpu_names[GPU_APIS]; /* of waits for the GPU: REC_NAME ids, by enum gpu_api */
extern const volatile __u32 want_step_times;     /* REC_STEP */
extern const volatile __u32 want_timeline, want_shapes, want_stacks, want_modules, want_gpu;
extern const volatile __u32 want_gpu_windows;  /* of CUPTI's, by the schedule */
extern const volatile __u32 cookies_by_place;  /* struct probe_place */
extern const volatile __u64 sample_period_ns;  /* of the timer */
extern const volatile __u64 wait_threshold_ns; /* a wait so long has a sample of its own */

/* Set by user space at run time. */
extern volatile __u32 pid_level;  /* of stepflame's pid namespace; 0 is the initial one */
extern volatile __u32 around_cnt; /* threads that have a span to tell of: mostly none */
extern volatile __u32 nvtx_epoch; /* ranges of an earlier one have lost their ends */

/*
 * Functions that are not inlined are global on purpose: the verifier checks each once, by its own arguments, instead of
 * once per path that leads to it. So they take pointers to map values (checked for NULL) and scalars only.
 */

static __always_inline void count_many(u32 id, u64 cnt)
{
	u64 *value = bpf_map_lookup_elem(&counters, &id);

	if (value)
		__sync_fetch_and_add(value, cnt);
}

static __always_inline void count(u32 id)
{
	count_many(id, 1);
}

/*
 * All bits set where a value (below 2^63) is not 0, without a branch: in a loop, the verifier follows each combination of
 * what branches did before.
 */
#define MASK_IF(value)                        \
	({                                    \
		s64 __v = -(s64)(value);      \
		asm volatile("" : "+r"(__v)); \
		(u64)(__v >> 63);             \
	})

/* A word of the target's memory, 0 when it cannot be read. */
static __always_inline u64 read_u64(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (const void *)address);
	return value;
}

/*
 * A task's number in stepflame's own pid namespace, which is not the initial one; 0 when it is not visible there.
 * Pointers are read as memory: at each that a program loads from a task itself, kernels before 6.19 go through the names
 * of all types when they verify it, which took 80 ms for all programs.
 */
static __always_inline u32 task_number(const struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	u32 level = pid_level;
	int nr = 0;

	if (!pid || BPF_CORE_READ(pid, level) < level)
		return 0;
	/* Not by BPF_CORE_READ: a relocation knows no variable index. */
	bpf_probe_read_kernel(&nr, sizeof(nr), (const char *)pid + NUMBERS_OFFSET + level * sizeof(struct upid));
	return nr;
}

/* The process and the thread of a task, as stepflame's own pid namespace numbers them; 0: not visible there. */
static __always_inline u32 task_pid(struct task_struct *task)
{
	return pid_level ? task_number(BPF_CORE_READ(task, group_leader)) : (u32)LOAD_HERE(task->tgid);
}

static __always_inline u32 task_tid(struct task_struct *task)
{
	return pid_level ? task_number(task) : (u32)LOAD_HERE(task->pid);
}

/* The id of a fixed name, 0 when there is no such name. */
static __always_inline u64 fixed_name(u64 name)
{
	return fixed_names[BOUND_INDEX(name, FIXED_NAMES)];
}

static __always_inline struct span *span__at(struct thread *t, u64 i)
{
	return &t->spans[BOUND_INDEX(i, SPAN_DEPTH)];
}

#endif
