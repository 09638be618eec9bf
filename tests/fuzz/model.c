// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The model, and all that is made of it: the input is records, back to back. Each report as text, JSON and CSV, the live
 * view, the difference, exports and the flame page must hold no byte that steers a terminal, and be well-formed.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>

#include "tests/fuzz/records.h"
#include "user/analysis/compare/diff.h"
#include "user/analysis/resources/curves.h"
#include "user/export/export.h"
#include "user/export/ranks.h"
#include "user/page/page.h"
#include "user/report/common.h"
#include "user/report/diff.h"
#include "user/report/report.h"
#include "user/report/steps_report.h"
#include "user/report/summary.h"
#include "user/top/lines.h"

#define INPUT_MAX 16384

static uint32_t choices; /* of options, from the input */

static bool choose(void)
{
	choices = choices >> 1 | choices << 31;
	return choices & 1;
}

/* ---- outputs ---- */

enum form { TEXT, JSON, CSV, HTML, FOLDED, BINARY };

static size_t count(const char *text, const char *word)
{
	size_t cnt = 0;

	for (; (text = strstr(text, word)); text++)
		cnt++;
	return cnt;
}

static void check_output(const char *text, size_t bytes, enum form form)
{
	static const char *const allowed[] = {"\n\t", "\n", "\r\n", "\n\t", "\n"};
	static size_t scripts;
	json_t *json;

	if (form == BINARY)
		return;
	fuzz__check_text(text, bytes, allowed[form]);
	if (form == JSON) {
		json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
		FUZZ_CHECK(json);
		json_decref(json);
	}
	if (form == HTML) {
		scripts = scripts ?: count(text, "</script");
		FUZZ_CHECK(count(text, "</script") == scripts && !strstr(text, "<!--"));
	}
}

struct output {
	char *text;
	size_t bytes;
	FILE *file;
};

static FILE *output__begin(struct output *output)
{
	*output = (struct output){0};
	output->file = open_memstream(&output->text, &output->bytes);
	return output->file;
}

static void output__end(struct output *output, int err, enum form form)
{
	FUZZ_CHECK(!fclose(output->file));
	FUZZ_CHECK(!err);
	check_output(output->text, output->bytes, form);
	free(output->text);
}

/* ---- what is made ---- */

static void print_reports(struct job *job)
{
	static const char *const names[] = {"summary", "simple", "advanced", "ops", "steps", "io", "gpu"};
	const char *action = choose() ? record_texts[choices % 4] : NULL;
	struct report_options options = {.all = choose(),
					 .leaf = choose(),
					 .per_rank = choose(),
					 .overloads = choose(),
					 .shapes = choose(),
					 .stacks = choose(),
					 .modules = choose(),
					 .by_action = choose(),
					 .by_op = choose(),
					 .flops = choose(),
					 .cpu = choose(),
					 .native = choose(),
					 .limit = choose() ? 0 : -1,
					 .action = action};
	struct output output;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const struct report_ops *report = report__find(names[i]);

		options.json = options.csv = false;
		output__begin(&output);
		output__end(&output, report->text(job, &options, output.file), TEXT);
		options.json = true;
		output__begin(&output);
		output__end(&output, report->json(job, &options, output.file), JSON);
		options.json = false;
		options.csv = true;
		output__begin(&output);
		output__end(&output, report->json(job, &options, output.file), CSV);
	}
}

static void print_diff(const struct diff_input *input)
{
	const struct diff_options options = {.files = {"a", "b"}, .all = choose()};
	struct diff_input inputs[DIFF__SIDES] = {*input, *input};
	struct output output;
	struct diff diff;

	FUZZ_CHECK(!diff__make(inputs, &diff));
	output__begin(&output);
	output__end(&output, report_diff__text(&diff, &options, output.file), TEXT);
	output__begin(&output);
	output__end(&output, report_diff__json(&diff, &options, output.file), JSON);
	output__begin(&output);
	output__end(&output, report_diff__csv(&diff, &options, output.file), CSV);
	diff__release(&diff);
}

