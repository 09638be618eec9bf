// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The recording file: what was written is read, and whatever is done to a file, whole chunks or nothing are read. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "user/recording/chunk.h"
#include "user/recording/recording.h"

#define FILE_HEADER  sizeof(struct recording_file_header)
#define CHUNK_HEADER sizeof(struct recording_chunk_header)

static char dir[] = "/tmp/stepflame-test-XXXXXX";
static char path[64];

static int set_up(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/a.rec", dir);
	return 0;
}

static int tear_down(void **state)
{
	umount2(dir, MNT_DETACH); /* where test_full_disk failed half-way */
	unlink(path);
	return rmdir(dir);
}

/* Counters numbered from 0: what is read must be a prefix of them. */
static void append(struct recording_writer *w, unsigned int number)
{
	struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}, .value = number};

	assert_int_equal(recording_writer__append(w, &counter.hdr), 0);
}

struct seen {
	unsigned int cnt;
	size_t bytes;
	int stop_at; /* returns 7 there; -1: never */
};

static int check_next(const struct rec_hdr *record, void *ctx)
{
	const struct rec_counter *counter = (const void *)record;
	struct seen *seen = ctx;

	assert_int_equal((uintptr_t)record % 8, 0);
	assert_int_equal(record->type, REC_COUNTER);
	assert_int_equal(record->size, sizeof(*counter));
	assert_int_equal(counter->value, seen->cnt);
	if (seen->stop_at == (int)seen->cnt)
		return 7;
	seen->cnt++;
	return 0;
}

static int count_any(const struct rec_hdr *record, void *ctx)
{
	struct seen *seen = ctx;

	seen->cnt++;
	seen->bytes += record->size;
	return 0;
}

static void write_file(const void *data, size_t bytes)
{
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

static unsigned char *read_file(size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	unsigned char *data;
	struct stat st;

	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &st), 0);
	*bytes = st.st_size;
	data = malloc(*bytes);
	assert_int_equal(fread(data, 1, *bytes, file), *bytes);
	fclose(file);
	return data;
}

/* `chunks` chunks of `each` records. */
static unsigned char *small_file(unsigned int chunks, unsigned int each, size_t *bytes)
{
	struct recording_writer *w;

	assert_int_equal(recording_writer__new(path, &w), 0);
	for (unsigned int i = 0; i < chunks * each; i++) {
		append(w, i);
		if (i % each == each - 1)
			assert_int_equal(recording_writer__flush(w), 0);
	}
	assert_int_equal(recording_writer__free(w), 0);
	return read_file(bytes);
}

static void test_roundtrip(void **state)
{
	struct seen seen = {.stop_at = -1};
	struct recording_writer *w;
	struct recording_extent extent;
	struct stat st;

	assert_int_equal(recording_writer__new(path, &w), 0);
	for (unsigned int i = 0; i < 10000; i++)
		append(w, i);
	assert_int_equal(recording_writer__flush(w), 0);
	assert_int_equal(recording_writer__flush(w), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, recording_writer__bytes(w));
	append(w, 10000);
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(recording__read(path, check_next, &seen, &extent), 0);
	assert_int_equal(seen.cnt, 10001);
	assert_int_equal(extent.end, RECORDING_WHOLE);
	assert_int_equal(extent.version, RECORDING_VERSION);
	assert_int_equal(recording_writer__free(NULL), 0);
}

static void test_empty_and_stopped(void **state)
{
	struct seen seen = {.stop_at = 5};
	struct recording_extent extent;
	size_t bytes;

	free(small_file(0, 1, &bytes));
	assert_int_equal(bytes, FILE_HEADER);
	assert_int_equal(recording__read(path, check_next, &seen, &extent), 0);
	assert_int_equal(extent.end, RECORDING_WHOLE);
	free(small_file(2, 10, &bytes));
	assert_int_equal(recording__read(path, check_next, &seen, NULL), 7);
	assert_int_equal(seen.cnt, 5);
}

