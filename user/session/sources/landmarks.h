/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which functions of a file are landmarks, as probes. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_LANDMARKS_H
#define STEPFLAME_USER_SESSION_SOURCES_LANDMARKS_H

#include "user/runtime/python/python.h"
#include "user/session/probe_list.h"

/*
 * Lightning's actions: `next`, throw and __next__ of an interpreter. Those of __next__ go to `late` where the kernel
 * must single-step them, to be attached when the process turns out to run Lightning. 0, or -ENOENT when `next` was not
 * found.
 */
int landmarks__python(struct probe_list *list, struct probe_list *late, const struct elf *elf,
		      const struct py_functions *functions);

/* Collections of garbage by an interpreter. 0, or -ENOENT when the place was not found. */
int landmarks__gc(struct probe_list *list, const struct elf *elf, const struct py_functions *functions);

/*
 * record_function labels and backward, in libtorch_cpu. 0; -ENOTSUP when the file has but one of them, which was told; or
 * -ENOENT when it has none.
 */
int landmarks__torch(struct probe_list *list, const struct elf *elf);

#endif
