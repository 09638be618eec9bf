// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame top: attaches, models the last interval and shows it until the end. In: a session's
 * records, and keys. Out: a screen, or snapshots as text.
 */

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "user/cmd/cmd.h"
#include "user/cmd/parse.h"
#include "user/cmd/session_args.h"
#include "user/cmd/targets.h"
#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/model/stacks.h"
#include "user/proc/proc.h"
#include "user/report/common.h"
#include "user/report/print/text.h"
#include "user/session/session.h"
#include "user/top/lines.h"
#include "user/top/screen.h"
#include "user/top/top.h"

/* ---- what /proc reports about the job's processes ---- */

struct usage {
	struct array processes; /* struct top_process */
	uint64_t time_ns;       /* of the last reading; 0: none */
};

static void thread_name(uint32_t pid, uint32_t tid, char name[16])
{
	struct proc_stat stat;

	*name = 0;
	if (!proc__stat(pid, tid, &stat))
		snprintf(name, 16, "%.*s", (int)strcspn(stat.comm, "\n"), stat.comm);
}

static const struct top_process *find_previous(const struct array *processes, uint32_t pid)
{
	const struct top_process *all = processes->items;

	for (size_t i = 0; i < processes->cnt; i++)
		if (all[i].pid == pid)
			return &all[i];
	return NULL;
}

/* What the ticks of CPU time are of the time since the last reading. */
static double percent_since(const struct usage *usage, uint64_t ticks, uint64_t now)
{
	return usage->time_ns && now > usage->time_ns
		       ? 100.0 * ticks / sysconf(_SC_CLK_TCK) / ((now - usage->time_ns) / 1e9)
		       : NAN;
}

static void read_limits(pid_t pid, struct cgroup_limits *out)
{
	struct cgroup_look look = {0};

	if (cgroup_look__limits(&look, pid, out))
		*out = (struct cgroup_limits){0};
	cgroup_look__release(&look);
	if (out->processors >= sysconf(_SC_NPROCESSORS_ONLN))
		out->processors = 0;
}

/*
 * Reads the job's live processes, and sets out to what they used since the last call; out->each is valid until the
 * next. 0 or -ENOMEM.
 */
static int usage__read(struct usage *usage, const struct job *job, struct top_usage *out)
{
	const uint64_t now = clock__ns(CLOCK_MONOTONIC), page_bytes = sysconf(_SC_PAGESIZE);
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);
	struct array processes = {0};
	uint64_t used = 0;
	bool has_limits = false;

	*out = (struct top_usage){.cpu_percent = NAN, .thread_name = thread_name};
	for (size_t i = 0; i < cnt; i++) {
		const struct top_process *before = find_previous(&usage->processes, targets[i].pid);
		struct top_process *process;
		struct proc_stat stat;
		uint64_t ticks;

		if (proc__stat(targets[i].pid, 0, &stat) || proc_stat__dead(&stat))
			continue;
		process = array__add(&processes, sizeof(*process));
		if (!process) {
			free(processes.items);
			return -ENOMEM;
		}
		process->pid = targets[i].pid;
		process->role = targets[i].role;
		memcpy(process->comm, stat.comm, sizeof(process->comm));
		process->ticks = stat.user_ticks + stat.system_ticks;
		process->rss_bytes = stat.rss_pages * page_bytes;
		process->threads = stat.thread_cnt;
		/* without one before, the process has started since */
		ticks = process->ticks - (before && before->ticks <= process->ticks ? before->ticks : 0);
		process->cpu_percent = percent_since(usage, ticks, now);
		used += ticks;
		out->rss_bytes += process->rss_bytes;
		out->threads += stat.thread_cnt;
		if (targets[i].role == ROLE_MAIN && !has_limits) {
			read_limits(targets[i].pid, &out->limits);
			has_limits = true;
		}
	}
	out->cpu_percent = percent_since(usage, used, now);
	out->processes = processes.cnt;
	free(usage->processes.items);
	usage->processes = processes;
	usage->time_ns = now;
	out->each = processes.items;
	return 0;
}