static void test_record_sizes(void **state)
{
	struct rec_hdr *record = calloc(1, RECORDING_CHUNK_MAX + 8);
	struct seen seen = {0};
	struct recording_writer *w;
	struct recording_extent extent;

	assert_int_equal(recording_writer__new(path, &w), 0);
	for (size_t i = 0; i < 4; i++) {
		static const uint32_t bad[] = {0, 4, 12, RECORDING_CHUNK_MAX + 8};

		record->size = bad[i];
		assert_int_equal(recording_writer__append(w, record), -EINVAL);
	}
	for (size_t i = 0; i < 4; i++) {
		static const uint32_t good[] = {8, RECORDING_CHUNK_BYTES, RECORDING_CHUNK_MAX, 8};

		record->size = good[i];
		assert_int_equal(recording_writer__append(w, record), 0);
	}
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(recording__read(path, count_any, &seen, &extent), 0);
	assert_int_equal(extent.end, RECORDING_WHOLE);
	assert_int_equal(seen.cnt, 4);
	assert_int_equal(seen.bytes, 16 + RECORDING_CHUNK_BYTES + RECORDING_CHUNK_MAX);
	free(record);
}

/* Whole chunks in the first `bytes` of a file; *rest: what of another follows. */
static size_t whole_chunks(const unsigned char *data, size_t bytes, size_t *rest)
{
	struct recording_chunk_header header;
	size_t at = FILE_HEADER, cnt = 0;

	while (at + CHUNK_HEADER <= bytes) {
		memcpy(&header, data + at, sizeof(header));
		if (at + CHUNK_HEADER + header.bytes > bytes)
			break;
		at += CHUNK_HEADER + header.bytes;
		cnt++;
	}
	*rest = bytes - at;
	return cnt;
}

static void test_cut_at_every_byte(void **state)
{
	const unsigned int each = 3;
	size_t bytes, rest;
	unsigned char *data = small_file(4, each, &bytes);

	assert_int_equal(whole_chunks(data, bytes, &rest), 4);
	assert_int_equal(rest, 0);
	for (size_t cut = 0; cut <= bytes; cut++) {
		struct seen seen = {.stop_at = -1};
		struct recording_extent extent;
		int err;

		write_file(data, cut);
		err = recording__read(path, check_next, &seen, &extent);
		if (cut < FILE_HEADER) {
			assert_int_equal(err, -ENODATA);
			continue;
		}
		assert_int_equal(err, 0);
		assert_int_equal(seen.cnt, whole_chunks(data, cut, &rest) * each);
		assert_int_equal(extent.end, rest ? RECORDING_CUT : RECORDING_WHOLE);
		assert_int_equal(extent.bytes, cut);
		assert_int_equal(extent.sound_bytes, cut - rest);
	}
	free(data);
}

/* A snapshot ends with the second chunk of each three: what follows the last such chunk that is whole is not handed out. */
static void test_cut_behind_snapshots(void **state)
{
	const unsigned int chunks = 9, each = 3;
	struct recording_writer *w;
	unsigned char *data;
	size_t bytes, rest;

	assert_int_equal(recording_writer__new(path, &w), 0);
	for (unsigned int i = 0; i < chunks * each; i++) {
		append(w, i);
		if (i % each == each - 1)
			assert_int_equal(i / each % 3 == 1 ? recording_writer__mark(w) : recording_writer__flush(w), 0);
	}
	assert_int_equal(recording_writer__free(w), 0);
	data = read_file(&bytes);
	for (size_t cut = FILE_HEADER; cut <= bytes; cut++) {
		struct seen seen = {.stop_at = -1};
		size_t whole = whole_chunks(data, cut, &rest), told = whole < 2 ? whole : (whole - 2) / 3 * 3 + 2;
		struct recording_extent extent;

		write_file(data, cut);
		assert_int_equal(recording__read(path, check_next, &seen, &extent), 0);
		assert_int_equal(seen.cnt, told * each);
		assert_int_equal(extent.end, rest           ? RECORDING_CUT
					     : told < whole ? RECORDING_UNFINISHED
							    : RECORDING_WHOLE);
		assert_int_equal(extent.bytes, cut);
	}
	free(data);
}

