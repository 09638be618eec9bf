/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What DataLoader workers do for the steps: a section of the I/O report. */
#ifndef STEPFLAME_USER_REPORT_WORKERS_H
#define STEPFLAME_USER_REPORT_WORKERS_H

#include <jansson.h>
#include <stdio.h>

#include "user/model/job.h"

/* Prints nothing where there are no workers. 0 or -ENOMEM. */
int report_workers__text(struct job *job, FILE *out);
/* Returns an array with an object for each process that has workers. NULL: no memory. */
json_t *report_workers__json(struct job *job);

#endif
