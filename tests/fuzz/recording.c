// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Recordings as files: header, chunks, deflate; and their merge. The input is a file whose check sums are put right here,
 * which no mutation does.
 */
#include <zlib.h>

#include "tests/fuzz/fuzz.h"
#include "user/model/job.h"
#include "user/recording/chunk.h"
#include "user/recording/merge.h"
#include "user/recording/recording.h"

static uint8_t file[65536];

static void mend_sums(uint8_t *at, size_t left)
{
	struct recording_file_header header;
	struct recording_chunk_header chunk;

	if (left < sizeof(header))
		return;
	memcpy(&header, at, sizeof(header));
	for (size_t skip = header.header_bytes; skip <= left && left - skip >= sizeof(chunk); skip = chunk.bytes) {
		at += skip;
		left -= skip;
		memcpy(&chunk, at, sizeof(chunk));
		at += sizeof(chunk);
		left -= sizeof(chunk);
		if (chunk.bytes > left)
			return;
		chunk.crc = crc32(0, at, chunk.bytes);
		memcpy(at - sizeof(chunk), &chunk, sizeof(chunk));
	}
}

struct merging {
	struct merge *merge;
	size_t file;
	bool second;
};

static int merge_record(const struct rec_hdr *record, void *ctx)
{
	struct merging *merging = ctx;

	return (merging->second ? merge__add : merge__scan)(merging->merge, merging->file, record);
}

static int add_record(const struct rec_hdr *record, void *ctx)
{
	FUZZ_CHECK(record->size >= sizeof(*record) && record->size % 8 == 0);
	return job__add(ctx, record);
}

static void merge_with_itself(const char *path)
{
	struct merge_verdict verdict;
	struct job *job = job__new();
	struct merging merging = {.merge = merge__new(2, add_record, job)};

	for (int turn = 0; turn < 4; turn++) {
		merging.file = turn % 2;
		merging.second = turn >= 2;
		FUZZ_CHECK(!recording__read(path, merge_record, &merging, NULL));
		if (turn == 1)
			FUZZ_CHECK(!merge__judge(merging.merge, &verdict));
	}
	FUZZ_CHECK(!merge__finish(merging.merge));
	merge__free(merging.merge);
	job__free(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct recording_extent extent;
	struct job *job = job__new();
	char path[32];
	int fd;

	size = size < sizeof(file) ? size : sizeof(file);
	memcpy(file, data, size);
	mend_sums(file, size);
	fd = fuzz__file(file, size, path);
	if (!recording__read(path, add_record, job, &extent)) {
		FUZZ_CHECK(extent.sound_bytes <= extent.bytes && extent.bytes <= size);
		merge_with_itself(path);
	}
	job__free(job);
	close(fd);
	return 0;
}
