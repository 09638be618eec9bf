/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How full the file system is in which processes share memory. */
#ifndef STEPFLAME_USER_PROC_SHM_H
#define STEPFLAME_USER_PROC_SHM_H

#include <stdint.h>
#include <sys/types.h>

struct shm_space {
	uint64_t bytes, free_bytes;
};

/* Of /dev/shm, as the process sees it. 0 or -errno; -ETIMEDOUT: the file system does not answer. */
int shm__space(pid_t pid, struct shm_space *out);

#endif
