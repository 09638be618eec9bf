// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reader of the memory that the injection library shares. In: a file of the target. Out: records
 * that are complete and within bounds, though the target may have forged their contents.
 */
#include "user/session/sources/gpu_ring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "user/proc/deputy.h"
#include "user/proc/process.h"

#define LINK_NAME   "/memfd:" GPU_RING_NAME
#define RECORD_MIN  16
#define SKIPPED_MAX 4096 /* bad records to skip in one call */

struct gpu_ring {
	int fd;
	struct gpu_ring_control *control;
	char *bytes;
	uint32_t wanted; /* the value that stepflame last wrote */
	bool begun;      /* the window has begun: tail is valid */
	uint64_t tail;
	uint64_t bad;
	uint64_t full, dropped, unknown; /* the library's counts when the window was requested */
};

#define RING_LOAD(field)         __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define RING_STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* The deputy looks first, since a file system may not answer. */
static int look_in_deputy(const void *in, struct deputy_out *out)
{
	int at = open(in, O_PATH | O_CLOEXEC);
	struct statfs fs;
	struct stat st;

	(void)out;
	if (at < 0)
		return -errno;
	if (!fstat(at, &st) && S_ISREG(st.st_mode) && !fstatfs(at, &fs) && fs.f_type == TMPFS_MAGIC) {
		deputy__hand(at);
		return 0;
	}
	close(at);
	return -EPROTO;
}

/*
 * Opens a file of the target only if it is memory, since opening anything else may have effects.
 * gpu_ring__of_file then checks that the memory cannot shrink: reading removed pages would kill
 * stepflame.
 */
static int open_checked(pid_t pid, const char *path)
{
	int fd, at, err = deputy__run(pid, look_in_deputy, path, strlen(path) + 1, NULL);
	char self[64];

	if (err)
		return err;
	at = deputy__take();
	if (at < 0)
		return at;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
	fd = open(self, O_RDWR | O_CLOEXEC | O_NOCTTY);
	fd = fd < 0 ? -errno : fd;
	close(at);
	return fd;
}

static bool is_ring_link(int dir, const char *name)
{
	char text[64];
	ssize_t bytes = readlinkat(dir, name, text, sizeof(text) - 1);

	if (bytes < 0)
		return false;
	text[bytes] = 0;
	return !strncmp(text, LINK_NAME, strlen(LINK_NAME)) &&
	       (!text[strlen(LINK_NAME)] || text[strlen(LINK_NAME)] == ' ');
}

/*
 * Tries the descriptors of a process until gpu_ring__of_file accepts one. -ENOENT: no descriptor is
 * a ring; else the last result of gpu_ring__of_file.
 */
static int open_from_fds(pid_t pid, pid_t nspid, struct gpu_ring **out)
{
	char path[PATH_MAX];
	struct dirent *entry;
	int err = -ENOENT;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while (err && (entry = readdir(dir))) {
		int fd;

		if (!is_ring_link(dirfd(dir), entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, entry->d_name);
		fd = open_checked(pid, path);
		err = fd < 0 ? fd : gpu_ring__of_file(fd, nspid, out);
	}
	closedir(dir);
	return err;
}

struct mapping_search {
	pid_t pid, nspid;
	struct gpu_ring **out;
	int err;
};

static int open_from_mapping(const struct mapping *map, void *ctx)
{
	struct mapping_search *search = ctx;
	char path[PATH_MAX];
	int fd;

	if (!map->name || strncmp(map->name, LINK_NAME, strlen(LINK_NAME)))
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", search->pid, (unsigned long long)map->start,
		 (unsigned long long)map->end);
	fd = open_checked(search->pid, path);
	search->err = fd < 0 ? fd : gpu_ring__of_file(fd, search->nspid, search->out);
	return !search->err;
}

/*
 * Looks at mappings too: a program may have closed the descriptor along with all others that it
 * does not know.
 */
