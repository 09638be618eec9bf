/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The checks of `doctor`: each adds lines to its list. */
#ifndef STEPFLAME_USER_CMD_DOCTOR_H
#define STEPFLAME_USER_CMD_DOCTOR_H

struct doctor;

enum check_result { OK, WARN, FAIL };

/* Adds what was found. fix is printed unless the verdict is OK, and must stay valid; NULL: none. */
__attribute__((format(printf, 5, 6))) void doctor__add(struct doctor *d, const char *name, enum check_result verdict,
						       const char *fix, const char *fmt, ...);

/* What the kernel and this process's rights allow: capabilities, namespaces, security modules, sysctls. */
void doctor__check_rights(struct doctor *d);

#endif
