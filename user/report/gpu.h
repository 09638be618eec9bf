/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_REPORT_GPU_H
#define STEPFLAME_USER_REPORT_GPU_H

#include "user/report/report.h"

/* The GPU report as JSON; see struct report_ops. */
int report_gpu__json(struct job *job, const struct report_options *options, FILE *out);

#endif
