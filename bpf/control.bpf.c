// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Changes the state of a process for user space while its probes may run. This program writes into
 * the map's element, since an update from user space would replace the element and lose what
 * running programs still write to the old one. In: struct proc_command. Returns 0, or 1: no such
 * process.
 */
#include "bpf/beside.h"

SEC("syscall")
int control(struct proc_command *command)
{
	u32 pid = command->pid;
	struct proc *proc = bpf_map_lookup_elem(&procs, &pid);

	if (!proc)
		return 1;
	switch (command->what) {
	case COMMAND_PYTHON:
		proc->py = command->py;
		break;
	case COMMAND_FETCHES:
		proc->landmarks.fetches = 1;
		break;
	case COMMAND_CODES:
		proc->codes.told_since_ns = command->start_ns;
		break;
	case COMMAND_OPEN:
		proc->role = command->role;
		proc->window_start_ns = command->start_ns;
		proc->step_epoch++;
		proc->steps.cnt = proc->gpu.from_ns = 0;
		proc->window = command->wait ? WINDOW_WAITING : WINDOW_OPEN;
		break;
	case COMMAND_CLOSE:
		proc->forked_ns = 0;
		if (proc->window != WINDOW_DONE)
			proc->window = WINDOW_CLOSED;
		break;
	case COMMAND_REST:
		proc->forked_ns = 0;
		if (proc->window == WINDOW_DONE)
			break;
		proc->window_end_ns = command->start_ns;
		proc->window = WINDOW_RESTING;
		proc->codes.told_since_ns = 0; /* its probe goes with the others */
		break;
	case COMMAND_WAKE:
		if (proc->window != WINDOW_RESTING)
			break;
		proc->window_start_ns = command->start_ns;
		proc->window_end_ns = 0;
		proc->rests++;
		/* Nobody knows which of the batches before it the steps in the rest have used. */
		proc->steps.for_optimizer = proc->steps.for_backward = 0;
		proc->window = WINDOW_OPEN;
		break;
	case COMMAND_OPERATORS:
		proc->ops.slot = command->op_slot;
		break;
	case COMMAND_GPU:
		proc->gpu.emits = command->wait;
		break;
	case COMMAND_FORGET:
		if (!proc->ended)
			break;
		pid__unmark(pid);
		bpf_map_delete_elem(&procs, &pid);
		if (bpf_map_lookup_elem(&procs, &pid))
			pid__mark(pid);
		break;
	}
	return 0;
}

/* /proc/kallsyms has these names, too, but takes 10 MB of reading, and hides addresses from some. */
SEC("syscall")
int name_kernel(struct kernel_name *asked)
{
	static const char format[] = "%ps";
	u64 address = asked->address;
	char text[sizeof(asked->text)] = {};

	bpf_snprintf(text, sizeof(text), format, &address, sizeof(address));
	__builtin_memcpy(asked->text, text, sizeof(text));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
