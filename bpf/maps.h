/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps, settings and counters that the sources share. Each source includes this file; the
 * linker merges the definitions.
 */
#ifndef STEPFLAME_BPF_MAPS_H
#define STEPFLAME_BPF_MAPS_H

#include "bpf/kernel.h"

#include "include/counters.h"
#include "include/gpu_records.h"
#include "include/io_records.h"
#include "include/name_hash.h"
#include "include/ops.h"
#include "include/probes.h"
#include "include/records.h"

#define SPAN_DEPTH  32 /* keeps struct thread below two pages, the most that a task storage of Linux 7 takes */
#define PHASE_ROOM  16 /* a power of two, for the verifier */
#define RULE_ROOM   16
#define AGG_ROWS    16384
#define NAMES_MAX   32768
#define NAMES_CLOSE 4096 /* a power of two */
#define RING_BYTES  (1 << 20)
#define PROCS_MAX   4096

_Static_assert(PHASE__COUNT <= PHASE_ROOM, "make PHASE_ROOM larger");
_Static_assert(STEP__COUNT <= RULE_ROOM, "make RULE_ROOM larger");

/* The name being read, in the form of its record. */
struct name_buffer {
	struct rec_name name;
	char text[REC_NAME_MAX + 8];
};

/*
 * Calls directly inside a span that have ended: their number, and the last one, which merges with
 * the span if it is the only one.
 */
struct op_ended {
	u32 cnt;
	u32 row;    /* 1 + its row; 0: not counted */
	u64 merged; /* 0: its end was lost */
	u64 total_ns, self_ns;
	s64 self_bytes[OP_MEMORY__COUNT];
};

/* The part of a span for the operator table; all 0 without want_ops. */
struct op_span {
	u64 merged; /* name without the overload */
	u64 group;
	s64 sequence; /* for the timeline; -1: unknown */
	s64 self_bytes[OP_MEMORY__COUNT], child_bytes[OP_MEMORY__COUNT];
	struct op_ended inside;
};

/* A span that is open on a thread. */
struct span {
	u64 start_ns;
	u64 child_ns; /* time in nested spans that have ended */
	u64 frame;    /* address of the return address of its native function; 0: not bound to a native frame */
	u64 token;    /* identifies its end: generator, record handle, function */
	u64 name;
	u64 action;      /* name of the innermost action around it; 0: none */
	u64 op_child_ns; /* time in nested operators, nodes and labels that have ended */
	u16 kind;        /* enum span_kind */
	/*
	 * SPAN_LABEL: enum label. SPAN_ACTION: 1 for an optimizer_step hook. SPAN_JIT: 1 if XLA
	 * compiled in it
	 */
	u8 label;
	u8 phase;  /* enum phase: its own, or the one around it */
	u16 outer; /* 1 + index of the innermost non-operator span around it; 0: none */
	u16 also;  /* enum fixed_name + 1 of a second row that counts the same duration; 0: none */
	struct op_span op;
};

/*
 * A candidate evaluation: fetches from a DataLoader without training (bpf/pass.h). A loop is a
 * hash; 0: none.
 */
struct pass {
	u64 loop;         /* the loop that makes these fetches */
	u64 fetching;     /* the loop of the last fetch; 0: unknown, or that fetch found no batch */
	u64 trained;      /* the loop whose batches the last backward or optimizer step used */
	u64 start_ns;     /* of the first fetch */
	u64 child_ns;     /* as in struct span */
	u64 before_ns[2]; /* phase_ns of PHASE_OTHER and PHASE_DATA at start_ns */
	u32 fetches;
	u32 depth;     /* spans around the fetches */
	u32 trains;    /* the thread has made a backward or an optimizer step */
	u16 empty;     /* the last fetch found no batch, */
	u16 ended;     /* and it was of the loop that trains */
	u32 data_seen; /* struct thread's, before the first fetch, */
	u32 in_hand;   /* and this */
};

/* The open CUDA or NCCL call of a thread. */
struct gpu_open {
	u64 frame;  /* address of its return address; 0: no open call */
	u64 caller; /* that return address: once the frame is gone, something else overwrites it sooner or later */
	u64 start_ns;
	u64 bytes;
	struct gpu_calls_key key;
	u32 row;       /* index in gpu_rows */
	u32 soft;      /* it may end without a probe hit */
	u64 handle_at; /* where the call will store a kernel's handle; 0: nowhere */
	u64 handle_name;
};

