/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The words for what trigger.h sees. */
#ifndef STEPFLAME_USER_REPORT_TRIGGER_TEXT_H
#define STEPFLAME_USER_REPORT_TRIGGER_TEXT_H

#include "user/analysis/live/trigger.h"

#define TRIGGER_TEXT 256 /* bytes */

/* Writes "step 512 of process 7 took 1.2 s; the steps before it ...". Returns text. */
const char *trigger_text__event(const struct trigger_event *event, char text[TRIGGER_TEXT]);

#endif
