// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Writes a recording. In: records. Out: checksummed chunks. One thread owns a writer.
 *
 * The writer builds a chunk in memory and writes it in one go. Whatever ends the recorder thus
 * leaves whole chunks and at most part of a chunk at the end, which the reader drops.
 */
#include "user/recording/recording.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "user/lib/output.h"
#include "user/recording/chunk.h"
#include "user/recording/step_blocks.h"
#include "user/recording/trim.h"

#define LAST_PARTS 16 /* a mark is set after this part of last_ns */
#define MARKS      (4 * LAST_PARTS)

struct recording_writer {
	struct output output;
	bool regular;
	int err;      /* error of the first write that failed; later calls return it too */
	uint64_t end; /* of the last whole chunk, as an offset in the file */
	size_t used;  /* bytes of records in buffer, after the chunk header */
	size_t room;
	unsigned char *buffer;
	size_t packed_room;
	unsigned char *packed; /* buffer for a deflated chunk */
	struct step_packer *steps;
	char *path;         /* with one of the next two: of the file; else NULL */
	uint64_t max_bytes; /* 0: any */
	uint64_t last_ns;   /* 0: any */
	struct mark {
		uint64_t end;     /* what the file has up to there */
		uint64_t time_ns; /* is older than this */
	} marks[MARKS];           /* ascending */
	size_t mark_cnt;
	struct trim *trim; /* copies the file without its oldest events; NULL: not now */
	struct rec_dropped dropped;
};

/*
 * When the file has this share of max_bytes, the writer begins to copy it without the events of its
 * first half, and TRIM_PACE bytes for each byte that it appends meanwhile. At the end of that the
 * file has 0.48 of max_bytes, and the copy 0.255 and the room for state: 0.86 in all. The rest is
 * for the size of chunks.
 */
#define TRIM_AT(max_bytes)   ((max_bytes) / 20 * 9)
#define TRIM_PACE            16
#define STATE_MOST           (64u << 20)
#define STATE_MAX(max_bytes) ((max_bytes) && (max_bytes) / 8 < STATE_MOST ? (max_bytes) / 8 : STATE_MOST)

#define TICK_BYTES           (4u << 20) /* that are copied at a tick: 20 ms where nothing waits for the disk */

#define DEFLATE_LEVEL        1 /* takes 2 ms for a second of samples; higher levels save little more */

static int write_all(int fd, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t n = write(fd, at, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
		bytes -= n;
	}
	return 0;
}

static int write_whole(struct recording_writer *w, const void *data, size_t bytes)
{
	w->err = write_all(w->output.fd, data, bytes);
	if (!w->err)
		w->end += bytes;
	else if (w->regular && ftruncate(w->output.fd, w->end)) {
		/*
		 * The partial chunk stays, and the reader drops it. The first error is the one to
		 * report.
		 */
	}
	return w->err;
}

static int put_steps(const struct rec_hdr *record, void *ctx);

int recording_writer__new_unnamed(const char *path, struct recording_writer **out)
{
	struct recording_file_header header = {
		.magic = RECORDING_MAGIC,
		.version = RECORDING_VERSION,
		.byte_order = RECORDING_BYTE_ORDER,
		.header_bytes = sizeof(header),
	};
	struct recording_writer *w = calloc(1, sizeof(*w));
	int err = -ENOMEM;
	struct stat st;

	*out = NULL;
	if (!w)
		return err;
	w->output = (struct output){.fd = -1, .folder = -1};
	w->room = sizeof(struct recording_chunk_header) + RECORDING_CHUNK_BYTES;
	w->buffer = malloc(w->room);
	w->steps = step_packer__new(put_steps, w);
	if (!w->buffer || !w->steps)
		goto out;
	err = output__open(path, &w->output);
	if (!err && fstat(w->output.fd, &st))
		err = -errno;
	if (err)
		goto out;
	w->regular = S_ISREG(st.st_mode) && !output__is_stdout(path); /* others may have written to stdout before */
	err = write_whole(w, &header, sizeof(header));
out:
	if (err) {
		output__explain(path, &w->output, err);
		recording_writer__free(w);
	} else {
		*out = w;
	}
	return err;
}

int recording_writer__keep(struct recording_writer *w)
{
	return output__keep(&w->output);
}

int recording_writer__new(const char *path, struct recording_writer **out)
{
	int err = recording_writer__new_unnamed(path, out) ?: recording_writer__keep(*out);

	if (err && *out) {
		output__explain(path, &(*out)->output, err);
		recording_writer__free(*out);
		*out = NULL;
	}
	return err;
}

static int set_path(struct recording_writer *w, const char *path)
{
	if (!w->regular)
		return -EINVAL;
	w->path = w->path ?: realpath(path, NULL);
	return w->path ? 0 : -errno;
}

