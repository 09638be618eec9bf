/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Capabilities of this process (capabilities(7)): what it may do without being root. */
#ifndef STEPFLAME_USER_LIB_CAPABILITIES_H
#define STEPFLAME_USER_LIB_CAPABILITIES_H

#include <linux/capability.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of capabilities: CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON). */
#define CAPABILITY(number) (1ULL << (number))

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

#endif
