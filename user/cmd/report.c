// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* stepflame report: prints a report of a recording on stdout. Needs neither root nor a target. */
#include "user/cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/cmd/input.h"
#include "user/cmd/parse.h"
#include "user/cmd/print.h"
#include "user/lib/log.h"
#include "user/report/report.h"
#include "user/report/schema.h"

enum {
	OPT_SUMMARY = 256,
	OPT_SIMPLE,
	OPT_ADVANCED,
	OPT_OPS,
	OPT_STEPS,
	OPT_IO,
	OPT_GPU,
	OPT_ALL,
	OPT_LEAF,
	OPT_SORT,
	OPT_LIMIT,
	OPT_ACTION,
	OPT_PER_RANK,
	OPT_CSV,
	OPT_JSON_SCHEMA,
	OPT_BY_ACTION,
	OPT_BY_OP,
	OPT_OVERLOADS,
	OPT_SHAPES,
	OPT_STACKS,
	OPT_MODULES,
	OPT_FLOPS,
	OPT_CPU,
	OPT_NATIVE,
};

struct report_args {
	const char *file;
	const char *report;
	unsigned int switches; /* the switches[] that were given */
	bool schema;
	struct report_options options;
};

static const struct argp_option options[] = {
	{.doc = "Which report:"},
	{"summary", OPT_SUMMARY, NULL, 0,
	 "one screen: what limits the job, slow steps, the longest actions (default, without the options below)", 0},
	{"simple", OPT_SIMPLE, NULL, 0,
	 "Lightning's table of actions, however wide; without --simple, where another option is given, such as "
	 "--limit, "
	 "--per-rank or --json, a table of them that fits the terminal",
	 0},
	{"advanced", OPT_ADVANCED, NULL, 0,
	 "Lightning's tables of functions, one for each action, in the form of pstats", 0},
	{"ops", OPT_OPS, NULL, 0, "torch.profiler's table of operators; needs a recording made with --ops", 0},
	{"steps", OPT_STEPS, NULL, 0,
	 "where the time of a step goes, which steps were slow, and why; CPU, memory, disk of each process", 0},
	{"io", OPT_IO, NULL, 0, "system calls, files, and what the DataLoader's workers did", 0},
	{"gpu", OPT_GPU, NULL, 0, "what GPUs did and waited for: kernels, copies, calls of CUDA and NCCL", 0},
	{.doc = "What is in it:"},
	{"action", OPT_ACTION, "NAME", 0,
	 "only the action of this name, with --simple and --advanced; with --ops and --gpu, what is directly in it", 0},
	{"per-rank", OPT_PER_RANK, NULL, 0, "each process separately, also children and workers", 0},
	{"sort", OPT_SORT, "KEY", 0,
	 "percent (default), name, calls, mean, total, min, max, first or self; with --advanced those of pstats: "
	 "tottime (default), cumulative, ncalls, pcalls, name, file, line, nfl, stdname; with --ops cpu_time_total "
	 "(default; cuda_time_total if the table has device times), self_cpu_time_total, self_cuda_time_total, "
	 "cpu_time, "
	 "cuda_time, count, cpu_memory_usage, self_cpu_memory_usage, device_memory_usage, "
	 "self_device_memory_usage, flops or name; with --steps duration (default) or index; with --io time (default), "
	 "calls, errors, bytes, disk or name; with --gpu total (default), count, avg, max, bytes or name",
	 0},
	{"limit", OPT_LIMIT, "N", 0,
	 "at most N rows of a table, 0: all (default: 15; 20 with --advanced, --ops, --io and --gpu; 10 with --steps; "
	 "all "
	 "with --simple --all, --json and --csv)",
	 0},
	{.doc = "With --simple and --advanced:"},
	{"all", OPT_ALL, NULL, 0,
	 "every action: also torch's own labels, forward and backward; with --advanced also actions of fewer than 20 "
	 "samples",
	 0},
	{"leaf", OPT_LEAF, NULL, 0,
	 "only rows that contain no other row, so that nothing counts twice; with --advanced, rows for native code and "
	 "the kernel, too",
	 0},
	{.doc = "With --advanced:"},
	{"cpu", OPT_CPU, NULL, 0, "time on the CPU alone, without waits", 0},
	{"native", OPT_NATIVE, NULL, 0,
	 "rows for native code and the kernel, as with --leaf, and for the interpreter's own functions, which are "
	 "otherwise part of the Python function that they run",
	 0},
	{.doc = "With --ops:"},
	{"by-action", OPT_BY_ACTION, NULL, 0, "a table for each action that contains operators directly", 0},
	{"overloads", OPT_OVERLOADS, NULL, 0, "a row for each overload: add.Tensor, add.out", 0},
	{"shapes", OPT_SHAPES, NULL, 0, "a row for each set of input shapes, if they were recorded", 0},
	{"stacks", OPT_STACKS, NULL, 0, "a row for each Python line that calls the operator, if lines were recorded",
	 0},
	{"modules", OPT_MODULES, NULL, 0, "a row for each nn.Module around the operator, if modules were recorded", 0},
	{"flops", OPT_FLOPS, NULL, 0, "a column of FLOPs by torch.profiler's formulas, if shapes were recorded", 0},
	{.doc = "With --gpu (also --by-action and --overloads, which split its rows):"},
	{"by-op", OPT_BY_OP, NULL, 0, "a row for each operator that asked for the work, if operators were recorded", 0},
	{.doc = "How it is printed:"},
	{"json", 'j', NULL, 0, "one JSON object", 0},
	{"csv", OPT_CSV, NULL, 0,
	 "CSV, the rows of one table with the keys of the JSON: actions; with --advanced the functions of each action, "
	 "with --ops operators, with --steps all steps, with --io system calls of each process, with --gpu kernels",
	 0},
	{"json-schema", OPT_JSON_SCHEMA, NULL, 0,
	 "a JSON Schema (draft 2020-12) of the JSON of all reports, and nothing else; reads no recording", 0},
	{0},
};

