/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds JAX in a process. */
#ifndef STEPFLAME_USER_RUNTIME_XLA_JAX_H
#define STEPFLAME_USER_RUNTIME_XLA_JAX_H

#include "user/proc/process.h"

/*
 * The mapped library of jaxlib that holds XLA and its Python bindings (libjax_common, before 0.6
 * xla_extension), or NULL.
 */
const struct mapped_file *jax__file(const struct process *process);

/* The version in jaxlib/version.py beside the library ("0.10.2"), "?" when not found. */
void jax__version(const struct process *process, const struct mapped_file *library, char *version, size_t size);

#endif
