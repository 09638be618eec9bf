/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_REPORT_OPS_TABLE_H
#define STEPFLAME_USER_REPORT_OPS_TABLE_H

#include "user/report/ops_rows.h"

struct ops_table_options {
	size_t limit; /* rows that are printed; widths and sums are over all */
	bool shapes;  /* the columns; each is left out where no row has anything for it */
	bool flops;
	bool memory;
	bool device_memory;
	bool device; /* times */
};

/*
 * The table alone, of rows in their order: byte for byte what torch 2.15's EventList.table() returns (_build_table() in
 * torch/autograd/profiler_util.py), but for control characters in names, which are escaped; for a Module column, which
 * torch has not; and for Source Location and Total FLOPs together, whose values torch prints each below the other's
 * title. 0 or -ENOMEM; errors of out stay in it.
 */
int ops_table__print(const struct ops_row *rows, size_t cnt, const struct ops_table_options *options, FILE *out);

#endif
