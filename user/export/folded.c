// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Folded stacks, for flamegraph.pl, inferno, speedscope and others: "root;child;leaf N", N in us, as torch's export_stacks
 * has it. Characters that would end a frame or a line become "_".
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../model/calltree.h"
#include "../utf8.h"
#include "export.h"

static bool is_separator(uint32_t code)
{
	return code <= ' ' || code == ';' || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
	       code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

static void put_text(const char *text, FILE *out)
{
	const char *at = text, *end = text + strlen(text);
	char bytes[UTF8_MAX];

	while (at < end) {
		uint32_t code = utf8__next(&at, end, NULL);

		fwrite(bytes, 1, utf8__put(bytes, is_separator(code) ? '_' : code), out);
	}
}

/* Of Python "train.py:Net.forward:12", the line being the one at hand. */
static void put_frame(const struct calltree_frame *frame, FILE *out)
{
	const char *slash = frame->file ? strrchr(frame->file, '/') : NULL;

	if (frame->file) {
		put_text(slash ? slash + 1 : frame->file, out);
		fputc(':', out);
	}
	put_text(frame->name, out);
	if (frame->line && frame->file)
		fprintf(out, ":%u", frame->line);
}

static int put_node(const struct calltree *tree, size_t index, FILE *out)
{
	size_t cnt, depth = 0;
	const struct calltree_node *nodes = calltree__nodes(tree, &cnt), *node = &nodes[index];
	const struct calltree_frame *frames = calltree__frames(tree, &cnt);
	double us = ((double)node->cpu_ns + node->wait_ns) / 1e3;
	uint32_t *path;

	if (us < 0.5)
		return 0;
	for (size_t at = index; at; at = nodes[at].parent)
		depth++;
	path = calloc(depth, sizeof(*path));
	if (!path)
		return -ENOMEM;
	for (size_t at = index, i = depth; i > 0; at = nodes[at].parent)
		path[--i] = nodes[at].frame;
	for (size_t i = 0; i < depth; i++) {
		if (i)
			fputc(';', out);
		put_frame(&frames[path[i]], out);
	}
	fprintf(out, " %.0f\n", us);
	free(path);
	return 0;
}

static int add_sample(const struct sample *sample, void *tree)
{
	uint32_t node;

	return calltree__add(tree, sample, &node);
}

static int write_folded(struct job *job, const struct timeline *timeline, const struct export_options *options,
			FILE *out)
{
	struct calltree *tree = calltree__new(job);
	int err = tree ? export__each_sample(job, options, add_sample, tree) : -ENOMEM;
	size_t cnt = 0;

	if (!err)
		calltree__nodes(tree, &cnt);
	for (size_t i = 0; i < cnt && !err; i++)
		err = put_node(tree, i, out);
	calltree__free(tree);
	return err;
}

const struct export_ops export_folded = {.name = "folded", .source = EXPORT_SAMPLES, .write = write_folded};