static void test_flipped_bytes(void **state)
{
	const unsigned int each = 3;
	size_t bytes, rest;
	unsigned char *data = small_file(4, each, &bytes);

	for (size_t at = FILE_HEADER; at < bytes; at++) {
		struct seen seen = {.stop_at = -1};
		struct recording_extent extent;

		data[at] ^= 0x41;
		write_file(data, bytes);
		data[at] ^= 0x41;
		assert_int_equal(recording__read(path, check_next, &seen, &extent), 0);
		assert_int_equal(seen.cnt, whole_chunks(data, at, &rest) * each);
		assert_int_not_equal(extent.end, RECORDING_WHOLE);
		assert_int_equal(extent.sound_bytes, at - rest);
	}
	free(data);
}

static int read_patched(size_t at, const void *patch, size_t patch_bytes, struct recording_extent *extent)
{
	struct seen seen = {0};
	size_t bytes;
	unsigned char *data = small_file(1, 3, &bytes);
	int err;

	memcpy(data + at, patch, patch_bytes);
	write_file(data, bytes);
	free(data);
	err = recording__read(path, count_any, &seen, extent);
	return err ? err : (int)seen.cnt;
}

static int read_patched_u32(size_t at, uint32_t value, struct recording_extent *extent)
{
	return read_patched(at, &value, sizeof(value), extent);
}

#define HEADER_FIELD(field) offsetof(struct recording_file_header, field)

static void test_other_files(void **state)
{
	struct recording_file_header foreign = {.version = __builtin_bswap32(RECORDING_VERSION),
						.byte_order = __builtin_bswap32(RECORDING_BYTE_ORDER)};
	struct recording_extent extent = {0};

	assert_int_equal(read_patched(0, "STEPFLAM", 8, NULL), -EBADMSG);
	assert_int_equal(read_patched_u32(HEADER_FIELD(version), 9, &extent), -EPROTONOSUPPORT);
	assert_int_equal(extent.version, 9);
	assert_int_equal(read_patched(HEADER_FIELD(version), &foreign.version, 8, &extent), -EPROTONOSUPPORT);
	assert_int_equal(extent.version, RECORDING_VERSION);
	assert_int_equal(read_patched_u32(HEADER_FIELD(byte_order), 0x55555555, &extent), -EBADMSG);
	assert_int_equal(read_patched_u32(HEADER_FIELD(header_bytes), 8, NULL), -EBADMSG);
	assert_int_equal(read_patched_u32(HEADER_FIELD(header_bytes), UINT32_MAX, NULL), -EBADMSG);
	assert_int_equal(read_patched_u32(HEADER_FIELD(header_bytes), 4096, NULL), -ENODATA);
	assert_int_equal(recording__read("/nonexistent/a.rec", count_any, NULL, NULL), -ENOENT);
	assert_int_equal(recording__read(dir, count_any, NULL, NULL), -EISDIR);
	write_file("", 0);
	assert_int_equal(recording__read(path, count_any, NULL, NULL), -ENODATA);
	write_file("stepflax", 8);
	assert_int_equal(recording__read(path, count_any, NULL, NULL), -EBADMSG);
}

static void test_longer_file_header(void **state)
{
	struct seen seen = {.stop_at = -1};
	struct recording_file_header header;
	size_t bytes, more = 40;
	unsigned char *data = small_file(1, 3, &bytes), *longer = calloc(1, bytes + more);

	memcpy(&header, data, sizeof(header));
	header.header_bytes += more;
	memcpy(longer, &header, sizeof(header));
	memcpy(longer + sizeof(header) + more, data + sizeof(header), bytes - sizeof(header));
	write_file(longer, bytes + more);
	assert_int_equal(recording__read(path, check_next, &seen, NULL), 0);
	assert_int_equal(seen.cnt, 3);
	free(longer);
	free(data);
}

static void test_absurd_sizes(void **state)
{
	static const uint32_t sizes[] = {0, 4, 100, 1 << 20, (1 << 20) + 8, 0x7ffffff8, 0x80000000, 0xfffffff8};
	size_t at = FILE_HEADER + offsetof(struct recording_chunk_header, bytes);
	struct recording_extent extent;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		assert_int_equal(read_patched_u32(at, sizes[i], &extent), 0);
		assert_int_not_equal(extent.end, RECORDING_WHOLE);
	}
}

