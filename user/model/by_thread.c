// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/by_thread.h"

#include "user/lib/search.h"

#include <errno.h>
#include <stdlib.h>

int by_thread__new(const struct samples *samples, struct by_thread *by)
{
	size_t cnt = samples__cnt(samples), end = samples__thread_end(samples);

	*by = (struct by_thread){
		.samples = samples,
		.indexes = calloc(cnt + 1, sizeof(*by->indexes)),
		.first = calloc(end + 2, sizeof(*by->first)),
	};
	if (!by->indexes || !by->first)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		by->first[samples__thread_of(samples, i) + 2]++;
	for (size_t t = 1; t < end + 2; t++)
		by->first[t] += by->first[t - 1];
	for (size_t i = 0; i < cnt; i++)
		by->indexes[by->first[samples__thread_of(samples, i) + 1]++] = i;
	return 0;
}

void by_thread__release(struct by_thread *by)
{
	free(by->indexes);
	free(by->first);
	*by = (struct by_thread){0};
}

uint32_t by_thread__find(const struct by_thread *by, uint32_t pid, uint32_t tid)
{
	uint32_t thread_pid, thread_tid;

	for (size_t t = 1; t < samples__thread_end(by->samples); t++) {
		samples__thread(by->samples, t, &thread_pid, &thread_tid);
		if (thread_pid == pid && thread_tid == tid)
			return t;
	}
	return 0;
}

size_t by_thread__cnt(const struct by_thread *by, uint32_t thread)
{
	return by->first[thread + 1] - by->first[thread];
}

size_t by_thread__index(const struct by_thread *by, uint32_t thread, size_t n)
{
	return by->indexes[by->first[thread] + n];
}

struct sample by_thread__get(const struct by_thread *by, uint32_t thread, size_t n)
{
	return samples__get(by->samples, by_thread__index(by, thread, n));
}

size_t by_thread__ended(const struct by_thread *by, uint32_t thread, uint64_t time_ns)
{
	size_t low = SEARCH(i, 0, by_thread__cnt(by, thread), by_thread__get(by, thread, i).time_ns <= time_ns);
	return low;
}
