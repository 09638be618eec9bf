/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds where most calls of a function end, for functions that are called often and whose returns
 * the kernel would single-step. Unlike sites.h, this promises little: a path may pass none of these
 * sites, or several.
 */
#ifndef STEPFLAME_USER_X86_SOFT_ENDS_H
#define STEPFLAME_USER_X86_SOFT_ENDS_H

#include "user/x86/sites.h"

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
