/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a probe means, carried in its cookie; and what the BPF side knows of each traced process.
 */
#ifndef STEPFLAME_INCLUDE_PROBES_H
#define STEPFLAME_INCLUDE_PROBES_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#include "include/python.h"

enum probe_event {
	PROBE_NONE = 0,
	/*
	 * builtin_next(self, args, nargs): a Lightning Profiler.profile generator starts or stops, or Lightning's
	 * CombinedLoader fetches. Its "function" is how far below its frame that of the iterator's function lies which
	 * it calls, 0: unknown.
	 */
	PROBE_PY_NEXT,
	PROBE_PY_THROW,     /* gen_throw(gen, ...): an action stops by an exception */
	PROBE_PY_ITER_EXIT, /* exit sites of slot_tp_iternext(self), which is CombinedLoader's: a fetch ends */
	PROBE_LABEL,        /* record_function_enter_new(sret, name, args), or in it as COOKIE_NAME_IN says */
	PROBE_LABEL_HANDLE, /* in it, before it calls RecordFunction::RecordFunction(this, scope) */
	PROBE_LABEL_END,    /* at::RecordFunction::end(this), or before its call in record_function_exit_new */
	PROBE_FN,           /* entry of any other native function: Engine::execute, --action LIB:SYMBOL */
	PROBE_FN_EXIT,
	PROBE_PY_CALL,      /* _PyEval_EvalFrameDefault(tstate, frame, throwflag): --action FILE.py:QUALNAME */
	PROBE_PY_CALL_EXIT, /* in it, before the call that is its last */
	/* PyTorchStreamWriter: setup, with COOKIE_BEGINS; its exit sites, with COOKIE_LASTS; those of writeEndOfFile */
	PROBE_SAVE,
	PROBE_GC, /* invoke_gc_callback(..., phase, generation, ...): CPython is about to collect garbage, or has done so */
	/*
	 * Of --exact; the depth is signed, and may be that of a frame that has been left.
	 * CALL: _PyEval_EvalFrameDefault is entered; the Python frame is its first or second argument.
	 */
	PROBE_EXACT_CALL,
	PROBE_EXACT_RETURN, /* in it, before its last call; or behind a call of it */
	PROBE_EXACT_CLEAR,  /* the Python frame that is the first or second argument is cleared */
	/* Of bpf/gpu.bpf.c; the "function" is an enum gpu_api, of HANDLE an enum gpu_handle_from. */
	PROBE_GPU_CALL,
	PROBE_GPU_RETURN,
	PROBE_GPU_HANDLE, /* a function that hands out a kernel's handle */
	PROBE_GPU_HANDLE_RETURN,
	PROBE_NVTX, /* a range is pushed or popped; the "function" is the index of its struct nvtx_site */
	/* Of JAX. JIT: PjitFunction's tp_vectorcall(callable, ...); the "function" is its struct probe_fn. */
	PROBE_JIT,
	PROBE_JIT_EXIT,
	/* TraceMe's __init__ and __exit__, as nanobind calls them: (capture, PyObject **args, ...), args[0]: self */
	PROBE_ANNOTATION,
	PROBE_ANNOTATION_END,
	PROBE_TEST, /* stepflame's own function, for the self-test and the price of a hit */
};

#define COOKIE_DEPTH_UNKNOWN 0xffff
#define COOKIE_OLD_STRING    1 /* flag of PROBE_LABEL: std::string before the C++11 ABI */
#define COOKIE_LATE_FETCHES  1 /* flag of PROBE_PY_NEXT: where fetches end is armed later, see struct proc */
#define COOKIE_BEGINS        1 /* flag of PROBE_SAVE */
#define COOKIE_LASTS         2 /* flag of PROBE_SAVE */
#define COOKIE_FRAME_SECOND  1 /* flag of PROBE_EXACT_*: the Python frame is the second argument, not the first */
#define COOKIE_SOFT_END      1 /* flag of PROBE_GPU_CALL: not each path to a return passes a probe */
#define COOKIE_NO_END        2 /* flag of PROBE_GPU_CALL: none does */
#define COOKIE_ENDS_WAITS    1 /* flag of PROBE_GPU_RETURN of no function, which is of several: waits are among them */
#define COOKIE_PHASE_FIRST   1 /* flag of PROBE_GC: `phase` is the first argument, not the second; then `generation` */

/*
 * Registers that a call leaves as they are. A PROBE_LABEL with one in its flags sits where PROBE_LABEL_HANDLE would,
 * and finds the name there: one hit does for both.
 */
enum saved_register { SAVED_NONE = 0, SAVED_RBX, SAVED_RBP, SAVED_R12, SAVED_R13, SAVED_R14, SAVED_R15 };
#define COOKIE_NAME_IN(saved)    ((saved) << 1)
#define COOKIE_NAME_SAVED(flags) ((flags) >> 1 & 7)

/*
 * Cookie: event in bits 0-7, flags in 8-15, depth (bytes from the stack pointer to the return address) in 16-31,
 * function in 32-63.
 */
