/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_ring__*: the memory of a process that lies. What the reader gives out is whole and within bounds, whatever is written
 * there; what is in order arrives as it was written. gpu_clock__*: against a clock with a known offset and rate.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/session/sources/gpu_reader.h"
#include "user/session/sources/gpu_ring.h"

#define BYTES (GPU_RING_CONTROL + GPU_RING_BYTES)
#define MASK  (GPU_RING_BYTES - 1)

/* The target's side. */
struct side {
	int fd;
	struct gpu_ring_control *control;
	char *bytes;
};

static void side__new(struct side *side)
{
	side->fd = memfd_create(GPU_RING_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(side->fd >= 0);
	assert_int_equal(ftruncate(side->fd, BYTES), 0);
	side->control = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, side->fd, 0);
	assert_ptr_not_equal(side->control, MAP_FAILED);
	side->bytes = (char *)side->control + GPU_RING_CONTROL;
	*side->control = (struct gpu_ring_control){
		.magic = GPU_RING_MAGIC,
		.version = GPU_RING_VERSION,
		.pid = getpid(),
		.ring_bytes = GPU_RING_BYTES,
	};
}

static void side__seal(const struct side *side)
{
	assert_int_equal(fcntl(side->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
}

static void side__free(struct side *side)
{
	munmap(side->control, BYTES);
	close(side->fd);
}

static void side__write(struct side *side, const void *record, size_t size)
{
	for (size_t i = 0; i < size; i++)
		side->bytes[(side->control->head + i) & MASK] = ((const char *)record)[i];
	side->control->head += size;
}

/* A ring in whose window records are read; the window begins at `start`. */
static struct gpu_ring *begun(struct side *side, uint64_t start)
{
	struct gpu_ring *ring;

	side__new(side);
	side__seal(side);
	side->control->head = side->control->start = start;
	assert_int_equal(gpu_ring__of_file(dup(side->fd), getpid(), &ring), 0);
	gpu_ring__start(ring, 1, 1);
	side->control->seen = side->control->wanted;
	return ring;
}

static struct gpu_ring_activity activity(uint32_t number)
{
	struct gpu_ring_activity rec = {
		.hdr = {.type = GPU_RING_ACTIVITY, .size = sizeof(rec)},
		.start_ns = number,
		.end_ns = number + 1ULL,
		.correlation = number,
		.kind = GPU_ACTIVITY_KERNEL,
		.stream = ~number,
	};

	return rec;
}

static void test_refused(void **state)
{
	struct gpu_ring *ring;
	struct side side;

	side__new(&side);
	assert_int_equal(gpu_ring__of_file(dup(side.fd), getpid(), &ring), -EPROTO); /* could shrink under us */
	side__seal(&side);
	side.control->magic++;
	assert_int_equal(gpu_ring__of_file(dup(side.fd), getpid(), &ring), -EPROTO);
	side.control->magic--;
	side.control->version++;
	assert_int_equal(gpu_ring__of_file(dup(side.fd), getpid(), &ring), -EPROTO);
	side.control->version--;
	side.control->ring_bytes *= 2;
	assert_int_equal(gpu_ring__of_file(dup(side.fd), getpid(), &ring), -EPROTO);
	side.control->ring_bytes /= 2;
	assert_int_equal(gpu_ring__of_file(dup(side.fd), getpid() + 1, &ring), -ENOENT); /* a parent's */
	assert_null(ring);
	assert_int_equal(gpu_ring__of_file(open("/dev/null", O_RDWR), getpid(), &ring), -EPROTO);
	side__free(&side);
}

/* By its descriptor, and when that is closed by its mapping. One reader at a time. */
static void test_found(void **state)
{
	struct gpu_ring *ring, *other;
	struct side side;

	assert_int_equal(gpu_ring__open(getpid(), getpid(), &ring), -ENOENT);
	side__new(&side);
	side__seal(&side);
	assert_int_equal(gpu_ring__open(getpid(), getpid(), &ring), 0);
	assert_int_equal(gpu_ring__open(getpid(), getpid(), &other), -EBUSY);
	gpu_ring__free(ring);
	close(side.fd);
	if (!geteuid()) {
		assert_int_equal(gpu_ring__open(getpid(), getpid(), &ring), 0);
		gpu_ring__start(ring, 6, 7);
		assert_int_equal(side.control->wanted, 1);
		assert_int_equal(side.control->kinds, 6);
		assert_int_equal(side.control->alive_ns, 7);
		gpu_ring__free(ring);
		assert_int_equal(side.control->wanted, 2);
	}
	munmap(side.control, BYTES);
}

/* Records of a window that was not ours are passed by; a window that a killed reader left open is begun anew. */
static void test_begins(void **state)
{
	struct gpu_ring_activity rec = activity(1);
	struct gpu_ring_status status;
	union gpu_ring_record out;
	struct gpu_ring *ring;
	struct side side;

	side__new(&side);
	side__seal(&side);
	side.control->wanted = side.control->seen = 5;
	side__write(&side, &rec, sizeof(rec));
	assert_int_equal(gpu_ring__of_file(dup(side.fd), getpid(), &ring), 0);
	gpu_ring__start(ring, 1, 1);
	assert_int_equal(side.control->wanted, 7);
	assert_false(gpu_ring__next(ring, &out));
	gpu_ring__status(ring, &status);
	assert_false(status.seen || status.begun);
	side.control->start = side.control->head;
	rec = activity(2);
	side__write(&side, &rec, sizeof(rec));
	side.control->full = 3;
	side.control->seen = 7;
	assert_true(gpu_ring__next(ring, &out));
	assert_int_equal(out.activity.correlation, 2);
	assert_false(gpu_ring__next(ring, &out));
	gpu_ring__stop(ring);
	assert_int_equal(side.control->wanted, 8);
	gpu_ring__stop(ring);
	assert_int_equal(side.control->wanted, 8);
	gpu_ring__status(ring, &status);
	assert_true(!status.seen && status.begun && status.full == 3 && !status.bad);
	gpu_ring__free(ring);
	side__free(&side);
}

static void test_wraps(void **state)
{
	uint32_t written = 0, read = 0;
	union gpu_ring_record out;
	struct side side;
	struct gpu_ring *ring = begun(&side, 8);

	while (side.control->head < 3ULL * GPU_RING_BYTES) {
		for (int i = 0; i < 1000; i++) {
			struct gpu_ring_activity rec = activity(written++);

			side__write(&side, &rec, sizeof(rec));
		}
		while (gpu_ring__next(ring, &out)) {
			assert_int_equal(out.hdr.type, GPU_RING_ACTIVITY);
			assert_int_equal(out.activity.correlation, read);
			assert_int_equal(out.activity.stream, ~read);
			read++;
		}
		assert_int_equal(side.control->tail, side.control->head);
	}
	assert_int_equal(read, written);
	gpu_ring__free(ring);
	side__free(&side);
}

static void test_names(void **state)
{
	static const char text[] = "_Z6kernelPf";
	union gpu_ring_record in = {.name = {.hdr = {.type = GPU_RING_NAME_TEXT}, .id = 3, .bytes = strlen(text)}}, out;
	struct gpu_ring_status status;
	struct side side;
	struct gpu_ring *ring = begun(&side, GPU_RING_BYTES - 24); /* cut in two by the end of the memory */

	memcpy(in.name.text, text, strlen(text));
	in.hdr.size = (sizeof(in.name) + strlen(text) + 7) & ~7u;
	side__write(&side, &in, in.hdr.size);
	assert_true(gpu_ring__next(ring, &out));
	assert_string_equal(out.name.text, text);
	/* More text than the record has, no id, and the longest. */
	in.name.bytes = 4000;
	side__write(&side, &in, in.hdr.size);
	in.name.bytes = strlen(text);
	in.name.id = 0;
	side__write(&side, &in, in.hdr.size);
	assert_false(gpu_ring__next(ring, &out));
	memset(in.name.text, 'x', GPU_RING_TEXT_MAX);
	in.name.id = 4;
	in.name.bytes = GPU_RING_TEXT_MAX;
	in.hdr.size = sizeof(in.name) + GPU_RING_TEXT_MAX;
	side__write(&side, &in, in.hdr.size);
	assert_true(gpu_ring__next(ring, &out));
	assert_int_equal(strlen(out.name.text), GPU_RING_TEXT_MAX);
	gpu_ring__status(ring, &status);
	assert_int_equal(status.bad, 2);
	gpu_ring__free(ring);
	side__free(&side);
}

/* Where a record ends is not known then: what is there is passed by, once, and what comes later is read. */
static void test_sizes(void **state)
{
	static const uint32_t sizes[] = {0, 1, 8, 12, 4200, 0x7ffffff8, 0xfffffff8, 0xffffffff};
	struct gpu_ring_status status;
	union gpu_ring_record out;
	struct side side;
	struct gpu_ring *ring = begun(&side, 0);
	uint64_t bad = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct gpu_ring_activity rec = activity(i);

		rec.hdr.size = sizes[i];
		side__write(&side, &rec, sizeof(rec));
		side__write(&side, &rec, sizeof(rec));
		assert_false(gpu_ring__next(ring, &out));
		rec = activity(i);
		side__write(&side, &rec, sizeof(rec));
		assert_true(gpu_ring__next(ring, &out));
		assert_int_equal(out.activity.correlation, i);
		gpu_ring__status(ring, &status);
		assert_int_equal(status.bad, ++bad);
	}
	gpu_ring__free(ring);
	side__free(&side);
}

static void test_kinds(void **state)
{
	struct gpu_ring_activity bad[4] = {activity(0), activity(1), activity(2), activity(3)}, good = activity(9);
	struct gpu_ring_status status;
	union gpu_ring_record out;
	struct side side;
	struct gpu_ring *ring = begun(&side, 0);

	bad[0].kind = GPU_ACTIVITY__COUNT;
	bad[1].direction = GPU_DIRECTION__COUNT;
	bad[2].hdr.type = 77;
	bad[3].end_ns = bad[3].start_ns - 1;
	for (int i = 0; i < 4; i++)
		side__write(&side, &bad[i], sizeof(bad[i]));
	side__write(&side, &good, sizeof(good));
	assert_true(gpu_ring__next(ring, &out));
	assert_int_equal(out.activity.correlation, 9);
	gpu_ring__status(ring, &status);
	assert_int_equal(status.bad, 4);
	gpu_ring__free(ring);
	side__free(&side);
}

static void test_head(void **state)
{
	static const int64_t lies[] = {GPU_RING_BYTES + 8LL, -8, 4, -4, 1LL << 62, INT64_MIN};
	union gpu_ring_record out;

	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		struct gpu_ring_activity rec = activity(i);
		struct side side;
		struct gpu_ring *ring = begun(&side, 4096);

		side.control->head += lies[i];
		assert_false(gpu_ring__next(ring, &out));
		side.control->head &= ~7ULL;
		while (gpu_ring__next(ring, &out))
			;
		side__write(&side, &rec, sizeof(rec));
		assert_true(gpu_ring__next(ring, &out));
		assert_int_equal(out.activity.correlation, i);
		gpu_ring__free(ring);
		side__free(&side);
	}
}

