/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the landmarks of JAX: jaxlib's functions by symbol, a PJRT plugin's functions by its table.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_XLA_H
#define STEPFLAME_USER_SESSION_SOURCES_XLA_H

#include <stdbool.h>

#include "user/proc/process.h"
#include "user/session/probe_list.h"

/*
 * Adds probes in jaxlib's library for calls of jitted functions, compiles, waits, transfers and
 * annotations; exits before entries. Returns how many functions can be timed, or -ENOMEM. `why`
 * says what is missing; "": nothing.
 */
int xla__add_jax(struct probe_list *list, const struct elf *elf, char *why, size_t why_size);

/* May this file be a PJRT plugin? By its name: xla_cuda_plugin.so, pjrt_plugin_x.so, libtpu.so. */
bool xla__is_plugin(const char *path);

/*
 * Has the plugin built its table? It does so at the first request for the table. Also true for a
 * file that is not a plugin.
 */
bool xla__plugin_is_ready(const struct process *process, const struct mapped_file *file);

/*
 * The same for the functions in a plugin's PJRT_Api, read from the memory of a process that maps
 * the plugin.
 */
int xla__add_plugin(struct probe_list *list, const struct process *process, const struct mapped_file *file,
		    const struct elf *elf, char *why, size_t why_size);

#endif
