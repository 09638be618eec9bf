// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame ps: lists the training processes of this host, one line each, and what can be seen of
 * them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/cmd/cmd.h"
#include "user/cmd/parse.h"
#include "user/cmd/targets.h"
#include "user/lib/columns.h"
#include "user/lib/json.h"
#include "user/lib/log.h"
#include "user/report/common.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"
#include "user/runtime/python/python.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"

#define PID_WIDTH     8
#define RANK_WIDTH    5
#define JOB_WIDTH_MAX 20 /* on a terminal */

struct ps_args {
	bool json, csv;
};

/* What is seen of a process. */
struct ps_facts {
	struct python python;
	int python_err;
	char torch[32], jax[16];
	const char *cuda; /* NULL: none */
};

enum { OPT_CSV = 256 };

static const struct argp_option options[] = {
	{"json", 'j', NULL, 0, "print one JSON object", 0},
	{"csv", OPT_CSV, NULL, 0, "print CSV, a row for each process, with the keys of the JSON", 0},
	{0},
};

static error_t parse_ps(int key, char *arg, struct argp_state *state)
{
	struct ps_args *args = state->input;

	switch (key) {
	case 'j':
		args->json = true;
		return 0;
	case OPT_CSV:
		args->csv = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "ps takes no argument '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		if (args->json && args->csv)
			argp_error(state, "either --json or --csv");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp ps_argp = {
	.options = options,
	.parser = parse_ps,
	.doc = "List the processes of this host that have torch or JAX, with what stepflame can see of them.\v"
	       "RANK is that in torch.distributed's process group, else in the process's environment. WORKERS counts "
	       "the "
	       "processes that it has started for a DataLoader, or otherwise to work for it; these have no line of "
	       "their "
	       "own, nor have servers and compilers that help it. JOB is a name for record --job: the id of a run of "
	       "torchrun, of a Slurm job or of a container.",
};

static void read_facts(const struct training *training, struct ps_facts *facts)
{
	const struct process *process = &training->process;
	const struct mapped_file *torch = torch__file(process), *jax = jax__file(process);

	memset(facts, 0, sizeof(*facts));
	if (torch)
		torch__version(process, torch, facts->torch, sizeof(facts->torch));
	if (jax)
		jax__version(process, jax, facts->jax, sizeof(facts->jax));
	facts->python = training->python;
	facts->python_err = training->python_err;
	if (facts->python_err == -EAGAIN)
		facts->python_err = python__find(process, &facts->python, NULL);
	if (process__file(process, "libcuda.so"))
		facts->cuda = "CUDA";
	else if (process__file(process, "libcudart"))
		facts->cuda = "CUDA (no driver)";
}

static const char *what_is_seen(const struct ps_facts *facts)
{
	if (!facts->torch[0] && facts->jax[0])
		return facts->python_err ? "jitted calls, no stacks (Python cannot be read)" : "jitted calls, compiles";
	if (facts->python_err == -ENOENT)
		return "labels (no Python)";
	if (facts->python_err)
		return "labels, no stacks (Python cannot be read)";
	if (!facts->python.functions.next)
		return "labels (no next() found)";
	return "actions, labels";
}

static json_t *text_or_null(const char *text)
{
	return text && *text ? json__string(text) : json_null();
}

static json_t *rank_or_null(const struct rank_id *rank)
{
	return rank->number < 0 ? json_null() : json_integer(rank->number);
}

/* A row. */
struct ps_row {
	const struct training *training;
	struct ps_facts facts;
	char seen[64], framework[64], job[sizeof(((struct job_id *)NULL)->run)];
};

static void fill_row(const struct training *training, struct ps_row *row)
{
	const struct ps_facts *facts = &row->facts;

	row->training = training;
	read_facts(training, &row->facts);
	snprintf(row->framework, sizeof(row->framework), "%s%s%s%s", facts->torch,
		 facts->torch[0] && facts->jax[0] ? "+" : "", facts->jax[0] ? "JAX " : "", facts->jax);
	snprintf(row->seen, sizeof(row->seen), "%s%s%s", what_is_seen(facts), facts->cuda ? ", " : "",
		 facts->cuda ?: "");
	job_id__name(&training->id, row->job, sizeof(row->job));
}

/* ---- columns ---- */

/* Those of the text whose width follows from what is in them, or that a narrow terminal has no room for. */
struct ps_columns {
	size_t workers, python, framework, job, seen; /* 0: left out */
};

static void fit_column(size_t *width, const char *text)
{
	size_t needs = columns__of_text(text);

	if (needs > *width)
		*width = needs;
}

static size_t columns_before_command(const struct ps_columns *columns)
{
	const size_t optional[] = {columns->workers, columns->python, columns->framework, columns->job, columns->seen};
	size_t sum = PID_WIDTH + 1 + RANK_WIDTH + 1;

	for (size_t i = 0; i < sizeof(optional) / sizeof(*optional); i++)
		sum += optional[i] ? optional[i] + 1 : 0;
	return sum;
}

/* Where they do not fit, what --json and doctor say too goes first. */
static struct ps_columns choose_columns(const struct ps_row *rows, size_t cnt)
{
	struct ps_columns columns = {.workers = 7, .python = 8, .framework = 14, .job = 12, .seen = 4};
	size_t *const spare[] = {&columns.python, &columns.framework, &columns.workers};
	bool any_job = false;

	for (size_t i = 0; i < cnt; i++) {
		fit_column(&columns.framework, rows[i].framework);
		fit_column(&columns.job, rows[i].job);
		fit_column(&columns.seen, rows[i].seen);
		any_job |= rows[i].job[0];
	}
	if (text__columns() == SIZE_MAX)
		return columns;
	if (columns.job > JOB_WIDTH_MAX)
		columns.job = JOB_WIDTH_MAX;
	if (!any_job && columns_before_command(&columns) + TEXT_LAST_MIN > text__columns())
		columns.job = 0;
	for (size_t i = 0; i < sizeof(spare) / sizeof(*spare); i++)
		if (columns_before_command(&columns) + TEXT_LAST_MIN > text__columns())
			*spare[i] = 0;
	return columns;
}

/* ---- rows ---- */

/* place: in the text; a width of 0 leaves the column out of it. */
static struct cell text_cell(const char *key, int place, const char *head, size_t width, json_t *value)
{
	return cell__new(key, width ? place : 0, head, -(int)width, 0, value);
}

/* NULL: no memory. */
static json_t *fitting_job(const char *job, size_t width)
{
	char *text = text__fit(job, width ?: 1);
	json_t *value = text ? text_or_null(text) : NULL;

	free(text);
	return value;
}

/* All that has the process, of which the text has a part. */
static int add_row(struct table *table, const struct ps_columns *columns, const struct ps_row *row)
{
	const struct training *t = row->training;
	const struct ps_facts *facts = &row->facts;

	return TABLE_ADD(
		table,
		((const struct cell[]){
			cell__new("pid", 1, "PID", PID_WIDTH, 0, json_integer(t->process.pid)),
			cell__new("rank", 2, "RANK", RANK_WIDTH, 0, rank_or_null(&t->rank)),
			cell__json("rank_source", text_or_null(rank_source__name(t->rank.source))),
			cell__new("workers", columns->workers ? 3 : 0, "WORKERS", 7, 0, json_integer(t->workers)),
			text_cell("python", 4, "PYTHON", columns->python, text_or_null(facts->python.version)),
			text_cell(NULL, 5, "TORCH/JAX", columns->framework, text_or_null(row->framework)),
			cell__json("torch", text_or_null(facts->torch)),
			cell__json("jax", text_or_null(facts->jax)),
			cell__json("cuda", text_or_null(facts->cuda)),
			cell__json("job", text_or_null(row->job)),
			text_cell(NULL, 6, "JOB", columns->job, fitting_job(row->job, columns->job)),
			cell__json("torchrun", text_or_null(t->id.run)),
			cell__json("slurm", text_or_null(t->id.slurm)),
			cell__json("container", text_or_null(t->id.container)),
			cell__json("cgroup", text_or_null(t->id.cgroup)),
			cell__json("launcher", json_boolean(t->role == TRAINING_LAUNCHER)),
			cell__json("role", json_string(training_role__name(t->role))),
			cell__json("of", t->of ? json_integer(t->of) : json_null()),
			cell__json("program", json_string(program__name(t->program))),
			text_cell("seen", 7, "SEEN", columns->seen, json_string(row->seen)),
			cell__new("command", 8, "COMMAND", 0, 0, json__string(t->process.command ?: "")),
		}));
}

/* Is it recorded with the process that has started it, or not at all? */
static bool is_part(const struct training *training)
{
	return training->role == TRAINING_WORKER || training->role == TRAINING_HELPER;
}

/* Those that are parts of others, or the rest: malloc'ed; NULL: no memory. */
static struct ps_row *list_rows(const struct trainings *t, bool parts, size_t *cnt)
{
	struct ps_row *rows = calloc(t->cnt + 1, sizeof(*rows));

	*cnt = 0;
	for (size_t i = 0; rows && i < t->cnt; i++)
		if (is_part(&t->items[i]) == parts)
			fill_row(&t->items[i], &rows[(*cnt)++]);
	return rows;
}

static int add_rows(struct table *table, const struct ps_columns *columns, const struct ps_row *rows, size_t cnt)
{
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++)
		err = add_row(table, columns, &rows[i]);
	return err;
}

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_row(void)
{
	static const struct training nothing;
	const struct ps_row row = {.training = &nothing};
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_first(list, add_row(&table, &(struct ps_columns){0}, &row));
}

static int add_parts(json_t *object, const struct trainings *t)
{
	struct table table = table__json(object, "parts");
	struct ps_row *rows;
	size_t cnt;
	int err;

	rows = list_rows(t, true, &cnt);
	err = rows ? add_rows(&table, &(struct ps_columns){0}, rows, cnt) : -ENOMEM;
	free(rows);
	return err;
}

static int print_data(const struct ps_args *args, const struct trainings *t, const struct ps_row *rows, size_t cnt)
{
	static const char *const path[] = {"processes", NULL};
	json_t *object = json_pack("{s:s, s:s}", "report", "ps", "stepflame", STEPFLAME_VERSION);
	struct table table = table__json(object, "processes");
	int err = add_rows(&table, &(struct ps_columns){0}, rows, cnt)
			  ?: add_parts(object, t)
			  ?: json_object_set_new(object, "hidden", json_integer(t->hidden));

	object = common__json_unless_failed(object, err);
	return args->csv ? common__print_csv(object, path, blank_row(), stdout) : common__print_json(object, stdout);
}

static int print_text(const struct ps_row *rows, size_t cnt)
{
	struct table table = {.out = stdout, .gap = " ", .unknown = "-", .rules = RULES_NONE};
	struct ps_columns columns;

	text__use_terminal(STDOUT_FILENO);
	columns = choose_columns(rows, cnt);
	return add_rows(&table, &columns, rows, cnt) ?: common__flush(stdout);
}

static int run_ps(int argc, char **argv)
{
	struct ps_args args = {0};
	struct trainings trainings;
	struct ps_row *rows;
	size_t cnt;
	int err;

	parse__or_die(&ps_argp, argc, argv, 0, &args);
	err = trainings__find(&trainings);
	if (err)
		return log__exit_code(err);
	rows = list_rows(&trainings, false, &cnt);
	err = !rows                   ? -ENOMEM
	      : args.json || args.csv ? print_data(&args, &trainings, rows, cnt)
				      : print_text(rows, cnt);
	if (!err && !cnt && !args.json)
		log__info("no process with torch or JAX is running here");
	free(rows);
	trainings__warn_of_hidden(trainings.hidden);
	trainings__release(&trainings);
	return log__exit_code(err);
}

const struct command command_ps = {
	.name = "ps",
	.run = run_ps,
	.argp = &ps_argp,
	.help = "list the training processes of this host",
	.traces = true,
};
