/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The begin and end of every probe hit: finds the cookie and the process, counts the hit, and times
 * one in 64.
 */
#ifndef STEPFLAME_BPF_HIT_H
#define STEPFLAME_BPF_HIT_H

#include "bpf/maps.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct probe_place);
	__type(value, u64);
} probe_cookies __weak SEC(".maps");

/* COOKIE_NONE: the file is mapped twice, and this mapping is not the one with the probes. */
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

struct hit {
	u64 cookie;
	u64 start_ns; /* 0: this hit is not timed */
	struct task_struct *task;
	struct proc *proc;
	u32 pid;
};

/*
 * Is the program timed at this hit? Not at each 64th, since a step may hit 8 probes: the multiples of
 * an odd number, modulo 2^32, lie evenly whatever the rhythm (Knuth, TAOCP 3, 6.4).
 */
static __always_inline bool hit__is_sampled(u64 nth)
{
	return (u32)(nth * 2654435769u) < (1ull << 32) / HITS_PER_SAMPLE;
}

/* False: not our probe or process. Otherwise the caller ends the hit with hit__end. */
static __always_inline bool hit__begin(struct pt_regs *ctx, struct hit *h)
{
	h->cookie = probe__cookie(ctx);
	h->start_ns = 0;
	h->task = bpf_get_current_task_btf();
	h->pid = task_pid(h->task);
	if (h->cookie == COOKIE_NONE) {
		REFUSE_PRIVATE_STACK(ctx);
		return false;
	}
	h->proc = bpf_map_lookup_elem(&procs, &h->pid);
	if (!h->proc)
		return false;
	if (hit__is_sampled(__sync_fetch_and_add(&h->proc->cost.hits, 1)))
		h->start_ns = bpf_ktime_get_ns();
	return true;
}

static __always_inline void hit__end(const struct hit *h)
{
	if (!h->start_ns)
		return;
	__sync_fetch_and_add(&h->proc->cost.sampled, 1);
	__sync_fetch_and_add(&h->proc->cost.sampled_ns, bpf_ktime_get_ns() - h->start_ns);
}

/* After hit__end: how long before was the last event of the thread? Hits that follow each other closely do without. */
static __always_inline void hit__note_away(const struct hit *h)
{
	const struct thread *t = h->start_ns ? bpf_task_storage_get(&threads, h->task, NULL, 0) : NULL;
	u64 away = t ? t->now_ns - t->before_ns : 0;

	if (t)
		__sync_fetch_and_add(&h->proc->cost.sampled_away_ns, away < HIT_AWAY_NS ? away : HIT_AWAY_NS);
}

/* Does BPF count events of this process? */
static __always_inline bool hit__counts(const struct hit *h)
{
	return h->proc->window == WINDOW_OPEN || h->proc->window == WINDOW_WAITING;
}

#endif
