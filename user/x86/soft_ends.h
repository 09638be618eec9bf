/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where most calls of a function end, for functions whose returns the kernel would single-step and which are called
 * often. Unlike sites.h this promises little: a path may pass none of these, or several.
 */
#ifndef STEPFLAME_USER_X86_SOFT_ENDS_H
#define STEPFLAME_USER_X86_SOFT_ENDS_H

#include "user/x86/sites.h"

#define SOFT_ENDS_MAX 16

/*
 * Emulated jumps and branches right behind a call, from which a return can be reached without another call, and no
 * indirect call at all: CUDA's runtime looks there at what the driver said. They lie in the function at vaddr, or, when
 * it has none, in those that it calls last of all. Their depths are -1. Returns how many.
 */
uint32_t soft_ends__find(const struct elf *elf, uint64_t vaddr, uint64_t size, struct site out[SOFT_ENDS_MAX]);

enum sites_away {
	SITES_HERE,
	SITES_AWAY,      /* a tail jump leads on to the work, in this file as far as is known */
	SITES_ELSEWHERE, /* one does so through a pointer that is found at run time: to a function of another file */
};

/*
 * Do the exit sites of a function lie at tail jumps, behind which its work comes? Drivers before 580 jump through a table
 * of theirs; implib.so, of which XLA has its stubs of CUDA and NCCL, through one that dlsym fills. *there, if they lead to
 * one place: the exits there, and those returns that the function makes itself; else there->exit_cnt is 0.
 */
enum sites_away sites__away(const struct elf *elf, uint64_t vaddr, uint64_t size, const struct sites *sites,
			    struct sites *there);

#endif
