/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How many of the pages that a forked process shares with others it has copied since: by a sample of
 * its pages, in /proc/PID/pagemap. Resident memory counts a page before and after; smaps_rollup
 * knows, but goes over all pages: 20 ms of CPU time for 1 GB, where this takes 0.3.
 */
#ifndef STEPFLAME_USER_PROC_SHARED_PAGES_H
#define STEPFLAME_USER_PROC_SHARED_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SHARED_PAGES_MAX 512

struct shared_pages {
	uint64_t addresses[SHARED_PAGES_MAX]; /* of pages that it shared when they were chosen */
	size_t cnt;
	uint64_t each_bytes; /* for how much of its memory each of them stands */
};

/* Chooses pages, at most so many, which is more than 0. cnt 0: it shares none, or hardly any. 0 or -errno. */
int shared_pages__choose(pid_t pid, size_t most, struct shared_pages *out);
/* How many of them nobody else has any more. 0 or -errno. */
int shared_pages__copied(pid_t pid, const struct shared_pages *pages, size_t *copied);

#endif