#define COOKIE(event, flags, depth, fn) \
	((__u64)(event) | (__u64)(flags) << 8 | ((__u64)(depth)&0xffff) << 16 | (__u64)(fn) << 32)
#define COOKIE_EVENT(c) ((__u32)(c)&0xff)
#define COOKIE_FLAGS(c) ((__u32)(c) >> 8 & 0xff)
#define COOKIE_DEPTH(c) ((__u32)(c) >> 16)
#define COOKIE_FN(c)    ((__u32)((c) >> 32))

/*
 * Where probes have no cookies of their own, but a link of many has one (user/session/trace_events.h): the file's address
 * less its offset, a multiple of 4096, and a number for the rest of the key of probe_cookies.
 */
struct probe_place {
	__u64 list; /* the number; below PROBE_LISTS */
	__u64 offset;
};

#define PROBE_LISTS     4096
#define COOKIE_NONE     (~(__u64)0) /* there is no probe of ours */

#define HITS_PER_SAMPLE 64  /* one hit, and one system call, in so many has its program timed */
#define FN_MAX          128 /* functions with a span: those of user/session/natives.c, and one per --action */

struct probe_fn {
	__u64 name; /* REC_NAME id */
	__u32 kind; /* enum span_kind */
	__u32 pad;
};

/* Functions of NVTX's, whose pointer code reads at the place of a PROBE_NVTX. */
enum nvtx_call {
	NVTX_PUSH_A,
	NVTX_PUSH_W,
	NVTX_PUSH_EX,
	NVTX_POP,
	NVTX_DOMAIN_PUSH_EX,
	NVTX_DOMAIN_POP,
	NVTX__COUNT,
};

/* Where a value is found at a probe: base + disp, or the word there. Registers are numbered as instructions do, %rax 0. */
enum nvtx_base { NVTX_BASE_SITE = 16 /* the address of the probe */, NVTX_BASE_NONE };
struct nvtx_value {
	__u8 base; /* a register, or enum nvtx_base */
	__u8 loads;
	__u16 pad;
	__s32 disp;
};

struct nvtx_site {
	__u8 call;    /* enum nvtx_call */
	__u8 pointer; /* the register that holds the pointer, or NVTX_BASE_NONE */
	/*
	 * Where the pointer is NULL compilers leave out the checks of calls that follow at once: then the site behind this
	 * one in the map is such a call, which has no probe of its own.
	 */
	__u8 more;
	__u8 pad;
	/*
	 * At the first call the pointer leads to a function that, when it has looked for a tool, comes to the same place
	 * again: at the address of the probe + init. That is no call. 0: it does not.
	 */
	__s32 init;
	struct nvtx_value argument[2];
};

#define NVTX_SITES_MAX 1024 /* of a recording, in all files */

/* A Python function that --action names, by name hashes of what its code object holds. */
struct py_call {
	__u64 name;    /* of co_name */
	__u64 file[4]; /* of the end of co_filename, by the width of its characters shifted right: 1, 2, 4 bytes */
	__u32 file_chars;
	__u32 fn;   /* its struct probe_fn */
	__u64 seen; /* calls that it was known by */
};

/* Names that BPF gives to spans by itself; user space interns the texts and passes their ids. */
#define STEPFLAME_FIXED_NAMES(X)                                    \
	X(TRAIN_NEXT, "[_TrainingEpochLoop].train_dataloader_next") \
	X(VAL_NEXT, "[_EvaluationLoop].val_next")                   \
	X(TEST_NEXT, "[_EvaluationLoop].test_next")                 \
	X(PREDICT_NEXT, "[_PredictionLoop].predict_next")           \
	X(OPTIMIZER_STEP, "optimizer_step")                         \
	X(FORWARD, "forward")                                       \
	X(BACKWARD, "backward")                                     \
	X(RUN_TRAINING_BATCH, "run_training_batch")                 \
	X(GC_0, "gc generation 0")                                  \
	X(GC_1, "gc generation 1")                                  \
	X(GC_2, "gc generation 2")                                  \
	X(VALIDATION, "validation")

enum fixed_name {
#define X(id, text) NAME_##id,
	STEPFLAME_FIXED_NAMES(X)
#undef X
		NAME__COUNT,
};

#define FIXED_NAMES 16 /* room for them, a power of two; the rest is 0 */
_Static_assert(NAME__COUNT <= FIXED_NAMES, "make FIXED_NAMES larger");

/* What a process paid for being watched, since its fork. */
struct proc_paid {
	__u64 hits;             /* of its probes */
	__u64 sampled;          /* hits whose program was timed: one in 64 */
	__u64 sampled_ns;       /* in all of them */
	__u64 sampler_ns;       /* in the sampler's programs */
	__u64 calls_sampled;    /* system calls whose programs were timed: of each thread one in 64 */
	__u64 calls_sampled_ns; /* in all of them */
};

struct proc_landmarks {
	__u64 idle_hits;    /* of PY_NEXT and PY_ITER_EXIT that were no landmark */
	__u64 profile_code; /* code object of Lightning's Profiler.profile, once seen */
	__u64 loader_type;  /* Lightning's CombinedLoader, once seen */
	__u32 fetches;      /* late PROBE_PY_ITER_EXIT are armed: fetches can be timed */
	__u32 pad;
};

