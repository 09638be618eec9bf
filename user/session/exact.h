/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `record --exact`: every call of a Python function. Each function does nothing when it was not asked for. */
#ifndef STEPFLAME_USER_SESSION_EXACT_H
#define STEPFLAME_USER_SESSION_EXACT_H

#include "user/session/state.h"

/* Starts the guardian; once the programs are loaded. 0 or -errno, after a message. */
int exact__new(struct session *s);
void exact__free(struct session *s);

/* Adds the probes of an interpreter; what prevents that is kept in *exact. 0 or -ENOMEM. */
int exact__add_probes(struct session *s, struct probe_list *list, const struct elf *elf, const struct python *python,
		      struct exact_file *exact);

/* Can the calls of that target be seen? 0, or -EOPNOTSUPP after a message. */
int exact__check(struct session *s, const struct target *t);

/*
 * Makes every call visible: sets the word of each interpreter in the target, once (CPython from 3.11). 0; -EAGAIN no
 * interpreter is there yet; or -errno, after a message.
 */
int exact__arm(struct session *s, struct target *t);

/* Is there to be an interpreter in it yet? */
bool exact__waits(const struct session *s, const struct target *t);

/* A target has forked, with its memory. `recorded`: the child's calls are to be seen, too. */
void exact__forked(struct session *s, struct target *child, const struct target *parent, bool recorded);
/* Its calls are seen no more. */
void exact__disarm(struct session *s, struct target *t);

/* Sees whether a program has changed its word itself. Called some times a second. */
void exact__tend(struct session *s);

/* Rows as records. 0 or -errno of the sink. */
int exact__snapshot(struct session *s);
/* Puts all words back; notes for the report. Before the probes are taken away. */
void exact__end(struct session *s);

#endif
