// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Folded stacks, for flamegraph.pl, inferno, speedscope and others: "root;child;leaf N", with N in
 * us, as in torch's export_stacks. Characters that would end a frame or a line become "_".
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/calltree.h"
#include "user/export/export.h"
#include "user/lib/utf8.h"

static bool is_separator(uint32_t code)
{
	return code == ' ' || code == ';' || utf8__steers(code);
}

static void put_frame_text(const char *text, FILE *out)
{
	const char *at = text, *end = text + strlen(text);
	char bytes[UTF8_MAX];

	while (at < end) {
		uint32_t code = utf8__next(&at, end, NULL);

		fwrite(bytes, 1, utf8__put(bytes, is_separator(code) ? '_' : code), out);
	}
}

char *folded__frame(const char *name, const char *file, uint32_t line)
{
	const char *slash = file ? strrchr(file, '/') : NULL;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	if (file) {
		put_frame_text(slash ? slash + 1 : file, out);
		fputc(':', out);
	}
	put_frame_text(name, out);
	if (line && file)
		fprintf(out, ":%u", line);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

/* Returns texts by frame; that of the root is NULL. NULL: no memory. */
static char **folded_frame_texts(const struct calltree *tree, size_t *cnt)
{
	const struct calltree_frame *frames = calltree__frames(tree, cnt);
	char **texts = calloc(*cnt, sizeof(*texts));

	for (size_t i = 1; texts && i < *cnt; i++) {
		texts[i] = folded__frame(frames[i].name, frames[i].file, frames[i].line);
		if (!texts[i]) {
			export__free_texts(texts, *cnt);
			return NULL;
		}
	}
	return texts;
}

static int put_node(const struct calltree *tree, size_t index, char *const *texts, FILE *out)
{
	size_t cnt;
	const struct calltree_node *node = &calltree__nodes(tree, &cnt)[index];
	double us = ((double)node->cpu_ns + node->wait_ns) / 1e3;
	uint32_t *path;

	if (us < 0.5)
		return 0;
	path = calltree__path(tree, 0, index, &cnt);
	if (!path)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++) {
		if (i)
			fputc(';', out);
		fputs(texts[path[i]], out);
	}
	fprintf(out, " %.0f\n", us);
	free(path);
	return 0;
}

static int add_folded_sample(const struct sample *sample, void *tree)
{
	uint32_t node;

	return calltree__add(tree, sample, &node);
}

static int write_folded_export(struct job *job, const struct timeline *timeline, const struct export_options *options,
			       FILE *out)
{
	struct calltree *tree = calltree__new(job, NULL, options->native);
	int err = tree ? export__each_sample(job, options, add_folded_sample, tree) : -ENOMEM;
	size_t text_cnt = 0, cnt = 0;
	char **texts = err ? NULL : folded_frame_texts(tree, &text_cnt);

	if (!texts)
		err = -ENOMEM;
	else
		calltree__nodes(tree, &cnt);
	for (size_t i = 0; i < cnt && !err; i++)
		err = put_node(tree, i, texts, out);
	export__free_texts(texts, text_cnt);
	calltree__free(tree);
	return err;
}

const struct export_ops export_folded = {.name = "folded", .source = EXPORT_SAMPLES, .write = write_folded_export};
