// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame record: attaches, writes records to the file and the live model until the end, prints
 * the summary.
 */

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/ops.h"
#include "user/analysis/live/trigger.h"
#include "user/cmd/cmd.h"
#include "user/cmd/input.h"
#include "user/cmd/parse.h"
#include "user/cmd/print.h"
#include "user/cmd/progress.h"
#include "user/cmd/session_args.h"
#include "user/cmd/targets.h"
#include "user/lib/log.h"
#include "user/lib/output.h"
#include "user/model/job.h"
#include "user/recording/recording.h"
#include "user/report/report.h"
#include "user/session/launch.h"
#include "user/session/session.h"
#include "user/session/sources/inject.h"

/* ---- where the records go: to the file, to the model for the summary, to the trigger of --until ---- */

/*
 * The file is opened, which discards what it held, only after the targets are attached; until then the few
 * records are buffered. Set job, and trigger if there is one; zero the rest.
 */
struct record_sink {
	struct recording_writer *writer; /* NULL until the file is open */
	struct job *job;
	struct trigger *trigger; /* NULL: none */
	int write_err;           /* first error of the file */
	char *buffered;
	size_t buffered_bytes;
	size_t name_cnt;   /* in the job */
	uint64_t now_ns;   /* CLOCK_MONOTONIC, at the last look */
	uint64_t event_ns; /* the time before this is kept: now, or trigger__before */
};

#define NAMES_REPORTED (1u << 18) /* a program may make up any number */

/*
 * Is it kept for a summary without the file? The other records of a long recording would fill the
 * memory.
 */
static bool is_reported(struct record_sink *sink, const struct rec_hdr *record)
{
	switch (record->type) {
	case REC_NAME:
		return !job__name(sink->job, ((const struct rec_name *)record)->id) &&
		       sink->name_cnt++ < NAMES_REPORTED;
	case REC_AGG:
		return job__is_main(sink->job, ((const struct rec_agg *)record)->key.pid);
	case REC_HOST:
	case REC_TARGET:
	case REC_WINDOW:
	case REC_COUNTER:
	case REC_COST:
	case REC_NOTE:
		return true;
	}
	return false;
}

/* A session_sink. */
static int record_sink__add(const struct rec_hdr *record, void *ctx)
{
	struct record_sink *sink = ctx;

	if (sink->trigger && trigger__add(sink->trigger, record, sink->now_ns))
		return -ENOMEM;
	if (!record) {
		if (!sink->write_err)
			sink->write_err = recording_writer__mark(sink->writer);
		return sink->write_err;
	}
	if (sink->writer) {
		if (!sink->write_err)
			sink->write_err = recording_writer__append(sink->writer, record);
	} else {
		char *buffered = realloc(sink->buffered, sink->buffered_bytes + record->size);

		if (!buffered)
			return -ENOMEM;
		memcpy(buffered + sink->buffered_bytes, record, record->size);
		sink->buffered = buffered;
		sink->buffered_bytes += record->size;
	}
	return (is_reported(sink, record) ? job__add(sink->job, record) : 0) ?: sink->write_err;
}

/*
 * Opens the file. max_bytes: of disk, last_ns: what it keeps of the past (recording.h); 0: any. 0 or
 * -errno, after a message.
 */
static int record_sink__open(struct record_sink *sink, const char *path, uint64_t max_bytes, uint64_t last_ns)
{
	int err = recording_writer__new(path, &sink->writer);

	if (err)
		return err;
	if (max_bytes)
		err = recording_writer__limit(sink->writer, path, max_bytes);
	if (!err && last_ns)
		err = recording_writer__keep_last(sink->writer, path, last_ns);
	if (err) {
		log__error("choose another file with -o FILE", "cannot write %s: %s", output__name(path),
			   err == -EINVAL ? "--max-size and --last need a regular file" : strerror(-err));
		return err;
	}
	for (size_t at = 0; at < sink->buffered_bytes && !sink->write_err;) {
		const struct rec_hdr *record = (const void *)(sink->buffered + at);

		sink->write_err = recording_writer__append(sink->writer, record);
		at += record->size;
	}
	return 0;
}

