/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds JAX in a process: jaxlib, and the functions of PJRT's plugins. */
#ifndef STEPFLAME_USER_RUNTIME_XLA_JAX_H
#define STEPFLAME_USER_RUNTIME_XLA_JAX_H

#include <stdint.h>

#include "user/elf/elf.h"
#include "user/proc/process.h"

/*
 * The mapped library of jaxlib that holds XLA and its Python bindings (libjax_common, before 0.6
 * xla_extension), or NULL.
 */
const struct mapped_file *jax__file(const struct process *process);

/* The version in jaxlib/version.py beside the library ("0.10.2"), "?" when not found. */
void jax__version(const struct process *process, const struct mapped_file *library, char *version, size_t size);

/* ---- plugins of PJRT, XLA's devices ---- */

/*
 * Finds the function table that a PJRT plugin returns (GetPjrtApi), in the memory of a process,
 * stripped or not: the plugin builds the table on the first call. Only reads; all that is read is
 * hostile input.
 *
 * xla/pjrt/c/pjrt_c_api.h: {size_t struct_size; void *extension_start; {size_t struct_size = 24;
 * void *extension_start; int major = 0, minor;} version; then pointers to functions, in an order to
 * which versions only append}.
 */

/* The functions that stepflame probes, and their indexes in the table. */
#define STEPFLAME_PJRT_FUNCTIONS(X)  \
	X(PJRT_EVENT_AWAIT, 8)       \
	X(PJRT_CLIENT_COMPILE, 20)   \
	X(PJRT_BUFFER_FROM_HOST, 22) \
	X(PJRT_EXECUTE, 55)          \
	X(PJRT_BUFFER_TO_HOST, 70)

enum pjrt_fn {
#define X(id, place) id,
	STEPFLAME_PJRT_FUNCTIONS(X)
#undef X
		PJRT_FN__COUNT,
};

struct pjrt_table {
	int minor;                   /* of its version, 0.minor */
	uint64_t fn[PJRT_FN__COUNT]; /* vaddrs in the file */
};

/*
 * 0; -ENOENT when there is no table (yet), several that differ, or an impossible one: a function
 * outside the plugin's code, or another table's size or version; -ENXIO when the file is not a
 * plugin; or -errno.
 */
int pjrt__find(const struct process *process, const struct mapped_file *file, const struct elf *elf,
	       struct pjrt_table *out);

#endif
