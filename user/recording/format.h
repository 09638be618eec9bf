/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Layout of a recording file, which writer.c writes and reader.c checks. All sizes keep records
 * aligned to 8 bytes.
 */
#ifndef STEPFLAME_USER_RECORDING_FORMAT_H
#define STEPFLAME_USER_RECORDING_FORMAT_H

#include <stdint.h>

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

#endif