/* To be called some times a second. 0 or -errno, also that of the file. */
static int record_sink__tick(struct record_sink *sink, uint64_t now_ns)
{
	sink->now_ns = now_ns;
	sink->event_ns = sink->trigger ? trigger__before(sink->trigger, now_ns) : now_ns;
	if (sink->writer && !sink->write_err)
		sink->write_err = recording_writer__tick(sink->writer, sink->event_ns);
	return sink->write_err;
}

/* Frees all that the sink has. */
static void record_sink__release(struct record_sink *sink)
{
	recording_writer__free(sink->writer);
	trigger__free(sink->trigger);
	free(sink->buffered);
	job__free(sink->job);
}

/* ---- the command ---- */

#define POLL_MS      100
#define SCHEDULE_MAX 1000000000

#define SUMMARY_MAX  (64u << 20) /* bytes: the summary of a larger file would keep the user waiting, and take memory */

enum {
	OPT_STEPS = 0x100,
	OPT_STEP_AT,
	OPT_ACTION,
	OPT_CHILDREN,
	OPT_OPS,
	OPT_SHAPES,
	OPT_STACKS,
	OPT_MODULES,
	OPT_MEMORY,
	OPT_TIMELINE,
	OPT_SCHEDULE,
	OPT_EXACT,
	OPT_SYSCALLS,
	OPT_NO_SYSCALLS,
	OPT_GPU,
	OPT_INJECT,
	OPT_MAX_SIZE,
	OPT_LAST,
	OPT_UNTIL,
	OPT_BUDGET,
	OPT_USER,
};

struct record_args {
	struct targets targets;
	const char *actions[ACTIONS_MAX];
	const char *output;
	uint64_t duration_ns; /* 0: until the end */
	uint64_t max_bytes;   /* of disk; 0: any */
	uint64_t last_ns;     /* what is kept of the past; 0: all */
	struct trigger_options until;
	bool json; /* the summary */
	struct session_options session;
	char **command; /* NULL with targets */
	const char *user;
	struct launch_user runs_as;
};

