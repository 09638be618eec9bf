/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sentences that say what a comparison of two recordings covers and what it leaves out. */
#ifndef STEPFLAME_USER_REPORT_DIFF_NOTES_H
#define STEPFLAME_USER_REPORT_DIFF_NOTES_H

#include "user/analysis/compare/diff.h"

/* Adds a sentence, char *, for each thing that the reader has to know. 0 or -ENOMEM. */
int diff_notes__make(const struct diff *diff, struct array *notes);
void diff_notes__free(struct array *notes);

#endif
