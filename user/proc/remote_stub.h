/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The code that --inject writes into a process, in two parts. A thread of the process that was
 * stopped in a system call runs the first part: it starts a new thread and returns to that call by
 * itself, with each register as it was, so the tracer need not stay to restore anything. The new
 * thread runs the second part: it loads a library and calls a function of it. x86-64;
 * position-independent; the registers point to all other data.
 */
#ifndef STEPFLAME_USER_PROC_REMOTE_STUB_H
#define STEPFLAME_USER_PROC_REMOTE_STUB_H

#include <stdint.h>

enum remote_state { REMOTE_NONE, REMOTE_BEGUN, REMOTE_FOUND /* the function is running */, REMOTE_DONE, REMOTE_FAILED };

/* A page that remains in the process. */
struct remote_call {
	uint64_t dlopen, dlsym, dlerror; /* addresses; dlerror may be 0 */
	int32_t mode;                    /* of dlopen */
	uint32_t state;                  /* enum remote_state */
	int32_t result;                  /* of the function; in REMOTE_FAILED of pthread_create, or 0 */
	uint32_t pad;
	char library[1024], entry[64];
	char error[512]; /* what dlerror said */
};

#define REMOTE_PAGE 4096

/*
 * Lies on the stack of the stopped thread, below what the thread uses, while it runs the first
 * part; rsp points to it.
 */
struct remote_frame {
	/*
	 * Registers with which the thread continues, in the order in which they are popped. A
	 * system call clobbers rcx and r11.
	 */
	uint64_t r15, r14, r13, r12, r10, r9, r8, rbp, rdi, rsi, rdx, rax, rbx, flags, rip, rsp;
	uint64_t pthread_create, pthread_detach, errno_location; /* addresses, */
	uint64_t start;                                          /* also of the second part, */
	uint64_t page;                                           /* and where the page is to be */
	uint64_t thread, all_signals, old_signals;
	struct remote_call call; /* for the page */
	/*
	 * The XSAVE area: its header, which must be zero, ends here; the whole has
	 * remote_stub__vector_bytes().
	 */
	uint8_t vectors[576] __attribute__((aligned(64)));
};

/* The code, and where its second part begins. */
extern const char remote_stub[], remote_stub_start[], remote_stub_end[];

/* Bytes that XSAVE writes on this machine; 0: no XSAVE. */
uint32_t remote_stub__vector_bytes(void);

#endif
