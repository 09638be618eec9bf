/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Probe lists of a file in the cache on disk, for the next session: user/elf/cache.h. */
#ifndef STEPFLAME_USER_SESSION_PROBE_CACHE_H
#define STEPFLAME_USER_SESSION_PROBE_CACHE_H

#include "user/session/probe_list.h"

/* Adds what is there under that word to the lists. 0; -ENOENT nothing is; or -errno, and the lists are empty. */
int probe_cache__load(const struct elf *elf, const char *what, struct probe_list *lists, size_t list_cnt);
/* A failure is no error: they are looked for again. */
void probe_cache__save(const struct elf *elf, const char *what, const struct probe_list *lists, size_t list_cnt);

#endif