static void assert_sound(const union gpu_ring_record *out)
{
	assert_in_range(out->hdr.type, GPU_RING_NAME_TEXT, GPU_RING_DEVICE);
	assert_true(out->hdr.size <= sizeof(*out));
	if (out->hdr.type == GPU_RING_NAME_TEXT)
		assert_true(strlen(out->name.text) <= out->name.bytes);
	if (out->hdr.type == GPU_RING_DEVICE)
		assert_true(strlen(out->device.name) < sizeof(out->device.name));
	if (out->hdr.type == GPU_RING_ACTIVITY)
		assert_in_range(out->activity.kind, 1, GPU_ACTIVITY__COUNT - 1);
}

/* Anything at all, changed while it is read by nothing but chance: under SAN=1 a read out of bounds would end it. */
static void test_fuzz(void **state)
{
	union gpu_ring_record out;
	struct side side;
	struct gpu_ring *ring = begun(&side, 0);

	srand(1);
	for (int round = 0; round < 20000; round++) {
		for (int i = 0; i < 64; i++) {
			uint32_t word = rand() % 3 ? rand() % 128 : rand();

			memcpy(side.bytes + ((side.control->head + 4 * (rand() % 256)) & MASK), &word, sizeof(word));
		}
		side.control->head += rand() % 50 ? 8 * (rand() % 64) : rand();
		side.control->tail = rand();
		side.control->start = rand();
		for (int i = 0; i < 100 && gpu_ring__next(ring, &out); i++)
			assert_sound(&out);
	}
	gpu_ring__free(ring);
	side__free(&side);
}

