/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Emits an event of a process and wakes user space at once. False (counted): the ring buffer is
 * full.
 */
#ifndef STEPFLAME_BPF_EVENT_H
#define STEPFLAME_BPF_EVENT_H

#include "bpf/maps.h"

static __always_inline bool event__send(u32 event, u32 pid, u32 parent_pid, s32 exit_code, struct task_struct *task)
{
	struct rec_proc *rec = bpf_ringbuf_reserve(&ring, sizeof(*rec), 0);

	if (!rec) {
		count(CNT_RING_FULL);
		return false;
	}
	rec->hdr.type = REC_PROC;
	rec->hdr.flags = 0;
	rec->hdr.size = sizeof(*rec);
	rec->time_ns = bpf_ktime_get_ns();
	rec->event = event;
	rec->pid = pid;
	rec->parent_pid = parent_pid;
	rec->exit_code = exit_code;
	BPF_CORE_READ_INTO(&rec->comm, task, comm);
	bpf_ringbuf_submit(rec, BPF_RB_FORCE_WAKEUP);
	return true;
}

#endif