static const struct argp_option options[] = {
	TARGET_OPTIONS,
	{"duration", 'd', "TIME", 0, "stop after TIME: 10s (or 10), 500ms, 2m, 1h; default: when the targets end", 0},
	{"steps", OPT_STEPS, "N", 0, "record N whole training steps, then stop", 0},
	{"step-at", OPT_STEP_AT, "NAME", 0,
	 "end a step with each span of that name, as report --all lists it: an action, a label, an --action, "
	 "backward, forward",
	 0},
	{"frequency", 'F', "HZ", 0, "sample stacks HZ times a second, and record waits (default 99; 0: neither)", 0},
	{"budget", OPT_BUDGET, "PERCENT", 0, BUDGET_HELP, 0},
	{"syscalls", OPT_SYSCALLS, NULL, 0,
	 "count system calls, files and the messages of DataLoaders, for report --io; while it records, each system "
	 "call of every process of this host takes 0.1 to 0.2 us longer, and those of the job 0.4 us",
	 0},
	{"no-syscalls", OPT_NO_SYSCALLS, NULL, OPTION_HIDDEN, NULL, 0}, /* the default */
	{"inject", OPT_INJECT, NULL, 0,
	 "load the library that records what the GPU does into the running processes of -p; this stops one thread of "
	 "each for about a millisecond, and the library stays there, asleep, after the recording (implies --gpu cupti)",
	 0},
	{"output", 'o', "FILE", 0,
	 "write the recording to FILE (default stepflame.rec); -: write it to standard output, and the report to "
	 "standard error",
	 0},
	{"json", 'j', NULL, 0, "the summary at the end as a JSON object", 0},
	{"max-size", OPT_MAX_SIZE, "SIZE", 0,
	 "use at most SIZE of disk (1M or more; K, M and G are powers of 1024), and drop the oldest samples, steps and "
	 "other events for that; counts and totals stay those of the whole recording",
	 0},
	{"last", OPT_LAST, "TIME", 0,
	 "keep samples, steps and other events of the last TIME (1s or more) only, or with --until of the TIME before "
	 "that and all since; counts and totals stay those of the whole recording",
	 0},
	{"until", OPT_UNTIL, "slow[=TIME]|slower[=N]|straggler[=N]|stall[=TIME]|end", 0,
	 "end the recording a second after that happens; may be given several times. slow: a step takes longer than "
	 "TIME, or twice as long as the longest of the last 256, and 100 ms longer; slower: steps become longer by N % "
	 "(default 10) for good; straggler: of the ranks of a job, the work of one is N % (default 10) longer than "
	 "that of the others, which wait for it; stall: no step ends for TIME, or for 10 median steps, but at least a "
	 "minute; end: one of the processes is killed, or ends with an error",
	 0},
	{"user", OPT_USER, "NAME|UID", 0,
	 "run the command as this user (default: behind sudo the one who called it, else the one that stepflame runs "
	 "as)",
	 0},
	{"action", OPT_ACTION, "LIB:SYMBOL|FILE.py:QUALNAME", 0,
	 "time calls of a function as an action: of a native function, where LIB is a mapped library's path or the "
	 "beginning of its file name; or of a Python function (up to 3.10), where FILE.py is its path or the end of it",
	 0},
	{"children", OPT_CHILDREN, "all|workers|none", 0,
	 "which child processes to record: all (default), DataLoader workers, none", 0},
	{"exact", OPT_EXACT, "force", OPTION_ARG_OPTIONAL,
	 "count and time every call of a Python function, for report --advanced; needs -d or --steps, slows the job "
	 "down, and from CPython 3.11 on writes one word into it and restores it at the end; =force: also where "
	 "deep recursion would raise RecursionError during the recording (CPython 3.12)",
	 0},
	{"gpu", OPT_GPU, "off|auto|uprobe|cupti", 0,
	 "uprobe: count calls of CUDA and NCCL; cupti: also record what the GPU did, in a process that has the "
	 "injection library (started by record -- CMD, or with --inject); auto: the best of these that the process "
	 "allows; off: neither, and no usage of the GPUs by NVML either, which is otherwise recorded when CUDA is in "
	 "use (default: no calls, but usage)",
	 0},
	{"ops", OPT_OPS, NULL, 0, "record operators and autograd nodes too, for report --ops", 0},
	{"shapes", OPT_SHAPES, NULL, 0, "count operators separately by the shapes of their inputs (implies --ops)", 0},
	{"stacks", OPT_STACKS, NULL, 0, "count operators separately by the Python line that calls them (implies --ops)",
	 0},
	{"modules", OPT_MODULES, NULL, 0,
	 "count operators separately by the nn.Modules that they run in (implies --ops)", 0},
	{"memory", OPT_MEMORY, NULL, 0, "record what operators allocate and free (implies --ops)", 0},
	{"timeline", OPT_TIMELINE, NULL, 0, "record each span with its times, for export (implies --ops)", 0},
	{"schedule", OPT_SCHEDULE, "KEY=N,...", 0,
	 "record operators, and what the GPU does (--gpu cupti), in windows of steps, with the keys of "
	 "torch.profiler.schedule: skip_first, wait, warmup, active, repeat (implies --ops, unless --gpu is cupti or "
	 "auto)",
	 0},
	{0},
};

static void parse_schedule(struct argp_state *state, struct record_args *args, const char *text)
{
	static char *const keys[] = {[OP_SKIP_FIRST] = "skip_first", [OP_WAIT] = "wait",     [OP_WARMUP] = "warmup",
				     [OP_ACTIVE] = "active",         [OP_REPEAT] = "repeat", NULL};
	char *copy = strdup(text), *at = copy, *value, *end;

	while (copy && *at) {
		int key = getsubopt(&at, keys, &value);

		if (key < 0 || !value || !*value || *value == '-')
			argp_error(state, "--schedule wants skip_first=N,wait=N,warmup=N,active=N,repeat=N, not '%s'",
				   text);
		errno = 0;
		args->session.schedule[key] = strtoull(value, &end, 10);
		if (*end || errno || args->session.schedule[key] > SCHEDULE_MAX)
			argp_error(state, "--schedule: '%s' is not a number of steps up to %d", value, SCHEDULE_MAX);
	}
	free(copy);
	if (!args->session.schedule[OP_ACTIVE])
		argp_error(state, "--schedule needs active=N: the steps to record in each window");
}