struct scribbler {
	struct side side;
	bool stop;
};

/* Over records that are sound, and where the reader is. */
static void *scribble(void *ctx)
{
	struct scribbler *s = ctx;
	struct gpu_ring_activity rec = activity(1);
	unsigned int seed = 1;

	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		uint64_t head = s->side.control->head;
		uint32_t word = rand_r(&seed) % 3 ? rand_r(&seed) % 128 : rand_r(&seed);

		memcpy(s->side.bytes + (head & MASK & ~7ULL), &rec, sizeof(rec) / 2);
		memcpy(s->side.bytes + ((head + 4 * (rand_r(&seed) % 64)) & MASK & ~3ULL), &word, sizeof(word));
		__atomic_store_n(&s->side.control->head, head + 8 * (rand_r(&seed) % 64), __ATOMIC_RELEASE);
	}
	return NULL;
}

/* What was looked at is what is given out, though it is another by then. */
static void test_scribbled(void **state)
{
	union gpu_ring_record out;
	struct scribbler s = {.stop = false};
	struct gpu_ring *ring = begun(&s.side, 0);
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, scribble, &s), 0);
	for (int i = 0; i < 300000; i++)
		if (gpu_ring__next(ring, &out))
			assert_sound(&out);
	__atomic_store_n(&s.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	gpu_ring__free(ring);
	side__free(&s.side);
}

