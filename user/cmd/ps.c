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
#include "user/cmd/trainings.h"
#include "user/lib/json.h"
#include "user/lib/log.h"
#include "user/report/common.h"
#include "user/report/table.h"
#include "user/report/text.h"
#include "user/runtime/python/python.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"

struct ps_args {
	bool json;
};

/* What is seen of a process. */
struct ps_look {
	struct python python;
	int python_err;
	char torch[32], jax[16];
	const char *cuda; /* NULL: none */
};

static const struct argp_option options[] = {
	{"json", 'j', NULL, 0, "print one JSON object", 0},
	{0},
};

static error_t parse_ps(int key, char *arg, struct argp_state *state)
{
	struct ps_args *args = state->input;

	switch (key) {
	case 'j':
		args->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "ps takes no argument '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cmd_ps_argp = {
	.options = options,
	.parser = parse_ps,
	.doc = "List the processes of this host that have torch or JAX, with what stepflame can see of them.\v"
	       "RANK is that in the process's environment. WORKERS counts its child processes that have torch or JAX, "
	       "such as those of a DataLoader; these have no line of their own. JOB is a name for record --job: the "
	       "id of a run of torchrun, of a Slurm job or of a container.",
};

static void look_at(const struct training *training, struct ps_look *look)
{
	const struct process *process = &training->process;
	const struct mapped_file *torch = torch__file(process), *jax = jax__file(process);

	memset(look, 0, sizeof(*look));
	if (torch)
		torch__version(process, torch, look->torch, sizeof(look->torch));
	if (jax)
		jax__version(process, jax, look->jax, sizeof(look->jax));
	look->python_err = python__find(process, &look->python, NULL);
	if (process__file(process, "libcuda.so"))
		look->cuda = "CUDA";
	else if (process__file(process, "libcudart"))
		look->cuda = "CUDA (no driver)";
}

static const char *what_is_seen(const struct ps_look *look)
{
	if (!look->torch[0] && look->jax[0])
		return look->python_err ? "jitted calls (Python not supported)" : "jitted calls, compiles";
	if (look->python_err == -ENOENT)
		return "labels (no Python)";
	if (look->python_err)
		return "labels (Python not supported)";
	if (!look->python.functions.next)
		return "labels (no next() found)";
	return "actions, labels";
}

static json_t *text_or_null(const char *text)
{
	return text && *text ? json__string(text) : json_null();
}

/* RANK is any text. */
static json_t *rank_number(const char *text)
{
	char *end;
	long rank = strtol(text, &end, 10);

	return *text && !*end && rank >= 0 && rank <= INT32_MAX ? json_integer(rank) : json_null();
}

/* All that has the process, of which the text has a part. */
static int add_row(struct table *table, const struct training *t)
{
	struct ps_look look;
	char seen[64], framework[64], job[sizeof(t->run)];

	look_at(t, &look);
	snprintf(framework, sizeof(framework), "%s%s%s%s", look.torch, look.torch[0] && look.jax[0] ? "+" : "",
		 look.jax[0] ? "JAX " : "", look.jax);
	snprintf(seen, sizeof(seen), "%s%s%s", what_is_seen(&look), look.cuda ? ", " : "", look.cuda ?: "");
	training__job_name(t, job, sizeof(job));
	return TABLE_ADD(table, ((const struct cell[]){
					cell__new("pid", 1, "PID", 8, 0, json_integer(t->process.pid)),
					cell__new(NULL, 2, "RANK", 5, 0, text_or_null(t->rank)),
					cell__json("rank", rank_number(t->rank)),
					cell__new("workers", 3, "WORKERS", 7, 0, json_integer(t->workers)),
					cell__new("python", 4, "PYTHON", -8, 0, text_or_null(look.python.version)),
					cell__new(NULL, 5, "TORCH/JAX", -14, 0, text_or_null(framework)),
					cell__json("torch", text_or_null(look.torch)),
					cell__json("jax", text_or_null(look.jax)),
					cell__json("cuda", text_or_null(look.cuda)),
					cell__new("job", 6, "JOB", -12, 0, text_or_null(job)),
					cell__json("torchrun", text_or_null(t->run)),
					cell__json("slurm", text_or_null(t->slurm)),
					cell__json("container", text_or_null(t->container)),
					cell__json("cgroup", text_or_null(t->cgroup)),
					cell__json("launcher", json_boolean(t->launcher)),
					cell__new("seen", 7, "SEEN", -32, 0, json_string(seen)),
					cell__new("command", 8, "COMMAND", 0, 0, json__string(t->process.command)),
				}));
}

static int print_trainings(const struct trainings *t, struct table *table)
{
	int err = 0;

	for (size_t i = 0; i < t->cnt && !err; i++)
		if (!t->items[i].child)
			err = add_row(table, &t->items[i]);
	return err;
}

static int print_json(const struct trainings *t)
{
	json_t *object = json_pack("{s:s, s:s}", "report", "ps", "stepflame", STEPFLAME_VERSION);
	struct table table = table__json(object, "processes");
	int err = print_trainings(t, &table) ?: json_object_set_new(object, "hidden", json_integer(t->hidden));

	return common__print_json(common__json_unless_failed(object, err), stdout);
}

static int print_text(const struct trainings *t)
{
	struct table table = {.out = stdout, .gap = " ", .unknown = "-", .rules = RULES_NONE};
	int err;

	text__use_terminal(STDOUT_FILENO);
	err = print_trainings(t, &table) ?: common__flush(stdout);
	if (!err && !table.row_cnt)
		log__info("no process with torch or JAX is running here");
	return err;
}

int cmd_ps(int argc, char **argv)
{
	struct ps_args args = {0};
	struct trainings trainings;
	int err;

	parse__or_die(&cmd_ps_argp, argc, argv, 0, &args);
	err = trainings__find(&trainings);
	if (err)
		return log__exit_code(err);
	err = args.json ? print_json(&trainings) : print_text(&trainings);
	trainings__warn_of_hidden(&trainings);
	trainings__release(&trainings);
	return log__exit_code(err);
}
