/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What of a sample's stack ran in a span: its frames without those that were there before the span began, and that lie around it still.
 * Of the recording's REC_AROUND; its job takes no record in between.
 */
#ifndef STEPFLAME_USER_ANALYSIS_INSIDE_H
#define STEPFLAME_USER_ANALYSIS_INSIDE_H

#include <stdbool.h>

#include "user/model/samples.h"
#include "user/model/stacks.h"

struct inside;

struct inside *inside__new(const struct stacks *stacks, const struct samples *samples); /* NULL: no memory */
void inside__free(struct inside *inside);                                               /* accepts NULL */
/*
 * How many frames of a stack, the innermost, ran in the outermost span of that kind and name that is around it. *known: false where
 * that is not known; then all.
 */
uint32_t inside__frames(const struct inside *inside, const struct path_span *span, uint32_t stack, bool *known);

#endif