static void usage__free(struct usage *usage)
{
	free(usage->processes.items);
	*usage = (struct usage){0};
}

/* ---- the command ---- */

#define POLL_MS       50 /* also the longest delay of a key */
#define BATCH_POLL_MS 100
#define INTERVAL_NS   2000000000ULL
#define INTERVAL_MIN  100000000ULL
#define STACKS_KEPT   32768 /* as many as the kernel remembers */
#define LIMIT         20

enum { OPT_ONCE = 0x100, OPT_ACTION, OPT_CHILDREN, OPT_VIEW, OPT_LIMIT, OPT_CSV };

struct top_args {
	struct targets targets;
	const char *actions[ACTIONS_MAX];
	struct session_options session;
	bool batch, json, csv;
	uint64_t iterations; /* 0: until the end */
	enum top_view view;  /* TOP__VIEWS: not given */
	size_t limit;
};

static const struct argp_option options[] = {
	TARGET_OPTIONS,
	{"interval", 'i', "TIME", 0, "show what happened in the last TIME, and redraw every TIME: 2s (default), 500ms",
	 0},
	{"frequency", 'F', "HZ", 0, "sample stacks HZ times a second, and record waits (default 99; 0: neither)", 0},
	{"batch", 'b', NULL, 0, "print each picture as text (the default where there is no terminal)", 0},
	{"json", 'j', NULL, 0, "the same, each as a line of JSON", 0},
	{"csv", OPT_CSV, NULL, 0, "the same, as CSV: the rows of one view, each with the time of its picture", 0},
	{"iterations", 'n', "N", 0, "end after N pictures", 0},
	{"once", OPT_ONCE, NULL, 0, "the same as --batch --iterations=1", 0},
	{"view", OPT_VIEW, "VIEW", 0,
	 "begin with actions (default), functions, waits, threads, steps or processes; as text, print only that view",
	 0},
	{"limit", OPT_LIMIT, "N", 0, "print at most N rows of each table (default 20; 0: all)", 0},
	{"action", OPT_ACTION, "LIB:SYMBOL|FILE.py:QUALNAME", 0,
	 "time calls of a function as an action, as record does", 0},
	{"children", OPT_CHILDREN, "all|workers|none", 0,
	 "which child processes to watch: all (default), DataLoader workers, none", 0},
	{0},
};

static uint64_t parse_number(struct argp_state *state, const char *text, const char *option)
{
	char *end;
	uint64_t number = strtoull(text, &end, 10);

	if (!*text || *end || *text == '-' || number > INT32_MAX)
		argp_error(state, "%s wants a number, not '%s'", option, text);
	return number;
}

static enum top_view parse_view(struct argp_state *state, const char *text)
{
	for (int i = 0; i < TOP__VIEWS; i++)
		if (!strcmp(top_views[i].name, text))
			return i;
	argp_error(state, "--view is actions, functions, waits, threads, steps or processes, not '%s'", text);
	return TOP__VIEWS;
}

static error_t parse_top(int key, char *arg, struct argp_state *state)
{
	struct top_args *args = state->input;

	switch (key) {
	case 'i':
		args->session.live_ns = session_args__time(state, arg);
		if (args->session.live_ns < INTERVAL_MIN)
			argp_error(state, "--interval wants 100ms or more, not '%s'", arg);
		return 0;
	case 'F':
		args->session.frequency = session_args__frequency(state, arg);
		return 0;
	case 'b':
		args->batch = true;
		return 0;
	case 'j':
		args->batch = args->json = true;
		return 0;
	case OPT_CSV:
		args->batch = args->csv = true;
		return 0;
	case 'n':
		args->iterations = parse_number(state, arg, "-n");
		return 0;
	case OPT_ONCE:
		args->batch = true;
		args->iterations = 1;
		return 0;
	case OPT_VIEW:
		args->view = parse_view(state, arg);
		return 0;
	case OPT_LIMIT:
		args->limit = parse_number(state, arg, "--limit");
		return 0;
	case OPT_ACTION:
		session_args__action(state, &args->session, args->actions, arg);
		return 0;
	case OPT_CHILDREN:
		args->session.children = session_args__children(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "top takes no argument '%s': for a process give -p PID, for a job --job NAME", arg);
		return 0;
	case ARGP_KEY_END:
		if (args->json && args->csv)
			argp_error(state, "either --json or --csv");
		targets__check(state, &args->targets);
		return 0;
	default:
		return targets__option(state, &args->targets, key, arg);
	}
}

