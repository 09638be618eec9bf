/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Chooses probe sites in a native function such that the kernel need not single-step them, and no
 * return probe is needed: entry sites in the straight-line prologue, exit sites after the last
 * call. Control flow by capstone.
 */
#ifndef STEPFLAME_USER_X86_SITES_H
#define STEPFLAME_USER_X86_SITES_H

#include <stdbool.h>
#include <stdint.h>

#include "user/elf/elf.h"

#define SITES_MAX 64 /* exit sites per function */

struct site {
	uint64_t offset; /* in the file, as uprobes want it */
	int32_t depth; /* bytes from %rsp at the site to the slot of the return address; -1 when not known statically */
	bool emulated; /* the kernel emulates the instruction; else it single-steps, at some ten times the cost */
};

enum sites_policy {
	SITES_STRICT,     /* no call follows an exit site, except calls that do not return or only free memory */
	SITES_AFTER_WORK, /* no indirect call follows an exit site; direct calls (destructors) may */
};

struct sites {
	struct site entry;
	uint32_t exit_cnt;
	struct site exit[SITES_MAX];
	/* where an exception leaves the function after its clean-up: its calls of _Unwind_Resume */
	uint32_t unwind_cnt;
	struct site unwind[SITES_MAX];
};

/*
 * Finds the sites of the function at vaddr with `size` bytes (0: it ends where the next symbol or
 * the section ends; a walk over its control flow finds its code). Guarantees: each call of the
 * function passes the entry site exactly once, before any call of its own, and with the six integer
 * argument registers as they were at the entry; every path from entry to a return passes exactly
 * one exit site, after the function's work by `policy`. Tail calls count as returns. Where no
 * emulated instruction qualifies, the site is the `ret` (or tail jump) itself. 0; -ENOENT no code
 * there; -ENOTSUP control flow not understood (an indirect jump that is not a known jump table,
 * more than SITES_MAX exits).
 */
int sites__find(const struct elf *elf, uint64_t vaddr, uint64_t size, enum sites_policy policy, struct sites *out);

struct call_site {
	struct site site;
	/*
	 * enum saved_register that holds the function's own second argument at the site; 0 when no
	 * register is known to
	 */
	uint32_t second_in;
};

/*
 * Finds the one instruction of the function at vaddr that calls the function of that name (an
 * import, or one of the file's own), or jumps to it at the end. The probe fires before the
 * instruction, when the argument registers are the callee's. 0, -ENOENT no such instruction,
 * -ENOTUNIQ several, -ENOTSUP the kernel would single-step it, or as sites__find.
 */
int sites__find_call(const struct elf *elf, uint64_t vaddr, uint64_t size, const char *callee, struct call_site *out);

/* The same, but only among calls after which the function does nothing but return. */
int sites__find_last_call(const struct elf *elf, uint64_t vaddr, uint64_t size, const char *callee,
			  struct call_site *out);

/*
 * Distance of a callee's return address below that of the function at vaddr, for the functions that
 * it calls through a pointer, when all such calls have the same stack depth. Bytes, or -ENOENT no
 * such call, -ENOTUNIQ different depths, -ENOTSUP not known, or as sites__find.
 */
int sites__find_callee_frame(const struct elf *elf, uint64_t vaddr, uint64_t size);

/* ---- soft ends ---- */

/*
 * Where most calls of a function end, for functions that are called often and whose returns the
 * kernel would single-step. These sites promise little: a path may pass none of them, or several.
 */
#define SOFT_ENDS_MAX 16

/*
 * Finds emulated jumps and branches right after a call, from which the function can return without
 * another call and cannot reach an indirect call: CUDA's runtime checks the driver's result there.
 * The sites lie in the function at vaddr or, when it has no such site, in the functions that it
 * calls last. Their depths are -1. Returns how many.
 */
uint32_t soft_ends__find(const struct elf *elf, uint64_t vaddr, uint64_t size, struct site out[SOFT_ENDS_MAX]);

enum sites_away {
	SITES_HERE,
	SITES_AWAY,      /* a tail jump leads to the work, in this file as far as is known */
	SITES_ELSEWHERE, /* a tail jump leads to another file, through a pointer that is resolved at run time */
};

/*
 * Whether the exit sites of a function lie at tail jumps, with the function's work after them.
 * Drivers before 580 jump through a table of their own; implib.so, which generates XLA's stubs of
 * CUDA and NCCL, through a table that dlsym fills. If the tail jumps lead to one function, *there
 * holds the exits of that function and the returns that this one makes itself; else there->exit_cnt
 * is 0.
 */
enum sites_away sites__away(const struct elf *elf, uint64_t vaddr, uint64_t size, const struct sites *sites,
			    struct sites *there);

#endif
