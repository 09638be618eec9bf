/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds where the code of a file pushes and pops NVTX ranges.
 *
 * NVTX 3 consists of headers only: each function reads a pointer from a table (nvtxGlobals_v3;
 * every library has its own copy), and calls the pointer unless it is NULL. It is NULL while no
 * tool is loaded. Compilers inline that into every caller. The libraries libnvToolsExt and
 * libnvtx3interop, which export the functions, do the same. So the search is not for functions, but
 * for code that reads such a pointer, compares it with NULL, jumps, and would call it. The probe
 * goes on the conditional jump, which the kernel emulates; the code after the jump shows where the
 * arguments come from. (NVTX: nvtxDetail/nvtxImpl.h, nvtxImplCore.h.)
 */
#ifndef STEPFLAME_USER_RUNTIME_NVTX_NVTX_H
#define STEPFLAME_USER_RUNTIME_NVTX_NVTX_H

#include <stdbool.h>

#include "include/probes.h"
#include "user/elf/elf.h"
#include "user/lib/array.h"

/* A place whose site has `more` is followed by one that has no probe of its own. */
struct nvtx_place {
	uint64_t offset; /* of the jump, in the file */
	struct nvtx_site site;
};

/*
 * Adds the places of a file to *places (struct nvtx_place), and the count of those that are not
 * understood to *missed. 0 or -ENOMEM; a file without any place is not an error.
 */
int nvtx__find(const struct elf *elf, struct array *places, size_t *missed);

/*
 * Is the file a library of NVIDIA's or torch's that pushes ranges for its own operators, algorithms
 * and calls? Stepflame does not probe those.
 */
bool nvtx__is_internal(const char *path);

#endif
