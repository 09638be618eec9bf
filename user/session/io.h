/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* System calls and files: what bpf/syscalls.bpf.c counts, as records. */
#ifndef STEPFLAME_USER_SESSION_IO_H
#define STEPFLAME_USER_SESSION_IO_H

struct session;

/* Before the windows close: counts the calls that are in progress. 0 or -errno. */
int io__close(struct session *s);
/* The rows as REC_SYSCALL, REC_FILE and REC_PIPE, of files and pipes those that were used since the last time. 0 or -errno of the sink. */
int io__snapshot(struct session *s);

#endif
