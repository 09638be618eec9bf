/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks the stack of a wait after its end, in the thread's own context, before it runs any code of
 * the program: at the end of its system call, by a task work (from Linux 6.18 on), or when it leaves
 * the CPU again before that.
 *
 *   wait ends, gets a sample -> wait.owed -> task work --------> walk -> REC_SAMPLE
 *                                         +> next wait begins ---+
 */
#ifndef STEPFLAME_BPF_WALK_LATER_H
#define STEPFLAME_BPF_WALK_LATER_H

#include "bpf/pystack.h"
#include "bpf/wait.h"

#define STACK_NOT_WALKED 1 /* an id without a record */

#define WALKS_MAX        1024 /* that are requested at the same time; a power of two */

/* include/uapi/linux/bpf.h */
struct bpf_task_work {
	__u64 opaque;
} __attribute__((aligned(8)));

struct walk_later {
	struct bpf_task_work work;
};

/* By the low bits of the thread's id: a request exists for microseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WALKS_MAX);
	__type(key, u32);
	__type(value, struct walk_later);
} walks_later SEC(".maps");

/* Separate from sample_scratch: the work can be preempted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack_scratch);
} later_scratch SEC(".maps");

/* Complete: libbpf compares the kinds of types. */
struct bpf_map {
	u32 id;
};

extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *work, void *map__map,
					      int (*callback)(struct bpf_map *map, void *key, void *value),
					      void *aux__prog) __ksym __weak;

static __always_inline bool can_walk_later(void)
{
	return bpf_ksym_exists(bpf_task_work_schedule_resume_impl);
}

__weak __noinline u64 stack__current(struct stack_scratch *scratch, const struct proc *proc, u32 pid)
{
	return scratch && proc ? stack__of(scratch, proc, pid) : 0;
}

/*
 * Sends the samples that a thread owes. The current thread is theirs, and `stack` its stack: theirs
 * too, if it has not run since.
 */
__weak __noinline int walk_later__send(struct wait *w, u64 stack)
{
	const struct pt_regs *user = (const struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	u32 cnt;

	if (!w)
		return 0;
	cnt = w->owed_cnt;
	if (!cnt || cnt > OWED_MAX)
		return 0;
	w->owed_cnt = OWED_SENDING; /* a wait that begins or ends meanwhile leaves them alone */
	for (u32 i = 0; i < OWED_MAX; i++) {
		struct rec_sample *rec = &w->owed[i];

		if (i >= cnt)
			break;
		rec->stack = rec->native == user->ip ? stack : STACK_NOT_WALKED;
		if (rec->stack == STACK_NOT_WALKED)
			count(CNT_STACK_LOST);
		if (bpf_ringbuf_output(&ring, rec, sizeof(*rec), BPF_RB_NO_WAKEUP))
			count(CNT_SAMPLES_LOST);
	}
	w->owed_cnt = 0;
	return 0;
}

static int walk_later__run(struct bpf_map *map, void *key, void *value)
{
	static const u32 zero = 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct wait *w = bpf_task_storage_get(&waits, task, NULL, 0);
	u32 pid = task_pid(task);
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct stack_scratch *scratch = bpf_map_lookup_elem(&later_scratch, &zero);
	u64 start, stack = STACK_NOT_WALKED;

	if (!w || !proc || !w->owed_cnt)
		return 0;
	start = bpf_ktime_get_ns();
	if (scratch && !__sync_lock_test_and_set(&scratch->busy, 1)) {
		stack = stack__current(scratch, proc, pid);
		__sync_lock_test_and_set(&scratch->busy, 0);
	}
	walk_later__send(w, stack);
	__sync_fetch_and_add(&proc->cost.sampler_ns, bpf_ktime_get_ns() - start);
	return 0;
}

/* The thread comes to the CPU, and owes samples. */
static __always_inline void walk_later__request(struct task_struct *task)
{
	u32 at = BOUND_INDEX(task_tid(task), WALKS_MAX);
	struct walk_later *slot = bpf_map_lookup_elem(&walks_later, &at);

	/* With another thread's request in its place, the next wait sends them. */
	if (slot && can_walk_later())
		bpf_task_work_schedule_resume_impl(task, &slot->work, &walks_later, walk_later__run, NULL);
}

#endif