static const struct argp top_argp = {
	.options = options,
	.parser = parse_top,
	.args_doc = "[-p PID | --job NAME | --all]",
	.doc = "Watch a running training job: its actions, functions, waits, threads, steps and processes, as they are "
	       "now. "
	       "Without a target it is the only training job of this host, or an error where several run.\v"
	       "q or Ctrl-C ends it, h explains the keys. stepflame never stops or signals the job. If stdout is not a "
	       "terminal, top prints one picture as text after one interval; --batch prints one each interval.",
};

static void print_choices(const char *option, FILE *out)
{
	for (int i = 0; i < TOP__VIEWS && !strcmp(option, "view"); i++)
		fprintf(out, " %s", top_views[i].name);
}

static volatile sig_atomic_t interrupted;

static void on_quit_signal(int signal)
{
	interrupted = 1;
}

struct live_view {
	const struct top_args *args;
	struct session *session;
	struct job *job;
	struct top *top;
	struct usage usage;
	struct top_state state;
	struct screen *screen;  /* NULL: text on stdout */
	struct top_frame frame; /* the last frame, or while paused the frame on display */
	struct csv csv;
	bool due; /* a snapshot has come */
	uint64_t frames;
};

static int record_to_job(const struct rec_hdr *record, void *ctx)
{
	struct live_view *live = ctx;

	if (!record) {
		live->due = true;
		return 0;
	}
	if (record->type == REC_STEP && record->size >= sizeof(struct rec_step))
		return top__step(live->top, (const void *)record);
	return job__add(live->job, record);
}

static int print_batch(struct live_view *live)
{
	struct array lines = {0};
	const struct top_line *all;
	int err;

	if (live->args->csv)
		return top_lines__csv(&live->frame, live->state.view, live->args->limit, &live->csv);
	if (live->args->json)
		return top_lines__json(&live->frame, live->state.view, live->args->limit, stdout);
	err = top_lines__batch(&live->frame, &live->state, live->args->limit, &lines);
	all = lines.items;
	if (live->frames > 1)
		putchar('\n');
	for (size_t i = 0; i < lines.cnt; i++)
		puts(all[i].text);
	top_lines__release(&lines);
	return err ?: common__flush(stdout);
}

static int draw_frame(struct live_view *live)
{
	struct array lines = {0};
	int err;

	screen__size(live->screen, &live->state.width, &live->state.height);
	err = top_lines__screen(&live->frame, &live->state, &lines);
	if (!err)
		screen__draw(live->screen, &lines);
	top_lines__release(&lines);
	return err;
}

/* The frame has used the samples. Stacks stay known as long as they are few. */
static void forget_samples(struct live_view *live)
{
	if (stacks__stack_end(job__stacks(live->job)) <= STACKS_KEPT &&
	    stacks__path_end(job__stacks(live->job)) <= STACKS_KEPT) {
		job__forget_samples(live->job);
		return;
	}
	job__forget_stacks(live->job);
	session__resend_stacks(live->session);
}

