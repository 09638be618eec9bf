// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/elf/version_file.h"

#include <stdio.h>
#include <string.h>

#include "user/lib/utf8.h"

bool version_file__read(const char *path, const char *variable, char *version, size_t size)
{
	char line[256], quote, *value;
	size_t length = strlen(variable);
	bool found = false;
	FILE *f = fopen(path, "re");

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, variable, length) || line[length] != ' ' || !(value = strpbrk(line, "'\"")))
			continue;
		quote = *value++;
		utf8__copy(version, size, value, strcspn(value, (char[]){quote, '\n', 0}));
		found = true;
	}
	fclose(f);
	return found;
}