int recording_writer__limit(struct recording_writer *w, const char *path, uint64_t max_bytes)
{
	if (max_bytes < RECORDING_LIMIT_MIN)
		return -EINVAL;
	w->max_bytes = max_bytes;
	return set_path(w, path);
}

int recording_writer__keep_last(struct recording_writer *w, const char *path, uint64_t last_ns)
{
	if (last_ns < RECORDING_LAST_MIN_NS)
		return -EINVAL;
	w->last_ns = last_ns;
	return set_path(w, path);
}

const struct rec_dropped *recording_writer__dropped(const struct recording_writer *w)
{
	return &w->dropped;
}

static int put_record(struct recording_writer *w, const struct rec_hdr *record)
{
	size_t need = sizeof(struct recording_chunk_header) + w->used + record->size;

	if (need > w->room) {
		void *buffer = realloc(w->buffer, need);

		if (!buffer)
			return -ENOMEM;
		w->buffer = buffer;
		w->room = need;
	}
	memcpy(w->buffer + sizeof(struct recording_chunk_header) + w->used, record, record->size);
	w->used += record->size;
	return 0;
}

/* Returns the deflated chunk, after room for its header; NULL when deflating does not shrink it. */
static unsigned char *pack_chunk(struct recording_writer *w, size_t *bytes)
{
	size_t header = sizeof(struct recording_chunk_header), need = header + compressBound(w->used);
	uLongf packed = need - header;

	if (need > w->packed_room) {
		free(w->packed);
		w->packed = malloc(need);
		w->packed_room = w->packed ? need : 0;
		if (!w->packed)
			return NULL;
	}
	if (compress2(w->packed + header, &packed, w->buffer + header, w->used, DEFLATE_LEVEL) != Z_OK ||
	    packed >= w->used)
		return NULL;
	*bytes = packed;
	return w->packed;
}

/* The file is now the copy, which lacks what was dropped. */
static void move_marks(struct recording_writer *w, uint64_t old_end, uint64_t new_end)
{
	uint64_t dropped = trim__drop_bytes(w->trim);
	size_t kept = 0;

	for (size_t i = 0; i < w->mark_cnt; i++)
		if (w->marks[i].end > dropped)
			w->marks[kept++] = (struct mark){w->marks[i].end - old_end + new_end, w->marks[i].time_ns};
	w->mark_cnt = kept;
}

/* Goes on with the copy's file. 0 or -errno. */
static int replace_file(struct recording_writer *w)
{
	struct recording_writer *copy;
	int err = trim__finish(w->trim, w->path, &copy), old = w->output.fd;

	if (err)
		return err;
	w->dropped = *trim__dropped(w->trim);
	move_marks(w, w->end, copy->end);
	w->end = copy->end;
	w->output.fd = copy->output.fd;
	copy->output.fd = old;
	recording_writer__free(copy);
	trim__free(w->trim);
	w->trim = NULL;
	return 0;
}

/* Begins to copy the file without the events in its first drop_bytes. 0 or -errno, which ends the recording. */
static int begin_trim(struct recording_writer *w, uint64_t drop_bytes)
{
	w->err = trim__new(w->output.fd, w->path, drop_bytes, STATE_MAX(w->max_bytes), &w->trim);
	return w->err;
}

/* Copies some bytes, if a trim is in progress. 0 or -errno, which ends the recording: it must not grow further. */
static int go_on_trimming(struct recording_writer *w, uint64_t bytes)
{
	int got = w->trim ? trim__go(w->trim, w->end, bytes) : 0;

	if (got > 0)
		got = replace_file(w);
	if (got < 0) {
		trim__free(w->trim);
		w->trim = NULL;
		w->err = got;
	}
	return w->err;
}

/* After `bytes` more in the file. Errors as above. */
static int keep_limit(struct recording_writer *w, uint64_t bytes)
{
	int err = !w->trim && w->end > TRIM_AT(w->max_bytes) ? begin_trim(w, w->end / 2) : 0;

	return err ?: go_on_trimming(w, bytes * TRIM_PACE);
}

static int write_stored(struct recording_writer *w, const void *chunk, size_t bytes)
{
	int err = write_whole(w, chunk, bytes);

	return w->max_bytes ? err ?: keep_limit(w, bytes) : err;
}

static int write_chunk(struct recording_writer *w, uint32_t magic)
{
	struct recording_chunk_header header = {.magic = magic};
	size_t bytes = w->used;
	unsigned char *chunk;

	if (w->err || !w->used)
		return w->err;
	chunk = pack_chunk(w, &bytes);
	if (chunk)
		header.plain_bytes = w->used;
	else
		chunk = w->buffer;
	header.bytes = bytes;
	header.crc = crc32(0, chunk + sizeof(header), bytes);
	memcpy(chunk, &header, sizeof(header));
	w->used = 0;
	return write_stored(w, chunk, sizeof(header) + bytes);
}