static int take_snapshot(struct live_view *live)
{
	struct top_usage usage;
	struct top_frame frame;
	int err = usage__read(&live->usage, live->job, &usage);

	live->due = false;
	err = err ?: top__update(live->top, live->job, &usage, &frame);
	if (err)
		return err;
	forget_samples(live);
	live->frames++;
	if (live->state.paused) {
		top_frame__release(&frame);
		return 0;
	}
	top_frame__release(&live->frame);
	live->frame = frame;
	return live->screen ? draw_frame(live) : print_batch(live);
}

/* Returns 0, -errno, or 1 to end. */
static int attend_keys(struct live_view *live)
{
	int key, keys = 0, err = 0;

	while (!err && live->screen && (key = screen__key(live->screen)) != TOP_KEY_NONE) {
		enum top_command command = top_state__key(&live->state, key);

		if (command == TOP_RESET)
			top__reset(live->top);
		err = command == TOP_QUIT;
		keys++;
	}
	return err ?: keys && live->frames ? draw_frame(live) : 0;
}

static int run_live(struct live_view *live)
{
	const struct top_args *args = live->args;
	struct session_progress progress;
	int err;

	do {
		err = session__poll(live->session, live->screen ? POLL_MS : BATCH_POLL_MS);
		session__progress(live->session, &progress);
		if (!err && live->due)
			err = take_snapshot(live);
		err = err ?: attend_keys(live);
	} while (!err && !interrupted && progress.alive && (!args->iterations || live->frames < args->iterations));
	return err;
}

static int watch_live(struct live_view *live)
{
	const struct top_args *args = live->args;
	struct top_usage before; /* excludes what the processes used before we attached */
	int err = targets__attach(&args->targets, live->session), end_err;

	err = err ?: session__open(live->session) ?: usage__read(&live->usage, live->job, &before);
	if (!err && !args->batch)
		err = screen__open(&live->screen);
	if (err)
		return err;
	err = run_live(live);
	screen__close(live->screen);
	live->screen = NULL;
	end_err = session__finish(live->session);
	if (err > 0)
		return 0;
	err = err ?: end_err;
	if (err == -EPIPE && args->batch)
		return 0;
	/* What it did since the last frame, or before the first one. */
	if (!err && !interrupted && live->due && (!live->frames || (args->batch && !args->iterations)))
		err = take_snapshot(live);
	if (err)
		log__error(NULL, "top failed: %s", strerror(-err));
	else if (!interrupted && !args->iterations)
		log__info("the job has ended");
	return err;
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_quit_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigaction(SIGQUIT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int run_top(int argc, char **argv)
{
	struct top_args args = {.session = {.frequency = FREQUENCY, .live_ns = INTERVAL_NS, .usage = true},
				.view = TOP__VIEWS,
				.limit = LIMIT};
	struct live_view live = {.args = &args, .csv.out = stdout};
	int err;

	args.session.actions = args.actions;
	parse__or_die(&top_argp, argc, argv, 0, &args);
	targets__choose_or_die(&args.targets, "top", "watching");
	if (!args.batch && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))) {
		args.batch = true;
		args.iterations = args.iterations ?: 1;
	}
	top_state__init(&live.state);
	text__use_terminal(STDOUT_FILENO);
	if (args.batch && text__columns() != SIZE_MAX)
		live.state.width = (int)text__columns();
	live.state.utf8 = text__utf8();
	live.state.view = args.view == TOP__VIEWS && (args.csv || !args.batch) ? TOP_ACTIONS : args.view;
	catch_signals();
	live.job = job__new();
	live.top = top__new();
	err = live.job && live.top ? session__new(&args.session, record_to_job, &live, &live.session) : -ENOMEM;
	err = err ?: watch_live(&live);
	session__free(live.session);
	csv__release(&live.csv);
	usage__free(&live.usage);
	top_frame__release(&live.frame);
	top__free(live.top);
	job__free(live.job);
	return log__exit_code(err);
}

const struct command command_top = {
	.name = "top",
	.run = run_top,
	.argp = &top_argp,
	.help = "watch a running job live",
	.traces = true,
	.print_choices = print_choices,
};
