/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Python functions that the user names: --action FILE.py:QUALNAME. */
#ifndef STEPFLAME_USER_SESSION_CALLS_H
#define STEPFLAME_USER_SESSION_CALLS_H

#include "user/runtime/python/python.h"
#include "user/session/state.h"

/*
 * What the BPF side compares with: lengths for knobs->py_call_lengths, and the count. Before the programs are loaded.
 */
struct program_knobs;
void calls__set_knobs(const struct session *s, struct program_knobs *knobs);
/* Fills the BPF map py_calls. 0 or -errno. */
int calls__set_map(const struct session *s);

/*
 * Adds probes on the interpreter's loop, and marks the actions as found: in CPython up to 3.10; else a message with the
 * way out. Nothing when no Python function is named.
 */
void calls__add_probes(struct session *s, struct probe_list *list, const struct elf *elf, const struct python *python);

/* Notes for the report: what was not seen, and why. At the end. */
void calls__note(struct session *s);

#endif