/*
 * Checks, once all options are parsed, whether they go together, and sets what follows from their
 * combination.
 */
static void settle_or_die(struct argp_state *state, struct record_args *args)
{
	targets__check(state, &args->targets);
	if (args->command && targets__given(&args->targets))
		argp_error(state, "give either running processes, with -p PID, --job or --all, or -- CMD");
	if (!args->command && state->quoted)
		argp_error(state, "give a command behind --");
	if (args->user && !args->command)
		argp_error(state, "--user is for -- CMD");
	if (args->session.steps && args->session.schedule[OP_ACTIVE])
		argp_error(state, "--steps N records one window, --schedule several: give only one of them");
	if (args->session.inject && args->command)
		argp_error(state, "--inject is for processes that already run: with -- CMD, give --gpu cupti instead");
	if (args->session.inject && args->session.gpu == SESSION_GPU_UPROBE)
		argp_error(state, "--inject loads a library that --gpu uprobe does not use: leave one of them out");
	if (args->session.inject && args->session.gpu == SESSION_GPU_OFF)
		args->session.gpu = SESSION_GPU_CUPTI;
	if (args->session.exact && !args->duration_ns && !args->session.steps)
		argp_error(state, "--exact slows the job down: say for how long, with -d TIME or --steps N");
	args->session.gpu_windows = args->session.schedule[OP_ACTIVE] &&
				    (args->session.gpu == SESSION_GPU_CUPTI || args->session.gpu == SESSION_GPU_AUTO);
	if (args->session.schedule[OP_ACTIVE] && !args->session.gpu_windows)
		args->session.ops = true;
	if (args->session.budget && (args->session.steps || args->session.schedule[OP_ACTIVE]))
		argp_error(state, "--budget chooses the windows itself: leave out --steps and --schedule");
	if (args->session.budget && (args->session.ops || args->session.exact || args->session.syscalls ||
				     args->session.gpu != SESSION_GPU_OFF))
		argp_error(state,
			   "--budget is for landmarks and samples: leave out --ops, --exact, --syscalls and --gpu");
	args->session.step_times = until__given(&args->until);
	args->session.snapshot_ns = until__snapshot_ns(&args->until, args->last_ns);
	if (args->session.ops && args->session.steps) {
		args->session.schedule[OP_ACTIVE] = args->session.steps;
		args->session.schedule[OP_REPEAT] = 1;
	}
}

/* Standard output takes neither what is changed later nor what others write. */
static void check_stdout_or_die(struct argp_state *state, const struct record_args *args)
{
	if ((args->max_bytes || args->last_ns) && output__is_stdout(args->output))
		argp_error(state,
			   "%s drops what was written, which standard output cannot: name a file with "
			   "-o",
			   args->max_bytes ? "--max-size" : "--last");
	if (args->command && output__is_stdout(args->output))
		argp_error(state, "the command writes to standard output, too: name a file with -o");
	if (output__is_stdout(args->output) && isatty(STDOUT_FILENO))
		argp_error(state, "a recording is not for a terminal: name a file with -o, or write into a "
				  "pipe");
}

/* What an option about operators sets, together with operators themselves; NULL: it is another option. */
static bool *operators_extra(struct session_options *session, int key)
{
	switch (key) {
	case OPT_OPS:
		return &session->ops;
	case OPT_SHAPES:
		return &session->shapes;
	case OPT_STACKS:
		return &session->stacks;
	case OPT_MODULES:
		return &session->modules;
	case OPT_MEMORY:
		return &session->memory;
	case OPT_TIMELINE:
		return &session->timeline;
	}
	return NULL;
}

