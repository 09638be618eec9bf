// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/x86/regs.h"

#include <capstone/capstone.h>
#include <stddef.h>
#include <stdint.h>

#define PARTS 5

static const uint16_t names[X86_REGISTERS][PARTS] = {
	{X86_REG_RAX, X86_REG_EAX, X86_REG_AX, X86_REG_AL, X86_REG_AH},
	{X86_REG_RCX, X86_REG_ECX, X86_REG_CX, X86_REG_CL, X86_REG_CH},
	{X86_REG_RDX, X86_REG_EDX, X86_REG_DX, X86_REG_DL, X86_REG_DH},
	{X86_REG_RBX, X86_REG_EBX, X86_REG_BX, X86_REG_BL, X86_REG_BH},
	{X86_REG_RSP, X86_REG_ESP, X86_REG_SP, X86_REG_SPL},
	{X86_REG_RBP, X86_REG_EBP, X86_REG_BP, X86_REG_BPL},
	{X86_REG_RSI, X86_REG_ESI, X86_REG_SI, X86_REG_SIL},
	{X86_REG_RDI, X86_REG_EDI, X86_REG_DI, X86_REG_DIL},
	{X86_REG_R8, X86_REG_R8D, X86_REG_R8W, X86_REG_R8B},
	{X86_REG_R9, X86_REG_R9D, X86_REG_R9W, X86_REG_R9B},
	{X86_REG_R10, X86_REG_R10D, X86_REG_R10W, X86_REG_R10B},
	{X86_REG_R11, X86_REG_R11D, X86_REG_R11W, X86_REG_R11B},
	{X86_REG_R12, X86_REG_R12D, X86_REG_R12W, X86_REG_R12B},
	{X86_REG_R13, X86_REG_R13D, X86_REG_R13W, X86_REG_R13B},
	{X86_REG_R14, X86_REG_R14D, X86_REG_R14W, X86_REG_R14B},
	{X86_REG_R15, X86_REG_R15D, X86_REG_R15W, X86_REG_R15B},
};
static const uint8_t bytes[PARTS] = {8, 4, 2, 1, 1};

int regs__number(unsigned int reg, unsigned int least)
{
	for (int i = 0; i < X86_REGISTERS && reg != X86_REG_INVALID; i++)
		for (size_t k = 0; k < PARTS && bytes[k] >= least; k++)
			if (names[i][k] == reg)
				return i;
	return -1;
}
