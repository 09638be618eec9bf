// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The table of reports, and the options that all reports read. */
#include "user/report/report.h"

#include <string.h>

static const struct report_ops *const reports[] = {
	&report_summary, &report_simple, &report_advanced, &report_ops, &report_steps, &report_io, &report_gpu,
};

const struct report_ops *report__find(const char *name)
{
	for (size_t i = 0; i < sizeof(reports) / sizeof(*reports); i++)
		if (!strcmp(reports[i]->name, name))
			return reports[i];
	return NULL;
}

const struct report_ops *report__at(size_t index)
{
	return index < sizeof(reports) / sizeof(*reports) ? reports[index] : NULL;
}

size_t report_options__limit(const struct report_options *options, int default_limit)
{
	int limit = options->limit < 0 ? default_limit : options->limit;

	return limit ? (size_t)limit : SIZE_MAX;
}
