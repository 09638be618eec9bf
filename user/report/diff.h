/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What changed between two recordings, as text, as JSON and as CSV. */
#ifndef STEPFLAME_USER_REPORT_DIFF_H
#define STEPFLAME_USER_REPORT_DIFF_H

#include <stdio.h>

#include "user/analysis/compare/diff.h"

struct diff_options {
	const char *files[DIFF__SIDES];
	int limit; /* rows per section; 0: all */
	bool all;  /* also rows whose change may be chance */
};

/* 0 or -errno. */
int report_diff__text(const struct diff *diff, const struct diff_options *options, FILE *out);
int report_diff__json(const struct diff *diff, const struct diff_options *options, FILE *out);
int report_diff__csv(const struct diff *diff, const struct diff_options *options, FILE *out);

#endif