/* Of what is recorded, and when. */
static error_t parse_events(int key, char *arg, struct argp_state *state)
{
	struct record_args *args = state->input;
	bool *extra = operators_extra(&args->session, key);
	char *end;

	if (extra) {
		args->session.ops = *extra = true;
		return 0;
	}
	switch (key) {
	case OPT_BUDGET:
		args->session.budget = session_args__budget(state, arg);
		return 0;
	case OPT_STEPS:
		args->session.steps = strtoull(arg, &end, 10);
		if (*end || !args->session.steps || *arg == '-')
			argp_error(state, "--steps wants a number of steps, not '%s'", arg);
		return 0;
	case OPT_STEP_AT:
		if (!*arg)
			argp_error(state, "--step-at wants a name");
		args->session.step_at = arg;
		return 0;
	case OPT_EXACT:
		if (arg && strcmp(arg, "force"))
			argp_error(state, "--exact=%s? It is --exact or --exact=force", arg);
		args->session.exact = true;
		args->session.exact_force = arg;
		return 0;
	case OPT_INJECT:
		args->session.inject = true;
		return 0;
	case OPT_SYSCALLS:
		args->session.syscalls = true;
		return 0;
	case OPT_NO_SYSCALLS:
		args->session.syscalls = false;
		return 0;
	case OPT_GPU:
		args->session.gpu = session_args__gpu(state, arg);
		args->session.usage_of_users = args->session.gpu != SESSION_GPU_OFF;
		return 0;
	case OPT_SCHEDULE:
		parse_schedule(state, args, arg);
		return 0;
	case OPT_ACTION:
		session_args__action(state, &args->session, args->actions, arg);
		return 0;
	case OPT_CHILDREN:
		args->session.children = session_args__children(state, arg);
		return 0;
	default:
		return targets__option(state, &args->targets, key, arg);
	}
}

static error_t parse_record(int key, char *arg, struct argp_state *state)
{
	struct record_args *args = state->input;

	switch (key) {
	case 'd':
		args->duration_ns = session_args__time(state, arg);
		return 0;
	case 'F':
		args->session.frequency = session_args__frequency(state, arg);
		return 0;
	case 'o':
		args->output = arg;
		return 0;
	case 'j':
		args->json = true;
		return 0;
	case OPT_MAX_SIZE:
		args->max_bytes = session_args__size(state, arg);
		if (args->max_bytes < RECORDING_LIMIT_MIN)
			argp_error(state, "--max-size wants 1M or more, not '%s'", arg);
		return 0;
	case OPT_LAST:
		args->last_ns = session_args__time(state, arg);
		if (args->last_ns < RECORDING_LAST_MIN_NS)
			argp_error(state, "--last wants 1s or more, not '%s'", arg);
		return 0;
	case OPT_UNTIL:
		until__option(state, &args->until, "--until", arg);
		return 0;
	case OPT_USER:
		args->user = arg;
		return 0;
	case ARGP_KEY_ARGS:
		args->command = state->argv + state->next;
		return 0;
	case ARGP_KEY_END:
		settle_or_die(state, args);
		check_stdout_or_die(state, args);
		return 0;
	default:
		return parse_events(key, arg, state);
	}
}

static const struct argp record_argp = {
	.options = options,
	.parser = parse_record,
	.args_doc = "[-p PID | --job NAME | --all]\n-- CMD [ARG...]",
	.doc = "Record what a running training job does, and print a summary. Without a target it is the only "
	       "training job of this host, or an error where several run.\v"
	       "The first Ctrl-C ends the recording and writes it; a second one skips the last snapshot. stepflame "
	       "never signals the job, and stops it only with --inject, for a moment. A command started after -- "
	       "runs on until it ends by itself, and stepflame returns its exit status; behind sudo it runs as the "
	       "user who called that, with --user root as root.",
};

static volatile sig_atomic_t interrupts;

static void on_stop_signal(int signal)
{
	interrupts++;
}

