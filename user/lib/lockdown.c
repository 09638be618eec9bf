// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/lockdown.h"

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
