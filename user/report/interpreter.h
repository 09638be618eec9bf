/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the interpreter itself costs: waits for its lock (the GIL), and garbage collections. */
#ifndef STEPFLAME_USER_REPORT_INTERPRETER_H
#define STEPFLAME_USER_REPORT_INTERPRETER_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "user/model/job.h"

/*
 * Prints the paragraphs `gil` and `gc` below a table of pid, or of PROCESSES_ALL_MAIN. Omits a
 * paragraph without events.
 */
void interpreter__text(struct job *job, uint32_t pid, FILE *out);

/*
 * Returns {gil_s, gil_main_s, gc: [{generation, count, total_s, max_s, max_step}]}: seconds that
 * all threads, and main threads alone, waited for the GIL; max_s is the longest collection of a
 * generation, and max_step the step in which it ran. NULL: no memory.
 */
json_t *interpreter__json(struct job *job, uint32_t pid);

#endif
