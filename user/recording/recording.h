/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The recording file: a header, then checksummed chunks of records (include/records.h). It is valid
 * up to the last whole chunk.
 *
 *   file header  magic "stepflam", version, byte-order mark, header size
 *   chunk        magic, bytes, CRC-32 of them (zlib's), and then the records back to back, deflated where that is less
 *
 * Cumulative records come in snapshots, other records in between. A chunk that ends a snapshot has
 * a magic of its own. Up to its end, all figures of a recording are of one moment; the reader
 * ignores what follows the last snapshot.
 */
#ifndef STEPFLAME_USER_RECORDING_RECORDING_H
#define STEPFLAME_USER_RECORDING_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"

#define RECORDING_VERSION     5
#define RECORDING_OLDEST      4             /* version that the reader reads: it has no REC_STEPS */
#define RECORDING_CHUNK_BYTES (64 * 1024)   /* the writer ends a chunk that has this many bytes */
#define RECORDING_CHUNK_MAX   (1024 * 1024) /* the reader refuses a larger chunk */
#define RECORDING_LIMIT_MIN   (1024 * 1024)
#define RECORDING_LAST_MIN_NS 1000000000ull

/* REC_DROPPED: what recording_writer__limit or _keep_last made the writer drop. It precedes what is kept. */
struct rec_dropped {
	struct rec_hdr hdr;
	__u64 time_ns; /* of the last event that was dropped: samples, steps and the like begin after it */
	__u64 events;
	__u64 states; /* names, stacks, rows and the like for which there was no room */
};

struct recording_writer;

/*
 * Creates or replaces path, or writes to a pipe or a device (output__open). The file has its name
 * from the beginning, and at any time whole chunks. 0, or -errno after a message.
 */
int recording_writer__new(const char *path, struct recording_writer **out);
/* The same, but the file gets its name, and replaces another one, only in recording_writer__keep. */
int recording_writer__new_unnamed(const char *path, struct recording_writer **out);
int recording_writer__keep(struct recording_writer *w);
/*
 * Appends one record; a REC_STEP goes into a block (step_blocks.h), which follows within a second of
 * steps and in the same chunk. hdr.size must be a multiple of 8 and at most RECORDING_CHUNK_MAX
 * (else -EINVAL). 0 or -errno of a failed write. After a failure (a full disk), the writer truncates
 * the file to its last whole chunk, and every later call returns the same error.
 */
int recording_writer__append(struct recording_writer *w, const struct rec_hdr *record);
/* Ends the current chunk, so that a reader finds all appended records. */
int recording_writer__flush(struct recording_writer *w);
/* The same, and marks the end of a snapshot. */
int recording_writer__mark(struct recording_writer *w);
/*
 * From now on the writer drops the oldest events, so that the file and the one into which the
 * writer copies it take at most max_bytes, RECORDING_LIMIT_MIN or more, of disk. Records that later
 * ones refer to stay, and the last cumulative ones. -EINVAL: the file is not a regular one, or is
 * standard output.
 */
int recording_writer__limit(struct recording_writer *w, const char *path, uint64_t max_bytes);
/*
 * From now on the writer drops events that are older than last_ns, RECORDING_LAST_MIN_NS or more,
 * as recording_writer__limit does. It may keep up to twice as long until recording_writer__cut.
 * Errors as there.
 */
int recording_writer__keep_last(struct recording_writer *w, const char *path, uint64_t last_ns);
/*
 * What was appended so far is older than now_ns (CLOCK_MONOTONIC): the writer goes on with dropping
 * what is too old. To be called some times a second; without recording_writer__keep_last it does
 * nothing. 0 or -errno, as recording_writer__append.
 */
int recording_writer__tick(struct recording_writer *w, uint64_t now_ns);
/* Drops at once all that is too old, but for a sixteenth of last_ns at most. Likewise. */
int recording_writer__cut(struct recording_writer *w, uint64_t now_ns);
/* What the writer has dropped; hdr is 0: nothing. */
const struct rec_dropped *recording_writer__dropped(const struct recording_writer *w);
uint64_t recording_writer__bytes(const struct recording_writer *w);
/* Flushes and closes. Returns the error of the flush, if any. Accepts NULL. */
int recording_writer__free(struct recording_writer *w);

/* How a file ended. */
enum recording_end {
	RECORDING_WHOLE,
	RECORDING_UNFINISHED, /* chunks follow the last snapshot; the reader ignored them */
	RECORDING_CUT,        /* ends in the middle of a chunk */
	RECORDING_DAMAGED,    /* a chunk is not sound; the reader stopped there */
};

struct recording_extent {
	enum recording_end end;
	uint32_t version;     /* of the file format; 0: unknown */
	uint64_t sound_bytes; /* size of the header and the chunks passed on */
	uint64_t bytes;       /* bytes read; for a cut file, its size */
};

/*
 * Reads what the writer has written, up to the end of the last snapshot, as recording__read does.
 * The file may have lost its name since. -EINVAL: the file is not a regular one, or is standard
 * output.
 */
int recording_writer__read(const struct recording_writer *w, int (*fn)(const struct rec_hdr *record, void *ctx),
			   void *ctx);

/*
 * Reads path ("-": standard input) up to the end of its last snapshot, and calls fn for each record
 * until fn returns nonzero, and then returns that value. Where a file has no snapshot, or can be
 * read only once (a pipe), it passes on all sound chunks. Each record is 8-byte aligned and has a
 * header size that is a multiple of 8 and fits the chunk; fn must check the payload. REC_STEPS come
 * unpacked, as REC_STEP, but for those that are not sound. 0 or -errno: -ENOENT, -EACCES, -EBADMSG
 * not a recording, -ENODATA one cut within its file header (or empty), -EPROTONOSUPPORT another
 * format version, or the other byte order when the version is one that can be read. *extent (may be
 * NULL) is set whenever the file could be opened.
 */
int recording__read(const char *path, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx,
		    struct recording_extent *extent);

#endif
