/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Caches what stepflame found in a file, so that the next attach need not search again: for that
 * inode, until its content, owner or name changes. A cache holds arrays as they lie in memory: it is
 * good only on this machine, and for a stepflame that searches in the same way. Its folder must be
 * the user's own, and holds at most 256 files and 256 MB.
 */
#ifndef STEPFLAME_USER_ELF_CACHE_H
#define STEPFLAME_USER_ELF_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "user/elf/elf.h"

#define CACHE_PARTS 8

/* A file that was searched, and its content, as far as nobody but root can forge it. No padding. */
struct file_key {
	uint64_t dev, inode, size, owner;
	int64_t mtime_s, mtime_ns, ctime_s, ctime_ns;
	/*
	 * Of a file system without a device of its own (overlayfs, btrfs): its number is given to the
	 * next file system, which a user may have made, with any inodes and times. Else 0.
	 */
	uint64_t mount;
	char boot[40];
};

/* false: nobody can say whether a file with this key is this one another time. */
bool file_key__of(const struct elf *elf, struct file_key *key);

struct cache_part {
	size_t unit; /* bytes of an element */
	size_t cnt;
	void *data; /* malloc'ed by cache__load */
};

/* The directory of the cache, written to `path`; NULL when the environment names no place for one. */
const char *cache__dir(char *path, size_t size);

/*
 * Loads the cache of this file from dir (NULL: no cache). The caller gives the units; part[0] is an
 * array of uint64_t: the file offsets of all code that was chosen, which must not have changed. 0,
 * and the caller frees each `data`; or -ENOENT when there is no cache, or it cannot be trusted. The
 * caller checks the values of the elements.
 */
int cache__load(const struct elf *elf, const char *dir, const char *what, struct cache_part *part, size_t part_cnt);
/* Writes the cache; a failure is silent. */
void cache__save(const struct elf *elf, const char *dir, const char *what, const struct cache_part *part,
		 size_t part_cnt);
/* Frees all data and clears the parts. */
void cache__release(struct cache_part *part, size_t part_cnt);

#endif
