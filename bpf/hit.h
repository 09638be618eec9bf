/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a hit of a probe begins and ends with: its process is found, the hit is counted, and one in 64 is timed. */
#ifndef STEPFLAME_HIT_H
#define STEPFLAME_HIT_H

#include "maps.h"

/* NULL: the process is none of ours. *start_ns goes to proc__leave. */
static __always_inline struct proc *proc__enter(u32 pid, u64 *start_ns)
{
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);

	*start_ns = 0;
	if (proc && __sync_fetch_and_add(&proc->hits, 1) % HITS_PER_SAMPLE == 0)
		*start_ns = bpf_ktime_get_ns();
	return proc;
}

static __always_inline void proc__leave(struct proc *proc, u64 start_ns)
{
	if (!start_ns)
		return;
	__sync_fetch_and_add(&proc->sampled, 1);
	__sync_fetch_and_add(&proc->sampled_ns, bpf_ktime_get_ns() - start_ns);
}

#endif