struct proc_steps {
	__u32 rule;               /* enum step_rule that holds: the best so far, and some time seen */
	__u32 seen_rule;          /* the best that was seen, though it may not hold yet */
	__u32 data_seen;          /* of the DataLoader: bpf/steps.h */
	__u32 backwards, batches; /* of those that may be steps, STEP_PATIENCE at most */
	__u32 pad;
	__u64 cnt;             /* of the thread with most, in the window, by rule or seen_rule */
	__u64 boundaries;      /* step boundaries seen, by rules that held */
	__u64 optimizer;       /* name id of the first optimizer whose step was seen */
	__u64 backward_action; /* what Engine::execute was last called in, or its own name */
};

struct proc_jit {
	__u64 name;          /* id of the jitted function whose calls are steps; 0: none yet */
	__u64 ns;            /* in calls of such functions that did not compile */
	__u32 calls, others; /* those calls; calls of others since one of `name` */
};

/* What the calls of a process come to, as in struct rec_gpu_step. */
struct gpu_sums {
	__u64 launches, copies, copied_bytes, api_ns, sync_ns;
};

struct proc_gpu {
	__u64 from_ns;                /* the boundary up to which `before` goes; 0: none in this window */
	__u64 window_ns;              /* when the steps of a window of CUPTI's began; 0: in none */
	__u32 warm;                   /* the warm-up of the next one was told */
	__u32 emits;                  /* each call of CUDA is emitted */
	struct gpu_sums sums, before; /* since the window opened, and up to the last boundary */
};

struct proc_nvtx {
	__u64 hits;
};

struct proc_io {
	__u64 last_pipe; /* inode of that of which it read a message last */
	__u64 pipe_rows; /* messages that it read of the same pipe as the one before */
};

struct proc_ops {
	__u32 slot; /* 1 + its struct op_proc; 0: its operators are not recorded */
	__u32 pad;
};

/* One traced process. Key of its map: the pid as stepflame sees it. */
struct proc {
	struct py_process py; /* py.layout.minor == 0: not a Python whose layout is known */
	__u32 role;           /* enum target_role */
	__u32 window;         /* enum proc_window */
	__u32 ended;          /* it has: nothing more is counted */
	__u32 step_epoch;     /* boundaries are counted anew when it changes */
	__u32 gpu_window;     /* windows of CUPTI's that have ended, by which user space knows them */
	__u32 pad;
	__u64 window_start_ns, window_end_ns; /* end 0: not yet */
	__u64 forked_ns; /* in its parent's window: from then on its calls and samples count; else 0 */
	struct proc_paid paid;
	/* What sources and step rules know of the program that runs: fork and exec zero all of it, and only this. */
	struct proc_landmarks landmarks;
	struct proc_steps steps;
	struct proc_jit jit;
	struct proc_gpu gpu;
	struct proc_nvtx nvtx;
	struct proc_io io;
	struct proc_ops ops;
};

#define PROC_IDENTITY_BYTES offsetof(struct proc, landmarks)

enum proc_window {
	WINDOW_CLOSED = 0, /* probes come or go: events are ignored */
	WINDOW_OPEN,       /* spans count that begin after window_start_ns */
	WINDOW_WAITING,    /* opens at the next step boundary */
	WINDOW_DONE,       /* the steps asked for have been seen: events are ignored */
};

/* A CPU's timer has another period every now and then, and begins it anew. */
struct timer_spell {
	__u64 since_ns;
	__u64 period_ns;
	__u64 before_ns; /* the period before; 0: none */
};

/* What the program sample_threads does with each thread. */
enum thread_visit {
	VISIT_OPEN,  /* the window opens: who waits does so from now on */
	VISIT_CUT,   /* a wait so far is a sample, and goes on */
	VISIT_CLOSE, /* the window is over: a wait so far is a sample */
};

enum proc_command_what {
	COMMAND_PYTHON,    /* sets py */
	COMMAND_FETCHES,   /* sets fetches */
	COMMAND_OPEN,      /* opens the window at start_ns, or at the next boundary when `wait` */
	COMMAND_CLOSE,     /* closes it, unless it is done */
	COMMAND_OPERATORS, /* sets op_slot */
	COMMAND_GPU,       /* sets gpu_tell to `wait` */
	COMMAND_FORGET,    /* removes a process that has ended; not another one that has its number by now */
};

/* Rows of --exact: as struct rec_calls has them. */
struct call_key {
	__u32 pid;
	__u32 pad;
	__u64 code; /* REC_CODE id */
	__u64 path; /* REC_PATH id, 0 none */
};

struct call_val {
	__u64 calls;
	__u64 primitive_calls;
	__u64 self_ns;
	__u64 total_ns; /* of the primitive calls */
};

/* What user space changes of a process: the context of the program `control`. */
struct proc_command {
	__u32 what; /* enum proc_command_what */
	__u32 pid;
	__u32 role; /* enum target_role */
	__u32 wait;
	__u32 op_slot;
	__u32 pad;
	__u64 start_ns;
	struct py_process py;
};

#endif
