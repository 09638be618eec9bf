/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When what needs no probe counts: samples and system calls. Those of a process that was forked in its parent's window do from
 * its first instruction on, before user space has come to it.
 */
#ifndef STEPFLAME_BPF_WINDOW_H
#define STEPFLAME_BPF_WINDOW_H

#include "bpf/maps.h"

static __always_inline bool window__is_open(const struct proc *proc)
{
	return proc->window == WINDOW_OPEN || (proc->window == WINDOW_CLOSED && proc->forked_ns);
}

/* Since when it is, or was. */
static __always_inline u64 window__since(const struct proc *proc)
{
	return proc->forked_ns ? proc->forked_ns : proc->window_start_ns;
}

#endif
