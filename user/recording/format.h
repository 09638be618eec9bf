/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Layout of a recording file: what writer.c writes and reader.c checks. All sizes keep the records 8-byte aligned. */
#ifndef STEPFLAME_USER_RECORDING_FORMAT_H
#define STEPFLAME_USER_RECORDING_FORMAT_H

#include <stdint.h>

#define RECORDING_MAGIC       "stepflam" /* 8 bytes, no terminator */
#define RECORDING_BYTE_ORDER  0x01020304u
#define RECORDING_CHUNK_MAGIC 0x6b6e6863u /* "chnk" on a little-endian machine */
#define RECORDING_MARK_MAGIC  0x646e6573u /* "send": a chunk with which a snapshot ends */
#define RECORDING_HEADER_MAX  4096u       /* a longer file header is refused */

struct recording_file_header {
	char magic[8];
	uint32_t version;
	uint32_t byte_order;
	uint32_t header_bytes; /* of this header; records begin there, so that fields can be added */
	uint32_t pad;
};

struct recording_chunk_header {
	uint32_t magic;
	uint32_t bytes; /* that follow */
	uint32_t crc;   /* CRC-32 of them */
	uint32_t
		plain_bytes; /* of the records in them, a multiple of 8, when they are deflated (zlib); 0: they are the records */
};

#endif
