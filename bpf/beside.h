/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who is beside the job. Every thread of the host runs the programs of switches and wake-ups; those
 * look at one bit before they do anything else. A bit that is set for nobody costs time only.
 */
#ifndef STEPFLAME_BPF_BESIDE_H
#define STEPFLAME_BPF_BESIDE_H

#include "bpf/maps.h"

/* A bit for each process that is in `procs`, by its pid there. User space sets those of whom it adds. */
__u64 job_pids[PIDS_MAX / 64] __weak;

static __always_inline bool pid__may_be_job(u32 pid)
{
	return job_pids[BOUND_INDEX(pid / 64, PIDS_MAX / 64)] >> pid % 64 & 1;
}

/* After the process was added: before its bit is set, nobody misses it. */
static __always_inline void pid__mark(u32 pid)
{
	__sync_fetch_and_or(&job_pids[BOUND_INDEX(pid / 64, PIDS_MAX / 64)], 1ULL << pid % 64);
}

/* Before the process is removed, after which the pid is looked for again: it may be another one's meanwhile. */
static __always_inline void pid__unmark(u32 pid)
{
	__sync_fetch_and_and(&job_pids[BOUND_INDEX(pid / 64, PIDS_MAX / 64)], ~(1ULL << pid % 64));
}

/* As proc__of, of a task, and without its pid: a pid takes longer to find in a pid namespace than what this saves. */
static __always_inline bool task__is_beside(struct task_struct *task)
{
	return !pid_level && !pid__may_be_job(LOAD_HERE(task->tgid));
}

static __always_inline struct proc *proc__of(u32 pid)
{
	return pid__may_be_job(pid) ? bpf_map_lookup_elem(&procs, &pid) : NULL;
}

#endif
