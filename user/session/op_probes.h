/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operators of a session: which probes they mean in each process, when these are there (the schedule), and their table
 * as records. Used by the session's own files only.
 */
#ifndef STEPFLAME_USER_SESSION_OP_PROBES_H
#define STEPFLAME_USER_SESSION_OP_PROBES_H

#include "user/session/state.h"

/*
 * Prepares, after the programs are loaded. 0 or -errno, after a message: -EOPNOTSUPP this kernel attaches probes one by
 * one, which thousands of them are too many for. Free with op_probes__free, after op_probes__detach.
 */
int op_probes__new(struct session *s);
void op_probes__free(struct session *s);

/*
 * Finds the operators of a process that has torch, and arms them unless the schedule's first window is far. 0 or
 * -errno; a failure was told, and the rest of the recording goes on.
 */
int op_probes__add_target(struct session *s, struct target *t);
/* The process's window opens now; without a schedule operators count from here on. */
void op_probes__open(struct session *s, struct target *t);
/* A target forked a child: it is relieved of the breakpoints that it inherits, within some seconds. */
void op_probes__forked(struct session *s, const struct target *parent);
void op_probes__remove_target(struct session *s, struct target *t); /* detaches; its counts stay */

/* Arms and disarms by the schedule, and relieves children; called at each poll. */
void op_probes__tend(struct session *s);
/* Closes all windows: nothing counts from here on. */
void op_probes__close(struct session *s);
/* At the end: hands over the exits that are attached, or the other probes. */
void op_probes__detach(struct session *s, bool exits, struct detachment *d);

/* Rows that changed since the last call, and windows that are open. 0 or -errno of the sink. */
int op_table__snapshot(struct session *s);

/* The timeline: a span on its way to the file, and the end of a window. */
void op_table__span(struct session *s, const struct rec_span *span);
void op_table__flush_spans(struct session *s);

uint64_t op_probes__hits(const struct session *s, const struct target *t);
/* All windows that were asked for have been seen. False without an end to the schedule. */
bool op_probes__done(const struct session *s, const struct target *t);

#endif
