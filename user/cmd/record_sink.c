// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/record_sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/log.h"
#include "user/lib/output.h"

#define NAMES_REPORTED (1u << 18) /* a program may make up any number */

/*
 * Is it kept for a summary without the file? The other records of a long recording would fill the
 * memory.
 */
static bool is_reported(struct record_sink *sink, const struct rec_hdr *record)
{
	switch (record->type) {
	case REC_NAME:
		return !job__name(sink->job, ((const struct rec_name *)record)->id) &&
		       sink->name_cnt++ < NAMES_REPORTED;
	case REC_AGG:
		return job__is_main(sink->job, ((const struct rec_agg *)record)->key.pid);
	case REC_HOST:
	case REC_TARGET:
	case REC_WINDOW:
	case REC_COUNTER:
	case REC_COST:
	case REC_NOTE:
		return true;
	}
	return false;
}

int record_sink__add(const struct rec_hdr *record, void *ctx)
{
	struct record_sink *sink = ctx;

	if (sink->trigger && trigger__add(sink->trigger, record, sink->now_ns))
		return -ENOMEM;
	if (!record) {
		if (!sink->write_err)
			sink->write_err = recording_writer__mark(sink->writer);
		return sink->write_err;
	}
	if (sink->writer) {
		if (!sink->write_err)
			sink->write_err = recording_writer__append(sink->writer, record);
	} else {
		char *buffered = realloc(sink->buffered, sink->buffered_bytes + record->size);

		if (!buffered)
			return -ENOMEM;
		memcpy(buffered + sink->buffered_bytes, record, record->size);
		sink->buffered = buffered;
		sink->buffered_bytes += record->size;
	}
	return (is_reported(sink, record) ? job__add(sink->job, record) : 0) ?: sink->write_err;
}

int record_sink__open(struct record_sink *sink, const char *path, uint64_t max_bytes, uint64_t last_ns)
{
	int err = recording_writer__new(path, &sink->writer);

	if (err)
		return err;
	if (max_bytes)
		err = recording_writer__limit(sink->writer, path, max_bytes);
	if (!err && last_ns)
		err = recording_writer__keep_last(sink->writer, path, last_ns);
	if (err) {
		log__error("choose another file with -o FILE", "cannot write %s: %s", output__name(path),
			   err == -EINVAL ? "--max-size and --last need a regular file" : strerror(-err));
		return err;
	}
	for (size_t at = 0; at < sink->buffered_bytes && !sink->write_err;) {
		const struct rec_hdr *record = (const void *)(sink->buffered + at);

		sink->write_err = recording_writer__append(sink->writer, record);
		at += record->size;
	}
	return 0;
}

int record_sink__look(struct record_sink *sink, uint64_t now_ns)
{
	sink->now_ns = now_ns;
	sink->event_ns = sink->trigger ? trigger__before(sink->trigger, now_ns) : now_ns;
	if (sink->writer && !sink->write_err)
		sink->write_err = recording_writer__tick(sink->writer, sink->event_ns);
	return sink->write_err;
}

void record_sink__release(struct record_sink *sink)
{
	recording_writer__free(sink->writer);
	trigger__free(sink->trigger);
	free(sink->buffered);
	job__free(sink->job);
}