/* Returns -1 where text is not a number of rows. */
static int parse_limit(const char *text)
{
	char *rest;
	long limit;

	errno = 0;
	limit = strtol(text, &rest, 10);
	return errno || rest == text || *rest || limit < 0 || limit > INT_MAX ? -1 : (int)limit;
}

static void check_sort_key_or_die(struct argp_state *state, const struct report_args *arguments)
{
	const char *const *keys = report__find(arguments->report)->sort_keys, *const *key = keys;
	const char *sort = arguments->options.sort;
	char known[512] = "";

	while (sort && *key && strcmp(sort, *key))
		key++;
	if (!sort || *key)
		return;
	for (key = keys; *key; key++)
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", key == keys ? "" : ", ", *key);
	argp_error(state, "the %s report has no sort key '%s'; it has: %s", arguments->report, sort,
		   *known ? known : "none");
}

/* Switches that only some reports have, and those reports. */
static const struct {
	int key;
	size_t flag; /* offset in struct report_options */
	const char *reports[2];
} switches[] = {
	{OPT_ALL, offsetof(struct report_options, all), {"simple", "advanced"}},
	{OPT_LEAF, offsetof(struct report_options, leaf), {"simple", "advanced"}},
	{OPT_CPU, offsetof(struct report_options, cpu), {"advanced"}},
	{OPT_NATIVE, offsetof(struct report_options, native), {"advanced"}},
	{OPT_BY_ACTION, offsetof(struct report_options, by_action), {"ops", "gpu"}},
	{OPT_BY_OP, offsetof(struct report_options, by_op), {"gpu"}},
	{OPT_OVERLOADS, offsetof(struct report_options, overloads), {"ops", "gpu"}},
	{OPT_SHAPES, offsetof(struct report_options, shapes), {"ops"}},
	{OPT_STACKS, offsetof(struct report_options, stacks), {"ops"}},
	{OPT_MODULES, offsetof(struct report_options, modules), {"ops"}},
	{OPT_FLOPS, offsetof(struct report_options, flops), {"ops"}},
};

