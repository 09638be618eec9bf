// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What user space changes of a process while its probes may run: written into the map's element by this program, since
 * an update from outside would put another element in its place, and lose what running programs still write to the old
 * one. In: struct proc_order. Returns 0, or 1: no such process.
 */
#include "maps.h"

SEC("syscall")
int control(struct proc_order *order)
{
	u32 pid = order->pid;
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);

	if (!proc)
		return 1;
	switch (order->what) {
	case ORDER_PYTHON:
		proc->py = order->py;
		break;
	case ORDER_FETCHES:
		proc->fetches = 1;
		break;
	case ORDER_OPEN:
		proc->role = order->role;
		proc->window_start_ns = order->start_ns;
		proc->boundary_ns = 0;
		proc->window = order->wait ? WINDOW_WAITING : WINDOW_OPEN;
		break;
	case ORDER_CLOSE:
		proc->forked_ns = 0;
		if (proc->window != WINDOW_DONE)
			proc->window = WINDOW_CLOSED;
		break;
	case ORDER_OPERATORS:
		proc->op_slot = order->op_slot;
		break;
	case ORDER_GPU:
		proc->gpu_tell = order->wait;
		break;
	case ORDER_FORGET:
		if (proc->ended)
			bpf_map_delete_elem(&procs, &pid);
		break;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
