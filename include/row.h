/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The head of each row of the tables in which BPF counts: bpf/row.h. */
#ifndef STEPFLAME_INCLUDE_ROW_H
#define STEPFLAME_INCLUDE_ROW_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

struct row_head {
	__u64 hash;  /* of the key; 0: the row is free */
	__u64 whole; /* nonzero: the key is complete */
};

#endif
