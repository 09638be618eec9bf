/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The wait of a thread, from when it leaves the CPU until its samples are sent. */
#ifndef STEPFLAME_BPF_WAIT_H
#define STEPFLAME_BPF_WAIT_H

#include "bpf/maps.h"

#define OWED_MAX         2 /* a wait is blocked, then queued for a CPU */
#define OWED_SENDING     3 /* walk_later__send sends them */

#define WAIT_PLACES      32 /* places that BPF remembers of a thread; a power of two */
#define WAIT_LENGTH_BITS 6
#define WAIT_LENGTH_MASK ((1u << WAIT_LENGTH_BITS) - 1)

/* Waits that no sample carries yet: the sample of a later wait will carry their sum. */
struct wait_sum {
	u64 ns;
	u32 cnt;
	u32 pad;
};

/* The wait of a thread since it left the CPU. */
struct wait {
	u64 since_ns; /* 0: the thread is running */
	u64 woken_ns; /* 0: not woken yet */
	u64 ran_ns;   /* run time of its whole life, when it left the CPU */
	u64 stack, native;
	u64 gil_stack; /* of the last wait for the GIL at which BPF walked the stack */
	u64 file;      /* as in struct rec_sample */
	struct wait_sum blocked, queued, gil, gil_queued;
	s32 syscall;
	u32 cause;
	u32 waker_pid, waker_tid; /* as in struct rec_sample */
	u8 walked;                /* BPF walked the stack; `stack` may still be 0 */
	u8 gil_sampled;           /* a wait for the GIL at which BPF walks the stack only by chance */
	u8 walks_later;           /* a sample of it goes to `owed` */
	u8 one_in;                /* it was walked by a chance of one in this number */
	u32 owed_cnt;             /* samples of waits before that have no stack yet; OWED_SENDING */
	u32 place;                /* a hash of where it waits */
	u32 ran_pid;              /* as in struct rec_sample */
	u32 ran_usual;            /* likewise, of any earlier wait: a longer run is likelier */
	/* By place: its upper bits, and the logarithm of how long its last waits were in the lowest. */
	u32 places[WAIT_PLACES];
	struct rec_sample owed[OWED_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wait);
} waits SEC(".maps");

#endif
