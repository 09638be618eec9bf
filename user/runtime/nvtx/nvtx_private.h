/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files that look for NVTX share: nvtx.c, nvtx_code.c. No other file includes this. */
#ifndef STEPFLAME_USER_RUNTIME_NVTX_NVTX_PRIVATE_H
#define STEPFLAME_USER_RUNTIME_NVTX_NVTX_PRIVATE_H

#include "user/runtime/nvtx/nvtx.h"
#include "user/x86/insn.h"

#define NVTX_MERGED_MAX 4 /* calls that one jump leaves out, the first among them */

/* Code that reads a pointer of NVTX's, and what it does with it. */
struct nvtx_code {
	uint64_t slot; /* vaddr of the pointer */
	uint64_t jump; /* of the conditional jump */
	uint8_t pointer;
	uint8_t cnt;
	/* The call, and those of the same function that are left out with it where the pointer is NULL. */
	struct nvtx_arguments {
		struct nvtx_value value[2]; /* base NVTX_BASE_UNKNOWN: not known */
		bool stores;                /* memory is written between the jump and the call */
	} call[NVTX_MERGED_MAX];
};

#define NVTX_BASE_UNKNOWN 0xff

/*
 * Follows the code from vaddr on, where an instruction begins, straight to a conditional jump by whether a pointer is NULL,
 * and on to where it is called. 0, or -ENOENT: it is not of that form.
 */
int nvtx_code__read(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, struct nvtx_code *out);

#endif