/* Records whose sizes do not fit, in a chunk whose checksum is right. */
static void test_absurd_record_sizes(void **state)
{
	static const uint32_t sizes[] = {0, 4, 7, 12, 56, 0x80000000, 0xfffffff8};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}};
		struct recording_chunk_header header = {.magic = RECORDING_CHUNK_MAGIC, .bytes = sizeof(counter)};
		struct recording_extent extent;
		struct seen seen = {0};
		unsigned char *data, *more;
		size_t bytes;

		/* The writer takes no such size: a chunk by hand. */
		data = small_file(1, 1, &bytes);
		counter.hdr.size = sizes[i];
		header.crc = crc32(0, (const void *)&counter, sizeof(counter));
		more = malloc(bytes + sizeof(header) + sizeof(counter));
		memcpy(more, data, bytes);
		memcpy(more + bytes, &header, sizeof(header));
		memcpy(more + bytes + sizeof(header), &counter, sizeof(counter));
		write_file(more, bytes + sizeof(header) + sizeof(counter));
		free(data);
		free(more);
		assert_int_equal(recording__read(path, count_any, &seen, &extent), 0);
		assert_int_equal(seen.cnt, 1);
		assert_int_equal(extent.end, RECORDING_DAMAGED);
	}
}

static void test_device_full(void **state)
{
	struct recording_writer *w = NULL;

	assert_int_equal(recording_writer__new("/dev/full", &w), -ENOSPC);
	assert_null(w);
	assert_int_equal(recording_writer__new("/nonexistent/a.rec", &w), -ENOENT);
	assert_int_equal(recording_writer__new(dir, &w), -EISDIR);
}

static void test_full_disk(void **state)
{
	struct rec_counter counter = {.hdr = {.type = REC_COUNTER, .size = sizeof(counter)}};
	struct seen seen = {.stop_at = -1};
	struct recording_writer *w;
	struct recording_extent extent;
	unsigned int appended;
	char file[96];
	struct stat st;
	int err = 0;

	if (mount("none", dir, "tmpfs", 0, "size=256k")) {
		print_message("no tmpfs: %s (needs root)\n", strerror(errno));
		skip();
	}
	snprintf(file, sizeof(file), "%s/full.rec", dir);
	assert_int_equal(recording_writer__new(file, &w), 0);
	for (appended = 0; !err && appended < 100000; appended++) {
		counter.value = appended;
		for (size_t i = 0; i < sizeof(counter.name); i++) /* what deflate cannot shrink */
			counter.name[i] = random();
		err = recording_writer__append(w, &counter.hdr);
	}
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(recording_writer__append(w, &counter.hdr), -ENOSPC);
	assert_int_equal(recording_writer__flush(w), -ENOSPC);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_size, recording_writer__bytes(w));
	assert_int_equal(recording_writer__free(w), -ENOSPC);
	assert_int_equal(recording__read(file, check_next, &seen, &extent), 0);
	assert_int_equal(extent.end, RECORDING_WHOLE);
	assert_true(seen.cnt > 1000 && seen.cnt < appended);
	assert_int_equal(umount(dir), 0);
}

static void test_owner(void **state)
{
	struct recording_writer *w;
	struct stat st;

	if (geteuid()) {
		print_message("only root gives files away\n");
		skip();
	}
	unlink(path);
	setenv("SUDO_UID", "12345", 1);
	setenv("SUDO_GID", "54321", 1);
	assert_int_equal(recording_writer__new(path, &w), 0);
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 12345);
	assert_int_equal(st.st_gid, 54321);
	assert_int_equal(st.st_mode & 07777, 0600);
	setenv("SUDO_UID", "12x", 1);
	assert_int_equal(recording_writer__new(path, &w), 0);
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
	unsetenv("SUDO_UID");
	unsetenv("SUDO_GID");
}

