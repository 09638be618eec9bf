/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of a sample's stack that ran in a span: its frames without those that began before the
 * span and still enclose it. Uses the recording's REC_AROUND; the job must not take records
 * meanwhile.
 */
#ifndef STEPFLAME_USER_ANALYSIS_FLAME_INSIDE_H
#define STEPFLAME_USER_ANALYSIS_FLAME_INSIDE_H

#include <stdbool.h>

#include "user/model/samples.h"
#include "user/model/stacks.h"

struct inside;

struct inside *inside__new(const struct stacks *stacks, const struct samples *samples); /* NULL: no memory */
void inside__free(struct inside *inside);                                               /* accepts NULL */
/*
 * How many innermost frames of a stack ran in the outermost span of that kind and name around it.
 * *known: false if not known; then returns the count of all frames.
 */
uint32_t inside__frames(const struct inside *inside, const struct path_span *span, uint32_t stack, bool *known);

#endif
