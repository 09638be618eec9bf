// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The parts of the page are files beside this one, as a browser would load them. The assembler
 * includes them in the program, as C has #embed only from C23 on. The page's policy allows only the
 * one style and the one script that carry its nonce.
 */
#include "user/page/page.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zlib.h>

#include "user/lib/utf8.h"
#include "user/report/common.h"

/* ---- where scripts do not run: the functions that take most time, the longest steps, and the losses ---- */

#define ROWS 25

struct function_row {
	const struct flame_function *function;
	double self_ns, total_ns;
};

/* Escapes text twice: against what could steer the reader's display, and against markup. */
static int write_html_text(const char *text, FILE *out)
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

static int write_functions(const struct page *page, FILE *out)
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
		err = write_html_text(texts[rows[i].function->name], out);
		fputs("<td>", out);
		if (!err)
			err = write_html_text(texts[rows[i].function->file], out);
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

static int write_steps(const struct flame_track *track, FILE *out)
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
static int write_answer(const json_t *track, FILE *out)
{
	const json_t *verdict = json_object_get(track, "verdict"), *cause;
	size_t i;
	int err;

	fputs("<h2>Limited by ", out);
	err = write_html_text(text_of(verdict, "head"), out);
	fputs("</h2>\n<p>", out);
	err = err ?: write_html_text(text_of(verdict, "why"), out);
	fputs("\n<table><tr><th>share<th>slow steps<th>rhythm<th>because of<th>place\n", out);
	json_array_foreach(json_object_get(track, "causes"), i, cause)
	{
		fprintf(out, "<tr><td>%.1f %%<td>%" JSON_INTEGER_FORMAT "<td>",
			100 * json_number_value(json_object_get(cause, "share")),
			json_integer_value(json_object_get(cause, "count")));
		err = err ?: write_html_text(text_of(cause, "every"), out);
		fputs("<td>", out);
		err = err ?: write_html_text(text_of(cause, "how"), out);
		fputs("<td>", out);
		err = err ?: write_html_text(text_of(cause, "place"), out);
		fputc('\n', out);
	}
	fputs("</table>\n", out);
	return err;
}

/* Of the track that the reports show first. */
static int write_answers(const struct page *page, FILE *out)
{
	int err = 0;

	for (uint32_t i = 0; i < page->recording_cnt && !err; i++) {
		const json_t *answer = page->recordings[i].answer, *shown = json_object_get(answer, "shown");
		const json_t *tracks = json_object_get(answer, "tracks");

		if (json_is_integer(shown))
			err = write_answer(json_array_get(tracks, json_integer_value(shown)), out);
	}
	return err;
}

/* Writes HTML. 0 or -ENOMEM; the caller checks out for errors. */
static int top_list__write(const struct page *page, FILE *out)
{
	size_t track_cnt;
	const struct flame_track *tracks = flame__tracks(page->flame, &track_cnt);
	int err;

	fputs("<h1>stepflame flame</h1>\n<p>The flame itself needs JavaScript; nothing is loaded from anywhere.\n",
	      out);
	err = write_answers(page, out) ?: write_functions(page, out);
	for (size_t i = 0; i < track_cnt && !err; i++)
		if (tracks[i].recording == page->choice.recording)
			err = write_steps(&tracks[i], out);
	for (uint32_t i = 0; i < page->recording_cnt && !err; i++) {
		fputs("<h2>", out);
		err = write_html_text(page->recordings[i].file, out);
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

/* ---- the data that the page draws: gzip in base64, so that no name can break out of it ---- */

/* Numbers are written column by column, which gzip packs into half the size of rows. */
#define NUMBER_MAX ((1ull << 53) - 1) /* the largest exact integer in JavaScript */
#define BLOCK      3072               /* bytes encoded at a time: a multiple of base64's 3 */

struct packer {
	z_stream zip;
	FILE *out;
	unsigned char plain[BLOCK], zipped[BLOCK];
	size_t plain_cnt, zipped_cnt;
};

static const char *const kind_names[] = {
	[CALLTREE_ROOT] = "root",     [CALLTREE_PROCESS] = "process", [CALLTREE_THREAD] = "thread",
	[CALLTREE_PHASE] = "phase",   [CALLTREE_MARK] = "mark",       [CALLTREE_PYTHON] = "python",
	[CALLTREE_OP] = "op",         [CALLTREE_NATIVE] = "native",   [CALLTREE_SYSCALL] = "kernel",
	[CALLTREE_KERNEL] = "kernel", [CALLTREE_WAIT] = "wait",       [CALLTREE_GPU] = "kernel",
	[CALLTREE_WAKER] = "waker",
};

static void write_base64(const unsigned char *data, size_t cnt, FILE *out)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < cnt; i += 3) {
		uint32_t bits = data[i] << 16 | (i + 1 < cnt ? data[i + 1] << 8 : 0) | (i + 2 < cnt ? data[i + 2] : 0);

		putc_unlocked(digits[bits >> 18], out);
		putc_unlocked(digits[bits >> 12 & 63], out);
		putc_unlocked(i + 1 < cnt ? digits[bits >> 6 & 63] : '=', out);
		putc_unlocked(i + 2 < cnt ? digits[bits & 63] : '=', out);
	}
}

