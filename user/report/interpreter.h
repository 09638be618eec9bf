/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the interpreter itself takes: waits for its lock (the GIL), and collections of garbage. */
#ifndef STEPFLAME_USER_REPORT_INTERPRETER_H
#define STEPFLAME_USER_REPORT_INTERPRETER_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "user/model/job.h"

/*
 * The paragraphs `gil` and `gc` below a table of pid, or of PROCESSES_ALL_MAIN; nothing where there was none of them.
 */
void interpreter__text(struct job *job, uint32_t pid, FILE *out);

/*
 * {gil_s, gil_main_s, gc: [{generation, count, total_s, max_s, max_step}]}: seconds that all threads waited for the
 * GIL, and main threads alone; the longest collection of a generation and the step that it was in. NULL: no memory.
 */
json_t *interpreter__json(struct job *job, uint32_t pid);

#endif
