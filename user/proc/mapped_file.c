// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Opens the files that processes map: the very inode, whatever lies at its path by now. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/elf/elf.h"
#include "user/proc/process.h"

/* Finds the mapping at `start`. */
static int mapping__match(const struct mapping *map, void *ctx)
{
	struct mapping *want = ctx;

	if (map->start != want->start)
		return 0;
	*want = *map;
	return 1;
}

/*
 * Is this the file of those numbers? maps(5) and stat(2) disagree on the device of btrfs and
 * overlayfs, so what maps says of the target's mapping is then compared with what it says of ours.
 */
static bool is_inode(int fd, const struct stat *st, uint64_t dev, uint64_t inode)
{
	struct mapping own = {};
	void *map;

	if (st->st_dev == dev && st->st_ino == inode)
		return true;
	map = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return false;
	own.start = (uintptr_t)map;
	process__each_mapping(getpid(), mapping__match, &own);
	munmap(map, 1);
	return own.dev == dev && own.inode == inode;
}

/* O_PATH first: to open a device, or a FIFO, would have effects. */
static int open_inode(const char *path, uint64_t dev, uint64_t inode)
{
	int at = open(path, O_PATH | O_CLOEXEC), fd = -1, err;
	char self[32];
	struct stat st;

	if (at < 0 || fstat(at, &st)) {
		err = -errno;
	} else if (!S_ISREG(st.st_mode)) {
		err = -ENOEXEC;
	} else {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
		fd = open(self, O_RDONLY | O_CLOEXEC);
		err = fd < 0 ? -errno : is_inode(fd, &st, dev, inode) ? 0 : -ESTALE;
	}
	if (at >= 0)
		close(at);
	if (err && fd >= 0)
		close(fd);
	return err ?: fd;
}

/*
 * By map_files, which leads to the mapped inode itself, deleted or not; it needs CAP_SYS_ADMIN or
 * CAP_CHECKPOINT_RESTORE, and the mapping as it was. Else by the path, which the target's owner may
 * have changed meanwhile.
 */
int mapped_file__open(const struct mapped_file *file)
{
	char path[64];
	int fd, other;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, file->pid, file->start, file->end);
	fd = open_inode(path, file->dev, file->inode);
	other = fd < 0 ? open_inode(file->open_path, file->dev, file->inode) : -1;
	return other >= 0 ? other : fd;
}

const char *mapped_file__explain(int err, const char **fix)
{
	switch (err) {
	case -ESTALE:
		*fix = "try again once nothing writes to the job's files";
		return "it changed while stepflame read it";
	case -EFBIG:
		*fix = "report this file";
		return "it is sparse, or its tables are larger than those of any known library";
	case -EBADMSG:
		*fix = "detach the debugger or tool that patches it, or restart the job";
		return "its code in memory is not that of the file";
	}
	return NULL;
}

int mapped_file__elf(const struct mapped_file *file, struct elf **out)
{
	int fd = mapped_file__open(file);

	return fd < 0 ? fd : elf__new_fd(fd, out);
}
