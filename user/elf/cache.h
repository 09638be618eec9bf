/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keeps what was found in a file, so that the next attach need not look again: arrays, as they lie in memory, in
 * DIR/BUILD-ID.WHAT. It serves this machine, and a stepflame that finds things in the same way.
 */
#ifndef STEPFLAME_USER_ELF_CACHE_H
#define STEPFLAME_USER_ELF_CACHE_H

#include <stddef.h>

#include "user/elf/elf.h"

#define CACHE_PARTS 8

struct cache_part {
	size_t unit; /* bytes of an element */
	size_t cnt;
	void *data; /* malloc'ed by cache__load */
};

/* Where things are kept: a path in `path`, or NULL when the environment has no place for it. */
const char *cache__dir(char *path, size_t size);

/*
 * What was kept of this file in dir (NULL: nowhere). Units are the caller's; part[0] is of uint64_t: the offsets in the
 * file of all code that was chosen, in which nothing may have changed. 0, and the caller frees each data; or -ENOENT when
 * nothing is there, or nothing that may be trusted. What the elements say is for the caller to check.
 */
int cache__load(const struct elf *elf, const char *dir, const char *what, struct cache_part *part, size_t part_cnt);
/* Keeps it, if it can. */
void cache__save(const struct elf *elf, const char *dir, const char *what, const struct cache_part *part,
		 size_t part_cnt);
/* Frees and forgets all data. */
void cache__release(struct cache_part *part, size_t part_cnt);

#endif
