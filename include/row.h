/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a row of a table in which BPF counts begins with: bpf/row.h. */
#ifndef STEPFLAME_INCLUDE_ROW_H
#define STEPFLAME_INCLUDE_ROW_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

struct row_head {
	__u64 hash;  /* of the key; 0: the row is free */
	__u64 whole; /* the key is there */
};

#endif