#define SWITCH_CNT (sizeof(switches) / sizeof(*switches))

static void check_report_switches_or_die(struct argp_state *state, const struct report_args *arguments)
{
	for (size_t i = 0; i < SWITCH_CNT; i++) {
		const char *const *reports = switches[i].reports;
		const struct argp_option *option = options;

		if (!(arguments->switches & 1u << i) || !strcmp(arguments->report, reports[0]) ||
		    (reports[1] && !strcmp(arguments->report, reports[1])))
			continue;
		while (option->key != switches[i].key)
			option++;
		argp_error(state, "--%s is for --%s%s%s, not for --%s", option->name, reports[0],
			   reports[1] ? " and --" : "", reports[1] ?: "", arguments->report);
	}
}

/* Returns false for an unknown switch. */
static bool parse_switch(int key, struct report_args *arguments)
{
	for (size_t i = 0; i < SWITCH_CNT; i++) {
		if (switches[i].key == key) {
			*(bool *)((char *)&arguments->options + switches[i].flag) = true;
			arguments->switches |= 1u << i;
			return true;
		}
	}
	return false;
}

static void check_summary_or_die(struct argp_state *state, const struct report_args *arguments)
{
	const struct report_options *options = &arguments->options;
	const char *name = options->per_rank     ? "per-rank"
			   : options->action     ? "action"
			   : options->limit >= 0 ? "limit"
						 : NULL;

	if (name && !strcmp(arguments->report, "summary"))
		argp_error(state, "--%s is for tables, not for --summary", name);
}

static void check_action_or_die(struct argp_state *state, const struct report_args *arguments)
{
	if (arguments->options.action && !report__find(arguments->report)->by_action)
		argp_error(state, "--action is for --simple, --advanced, --ops and --gpu, not for --%s",
			   arguments->report);
}

/* Do the options ask for a table, which without a report's name is the simple one? */
static bool wants_table(const struct report_args *arguments)
{
	const struct report_options *options = &arguments->options;

	return arguments->switches || options->json || options->csv || options->per_rank || options->sort ||
	       options->action || options->limit >= 0;
}

static void choose_report_or_die(struct argp_state *state, struct report_args *arguments, int key)
{
	const struct argp_option *option = options;

	while (option->key != key)
		option++;
	if (arguments->report && strcmp(arguments->report, option->name))
		argp_error(state, "either --%s or --%s", arguments->report, option->name);
	arguments->report = option->name;
	arguments->options.lightning = key == OPT_SIMPLE;
}

