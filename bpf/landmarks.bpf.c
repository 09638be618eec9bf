// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The probe program: one for all landmarks, so that one link holds all probes of a library. In: a
 * uprobe whose cookie says what a hit means. Out: rows in the aggregate map, names in the ring
 * buffer.
 */
#include "bpf/actions.h"
#include "bpf/calls.h"
#include "bpf/functions.h"
#include "bpf/gc.h"
#include "bpf/hit.h"
#include "bpf/jax.h"
#include "bpf/labels.h"
#include "bpf/nvtx.h"

const volatile __u64 fixed_names[FIXED_NAMES] = {};
const volatile __u64 step_limit = 0;
const volatile __u64 step_at[2] = {};
const volatile __u64 gpu_names[GPU_APIS] = {};
const volatile __u32 want_step_times = 0;
const volatile __u64 py_call_cnt = 0;
const volatile __u64 py_call_lengths = 0;
const volatile __u64 op_schedule[OP_SCHEDULE__COUNT] = {};
const volatile __u32 want_ops = 0;
const volatile __u32 want_timeline = 0, want_shapes = 0, want_stacks = 0, want_modules = 0, want_gpu = 0;
const volatile __u32 want_gpu_windows = 0;
const volatile __u32 cookies_by_place = 0;
const volatile __u32 want_syscalls = 0;
const volatile __u64 sample_period_ns = 0, wait_threshold_ns = 0;
volatile __u32 pid_level = 0;
volatile __u64 pid_ns = 0;
volatile __u32 nvtx_epoch = 0;
volatile __u32 around_cnt = 0;

/* Results of the self-test. */
__u64 test_hits = 0;
__u32 test_level = 0;
__u64 test_ns = 0;

static __always_inline int on_test(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);

	test_level = BPF_CORE_READ(pid, level);
	test_ns = (u64)pid__number(pid, test_level).ns;
	__sync_fetch_and_add(&test_hits, 1);
	return 0;
}

static __always_inline void dispatch(struct pt_regs *ctx, u64 cookie, struct task_struct *task, struct proc *proc,
				     u32 pid)
{
	u32 depth = COOKIE_DEPTH(cookie), fn = COOKIE_FN(cookie);
	u64 frame = depth != COOKIE_DEPTH_UNKNOWN ? ctx->sp + depth : 0;

	switch (COOKIE_EVENT(cookie)) {
	case PROBE_PY_NEXT:
		if (!fn || (COOKIE_FLAGS(cookie) & COOKIE_LATE_FETCHES && !proc->landmarks.fetches))
			frame = 0; /* no probe would see the end of the fetch */
		on_py_next(ctx, task, proc, pid, frame ? frame - fn : 0);
		break;
	case PROBE_PY_THROW:
		on_py_throw(ctx, task, proc, pid);
		break;
	case PROBE_PY_ITER_EXIT:
		on_py_iter_exit(ctx, task, proc, pid, frame);
		break;
	case PROBE_LABEL:
		on_label(ctx, task, proc, pid, COOKIE_FLAGS(cookie), frame);
		break;
	case PROBE_LABEL_HANDLE:
		on_label_handle(ctx, task, frame);
		break;
	case PROBE_LABEL_END:
		on_label_end(ctx, task, proc, pid);
		break;
	case PROBE_FN:
		on_fn(ctx, task, proc, pid, fn, frame);
		break;
	case PROBE_FN_EXIT:
		on_fn_exit(ctx, task, proc, pid, fn, frame);
		break;
	case PROBE_SAVE:
		on_save(ctx, task, proc, pid, fn, COOKIE_FLAGS(cookie), frame);
		break;
	case PROBE_PY_CALL:
		on_py_call(ctx, task, proc, frame);
		break;
	case PROBE_PY_CALL_EXIT:
		on_py_call_exit(task, proc, pid, frame);
		break;
	case PROBE_GC:
		on_gc(ctx, task, proc, pid, COOKIE_FLAGS(cookie), fn);
		break;
	case PROBE_CODE_END:
		on_code_end(ctx, task, proc, pid);
		break;
	case PROBE_NVTX:
		on_nvtx(ctx, task, proc, pid, fn);
		break;
	case PROBE_JIT:
		on_jit(ctx, task, proc, fn, frame);
		break;
	case PROBE_JIT_EXIT:
		on_jit_exit(ctx, task, proc, pid, fn, frame);
		break;
	case PROBE_ANNOTATION:
		on_annotation(ctx, task, proc);
		break;
	case PROBE_ANNOTATION_END:
		on_annotation_end(ctx, task, proc, pid);
		break;
	}
}

/* The first event of a thread since its process had a rest. */
static __always_inline void thread__begin_again(struct task_struct *task, const struct proc *proc)
{
	struct thread *t = thread__of(task);

	if (!t || !thread__is_stale(t, proc))
		return;
	thread__forget(t);
	t->rests = proc->rests;
}

SEC("uprobe.multi")
int probe(struct pt_regs *ctx)
{
	struct hit h;

	if (!hit__begin(ctx, &h))
		return COOKIE_EVENT(h.cookie) == PROBE_TEST ? on_test(h.task) : 0;
	if (hit__counts(&h)) {
		if (h.proc->rests)
			thread__begin_again(h.task, h.proc);
		dispatch(ctx, h.cookie, h.task, h.proc, h.pid);
	}
	if (step_at[0])
		step__user(h.task, h.proc, h.pid);
	if (around_cnt)
		around__emit(h.proc, h.pid);
	hit__end(&h);
	hit__note_away(&h);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
