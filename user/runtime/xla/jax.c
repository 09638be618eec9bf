// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/runtime/xla/jax.h"

#include <stdio.h>
#include <string.h>

#include "user/proc/target_file.h"

const struct mapped_file *jax__file(const struct process *process)
{
	return process__file(process, "libjax_common.so") ?: process__file(process, "xla_extension.so");
}

void jax__version(const struct process *process, const struct mapped_file *library, char *version, size_t size)
{
	char path[PATH_MAX + 64];
	const char *slash = strrchr(library->path, '/');
	int dir = slash ? slash - library->path : 0;

	snprintf(path, sizeof(path), "%.*s/version.py", dir, library->path);
	/* `_version = "0.10.2"`; the file computes its __version__. */
	if (!target_file__version(process->pid, path, "_version", version, size))
		snprintf(version, size, "?");
}
