/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a probe means, encoded in its cookie; and the state that BPF keeps of each traced process.
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
	 * builtin_next(self, args, nargs): a Lightning Profiler.profile generator starts or stops,
	 * or Lightning's CombinedLoader fetches. The cookie's "function" is the distance in bytes
	 * from this frame down to the frame of the iterator's function that it calls; 0: unknown.
	 */
	PROBE_PY_NEXT,
	PROBE_PY_THROW,     /* gen_throw(gen, ...): an exception stops an action */
	PROBE_PY_ITER_EXIT, /* exit sites of slot_tp_iternext(self), CombinedLoader's __next__: a fetch ends */
	PROBE_LABEL,        /* record_function_enter_new(sret, name, args), or a place inside it: COOKIE_NAME_IN */
	PROBE_LABEL_HANDLE, /* inside that function, before it calls RecordFunction::RecordFunction(this, scope) */
	PROBE_LABEL_END,    /* at::RecordFunction::end(this), or before record_function_exit_new calls it */
	PROBE_FN,           /* entry of any other native function: Engine::execute, --action LIB:SYMBOL */
	PROBE_FN_EXIT,
	PROBE_PY_CALL,      /* _PyEval_EvalFrameDefault(tstate, frame, throwflag): --action FILE.py:QUALNAME */
	PROBE_PY_CALL_EXIT, /* inside that function, before its last call */
	/*
	 * PyTorchStreamWriter: setup (COOKIE_BEGINS), exit sites of setup (COOKIE_LASTS) and of
	 * writeEndOfFile
	 */
	PROBE_SAVE,
	PROBE_GC,       /* invoke_gc_callback(..., phase, generation, ...): before and after a garbage collection */
	PROBE_CODE_END, /* code_dealloc(code): a code object ends */
	/*
	 * For --exact; the depth is signed, since the probed function may have left its frame
	 * already. CALL: entry of _PyEval_EvalFrameDefault; the Python frame is its first or second
	 * argument.
	 */
	PROBE_EXACT_CALL,
	PROBE_EXACT_RETURN, /* inside that function, before its last call; or after a call to it */
	PROBE_EXACT_CLEAR,  /* the interpreter clears the Python frame in the first or second argument */
	/*
	 * For bpf/gpu.bpf.c; the "function" is an enum gpu_api, for HANDLE an enum gpu_handle_from.
	 */
	PROBE_GPU_CALL,
	PROBE_GPU_RETURN,
	PROBE_GPU_HANDLE, /* a function that returns a kernel's handle */
	PROBE_GPU_HANDLE_RETURN,
	PROBE_NVTX, /* the program pushes or pops a range; the "function" is the index of the struct nvtx_site */
	/*
	 * For JAX. JIT: PjitFunction's tp_vectorcall(callable, ...); the "function" is the index of
	 * its struct probe_fn.
	 */
	PROBE_JIT,
	PROBE_JIT_EXIT,
	/*
	 * TraceMe's __init__ and __exit__, as nanobind calls them: (capture, PyObject **args, ...),
	 * args[0]: self
	 */
	PROBE_ANNOTATION,
	PROBE_ANNOTATION_END,
	PROBE_TEST, /* stepflame's own function, for the self-test and to measure the cost of a hit */
};

#define COOKIE_DEPTH_UNKNOWN 0xffff
#define COOKIE_OLD_STRING    1 /* flag of PROBE_LABEL: std::string before the C++11 ABI */
#define COOKIE_LATE_FETCHES  1 /* flag of PROBE_PY_NEXT: probes at ends of fetches attach later, see struct proc */
#define COOKIE_BEGINS        1 /* flag of PROBE_SAVE */
#define COOKIE_LASTS         2 /* flag of PROBE_SAVE */
#define COOKIE_FRAME_SECOND  1 /* flag of PROBE_EXACT_*: the Python frame is the second argument, not the first */
#define COOKIE_SOFT_END      1 /* flag of PROBE_GPU_CALL: some paths to a return pass no probe */
#define COOKIE_NO_END        2 /* flag of PROBE_GPU_CALL: no path to a return passes a probe */
#define COOKIE_ENDS_WAITS    1 /* flag of PROBE_GPU_RETURN that several functions share: some are waits */
#define COOKIE_PHASE_FIRST   1 /* flag of PROBE_GC: the first arguments are `phase` and `generation` */

