/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the names of spans tell: which rows a report lists by default, and which stage of Lightning's trainer ran. */
#ifndef STEPFLAME_USER_MODEL_LABELS_H
#define STEPFLAME_USER_MODEL_LABELS_H

#include <stdbool.h>
#include <stddef.h>

#include "user/model/actions.h"

/* "action", "label", ...: the word for a kind in JSON. */
const char *labels__kind(enum span_kind kind);
/* A label that torch or Lightning itself puts, not the user's code. */
bool labels__is_torch(const char *name);
/* Whether reports list spans of this kind and name without --all; lightning: the job has some of kind SPAN_ACTION. */
bool labels__listed(enum span_kind kind, const char *name, bool lightning);
/* "FIT", "VALIDATE", "TEST", "PREDICT", or NULL when the rows do not tell. */
const char *labels__stage(const struct job_action *actions, size_t cnt);

/* The phase that a span has of its own; PHASE_OTHER: none. */
enum phase labels__phase(enum span_kind kind, const char *name);
#define GC_GENERATIONS 3
/* "gc generation 2": 2. -1: another name. */
int labels__gc_generation(const char *name);

/* "main", "child", "worker": enum target_role. */
const char *labels__role(uint32_t role);

#endif
