/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The samples of a job by thread, in time order within each thread. Refers to the samples, which
 * must not change meanwhile.
 */
#ifndef STEPFLAME_USER_MODEL_BY_THREAD_H
#define STEPFLAME_USER_MODEL_BY_THREAD_H

#include "user/model/samples.h"

struct by_thread {
	const struct samples *samples;
	uint32_t *indexes; /* of all samples */
	size_t *first;     /* by thread: start of its range in indexes */
};

/* 0 or -ENOMEM. Free with by_thread__release, also after an error. */
int by_thread__new(const struct samples *samples, struct by_thread *by);
void by_thread__release(struct by_thread *by);

/* The number of a thread in samples.h; 0: the thread has no samples. */
uint32_t by_thread__find(const struct by_thread *by, uint32_t pid, uint32_t tid);
/* The number of samples of a thread; the n-th sample, from 0, and its index in samples.h. */
size_t by_thread__cnt(const struct by_thread *by, uint32_t thread);
size_t by_thread__index(const struct by_thread *by, uint32_t thread, size_t n);
struct sample by_thread__get(const struct by_thread *by, uint32_t thread, size_t n);
/* How many samples of a thread ended at or before time_ns. O(log). */
size_t by_thread__ended(const struct by_thread *by, uint32_t thread, uint64_t time_ns);

#endif