/*
 * Callee-saved registers. A PROBE_LABEL with one of them in its flags sits where PROBE_LABEL_HANDLE
 * would, and reads the name from that register: one hit replaces two.
 */
enum saved_register { SAVED_NONE = 0, SAVED_RBX, SAVED_RBP, SAVED_R12, SAVED_R13, SAVED_R14, SAVED_R15 };
#define COOKIE_NAME_IN(saved)    ((saved) << 1)
#define COOKIE_NAME_SAVED(flags) ((flags) >> 1 & 7)

/*
 * Cookie: event in bits 0-7, flags in 8-15, depth (bytes from the stack pointer to the return
 * address) in 16-31, function in 32-63.
 */
#define COOKIE(event, flags, depth, fn) \
	((__u64)(event) | (__u64)(flags) << 8 | ((__u64)(depth)&0xffff) << 16 | (__u64)(fn) << 32)
#define COOKIE_EVENT(c) ((__u32)(c)&0xff)
#define COOKIE_FLAGS(c) ((__u32)(c) >> 8 & 0xff)
#define COOKIE_DEPTH(c) ((__u32)(c) >> 16)
#define COOKIE_FN(c)    ((__u32)((c) >> 32))

/*
 * Key of probe_cookies, for links of many probes that share one cookie
 * (user/session/attach.c). That cookie is the file's address less its offset, a multiple of
 * 4096, plus the number of the probe list.
 */
struct probe_place {
	__u64 list; /* number of the probe list; below PROBE_LISTS */
	__u64 offset;
};

#define PROBE_LISTS     4096
#define COOKIE_NONE     (~(__u64)0) /* this is not one of our probes */

#define HITS_PER_SAMPLE 64    /* BPF times its program at one hit, and one system call, in so many */
#define HIT_AWAY_NS     20000 /* after so long away from a probe, a thread's code is far from the kernel's */
#define FN_MAX          128   /* functions with a span: those of user/session/sources/natives.c, and one per --action */

struct probe_fn {
	__u64 name; /* REC_NAME id */
	__u32 kind; /* enum span_kind */
	__u32 pad;
};

/* NVTX functions; the code at a PROBE_NVTX has loaded a pointer to one of them. */
enum nvtx_call {
	NVTX_PUSH_A,
	NVTX_PUSH_W,
	NVTX_PUSH_EX,
	NVTX_POP,
	NVTX_DOMAIN_PUSH_EX,
	NVTX_DOMAIN_POP,
	NVTX__COUNT,
};

/*
 * How to find a value at a probe: base + disp, or the word there. Registers have their x86
 * encoding, %rax is 0.
 */
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
	 * When the pointer is NULL, compiled code skips the checks of the calls that follow at
	 * once: then the next site in the map is such a call, and has no probe of its own.
	 */
	__u8 more;
	__u8 pad;
	/*
	 * At the first call the pointer leads to an initialiser that looks for a tool and then
	 * comes back to this place, at the address of the probe + init: that hit is not a call. 0:
	 * the initialiser does not come back here.
	 */
	__s32 init;
	struct nvtx_value argument[2];
};

#define NVTX_SITES_MAX 1024 /* per recording, over all files */

/* A Python function that --action names, identified by hashes of the names in its code object. */
struct py_call {
	__u64 name;    /* of co_name */
	__u64 file[4]; /* of the end of co_filename; the index is the width of its characters (1, 2, 4 bytes) >> 1 */
	__u32 file_chars;
	__u32 fn;   /* its struct probe_fn */
	__u64 seen; /* calls that matched */
};

/* Names of spans that BPF itself creates; user space interns the texts and passes their ids. */
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
	X(VALIDATION, "validation")                                 \
	X(OTHER, "(other labels)")

enum fixed_name {
#define X(id, text) NAME_##id,
	STEPFLAME_FIXED_NAMES(X)
#undef X
		NAME__COUNT,
};

#define FIXED_NAMES 16 /* room for enum fixed_name, a power of two; the rest is 0 */
_Static_assert(NAME__COUNT <= FIXED_NAMES, "make FIXED_NAMES larger");

