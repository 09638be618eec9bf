/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The landmarks of JAX: functions of jaxlib by their symbols, and those of a PJRT plugin by its table. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_XLA_H
#define STEPFLAME_USER_SESSION_SOURCES_XLA_H

#include <stdbool.h>

#include "user/proc/process.h"
#include "user/session/probe_list.h"

/*
 * Calls of jitted functions, compiles, waits, transfers and annotations, in jaxlib's library. Ends before beginnings.
 * Returns how many functions can be timed, or -ENOMEM. `why` says what was not found, "" when all was.
 */
int xla__add_jax(struct probe_list *list, const struct elf *elf, char *why, size_t why_size);

/* Is that a file that may hold a PJRT plugin? By what plugins are named: xla_cuda_plugin.so, pjrt_plugin_x.so, libtpu.so. */
bool xla__is_plugin(const char *path);

/* Has that plugin made its table yet? It does when it is first asked for it. True also of what is no plugin. */
bool xla__plugin_is_ready(const struct process *process, const struct mapped_file *file);

/* The same of the functions that a plugin's PJRT_Api names, in the memory of a process that has mapped it. */
int xla__add_plugin(struct probe_list *list, const struct process *process, const struct mapped_file *file,
		    const struct elf *elf, char *why, size_t why_size);

#endif
