/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which file system a thread asks that waits in a system call on names: open, stat, rename, a list of
 * a folder. In: the call and its arguments, the memory of the process, its mounts, all of which may
 * be anything. Out: the mount, if it is one whose answers come from a server: FUSE, or the network.
 */
#ifndef STEPFLAME_USER_PROC_FAR_FILES_H
#define STEPFLAME_USER_PROC_FAR_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "user/proc/task.h"

/* Is it a call that far_files__of knows? */
bool far_files__is_call(long syscall);

#define FAR_FILES_BYTES 320

/*
 * Writes "/data (nfs4)" of a waiting task. mounts: the text of its process's mountinfo. 0; -ENOENT:
 * the file system is of another kind, or it is not known which it is; or -errno.
 */
int far_files__of(pid_t pid, const struct task *task, const char *mounts, char out[FAR_FILES_BYTES]);

/* The same for the path of a file, absolute. */
int far_files__of_path(const char *path, const char *mounts, char out[FAR_FILES_BYTES]);

#endif
