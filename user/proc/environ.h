/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The environment of a process: the one with which it was started, and the one that it has now. Its
 * owner writes both: hostile input.
 */
#ifndef STEPFLAME_USER_PROC_ENVIRON_H
#define STEPFLAME_USER_PROC_ENVIRON_H

#include <stddef.h>
#include <sys/types.h>

#include "user/proc/process.h"

/* A variable that is looked for. value: receives its value, cut, 0-terminated; "": it is not there. */
struct environ_value {
	const char *name;
	char *value;
	size_t size;
};

/*
 * Value of a variable in the environment with which the process was started (/proc/PID/environ),
 * into value (cut, 0-terminated). 0, -ENOENT, or -errno.
 */
int process__environ(pid_t pid, const char *name, char *value, size_t size);
/* The same for several variables, by one read. */
int process__environs(pid_t pid, const struct environ_value *values, size_t cnt);
/*
 * The same of the environment that the process has now, as putenv(3) and os.environ change it, and
 * setproctitle moves it: what `environ` of its C library leads to. Where that cannot be found, the
 * environment with which it was started. 0 or -errno.
 */
int process__environs_now(const struct process *process, const struct environ_value *values, size_t cnt);

#endif
