/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What this process may do: its capabilities (capabilities(7)), and what the kernel forbids to all. */
#ifndef STEPFLAME_USER_LIB_CAPABILITIES_H
#define STEPFLAME_USER_LIB_CAPABILITIES_H

#include <linux/capability.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of capabilities: CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON). */
#define CAPABILITY(number) (1ULL << (number))
/* What BPF programs need. */
#define CAPABILITIES_FOR_PROGRAMS (CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON))

/* Those with which a process reads and writes the files of other users. */
#define CAPABILITIES_OF_FILES                                                                     \
	(CAPABILITY(CAP_CHOWN) | CAPABILITY(CAP_DAC_OVERRIDE) | CAPABILITY(CAP_DAC_READ_SEARCH) | \
	 CAPABILITY(CAP_FOWNER))

/* The effective ones, with those that CAP_SYS_ADMIN includes. */
uint64_t capabilities__held(void);

/* Writes names and commas ("CAP_BPF, CAP_PERFMON") into text, cut to size bytes; returns text. */
const char *capabilities__names(uint64_t set, char *text, size_t size);

/*
 * Did this process get its rights from its program file (file capabilities, a set-user-ID bit) and
 * not from the user who called it? Then it does for that user only what he may do himself, and
 * traces only his processes.
 */
bool capabilities__of_program(void);

/* Is this another user namespace than the first one? Capabilities there allow no BPF. */
bool capabilities__in_user_namespace(void);

/*
 * Takes `set` out of the effective capabilities of this thread, until capabilities__raise(what this
 * returns).
 */
uint64_t capabilities__lower(uint64_t set);
void capabilities__raise(uint64_t set);

/* Gives up all capabilities for good. */
void capabilities__drop(void);

/* ---- what settings of the kernel forbid to root, too ---- */

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
