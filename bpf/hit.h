/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a hit of a probe begins and ends with: what it means, whose it is; it is counted, and one in 64 is timed. */
#ifndef STEPFLAME_HIT_H
#define STEPFLAME_HIT_H

#include "maps.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, struct probe_place);
	__type(value, u64);
} probe_cookies __weak SEC(".maps");

/* COOKIE_NONE: the file is mapped twice, and this is not where its probes were looked for. */
static __always_inline u64 probe__cookie(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx), *found;
	struct probe_place place;

	if (!cookies_by_place)
		return cookie;
	place.list = cookie & (PROBE_LISTS - 1);
	place.offset = ctx->ip - (cookie & ~(u64)(PROBE_LISTS - 1));
	found = bpf_map_lookup_elem(&probe_cookies, &place);
	return found ? *found : COOKIE_NONE;
}

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
