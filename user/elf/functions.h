/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where functions begin and end in an ELF file, stripped or not: by the unwind table (.eh_frame_hdr, which stripping
 * keeps), else by symbols. A part of a function that the compiler placed elsewhere (X.cold) has an entry of its own.
 */
#ifndef STEPFLAME_USER_ELF_FUNCTIONS_H
#define STEPFLAME_USER_ELF_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "user/elf/elf.h"

struct function_range {
	uint64_t start, end; /* vaddr; end is the first byte behind */
	uint64_t lsda;       /* vaddr of its exception table (.gcc_except_table), 0 when it has none */
	/*
	 * bytes from %rsp to the slot of the return address at `start`: 0 for a function, more for parts; -1 not known
	 */
	int32_t frame;
};

/* The function, or part of one, whose code covers vaddr. 0 or -ENOENT. */
int functions__at(const struct elf *elf, uint64_t vaddr, struct function_range *out);

/*
 * Calls fn for each landing pad of a range: where the unwinder enters it again to run destructors or a catch block.
 * Returns 0, or -ENOTSUP for an exception table that is not understood. (Itanium C++ ABI, exception handling tables.)
 */
int functions__each_pad(const struct elf *elf, const struct function_range *range,
			void (*fn)(uint64_t vaddr, void *ctx), void *ctx);

#endif
