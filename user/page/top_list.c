// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/page/top_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "user/lib/utf8.h"

#define ROWS 25

struct function_row {
	const struct flame_function *function;
	double self_ns, total_ns;
};

/* Escapes text twice: against what could steer the reader's display, and against markup. */
static int put_html_text(const char *text, FILE *out)
{
	char *visible = utf8__escape(text);

	if (!visible)
		return -ENOMEM;
	for (const char *c = visible; *c; c++) {
		if (*c == '<' || *c == '>' || *c == '&' || *c == '"')
			fprintf(out, "&#%d;", *c);
		else
			fputc(*c, out);
	}
	free(visible);
	return 0;
}

static int compare_function_rows(const void *a, const void *b)
{
	const struct function_row *x = a, *y = b;

	return (x->self_ns < y->self_ns) - (x->self_ns > y->self_ns);
}

/* Is a function between a node, not included, and the root? */
static bool is_inside(const struct flame_node *nodes, const struct flame_frame *frames, uint32_t node,
		      uint32_t function)
{
	for (uint32_t at = nodes[node].parent; at; at = nodes[at].parent)
		if (frames[nodes[at].frame].function == function)
			return true;
	return false;
}

/* ns, by node: in, the node's own time; out, also the time of the nodes below. */
static void fill_rows(const struct flame *flame, double *ns, struct function_row *rows)
{
	size_t cnt;
	const struct flame_node *nodes = flame__nodes(flame, &cnt);
	const struct flame_frame *frames = flame__frames(flame, &(size_t){0});
	const struct flame_function *functions = flame__functions(flame, &(size_t){0});

	for (size_t i = cnt - 1; i > 0; i--) {
		uint32_t function = frames[nodes[i].frame].function, owner = function;

		/* A wait counts as own time of the function that waited, whichever thread ended it. */
		if (functions[function].kind == CALLTREE_WAKER)
			owner = frames[nodes[nodes[i].parent].frame].function;
		rows[function].function = &functions[function];
		rows[owner].self_ns += ns[i];
	}
	for (size_t i = cnt - 1; i > 0; i--) {
		uint32_t function = frames[nodes[i].frame].function;

		if (ns[i] > 0 && !is_inside(nodes, frames, i, function))
			rows[function].total_ns += ns[i];
		ns[nodes[i].parent] += ns[i];
	}
}

static int put_functions(const struct page *page, FILE *out)
{
	size_t node_cnt, function_cnt, step_cnt, text_cnt;
	char *const *texts = flame__texts(page->flame, &text_cnt);
	double *ns = (flame__nodes(page->flame, &node_cnt), calloc(node_cnt, sizeof(*ns)));
	struct function_row *rows = (flame__functions(page->flame, &function_cnt), calloc(function_cnt, sizeof(*rows)));
	int err = ns && rows ? flame__weigh(page->flame, &page->choice, ns, &step_cnt) : -ENOMEM;

	if (err)
		goto out;
	fill_rows(page->flame, ns, rows);
	qsort(rows, function_cnt, sizeof(*rows), compare_function_rows);
	fputs("<h2>Where the time went</h2>\n<table><tr><th>own ms<th>total ms<th>function<th>file\n", out);
	for (size_t i = 0; i < function_cnt && i < ROWS && rows[i].self_ns > 0 && !err; i++) {
		fprintf(out, "<tr><td>%.3f<td>%.3f<td>", rows[i].self_ns / 1e6, rows[i].total_ns / 1e6);
		err = put_html_text(texts[rows[i].function->name], out);
		fputs("<td>", out);
		if (!err)
			err = put_html_text(texts[rows[i].function->file], out);
		fputc('\n', out);
	}
	fputs("</table>\n", out);
out:
	free(ns);
	free(rows);
	return err;
}

static int compare_step_lengths(const void *a, const void *b)
{
	const struct flame_step *x = a, *y = b;
	uint64_t x_us = x->end_us - x->start_us, y_us = y->end_us - y->start_us;

	return (x_us < y_us) - (x_us > y_us);
}

