// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The buffers that CUPTI fills. CUPTI asks for one in any thread of the program, from 13.0 on in each
 * thread that calls CUDA, and gives it back when all records in it are complete, which those of work
 * that the GPU has not done are not. So there have to be many, and their memory is got when it is needed.
 *
 * No function takes a lock: CUPTI calls under locks of its own, and in forked children.
 */
#include <sys/mman.h>

#include "user/inject/inject.h"

static struct buffer buffers[BUFFERS_MAX];

/* Buffers of an earlier window that CUPTI still holds are not of the present one. */
static uint32_t window;

void buffers__begin(void)
{
	__atomic_add_fetch(&window, 1, __ATOMIC_RELAXED);
}

struct buffer *buffers__take(uint64_t now_ns)
{
	for (int i = 0; i < BUFFERS_MAX; i++) {
		struct buffer *b = &buffers[i];
		void *memory;

		if (__atomic_exchange_n(&b->taken, 1, __ATOMIC_ACQUIRE))
			continue;
		if (!b->memory) {
			memory = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (memory == MAP_FAILED) {
				buffers__release(b);
				return NULL;
			}
			__atomic_store_n(&b->memory, memory, __ATOMIC_RELEASE);
		}
		b->window = __atomic_load_n(&window, __ATOMIC_RELAXED);
		__atomic_store_n(&b->asked_ns, now_ns, __ATOMIC_RELEASE);
		return b;
	}
	return NULL;
}

struct buffer *buffers__find(const uint8_t *memory)
{
	for (int i = 0; i < BUFFERS_MAX; i++)
		if (memory && __atomic_load_n(&buffers[i].memory, __ATOMIC_ACQUIRE) == memory)
			return &buffers[i];
	return NULL;
}

bool buffer__is_of_window(const struct buffer *b)
{
	return b->window == __atomic_load_n(&window, __ATOMIC_RELAXED);
}

void buffers__release(struct buffer *b)
{
	__atomic_store_n(&b->asked_ns, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&b->taken, 0, __ATOMIC_RELEASE);
}

uint64_t buffers__held(uint32_t *cnt)
{
	uint64_t oldest_ns = UINT64_MAX;

	*cnt = 0;
	for (int i = 0; i < BUFFERS_MAX; i++) {
		uint64_t asked_ns = __atomic_load_n(&buffers[i].asked_ns, __ATOMIC_ACQUIRE);

		if (!asked_ns || !buffer__is_of_window(&buffers[i]))
			continue;
		oldest_ns = asked_ns < oldest_ns ? asked_ns : oldest_ns;
		++*cnt;
	}
	return oldest_ns;
}

void buffers__give_memory_back(void)
{
	for (int i = 0; i < BUFFERS_MAX; i++) {
		if (__atomic_exchange_n(&buffers[i].taken, 1, __ATOMIC_ACQUIRE))
			continue;
		if (buffers[i].memory)
			madvise(buffers[i].memory, BUFFER_BYTES, MADV_DONTNEED);
		buffers__release(&buffers[i]);
	}
}