/*
 * The state of one thread. The programs of one thread never interleave, so this needs no lock. A
 * per-CPU buffer would need one, since uprobe programs can be preempted.
 */
struct thread {
	u64 now_ns;    /* time of the current event */
	u64 before_ns; /* of the one before */
	u32 depth;
	u32 framed;      /* open spans that are bound to a native frame */
	u32 gap_depth;   /* depth at gap_ns */
	u32 gap_sampled; /* the thread has a sample since gap_ns */
	u32 sampled;     /* bit per span index: emit REC_AROUND when that span ends */
	u32 around_kind, around_nested;
	u32 rests;  /* proc.rests at its last event */
	u64 around; /* for struct rec_around, of the span that ended at this hit: name; 0: none */
	u64 gap_ns; /* start of the candidate forward interval: last data, optimizer or backward end; 0: unknown */
	u64 gap_child_ns;
	u64 gap_apart_ns; /* time in zero_grad since gap_ns, which does not belong to forward */
	u64 phase_since_ns;
	u8 phase;                 /* enum phase since then */
	u8 gap_phase;             /* enum phase at gap_ns */
	u8 evaluation;            /* 1 + number of spans around Lightning's evaluation loop; 0: not in the loop */
	u8 backward;              /* BACKWARD_: bpf/steps.h */
	u8 step_ended;            /* a span of --step-at has ended, and its boundary is still to be made */
	u8 was_empty;             /* its DataLoader has been: in_hand is known */
	u32 nvtx_epoch;           /* the epoch of its NVTX ranges */
	u64 phase_ns[PHASE_ROOM]; /* from phases_from_ns to phase_since_ns */
	u64 gap_phase_ns;         /* phase_ns[gap_phase] at gap_ns */
	u64 phases_from_ns;       /* its last step boundary in this step_epoch; 0: none */
	u64 forward_ns;           /* for struct rec_step at the current boundary */
	u32 step_serial, step_epoch;
	u32 rule_steps[RULE_ROOM]; /* boundaries by each rule, in this step_epoch */
	u32 data_seen;             /* state of its own DataLoader: bpf/steps.h */
	u32 in_hand;               /* batches since its DataLoader was empty, less the steps that one of them began */
	u32 left;                  /* of a DataLoader that is empty: batches that it fetched ahead */
	u32 updates;               /* steps of optimizers since one ended a step */
	u64 update_place;          /* where the optimizer steps whose step ends a step: loop__of; 0: not known */
	u16 update_looks;          /* its last steps there, one behind the other, as far as they were looked at */
	u16 updates_elsewhere;     /* since then */
	u32 repeats;               /* it trains again and again with what it has: UPDATES_OF_BATCH */
	u32 fetched;               /* batches before it was known that it trains */
	u64 sequence_at;           /* address of its at::sequence_number; 0: unknown yet */
	u64 tstate; /* its PyThreadState, as seen while it held the GIL (torch releases the GIL); 0: not seen yet */
	struct span spans[SPAN_DEPTH];
	struct pass pass;
	struct span derived; /* scratch for a derived span: the BPF stack is too small */
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

/* Names: 1: emitted; 0: about to be. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NAMES_MAX);
	__type(key, u64);
	__type(value, u8);
} names __weak SEC(".maps");

/* The emitted ones of the last events, by their low bits: saves the look-up in `names`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAMES_CLOSE);
	__type(key, u32);
	__type(value, u64);
} names_close __weak SEC(".maps");

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

/* JAX's jitted functions, one of which may run once per step. */
struct jit_key {
	u64 name;
	u32 pid, pad;
};

struct jit_val {
	u64 calls, ns; /* without calls in which XLA compiled */
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
 * Stays empty: it exists because the kernel gives no private stack to a program with a tail call.
 * From 6.13 on the kernel gives programs of this type one stack per CPU, although another thread's
 * uprobe can preempt this one there: 7.3 crashed on the values spilled to it. So every uprobe
 * program has a REFUSE_PRIVATE_STACK on a rarely taken path.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} no_programs __weak SEC(".maps");

#define REFUSE_PRIVATE_STACK(ctx) bpf_tail_call(ctx, &no_programs, 0)

/* Settings that user space writes before it loads the programs. */
extern const volatile __u64 fixed_names[FIXED_NAMES]; /* REC_NAME ids */
extern const volatile __u64 step_limit;               /* steps after which a process is done; 0: none */
extern const volatile __u64 step_at[2];               /* --step-at: REC_NAME ids, 0: none */
extern const volatile __u64 py_call_cnt;              /* elements of py_calls in use */
extern const volatile __u64 py_call_lengths;          /* bit n: a name in py_calls is n bytes long, modulo 64 */
extern const volatile __u64 op_schedule[OP_SCHEDULE__COUNT];
extern const volatile __u64 gpu_names[GPU_APIS]; /* REC_NAME ids of waits for the GPU, by enum gpu_api */
extern const volatile __u32 want_step_times;     /* REC_STEP */
extern const volatile __u32 want_ops;            /* operators are recorded; else span.op stays 0 */
extern const volatile __u32 want_timeline, want_shapes, want_stacks, want_modules, want_gpu;
extern const volatile __u32 want_gpu_windows;  /* CUPTI windows by the schedule */
extern const volatile __u32 cookies_by_place;  /* struct probe_place */
extern const volatile __u32 want_syscalls;     /* each system call counts */
extern const volatile __u64 sample_period_ns;  /* of the timer */
extern const volatile __u64 wait_threshold_ns; /* a wait at least this long gets its own sample */

/* Variables that change at run time. */
extern volatile __u32 pid_level;  /* level of stepflame's pid namespace; 0: the initial one */
extern volatile __u64 pid_ns;     /* its address: others have the same level */
extern volatile __u32 around_cnt; /* threads with a REC_AROUND to emit: usually 0 */
extern volatile __u32 nvtx_epoch; /* ranges of an earlier epoch have lost their ends */

/*
 * Functions that are not inlined are global on purpose: the verifier checks a global function once,
 * by its arguments, not once per path that calls it. So they take only scalars and pointers to map
 * values, which they check for NULL.
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
 * All bits set if a value (below 2^63) is not 0. It has no branch, since in a loop the verifier
 * follows every combination of earlier branches.
 */
#define MASK_IF(value)                        \
	({                                    \
		s64 __v = -(s64)(value);      \
		asm volatile("" : "+r"(__v)); \
		(u64)(__v >> 63);             \
	})

/* A word of the target's memory; 0: unreadable. */
static __always_inline u64 read_u64(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (const void *)address);
	return value;
}

