/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The chunks of a recording file, for reader.c, writer.c and trim.c. */
#ifndef STEPFLAME_USER_RECORDING_CHUNK_H
#define STEPFLAME_USER_RECORDING_CHUNK_H

#include <stdint.h>
#include <stdio.h>

#include "user/recording/recording.h"

/*
 * Layout of a recording file, which writer.c writes and reader.c checks. All sizes keep records
 * aligned to 8 bytes.
 */

#define RECORDING_MAGIC       "stepflam" /* 8 bytes, no terminator */
#define RECORDING_BYTE_ORDER  0x01020304u
#define RECORDING_CHUNK_MAGIC 0x6b6e6863u /* "chnk" on a little-endian machine */
#define RECORDING_MARK_MAGIC  0x646e6573u /* "send": a chunk that ends a snapshot */
#define RECORDING_HEADER_MAX  4096u       /* the reader refuses a longer file header */

struct recording_file_header {
	char magic[8];
	uint32_t version;
	uint32_t byte_order;
	uint32_t header_bytes; /* size of this header; records follow it, so that a later version can add fields */
	uint32_t pad;
};

struct recording_chunk_header {
	uint32_t magic;
	uint32_t bytes;       /* bytes that follow */
	uint32_t crc;         /* CRC-32 of those bytes */
	uint32_t plain_bytes; /* if the records are deflated (zlib): their inflated size, a multiple of 8; else 0 */
};

/* A file being read. */
struct recording_file {
	FILE *file;
	uint64_t bytes; /* bytes read so far */
};

/* A buffer that chunks reuse. */
struct read_buffer {
	unsigned char *data;
	size_t room;
};

/* Empty: all 0. */
struct read_chunk {
	struct read_buffer stored, plain, steps;
	const unsigned char *records; /* points into a buffer */
	size_t bytes;
};

/* Reads and checks the header of the file. 0 or as recording__read. */
int recording_file__header(struct recording_file *file, uint32_t *version);
/*
 * 1 with the next chunk as stored, its checksum right; 0 at the end of the file with *end set; or
 * -errno.
 */
int read_chunk__next(struct recording_file *source, struct read_chunk *chunk, struct recording_chunk_header *header,
		     enum recording_end *end);
/*
 * 1 with the records of a chunk whose checksum is right, 0 when the records are not sound, or
 * -errno.
 */
int read_chunk__unpack(struct read_chunk *chunk, const struct recording_chunk_header *header);
/* Calls fn for the records of an unpacked chunk, as recording__read does. */
int read_chunk__each(struct read_chunk *chunk, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx);
void read_chunk__release(struct read_chunk *chunk);

/* Appends a chunk as another file has stored it. 0 or -errno, as recording_writer__append. */
int recording_writer__copy(struct recording_writer *w, const struct recording_chunk_header *header, const void *stored);

#endif