static int put_steps(const struct flame_track *track, FILE *out)
{
	struct flame_step *steps = calloc(track->step_cnt + 1, sizeof(*steps));

	if (!steps)
		return -ENOMEM;
	for (size_t i = 0; i < track->step_cnt; i++)
		steps[i] = track->steps[i];
	qsort(steps, track->step_cnt, sizeof(*steps), compare_step_lengths);
	fprintf(out, "<h2>The longest of %zu steps of process %u</h2>\n<table><tr><th>step<th>ms", track->step_cnt,
		track->pid);
	for (int p = 0; p < PHASE__COUNT; p++)
		fprintf(out, "<th>%s ms", phase__name(p));
	fputc('\n', out);
	for (size_t i = 0; i < track->step_cnt && i < ROWS; i++) {
		fprintf(out, "<tr><td>%" PRIu64 "<td>%.3f", steps[i].index,
			(steps[i].end_us - steps[i].start_us) / 1e3);
		for (int p = 0; p < PHASE__COUNT; p++)
			fprintf(out, "<td>%.3f", steps[i].phase_us[p] / 1e3);
		fputc('\n', out);
	}
	fputs("</table>\n", out);
	free(steps);
	return 0;
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key)) ?: "";
}

/* What the reports say of a track: what limits it, and what made steps slow. */
static int put_answer(const json_t *track, FILE *out)
{
	const json_t *verdict = json_object_get(track, "verdict"), *cause;
	size_t i;
	int err;

	fputs("<h2>Limited by ", out);
	err = put_html_text(text_of(verdict, "head"), out);
	fputs("</h2>\n<p>", out);
	err = err ?: put_html_text(text_of(verdict, "why"), out);
	fputs("\n<table><tr><th>share<th>slow steps<th>rhythm<th>because of<th>place\n", out);
	json_array_foreach(json_object_get(track, "causes"), i, cause)
	{
		fprintf(out, "<tr><td>%.1f %%<td>%" JSON_INTEGER_FORMAT "<td>",
			100 * json_number_value(json_object_get(cause, "share")),
			json_integer_value(json_object_get(cause, "count")));
		err = err ?: put_html_text(text_of(cause, "every"), out);
		fputs("<td>", out);
		err = err ?: put_html_text(text_of(cause, "how"), out);
		fputs("<td>", out);
		err = err ?: put_html_text(text_of(cause, "place"), out);
		fputc('\n', out);
	}
	fputs("</table>\n", out);
	return err;
}

/* Of the track that the reports show first. */
static int put_answers(const struct page *page, FILE *out)
{
	int err = 0;

	for (uint32_t i = 0; i < page->recording_cnt && !err; i++) {
		const json_t *answer = page->recordings[i].answer, *shown = json_object_get(answer, "shown");
		const json_t *tracks = json_object_get(answer, "tracks");

		if (json_is_integer(shown))
			err = put_answer(json_array_get(tracks, json_integer_value(shown)), out);
	}
	return err;
}

int top_list__write(const struct page *page, FILE *out)
{
	size_t track_cnt;
	const struct flame_track *tracks = flame__tracks(page->flame, &track_cnt);
	int err;

	fputs("<h1>stepflame flame</h1>\n<p>The flame itself needs JavaScript; nothing is loaded from anywhere.\n",
	      out);
	err = put_answers(page, out) ?: put_functions(page, out);
	for (size_t i = 0; i < track_cnt && !err; i++)
		if (tracks[i].recording == page->choice.recording)
			err = put_steps(&tracks[i], out);
	for (uint32_t i = 0; i < page->recording_cnt && !err; i++) {
		fputs("<h2>", out);
		err = put_html_text(page->recordings[i].file, out);
		fputs("</h2>\n<pre>", out);
		for (const char *line = page->recordings[i].about; *line && !err; line++) {
			if (*line == '<' || *line == '>' || *line == '&')
				fprintf(out, "&#%d;", *line);
			else
				fputc(*line, out);
		}
		fputs("</pre>\n", out);
	}
	return err;
}
