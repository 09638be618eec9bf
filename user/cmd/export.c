// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame export: turns a recording into a file for another program. Needs neither root nor a
 * target.
 */
#include "user/cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/analysis/cause/minutes.h"
#include "user/cmd/input.h"
#include "user/cmd/parse.h"
#include "user/export/export.h"
#include "user/export/ranks.h"
#include "user/lib/compare.h"
#include "user/lib/log.h"
#include "user/lib/output.h"
#include "user/lib/utf8.h"

struct export_args {
	const char *file;
	const char *output; /* NULL: stdout */
	const struct export_ops *format;
	const char *action;
	bool cpu;
	bool all_threads;
	bool native;
	uint32_t pid; /* 0: all */
};

enum { OPT_ACTION = 256, OPT_CPU, OPT_ALL_THREADS, OPT_NATIVE };

static const struct argp_option options[] = {
	{"format", 'f', "FORMAT", 0,
	 "for what happened when (steps, waits, samples, workers, resources, GPUs; with record --timeline also "
	 "operators and "
	 "actions): chrome, as torch.profiler writes it, for Perfetto, chrome://tracing and Holistic Trace Analysis; "
	 "perfetto, Perfetto's own format, with --timeline a seventh of the size; tensorboard, a folder with a file "
	 "for "
	 "each rank, for TensorBoard's plugin torch-tb-profiler. For samples: speedscope; pprof; folded, for "
	 "flamegraph.pl; pstats, for python -m pstats and snakeviz. For pandas, polars and DuckDB: arrow, a folder "
	 "with a "
	 "file for each table",
	 0},
	{"output", 'o', "OUT", 0,
	 "the file to write, gzipped if its name ends in .gz (default, and -: standard output); with tensorboard and "
	 "arrow the folder, which is made if it is missing",
	 0},
	{"pid", 'p', "PID", 0, "only this process: Holistic Trace Analysis wants a file for each rank", 0},
	{"action", OPT_ACTION, "NAME", 0, "of the samples, only those in this action", 0},
	{"cpu", OPT_CPU, NULL, 0, "of the samples, only those on the CPU, no waits", 0},
	{"all-threads", OPT_ALL_THREADS, NULL, 0,
	 "with pstats, add all threads together, instead of only the main thread of each process", 0},
	{"native", OPT_NATIVE, NULL, 0,
	 "with speedscope, pprof and folded, frames of the interpreter's own functions, too, which are otherwise part "
	 "of the Python function that they run",
	 0},
	{0},
};

/* Returns 0 where text is not a process id. */
static uint32_t parse_pid(const char *text)
{
	char *rest;
	long pid;

	errno = 0;
	pid = strtol(text, &rest, 10);
	return errno || *rest || pid <= 0 || pid > INT32_MAX ? 0 : pid;
}

static bool is_pstats(const struct export_args *arguments)
{
	return arguments->format == &export_pstats;
}

static void check_export_switches_or_die(struct argp_state *state, const struct export_args *arguments)
{
	const char *format = arguments->format->name;

	if (arguments->format->source != EXPORT_SAMPLES && (arguments->action || arguments->cpu))
		argp_error(state, "--%s is for formats of samples, not for %s", arguments->action ? "action" : "cpu",
			   format);
	if (arguments->all_threads && !is_pstats(arguments))
		argp_error(state, "--all-threads is for pstats, not for %s", format);
	if (arguments->native && (arguments->format->source != EXPORT_SAMPLES || is_pstats(arguments)))
		argp_error(state, "--native is for speedscope, pprof and folded, not for %s", format);
}

