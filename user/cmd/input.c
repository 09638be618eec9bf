// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "user/lib/log.h"

static void explain_read(const char *file, int err, const struct recording_extent *extent)
{
	switch (err) {
	case -ENOENT:
		log__error("name a recording, or make one: stepflame record -p PID -d 30s", "no recording %s", file);
		break;
	case -EACCES:
		log__error("run as the file's owner, or make the file readable", "cannot read %s: %s", file,
			   strerror(-err));
		break;
	case -EBADMSG:
		log__error("name a file that stepflame record wrote", "%s is not a stepflame recording", file);
		break;
	case -ENODATA:
		if (extent->bytes)
			log__error("copy the file again from where it was recorded, or record again",
				   "%s is cut off after %" PRIu64 " bytes: nothing in it can be reported", file,
				   extent->bytes);
		else
			log__error("name a file that stepflame record wrote", "%s is empty", file);
		break;
	case -EPROTONOSUPPORT:
		if (extent->version >= RECORDING_OLDEST && extent->version <= RECORDING_VERSION)
			log__error("read it on a machine of the same architecture as the one that recorded it",
				   "%s has the byte order of another machine", file);
		else
			log__error("use the stepflame that wrote it",
				   "%s has recording format %u, this is stepflame " STEPFLAME_VERSION
				   " and reads formats %u to %u",
				   file, extent->version, RECORDING_OLDEST, RECORDING_VERSION);
		break;
	default:
		log__error("name a file that stepflame record wrote", "cannot read %s: %s", file, strerror(-err));
	}
}

/* Reports can be made from such records; other records name or explain something. */
static bool is_data(uint32_t type)
{
	switch (type) {
	case REC_WINDOW:
	case REC_AGG:
	case REC_OP:
	case REC_SPANS:
	case REC_SAMPLE:
	case REC_CALLS:
	case REC_STEP:
	case REC_SYSCALL:
	case REC_FILE:
	case REC_GPU_CALLS:
	case REC_GPU_CALL:
	case REC_GPU_ACTIVITY:
		return true;
	}
	return false;
}

struct input_reading {
	int (*fn)(const struct rec_hdr *record, void *ctx);
	void *ctx;
	bool any, data; /* records came; records for reports came */
};

static int read_record(const struct rec_hdr *record, void *ctx)
{
	struct input_reading *reading = ctx;

	reading->any = true;
	reading->data |= is_data(record->type);
	return reading->fn(record, reading->ctx);
}

/* Explains a file that did not end properly. 0, or -ENODATA: nothing in the file can be used. */
static int explain_end(const char *file, const struct recording_extent *extent, bool data)
{
	static const char *const hows[] = {
		[RECORDING_UNFINISHED] = "goes on behind its last snapshot, to",
		[RECORDING_CUT] = "is cut off after",
		[RECORDING_DAMAGED] = "is damaged behind its first",
	};
	const char *fix = "copy the file again from where it was recorded, or record again", *how = hows[extent->end];
	uint64_t bytes = extent->end == RECORDING_DAMAGED ? extent->sound_bytes : extent->bytes;

	if (!data) {
		log__error(fix, "%s %s %" PRIu64 " bytes: nothing in it can be reported", file, how, bytes);
		return -ENODATA;
	}
	log__warn(extent->end == RECORDING_UNFINISHED ? "none needed while it is being written; else record again"
						      : fix,
		  "%s %s %" PRIu64 " bytes: this is what its first %" PRIu64 " bytes hold", file, how, bytes,
		  extent->sound_bytes);
	return 0;
}

static int explain_nothing(const char *file)
{
	log__error("record again",
		   "%s has no records: the file was cut, or the recorder was killed before it wrote the first record",
		   file);
	return -ENODATA;
}

const char *input__name(const char *file)
{
	return input__is_stdin(file) ? "standard input" : file;
}

bool input__is_stdin(const char *file)
{
	return !strcmp(file, "-");
}

int input__read(const char *file, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx)
{
	struct recording_extent extent = {.end = RECORDING_WHOLE};
	struct input_reading reading = {.fn = fn, .ctx = ctx};
	int err = recording__read(file, read_record, &reading, &extent);

	if (err)
		explain_read(input__name(file), err, &extent);
	else if (extent.end != RECORDING_WHOLE)
		err = explain_end(input__name(file), &extent, reading.data);
	else if (!reading.any)
		err = explain_nothing(input__name(file));
	return err;
}

int input__read_again(const char *file, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx)
{
	struct recording_extent extent = {.end = RECORDING_WHOLE};
	int err = recording__read(file, fn, ctx, &extent);

	if (err)
		explain_read(input__name(file), err, &extent);
	return err;
}
