/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the landmarks of a file and adds their probes. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_LANDMARKS_H
#define STEPFLAME_USER_SESSION_SOURCES_LANDMARKS_H

#include "user/runtime/python/python.h"
#include "user/session/probe_list.h"

/*
 * Lightning's actions: `next`, throw and __next__ of an interpreter. The probes on __next__ go to
 * `late` where the kernel must single-step them: the session attaches those only to a process that
 * runs Lightning. 0; -ENOENT: `next` not found.
 */
int landmarks__python(struct probe_list *list, struct probe_list *late, const struct elf *elf,
		      const struct py_functions *functions);

/* Garbage collections by an interpreter. 0; -ENOENT: place not found. */
int landmarks__gc(struct probe_list *list, const struct elf *elf, const struct py_functions *functions);

/*
 * record_function labels and backward, in libtorch_cpu. 0; -ENOTSUP, after a message: the file has
 * only one of them; -ENOENT: it has neither.
 */
int landmarks__torch(struct probe_list *list, const struct elf *elf);
/* The entry of backward alone, for the program `tick`. 0 or -ENOENT. */
int landmarks__backward(struct probe_list *list, const struct elf *elf);

#endif