static error_t parse_report_or_die(int key, char *arg, struct argp_state *state)
{
	struct report_args *arguments = state->input;

	switch (key) {
	case OPT_SUMMARY:
	case OPT_SIMPLE:
	case OPT_ADVANCED:
	case OPT_OPS:
	case OPT_STEPS:
	case OPT_IO:
	case OPT_GPU:
		choose_report_or_die(state, arguments, key);
		break;
	case OPT_SORT:
		arguments->options.sort = arg;
		break;
	case OPT_LIMIT:
		arguments->options.limit = parse_limit(arg);
		if (arguments->options.limit < 0)
			argp_error(state, "--limit needs a number of rows, not '%s'", arg);
		break;
	case OPT_ACTION:
		arguments->options.action = arg;
		break;
	case OPT_PER_RANK:
		arguments->options.per_rank = true;
		break;
	case 'j':
		arguments->options.json = true;
		break;
	case OPT_CSV:
		arguments->options.csv = true;
		break;
	case OPT_JSON_SCHEMA:
		arguments->schema = true;
		break;
	case ARGP_KEY_ARG:
		if (arguments->file)
			argp_error(state, "one recording at a time, not '%s' too", arg);
		arguments->file = arg;
		break;
	case ARGP_KEY_END:
		if (!arguments->report)
			arguments->report = wants_table(arguments) ? "simple" : "summary";
		check_sort_key_or_die(state, arguments);
		check_report_switches_or_die(state, arguments);
		check_summary_or_die(state, arguments);
		check_action_or_die(state, arguments);
		if (arguments->options.json && arguments->options.csv)
			argp_error(state, "either --json or --csv");
		break;
	default:
		return parse_switch(key, arguments) ? 0 : ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp report_argp = {
	.options = options,
	.parser = parse_report_or_die,
	.args_doc = "[FILE]",
	.doc = "Print a report of a recording (" INPUT_DEFAULT " unless FILE is given).",
};

/* Has a report before this one the key, or this one an earlier key? */
static bool is_sort_key_before(size_t report, size_t key)
{
	const char *name = report__at(report)->sort_keys[key];

	for (size_t i = 0; i <= report; i++)
		for (const char *const *known = report__at(i)->sort_keys; *known; known++) {
			if (i == report && known == report__at(report)->sort_keys + key)
				return false;
			if (!strcmp(*known, name))
				return true;
		}
	return false;
}

static void print_choices(const char *option, FILE *out)
{
	if (strcmp(option, "sort") != 0)
		return;
	for (size_t i = 0; report__at(i); i++)
		for (size_t k = 0; report__at(i)->sort_keys[k]; k++)
			if (!is_sort_key_before(i, k))
				fprintf(out, " %s", report__at(i)->sort_keys[k]);
}

static int add_record_to_report(const struct rec_hdr *record, void *job)
{
	return job__add(job, record);
}

/* 0, or -errno after a message. */
static int print_chosen(const struct report_args *arguments, struct job *job)
{
	const struct report_options *options = &arguments->options;
	const struct report_ops *ops = report__find(arguments->report);
	char *why = (options->action || options->csv) && ops->why_empty ? ops->why_empty(job, options) : NULL;
	int err = -ENODATA;

	if (why && options->action && ops->by_action) {
		log__error(NULL, "%s", why);
		goto out;
	}
	err = print__report(ops, job, options, stdout);
	if (err == -EPIPE)
		err = 0;
	else if (err)
		log__error(NULL, "cannot print the report: %s", strerror(-err));
	else if (why)
		log__info("%s", why);
out:
	free(why);
	return err;
}

/* 0, or -errno after a message. */
static int print_schema(void)
{
	int err = schema__print(stdout);

	if (err && err != -EPIPE)
		log__error(NULL, "cannot print the schema: %s", strerror(-err));
	return err == -EPIPE ? 0 : err;
}

static int run_report(int argc, char **argv)
{
	struct report_args arguments = {.options.limit = -1};
	struct job *job = NULL;
	int err;

	parse__or_die(&report_argp, argc, argv, 0, &arguments);
	if (!arguments.file)
		arguments.file = INPUT_DEFAULT;
	if (strcmp(arguments.file, INPUT_DEFAULT) != 0)
		arguments.options.file = input__is_stdin(arguments.file) ? "FILE" : arguments.file;
	/* A reader of our output may stop early (head, less): get an error of write, not a signal. */
	signal(SIGPIPE, SIG_IGN);
	if (arguments.schema)
		return log__exit_code(print_schema());

	job = job__new();
	err = job ? input__read(arguments.file, add_record_to_report, job) : -ENOMEM;
	if (err)
		goto out;
	err = print_chosen(&arguments, job);
out:
	job__free(job);
	return log__exit_code(err);
}

const struct command command_report = {
	.name = "report",
	.run = run_report,
	.argp = &report_argp,
	.help = "print a report of a recording",
	.print_choices = print_choices,
};