int gpu_ring__open(pid_t pid, pid_t nspid, struct gpu_ring **out)
{
	struct mapping_search search = {.pid = pid, .nspid = nspid, .out = out, .err = -ENOENT};
	int err = open_from_fds(pid, nspid, out);

	if (err != -ENOENT)
		return err;
	err = process__each_mapping(pid, open_from_mapping, &search);
	return err < 0 ? err : search.err;
}

static int check_ring(int fd, const struct gpu_ring_control *control, pid_t nspid)
{
	if (RING_LOAD(control->magic) != GPU_RING_MAGIC || RING_LOAD(control->version) != GPU_RING_VERSION ||
	    RING_LOAD(control->ring_bytes) != GPU_RING_BYTES)
		return -EPROTO;
	/* The process has inherited the ring of its parent. */
	if (RING_LOAD(control->pid) != (uint32_t)nspid)
		return -ENOENT;
	return flock(fd, LOCK_EX | LOCK_NB) ? -EBUSY : 0;
}

int gpu_ring__of_file(int fd, pid_t nspid, struct gpu_ring **out)
{
	size_t bytes = GPU_RING_CONTROL + GPU_RING_BYTES;
	struct gpu_ring *ring = calloc(1, sizeof(*ring));
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS), err = 0;

	*out = NULL;
	if (!ring) {
		close(fd);
		return -ENOMEM;
	}
	ring->fd = fd;
	ring->control = MAP_FAILED;
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || st.st_size != (off_t)bytes)
		err = -EPROTO;
	if (!err) {
		ring->control = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		err = ring->control == MAP_FAILED ? -errno : check_ring(fd, ring->control, nspid);
	}
	if (err) {
		if (ring->control != MAP_FAILED)
			munmap(ring->control, bytes);
		close(fd);
		free(ring);
		return err;
	}
	ring->bytes = (char *)ring->control + GPU_RING_CONTROL;
	ring->wanted = RING_LOAD(ring->control->wanted);
	*out = ring;
	return 0;
}

void gpu_ring__free(struct gpu_ring *ring)
{
	if (!ring)
		return;
	gpu_ring__stop(ring);
	munmap(ring->control, GPU_RING_CONTROL + GPU_RING_BYTES);
	close(ring->fd);
	free(ring);
}

