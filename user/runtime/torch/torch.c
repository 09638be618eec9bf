// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/runtime/torch/torch.h"

#include <stdio.h>
#include <string.h>

#include "user/proc/target_file.h"

const struct mapped_file *torch__file(const struct process *process)
{
	return process__file(process, "libtorch_cpu.so");
}

void torch__version(const struct process *process, const struct mapped_file *libtorch, char *version, size_t size)
{
	/*
	 * PyPI: torch/lib/libtorch_cpu.so. Debian installs the library apart from its Python
	 * package.
	 */
	static const char *const places[] = {"/../version.py", "/../python3/dist-packages/torch/version.py"};
	char path[PATH_MAX + 64];
	const char *slash = strrchr(libtorch->path, '/');
	int dir = slash ? slash - libtorch->path : 0;

	version[0] = 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%.*s%s", dir, libtorch->path, places[i]);
		/* `__version__ = '2.15.0+cpu'`, as torch's build writes it. */
		if (target_file__version(process->pid, path, "__version__", version, size))
			return;
	}
}

bool torch__is_worker(const struct process *process)
{
	return !strncmp(process->comm, "pt_data_", 8); /* "pt_data_worker", torch/utils/data/_utils/worker.py */
}
