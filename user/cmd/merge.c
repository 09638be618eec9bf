// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* stepflame merge: merges recordings of several ranks into one. Needs neither root nor a target. */
#include "user/cmd/cmd.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/cmd/input.h"
#include "user/cmd/parse.h"
#include "user/lib/log.h"
#include "user/lib/output.h"
#include "user/recording/merge.h"

#define FILES_MAX 1024 /* process numbers have 32 - REC_PID_BITS bits for the file */

struct merge_args {
	const char *files[FILES_MAX];
	size_t file_cnt;
	const char *output;
};

static const struct argp_option options[] = {
	{"output", 'o', "OUT", 0, "the recording to write; -: standard output", 0},
	{0},
};

/* Overwriting a file that is being read would lose it. */
static bool is_same_file(const char *a, const char *b)
{
	struct stat x, y;

	return !output__is_stdout(b) && !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static error_t parse_merge_or_die(int key, char *arg, struct argp_state *state)
{
	struct merge_args *arguments = state->input;

	switch (key) {
	case 'o':
		arguments->output = arg;
		break;
	case ARGP_KEY_ARG:
		if (arguments->file_cnt == FILES_MAX)
			argp_error(state, "at most %d recordings", FILES_MAX);
		arguments->files[arguments->file_cnt++] = arg;
		break;
	case ARGP_KEY_END:
		if (arguments->file_cnt < 2)
			argp_error(state, "name two recordings or more");
		if (!arguments->output)
			argp_error(state, "name the recording to write: -o OUT");
		if (output__is_stdout(arguments->output) && isatty(STDOUT_FILENO))
			argp_error(state,
				   "a recording is not for a terminal: name a file with -o, or write into a pipe");
		for (size_t i = 0; i < arguments->file_cnt; i++)
			if (input__is_stdin(arguments->files[i]))
				argp_error(state, "each recording is read twice, which standard input ('-') cannot be");
			else if (is_same_file(arguments->files[i], arguments->output))
				argp_error(state, "%s would be read and written", arguments->output);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp merge_argp = {
	.options = options,
	.parser = parse_merge_or_die,
	.args_doc = "FILE FILE... -o OUT",
	.doc = "Join the recordings of several ranks of a job, from one host or several, into one. Its reports show "
	       "the "
	       "ranks side by side; its times are those of the first recording's host, by the clocks of the hosts.",
};

struct merge_reading {
	struct merge *merge;
	size_t file;
};

static int scan_record(const struct rec_hdr *record, void *ctx)
{
	const struct merge_reading *reading = ctx;

	return merge__scan(reading->merge, reading->file, record);
}

static int add_record_to_merge(const struct rec_hdr *record, void *ctx)
{
	const struct merge_reading *reading = ctx;

	return merge__add(reading->merge, reading->file, record);
}

/* A failed write must not look like a failed read: the error is stored here, and reading goes on. */
struct merge_writing {
	struct recording_writer *writer;
	int err;
};

static int write_record(const struct rec_hdr *record, void *ctx)
{
	struct merge_writing *writing = ctx;

	if (!writing->err)
		writing->err = recording_writer__append(writing->writer, record);
	return 0;
}

/* 0, or -EINVAL after a message: the files do not belong together. */
static int check_fit(struct merge *merge, const struct merge_args *arguments)
{
	struct merge_verdict verdict;
	int err = merge__judge(merge, &verdict);
	const char *a = arguments->files[verdict.files[0]], *b = arguments->files[verdict.files[1]];

	if (err)
		return err;
	switch (verdict.fit) {
	case MERGE_FITS:
		return 0;
	case MERGE_APART:
		log__warn("record the ranks at the same time to compare step by step",
			  "%s and %s were recorded at different times", a, b);
		return 0;
	case MERGE_SAME_RANK:
		log__error("name one recording of each rank of one job", "%s and %s are both of rank %u", a, b,
			   verdict.number);
		return -EINVAL;
	case MERGE_SAME_PROCESS:
		log__error("name one recording of each process", "%s and %s are both of process %u", a, b,
			   verdict.number);
		return -EINVAL;
	}
	return -EINVAL;
}

static int read_all(const struct merge_args *arguments, struct merge *merge,
		    int (*fn)(const struct rec_hdr *record, void *ctx))
{
	int err = 0;

	for (size_t i = 0; i < arguments->file_cnt && !err; i++)
		err = (fn == scan_record ? input__read : input__read_again)(arguments->files[i], fn,
									    &(struct merge_reading){merge, i});
	return err;
}

static int write_merged(const struct merge_args *arguments, struct merge *merge, struct merge_writing *writing)
{
	int err, end_err;

	err = recording_writer__new_unnamed(arguments->output, &writing->writer);
	if (err)
		return err;
	err = read_all(arguments, merge, add_record_to_merge);
	if (!err && !writing->err)
		err = merge__finish(merge);
	if (!err && !writing->err)
		writing->err = recording_writer__mark(writing->writer) ?: recording_writer__keep(writing->writer);
	end_err = recording_writer__free(writing->writer);
	if (!writing->err)
		writing->err = end_err;
	if (writing->err)
		log__error(NULL, "cannot write %s: %s", output__name(arguments->output), strerror(-writing->err));
	else if (!err)
		log__info("%zu recordings merged into %s", arguments->file_cnt, output__name(arguments->output));
	return writing->err ?: err;
}

static int run_merge(int argc, char **argv)
{
	struct merge_args arguments = {0};
	struct merge_writing writing = {0};
	struct merge *merge;
	int err = -ENOMEM;

	parse__or_die(&merge_argp, argc, argv, 0, &arguments);
	merge = merge__new(arguments.file_cnt, write_record, &writing);
	if (merge)
		err = read_all(&arguments, merge, scan_record);
	if (!err)
		err = check_fit(merge, &arguments);
	if (!err)
		err = write_merged(&arguments, merge, &writing);
	merge__free(merge);
	return log__exit_code(err);
}

const struct command command_merge = {
	.name = "merge",
	.run = run_merge,
	.argp = &merge_argp,
	.help = "join the recordings of several ranks into one",
};
