// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Whoever owns the process chooses what is mounted there: so the deputy looks. */
#include "user/proc/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "user/proc/deputy.h"
#include "user/proc/target_file.h"

static int look_in_deputy(const void *in, struct deputy_out *out)
{
	const pid_t *pid = in;
	int root = target_file__root(*pid), at = root < 0 ? root : target_file__open(root, "dev/shm", O_DIRECTORY), err;
	struct shm_space space;
	struct statvfs fs;

	if (root >= 0)
		close(root);
	if (at < 0)
		return at;
	err = fstatvfs(at, &fs) ? -errno : 0;
	close(at);
	if (err)
		return err;
	space = (struct shm_space){(uint64_t)fs.f_blocks * fs.f_frsize, (uint64_t)fs.f_bavail * fs.f_frsize};
	memcpy(out->bytes, &space, sizeof(space));
	out->size = sizeof(space);
	return 0;
}

int shm__space(pid_t pid, struct shm_space *out)
{
	const struct deputy_out *answer;
	int err = deputy__run(pid, look_in_deputy, &pid, sizeof(pid), &answer);

	if (!err)
		memcpy(out, answer->bytes, sizeof(*out));
	return err;
}