/*
 * What a chunk holds is older than the chunks behind it, so the chunk in progress takes packed steps
 * beyond its usual size.
 */
static int put_steps(const struct rec_hdr *record, void *ctx)
{
	struct recording_writer *w = ctx;

	if (w->used && w->used + record->size > RECORDING_CHUNK_MAX && write_chunk(w, RECORDING_CHUNK_MAGIC))
		return w->err;
	return put_record(w, record);
}

int recording_writer__append(struct recording_writer *w, const struct rec_hdr *record)
{
	bool is_step = record->type == REC_STEP && record->size >= sizeof(struct rec_step);
	int err = 0;

	if (w->err)
		return w->err;
	if (record->size < sizeof(*record) || record->size % 8 || record->size > RECORDING_CHUNK_MAX)
		return -EINVAL;
	if (is_step)
		err = step_packer__add(w->steps, record);
	if (!err && w->used && w->used + (is_step ? 0 : record->size) > RECORDING_CHUNK_BYTES)
		err = recording_writer__flush(w);
	return err || is_step ? err : put_record(w, record);
}

int recording_writer__copy(struct recording_writer *w, const struct recording_chunk_header *header, const void *stored)
{
	return recording_writer__flush(w) ?: write_whole(w, header, sizeof(*header))
		       ?: write_whole(w, stored, header->bytes);
}

int recording_writer__flush(struct recording_writer *w)
{
	return step_packer__flush(w->steps) ?: write_chunk(w, RECORDING_CHUNK_MAGIC);
}

int recording_writer__mark(struct recording_writer *w)
{
	return step_packer__flush(w->steps) ?: write_chunk(w, RECORDING_MARK_MAGIC);
}

/* The bytes that are older than last_ns; 0: none. */
static uint64_t too_old(const struct recording_writer *w, uint64_t now_ns)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < w->mark_cnt && w->marks[i].time_ns + w->last_ns <= now_ns; i++)
		bytes = w->marks[i].end;
	return bytes < w->end ? bytes : 0;
}

/* Sets a mark, and ends the chunk for that. */
static int set_mark(struct recording_writer *w, uint64_t now_ns)
{
	int err = recording_writer__flush(w);

	if (!err && w->mark_cnt < MARKS)
		w->marks[w->mark_cnt++] = (struct mark){w->end, now_ns};
	return err;
}

int recording_writer__tick(struct recording_writer *w, uint64_t now_ns)
{
	uint64_t bytes;
	int err = 0;

	if (!w->last_ns || w->err)
		return w->err;
	if (!w->mark_cnt || now_ns >= w->marks[w->mark_cnt - 1].time_ns + w->last_ns / LAST_PARTS)
		err = set_mark(w, now_ns);
	if (!err && !w->trim && w->mark_cnt && w->marks[0].time_ns + 2 * w->last_ns <= now_ns) {
		bytes = too_old(w, now_ns);
		err = bytes ? begin_trim(w, bytes) : 0;
	}
	return err ?: go_on_trimming(w, TICK_BYTES);
}

int recording_writer__cut(struct recording_writer *w, uint64_t now_ns)
{
	int err = w->last_ns ? recording_writer__flush(w) : w->err;
	uint64_t bytes;

	if (err || !w->last_ns)
		return err;
	err = go_on_trimming(w, UINT64_MAX);
	bytes = err ? 0 : too_old(w, now_ns);
	return bytes ? begin_trim(w, bytes) ?: go_on_trimming(w, UINT64_MAX) : err;
}

int recording_writer__read(const struct recording_writer *w, int (*fn)(const struct rec_hdr *record, void *ctx),
			   void *ctx)
{
	char path[32];

	if (!w->regular)
		return -EINVAL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->output.fd);
	return recording__read(path, fn, ctx, NULL);
}

uint64_t recording_writer__bytes(const struct recording_writer *w)
{
	return w->end + (w->used && !w->err ? sizeof(struct recording_chunk_header) + w->used : 0);
}

int recording_writer__free(struct recording_writer *w)
{
	int err;

	if (!w)
		return 0;
	err = w->output.fd >= 0 ? recording_writer__flush(w) : 0;
	/* NFS and quotas may report a failed write only here. */
	if (w->output.fd >= 0 && close(w->output.fd) && !err && errno != EINTR)
		err = -errno;
	output__release(&w->output);
	trim__free(w->trim);
	free(w->path);
	free(w->buffer);
	free(w->packed);
	step_packer__free(w->steps);
	free(w);
	return err;
}
