// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/runtime/cuda/nvidia.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build ...": the
 * first number with a dot.
 */
int nvidia__version(FILE *file, char *version, size_t size)
{
	char line[512], *rest, *word;

	if (!fgets(line, sizeof(line), file) || strncmp(line, "NVRM version:", 13))
		return -ENODATA;
	for (word = strtok_r(line, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest)) {
		if (!isdigit((unsigned char)word[0]) || !strchr(word, '.') || word[strspn(word, "0123456789.")])
			continue;
		snprintf(version, size, "%s", word);
		return 0;
	}
	return -ENODATA;
}

int nvidia__restricts_profiling(FILE *file)
{
	char line[512];

	while (fgets(line, sizeof(line), file)) {
		const char *value = strchr(line, ':');

		if (value &&
		    (!strncmp(line, "RmProfilingAdminOnly:", 21) || strstr(line, "RestrictProfilingToAdminUsers:")))
			return atoi(value + 1) != 0;
	}
	return -ENODATA;
}
