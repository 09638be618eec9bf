/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where to put probes in a native function so that the kernel need not single-step them, and so that no return probe is
 * needed: entry sites in the straight-line prologue, exit sites behind the last call. Control flow by capstone.
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
	bool emulated; /* the kernel emulates the instruction; else it single-steps, some ten times dearer */
};

enum sites_policy {
	SITES_STRICT,     /* no call lies behind an exit site, but those that do not return or only free memory */
	SITES_AFTER_WORK, /* no indirect call lies behind it; direct calls (destructors) may */
};

struct sites {
	struct site entry;
	uint32_t exit_cnt;
	struct site exit[SITES_MAX];
	/* where an exception leaves the function behind its clean-up: its calls of _Unwind_Resume */
	uint32_t unwind_cnt;
	struct site unwind[SITES_MAX];
};

/*
 * Sites of the function at vaddr with `size` bytes (0: ends where the next symbol or the section ends; found by walking
 * control flow). Guarantees: the entry site is passed exactly once per call, before any call, and with the six integer
 * argument registers as they were at the entry; every path from entry to a return passes exactly one exit site, after
 * the function's work by `policy`. Tail calls count as returns. Where no emulated instruction qualifies, the site is
 * the `ret` (or tail jump) itself. 0; -ENOENT no code there; -ENOTSUP control flow not understood (an indirect jump
 * that is not a known jump table, more than SITES_MAX exits).
 */
int sites__find(const struct elf *elf, uint64_t vaddr, uint64_t size, enum sites_policy policy, struct sites *out);

struct call_site {
	struct site site;
	/* enum saved_register that then holds the function's own second argument, 0 when none is known to */
	uint32_t second_in;
};

/*
 * The instruction in the function at vaddr that calls, or jumps at its end to, the function of that name (an import, or
 * one of the file's own), if there is exactly one: the probe fires before it, when the argument registers are the
 * callee's. 0, -ENOENT none, -ENOTUNIQ several, -ENOTSUP the kernel would single-step it, or as sites__find.
 */
int sites__find_call(const struct elf *elf, uint64_t vaddr, uint64_t size, const char *callee, struct call_site *out);

/* The same, of the calls behind which the function does nothing but return. */
int sites__find_last_call(const struct elf *elf, uint64_t vaddr, uint64_t size, const char *callee,
			  struct call_site *out);

/*
 * How far below the slot of the return address of the function at vaddr that of a function lies which it calls by a
 * pointer: when all such calls are made with the same stack. Bytes, or -ENOENT none, -ENOTUNIQ not the same, -ENOTSUP
 * not known, or as sites__find.
 */
int sites__find_callee_frame(const struct elf *elf, uint64_t vaddr, uint64_t size);

#endif