/*
 * Names that the program makes up. Each kind has room of its own in a process, so that a flood of
 * one kind, such as a label with a number in it, leaves the others theirs.
 */
enum name_kind {
	NAMES_LANDMARKS, /* labels that torch sets, except ProfilerStep#N; actions that Lightning sets */
	NAMES_LABELS,    /* other record_function labels, and JAX's annotations */
	NAMES_RANGES,    /* NVTX */
	NAMES_ACTIONS,   /* other actions */
	NAMES_JIT,
	NAMES__KINDS,
	NAMES_ROOM = 8, /* a power of two: BOUND_INDEX */
};

/* How much of the shared tables a process has filled since its fork. */
struct proc_room {
	__u32 names[NAMES_ROOM]; /* by kind */
	__u32 rows;              /* of aggs */
	__u32 files;             /* of file_rows */
	__u32 pad;
};

/* What tracing has cost a process since its fork. */
struct proc_cost {
	__u64 hits;             /* hits of its probes */
	__u64 ticks;            /* of these, of the program `tick`, which takes next to nothing */
	__u64 sampled;          /* hits whose program was timed: one in 64 */
	__u64 sampled_ns;       /* in all sampled hits */
	__u64 sampled_away_ns;  /* since the hit before on the same thread, HIT_AWAY_NS at most, of all sampled hits */
	__u64 sampler_ns;       /* in the sampler's programs */
	__u64 calls_sampled;    /* system calls whose programs were timed: one in 64 of each thread */
	__u64 calls_sampled_ns; /* in all sampled calls */
};

/* While a process tells of each code object that ends, what BPF knows of the others stays true. */
struct proc_codes {
	__u64 told_since_ns; /* 0: they end unseen */
	__u64 ended;         /* of which it told */
};

struct proc_landmarks {
	__u64 idle_hits;    /* hits of PY_NEXT and PY_ITER_EXIT that were not landmarks */
	__u64 profile_code; /* code object of Lightning's Profiler.profile, once seen */
	__u64 loader_type;  /* Lightning's CombinedLoader, once seen */
	__u32 fetches;      /* the late PROBE_PY_ITER_EXIT are attached: BPF can time fetches */
	__u16 outside; /* steps of optimizers outside of its actions, since its last batch; OUTSIDE_LIGHTNING at most: */
	__u16 is_over; /* then another loop than Lightning's trains */
};

struct proc_steps {
	__u32 rule;               /* enum step_rule in force: the best rule so far that has proved itself */
	__u32 seen_rule;          /* the best rule seen, perhaps not in force yet */
	__u32 data_seen;          /* DataLoader state: bpf/steps.h */
	__u32 backwards, batches; /* candidates for steps; both saturate at STEP_PATIENCE */
	/* Batches that threads fetched that do not train: which no optimizer, and no backward, has used yet. */
	__u32 for_optimizer, for_backward;
	__u32 fetched, updates; /* all of these batches, and the optimizers' steps since the first */
	__u32 others;           /* backwards that other optimizers alone have used since the last step of `optimizer` */
	__u64 cnt;              /* steps in the window of the thread with the most, by rule or seen_rule */
	__u64 boundaries;       /* step boundaries seen, by rules in force */
	__u64 optimizer; /* name id of the optimizer whose steps end steps: the first one seen, until others alone step */
	__u64 backward_action; /* the action around the last Engine::execute, or its own name */
	__u64 usual_ns;        /* about how long a step takes; 0: not known yet */
};

struct proc_jit {
	__u64 name;          /* id of the jitted function whose calls are steps; 0: not chosen yet */
	__u64 ns;            /* in calls of such functions that did not compile */
	__u32 calls, others; /* calls of `name`; calls of other functions since the last one of `name` */
};

/* Sums over the calls of a process, as in struct rec_gpu_step. */
struct gpu_sums {
	__u64 launches, copies, copied_bytes, api_ns, sync_ns;
};

struct proc_gpu {
	__u64 from_ns;                /* the boundary at which `before` was taken; 0: no boundary in this window yet */
	__u64 window_ns;              /* when the steps of the CUPTI window began; 0: not in one */
	__u32 warm;                   /* BPF has announced the warm-up of the next CUPTI window */
	__u32 emits;                  /* BPF emits each CUDA call */
	struct gpu_sums sums, before; /* since the window opened, and up to the last boundary */
};

