// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* stepflame diff: two recordings in, what got slower out, and in the exit code. Needs no root and no target. */
#include "cmd.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../log.h"
#include "../report/diff.h"
#include "input.h"

#define LIMIT 10

enum { OPT_THRESHOLD = 256, OPT_LIMIT, OPT_ALL, OPT_JSON };

struct arguments {
	struct diff_options options;
	double threshold_percent; /* NAN: none */
	bool json;
};

static const struct argp_option options[] = {
	{"threshold", OPT_THRESHOLD, "PCT", 0,
	 "Exit with 6 if FILE2's median step takes more than PCT percent longer than FILE1's", 0},
	{"limit", OPT_LIMIT, "N", 0, "At most N rows of a kind (default: 10); 0 is all", 0},
	{"all", OPT_ALL, NULL, 0, "Rows that may have changed by chance, too", 0},
	{"json", OPT_JSON, NULL, 0, "One JSON object", 0},
	{0},
};

static double parse_or_die_number(struct argp_state *state, const char *option, const char *text)
{
	char *rest;
	double number;

	errno = 0;
	number = strtod(text, &rest);
	if (errno || rest == text || *rest || !isfinite(number) || number < 0)
		argp_error(state, "--%s needs a number of 0 or more, not '%s'", option, text);
	return number;
}

static error_t parse_or_die(int key, char *arg, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	const char **files = arguments->options.files;

	switch (key) {
	case OPT_THRESHOLD:
		arguments->threshold_percent = parse_or_die_number(state, "threshold", arg);
		break;
	case OPT_LIMIT:
		arguments->options.limit = fmin(parse_or_die_number(state, "limit", arg), 1e9);
		break;
	case OPT_ALL:
		arguments->options.all = true;
		break;
	case OPT_JSON:
		arguments->json = true;
		break;
	case ARGP_KEY_ARG:
		if (files[DIFF_B])
			argp_error(state, "two recordings, not '%s' too", arg);
		files[files[DIFF_A] ? DIFF_B : DIFF_A] = arg;
		break;
	case ARGP_KEY_END:
		if (!files[DIFF_B])
			argp_error(state, "name two recordings");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp cmd_diff_argp = {
	.options = options,
	.parser = parse_or_die,
	.args_doc = "FILE1 FILE2",
	.doc = "Say what takes longer in FILE2 than in FILE1, two recordings of one program: steps and their phases, "
	       "waits, "
	       "functions, actions, operators.",
};

static int add_record(const struct rec_hdr *record, void *job)
{
	return job__add(job, record);
}

/* 0, or -EINVAL after a message. */
static int check(const struct arguments *arguments, const struct diff *diff)
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

static int print(const struct arguments *arguments, const struct diff *diff)
{
	int err = (arguments->json ? report_diff__json : report_diff__text)(diff, &arguments->options, stdout);

	if (err == -EPIPE)
		return 0;
	if (err)
		log__error(NULL, "cannot print the difference: %s", strerror(-err));
	return err;
}

/* The exit code. */
static int compare(const struct arguments *arguments, struct job *const jobs[])
{
	struct diff diff;
	double slower;
	int err = diff__make(jobs[DIFF_A], jobs[DIFF_B], &diff);

	if (err) {
		log__error(NULL, "cannot compare: %s", strerror(-err));
		return log__exit_code(err);
	}
	err = check(arguments, &diff);
	if (!err)
		err = print(arguments, &diff);
	slower = diff__slower_percent(&diff);
	diff__release(&diff);
	if (err || isnan(arguments->threshold_percent) || slower <= arguments->threshold_percent)
		return log__exit_code(err);
	log__info("slower: the median step takes %.1f %% longer, more than %g %%", slower,
		  arguments->threshold_percent);
	return SF_EXIT_SLOWER;
}

int cmd_diff(int argc, char **argv)
{
	struct arguments arguments = {.options.limit = LIMIT, .threshold_percent = NAN};
	struct job *jobs[DIFF__SIDES] = {0};
	int err = 0, code;

	argp_parse(&cmd_diff_argp, argc, argv, 0, NULL, &arguments);
	/* Who reads us may stop early (head, less): an error of write, not a signal. */
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < DIFF__SIDES && !err; i++) {
		jobs[i] = job__new();
		err = jobs[i] ? input__read(arguments.options.files[i], add_record, jobs[i]) : -ENOMEM;
	}
	code = err ? log__exit_code(err) : compare(&arguments, jobs);
	job__free(jobs[DIFF_A]);
	job__free(jobs[DIFF_B]);
	return code;
}
