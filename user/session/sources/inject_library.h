/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which files a process can see, and the injection library among them. Its file system is hostile: no link leads out of it. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_INJECT_LIBRARY_H
#define STEPFLAME_USER_SESSION_SOURCES_INJECT_LIBRARY_H

#include <limits.h>
#include <stdbool.h>

#include "user/proc/process.h"

struct inject_library {
	char path[PATH_MAX]; /* as the process sees it */
	bool copied;         /* into a folder of its own, since it does not see ours */
	char why[256];
};

/* Where it is: STEPFLAME_INJECT, beside this program, or in ../lib/stepflame. 0 or -errno. */
int inject_library__own(char path[PATH_MAX]);

/*
 * Finds it beside this program, or where STEPFLAME_INJECT says, and makes the process see it. 0, or -errno with why. To be
 * released when it is loaded, or will not be.
 */
int inject_library__make(const struct process *process, struct inject_library *out);
void inject_library__release(const struct process *process, struct inject_library *library);

/* Is there a libcupti that the library would find? */
bool inject_library__finds_cupti(const struct process *process);

#endif
