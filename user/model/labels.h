/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What span names say: which rows a report lists by default, and which stage of Lightning's trainer
 * ran.
 */
#ifndef STEPFLAME_USER_MODEL_LABELS_H
#define STEPFLAME_USER_MODEL_LABELS_H

#include <stdbool.h>
#include <stddef.h>

#include "user/model/actions.h"

/* "action", "label", ...: the word for a kind in JSON. */
const char *labels__kind(enum span_kind kind);
/* Whether torch or Lightning itself sets this label, rather than the user's code. */
bool labels__is_torch(const char *name);
/*
 * Whether reports list spans of this kind and name without --all. lightning: the job has spans of
 * kind SPAN_ACTION.
 */
bool labels__listed(enum span_kind kind, const char *name, bool lightning);
/* "FIT", "VALIDATE", "TEST", "PREDICT", or NULL when the rows do not say. */
const char *labels__stage(const struct job_action *actions, size_t cnt);

/* The phase that a span itself stands for; PHASE_OTHER: no phase. */
enum phase labels__phase(enum span_kind kind, const char *name);
#define GC_GENERATIONS 3
/* "gc generation 2": 2. -1: another name. */
int labels__gc_generation(const char *name);

/* "main", "child", "worker": enum target_role. */
const char *labels__role(uint32_t role);

#endif
