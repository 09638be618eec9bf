/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Prints a report where the user reads it. */
#ifndef STEPFLAME_USER_CMD_PRINT_H
#define STEPFLAME_USER_CMD_PRINT_H

#include "user/report/report.h"

/*
 * Makes the report in memory and writes it at once, so that an error of the output keeps its errno:
 * to stdout or stderr, fitted to the terminal if that is one. 0 or -errno.
 */
int print__report(const struct report_ops *ops, struct job *job, const struct report_options *options, FILE *out);

#endif
