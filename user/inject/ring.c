// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The writer's side of the memory that the library shares with stepflame. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "user/inject/inject.h"

#define BYTES (GPU_RING_CONTROL + GPU_RING_BYTES)

/* The memory cannot shrink afterwards, so a reader that has mapped it cannot lose its pages. */
int ring__make(struct ring *ring)
{
	int fd = memfd_create(GPU_RING_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING), err = 0;
	char *memory = MAP_FAILED;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		err = -errno;
	if (!err) {
		memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		err = memory == MAP_FAILED ? -errno : 0;
	}
	/* A forked child would write its records into its parent's ring. */
	if (!err && madvise(memory, BYTES, MADV_DONTFORK)) {
		err = -errno;
		munmap(memory, BYTES);
	}
	if (err) {
		close(fd);
		return err;
	}
	ring->control = (void *)memory;
	ring->bytes = memory + GPU_RING_CONTROL;
	ring->size = GPU_RING_BYTES;
	ring->control->version = GPU_RING_VERSION;
	ring->control->pid = getpid();
	ring->control->ring_bytes = GPU_RING_BYTES;
	__atomic_store_n(&ring->control->magic, GPU_RING_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

void ring__restart(struct ring *ring)
{
	__atomic_store_n(&ring->control->start, ring->control->head, __ATOMIC_RELEASE);
}

bool ring__write(struct ring *ring, const void *record, size_t size)
{
	struct gpu_ring_control *c = ring->control;
	uint64_t head = c->head, tail = __atomic_load_n(&c->tail, __ATOMIC_ACQUIRE), start = c->start;
	uint64_t used = head - (tail > start ? tail : start); /* more than the ring holds if the reader is broken */
	size_t at = head & (ring->size - 1), first = ring->size - at;

	if (used > ring->size || size > ring->size - used) {
		__atomic_fetch_add(&c->full, 1, __ATOMIC_RELAXED);
		return false;
	}
	first = first < size ? first : size;
	memcpy(ring->bytes + at, record, first);
	memcpy(ring->bytes, (const char *)record + first, size - first);
	__atomic_store_n(&c->head, head + size, __ATOMIC_RELEASE);
	return true;
}
