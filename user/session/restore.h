/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Breakpoints in the code that processes map from files: finds them, and removes those that an earlier
 * tracer left, wherever no tracer that runs uses them. Where the kernel has put one for a uprobe, the
 * page is the process's own copy, which differs from the file in nothing else.
 */
#ifndef STEPFLAME_USER_SESSION_RESTORE_H
#define STEPFLAME_USER_SESSION_RESTORE_H

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

struct restorer;

/*
 * Loads the programs and starts a guardian, since a removal must not be killed. 0, or -errno after a
 * message: -EPERM, -EOPNOTSUPP as session__new.
 */
int restorer__new(struct restorer **out);
/*
 * Removes the breakpoints at these offsets of a file from all processes, except where a tracer uses
 * them. 0, or the first -errno of attachment__clean: then some may have stayed, and the others are
 * removed.
 */
int restorer__remove(struct restorer *r, const struct mapped_file *file, const uint64_t *offsets, size_t cnt);
void restorer__free(struct restorer *r); /* accepts NULL */

#endif