struct proc_nvtx {
	__u64 hits;
};

struct proc_io {
	__u64 last_pipe; /* inode of the pipe of the last message read */
	__u64 pipe_rows; /* messages read from the same pipe as the message before */
};

struct proc_ops {
	__u32 slot; /* 1 + index of its struct op_proc; 0: its operators are not recorded */
	__u32 pad;
};

#define PIDS_MAX (1u << 22) /* PID_MAX_LIMIT of 64 bits, include/linux/threads.h */

/* One traced process. Key of its map: the pid as stepflame sees it. */
struct proc {
	struct py_process py; /* py.layout.minor == 0: not a Python, or one of unknown layout */
	__u32 role;           /* enum target_role */
	__u32 window;         /* enum proc_window */
	__u32 ended;          /* nonzero: the process has ended, BPF counts no more */
	__u32 step_epoch;     /* threads restart their boundary counts when it changes */
	__u32 gpu_window;     /* CUPTI windows ended so far: the index of the next one */
	__u32 rests;          /* that are over: threads forget their spans when one is */
	__s32 exit_code;      /* wait(2) status, once it has ended */
	__u32 pad;
	__u64 window_start_ns, window_end_ns; /* end 0: not yet */
	__u64 forked_ns; /* fork time, if in its parent's window: BPF counts calls and samples since then; else 0 */
	struct proc_cost cost;
	struct proc_room room;
	/*
	 * What sources and step rules know of the running program: fork and exec zero exactly the
	 * fields from here on.
	 */
	struct proc_landmarks landmarks;
	struct proc_codes codes;
	struct proc_steps steps;
	struct proc_jit jit;
	struct proc_gpu gpu;
	struct proc_nvtx nvtx;
	struct proc_io io;
	struct proc_ops ops;
};

#define PROC_IDENTITY_BYTES offsetof(struct proc, landmarks)

enum proc_window {
	WINDOW_CLOSED = 0, /* probes are being attached or detached: BPF ignores events */
	WINDOW_OPEN,       /* BPF counts spans that begin after window_start_ns */
	WINDOW_WAITING,    /* opens at the next step boundary */
	WINDOW_DONE,       /* the requested steps are over: BPF ignores events */
	WINDOW_RESTING,    /* --budget: the process has no probes for a while, and BPF ignores events */
};

/*
 * The current period of one CPU's timer. User space changes it now and then; each change restarts
 * the timer.
 */
struct timer_period {
	__u64 since_ns;
	__u64 period_ns;
	__u64 before_ns; /* the previous period; 0: none */
};

/* What the program sample_threads does with each thread. */
enum thread_visit {
	VISIT_OPEN,  /* the window opens: a wait in progress starts now */
	VISIT_CUT,   /* a wait in progress becomes a sample so far, and goes on */
	VISIT_CLOSE, /* the window closes: a wait in progress becomes a sample */
	VISIT_REST,  /* the same, in processes that rest */
};

enum proc_command_what {
	COMMAND_PYTHON,    /* sets py */
	COMMAND_FETCHES,   /* sets fetches */
	COMMAND_OPEN,      /* opens the window at start_ns, or at the next boundary when `wait` */
	COMMAND_CLOSE,     /* closes the window, unless it is done */
	COMMAND_REST,      /* closes it at start_ns, unless it is done */
	COMMAND_WAKE,      /* opens it again at start_ns */
	COMMAND_CODES,     /* sets codes.told_since_ns to start_ns */
	COMMAND_OPERATORS, /* sets op_slot */
	COMMAND_GPU,       /* sets gpu.emits to `wait` */
	COMMAND_FORGET,    /* removes a process that has ended, but not a newer one that reuses its pid */
};

/* Rows of --exact, as in struct rec_calls. */
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

/* A change by user space to a process's state: the context of the BPF program `control`. */
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

/* Asks for the function at an address of the kernel: the context of the BPF program `name_kernel`. */
struct kernel_name {
	__u64 address;
	char text[256]; /* "ext4_readahead [ext4]"; "0x..." where no function is known */
};

#endif