static void export_all(struct job *job, struct timeline *timeline, struct tracks *tracks)
{
	static const struct {
		const struct export_ops *format;
		enum form form;
	} formats[] = {{&export_chrome, JSON},     {&export_perfetto, BINARY}, {&export_folded, FOLDED},
		       {&export_pprof, BINARY},    {&export_pstats, BINARY},   {&export_speedscope, JSON},
		       {&export_tensorboard, JSON}};
	struct export_options options = {
		.name = "fuzz", .cpu = choose(), .main_threads = choose(), .native = choose(), .tracks = tracks};
	struct export_ranks ranks;
	struct output output;

	FUZZ_CHECK(!timeline__add_gpu(timeline, job__gpu(job)) && !timeline__build(timeline));
	FUZZ_CHECK(!tracks__build(tracks, job) && !export_ranks__find(job, &ranks));
	options.ranks = &ranks;
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		output__begin(&output);
		output__end(&output, formats[i].format->write(job, timeline, &options, output.file), formats[i].form);
	}
	export_ranks__release(&ranks);
}

static void export_tables(struct job *job)
{
	int err;
	struct tables *tables = tables__new(job, 0, &err);
	struct output output;

	FUZZ_CHECK(tables ? !err : err == -EINVAL);
	for (size_t i = 0; tables && i < tables__cnt(); i++) {
		output__begin(&output);
		output__end(&output, tables__write(tables, i, output.file), BINARY);
	}
	tables__free(tables);
}

static void draw_page(struct job *job, struct lanes *lanes)
{
	static const struct report_options options = {.limit = -1};
	struct flame *flame = flame__new();
	struct steps_view view;
	uint64_t stream_ns, phase_ns;
	struct use_curves *uses = use_curves__new();
	struct page page = {.flame = flame,
			    .lanes = lanes,
			    .uses = uses,
			    .recording_cnt = 1,
			    .recordings = {{.file = "</script><!--"}}};
	struct output about, output;

	common__text(job, output__begin(&about));
	FUZZ_CHECK(!fclose(about.file));
	FUZZ_CHECK(!steps_view__new(job, &options, &view));
	page.recordings[0].about = about.text;
	page.recordings[0].answer = summary__answer_json(&view);
	FUZZ_CHECK(page.recordings[0].answer && !flame__add(flame, job, view.steps, choose()));
	FUZZ_CHECK(!lanes__add(lanes, job, view.steps, flame__origin_ns(flame)));
	FUZZ_CHECK(!use_curves__add(uses, job, view.steps, flame__origin_ns(flame)));
	lanes__thin(lanes, choose() ? 1000 : 3, &stream_ns, &phase_ns);
	output__begin(&output);
	output__end(&output, page__write(&page, output.file), HTML);
	page_recording__release(&page.recordings[0]);
	use_curves__free(uses);
	flame__free(flame);
	steps_view__release(&view);
}

static void show_live(struct job *job)
{
	const struct top_usage usage = {.cpu_percent = NAN, .processes = 1, .threads = 1};
	size_t cnt;
	const struct rec_step *boundaries = job__boundaries(job, &cnt);
	struct top *top = top__new();
	struct top_state state;
	struct top_frame frame;
	struct array lines = {0};
	struct output output;

	top_state__init(&state);
	state.utf8 = choose();
	for (size_t i = 0; i < cnt; i++)
		top__step(top, &boundaries[i]);
	FUZZ_CHECK(!top__update(top, job, &usage, &frame));
	state.view = TOP__VIEWS;
	FUZZ_CHECK(!top_lines__batch(&frame, &state, 0, &lines));
	state.view = choices % TOP__VIEWS;
	state.width = 20 + choices % 100;
	state.height = 5 + choices % 30;
	FUZZ_CHECK(!top_lines__screen(&frame, &state, &lines));
	for (size_t i = 0; i < lines.cnt; i++) {
		const char *text = ((struct top_line *)lines.items)[i].text;

		fuzz__check_text(text, strlen(text), "");
	}
	top_lines__release(&lines);
	output__begin(&output);
	output__end(&output, top_lines__json(&frame, TOP__VIEWS, 0, output.file), JSON);
	top_frame__release(&frame);
	top__free(top);
}