#define OFFSET_NS 1700000000000000000LL
#define S         1000000000ULL

/* CUPTI's clock, 100 ppm too fast. */
static uint64_t cupti_at(uint64_t ns)
{
	return ns + OFFSET_NS + ns / 10000;
}

static struct gpu_ring_clock pair_at(uint64_t ns, uint64_t width_ns)
{
	return (struct gpu_ring_clock){
		.cupti_ns = cupti_at(ns), .before_ns = ns - width_ns / 2, .behind_ns = ns + width_ns / 2};
}

static uint64_t error_at(const struct gpu_clock *clock, uint64_t ns)
{
	uint64_t got;

	assert_true(gpu_clock__translate(clock, cupti_at(ns), &got));
	return got > ns ? got - ns : ns - got;
}

static void test_clock(void **state)
{
	struct gpu_clock clock = {0};
	struct gpu_ring_clock pair;
	uint64_t got;

	assert_false(gpu_clock__translate(&clock, cupti_at(S), &got));
	assert_int_equal(gpu_clock__last(&clock), 0);
	for (uint64_t second = 10; second < 1000; second++) {
		pair = pair_at(second * S, 1000);
		assert_true(gpu_clock__add(&clock, &pair, 10 * S - S / 2, 1000 * S));
	}
	for (uint64_t ms = 900000; ms < 999000; ms += 333)
		assert_true(error_at(&clock, ms * 1000000) <= 1000);
	assert_true(error_at(&clock, 999 * S + S / 10) <= 11000); /* behind the last: 100 ppm of 0.1 s */
	/* Before what is kept, and before the clock began. */
	assert_true(error_at(&clock, 500 * S) < 500 * S / 5000);
	assert_false(gpu_clock__translate(&clock, 5, &got));
}

static void test_clock_lies(void **state)
{
	struct gpu_clock clock = {0};
	struct gpu_ring_clock pair = pair_at(10 * S, 1000), bad;

	assert_true(gpu_clock__add(&clock, &pair, 0, 20 * S));
	bad = pair_at(11 * S, 3000000); /* the thread was put aside between the readings */
	assert_false(gpu_clock__add(&clock, &bad, 0, 20 * S));
	bad = pair_at(21 * S, 1000); /* in the future */
	assert_false(gpu_clock__add(&clock, &bad, 0, 20 * S));
	bad = pair_at(12 * S, 1000);
	bad.cupti_ns += S / 100;
	assert_false(gpu_clock__add(&clock, &bad, 0, 20 * S));
	pair = pair_at(13 * S, 1000);
	assert_true(gpu_clock__add(&clock, &pair, 0, 20 * S));
	assert_true(error_at(&clock, 12 * S) <= 1000);
	pair = pair_at(12 * S, 1000); /* backwards */
	assert_false(gpu_clock__add(&clock, &pair, 0, 20 * S));
	/* It was set: the second that says so is believed. */
	pair = pair_at(14 * S, 1000);
	pair.cupti_ns -= 3600 * S;
	assert_false(gpu_clock__add(&clock, &pair, 0, 20 * S));
	bad = pair_at(15 * S, 1000);
	bad.cupti_ns -= 3600 * S;
	assert_true(gpu_clock__add(&clock, &bad, 0, 20 * S));
	assert_int_equal(gpu_clock__last(&clock), bad.cupti_ns);
}

/* It counts something else than nanoseconds, or is another one than at first: no two pairs fit. */
static void test_clock_of_another_rate(void **state)
{
	struct gpu_clock clock = {0};
	struct gpu_ring_clock pair = pair_at(10 * S, 1000);
	uint64_t got;

	pair.cupti_ns += 4711 * S;
	assert_true(gpu_clock__add(&clock, &pair, 0, 20 * S));
	for (uint64_t i = 1; i < 9; i++) {
		pair = pair_at((10 + i) * S, 1000);
		pair.cupti_ns += 4711 * S + 3 * i * S / 2;
		assert_false(gpu_clock__add(&clock, &pair, 0, 20 * S));
		assert_false(gpu_clock__translate(&clock, cupti_at(10 * S), &got));
	}
	/* One that was another at first: the later ones are right. */
	pair = pair_at(19 * S, 1000);
	assert_false(gpu_clock__add(&clock, &pair, 0, 30 * S));
	pair = pair_at(20 * S, 1000);
	assert_true(gpu_clock__add(&clock, &pair, 0, 30 * S));
	assert_true(error_at(&clock, 19 * S + S / 2) <= 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clock_of_another_rate),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_found),
		cmocka_unit_test(test_begins),
		cmocka_unit_test(test_wraps),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_fuzz),
		cmocka_unit_test(test_scribbled),
		cmocka_unit_test(test_clock),
		cmocka_unit_test(test_clock_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
