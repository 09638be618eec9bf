/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The general registers by their numbers in the instruction encoding, to index arrays of what each
 * register holds.
 */
#ifndef STEPFLAME_USER_X86_REGS_H
#define STEPFLAME_USER_X86_REGS_H

enum {
	X86_RAX,
	X86_RCX,
	X86_RDX,
	X86_RBX,
	X86_RSP,
	X86_RBP,
	X86_RSI,
	X86_RDI,
	X86_R8,
	X86_R9,
	X86_R10,
	X86_R11,
	X86_R12,
	X86_R13,
	X86_R14,
	X86_R15,
	X86_REGISTERS
};

/*
 * The number of the general register that capstone's `reg` is, or is the low part of (for %ah, the
 * second byte). `least` is the smallest size in bytes: 8 asks for whole registers. -1 when `reg` is
 * smaller, or is not a general register.
 */
int regs__number(unsigned int reg, unsigned int least);

#endif
