/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What was installed into a folder that a process sees, as `pip install --target` does it: the
 * metadata of each distribution (*.dist-info/RECORD) lists its files. Hostile input.
 */
#ifndef STEPFLAME_USER_PROC_PACKAGES_H
#define STEPFLAME_USER_PROC_PACKAGES_H

#include <sys/types.h>

#define PACKAGES_PATH_BYTES 4096

/*
 * The packages in a folder of a process, which has an absolute path: "NAME/", or "NAME.py" of a
 * module, with a newline behind each; malloc'ed, *names is "" where there are none. 0; -EINVAL: no such path; or -errno.
 */
int packages__installed(pid_t pid, const char *folder, char **names);

#endif
