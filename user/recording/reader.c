// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads a recording. In: whole chunks. Out: their records, one by one. A recording is hostile
 * input: the reader checks everything before it uses it, and passes on a chunk only when all of it
 * is sound.
 */
#include "user/recording/recording.h"

#include <byteswap.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "user/recording/chunk.h"
#include "user/recording/step_blocks.h"

/* 1 when it read all bytes, 0 when the file ended before that, or -errno. */
static int read_whole(struct recording_file *source, void *data, size_t bytes)
{
	size_t got;

	errno = 0;
	got = fread(data, 1, bytes, source->file);
	source->bytes += got;
	if (got == bytes)
		return 1;
	return ferror(source->file) ? -(errno ? errno : EIO) : 0;
}

int recording_file__header(struct recording_file *file, uint32_t *version)
{
	size_t magic = sizeof(RECORDING_MAGIC) - 1;
	struct recording_file_header header;
	char rest[RECORDING_HEADER_MAX];
	int got;

	got = read_whole(file, &header, sizeof(header));
	if (got < 0)
		return got;
	if (!got && !memcmp(&header, RECORDING_MAGIC, file->bytes < magic ? file->bytes : magic))
		return -ENODATA;
	if (!got || memcmp(header.magic, RECORDING_MAGIC, sizeof(header.magic)))
		return -EBADMSG;
	if (header.byte_order != RECORDING_BYTE_ORDER) {
		*version = bswap_32(header.version);
		return bswap_32(header.byte_order) == RECORDING_BYTE_ORDER ? -EPROTONOSUPPORT : -EBADMSG;
	}
	*version = header.version;
	if (header.version < RECORDING_OLDEST || header.version > RECORDING_VERSION)
		return -EPROTONOSUPPORT;
	if (header.header_bytes < sizeof(header) || header.header_bytes > RECORDING_HEADER_MAX)
		return -EBADMSG;
	got = read_whole(file, rest, header.header_bytes - sizeof(header));
	return got < 0 ? got : got ? 0 : -ENODATA;
}

static bool records_fit(const unsigned char *chunk, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		const struct rec_hdr *record = (const void *)(chunk + at);

		if (record->size < sizeof(*record) || record->size % 8 || record->size > bytes - at)
			return false;
		at += record->size;
	}
	return true;
}

static int buffer__grow(struct read_buffer *buffer, size_t bytes)
{
	void *grown;

	if (bytes <= buffer->room)
		return 0;
	grown = realloc(buffer->data, bytes);
	if (!grown)
		return -ENOMEM;
	buffer->data = grown;
	buffer->room = bytes;
	return 0;
}

int read_chunk__unpack(struct read_chunk *chunk, const struct recording_chunk_header *header)
{
	uLongf bytes = header->plain_bytes;
	int err;

	chunk->records = chunk->stored.data;
	chunk->bytes = header->bytes;
	if (!header->plain_bytes)
		return records_fit(chunk->records, chunk->bytes);
	err = buffer__grow(&chunk->plain, header->plain_bytes);
	if (err)
		return err;
	err = uncompress(chunk->plain.data, &bytes, chunk->stored.data, header->bytes);
	if (err == Z_MEM_ERROR)
		return -ENOMEM;
	chunk->records = chunk->plain.data;
	chunk->bytes = bytes;
	return err == Z_OK && bytes == header->plain_bytes && records_fit(chunk->records, chunk->bytes);
}

void read_chunk__release(struct read_chunk *chunk)
{
	free(chunk->stored.data);
	free(chunk->plain.data);
	free(chunk->steps.data);
}

static bool header_fits(const struct recording_chunk_header *header)
{
	uint32_t plain = header->plain_bytes ? header->plain_bytes : header->bytes;

	return (header->magic == RECORDING_CHUNK_MAGIC || header->magic == RECORDING_MARK_MAGIC) && header->bytes &&
	       header->bytes <= RECORDING_CHUNK_MAX && plain % 8 == 0 && plain <= RECORDING_CHUNK_MAX;
}

int read_chunk__next(struct recording_file *source, struct read_chunk *chunk, struct recording_chunk_header *header,
		     enum recording_end *end)
{
	int got;

