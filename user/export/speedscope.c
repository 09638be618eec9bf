// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * speedscope's own format (https://www.speedscope.app/file-format-schema.json): a sampled profile
 * per thread, in order of time. Consecutive samples with the same stack are merged.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "user/analysis/flame/calltree.h"
#include "user/export/export.h"
#include "user/lib/compare.h"

struct stack_sample {
	uint32_t thread, node;
	uint64_t time_ns, weight_ns;
};

struct speedscope {
	struct calltree *tree;
	struct array entries;
};

static int add_stack_sample(const struct sample *sample, void *ctx)
{
	struct speedscope *s = ctx;
	struct stack_sample *entry = array__add(&s->entries, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	entry->thread = sample->thread;
	entry->time_ns = sample->time_ns;
	entry->weight_ns = sample->weight_ns;
	return calltree__add(s->tree, sample, &entry->node);
}

static int compare_samples(const void *a, const void *b)
{
	const struct stack_sample *x = a, *y = b;

	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	return COMPARE(x->time_ns, y->time_ns);
}

static void merge_samples(struct speedscope *s)
{
	struct stack_sample *entries = s->entries.items;
	size_t unique_cnt = 0;

	if (s->entries.cnt)
		qsort(entries, s->entries.cnt, sizeof(*entries), compare_samples);
	for (size_t i = 0; i < s->entries.cnt; i++) {
		struct stack_sample *last = unique_cnt ? &entries[unique_cnt - 1] : NULL;

		if (last && last->thread == entries[i].thread && last->node == entries[i].node)
			last->weight_ns += entries[i].weight_ns;
		else
			entries[unique_cnt++] = entries[i];
	}
	s->entries.cnt = unique_cnt;
}

static int put_speedscope_frames(const struct calltree *tree, FILE *out)
{
	size_t cnt;
	const struct calltree_frame *frames = calltree__frames(tree, &cnt);
	int err = 0;

	/* The root has no frame. */
	for (size_t i = 1; i < cnt && !err; i++) {
		char *name = export__json_text(frames[i].name);
		char *file = frames[i].file ? export__json_text(frames[i].file) : NULL;

		if (!name || (frames[i].file && !file))
			err = -ENOMEM;
		else
			fprintf(out, "%s{\"name\": %s", i > 1 ? ",\n" : "", name);
		if (file)
			fprintf(out, ", \"file\": %s", file);
		if (file && frames[i].line)
			fprintf(out, ", \"line\": %u", frames[i].line);
		fputc('}', out);
		free(name);
		free(file);
	}
	return err;
}

/* Returns the ancestor of a node that stands for the thread. */
static uint32_t thread_node(const struct calltree *tree, uint32_t node)
{
	size_t cnt;
	const struct calltree_node *nodes = calltree__nodes(tree, &cnt);

	while (nodes[nodes[node].parent].parent)
		node = nodes[node].parent;
	return node;
}

/* Writes the frames below the thread's node; the profile itself stands for the thread. */
static int put_stack(const struct calltree *tree, uint32_t node, FILE *out)
{
	size_t cnt;
	uint32_t *path = calltree__path(tree, thread_node(tree, node), node, &cnt);

	if (!path)
		return -ENOMEM;
	fputc('[', out);
	for (size_t i = 0; i < cnt; i++)
		fprintf(out, "%s%u", i ? "," : "", path[i] - 1);
	fputc(']', out);
	free(path);
	return 0;
}

static int put_profile_name(const struct calltree *tree, uint32_t node, FILE *out)
{
	size_t cnt;
	const struct calltree_node *nodes = calltree__nodes(tree, &cnt), *thread = &nodes[thread_node(tree, node)];
	const struct calltree_frame *frames = calltree__frames(tree, &cnt);
	char *name = NULL, *json = NULL;

	if (asprintf(&name, "%s, %s", frames[nodes[thread->parent].frame].name, frames[thread->frame].name) >= 0)
		json = export__json_text(name);
	if (json)
		fprintf(out, "\"name\": %s", json);
	free(json);
	free(name);
	return json ? 0 : -ENOMEM;
}

/* Writes the profile of one thread: entries[0] up to, but not including, entries[cnt]. */
static int put_profile(const struct calltree *tree, const struct stack_sample *entries, size_t cnt, FILE *out)
{
	uint64_t total_ns = 0;
	int err;

	for (size_t i = 0; i < cnt; i++)
		total_ns += entries[i].weight_ns;
	fputs("{\"type\": \"sampled\", ", out);
	err = put_profile_name(tree, entries->node, out);
	fprintf(out, ", \"unit\": \"nanoseconds\", \"startValue\": 0, \"endValue\": %" PRIu64 ",\n\"samples\": [",
		total_ns);
	for (size_t i = 0; i < cnt && !err; i++) {
		if (i)
			fputc(',', out);
		err = put_stack(tree, entries[i].node, out);
	}
	fputs("],\n\"weights\": [", out);
	for (size_t i = 0; i < cnt; i++)
		fprintf(out, "%s%" PRIu64, i ? "," : "", entries[i].weight_ns);
	fputs("]}", out);
	return err;
}

static int put_profiles(const struct speedscope *s, FILE *out)
{
	const struct stack_sample *entries = s->entries.items;
	int err = 0;

	for (size_t first = 0, next; first < s->entries.cnt && !err; first = next) {
		for (next = first; next < s->entries.cnt && entries[next].thread == entries[first].thread;)
			next++;
		if (first)
			fputs(",\n", out);
		err = put_profile(s->tree, &entries[first], next - first, out);
	}
	return err;
}

static int write_speedscope(struct job *job, const struct timeline *timeline, const struct export_options *options,
			    FILE *out)
{
	struct speedscope s = {.tree = calltree__new(job, NULL, options->native)};
	char *name = export__json_text(options->name);
	int err = s.tree && name ? export__each_sample(job, options, add_stack_sample, &s) : -ENOMEM;

	if (err)
		goto out;
	merge_samples(&s);
	fprintf(out, "{\"$schema\": \"https://www.speedscope.app/file-format-schema.json\",\n\"name\": %s,\n", name);
	fputs("\"exporter\": \"stepflame " STEPFLAME_VERSION
	      "\",\n\"activeProfileIndex\": 0,\n\"shared\": {\"frames\": [\n",
	      out);
	err = put_speedscope_frames(s.tree, out);
	fputs("\n]},\n\"profiles\": [\n", out);
	if (!err)
		err = put_profiles(&s, out);
	fputs("\n]}\n", out);
out:
	free(s.entries.items);
	calltree__free(s.tree);
	free(name);
	return err;
}

const struct export_ops export_speedscope = {.name = "speedscope", .source = EXPORT_SAMPLES, .write = write_speedscope};
