// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/restrictions.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* 0 where there is no such setting. */
static int setting(const char *path)
{
	FILE *file = fopen(path, "re");
	int value = 0;

	if (file) {
		if (fscanf(file, "%d", &value) != 1)
			value = 0;
		fclose(file);
	}
	return value;
}

bool perf_events__denied(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.exclude_kernel = 1,
	};
	int fd;

	if (setting("/proc/sys/kernel/perf_event_paranoid") <= 2)
		return false;
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM;
	close(fd);
	return false;
}

int yama__scope(void)
{
	return setting("/proc/sys/kernel/yama/ptrace_scope");
}
