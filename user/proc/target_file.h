/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Files at paths that a target sees. Hostile input: the target chooses what is there, and may change
 * it at any time. A path is resolved within the target's root; links cannot lead out of it.
 */
#ifndef STEPFLAME_USER_PROC_TARGET_FILE_H
#define STEPFLAME_USER_PROC_TARGET_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The root of a process, for target_file__open. A descriptor or -errno. */
int target_file__root(pid_t pid);
/*
 * Opens a path in a root with O_PATH (and `flags`, such as O_DIRECTORY), which opens no device and
 * does not wait for the other end of a FIFO. A file system may make the caller wait all the same:
 * so only the deputy calls this. A descriptor or -errno.
 */
int target_file__open(int root, const char *path, int flags);
/* The same in the root of a process. */
int target_file__of(pid_t pid, const char *path, int flags);
/* Opens what that has opened for reading, and closes it, on failure too. A descriptor; -EINVAL: no regular file; or -errno. */
int target_file__reopen(int at);

/*
 * Reads from a Python package's version.py the text, as UTF-8, after the first `variable = '` at
 * the beginning of a line. Returns false when the path is no regular file, or when there is no such line in its
 * first 64 KiB.
 */
bool target_file__version(pid_t pid, const char *path, const char *variable, char *version, size_t size);

#endif
