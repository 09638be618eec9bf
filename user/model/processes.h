/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which processes a report is of. */
#ifndef STEPFLAME_USER_MODEL_PROCESSES_H
#define STEPFLAME_USER_MODEL_PROCESSES_H

#include "user/model/job.h"

#define PROCESSES_ALL_MAIN 0 /* instead of a pid: all main processes, added together */

/* Whether a row of row_pid belongs into a table of pid. */
bool processes__in_scope(const struct job *job, uint32_t row_pid, uint32_t pid);
/*
 * Processes that have a table of their own with --per-rank: targets in their order, those that are not main only when
 * they are among `pids`, then the pids that are no target. malloc'ed into *out. 0 or -ENOMEM (also for pids NULL).
 */
int processes__list(const struct job *job, const uint32_t *pids, size_t pid_cnt, struct rec_target **out, size_t *cnt);

/* "killed by signal 9 (Killed)", "exit status 1", for a person; malloc'ed. NULL: no memory. */
char *processes__end_text(const struct rec_proc *exit);

#endif
