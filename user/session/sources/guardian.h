/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A separate process that writes the words of --exact into the targets, and restores them to NULL
 * when stepflame ends, even if stepflame is killed: the guardian ignores the terminal's signals,
 * has no other file of stepflame open, and waits for a socket to close. It changes a word only from
 * NULL, and restores a word only if the word still has the value that the guardian wrote.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GUARDIAN_H
#define STEPFLAME_USER_SESSION_SOURCES_GUARDIAN_H

#include <stdint.h>

#include "user/proc/process.h"

struct guardian;

/* Starts the guardian. 0 or -errno. */
int guardian__new(struct guardian **out);

/*
 * Writes `value` to the word at `address` of a process. 0; -EBUSY: the word has another value and
 * stays unchanged; -EALREADY: the word has this value (a fork's child), and the guardian will
 * restore it like the others; -ESRCH: the process has ended; -EFAULT: no writable private memory;
 * or -errno. Callers may repeat it.
 */
int guardian__write(struct guardian *g, const struct process *process, uint64_t address, uint64_t value);

/* Restores the words of one process. */
void guardian__restore(struct guardian *g, const struct process *process);

/*
 * Restores all words, also in the targets' forked descendants, and waits for that. 0, or -errno:
 * the guardian has died. Accepts NULL.
 */
int guardian__free(struct guardian *g);

#endif
