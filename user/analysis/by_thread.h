/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The samples of a job by their threads, each thread's in the order of time. Refers to the samples, which do not change meanwhile. */
#ifndef STEPFLAME_USER_ANALYSIS_BY_THREAD_H
#define STEPFLAME_USER_ANALYSIS_BY_THREAD_H

#include "user/model/samples.h"

struct by_thread {
	const struct samples *samples;
	uint32_t *indexes; /* of all samples */
	size_t *first;     /* by thread: where its indexes begin */
};

/* 0 or -ENOMEM. Free with by_thread__release, in either case. */
int by_thread__new(const struct samples *samples, struct by_thread *by);
void by_thread__release(struct by_thread *by);

/* The number of a thread, as samples.h has it; 0: it has no samples. */
uint32_t by_thread__find(const struct by_thread *by, uint32_t pid, uint32_t tid);
/* Samples of a thread, by its number, and the n-th of them, from 0. */
size_t by_thread__cnt(const struct by_thread *by, uint32_t thread);
struct sample by_thread__get(const struct by_thread *by, uint32_t thread, size_t n);
/* How many of a thread's samples ended by then. O(log). */
size_t by_thread__ended(const struct by_thread *by, uint32_t thread, uint64_t time_ns);

#endif