/* Until the next look at the session: no longer than the recording is to last. */
static int poll_ms(const struct record_args *args, const struct session_progress *progress)
{
	uint64_t left_ns;

	if (!args->duration_ns)
		return POLL_MS;
	left_ns = args->duration_ns - progress->elapsed_ns;
	return left_ns < POLL_MS * 1000000ULL ? (int)(left_ns / 1000000) + 1 : POLL_MS;
}

/* Has what --until waits for happened, and long enough ago for the other processes to come to the same step? */
static bool is_over(const struct record_sink *sink, const struct session_progress *progress, uint64_t *seen_ns)
{
	if (!sink->trigger || !trigger__check(sink->trigger, progress->now_ns)->seen)
		return false;
	*seen_ns = *seen_ns ?: progress->now_ns;
	return progress->now_ns - *seen_ns >= TRIGGER_GOES_ON_NS;
}

/*
 * Runs until the time or the steps are over, what --until waits for has happened, the targets have
 * ended, a signal comes, or the sink fails.
 */
static int run_session(struct session *session, const struct record_args *args, struct record_sink *sink,
		       struct launch *launch)
{
	struct progress shown = {.duration_ns = args->duration_ns};
	struct session_progress progress;
	uint64_t seen_ns = 0;
	int err;

	session__progress(session, &progress);
	do {
		err = session__poll(session, poll_ms(args, &progress));
		session__progress(session, &progress);
		err = err ?: record_sink__tick(sink, progress.now_ns);
		launch__reap(launch, false);
		progress__show(&shown, &progress);
	} while (!err && !interrupts && progress.alive && !progress.done && !launch->ended &&
		 !is_over(sink, &progress, &seen_ns) &&
		 (!args->duration_ns || progress.elapsed_ns < args->duration_ns));
	progress__clear(&shown);
	if (sink->trigger)
		until__say(trigger__check(sink->trigger, progress.now_ns), session);
	return err;
}

/* A command with CUDA loads the library by itself if the environment says so before it starts. */
static void prepare_injection(const struct record_args *args)
{
	char path[PATH_MAX];

	if (args->session.gpu != SESSION_GPU_CUPTI)
		return;
	if (inject__own_library(path))
		log__warn("build stepflame where CUPTI's headers are, or set STEPFLAME_INJECT to the library's path",
			  "libstepflame-inject.so was not found: stepflame records calls of CUDA, but not what the GPU "
			  "does");
	else
		setenv("CUDA_INJECTION64_PATH", path, 0);
}

static int start_targets(struct session *session, const struct record_args *args, struct record_sink *sink,
			 struct launch *launch)
{
	int err = targets__attach(&args->targets, session);

	if (!err && args->command) {
		prepare_injection(args);
		err = launch__fork(launch, args->command, &args->runs_as) ?: session__follow(session, launch->pid);
	}
	err = err ?: record_sink__open(sink, args->output, args->max_bytes, args->last_ns) ?: session__open(session);
	if (!err && args->command) {
		err = launch__release(launch);
		if (err)
			log__error("check the command's name and path", "cannot run %s: %s", args->command[0],
				   strerror(-err));
	}
	return err;
}

static void print_recording_end(const struct record_args *args, const struct record_sink *sink)
{
	const char *file = output__name(args->output);

	if (sink->write_err) {
		log__error(sink->write_err == -ESTALE ? "leave the file where it is until the recording ends"
						      : "free some space, or write elsewhere with -o",
			   "cannot write to %s any more: %s; the file has everything up to that point", file,
			   strerror(-sink->write_err));
		return;
	}
	log__info("recording written to %s (%llu KiB)", file,
		  (unsigned long long)recording_writer__bytes(sink->writer) / 1024 + 1);
	if (output__is_stdout(args->output))
		return;
	log__info("reports: stepflame report %s --simple | %s%s%s%s%s--leaf | --all | --per-rank | --json", file,
		  args->session.frequency ? "--steps | " : "",
		  args->session.frequency || args->session.exact ? "--advanced | " : "",
		  args->session.ops ? "--ops | " : "", args->session.gpu ? "--gpu | " : "",
		  args->session.syscalls || args->session.frequency ? "--io | " : "");
	if (args->session.frequency)
		log__info("or: stepflame flame %s", file);
	log__info("or: stepflame export %s -f perfetto -o trace.pftrace", file);
}

