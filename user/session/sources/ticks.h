/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For --budget: each backward of a process is a tick, also in its rests, where this is its only
 * probe. Ticks tell how long steps take there (STEP_TICK), how much longer they take where the
 * process is recorded (REC_OVERHEAD), and that something is unusual in a rest.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCES_TICKS_H
#define STEPFLAME_USER_SESSION_SOURCES_TICKS_H

#include <stdbool.h>
#include <stdint.h>

struct session;
struct target;

/* How many times what is accounted for the process seems to pay: overhead.h. */
double ticks__factor(const struct target *t);
/* Has it ticked, so that a rest can be compared with a window? */
bool ticks__measures(const struct target *t);
/*
 * Is its next tick so late that a rest had better end? Not a second time before that tick. read_ns: all ticks
 * before are known.
 */
bool ticks__is_late(const struct target *t, uint64_t read_ns);
/* A window ends, or a rest, in which the process has paid that share of its time (accounted); the other kind begins at from_ns. */
void ticks__begin(struct session *s, struct target *t, double accounted, uint64_t from_ns);

#endif
