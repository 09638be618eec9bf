/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The recording file: a header, then checksummed chunks of records (include/records.h), valid up to the last whole
 * chunk.
 *
 *   file header  magic "stepflam", version, byte-order mark, header size
 *   chunk        magic, bytes, CRC-32 of them (zlib's), and then the records back to back, deflated where that is less
 *
 * Cumulative records come in snapshots, the others meanwhile. The magic of the chunk with which a snapshot ends says so: up to
 * there all of a recording's figures are of one moment, and what came behind the last snapshot is not read.
 */
#ifndef STEPFLAME_USER_RECORDING_RECORDING_H
#define STEPFLAME_USER_RECORDING_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

#define RECORDING_VERSION     4
#define RECORDING_CHUNK_BYTES (64 * 1024)   /* a chunk is closed when it holds that much */
#define RECORDING_CHUNK_MAX   (1024 * 1024) /* a larger one is refused by the reader */

struct recording_writer;

/*
 * Creates path, or empties it; "-" is standard output. A new file has mode 0644 and belongs to SUDO_UID:SUDO_GID when those are set; one that
 * existed keeps its owner. 0 or -errno. Regular files and pipes both do.
 */
int recording_writer__new(const char *path, struct recording_writer **out);
/*
 * Appends one record; hdr.size must be a multiple of 8 and at most RECORDING_CHUNK_MAX (else -EINVAL). 0 or -errno of a
 * failed write; after a failure (a full disk) the file is cut back to its last whole chunk and every later call returns
 * the same error.
 */
int recording_writer__append(struct recording_writer *w, const struct rec_hdr *record);
/* Closes the current chunk so that a reader finds all that was appended. */
int recording_writer__flush(struct recording_writer *w);
/* The same; a snapshot ends with what was appended last. */
int recording_writer__mark(struct recording_writer *w);
uint64_t recording_writer__bytes(const struct recording_writer *w);
/* Flushes and closes. The error of the flush, if any. Accepts NULL. */
int recording_writer__free(struct recording_writer *w);

/* How a file ended. */
enum recording_end {
	RECORDING_WHOLE,
	RECORDING_UNFINISHED, /* behind its last snapshot there are chunks, which were not read */
	RECORDING_CUT,        /* in the middle of a chunk */
	RECORDING_DAMAGED,    /* a chunk is not sound; what follows was not read */
};

struct recording_extent {
	enum recording_end end;
	uint32_t version;     /* of its format, 0: not known */
	uint64_t sound_bytes; /* the header, and the chunks that were handed out */
	uint64_t bytes;       /* read; where it is cut, all that there are */
};

/*
 * Reads path ("-": standard input), up to the end of its last snapshot, and calls fn for each record until it returns nonzero (returned
 * then). Of a file without a snapshot, and of one that can be read but once (a pipe), it hands out what there is. Every record has a
 * header size that fits the chunk and is a multiple of 8, and is 8-byte aligned; its payload is not checked beyond
 * that. 0 or -errno: -ENOENT, -EACCES, -EBADMSG not a recording, -ENODATA one cut within its file header (or empty),
 * -EPROTONOSUPPORT another format version, or the other byte order when the version is ours. *extent (may be NULL) is set when the
 * file could be opened.
 */
int recording__read(const char *path, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx,
		    struct recording_extent *extent);

#endif