/* A recorder that is killed leaves all that it had flushed. */
static void test_killed(void **state)
{
	struct seen seen = {.stop_at = -1};
	struct recording_writer *w;
	struct recording_extent extent;
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (recording_writer__new(path, &w))
			_exit(1);
		for (unsigned int i = 0; i < 3000; i++)
			append(w, i);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(recording__read(path, check_next, &seen, &extent), 0);
	assert_int_equal(seen.cnt, 3000 / (RECORDING_CHUNK_BYTES / sizeof(struct rec_counter)) *
					   (RECORDING_CHUNK_BYTES / sizeof(struct rec_counter)));
}

struct pairs {
	unsigned int steps, counters;
};

static int count_pairs(const struct rec_hdr *record, void *ctx)
{
	struct pairs *pairs = ctx;

	if (record->type == REC_STEP)
		assert_int_equal(((const struct rec_step *)record)->serial, pairs->steps++);
	else
		assert_int_equal(((const struct rec_counter *)record)->value, pairs->counters++);
	return 0;
}

/* A snapshot has all steps that came before it: those that are not packed yet, too. */
static void test_steps_before_a_snapshot(void **state)
{
	struct rec_step step = {.hdr = {.type = REC_STEP, .size = sizeof(step)}, .time_ns = 1000000000, .rule = 2};
	struct recording_extent extent;
	struct recording_writer *w;
	struct pairs pairs = {0};

	assert_int_equal(recording_writer__new(path, &w), 0);
	for (unsigned int i = 0; i < 30; i++) {
		step.serial = step.index = i;
		step.time_ns += 1000000;
		assert_int_equal(recording_writer__append(w, &step.hdr), 0);
		if (i % 3)
			continue;
		append(w, i / 3);
		assert_int_equal(recording_writer__mark(w), 0);
		memset(&pairs, 0, sizeof(pairs));
		assert_int_equal(recording__read(path, count_pairs, &pairs, &extent), 0);
		assert_int_equal(pairs.steps, i + 1);
		assert_int_equal(pairs.counters, i / 3 + 1);
		assert_int_equal(extent.end, RECORDING_WHOLE);
	}
	assert_int_equal(recording_writer__free(w), 0);
}

/* Steps are packed; wherever the file is cut, those that came before another record are there if it is. */
static void test_steps_stay_in_their_chunk(void **state)
{
	const unsigned int cnt = 20000;
	struct rec_step step = {.hdr = {.type = REC_STEP, .size = sizeof(step)}, .time_ns = 1000000000, .rule = 2};
	struct recording_writer *w;
	struct pairs pairs;
	struct stat st;

	assert_int_equal(recording_writer__new(path, &w), 0);
	for (unsigned int i = 0; i < cnt; i++) {
		step.serial = step.index = i;
		step.phase_ns[PHASE_DATA] = i % 977 * 100;
		step.time_ns += step.phase_ns[PHASE_DATA];
		assert_int_equal(recording_writer__append(w, &step.hdr), 0);
		append(w, i);
	}
	assert_int_equal(recording_writer__free(w), 0);
	assert_int_equal(stat(path, &st), 0);
	for (off_t bytes = st.st_size; bytes > 0; bytes -= st.st_size / 25) {
		assert_int_equal(truncate(path, bytes), 0);
		pairs = (struct pairs){0};
		if (!recording__read(path, count_pairs, &pairs, NULL))
			assert_true(pairs.steps >= pairs.counters && pairs.steps <= pairs.counters + 1);
		assert_true(bytes < st.st_size || pairs.counters == cnt);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_roundtrip),
		cmocka_unit_test(test_empty_and_stopped),
		cmocka_unit_test(test_record_sizes),
		cmocka_unit_test(test_cut_at_every_byte),
		cmocka_unit_test(test_cut_behind_snapshots),
		cmocka_unit_test(test_flipped_bytes),
		cmocka_unit_test(test_other_files),
		cmocka_unit_test(test_longer_file_header),
		cmocka_unit_test(test_absurd_sizes),
		cmocka_unit_test(test_absurd_record_sizes),
		cmocka_unit_test(test_device_full),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_owner),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_steps_stay_in_their_chunk),
		cmocka_unit_test(test_steps_before_a_snapshot),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
