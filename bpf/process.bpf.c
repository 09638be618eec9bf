// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Follows the processes of the job: BPF adds a fork of a traced process before its first
 * instruction, with its parent's layout; user space receives the event and decides what to attach.
 */
#include "bpf/beside.h"
#include "bpf/event.h"

const volatile __u32 want_children = 0; /* system calls and samples of forks count from their first instruction on */

const volatile __u32 only_uid = -1; /* watch no program that gets the rights of another user; -1: any */

/*
 * Forgets what the sources know of the running program: a child, or the next program after an exec,
 * trains in its own way or not at all. Keeps the cost of tracing, and the window number that user
 * space knows (gpu_window).
 */
static __always_inline void proc__forget_program(struct proc *proc)
{
	__builtin_memset((char *)proc + PROC_IDENTITY_BYTES, 0, sizeof(*proc) - PROC_IDENTITY_BYTES);
	proc->step_epoch++;
}

/*
 * Of the threads of a process that calls exec, one goes on: what it had open, and the addresses that
 * are known of it, are of the program before. Its spans have no meaning with depth 0. Boundaries go on
 * to be numbered: readers know each by its thread and number.
 */
static __always_inline void thread__forget_program(struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);
	u32 serial;

	if (!t)
		return;
	if (t->around)
		__sync_fetch_and_sub(&around_cnt, 1);
	serial = t->step_serial;
	__builtin_memset(t, 0, offsetof(struct thread, spans));
	t->step_serial = serial;
	__builtin_memset(&t->pass, 0, sizeof(t->pass));
	__builtin_memset(&t->gpu, 0, sizeof(t->gpu));
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 parent_pid = task_pid(parent), pid;
	struct proc *proc, *copy;

	if (BPF_CORE_READ(child, pid) != BPF_CORE_READ(child, tgid))
		return 0; /* a thread */
	proc = bpf_map_lookup_elem(&procs, &parent_pid);
	if (!proc || proc->ended) /* a process outside the job has the pid of one that has ended */
		return 0;
	pid = task_pid(child);
	if (!pid)
		return 0;
	if (bpf_map_update_elem(&procs, &pid, proc, BPF_ANY)) {
		count(CNT_PROCS_FULL);
		return 0;
	}
	pid__mark(pid);
	copy = bpf_map_lookup_elem(&procs, &pid);
	if (!copy)
		return 0;
	copy->role = ROLE_CHILD;
	copy->window = WINDOW_CLOSED; /* until user space has attached the probes */
	proc__forget_program(copy);
	copy->cost = (struct proc_cost){};
	copy->room = (struct proc_room){};
	copy->gpu_window = 0;
	copy->forked_ns = want_children && proc->window == WINDOW_OPEN ? bpf_ktime_get_ns() : 0;
	event__send(PROC_FORK, pid, parent_pid, 0, child);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task)
{
	u32 pid = task_pid(task);
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);

	if (!proc)
		return 0;
	/* Another program: the layout of its memory is unknown. */
	proc->py = (struct py_process){};
	proc__forget_program(proc);
	thread__forget_program(task);
	if (only_uid != (u32)-1 && BPF_CORE_READ(task, cred, euid.val) != only_uid) {
		proc->window = WINDOW_CLOSED;
		proc->forked_ns = 0;
	}
	event__send(PROC_EXEC, pid, 0, 0, task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	u32 pid = task_pid(task);
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);
	struct signal_struct *signal;
	s32 code;

	if (!proc)
		return 0;
	signal = BPF_CORE_READ(task, signal);
	/*
	 * Other threads live on, or one that ends at the same moment has emitted the event: each
	 * thread leaves `live` before it comes here.
	 */
	if (BPF_CORE_READ(signal, live.counter) || __sync_lock_test_and_set(&proc->ended, 1))
		return 0;
	proc->forked_ns = 0;
	code = BPF_CORE_READ(signal, group_exit_code);
	if (!code)
		code = BPF_CORE_READ(task, exit_code);
	proc->exit_code = code; /* user space tells of it, should the ring be full */
	if (proc->window != WINDOW_DONE)
		proc->window = WINDOW_CLOSED; /* a process outside the job may get its pid */
	event__send(PROC_EXIT, pid, 0, code, task);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
