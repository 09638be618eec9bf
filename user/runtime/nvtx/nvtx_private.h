/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the files that search for NVTX: nvtx.c, nvtx_code.c. No other file includes this. */
#ifndef STEPFLAME_USER_RUNTIME_NVTX_NVTX_PRIVATE_H
#define STEPFLAME_USER_RUNTIME_NVTX_NVTX_PRIVATE_H

#include "user/runtime/nvtx/nvtx.h"
#include "user/x86/insn.h"

#define NVTX_MERGED_MAX 4 /* calls that one jump skips, including the first */

/* Code that reads an NVTX pointer, and what it does with the pointer. */
struct nvtx_code {
	uint64_t slot; /* vaddr of the pointer */
	uint64_t jump; /* of the conditional jump */
	uint8_t pointer;
	uint8_t cnt;
	/*
	 * The call, and those calls of the same function that the jump also skips when the pointer
	 * is NULL.
	 */
	struct nvtx_arguments {
		struct nvtx_value value[2]; /* base NVTX_BASE_UNKNOWN: not known */
		bool stores;                /* the code writes memory between the jump and the call */
	} call[NVTX_MERGED_MAX];
};

#define NVTX_BASE_UNKNOWN 0xff

/*
 * Follows the code from vaddr, where an instruction begins, straight to a conditional jump that
 * tests a pointer for NULL, and on to the call of the pointer. 0, or -ENOENT when the code has
 * another form.
 */
int nvtx_code__read(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, struct nvtx_code *out);

#endif
