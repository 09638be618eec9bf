/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds where functions begin and end in an ELF file, stripped or not: by the unwind table
 * (.eh_frame_hdr, which stripping keeps), else by symbols. A part of a function that the compiler
 * placed elsewhere (X.cold) is a range of its own.
 */
#ifndef STEPFLAME_USER_ELF_FUNCTIONS_H
#define STEPFLAME_USER_ELF_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "user/elf/elf.h"

struct function_range {
	uint64_t start, end; /* vaddr; end is the first byte after the range */
	uint64_t lsda;       /* vaddr of its exception table (.gcc_except_table), 0: it has no such table */
	/*
	 * bytes from %rsp at `start` to the slot of the return address: 0 for a function, more for
	 * a part, -1 when not known
	 */
	int32_t frame;
};

/* The function, or the part of one, that covers vaddr. 0 or -ENOENT. */
int functions__at(const struct elf *elf, uint64_t vaddr, struct function_range *out);

/*
 * Calls fn for each landing pad of a range, where the unwinder enters it again to run destructors
 * or a catch block. 0, or -ENOTSUP when the exception table has an unknown form. (Itanium C++ ABI,
 * exception handling tables.)
 */
int functions__each_pad(const struct elf *elf, const struct function_range *range,
			void (*fn)(uint64_t vaddr, void *ctx), void *ctx);

#endif
