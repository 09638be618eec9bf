/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The record of what a place of the program waits on, which user space makes: as in records.h. */
#ifndef STEPFLAME_INCLUDE_WAIT_RECORDS_H
#define STEPFLAME_INCLUDE_WAIT_RECORDS_H

#include "include/records.h"

enum awaited_kind {
	AWAITED_OTHER, /* a lock, or not known */
	AWAITED_QUEUE, /* a queue.SimpleQueue: what another thread hands over, not a lock that it holds */
	AWAITED_FILES, /* names of files in a file system whose answers come from a server */
	AWAITED_ACQUIRE, /* acquire() of a lock, in no `with`: a lock, or a signal that another thread gives by release() */
	AWAITED__COUNT,
};

/* Where a thread waited in C or in the kernel: the innermost Python function of its stack, and on what. */
struct rec_awaited {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 offset; /* of the instruction, as in struct stack_frame */
	__u64 code;   /* REC_CODE id */
	__u32 on;     /* enum awaited_kind; a place may have both */
	__u32 pad;
	__u64 name; /* REC_NAME id of that file system: "/data (nfs4)"; 0: none */
};

#endif