	/* At a clean end, not even one more byte follows. */
	got = fgetc(source->file);
	if (got == EOF) {
		*end = RECORDING_WHOLE;
		return ferror(source->file) ? -EIO : 0;
	}
	ungetc(got, source->file);
	*end = RECORDING_CUT;
	got = read_whole(source, header, sizeof(*header));
	if (got <= 0)
		return got;
	*end = RECORDING_DAMAGED;
	if (!header_fits(header))
		return 0;
	got = buffer__grow(&chunk->stored, header->bytes);
	if (got < 0)
		return got;
	got = read_whole(source, chunk->stored.data, header->bytes);
	if (!got)
		*end = RECORDING_CUT;
	return got <= 0 ? got : crc32(0, chunk->stored.data, header->bytes) == header->crc;
}

/*
 * Sets *limit to the number of chunks up to the end of the last snapshot, or to SIZE_MAX without a
 * snapshot, and extent to how the file ends. Returns to the file position where it began. 0 or
 * -errno.
 */
static int find_last_snapshot(struct recording_file *source, struct read_chunk *chunk, size_t *limit,
			      struct recording_extent *extent)
{
	struct recording_chunk_header header;
	struct recording_file at = *source;
	off_t begin = ftello(at.file);
	size_t cnt = 0;
	int got;

	*limit = SIZE_MAX;
	if (begin < 0)
		return 0;
	while ((got = read_chunk__next(&at, chunk, &header, &extent->end)) > 0) {
		cnt++;
		if (header.magic == RECORDING_MARK_MAGIC)
			*limit = cnt;
	}
	extent->bytes = at.bytes;
	if (got < 0)
		return got;
	if (extent->end == RECORDING_WHOLE && *limit < cnt)
		extent->end = RECORDING_UNFINISHED;
	return fseeko(at.file, begin, SEEK_SET) ? -errno : 0;
}

static int hand_out_steps(struct read_chunk *chunk, const struct rec_hdr *block,
			  int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx)
{
	int err = buffer__grow(&chunk->steps, STEP_BLOCK_MAX * sizeof(struct rec_step));
	const struct rec_step *steps = (const void *)chunk->steps.data;
	size_t cnt;

	err = err ?: steps__decode(block, (void *)chunk->steps.data, &cnt);
	if (err == -EBADMSG)
		return fn(block, ctx);
	for (size_t i = 0; !err && i < cnt; i++)
		err = fn(&steps[i].hdr, ctx);
	return err;
}

int read_chunk__each(struct read_chunk *chunk, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx)
{
	int err = 0;

	for (size_t at = 0; at < chunk->bytes && !err;) {
		const struct rec_hdr *record = (const void *)(chunk->records + at);

		at += record->size;
		err = record->type == REC_STEPS ? hand_out_steps(chunk, record, fn, ctx) : fn(record, ctx);
	}
	return err;
}

static int read_chunks(struct recording_file *source, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx,
		       struct recording_extent *extent)
{
	struct recording_chunk_header header;
	struct read_chunk chunk = {0};
	enum recording_end end;
	size_t limit;
	int got;

	extent->sound_bytes = source->bytes;
	got = find_last_snapshot(source, &chunk, &limit, extent);
	while (!got && limit--) {
		got = read_chunk__next(source, &chunk, &header, &end);
		if (got <= 0) {
			extent->end = end;
			break;
		}
		got = read_chunk__unpack(&chunk, &header);
		if (got <= 0) {
			extent->end = RECORDING_DAMAGED;
			break;
		}
		extent->sound_bytes = source->bytes;
		got = read_chunk__each(&chunk, fn, ctx);
	}
	read_chunk__release(&chunk);
	return got;
}

int recording__read(const char *path, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx,
		    struct recording_extent *extent)
{
	struct recording_extent found = {.end = RECORDING_CUT};
	bool is_stdin = !strcmp(path, "-");
	struct recording_file source = {.file = is_stdin ? stdin : fopen(path, "rbe")};
	int err;

	if (!source.file)
		return -errno;
	err = recording_file__header(&source, &found.version) ?: read_chunks(&source, fn, ctx, &found);
	if (source.bytes > found.bytes)
		found.bytes = source.bytes;
	if (extent)
		*extent = found;
	if (!is_stdin)
		fclose(source.file);
	return err;
}
