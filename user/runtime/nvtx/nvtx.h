/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the code of a file pushes and pops NVTX ranges.
 *
 * NVTX 3 is headers alone: each function reads a pointer from a table that every library has a copy of (nvtxGlobals_v3),
 * and calls it unless it is NULL, which it is when no tool is there. Compilers put that wherever it is called from. The
 * libraries libnvToolsExt and libnvtx3interop, which export the functions, do the same. So what is looked for is not
 * functions but code that reads such a pointer, compares it with NULL, jumps, and would call it: a place of a probe is
 * the conditional jump, which the kernel emulates, and where the arguments come from is read from the code behind it.
 * (NVTX: nvtxDetail/nvtxImpl.h, nvtxImplCore.h.)
 */
#ifndef STEPFLAME_USER_RUNTIME_NVTX_NVTX_H
#define STEPFLAME_USER_RUNTIME_NVTX_NVTX_H

#include <stdbool.h>

#include "include/probes.h"
#include "user/elf/elf.h"
#include "user/lib/array.h"

/* One whose site has `more` is followed by one that has no probe of its own. */
struct nvtx_place {
	uint64_t offset; /* of the jump, in the file */
	struct nvtx_site site;
};

/*
 * Adds the places of a file to *places (struct nvtx_place), and to *missed how many there are besides that are not
 * understood. 0 or -ENOMEM; a file without any is no error.
 */
int nvtx__find(const struct elf *elf, struct array *places, size_t *missed);

/*
 * Is it a library of NVIDIA's or torch's that pushes ranges for itself, of its own operators, algorithms and calls? Those
 * are left alone.
 */
bool nvtx__is_internal(const char *path);

#endif
