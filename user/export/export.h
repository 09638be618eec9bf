/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One struct export_ops per format; adding a format is adding a file and a line in export.c's table. */
#ifndef STEPFLAME_EXPORT_H
#define STEPFLAME_EXPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "../model/job.h"
#include "../model/timeline.h"

struct export_options {
	uint32_t pid; /* only this process; 0: all */
};

struct export_ops {
	const char *name;
	bool binary; /* not for a terminal */
	/* Writes to out, as it goes. 0 or -ENOMEM; errors of out are left in it. */
	int (*write)(struct job *job, const struct timeline *timeline, const struct export_options *options, FILE *out);
};

extern const struct export_ops export_chrome;
extern const struct export_ops export_perfetto;

/* NULL when there is none of that name. */
const struct export_ops *export__find(const char *name);

#endif
