/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether the kernel is locked down (kernel_lockdown(7)), which restricts root, too. */
#ifndef STEPFLAME_USER_LIB_LOCKDOWN_H
#define STEPFLAME_USER_LIB_LOCKDOWN_H

enum lockdown {
	LOCKDOWN_NONE, /* also where that cannot be known: without securityfs */
	LOCKDOWN_INTEGRITY,
	LOCKDOWN_CONFIDENTIALITY, /* BPF programs may not read the kernel's memory */
};

enum lockdown lockdown__mode(void);

#endif
