// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame diff: compares two recordings. Prints what got slower, and says so in the exit code.
 * Needs neither root nor a target.
 */
#include "user/cmd/cmd.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/cmd/input.h"
#include "user/cmd/parse.h"
#include "user/lib/log.h"
#include "user/report/diff.h"
#include "user/report/print/text.h"

#define LIMIT 10

enum { OPT_THRESHOLD = 256, OPT_LIMIT, OPT_ALL, OPT_CSV };

struct diff_args {
	struct diff_options options;
	double threshold_percent; /* NAN: no threshold */
	bool json, csv;
};

static const struct argp_option options[] = {
	{"threshold", OPT_THRESHOLD, "PCT", 0,
	 "exit with 6 if FILE2's median step takes more than PCT percent longer than FILE1's, and more than chance", 0},
	{"limit", OPT_LIMIT, "N", 0, "at most N rows of a kind (default 10; 0: all)", 0},
	{"all", OPT_ALL, NULL, 0, "also rows that may have changed by chance (~)", 0},
	{"json", 'j', NULL, 0, "one JSON object", 0},
	{"csv", OPT_CSV, NULL, 0, "CSV: the rows of all tables, with the keys of the JSON", 0},
	{0},
};

static double parse_diff_number_or_die(struct argp_state *state, const char *option, const char *text)
{
	char *rest;
	double number;

	errno = 0;
	number = strtod(text, &rest);
	if (errno || rest == text || *rest || !isfinite(number) || number < 0)
		argp_error(state, "--%s needs a number of 0 or more, not '%s'", option, text);
	return number;
}

static error_t parse_diff_or_die(int key, char *arg, struct argp_state *state)
{
	struct diff_args *arguments = state->input;
	const char **files = arguments->options.files;

	switch (key) {
	case OPT_THRESHOLD:
		arguments->threshold_percent = parse_diff_number_or_die(state, "threshold", arg);
		break;
	case OPT_LIMIT:
		arguments->options.limit = fmin(parse_diff_number_or_die(state, "limit", arg), 1e9);
		break;
	case OPT_ALL:
		arguments->options.all = true;
		break;
	case 'j':
		arguments->json = true;
		break;
	case OPT_CSV:
		arguments->csv = true;
		break;
	case ARGP_KEY_ARG:
		if (files[DIFF_B])
			argp_error(state, "two recordings, not '%s' too", arg);
		files[files[DIFF_A] ? DIFF_B : DIFF_A] = arg;
		break;
	case ARGP_KEY_END:
		if (!files[DIFF_B])
			argp_error(state, "name two recordings");
		if (arguments->json && arguments->csv)
			argp_error(state, "either --json or --csv");
		if (input__is_stdin(files[DIFF_A]) && input__is_stdin(files[DIFF_B]))
			argp_error(state, "standard input ('-') can be one of them, not both");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp diff_argp = {
	.options = options,
	.parser = parse_diff_or_die,
	.args_doc = "FILE1 FILE2",
	.doc = "Say what takes longer in FILE2 than in FILE1, two recordings of one program: steps and their phases, "
	       "waits, functions, actions, operators.",
};

static int add_record_to_side(const struct rec_hdr *record, void *ctx)
{
	const struct diff_input *input = ctx;

	return job__add(input->job, record) ?: history__add(input->history, record);
}

/* 0, or -EINVAL after a message. */
static int check_inputs(const struct diff_args *arguments, const struct diff *diff)
{
	const char *const *files = arguments->options.files;

	if (!diff->common) {
		log__error("name two recordings of one program", "%s and %s have nothing in common", files[DIFF_A],
			   files[DIFF_B]);
		return -EINVAL;
	}
	if (!isnan(arguments->threshold_percent) && !diff->per_step) {
		log__error("record more than one step, or name the step: record --step-at",
			   "%s has no steps, which --threshold compares",
			   files[diff->sides[DIFF_A].steps ? DIFF_B : DIFF_A]);
		return -EINVAL;
	}
	return 0;
}

static int print_diff(const struct diff_args *arguments, const struct diff *diff)
{
	int (*print)(const struct diff *diff, const struct diff_options *options, FILE *out) =
		arguments->csv    ? report_diff__csv
		: arguments->json ? report_diff__json
				  : report_diff__text;
	int err = print(diff, &arguments->options, stdout);

	if (err == -EPIPE)
		return 0;
	if (err)
		log__error(NULL, "cannot print the difference: %s", strerror(-err));
	return err;
}

/* Returns the exit code. */
static int compare_inputs(const struct diff_args *arguments, const struct diff_input inputs[])
{
	struct diff diff;
	double slower, error;
	int err = diff__make(inputs, &diff);

	if (err) {
		log__error(NULL, "cannot compare: %s", strerror(-err));
		return log__exit_code(err);
	}
	err = check_inputs(arguments, &diff);
	if (!err)
		err = print_diff(arguments, &diff);
	slower = diff__slower_percent(&diff, &error);
	diff__release(&diff);
	if (err || isnan(arguments->threshold_percent) || slower <= arguments->threshold_percent)
		return log__exit_code(err);
	if (!(slower > error)) {
		log__info("the median step takes %.1f %% longer, which may be chance: record for longer to know",
			  slower);
		return SF_EXIT_OK;
	}
	log__info("slower: the median step takes %.1f %% longer, more than %g %%", slower,
		  arguments->threshold_percent);
	return SF_EXIT_SLOWER;
}

static int run_diff(int argc, char **argv)
{
	struct diff_args arguments = {.options.limit = LIMIT, .threshold_percent = NAN};
	struct diff_input inputs[DIFF__SIDES] = {0};
	int err = 0, code;

	parse__or_die(&diff_argp, argc, argv, 0, &arguments);
	/* A reader of our output may stop early (head, less): get an error of write, not a signal. */
	signal(SIGPIPE, SIG_IGN);
	text__use_terminal(STDOUT_FILENO);
	for (int i = 0; i < DIFF__SIDES && !err; i++) {
		inputs[i] = (struct diff_input){job__new(), history__new()};
		err = inputs[i].job && inputs[i].history
			      ? input__read(arguments.options.files[i], add_record_to_side, &inputs[i])
			      : -ENOMEM;
		arguments.options.files[i] = input__name(arguments.options.files[i]);
	}
	code = err ? log__exit_code(err) : compare_inputs(&arguments, inputs);
	for (int i = 0; i < DIFF__SIDES; i++) {
		job__free(inputs[i].job);
		history__free(inputs[i].history);
	}
	return code;
}

const struct command command_diff = {
	.name = "diff",
	.run = run_diff,
	.argp = &diff_argp,
	.help = "say what got slower between two recordings",
};
