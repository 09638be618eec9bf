// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * pprof's format (https://github.com/google/pprof/blob/main/proto/profile.proto): equal samples are
 * merged, each with its stack of locations, leaf first. A location is a line of a function.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/calltree.h"
#include "user/export/export.h"
#include "user/export/proto.h"
#include "user/lib/map.h"
#include "user/lib/utf8.h"

enum profile_field {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING_TABLE = 6,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS = 10,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_DEFAULT_SAMPLE_TYPE = 14,
};
enum { VALUE_TYPE = 1, VALUE_UNIT = 2 };
enum { SAMPLE_LOCATION_ID = 1, SAMPLE_VALUE = 2 };
enum { LOCATION_ID = 1, LOCATION_LINE = 4 };
enum { LINE_FUNCTION_ID = 1, LINE_LINE = 2 };
enum function_field {
	FUNCTION_ID = 1,
	FUNCTION_NAME = 2,
	FUNCTION_FILENAME = 4,
	FUNCTION_START_LINE = 5,
};

struct pprof {
	struct calltree *tree;
	struct proto proto;
	struct map strings;
	uint64_t period_ns;
};

/* Returns the index of a text, and writes the text, as pprof shall print it, when it is new. */
static uint64_t string_index(struct pprof *p, const char *text)
{
	size_t cnt = p->strings.items.cnt;
	char *shown = utf8__escape(text);
	uint32_t index = 0;

	if (!shown || map__add_text(&p->strings, shown, &index))
		p->proto.failed = true;
	else if (p->strings.items.cnt > cnt)
		proto__text(&p->proto, PROFILE_STRING_TABLE, shown);
	free(shown);
	return index;
}

static void put_value_type(struct pprof *p, enum profile_field field, const char *type, const char *unit)
{
	uint64_t type_index = string_index(p, type), unit_index = string_index(p, unit);
	size_t message = proto__begin(&p->proto, field);

	proto__int(&p->proto, VALUE_TYPE, type_index);
	proto__int(&p->proto, VALUE_UNIT, unit_index);
	proto__end(&p->proto, message);
}

/*
 * Leaves system_name out: where it equals the name, pprof demangles the name, and "<listcomp>"
 * becomes empty.
 */
static void put_pprof_function(struct pprof *p, const struct calltree_frame *frame)
{
	uint64_t name = string_index(p, frame->name), file = string_index(p, frame->file ?: "");
	size_t message = proto__begin(&p->proto, PROFILE_FUNCTION);

	proto__int(&p->proto, FUNCTION_ID, frame->function);
	proto__int(&p->proto, FUNCTION_NAME, name);
	proto__int(&p->proto, FUNCTION_FILENAME, file);
	proto__int(&p->proto, FUNCTION_START_LINE, frame->first_line);
	proto__end(&p->proto, message);
}

static void put_location(struct pprof *p, uint64_t id, const struct calltree_frame *frame)
{
	size_t message = proto__begin(&p->proto, PROFILE_LOCATION), line;

	proto__int(&p->proto, LOCATION_ID, id);
	line = proto__begin(&p->proto, LOCATION_LINE);
	proto__int(&p->proto, LINE_FUNCTION_ID, frame->function);
	proto__int(&p->proto, LINE_LINE, frame->kind == CALLTREE_PYTHON ? frame->line : 0);
	proto__end(&p->proto, line);
	proto__end(&p->proto, message);
}

/* Writes the buffer and empties it: fields of the outermost message may come in any order. */
static void flush_proto(struct proto *proto, FILE *out)
{
	if (!proto->failed)
		fwrite(proto->bytes, 1, proto->cnt, out);
	proto->cnt = 0;
}

static int put_locations(struct pprof *p, FILE *out)
{
	size_t cnt;
	const struct calltree_frame *frames = calltree__frames(p->tree, &cnt);
	bool *written = calloc(cnt + 1, sizeof(*written));

	if (!written)
		return -ENOMEM;
	/* The root has no frame. There are at most as many functions as frames. */
	for (size_t i = 1; i < cnt; i++) {
		if (!written[frames[i].function])
			put_pprof_function(p, &frames[i]);
		written[frames[i].function] = true;
		put_location(p, i, &frames[i]);
		flush_proto(&p->proto, out);
	}
	free(written);
	return 0;
}

static void put_samples(struct pprof *p, FILE *out)
{
	size_t cnt;
	const struct calltree_node *nodes = calltree__nodes(p->tree, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		size_t message;

		if (!nodes[i].samples)
			continue;
		message = proto__begin(&p->proto, PROFILE_SAMPLE);
		for (size_t at = i; at; at = nodes[at].parent)
			proto__int(&p->proto, SAMPLE_LOCATION_ID, nodes[at].frame);
		proto__int(&p->proto, SAMPLE_VALUE, nodes[i].samples);
		proto__int(&p->proto, SAMPLE_VALUE, nodes[i].cpu_ns);
		proto__int(&p->proto, SAMPLE_VALUE, nodes[i].cpu_ns + nodes[i].wait_ns);
		proto__end(&p->proto, message);
		flush_proto(&p->proto, out);
	}
}

static void put_profile_head(struct pprof *p, const struct job *job)
{
	const struct rec_host *host = job__host(job);
	const struct rec_window *window = job__window(job);
	uint64_t from_ns = job__events_from(job);

	string_index(p, "");
	put_value_type(p, PROFILE_SAMPLE_TYPE, "samples", "count");
	put_value_type(p, PROFILE_SAMPLE_TYPE, "cpu", "nanoseconds");
	put_value_type(p, PROFILE_SAMPLE_TYPE, "wall", "nanoseconds");
	put_value_type(p, PROFILE_PERIOD_TYPE, "cpu", "nanoseconds");
	proto__int(&p->proto, PROFILE_PERIOD, p->period_ns);
	proto__int(&p->proto, PROFILE_DEFAULT_SAMPLE_TYPE, string_index(p, "wall"));
	if (host->hdr.type && window->hdr.type)
		proto__int(&p->proto, PROFILE_TIME_NANOS, from_ns - host->monotonic_ns + host->realtime_ns);
	proto__int(&p->proto, PROFILE_DURATION_NANOS, window->end_ns - from_ns);
}

static int add_pprof_sample(const struct sample *sample, void *ctx)
{
	struct pprof *p = ctx;
	uint32_t node;

	if (!p->period_ns && sample->kind == SAMPLE_CPU)
		p->period_ns = sample->weight_ns;
	return calltree__add(p->tree, sample, &node);
}

static int write_pprof(struct job *job, const struct timeline *timeline, const struct export_options *options,
		       FILE *out)
{
	struct pprof p = {.tree = calltree__new(job, NULL, options->native)};
	int err = p.tree ? export__each_sample(job, options, add_pprof_sample, &p) : -ENOMEM;

	if (err)
		goto out;
	put_profile_head(&p, job);
	err = put_locations(&p, out);
	if (!err)
		put_samples(&p, out);
	flush_proto(&p.proto, out);
	if (p.proto.failed)
		err = -ENOMEM;
out:
	map__free_texts(&p.strings);
	free(p.proto.bytes);
	calltree__free(p.tree);
	return err;
}

const struct export_ops export_pprof = {
	.name = "pprof", .binary = true, .gzip = true, .source = EXPORT_SAMPLES, .write = write_pprof};