static void set_wanted(struct gpu_ring *ring, uint32_t wanted)
{
	ring->wanted = wanted;
	RING_STORE(ring->control->wanted, wanted);
	syscall(SYS_futex, &ring->control->wanted, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void gpu_ring__start(struct gpu_ring *ring, uint32_t kinds, uint64_t now_ns)
{
	struct gpu_ring_control *c = ring->control;

	ring->begun = false;
	ring->bad = 0;
	ring->full = RING_LOAD(c->full);
	ring->dropped = RING_LOAD(c->dropped);
	ring->unknown = RING_LOAD(c->unknown);
	RING_STORE(c->kinds, kinds);
	gpu_ring__live(ring, now_ns);
	/* `wanted` may already be odd, if an earlier stepflame was killed. */
	set_wanted(ring, (ring->wanted + 1) | 1);
}

void gpu_ring__live(struct gpu_ring *ring, uint64_t now_ns)
{
	RING_STORE(ring->control->alive_ns, now_ns);
}

void gpu_ring__stop(struct gpu_ring *ring)
{
	if (ring->wanted & 1)
		set_wanted(ring, ring->wanted + 1);
}

static uint64_t count_since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

/* A window that stops before stepflame sees it begin has no records. */
static void check_begin(struct gpu_ring *ring)
{
	if (ring->begun || !(ring->wanted & 1) || RING_LOAD(ring->control->seen) != ring->wanted)
		return;
	ring->tail = RING_LOAD(ring->control->start) & ~7ULL;
	ring->begun = true;
}

static void copy_holder(const struct gpu_ring_control *c, char out[sizeof(c->holder)])
{
	for (size_t i = 0; i + 1 < sizeof(c->holder); i++) {
		char character = RING_LOAD(c->holder[i]);

		out[i] = character >= ' ' && character <= '~' ? character : character ? '?' : 0;
		if (!character)
			break;
	}
	out[sizeof(c->holder) - 1] = 0;
}

void gpu_ring__status(struct gpu_ring *ring, struct gpu_ring_status *out)
{
	const struct gpu_ring_control *c = ring->control;

	check_begin(ring);
	*out = (struct gpu_ring_status){
		.seen = RING_LOAD(c->seen) == ring->wanted,
		.begun = ring->begun,
		.state = RING_LOAD(c->state),
		.error = RING_LOAD(c->error),
		.cupti_version = RING_LOAD(c->cupti_version),
		.begun_ns = RING_LOAD(c->begun_ns),
		.ended_ns = RING_LOAD(c->ended_ns),
		.full = count_since(RING_LOAD(c->full), ring->full),
		.dropped = count_since(RING_LOAD(c->dropped), ring->dropped),
		.unknown = count_since(RING_LOAD(c->unknown), ring->unknown),
		.bad = ring->bad,
	};
	copy_holder(c, out->holder);
}

static void copy_from_ring(const struct gpu_ring *ring, uint64_t from, void *out, size_t size)
{
	size_t at = from & (GPU_RING_BYTES - 1), first = GPU_RING_BYTES - at;

	first = first < size ? first : size;
	memcpy(out, ring->bytes + at, first);
	memcpy((char *)out + first, ring->bytes, size - first);
}

static bool is_valid_record(union gpu_ring_record *rec)
{
	switch (rec->hdr.type) {
	case GPU_RING_NAME_TEXT: {
		uint32_t bytes = rec->name.bytes;

		if (bytes > GPU_RING_TEXT_MAX || ((sizeof(rec->name) + bytes + 7) & ~(size_t)7) != rec->hdr.size)
			return false;
		rec->name.text[bytes] = 0;
		return rec->name.id != 0;
	}
	case GPU_RING_ACTIVITY:
		return rec->hdr.size == sizeof(rec->activity) && rec->activity.kind > GPU_ACTIVITY_NONE &&
		       rec->activity.kind < GPU_ACTIVITY__COUNT && rec->activity.direction < GPU_DIRECTION__COUNT &&
		       rec->activity.start_ns <= rec->activity.end_ns;
	case GPU_RING_CLOCK:
		return rec->hdr.size == sizeof(rec->clock) && rec->clock.before_ns <= rec->clock.behind_ns;
	case GPU_RING_DEVICE:
		if (rec->hdr.size != sizeof(rec->device))
			return false;
		rec->device.name[sizeof(rec->device.name) - 1] = 0;
		return true;
	default:
		return false;
	}
}

/* Reads one record. 1: *out is valid; 0: no record now; -1: skipped a bad record. */
static int read_record(struct gpu_ring *ring, union gpu_ring_record *out)
{
	uint64_t head = RING_LOAD(ring->control->head), unread = head - ring->tail;
	struct gpu_ring_hdr hdr;

	if (!unread)
		return 0;
	copy_from_ring(ring, ring->tail, &hdr, sizeof(hdr));
	/* The size is wrong, so the next record could begin anywhere: skip all. */
	if (unread > GPU_RING_BYTES || unread < RECORD_MIN || hdr.size < RECORD_MIN || hdr.size % 8 ||
	    hdr.size > unread || hdr.size > sizeof(*out) - 8) {
		ring->tail = head & ~7ULL;
		RING_STORE(ring->control->tail, ring->tail);
		ring->bad++;
		return head & 7 ? 0 : -1;
	}
	copy_from_ring(ring, ring->tail, out, hdr.size);
	out->hdr = hdr;
	ring->tail += hdr.size;
	RING_STORE(ring->control->tail, ring->tail);
	if (is_valid_record(out))
		return 1;
	ring->bad++;
	return -1;
}

bool gpu_ring__next(struct gpu_ring *ring, union gpu_ring_record *out)
{
	int got = -1;

	check_begin(ring);
	for (int i = 0; ring->begun && got < 0 && i < SKIPPED_MAX; i++)
		got = read_record(ring, out);
	return got > 0;
}
