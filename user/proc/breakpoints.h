/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Breakpoints in the code that a process maps from files. Where the kernel has put one for a uprobe,
 * the page is the process's own copy, which differs from the file in nothing else. Only reads.
 */
#ifndef STEPFLAME_USER_PROC_BREAKPOINTS_H
#define STEPFLAME_USER_PROC_BREAKPOINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "user/proc/process.h"

#define BREAKPOINTS_MAX 65536 /* of a process: no tracer sets so many */

/* The breakpoints of a process in a file; base of the file is 0. */
struct breakpoint_file {
	struct mapped_file file;
	size_t cnt;
	uint64_t *offsets; /* in the file, ascending within a mapping; owned */
};

struct breakpoints {
	bool cut; /* the process maps more, or has more, than stepflame reads */
	size_t file_cnt;
	struct breakpoint_file *files; /* owned; each has some */
};

/*
 * 0 or -errno: -ESRCH, -EACCES or -EPERM as process__read. Files that cannot be opened are left out.
 * Free with breakpoints__release, also after an error.
 */
int breakpoints__find(pid_t pid, struct breakpoints *out);
void breakpoints__release(struct breakpoints *b);

#endif
