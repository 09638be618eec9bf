/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What children of the one that watches become before they talk to the network. */
#ifndef STEPFLAME_USER_WATCH_RIGHTLESS_H
#define STEPFLAME_USER_WATCH_RIGHTLESS_H

#include <sys/types.h>

#define RIGHTLESS_FD 3 /* the descriptors that it keeps are this one and those behind it */

/*
 * Becomes nobody, without capabilities, that opens so many files at most, writes none, and ends with `owner`, its parent. fds: what it
 * keeps besides stdin, stdout and stderr, as RIGHTLESS_FD, RIGHTLESS_FD + 1, ...; each is above these. Does not return where that fails.
 */
void rightless__become_or_exit(const char *name, pid_t owner, const int *fds, int cnt, unsigned int files);

#endif
