/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Makes the injection library visible to a process. Its file system is hostile: links must not lead
 * out of it.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_INJECT_LIBRARY_H
#define STEPFLAME_USER_SESSION_SOURCES_INJECT_LIBRARY_H

#include <limits.h>
#include <stdbool.h>

#include "user/proc/process.h"

struct inject_library {
	char path[PATH_MAX]; /* in the process's file system */
	bool copied;         /* copied to a new folder, since the process cannot see ours */
	char why[256];
};

/*
 * Finds stepflame's copy: STEPFLAME_INJECT, beside this program, or in ../lib/stepflame. 0 or
 * -errno.
 */
int inject_library__own(char path[PATH_MAX]);

/*
 * Finds the library as inject_library__own does, and copies it if the process cannot see it. 0, or
 * -errno with `why`. The caller releases *out once the process has loaded the library, or will not.
 */
int inject_library__make(const struct process *process, struct inject_library *out);
void inject_library__release(const struct process *process, struct inject_library *library);

/* Would the injection library find a libcupti? */
bool inject_library__finds_cupti(const struct process *process);

#endif
