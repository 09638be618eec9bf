// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame flame: turns one or two recordings into a page of their steps' flames, or into folded
 * stacks. Needs neither root nor a target.
 */
#include "user/cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/flame.h"
#include "user/cmd/input.h"
#include "user/cmd/parse.h"
#include "user/export/export.h"
#include "user/lib/digits.h"
#include "user/lib/log.h"
#include "user/lib/output.h"
#include "user/lib/utf8.h"
#include "user/model/processes.h"
#include "user/model/rests.h"
#include "user/page/page.h"
#include "user/report/common.h"
#include "user/report/summary.h"

#define OUTPUT_DEFAULT "flame.html"
/* A browser draws this many without a pause; they make some 6 MB of page. */
#define ROWS_MAX 1200000
/* Of phases, and of GPU work: half a megabyte each. */
#define LANE_SPANS_MAX 100000

enum { OPT_STEP = 256, OPT_SLOWEST, OPT_DIFF, OPT_FOLDED, OPT_ALL_THREADS, OPT_NATIVE };

struct flame_args {
	const char *files[PAGE_RECORDINGS];
	const char *output;
	struct flame_choice choice;
	bool folded;
	bool native;
};

static const struct argp_option options[] = {
	{"output", 'o', "OUT", 0, "the page to write (" OUTPUT_DEFAULT "); -: standard output", 0},
	{"step", OPT_STEP, "N", 0, "begin with step N, as report --steps numbers them", 0},
	{"slowest", OPT_SLOWEST, "K", 0, "begin with the K slowest steps", 0},
	{"diff", OPT_DIFF, "FILE2", 0, "compare with another recording: what took longer in FILE2 than in FILE", 0},
	{"pid", 'p', "PID", 0, "begin with this process, a rank or a worker", 0},
	{"all-threads", OPT_ALL_THREADS, NULL, 0, "begin with all threads, not only the one that makes the steps", 0},
	{"native", OPT_NATIVE, NULL, 0,
	 "frames of the interpreter's own functions, too, which are otherwise part of the Python function that they "
	 "run",
	 0},
	{"folded", OPT_FOLDED, NULL, 0,
	 "no page: print folded stacks to stdout, in us: of the whole time, also outside of steps, or with --step or "
	 "--slowest of these steps; with --diff two counts on each line, FILE's first",
	 0},
	{0},
};

static uint64_t parse_number_or_die(struct argp_state *state, const char *option, const char *text, uint64_t min)
{
	char *rest;
	unsigned long long number;

	errno = 0;
	number = strtoull(text, &rest, 10);
	if (errno || rest == text || *rest || *text == '-' || number < min)
		argp_error(state, "%s needs a number, not '%s'", option, text);
	return number;
}

static void choose_steps_or_die(struct argp_state *state, struct flame_choice *choice, enum flame_steps steps,
				const char *arg)
{
	if (choice->steps != FLAME_ALL_TIME)
		argp_error(state, "--step and --slowest exclude each other");
	choice->steps = steps;
	choice->number =
		parse_number_or_die(state, steps == FLAME_STEP ? "--step" : "--slowest", arg, steps == FLAME_SLOWEST);
}