static void zip_block(struct packer *packer, int flush)
{
	int got;

	packer->zip.next_in = packer->plain;
	packer->zip.avail_in = packer->plain_cnt;
	do {
		packer->zip.next_out = packer->zipped + packer->zipped_cnt;
		packer->zip.avail_out = BLOCK - packer->zipped_cnt;
		got = deflate(&packer->zip, flush);
		packer->zipped_cnt = BLOCK - packer->zip.avail_out;
		if (packer->zipped_cnt < BLOCK && got != Z_STREAM_END)
			continue;
		write_base64(packer->zipped, packer->zipped_cnt, packer->out);
		packer->zipped_cnt = 0;
	} while (packer->zip.avail_in || (flush == Z_FINISH && got == Z_OK));
	packer->plain_cnt = 0;
}

static void packer__write_byte(struct packer *packer, unsigned char byte)
{
	if (packer->plain_cnt == BLOCK)
		zip_block(packer, Z_NO_FLUSH);
	packer->plain[packer->plain_cnt++] = byte;
}

static void packer__write_number(struct packer *packer, uint64_t value)
{
	if (value > NUMBER_MAX)
		value = NUMBER_MAX;
	for (; value > 0x7f; value >>= 7)
		packer__write_byte(packer, (value & 0x7f) | 0x80);
	packer__write_byte(packer, value);
}

/* Maps small numbers of either sign to small unsigned numbers. */
static uint64_t fold_sign(int64_t value)
{
	return value < 0 ? ~((uint64_t)value << 1) : (uint64_t)value << 1;
}

static uint64_t bound_number(uint64_t value)
{
	return value < NUMBER_MAX / 2 ? value : NUMBER_MAX / 2;
}

/* Writes the difference from the number before. */
static void packer__write_difference(struct packer *packer, uint64_t value, uint64_t *before)
{
	packer__write_number(packer, fold_sign(bound_number(value) - *before));
	*before = bound_number(value);
}

static void packer__write_text(struct packer *packer, const char *text)
{
	size_t bytes = strlen(text);

	packer__write_number(packer, bytes);
	for (size_t i = 0; i < bytes; i++)
		packer__write_byte(packer, text[i]);
}

/* ---- what is packed ---- */

