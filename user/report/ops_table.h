/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_REPORT_OPS_TABLE_H
#define STEPFLAME_USER_REPORT_OPS_TABLE_H

#include "user/report/ops_rows.h"

struct ops_table_options {
	size_t limit; /* rows to print; widths and sums are those of all rows */
	bool shapes;  /* columns; the table omits one for which no row has a value */
	bool flops;
	bool memory;
	bool device_memory;
	bool device; /* columns of times on GPUs */
};

/*
 * Prints the table alone, with rows in the given order: byte for byte what torch 2.15's
 * EventList.table() returns (_build_table() in torch/autograd/profiler_util.py), with three
 * exceptions: control characters in names are escaped; there is a Module column, which torch lacks;
 * and Source Location and Total FLOPs together have their own titles, where torch prints the values
 * of each below the title of the other. 0 or -ENOMEM; the caller checks out for errors.
 */
int ops_table__print(const struct ops_row *rows, size_t cnt, const struct ops_table_options *options, FILE *out);

#endif