static error_t parse_flame_or_die(int key, char *arg, struct argp_state *state)
{
	struct flame_args *arguments = state->input;

	switch (key) {
	case 'o':
		arguments->output = arg;
		break;
	case 'p':
		arguments->choice.pid = parse_number_or_die(state, "--pid", arg, 1);
		break;
	case OPT_STEP:
		choose_steps_or_die(state, &arguments->choice, FLAME_STEP, arg);
		break;
	case OPT_SLOWEST:
		choose_steps_or_die(state, &arguments->choice, FLAME_SLOWEST, arg);
		break;
	case OPT_DIFF:
		arguments->files[1] = arg;
		break;
	case OPT_ALL_THREADS:
		arguments->choice.all_threads = true;
		break;
	case OPT_NATIVE:
		arguments->native = true;
		break;
	case OPT_FOLDED:
		arguments->folded = true;
		break;
	case ARGP_KEY_ARG:
		if (arguments->files[0])
			argp_error(state, "one recording at a time, not '%s' too; --diff compares two", arg);
		arguments->files[0] = arg;
		break;
	case ARGP_KEY_END:
		if (arguments->folded && arguments->output)
			argp_error(state, "--folded writes to stdout, and -o names a page");
		if (arguments->files[0] && arguments->files[1] && input__is_stdin(arguments->files[0]) &&
		    input__is_stdin(arguments->files[1]))
			argp_error(state, "standard input ('-') can be one of the two recordings, not both");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp flame_argp = {
	.options = options,
	.parser = parse_flame_or_die,
	.args_doc = "[FILE]",
	.doc = "Write an HTML page that shows where the time of each step of a recording (" INPUT_DEFAULT
	       " unless FILE is given) went: steps and their flames, to compare with each other. The page opens "
	       "without a network.",
};

/* ---- what comes in ---- */

struct flame_input {
	struct job *job;
	struct lanes *lanes; /* NULL: no page */
};

static int add_record_to_flame(const struct rec_hdr *record, void *ctx)
{
	struct flame_input *input = ctx;

	return job__add(input->job, record) ?: (input->lanes ? lanes__take(input->lanes, record) : 0);
}

/* malloc'ed; NULL: no memory. */
static char *describe_recording(struct job *job)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	common__text(job, out);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

/* Of which the recording has samples; 0: not known. */
static double sampled_seconds(const struct job *job)
{
	uint64_t from_ns = job__events_from(job), to_ns = job__window(job)->end_ns;

	if (to_ns <= from_ns)
		return 0;
	return (to_ns - from_ns - rests__between(job__rests(job), job__seen(job).pid, from_ns, to_ns)) / 1e9;
}

static int check_flame_samples(const char *file, struct job *job)
{
	const struct samples *samples = job__samples(job);

	if (!samples)
		return -ENOMEM;
	if (samples__cnt(samples))
		return 0;
	log__error("record again, for some seconds: stepflame record -p PID -d 30s", "%s has no samples", file);
	return -ENODATA;
}

/* lanes, uses, out: what the page says of the recording; NULL: there is no page. */
static int read_recording(const char *file, bool native, struct flame *flame, struct lanes *lanes,
			  struct use_curves *uses, struct page_recording *out)
{
	static const struct report_options options = {.limit = -1};
	struct job *job = job__new();
	struct flame_input input = {job, lanes};
	struct steps_view view;
	int err = job ? input__read(file, add_record_to_flame, &input) : -ENOMEM;

	if (!err)
		err = check_flame_samples(file, job);
	if (!err)
		err = steps_view__new(job, &options, &view);
	if (!err) {
		if (out) {
			out->about = describe_recording(job);
			out->answer = summary__answer_json(&view);
			out->seconds = sampled_seconds(job);
		}
		err = !out || (out->about && out->answer) ? flame__add(flame, job, view.steps, native) : -ENOMEM;
		if (!err && lanes)
			err = lanes__add(lanes, job, view.steps, flame__origin_ns(flame))
				      ?: use_curves__add(uses, job, view.steps, flame__origin_ns(flame));
		steps_view__release(&view);
	}
	job__free(job);
	return err;
}

/* ---- what is chosen ---- */

static bool has_threads(const struct flame *flame, const struct flame_choice *choice)
{
	size_t cnt;
	const struct flame_thread *threads = flame__threads(flame, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (flame__chooses(flame, choice, &threads[i]))
			return true;
	return false;
}

static int check_choice(const struct flame_args *arguments, const struct flame *flame)
{
	const struct flame_choice *choice = &arguments->choice;
	size_t cnt, step_cnt = 0;
	const struct flame_track *tracks = flame__tracks(flame, &cnt);
	bool found = choice->steps != FLAME_STEP;

	if (!has_threads(flame, choice)) {
		log__error("name a process of the recording; stepflame report --per-rank lists them",
			   "%s has no samples of process %u", arguments->files[0], choice->pid);
		return -ENODATA;
	}
	for (size_t i = 0; i < cnt; i++) {
		if (tracks[i].recording != choice->recording)
			continue;
		step_cnt += tracks[i].step_cnt;
		for (size_t s = 0; s < tracks[i].step_cnt && !found; s++)
			found = tracks[i].steps[s].index == choice->number;
	}
	if (!step_cnt && choice->steps != FLAME_ALL_TIME) {
		log__error("leave out --step and --slowest to see the whole time, or record with --step-at NAME, which "
			   "says what ends a step",
			   "%s has no steps", arguments->files[0]);
		return -ENODATA;
	}
	if (!found)
		log__error("see stepflame report --steps for the steps of the recording", "%s has no step %" PRIu64,
			   arguments->files[0], choice->number);
	return found ? 0 : -ENODATA;
}

/* ---- folded ---- */

static void free_frame_texts(char **texts, size_t cnt)
{
	for (size_t i = 0; texts && i < cnt; i++)
		free(texts[i]);
	free(texts);
}

/* Returns texts by frame; that of the root is NULL. NULL: no memory. */
static char **flame_frame_texts(const struct flame *flame, size_t *cnt)
{
	size_t other_cnt;
	const struct flame_frame *frames = flame__frames(flame, cnt);
	const struct flame_function *functions = flame__functions(flame, &other_cnt);
	char *const *texts = flame__texts(flame, &other_cnt);
	char **out = calloc(*cnt, sizeof(*out));

	for (size_t i = 1; out && i < *cnt; i++) {
		const struct flame_function *function = &functions[frames[i].function];

		out[i] = folded__frame(texts[function->name], function->file ? texts[function->file] : NULL,
				       frames[i].line);
		if (!out[i]) {
			free_frame_texts(out, *cnt);
			return NULL;
		}
	}
	return out;
}

static int put_folded_path(const struct flame_node *nodes, uint32_t node, char *const *texts)
{
	uint32_t *frames;
	size_t cnt = 0;

	for (uint32_t at = node; at; at = nodes[at].parent)
		cnt++;
	frames = calloc(cnt + 1, sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	for (size_t i = cnt; i > 0; node = nodes[node].parent)
		frames[--i] = nodes[node].frame;
	for (size_t i = 0; i < cnt; i++)
		printf("%s%s", i ? ";" : "", texts[frames[i]]);
	free(frames);
	return 0;
}

/* ns: by recording and node. Leaves out lines of less than half a microsecond. */
static int put_folded(const struct flame *flame, double *const *ns, bool both)
{
	size_t text_cnt, cnt;
	const struct flame_node *nodes = flame__nodes(flame, &cnt);
	char **texts = flame_frame_texts(flame, &text_cnt);
	int err = texts ? 0 : -ENOMEM;

	for (size_t i = 1; i < cnt && !err; i++) {
		double us[] = {ns[0][i] / 1e3, both ? ns[1][i] / 1e3 : 0};

		if (us[0] < 0.5 && us[1] < 0.5)
			continue;
		err = put_folded_path(nodes, i, texts);
		printf(" %.0f", us[0]);
		if (both)
			printf(" %.0f", us[1]);
		putchar('\n');
	}
	free_frame_texts(texts, text_cnt);
	return err ? err : common__flush(stdout);
}

static int write_folded_flame(const struct flame_args *arguments, const struct flame *flame)
{
	bool both = arguments->files[1];
	double *ns[PAGE_RECORDINGS] = {0};
	struct flame_choice choice = arguments->choice;
	size_t cnt, step_cnt;
	int err = 0;

	flame__nodes(flame, &cnt);
	for (int i = 0; i <= both && !err; i++) {
		choice.recording = i;
		/* Steps and processes of one recording do not exist in the other. */
		if (i) {
			choice.steps = FLAME_ALL_TIME;
			choice.pid = 0;
		}
		ns[i] = calloc(cnt, sizeof(*ns[i]));
		err = ns[i] ? flame__weigh(flame, &choice, ns[i], &step_cnt) : -ENOMEM;
	}
	if (!err)
		err = put_folded(flame, ns, both);
	for (int i = 0; i < PAGE_RECORDINGS; i++)
		free(ns[i]);
	return err;
}

/* ---- the page ---- */

__attribute__((format(printf, 2, 3))) static int add_note(struct page *page, const char *format, ...)
{
	char **about = &page->recordings[0].about, *note = NULL, *noted = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&note, format, args) < 0)
		note = NULL;
	va_end(args);
	if (note && asprintf(&noted, "%snote: %s\n", *about, note) < 0)
		noted = NULL;
	free(note);
	if (!noted)
		return -ENOMEM;
	free(*about);
	*about = noted;
	return 0;
}

static int note_thin_lanes(struct lanes *lanes, struct page *page)
{
	uint64_t stream_ns, phase_ns;
	int err = 0;

	lanes__thin(lanes, LANE_SPANS_MAX, &stream_ns, &phase_ns);
	if (stream_ns)
		err = add_note(page,
			       "so much work of GPUs does not fit into a page: over time, work of a stream that begins "
			       "within %s ms is one bar",
			       DIGITS(stream_ns / 1e6, 3));
	if (phase_ns && !err)
		err = add_note(
			page,
			"so many phases do not fit into a page: over time, those shorter than %s ms are not drawn",
			DIGITS(phase_ns / 1e6, 3));
	if (lanes__left_out(lanes) && !err)
		err = add_note(page,
			       "%" PRIu64 " spans of the timeline were too many: their phases are not drawn over time",
			       lanes__left_out(lanes));
	return err;
}

static int note_thinning(struct flame *flame, struct page *page)
{
	uint64_t grain_us, step_grain_us;

	flame__thin(flame, ROWS_MAX, &grain_us, &step_grain_us);
	if (step_grain_us)
		grain_us = step_grain_us;
	if (!grain_us)
		return 0;
	return add_note(page, "so many samples do not fit into a page: those of the same stack within %s s are one%s",
			DIGITS(grain_us / 1e6, 3), step_grain_us ? "" : ", but for threads that make steps");
}

/* 0; -EPIPE; or -errno after a message. */
static int write_page(const struct flame_args *arguments, struct flame *flame, struct lanes *lanes, struct page *page)
{
	const char *path = arguments->output ?: OUTPUT_DEFAULT;
	int err = note_thinning(flame, page) ?: note_thin_lanes(lanes, page);
	struct output output;
	FILE *out;

	if (err)
		return err;
	for (uint32_t i = 0; i < page->recording_cnt; i++) {
		const char *file = input__name(arguments->files[i]), *slash = strrchr(file, '/');

		utf8__copy(page->recordings[i].file, sizeof(page->recordings[i].file), slash ? slash + 1 : file,
			   sizeof(page->recordings[i].file));
	}
	err = output__open(path, &output);
	if (!err) {
		out = fdopen(output.fd, "wb");
		err = out ? page__write(page, out) ?: common__flush(out) : -errno;
		if (out && fclose(out) && !err)
			err = -errno;
		err = err ?: output__keep(&output);
		output__release(&output);
	}
	if (err && err != -EPIPE)
		output__explain(path, &output, err);
	else if (!err && !output__is_stdout(path))
		log__info("wrote %s: open it in a browser", path);
	return err;
}

static int run_flame(int argc, char **argv)
{
	struct flame_args arguments = {0};
	struct flame *flame = flame__new();
	struct lanes *lanes = lanes__new();
	struct use_curves *uses = use_curves__new();
	struct page page = {.flame = flame, .lanes = lanes, .uses = uses};
	int err = flame && lanes && uses ? 0 : -ENOMEM;

	parse__or_die(&flame_argp, argc, argv, 0, &arguments);
	if (!arguments.files[0])
		arguments.files[0] = INPUT_DEFAULT;
	/* A reader of our output may stop early (head, less): get an error of write, not a signal. */
	signal(SIGPIPE, SIG_IGN);

	for (uint32_t i = 0; i < PAGE_RECORDINGS && arguments.files[i] && !err; i++) {
		err = read_recording(arguments.files[i], arguments.native, flame, arguments.folded ? NULL : lanes, uses,
				     arguments.folded ? NULL : &page.recordings[i]);
		page.recording_cnt++;
	}
	if (!err)
		err = check_choice(&arguments, flame);
	if (err)
		goto out;
	page.choice = arguments.choice;
	err = arguments.folded ? write_folded_flame(&arguments, flame) : write_page(&arguments, flame, lanes, &page);
	if (err == -EPIPE)
		err = 0;
out:
	for (uint32_t i = 0; i < PAGE_RECORDINGS; i++)
		page_recording__release(&page.recordings[i]);
	use_curves__free(uses);
	lanes__free(lanes);
	flame__free(flame);
	return log__exit_code(err);
}

const struct command command_flame = {
	.name = "flame",
	.run = run_flame,
	.argp = &flame_argp,
	.help = "draw where the time of each step went, as a page for a browser",
};
