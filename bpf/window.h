/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The window for events that need no probes in the target: samples and system calls. For a process
 * forked in its parent's window it is open from the first instruction on, before user space has
 * seen the process.
 */
#ifndef STEPFLAME_BPF_WINDOW_H
#define STEPFLAME_BPF_WINDOW_H

#include "bpf/maps.h"

static __always_inline bool window__is_open(const struct proc *proc)
{
	return proc->window == WINDOW_OPEN || (proc->window == WINDOW_CLOSED && proc->forked_ns);
}

/* Is it over, at proc->window_end_ns? */
static __always_inline bool window__is_over(const struct proc *proc)
{
	return proc->window == WINDOW_DONE || proc->window == WINDOW_RESTING;
}

/* When the window opened. */
static __always_inline u64 window__since(const struct proc *proc)
{
	return proc->forked_ns ? proc->forked_ns : proc->window_start_ns;
}

#endif
