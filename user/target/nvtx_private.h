/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files that look for NVTX share: nvtx.c, nvtx_code.c. No other file includes this. */
#ifndef STEPFLAME_TARGET_NVTX_PRIVATE_H
#define STEPFLAME_TARGET_NVTX_PRIVATE_H

#include "target/insn.h"
#include "target/nvtx.h"

/* Code that reads a pointer of NVTX's, and what it does with it. */
struct nvtx_code {
	uint64_t slot; /* vaddr of the pointer */
	uint64_t jump; /* of the conditional jump */
	uint8_t pointer;
	struct nvtx_value argument[2]; /* base NVTX_BASE_UNKNOWN: not known */
	bool stores;                   /* memory is written between the jump and the call */
};

#define NVTX_BASE_UNKNOWN 0xff

/*
 * Follows the code from vaddr on, where an instruction begins, straight to a conditional jump by whether a pointer is NULL,
 * and on to where it is called. 0, or -ENOENT: it is not of that form.
 */
int nvtx_code__read(struct decoder *decoder, const struct elf *elf, uint64_t vaddr, struct nvtx_code *out);

#endif
