// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads a recording: whole chunks in, their records out, one by one. A recording is hostile input: nothing is believed
 * before it is checked, and a chunk is handed out only when all of it is sound.
 */
#include "recording.h"

#include <byteswap.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "format.h"

/* 1 when all bytes came, 0 when the file ended before, or -errno. */
static int read_whole(FILE *file, void *data, size_t bytes)
{
	errno = 0;
	if (fread(data, 1, bytes, file) == bytes)
		return 1;
	return ferror(file) ? -(errno ? errno : EIO) : 0;
}

static int read_file_header(FILE *file, uint32_t *version)
{
	struct recording_file_header header;
	char rest[RECORDING_HEADER_MAX];
	int got;

	got = read_whole(file, &header, sizeof(header));
	if (got < 0)
		return got;
	if (!got || memcmp(header.magic, RECORDING_MAGIC, sizeof(header.magic)))
		return -EBADMSG;
	if (header.byte_order != RECORDING_BYTE_ORDER) {
		*version = bswap_32(header.version);
		return bswap_32(header.byte_order) == RECORDING_BYTE_ORDER ? -EPROTONOSUPPORT : -EBADMSG;
	}
	*version = header.version;
	if (header.version != RECORDING_VERSION)
		return -EPROTONOSUPPORT;
	if (header.header_bytes < sizeof(header) || header.header_bytes > RECORDING_HEADER_MAX)
		return -EBADMSG;
	got = read_whole(file, rest, header.header_bytes - sizeof(header));
	return got < 0 ? got : got ? 0 : -EBADMSG;
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

/* Bytes that are kept from chunk to chunk. */
struct buffer {
	unsigned char *data;
	size_t room;
};

static int buffer__grow(struct buffer *buffer, size_t bytes)
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

struct chunk {
	struct buffer stored, plain;
	const unsigned char *records; /* in one of them */
	size_t bytes;
};

/* 1 with the records of a chunk that was read, 0 when it is not sound, or -errno. */
static int unpack(struct chunk *chunk, const struct recording_chunk_header *header)
{
	uLongf bytes = header->plain_bytes;
	int err;

	if (crc32(0, chunk->stored.data, header->bytes) != header->crc)
		return 0;
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

static bool header_fits(const struct recording_chunk_header *header)
{
	uint32_t plain = header->plain_bytes ? header->plain_bytes : header->bytes;

	return header->magic == RECORDING_CHUNK_MAGIC && header->bytes && header->bytes <= RECORDING_CHUNK_MAX &&
	       plain % 8 == 0 && plain <= RECORDING_CHUNK_MAX;
}

/* 1 with the next chunk, 0 at the end with *end set, or -errno. */
static int read_chunk(FILE *file, struct chunk *chunk, enum recording_end *end)
{
	struct recording_chunk_header header;
	int got;

	/* A clean end is one where not even a first byte follows. */
	got = fgetc(file);
	if (got == EOF) {
		*end = RECORDING_WHOLE;
		return ferror(file) ? -EIO : 0;
	}
	ungetc(got, file);
	*end = RECORDING_CUT;
	got = read_whole(file, &header, sizeof(header));
	if (got <= 0)
		return got;
	if (!header_fits(&header))
		return 0;
	got = buffer__grow(&chunk->stored, header.bytes);
	if (got < 0)
		return got;
	got = read_whole(file, chunk->stored.data, header.bytes);
	return got <= 0 ? got : unpack(chunk, &header);
}

int recording__read(const char *path, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx,
		    enum recording_end *end, uint32_t *version)
{
	enum recording_end how = RECORDING_CUT;
	struct chunk chunk = {0};
	uint32_t found = 0;
	FILE *file = fopen(path, "rbe");
	int err;

	if (!file)
		return -errno;
	err = read_file_header(file, &found);
	while (!err) {
		int got = read_chunk(file, &chunk, &how);

		if (got <= 0) {
			err = got;
			break;
		}
		for (size_t at = 0; at < chunk.bytes && !err;) {
			const struct rec_hdr *record = (const void *)(chunk.records + at);

			at += record->size;
			err = fn(record, ctx);
		}
	}
	if (end)
		*end = how;
	if (version)
		*version = found;
	free(chunk.stored.data);
	free(chunk.plain.data);
	fclose(file);
	return err;
}