/* NULL: no memory. */
static char *make_head(const struct page *page)
{
	static const char *const steps[] = {
		[FLAME_ALL_TIME] = "all", [FLAME_STEP] = "step", [FLAME_SLOWEST] = "slowest"};
	json_t *kinds = json_array(), *phases = json_array(), *recordings = json_array(), *head;
	int failed = 0;
	char *text;

	for (size_t i = 0; i < sizeof(kind_names) / sizeof(*kind_names); i++)
		failed |= json_array_append_new(kinds, json_string(kind_names[i]));
	for (int i = 0; i < PHASE__COUNT; i++)
		failed |= json_array_append_new(phases, json_string(phase__name(i)));
	for (uint32_t i = 0; i < page->recording_cnt; i++)
		failed |= json_array_append_new(
			recordings, json_pack("{s:s, s:s, s:O, s:f}", "file", page->recordings[i].file, "about",
					      page->recordings[i].about, "answer", page->recordings[i].answer,
					      "seconds", page->recordings[i].seconds));
	head = json_pack("{s:s, s:o, s:o, s:o, s:{s:s, s:I, s:I, s:b}}", "version", STEPFLAME_VERSION, "kinds", kinds,
			 "phases", phases, "recordings", recordings, "choice", "steps", steps[page->choice.steps],
			 "number", (json_int_t)page->choice.number, "pid", (json_int_t)page->choice.pid, "all_threads",
			 page->choice.all_threads);
	/* Real numbers have the digits that reports print. */
	text = head && !failed ? json_dumps(head, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
	json_decref(head);
	return text;
}

/* Writes `field` of each of `cnt` items. */
#define PUT_COLUMN(packer, items, cnt, field)                            \
	do {                                                             \
		for (size_t i_ = 0; i_ < (cnt); i_++)                    \
			packer__write_number(packer, (items)[i_].field); \
	} while (0)

static void packer__write_tree(struct packer *packer, const struct flame *flame)
{
	size_t text_cnt, function_cnt, frame_cnt, node_cnt;
	char *const *texts = flame__texts(flame, &text_cnt);
	const struct flame_function *functions = flame__functions(flame, &function_cnt);
	const struct flame_frame *frames = flame__frames(flame, &frame_cnt);
	const struct flame_node *nodes = flame__nodes(flame, &node_cnt);

	packer__write_number(packer, text_cnt);
	for (size_t i = 0; i < text_cnt; i++)
		packer__write_text(packer, texts[i]);
	packer__write_number(packer, function_cnt);
	PUT_COLUMN(packer, functions, function_cnt, kind);
	PUT_COLUMN(packer, functions, function_cnt, name);
	PUT_COLUMN(packer, functions, function_cnt, file);
	PUT_COLUMN(packer, functions, function_cnt, first_line);
	packer__write_number(packer, frame_cnt);
	PUT_COLUMN(packer, frames, frame_cnt, function);
	PUT_COLUMN(packer, frames, frame_cnt, line);
	packer__write_number(packer, node_cnt);
	for (size_t i = 0; i < node_cnt; i++)
		packer__write_number(packer, i - nodes[i].parent);
	PUT_COLUMN(packer, nodes, node_cnt, frame);
}

static void packer__write_track(struct packer *packer, const struct flame_track *track)
{
	const struct flame_step *steps = track->steps;
	uint64_t end_us = 0, index = 0, slow = 0;

	packer__write_number(packer, track->recording);
	packer__write_number(packer, track->pid);
	packer__write_number(packer, track->tid);
	packer__write_number(packer, track->rank + 1);
	packer__write_text(packer, common__step_rule(track->rule));
	packer__write_number(packer, track->step_cnt);
	for (size_t i = 0; i < track->step_cnt; i++) {
		packer__write_difference(packer, steps[i].start_us, &end_us);
		end_us = bound_number(steps[i].end_us);
	}
	for (size_t i = 0; i < track->step_cnt; i++)
		packer__write_number(packer, steps[i].end_us - steps[i].start_us);
	for (size_t i = 0; i < track->step_cnt; i++)
		packer__write_difference(packer, steps[i].index, &index);
	PUT_COLUMN(packer, steps, track->step_cnt, gc_us);
	for (int p = 0; p < PHASE__COUNT; p++)
		PUT_COLUMN(packer, steps, track->step_cnt, phase_us[p]);
	packer__write_number(packer, track->slow_cnt);
	for (size_t i = 0; i < track->slow_cnt; i++)
		packer__write_difference(packer, track->slow[i], &slow);
}

static void packer__write_thread(struct packer *packer, const struct flame_thread *thread)
{
	const struct flame_row *rows = thread->rows.items;
	uint64_t end_us = 0;

	packer__write_number(packer, thread->recording);
	packer__write_number(packer, thread->pid);
	packer__write_number(packer, thread->tid);
	packer__write_number(packer, thread->role);
	packer__write_number(packer, thread->rank + 1);
	packer__write_number(packer, thread->track + 1);
	packer__write_number(packer, thread->steps | thread->main << 1);
	packer__write_number(packer, thread->rows.cnt);
	for (size_t i = 0; i < thread->rows.cnt; i++)
		packer__write_difference(packer, rows[i].end_us, &end_us);
	PUT_COLUMN(packer, rows, thread->rows.cnt, weight_ns);
	/* 0: no span. Mostly the span equals the weight, which gives 1. */
	for (size_t i = 0; i < thread->rows.cnt; i++)
		packer__write_number(packer, rows[i].span_us ? 1 + fold_sign(bound_number(rows[i].span_us) -
									     bound_number(rows[i].weight_ns / 1000))
							     : 0);
	PUT_COLUMN(packer, rows, thread->rows.cnt, node);
}

/* Times in nanoseconds: most work of a GPU takes some microseconds. */
static void packer__write_lane(struct packer *packer, const struct lane *lane)
{
	const struct lane_span *spans = lane->spans.items;
	uint64_t end_ns = 0;

	packer__write_number(packer, lane->recording);
	packer__write_number(packer, lane->kind);
	packer__write_number(packer, lane->pid);
	packer__write_number(packer, lane->tid);
	packer__write_number(packer, lane->device);
	packer__write_number(packer, lane->context);
	packer__write_number(packer, lane->stream);
	packer__write_number(packer, lane->spans.cnt);
	for (size_t i = 0; i < lane->spans.cnt; i++) {
		packer__write_difference(packer, spans[i].start_ns, &end_ns);
		end_ns = bound_number(spans[i].start_ns + spans[i].duration_ns);
	}
	PUT_COLUMN(packer, spans, lane->spans.cnt, duration_ns);
	for (size_t i = 0; i < lane->spans.cnt; i++)
		packer__write_number(packer, spans[i].duration_ns - spans[i].busy_ns);
	PUT_COLUMN(packer, spans, lane->spans.cnt, cnt);
	PUT_COLUMN(packer, spans, lane->spans.cnt, what);
}

static void packer__write_lanes(struct packer *packer, const struct lanes *lanes)
{
	size_t text_cnt, cnt;
	char *const *texts = lanes__texts(lanes, &text_cnt);
	const struct lane *all = lanes__all(lanes, &cnt);

	packer__write_number(packer, text_cnt);
	for (size_t i = 0; i < text_cnt; i++)
		packer__write_text(packer, texts[i]);
	packer__write_number(packer, cnt);
	for (size_t i = 0; i < cnt; i++)
		packer__write_lane(packer, &all[i]);
}

static void packer__write_uses(struct packer *packer, const struct use_curves *uses)
{
	size_t cnt;
	const struct use_curve *all = use_curves__all(uses, &cnt);

	packer__write_number(packer, cnt);
	for (size_t i = 0; i < cnt; i++) {
		const struct use_point *points = all[i].points.items;
		uint64_t time_us = 0, value = 0;

		packer__write_number(packer, all[i].recording);
		packer__write_number(packer, all[i].kind);
		packer__write_number(packer, all[i].pid);
		packer__write_number(packer, all[i].device);
		packer__write_number(packer, all[i].points.cnt);
		for (size_t p = 0; p < all[i].points.cnt; p++)
			packer__write_difference(packer, points[p].time_ns / 1000, &time_us);
		for (size_t p = 0; p < all[i].points.cnt; p++)
			packer__write_difference(packer, points[p].value, &value);
	}
}

static void packer__write_all(struct packer *packer, const struct page *page, const char *head)
{
	size_t track_cnt, thread_cnt;
	const struct flame_track *tracks = flame__tracks(page->flame, &track_cnt);
	const struct flame_thread *threads = flame__threads(page->flame, &thread_cnt);

	packer__write_text(packer, head);
	packer__write_tree(packer, page->flame);
	packer__write_number(packer, track_cnt);
	for (size_t i = 0; i < track_cnt; i++)
		packer__write_track(packer, &tracks[i]);
	packer__write_number(packer, thread_cnt);
	for (size_t i = 0; i < thread_cnt; i++)
		packer__write_thread(packer, &threads[i]);
	packer__write_lanes(packer, page->lanes);
	packer__write_uses(packer, page->uses);
}

/*
 * Writes a JSON object to out, then numbers (LEB128) in the order in which user/page/data.js reads
 * them. 0 or -ENOMEM; the caller checks out for errors.
 */
static int page_data__write(const struct page *page, FILE *out)
{
	struct packer *packer = calloc(1, sizeof(*packer));
	char *head = packer ? make_head(page) : NULL;
	int err = -ENOMEM;

	/* A window of 15 bits; adding 16 selects a gzip header. */
	if (head && deflateInit2(&packer->zip, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK) {
		packer->out = out;
		packer__write_all(packer, page, head);
		zip_block(packer, Z_FINISH);
		deflateEnd(&packer->zip);
		err = 0;
	}
	free(head);
	free(packer);
	return err;
}

/* ---- the page ---- */

#define EMBED(symbol, file)                                                                                    \
	asm(".pushsection .rodata\n" #symbol ":\n\t.incbin \"user/page/" file "\"\n\t.byte 0\n.popsection\n"); \
	extern const char symbol[] __attribute__((visibility("hidden")))

EMBED(page_html, "page.html");
EMBED(page_css, "page.css");
EMBED(page_format_js, "format.js");
EMBED(page_data_js, "data.js");
EMBED(page_select_js, "select.js");
EMBED(page_tree_js, "tree.js");
EMBED(page_colours_js, "colours.js");
EMBED(page_flame_js, "flame.js");
EMBED(page_uses_js, "uses.js");
EMBED(page_overview_js, "overview.js");
EMBED(page_table_js, "table.js");
EMBED(page_answer_js, "answer.js");
EMBED(page_spans_js, "spans.js");
EMBED(page_lanes_js, "lanes.js");
EMBED(page_image_js, "image.js");
EMBED(page_main_js, "main.js");

static const char *const scripts[] = {
	page_format_js,   page_data_js,  page_select_js, page_tree_js,  page_colours_js, page_flame_js, page_uses_js,
	page_overview_js, page_table_js, page_answer_js, page_spans_js, page_lanes_js,   page_image_js, page_main_js,
};

int page__write(const struct page *page, FILE *out)
{
	uint64_t nonce[2];
	int err;

	if (getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce))
		return -errno;
	fprintf(out,
		"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; "
		"form-action 'none'; "
		"script-src 'nonce-%016" PRIx64 "%016" PRIx64 "'; style-src 'nonce-%016" PRIx64 "%016" PRIx64 "'\">\n"
		"<meta name=\"viewport\" content=\"width=device-width\">\n<title>stepflame flame</title>\n",
		nonce[0], nonce[1], nonce[0], nonce[1]);
	fprintf(out, "<style nonce=\"%016" PRIx64 "%016" PRIx64 "\">\n%s</style>\n</head>\n<body>\n%s", nonce[0],
		nonce[1], page_css, page_html);
	fputs("<noscript>\n", out);
	err = top_list__write(page, out);
	fputs("</noscript>\n<script type=\"application/octet-stream\" id=\"data\">", out);
	if (!err)
		err = page_data__write(page, out);
	fprintf(out, "</script>\n<script nonce=\"%016" PRIx64 "%016" PRIx64 "\">\n'use strict';\n", nonce[0], nonce[1]);
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++)
		fputs(scripts[i], out);
	fputs("</script>\n</body>\n</html>\n", out);
	return err;
}
