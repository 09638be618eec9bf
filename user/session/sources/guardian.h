/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process of its own that writes the words of --exact into the targets, and puts NULL back when stepflame ends,
 * however it does: it ignores the signals of the terminal, holds none of stepflame's files, and waits for the end of a
 * socket. A word is changed only from NULL, and back only from what was written.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_GUARDIAN_H
#define STEPFLAME_USER_SESSION_SOURCES_GUARDIAN_H

#include <stdint.h>

#include "user/proc/process.h"

struct guardian;

/* Starts it. 0 or -errno. */
int guardian__new(struct guardian **out);

/*
 * Writes `value` to the word at `address` of a process. 0; -EBUSY: it holds something else, and is left alone;
 * -EALREADY: it holds that value (a fork's child), and is put back like the others; -ESRCH the process has ended;
 * -EFAULT: no writable private memory; or -errno. May be repeated.
 */
int guardian__write(struct guardian *g, const struct process *process, uint64_t address, uint64_t value);

/* Puts back the words of one process. */
void guardian__restore(struct guardian *g, const struct process *process);

/*
 * Puts all words back, those of the targets' forked descendants too, and waits for that. 0 or -errno: it is
 * gone. Accepts NULL.
 */
int guardian__free(struct guardian *g);

#endif