static error_t parse_export_or_die(int key, char *arg, struct argp_state *state)
{
	struct export_args *arguments = state->input;

	switch (key) {
	case 'f':
		arguments->format = export__find(arg);
		if (!arguments->format)
			argp_error(state, "no format is named '%s': %s", arg, export__list());
		break;
	case 'o':
		arguments->output = arg;
		break;
	case 'p':
		arguments->pid = parse_pid(arg);
		if (!arguments->pid)
			argp_error(state, "--pid needs a process id, not '%s'", arg);
		break;
	case OPT_ACTION:
		arguments->action = arg;
		break;
	case OPT_CPU:
		arguments->cpu = true;
		break;
	case OPT_ALL_THREADS:
		arguments->all_threads = true;
		break;
	case OPT_NATIVE:
		arguments->native = true;
		break;
	case ARGP_KEY_ARG:
		if (arguments->file)
			argp_error(state, "one recording at a time, not '%s' too", arg);
		arguments->file = arg;
		break;
	case ARGP_KEY_END:
		if (!arguments->format)
			argp_error(state, "which format? -f and one of %s", export__list());
		check_export_switches_or_die(state, arguments);
		if (arguments->format->binary && !arguments->output && isatty(STDOUT_FILENO))
			argp_error(state, "%s is not for a terminal: name a file with -o", arguments->format->name);
		if (arguments->format->folder && (!arguments->output || output__is_stdout(arguments->output)))
			argp_error(state, "%s writes a folder: name it with -o", arguments->format->name);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp export_argp = {
	.options = options,
	.parser = parse_export_or_die,
	.args_doc = "[FILE] -f FORMAT",
	.doc = "Write what happened when, or the samples, of a recording (" INPUT_DEFAULT
	       " unless FILE is given) for another program.",
};

static void print_choices(const char *option, FILE *out)
{
	if (strcmp(option, "format") != 0)
		return;
	for (const char *c = export__list(); *c; c++) {
		if (c == export__list())
			fputc(' ', out);
		if (*c != ',')
			fputc(*c, out);
	}
}

/* ---- what comes in ---- */

struct export_models {
	struct job *job;
	/* NULL for formats made from samples: */
	struct timeline *timeline;
	struct tracks *tracks;
	struct export_ranks ranks;
	/* NULL but for a format of tables: */
	struct tables *tables;
	size_t table; /* the one that is written */
};

static int add_record_to_export(const struct rec_hdr *record, void *ctx)
{
	struct export_models *models = ctx;
	int err = job__add(models->job, record);

	if (err || !models->timeline)
		return err;
	return timeline__add(models->timeline, record) ?: tracks__add(models->tracks, record);
}

static void warn_of_losses(const char *file, struct export_models *models)
{
	size_t cnt;
	const struct rec_op_window *windows = job__op_windows(models->job, &cnt);
	uint64_t left_out = timeline__left_out(models->timeline), absurd = tracks__left_out(models->tracks), cut = 0;

	for (size_t i = 0; i < cnt; i++)
		cut += windows[i].cut;
	if (cut)
		log__warn("record fewer or shorter windows, with a pause between them",
			  "%s lacks %" PRIu64 " spans, which came faster than stepflame could record them", file, cut);
	if (left_out)
		log__warn("record a shorter window",
			  "%" PRIu64 " spans of %s are left out: they are malformed, or too many", left_out, file);
	if (absurd)
		log__warn("look at the reports, which count them",
			  "%" PRIu64 " events of %s are left out: they overlap others, or have impossible times",
			  absurd, file);
}

static bool is_exported_process(const struct export_models *models, uint32_t pid)
{
	size_t cnt;
	const struct track *tracks = tracks__all(models->tracks, &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (!pid || tracks[i].pid == pid)
			return true;
	return export__is_in_timeline(models->timeline, pid);
}

static int check_timeline(const struct export_args *arguments, const struct export_models *models)
{
	size_t span_tracks;

	timeline__tracks(models->timeline, &span_tracks);
	if (is_exported_process(models, arguments->pid) || (!arguments->pid && span_tracks))
		return 0;
	if (arguments->pid && (span_tracks || is_exported_process(models, 0)))
		log__error("name a process of the recording", "%s has no timeline of process %u",
			   input__name(arguments->file), arguments->pid);
	else
		log__error("record again, for some steps; with --timeline also operators and actions",
			   "%s has no timeline", input__name(arguments->file));
	return -ENODATA;
}

static struct export_options options_of(const struct export_args *arguments, const char *name,
					const struct tracks *tracks)
{
	return (struct export_options){.pid = arguments->pid,
				       .name = name,
				       .action = arguments->action,
				       .cpu = arguments->cpu,
				       .main_threads = is_pstats(arguments) && !arguments->all_threads,
				       .native = arguments->native,
				       .tracks = tracks};
}

static int count_sample(const struct sample *sample, void *cnt)
{
	++*(size_t *)cnt;
	return 0;
}

static int count_exact_calls(const struct calls *calls, void *cnt)
{
	++*(size_t *)cnt;
	return 0;
}

static int check_export_samples(const struct export_args *arguments, struct job *job)
{
	const struct export_options chosen = options_of(arguments, NULL, NULL), any = {0};
	size_t cnt = 0, all = 0;
	int err = export__each_sample(job, &chosen, count_sample, &cnt);

	if (!err && is_pstats(arguments))
		err = export__each_calls(job, &chosen, count_exact_calls, &cnt);
	if (err || cnt)
		return err;
	err = export__each_sample(job, &any, count_sample, &all);
	if (err)
		return err;
	if (all)
		log__error("choose another action or process: stepflame report --advanced --per-rank lists them",
			   "no sample of %s matches the options", input__name(arguments->file));
	else
		log__error("record again, for some seconds: stepflame record -p PID -d 30s", "%s has no samples",
			   input__name(arguments->file));
	return -ENODATA;
}

static void say_given_ranks(const struct export_ranks *ranks)
{
	char *list = NULL;
	size_t size;
	FILE *out = open_memstream(&list, &size);
	const char *comma = "";

	for (size_t i = 0; out && i < ranks->cnt; i++) {
		if (!ranks->items[i].given)
			continue;
		fprintf(out, "%s%u is rank %d", comma, REC_PID(ranks->items[i].pid), ranks->items[i].rank);
		comma = ", ";
	}
	if (out && !fclose(out))
		log__info("processes without a rank are numbered by their PIDs: %s", list);
	free(list);
}

/* Says what of the ranks a reader that wants one trace for each would miss. */
static void warn_of_ranks(const struct export_args *arguments, const struct export_ranks *ranks)
{
	if (ranks->any_given)
		say_given_ranks(ranks);
	for (size_t i = 0; i < ranks->cnt; i++)
		for (size_t k = 0; k < i; k++)
			if (ranks->items[i].rank == ranks->items[k].rank)
				log__warn("export each with --pid into a folder of its own",
					  "processes %u and %u are both rank %d: Holistic Trace Analysis shows one of "
					  "them",
					  REC_PID(ranks->items[k].pid), REC_PID(ranks->items[i].pid),
					  ranks->items[i].rank);
	if (ranks->cnt > 1 && !arguments->pid && !arguments->format->folder && !output__is_stdout(arguments->output))
		log__info("one trace with all %zu ranks; Holistic Trace Analysis wants one for each: -f tensorboard -o "
			  "FOLDER, or --pid",
			  ranks->cnt);
}

static int find_ranks(const struct export_args *arguments, struct export_models *models)
{
	int err;

	if (!arguments->format->ranked)
		return 0;
	err = export_ranks__find(models->job, &models->ranks);
	if (!err)
		warn_of_ranks(arguments, &models->ranks);
	return err;
}

static int prepare_models(const struct export_args *arguments, struct export_models *models)
{
	const struct gpu *gpu;
	int err;

	if (arguments->format->source == EXPORT_TABLES)
		return 0;
	if (arguments->format->source == EXPORT_SAMPLES)
		return check_export_samples(arguments, models->job);
	gpu = job__gpu(models->job);
	err = gpu ? timeline__add_gpu(models->timeline, gpu) : -ENOMEM;
	if (!err)
		err = timeline__build(models->timeline) ?: tracks__build(models->tracks, models->job);
	if (err)
		return err;
	warn_of_losses(input__name(arguments->file), models);
	return check_timeline(arguments, models) ?: find_ranks(arguments, models);
}

/* ---- what goes out ---- */

/* Takes fd. Returns NULL with errno. */
static FILE *open_out(int fd, bool gzipped)
{
	FILE *out;

	if (gzipped)
		return export__open_gzip(fd);
	out = fdopen(fd, "wb");
	if (!out)
		close(fd);
	return out;
}

/* pid: of the process; 0: that of the arguments. */
static int write_out(const struct export_models *models, const struct export_args *arguments, const char *path,
		     uint32_t pid, int fd)
{
	char name[4096] = "";
	struct export_options export_options = options_of(arguments, name, models->tracks);
	FILE *out = open_out(fd, arguments->format->gzip || compare__ends_with(path, ".gz"));
	int err, failed;

	if (!out)
		return -errno;
	export_options.ranks = &models->ranks;
	export_options.tables = models->tables;
	export_options.table = models->table;
	if (pid)
		export_options.pid = pid;
	utf8__copy(name, sizeof(name), output__is_stdout(path) ? "stdout" : path, sizeof(name));
	err = arguments->format->write(models->job, models->timeline, &export_options, out);
	errno = 0;
	failed = fflush(out) || ferror(out);
	if (failed && !err)
		err = errno ? -errno : -EIO;
	errno = 0;
	if (fclose(out) && !err)
		err = errno ? -errno : -EIO;
	return err;
}

/* A folder of traces, of which two are of one rank. */
static void warn_of_other_trace(const struct export_models *models, const char *path, uint32_t pid)
{
	int rank = pid                      ? export_ranks__of(&models->ranks, pid)
		   : models->ranks.cnt == 1 ? models->ranks.items[0].rank
					    : -1;
	char *other = rank < 0 || output__is_stdout(path) ? NULL : export_ranks__other_trace(path, rank);

	if (other)
		log__warn("export each recording into a folder of its own",
			  "%s, beside %s, is of rank %d too: Holistic Trace Analysis shows one of them", other, path,
			  rank);
	free(other);
}

/* 0; -EPIPE; or -errno after a message. */
static int export_to_file(const struct export_models *models, const struct export_args *arguments, const char *path,
			  uint32_t pid)
{
	struct output output;
	int err = output__open(path, &output);

	if (!err) {
		err = write_out(models, arguments, path, pid, output.fd) ?: output__keep(&output);
		output__release(&output);
	}
	if (!err && arguments->format->ranked)
		warn_of_other_trace(models, path, pid ?: arguments->pid);
	if (err && err != -EPIPE)
		output__explain(path, &output, err);
	return err;
}

/* 0, or -errno after a message. */
static int make_tables(struct export_models *models, const struct export_args *arguments)
{
	int err;

	models->tables = tables__new(models->job, arguments->pid, &err);
	if (err == -EINVAL)
		log__error("record again, or export one process with --pid",
			   "%s has impossible times, or more minutes of processes than %d",
			   input__name(arguments->file), MINUTES_MAX);
	if (err || !arguments->pid || tables__any_process(models->tables))
		return err;
	log__error("name another process with --pid, or none", "%s has no process %u that trains",
		   input__name(arguments->file), arguments->pid);
	return -ENODATA;
}

/* A file for each table. Returns like export_to_file. */
static int export_tables(struct export_models *models, const struct export_args *arguments)
{
	struct output output;
	int err = make_tables(models, arguments);

	if (err)
		return err;
	err = output__make_folder(arguments->output, &output);
	if (err) {
		output__explain(arguments->output, &output, err);
		return err;
	}
	for (models->table = 0; models->table < tables__cnt() && !err; models->table++) {
		char *path;

		if (asprintf(&path, "%s/%s.arrow", arguments->output, tables__name(models->table)) < 0)
			return -ENOMEM;
		err = export_to_file(models, arguments, path, 0);
		free(path);
	}
	return err;
}

/* A file for each process that trains, or is asked for. Returns like export_to_file. */
static int export_to_folder(const struct export_models *models, const struct export_args *arguments)
{
	size_t cnt, written = 0;
	const struct rec_target *targets = job__targets(models->job, &cnt);
	struct output output;
	int err = output__make_folder(arguments->output, &output);

	if (err) {
		output__explain(arguments->output, &output, err);
		return err;
	}
	for (size_t i = 0; i < cnt && !err; i++) {
		uint32_t pid = targets[i].pid;
		char *path;

		if (arguments->pid ? pid != arguments->pid : !job__is_main(models->job, pid))
			continue;
		if (!is_exported_process(models, pid))
			continue;
		path = export__tensorboard_path(models->job, i, arguments->output);
		err = path ? export_to_file(models, arguments, path, pid) : -ENOMEM;
		free(path);
		written++;
	}
	if (written || err)
		return err;
	log__error("name another process with --pid, or none", "%s has no process that trains",
		   input__name(arguments->file));
	return -ENODATA;
}

static int run_export(int argc, char **argv)
{
	struct export_args arguments = {0};
	struct export_models models = {0};
	int err = -ENOMEM;

	parse__or_die(&export_argp, argc, argv, 0, &arguments);
	if (!arguments.file)
		arguments.file = INPUT_DEFAULT;
	if (!arguments.output)
		arguments.output = "-";
	/* A reader of our output may stop early (head, less): get an error of write, not a signal. */
	signal(SIGPIPE, SIG_IGN);

	models.job = job__new();
	if (arguments.format->source == EXPORT_TIMELINE)
		models.timeline = timeline__new(TIMELINE_MAX);
	if (models.timeline)
		models.tracks = tracks__new();
	if (models.job && (models.tracks || arguments.format->source != EXPORT_TIMELINE))
		err = input__read(arguments.file, add_record_to_export, &models);
	if (!err)
		err = prepare_models(&arguments, &models);
	if (err)
		goto out;
	err = arguments.format->source == EXPORT_TABLES ? export_tables(&models, &arguments)
	      : arguments.format->folder                ? export_to_folder(&models, &arguments)
							: export_to_file(&models, &arguments, arguments.output, 0);
	if (err == -EPIPE)
		err = 0;
out:
	export_ranks__release(&models.ranks);
	tables__free(models.tables);
	tracks__free(models.tracks);
	timeline__free(models.timeline);
	job__free(models.job);
	return log__exit_code(err);
}

const struct command command_export = {
	.name = "export",
	.run = run_export,
	.argp = &export_argp,
	.help = "write the timeline or the samples of a recording for another tool",
	.print_choices = print_choices,
};
