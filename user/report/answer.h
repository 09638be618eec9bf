/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The answer of a recording, for views that draw it: what the steps and the summary report say of
 * each track, in the words of the summary.
 */
#ifndef STEPFLAME_USER_REPORT_ANSWER_H
#define STEPFLAME_USER_REPORT_ANSWER_H

#include "user/report/steps_report.h"

/*
 * Returns {shown, tracks}: the index of the track that the reports show first, null without tracks;
 * and of each track of the view, in its order, `verdict` and `causes` as report --steps --json has
 * them, with the words of the summary (`words`, `head`, `how`, `place`), and of each cause its
 * `share` of the time of all steps and the indexes of its `steps`. NULL: no memory.
 */
json_t *answer__json(const struct steps_view *view);

#endif
