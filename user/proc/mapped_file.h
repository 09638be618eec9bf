/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the deputy hands the mapped files of a process to process__read. */
#ifndef STEPFLAME_USER_PROC_MAPPED_FILE_H
#define STEPFLAME_USER_PROC_MAPPED_FILE_H

#include "user/proc/deputy.h"
#include "user/proc/process.h"

#define FILES_MAX 4096 /* torch jobs map some 300 */

/* In the deputy: appends the files of a process to *out. 0 or -errno; -E2BIG: more than FILES_MAX. */
int mapped_files__pack(pid_t pid, struct deputy_out *out);
/* Sets p->files from the answer's bytes behind `from`. 0 or -ENOMEM. */
int mapped_files__unpack(struct process *p, const struct deputy_out *answer, size_t from);

#endif
