/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Caches the probe lists of a file on disk for the next session: user/elf/cache.h. */
#ifndef STEPFLAME_USER_SESSION_PROBE_CACHE_H
#define STEPFLAME_USER_SESSION_PROBE_CACHE_H

#include "user/session/probe_list.h"

/*
 * Adds the probes cached under the key `what` to the lists. 0; -ENOENT: not cached; or -errno, and
 * the lists are empty.
 */
int probe_cache__load(const struct elf *elf, const char *what, struct probe_list *lists, size_t list_cnt);
/* Ignores failures: the next session then finds the probes afresh. */
void probe_cache__save(const struct elf *elf, const char *what, const struct probe_list *lists, size_t list_cnt);

#endif
