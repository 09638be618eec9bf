// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/library.h"

#include <dlfcn.h>
#include <errno.h>

int library__load(const char *file, const struct library_function *functions, size_t cnt, const char **why)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	size_t found = 0;

	while (library && found < cnt && (*functions[found].function = dlsym(library, functions[found].name)))
		found++;
	if (library && found == cnt)
		return 0;
	*why = dlerror();
	return -ENOENT;
}
