/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The code that --inject writes into a process, in two parts. The first is run by a thread of the process that was stopped
 * in a system call: it starts a thread and goes back to that call, with each register as it was, by itself; so nobody has
 * to be there to put anything right behind it. The second is that new thread: it loads a library and calls a function of it.
 * x86-64; position-independent; all else is in what the registers point to.
 */
#ifndef STEPFLAME_USER_PROC_REMOTE_STUB_H
#define STEPFLAME_USER_PROC_REMOTE_STUB_H

#include <stdint.h>

enum remote_state { REMOTE_NONE, REMOTE_BEGUN, REMOTE_FOUND /* the function is called */, REMOTE_DONE, REMOTE_FAILED };

/* A page that stays in the process. */
struct remote_call {
	uint64_t dlopen, dlsym, dlerror; /* addresses; dlerror may be 0 */
	int32_t mode;                    /* of dlopen */
	uint32_t state;                  /* enum remote_state */
	int32_t result;                  /* of the function; of FAILED: of pthread_create, or 0 */
	uint32_t pad;
	char library[1024], entry[64];
	char error[512]; /* what dlerror said */
};

#define REMOTE_PAGE 4096

/* On the stack of the stopped thread, below what it uses, while it runs the first part; rsp points to it there. */
struct remote_frame {
	/* With these it goes on, in the order in which they are popped. rcx and r11 are nobody's at a system call. */
	uint64_t r15, r14, r13, r12, r10, r9, r8, rbp, rdi, rsi, rdx, rax, rbx, flags, rip, rsp;
	uint64_t pthread_create, pthread_detach, errno_location; /* addresses, */
	uint64_t start;                                          /* also of the second part, */
	uint64_t page;                                           /* and where the page is to be */
	uint64_t thread, all_signals, old_signals;
	struct remote_call call; /* for the page */
	/* Of XSAVE: its header, which has to be zero, ends here; it has remote_stub__vector_bytes() in all. */
	uint8_t vectors[576] __attribute__((aligned(64)));
};

/* The code, and where in it the second part begins. */
extern const char remote_stub[], remote_stub_start[], remote_stub_end[];

/* Size of what XSAVE writes on this machine; 0: it has none. */
uint32_t remote_stub__vector_bytes(void);

#endif