/* ---- records ---- */

/* The size of the record at `at`, as the reader of files would have it; 0: no more. */
static size_t record_size(const uint8_t *at, size_t left)
{
	struct rec_hdr header;

	if (left < sizeof(header))
		return 0;
	memcpy(&header, at, sizeof(header));
	return header.size < sizeof(header) || header.size % 8 || header.size > left ? 0 : header.size;
}

static size_t all_records(const uint8_t *data, size_t size, size_t *cnt)
{
	size_t at = 0, next;

	for (*cnt = 0; (next = record_size(data + at, size - at)); at += next)
		++*cnt;
	return at;
}

static void mutate_payload(uint8_t *record, size_t size)
{
	uint8_t copy[65536];
	size_t bytes = size - sizeof(struct rec_hdr);

	if (!bytes || bytes > sizeof(copy))
		return;
	memset(copy, 0, bytes);
	memcpy(copy, record + sizeof(struct rec_hdr), bytes);
	LLVMFuzzerMutate(copy, bytes, bytes);
	memcpy(record + sizeof(struct rec_hdr), copy, bytes);
}

/* Removes, changes or adds a record; the others stay where records begin. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	struct record_random random = {seed * 0x9e3779b97f4a7c15ull + 1};
	uint64_t fresh[RECORD_MAX / 8];
	size_t cnt, at = 0, bytes;

	max_size &= ~7ul;
	size = all_records(data, size, &cnt);
	for (uint64_t turns = below(&random, 6) ? 1 : 8; turns; turns--) {
		at = 0;
		for (uint64_t skip = cnt ? below(&random, cnt) : 0; skip; skip--)
			at += record_size(data + at, size - at);
		bytes = cnt ? record_size(data + at, size - at) : 0;
		switch (below(&random, 8)) {
		case 0:
			memmove(data + at, data + at + bytes, size - at - bytes);
			size -= bytes;
			cnt -= bytes > 0;
			break;
		case 1:
		case 2:
			mutate_payload(data + at, bytes);
			break;
		default:
			bytes = put_random_record(&random, (uint8_t *)fresh);
			if (size + bytes > max_size)
				break;
			memmove(data + at + bytes, data + at, size - at);
			memcpy(data + at, fresh, bytes);
			size += bytes;
			cnt++;
		}
	}
	return size ?: 1; /* no room for a record yet: libFuzzer begins small */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct diff_input input = {job__new(), history__new()};
	struct timeline *timeline = timeline__new(10000);
	struct tracks *tracks = tracks__new();
	struct lanes *lanes = lanes__new();
	size_t bytes;

	choices = crc32(0, data, size < 1u << 20 ? size : 0);
	for (size_t at = 0; (bytes = record_size(data + at, size - at)); at += bytes) {
		struct rec_hdr *record = memcpy(malloc(bytes), data + at, bytes);

		FUZZ_CHECK(!job__add(input.job, record) && !history__add(input.history, record));
		FUZZ_CHECK(!timeline__add(timeline, record) && !tracks__add(tracks, record) &&
			   !lanes__take(lanes, record));
		free(record);
	}
	print_reports(input.job);
	print_diff(&input);
	export_all(input.job, timeline, tracks);
	export_tables(input.job);
	if (choices % 4 == 0) /* the largest output by far */
		draw_page(input.job, lanes);
	show_live(input.job);
	lanes__free(lanes);
	tracks__free(tracks);
	timeline__free(timeline);
	history__free(input.history);
	job__free(input.job);
	return 0;
}
