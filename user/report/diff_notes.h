/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What of two recordings was compared and what was not, in words. */
#ifndef STEPFLAME_USER_REPORT_DIFF_NOTES_H
#define STEPFLAME_USER_REPORT_DIFF_NOTES_H

#include "user/analysis/diff.h"

/* Adds a sentence, char *, for each thing that a reader has to know. 0 or -ENOMEM. */
int diff_notes__make(const struct diff *diff, struct array *notes);
void diff_notes__free(struct array *notes);

#endif
