/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of functions that a PJRT plugin hands out (GetPjrtApi), in the memory of a process, stripped or not: it is
 * made when the plugin is first asked for it. Reads only; all that is read is hostile input.
 *
 * xla/pjrt/c/pjrt_c_api.h: {size_t struct_size; void *extension_start; {size_t struct_size = 24; void *extension_start;
 * int major = 0, minor;} version; then pointers to functions, in an order that is only appended to}.
 */
#ifndef STEPFLAME_USER_RUNTIME_XLA_PJRT_H
#define STEPFLAME_USER_RUNTIME_XLA_PJRT_H

#include <stdint.h>

#include "user/elf/elf.h"
#include "user/proc/process.h"

/* Those that are wanted, and their places among the functions of the table. */
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

/* Is it a plugin, which exports GetPjrtApi? */
bool pjrt__is_plugin(const struct elf *elf);

/*
 * 0; -ENOENT when there is none (yet), several that differ, or one that says what cannot be: a function outside of the
 * plugin's code, a size or version of another table; -ENXIO when the file is no plugin; or -errno.
 */
int pjrt__find(const struct process *process, const struct mapped_file *file, const struct elf *elf,
	       struct pjrt_table *out);

#endif
