// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/restrictions.h"

#include <stdio.h>
#include <string.h>

/* "none [integrity] confidentiality" */
enum lockdown lockdown__mode(void)
{
	FILE *file = fopen("/sys/kernel/security/lockdown", "re");
	char modes[64] = "";

	if (file) {
		if (!fgets(modes, sizeof(modes), file))
			modes[0] = 0;
		fclose(file);
	}
	if (strstr(modes, "[confidentiality]"))
		return LOCKDOWN_CONFIDENTIALITY;
	return strstr(modes, "[integrity]") ? LOCKDOWN_INTEGRITY : LOCKDOWN_NONE;
}

int yama__scope(void)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	if (file) {
		if (fscanf(file, "%d", &scope) != 1)
			scope = 0;
		fclose(file);
	}
	return scope;
}
