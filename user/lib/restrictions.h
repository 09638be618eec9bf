/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What settings of the kernel forbid to root, too. */
#ifndef STEPFLAME_USER_LIB_RESTRICTIONS_H
#define STEPFLAME_USER_LIB_RESTRICTIONS_H

#include <stdbool.h>

enum lockdown {
	LOCKDOWN_NONE, /* also where that cannot be known: without securityfs */
	LOCKDOWN_INTEGRITY,
	LOCKDOWN_CONFIDENTIALITY, /* BPF programs may not read the kernel's memory */
};

/* How far the kernel is locked down (kernel_lockdown(7)). */
enum lockdown lockdown__mode(void);

/*
 * Does this kernel allow perf events to administrators only, whatever other capabilities they have? Some
 * do if kernel.perf_event_paranoid is above 2, as Debian's, where that is the default.
 */
bool perf_events__denied(void);

#define PERF_EVENTS_DENIED                                                                                     \
	"this kernel allows perf events to administrators only, while kernel.perf_event_paranoid is above 2: " \
	"CAP_SYS_ADMIN missing"
#define PERF_EVENTS_FIX "sysctl kernel.perf_event_paranoid=2, or run it as root (sudo) or with CAP_SYS_ADMIN"

/* Yama's scope (ptrace(2)) from which on nobody may read another process's memory, and which nobody can lower. */
#define YAMA_NOBODY 3
#define YAMA_FIX    "start the machine with kernel.yama.ptrace_scope at 2 or less: from 3 it cannot be lowered"

/* kernel.yama.ptrace_scope; 0 in a kernel without Yama. */
int yama__scope(void);

#endif