static int add_to_job(const struct rec_hdr *record, void *job)
{
	return job__add(job, record);
}

/* Of the file, as report prints it; without one, or of a large one, of what the sink has kept. */
static void print_summary(const struct record_args *args, const struct record_sink *sink)
{
	bool to_stdout = output__is_stdout(args->output);
	bool is_default = !strcmp(args->output, INPUT_DEFAULT);
	const struct report_options options = {
		.limit = -1,
		.json = args->json,
		.file = to_stdout    ? "FILE"
			: is_default ? NULL
				     : args->output,
	};
	struct job *whole = NULL;

	if (!sink->write_err && interrupts < 2 && recording_writer__bytes(sink->writer) <= SUMMARY_MAX)
		whole = job__new();
	if (whole && recording_writer__read(sink->writer, add_to_job, whole)) {
		job__free(whole);
		whole = NULL;
	}
	print__report(&report_summary, whole ?: sink->job, &options, to_stdout ? stderr : stdout);
	job__free(whole);
}

static int record_targets(const struct record_args *args, struct record_sink *sink, struct launch *launch)
{
	struct session *session;
	int err = session__new(&args->session, record_sink__add, sink, &session);

	if (err)
		return err;
	err = start_targets(session, args, sink, launch);
	if (err)
		goto out;
	log__info("armed; recording to %s%s", output__name(args->output), args->duration_ns ? "" : "; Ctrl-C ends it");
	err = run_session(session, args, sink, launch);
	if (interrupts < 2) {
		int end_err = session__finish(session);

		err = err ?: end_err;
	}
	recording_writer__flush(sink->writer);
	if (interrupts < 2 && !sink->write_err)
		sink->write_err = recording_writer__cut(sink->writer, sink->event_ns);
	if (recording_writer__dropped(sink->writer)->hdr.type)
		job__add(sink->job, &recording_writer__dropped(sink->writer)->hdr);
	if (err && err != sink->write_err && err != -ENOENT) /* printed already */
		log__error(NULL, "recording failed: %s", strerror(-err));
	print_summary(args, sink);
	print_recording_end(args, sink);
out:
	session__free(session);
	return err;
}

/*
 * Reports early, before anything is attached, that the file cannot be written; does not touch what
 * the file holds.
 */
static int check_output(const char *path)
{
	struct output output;
	int err = output__check(path, &output);

	if (err)
		output__explain(path, &output, err);
	return err;
}

static int run_record(int argc, char **argv)
{
	struct record_args args = {.output = INPUT_DEFAULT,
				   .session = {.frequency = FREQUENCY, .usage_of_users = true}};
	struct sigaction action = {.sa_handler = on_stop_signal};
	struct launch launch = {.go = -1};
	struct record_sink sink = {0};
	int err;

	args.session.actions = args.actions;
	parse__or_die(&record_argp, argc, argv, ARGP_IN_ORDER, &args);
	if (!args.command)
		targets__choose_or_die(&args.targets, "record", "recording");
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	err = (args.command ? launch_user__find(args.user, &args.runs_as) : 0) ?: check_output(args.output);
	if (err)
		return log__exit_code(err);
	sink.job = job__new();
	if (until__given(&args.until))
		sink.trigger = trigger__new(&args.until);
	err = sink.job && (sink.trigger || !until__given(&args.until)) ? job__only_count_children(sink.job) : -ENOMEM;
	err = err ?: record_targets(&args, &sink, &launch);
	launch_user__release(&args.runs_as);
	record_sink__release(&sink);
	launch__close(&launch);
	if (launch.pid > 0 && interrupts < 2) {
		launch__reap(&launch, true);
		return launch__exit_code(&launch) ?: log__exit_code(err);
	}
	return log__exit_code(err);
}

const struct command command_record = {
	.name = "record",
	.run = run_record,
	.argp = &record_argp,
	.help = "attach to a running job, or start one, and record it",
	.traces = true,
};