/* What a namespace at `level` numbers a pid. Not BPF_CORE_READ: a relocation cannot contain a variable index. */
static __always_inline struct upid pid__number(const struct pid *pid, u32 level)
{
	struct upid number = {};

	bpf_probe_read_kernel(&number, sizeof(number), (const char *)pid + NUMBERS_OFFSET + level * sizeof(number));
	return number;
}

/*
 * The number of a struct pid in stepflame's own pid namespace, when that is not the initial one; 0:
 * not visible there.
 */
__weak __noinline u32 pid__number_here(u64 address)
{
	const struct pid *pid = (const struct pid *)address;
	u32 level = pid_level;
	struct upid number;

	if (!pid || BPF_CORE_READ(pid, level) < level)
		return 0;
	number = pid__number(pid, level);
	return number.ns == (void *)pid_ns ? number.nr : 0;
}

/*
 * Likewise, of a task. It reads the pointer as plain memory, since for each direct load of a pointer
 * from a task the verifier of kernels before 6.19 scans the names of all types: 80 ms for all programs.
 */
static __always_inline u32 task_number(const struct task_struct *task)
{
	return pid__number_here((u64)BPF_CORE_READ(task, thread_pid));
}

/*
 * The process and the thread of a task, as stepflame's own pid namespace numbers them; 0: not
 * visible there.
 */
static __always_inline u32 task_pid(struct task_struct *task)
{
	return pid_level ? task_number(BPF_CORE_READ(task, group_leader)) : (u32)LOAD_HERE(task->tgid);
}

static __always_inline u32 task_tid(struct task_struct *task)
{
	return pid_level ? task_number(task) : (u32)LOAD_HERE(task->pid);
}

/*
 * Is it one of the autograd engine's own threads ("pt_autograd_0"), which work for a backward of
 * another thread?
 */
static __always_inline bool task__is_engine(struct task_struct *task)
{
	u64 comm[2] = {};

	BPF_CORE_READ_INTO((char(*)[16])comm, task, comm);
	return comm[0] == WORD8("pt_autog");
}

/* The id of a fixed name; 0: no such name. */
static __always_inline u64 fixed_name(u64 name)
{
	return fixed_names[BOUND_INDEX(name, FIXED_NAMES)];
}

static __always_inline struct span *span__at(struct thread *t, u64 i)
{
	return &t->spans[BOUND_INDEX(i, SPAN_DEPTH)];
}

#endif
