// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame watch: watches all training jobs of this host, and keeps what led to what happens. Its
 * loop is in user/watch/.
 */

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "user/cmd/cmd.h"
#include "user/cmd/config.h"
#include "user/cmd/parse.h"
#include "user/cmd/session_args.h"
#include "user/lib/json.h"
#include "user/lib/log.h"
#include "user/lib/utf8.h"
#include "user/recording/recording.h"
#include "user/report/common.h"
#include "user/watch/control.h"
#include "user/watch/listener.h"
#include "user/watch/watch.h"

/* ---- what is asked of the one that watches: pause, resume, status, trigger ---- */

struct watch_question {
	const char *state;              /* the folder */
	char state_from[PATH_MAX + 16]; /* for commands that are shown: "", or " --state FOLDER", " --config FILE" */
	const char *verb, *job;         /* job: NULL: all; of trigger: the only one */
	bool json;
};

#define JOB_SHOWN     32 /* columns */
#define ASKED_SECONDS 60 /* that a recording of a large ring may take */
#define ASKED_HZ      10

/* Until the one that watches may have got further. */
static void wait_a_little(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000000 / ASKED_HZ}, NULL);
}

/* A text whose commands `stepflame watch` have the option that says where it watches, too. malloc'ed; NULL: no memory. */
static char *complete(const struct watch_question *question, const char *text)
{
	static const char command[] = "stepflame watch";
	char *out = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&out, &bytes);

	if (!stream)
		return NULL;
	for (const char *at; (at = strstr(text, command)); text = at + strlen(command))
		fprintf(stream, "%.*s%s%s", (int)(at - text), text, command, question->state_from);
	fputs(text, stream);
	if (!fclose(stream))
		return out;
	free(out);
	return NULL;
}

static int explain(const struct watch_question *question, int err)
{
	const char *state = question->state;
	char *fix = NULL;

	if (err == -ENOENT || err == -ECONNREFUSED) {
		fix = complete(question, "start it: stepflame watch; or say where it watches: --state FOLDER");
		log__error(fix, "nobody watches with the folder %s", state);
	} else if (err == -ETIMEDOUT) {
		log__error("look at its messages", "the one that watches with the folder %s does not answer", state);
	} else {
		log__error(err == -EACCES ? "ask as the user it runs as" : NULL,
			   "cannot ask the one that watches with the folder %s: %s", state, strerror(-err));
	}
	free(fix);
	return err;
}

/* 0 and *answer, or -errno after a message. */
static int ask_watch(const struct watch_question *question, const char *request, json_t **answer)
{
	int err = control__ask(question->state, request, answer);
	const char *why, *fix;
	char *completed;

	if (err)
		return explain(question, err);
	why = json_string_value(json_object_get(*answer, "error"));
	fix = json_string_value(json_object_get(*answer, "fix"));
	if (!why)
		return 0;
	completed = fix ? complete(question, fix) : NULL;
	log__error(completed, "%s", why);
	free(completed);
	json_decref(*answer);
	return -EINVAL;
}

static void print_process(const char *job, bool paused, const json_t *process)
{
	json_t *rank = json_object_get(process, "rank"), *since = json_object_get(process, "last_step_s");
	char rank_text[16] = "-", since_text[32] = "-", *name = utf8__escape(job);

	if (json_is_integer(rank))
		snprintf(rank_text, sizeof(rank_text), "%lld", json_integer_value(rank));
	if (paused)
		snprintf(since_text, sizeof(since_text), "paused");
	else if (json_is_number(since))
		snprintf(since_text, sizeof(since_text), "%.1f s ago", json_number_value(since));
	printf("%-*s %8lld %5s %10lld  %s\n", JOB_SHOWN, name ?: "",
	       json_integer_value(json_object_get(process, "pid")), rank_text,
	       json_integer_value(json_object_get(process, "steps")), since_text);
	free(name);
}

static void print_status(const struct watch_question *question, const json_t *status)
{
	json_t *jobs = json_object_get(status, "jobs"), *job, *process;
	size_t i, k;

	if (json_is_true(json_object_get(status, "paused"))) {
		bool disk = !strcmp(json_string_value(json_object_get(status, "paused_by")) ?: "", "disk");

		printf("paused: no job is watched (%s%s%s)\n",
		       disk ? "until its disk has room again" : "stepflame watch", disk ? "" : question->state_from,
		       disk ? "" : " resume");
		return;
	}
	printf("watches %zu job%s; the ring has %.1f MB; %.1f s of CPU and at most %.0f MB of memory so far\n",
	       json_array_size(jobs), json_array_size(jobs) == 1 ? "" : "s",
	       json_number_value(json_object_get(status, "ring_bytes")) / 1e6,
	       json_number_value(json_object_get(status, "cpu_s")),
	       json_number_value(json_object_get(status, "rss_max_bytes")) / 1e6);
	if (json_array_size(jobs))
		printf("%-*s %8s %5s %10s  %s\n", JOB_SHOWN, "JOB", "PID", "RANK", "STEPS", "LAST STEP");
	json_array_foreach(jobs, i, job) json_array_foreach(json_object_get(job, "processes"), k, process)
		print_process(json_string_value(json_object_get(job, "job")) ?: "",
			      json_is_true(json_object_get(job, "paused")), process);
}

/* Asks until it is not busy with an event any more. 0 and *answer, or -errno after a message. */
static int ask_patiently(const struct watch_question *question, const char *request, json_t **answer)
{
	int err = ask_watch(question, request, answer);

	for (int i = 0; !err && json_object_get(*answer, "busy"); i++) {
		json_decref(*answer);
		if (i == ASKED_SECONDS * ASKED_HZ)
			return explain(question, -ETIMEDOUT);
		wait_a_little();
		err = ask_watch(question, request, answer);
	}
	return err;
}

/* Waits until it is kept, and prints the recording's path. */
static int await_kept(const struct watch_question *question, const json_t *answer)
{
	char *name = utf8__escape(json_string_value(json_object_get(answer, "name")) ?: "");
	char request[CONTROL_REQUEST];
	json_t *kept;
	int err;

	if (!name)
		return -ENOMEM;
	snprintf(request, sizeof(request), "kept %s", name);
	err = ask_patiently(question, request, &kept);
	if (!err) {
		json_decref(kept);
		printf("%s/events/%s.rec\n", question->state, name);
	}
	free(name);
	return err;
}

static void print_pause(const json_t *answer)
{
	const char *job = json_string_value(json_object_get(answer, "job"));
	bool paused = json_is_true(json_object_get(answer, "paused"));
	char *name = job ? utf8__escape(job) : NULL;

	if (job)
		printf(paused ? "paused: job %s is left alone\n" : "resumed: job %s\n", name ?: "");
	else
		puts(paused ? "paused: all jobs are left alone" : "resumed");
	free(name);
}

/* 0, or -errno after a message. */
/* 0, or -errno after a message. */
static int watch_ask(const struct watch_question *question)
{
	const char *verb = question->verb, *job = question->job;
	char request[CONTROL_REQUEST];
	json_t *answer;
	int err;

	if (snprintf(request, sizeof(request), "%s%s%s", verb, job ? " " : "", job ?: "") >= (int)sizeof(request)) {
		log__error(NULL, "no job has a name of that length");
		return -EINVAL;
	}
	err = ask_patiently(question, request, &answer);
	if (err)
		return err;
	if (question->json)
		err = json__print(answer, JSON_INDENT(2), stdout) ?: printf("\n") < 0 ? -EIO : 0;
	else if (!strcmp(verb, "status"))
		print_status(question, answer);
	else if (!strcmp(verb, "trigger"))
		err = await_kept(question, answer);
	else
		print_pause(answer);
	json_decref(answer);
	return err ?: common__flush(stdout);
}

/* ---- the command ---- */

#define CONFIG            "/etc/stepflame/watch.conf"
#define STATE             "/var/lib/stepflame"
#define WATCH_HZ          19
#define LAST_NS           (600 * 1000000000ull)
#define RENEW_NS          (3600 * 1000000000ull)
#define RING_BYTES        (1024ull << 20)
#define KEPT_BYTES        (1024ull << 20)
#define QUIET_NS          (1800 * 1000000000ull)
#define PER_HOUR          4
#define KEEP_EVERY_MIN_NS (10 * 1000000000ull)
#define PUSH_EVERY_NS     (60 * 1000000000ull)
#define PUSH_EVERY_MIN_NS 1000000000ull

enum {
	OPT_STATE = 0x100,
	OPT_LAST,
	OPT_RENEW,
	OPT_RING_SIZE,
	OPT_KEEP_SIZE,
	OPT_LEAVE_FREE,
	OPT_TRIGGER,
	OPT_QUIET,
	OPT_PER_HOUR,
	OPT_KEEP_EVERY,
	OPT_BUDGET,
	OPT_LISTEN,
	OPT_TOKEN_FILE,
	OPT_TLS_CERT,
	OPT_TLS_KEY,
	OPT_TLS,
	OPT_PUSH,
	OPT_PUSH_HEADERS,
	OPT_PUSH_EVERY,
	OPT_CONFIG
};

static const struct argp_option options[] = {
	{"duration", 'd', "TIME", 0, "stop after TIME: 10s (or 10), 2m, 1h; default: never", 0},
	{"state", OPT_STATE, "FOLDER", 0, "keep the ring and the events there (default " STATE ")", 0},
	{"last", OPT_LAST, "TIME", 0, "keep the last TIME of all jobs in the ring (default 10m)", 0},
	{"renew", OPT_RENEW, "TIME", 0,
	 "begin a new ring when no job runs and this one is older than TIME (default 1h)", 0},
	{"ring-size", OPT_RING_SIZE, "SIZE", 0, "use at most SIZE of disk for the ring (default 1G)", 0},
	{"keep-size", OPT_KEEP_SIZE, "SIZE", 0, "use at most SIZE of disk for events; the oldest go (default 1G)", 0},
	{"leave-free", OPT_LEAVE_FREE, "SIZE", 0,
	 "pause while the disk has less than SIZE free (default: 10 % of it, at most 5 GB)", 0},
	{"trigger", OPT_TRIGGER, "slow[=TIME]|slower[=N]|straggler[=N]|stall[=TIME]|end", 0,
	 "keep what leads to this, as record --until describes it; may be given several times (default: all five)", 0},
	{"quiet", OPT_QUIET, "TIME", 0, "after an event of a job, keep no other of it for TIME (default 30m)", 0},
	{"per-hour", OPT_PER_HOUR, "N", 0, "keep at most N events an hour (default 4)", 0},
	{"keep-every", OPT_KEEP_EVERY, "TIME", 0,
	 "keep what the ring has of each job every TIME without an event, too, to compare with (default: never)", 0},
	{"budget", OPT_BUDGET, "PERCENT", 0, BUDGET_HELP, 0},
	{"frequency", 'F', "HZ", 0, "sample stacks HZ times a second, and record waits (default 19; 0: neither)", 0},
	{"listen", OPT_LISTEN, "ADDRESS:PORT", 0,
	 "give the metrics to scrapers that ask there over HTTP, such as 127.0.0.1:9465 (default: nowhere)", 0},
	{"token-file", OPT_TOKEN_FILE, "FILE", 0,
	 "give them only to those that know the token in FILE, which an address beyond this host needs", 0},
	{"tls-cert", OPT_TLS_CERT, "FILE", 0,
	 "speak TLS there, with the certificate in FILE (PEM, with those above it); a new one is used when FILE "
	 "changes",
	 0},
	{"tls-key", OPT_TLS_KEY, "FILE", 0, "its key (PEM)", 0},
	{"tls", OPT_TLS, "SWITCH", 0,
	 "on (default), or off: an address beyond this host does without, and the token goes over the network as it is",
	 0},
	{"push", OPT_PUSH, "URL", 0,
	 "push profiles of all jobs in pprof's format to a server, such as Pyroscope's http://HOST:4040/ingest "
	 "(default: nowhere)",
	 0},
	{"push-headers", OPT_PUSH_HEADERS, "FILE", 0,
	 "add the lines of FILE to each request, such as 'Authorization: Bearer TOKEN'", 0},
	{"push-every", OPT_PUSH_EVERY, "TIME", 0, "push what TIME has brought (default 1m)", 0},
	{"config", OPT_CONFIG, "FILE", 0,
	 "read the options that are not given here from FILE (default " CONFIG ", if it is there)", 0},
	{"json", 'j', NULL, 0, "status: print one JSON object", 0},
	{0},
};

struct watch_args {
	struct watch_options watch;
	struct watch_question question; /* verb NULL: none, watch */
	const char *config;             /* NULL: that of the host */
	bool triggers_of_file;          /* those that are set so far */
};

static void take_word(struct argp_state *state, struct watch_args *args, char *word)
{
	static const char *const verbs[] = {"status", "pause", "resume", "trigger"};

	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs) && !args->question.verb; i++) {
		if (!strcmp(word, verbs[i])) {
			args->question.verb = word;
			return;
		}
	}
	if (args->question.verb && strcmp(args->question.verb, "status") && !args->question.job)
		args->question.job = word;
	else
		argp_error(state,
			   args->question.verb ? "watch %2$s takes no argument '%1$s'" : "watch takes no argument '%s'",
			   word, args->question.verb);
}

static unsigned int parse_per_hour(struct argp_state *state, const char *text)
{
	char *end;
	unsigned long per_hour = strtoul(text, &end, 10);

	if (*end || *text == '-' || !per_hour || per_hour > WATCH_PER_HOUR_MAX)
		argp_error(state, "--per-hour wants 1 to %d, not '%s'", WATCH_PER_HOUR_MAX, text);
	return (unsigned int)per_hour;
}

static const char *parse_address(struct argp_state *state, const char *text)
{
	if (!listener__is_address(text))
		argp_error(state,
			   "--listen wants an address in digits and a port, 127.0.0.1:9465 or [::1]:9465, not '%s'",
			   text);
	return text;
}

static error_t parse_watch(int key, char *arg, struct argp_state *state)
{
	struct watch_args *args = state->input;
	struct watch_options *watch = &args->watch;

	switch (key) {
	case 'd':
		watch->duration_ns = session_args__time(state, arg);
		return 0;
	case OPT_STATE:
		watch->state = arg;
		return 0;
	case OPT_LAST:
		watch->last_ns = session_args__time(state, arg);
		if (watch->last_ns < RECORDING_LAST_MIN_NS)
			argp_error(state, "--last wants 1s or more, not '%s'", arg);
		return 0;
	case OPT_RENEW:
		watch->renew_ns = session_args__time(state, arg);
		return 0;
	case OPT_RING_SIZE:
		watch->ring_bytes = session_args__size(state, arg);
		if (watch->ring_bytes < RECORDING_LIMIT_MIN)
			argp_error(state, "--ring-size wants 1M or more, not '%s'", arg);
		return 0;
	case OPT_KEEP_SIZE:
		watch->kept_bytes = session_args__size(state, arg);
		return 0;
	case OPT_LEAVE_FREE:
		watch->leave_free = session_args__size(state, arg);
		return 0;
	case OPT_TRIGGER:
		if (args->triggers_of_file)
			watch->trigger = (struct trigger_options){};
		args->triggers_of_file = false;
		until__option(state, &watch->trigger, "--trigger", arg);
		return 0;
	case OPT_QUIET:
		watch->quiet_ns = session_args__time(state, arg);
		return 0;
	case OPT_PER_HOUR:
		watch->per_hour = parse_per_hour(state, arg);
		return 0;
	case OPT_KEEP_EVERY:
		watch->keep_every_ns = session_args__time(state, arg);
		if (watch->keep_every_ns < KEEP_EVERY_MIN_NS)
			argp_error(state, "--keep-every wants 10s or more, not '%s'", arg);
		return 0;
	case OPT_BUDGET:
		watch->session.budget = session_args__budget(state, arg);
		return 0;
	case 'F':
		watch->session.frequency = session_args__frequency(state, arg);
		return 0;
	case OPT_LISTEN:
		watch->listen.address = parse_address(state, arg);
		return 0;
	case OPT_TOKEN_FILE:
		watch->listen.token_file = arg;
		return 0;
	case OPT_TLS_CERT:
		watch->listen.cert_file = arg;
		return 0;
	case OPT_TLS_KEY:
		watch->listen.key_file = arg;
		return 0;
	case OPT_TLS:
		watch->listen.cleartext = !strcmp(arg, "off");
		if (!watch->listen.cleartext && strcmp(arg, "on"))
			argp_error(state, "--tls wants on or off, not '%s'", arg);
		return 0;
	case OPT_PUSH:
		if (!push__is_url(arg))
			argp_error(state,
				   "--push wants http://HOST... or https://HOST..., without a password "
				   "(--push-headers), not '%s'",
				   arg);
		watch->push.url = arg;
		return 0;
	case OPT_PUSH_HEADERS:
		watch->push.headers_file = arg;
		return 0;
	case OPT_PUSH_EVERY:
		watch->push.every_ns = session_args__time(state, arg);
		if (watch->push.every_ns < PUSH_EVERY_MIN_NS)
			argp_error(state, "--push-every wants 1s or more, not '%s'", arg);
		return 0;
	case OPT_CONFIG:
		args->config = arg;
		return 0;
	case 'j':
		args->question.json = true;
		return 0;
	case ARGP_KEY_ARG:
		take_word(state, args, arg);
		return 0;
	case ARGP_KEY_END:
		if (args->question.json && (!args->question.verb || strcmp(args->question.verb, "status")))
			argp_error(state, "--json is for watch status");
		if (!until__given(&watch->trigger))
			for (int kind = 0; kind < TRIGGER__COUNT; kind++)
				watch->trigger.on[kind] = true;
		watch->session.snapshot_ns = until__snapshot_ns(&watch->trigger, watch->last_ns);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp watch_argp = {
	.options = options,
	.parser = parse_watch,
	.args_doc = "\nstatus\npause [JOB]\nresume [JOB]\ntrigger [JOB]",
	.doc = "Watch all training jobs of this host, those too that start later, until SIGTERM or Ctrl-C. The last "
	       "minutes of all of them are in FOLDER/ring.rec. When a step is slow, a job stands still, or one of its "
	       "processes ends badly, the job's part of that is kept as a recording in FOLDER/events, with its summary "
	       "as text.\n\n"
	       "The other forms ask the one that watches: what it does; to leave all jobs, or one, until it is told to "
	       "resume; or to keep now what it has of a job, which is named as in the status, or by one of its "
	       "processes.\v"
	       "A process with STEPFLAME_WATCH=0 in its environment is left out.",
};

static volatile sig_atomic_t stop;

static void on_stop_signal(int signal)
{
	stop = 1;
}

/*
 * The line says which file, and wins over it: it is parsed before the file, and again after it. Who asks, and says where the one that
 * watches has its folder, needs no file. 0 or -errno after a message.
 */
static int parse_all(int argc, char **argv, struct config *config, struct watch_args *args)
{
	const struct watch_args defaults = *args;
	struct watch_question *question = &args->question;
	const char *path;
	bool says_state;
	int err;

	parse__or_die(&watch_argp, argc, argv, 0, args);
	path = args->config;
	says_state = args->watch.state != defaults.watch.state;
	if (!question->verb || !says_state) {
		*args = defaults;
		err = config__read(config, path ?: CONFIG, path);
		if (err)
			return err;
		args->triggers_of_file = until__given(&args->watch.trigger);
		parse__or_die(&watch_argp, argc, argv, 0, args);
	}
	question->state = args->watch.state;
	if (says_state || path)
		snprintf(question->state_from, sizeof(question->state_from), " --%s %s",
			 says_state ? "state" : "config", says_state ? question->state : path);
	return 0;
}

static int run_watch(int argc, char **argv)
{
	static const int never[] = {'d', OPT_CONFIG, 0};
	struct watch_args args = {
		.watch =
			{
				.state = STATE,
				.last_ns = LAST_NS,
				.renew_ns = RENEW_NS,
				.ring_bytes = RING_BYTES,
				.kept_bytes = KEPT_BYTES,
				.quiet_ns = QUIET_NS,
				.per_hour = PER_HOUR,
				.push = {.every_ns = PUSH_EVERY_NS},
				.session = {.frequency = WATCH_HZ, .step_times = true, .opt_out = WATCH_OPT_OUT},
			},
	};
	struct config config = {
		.argp = &watch_argp, .input = &args, .section = "watch", .never = never, .many = OPT_TRIGGER};
	struct sigaction action = {.sa_handler = on_stop_signal};
	int err;

	if (parse_all(argc, argv, &config, &args)) {
		config__free(&config);
		return SF_EXIT_USAGE;
	}
	if (args.question.verb) {
		err = watch_ask(&args.question);
	} else {
		sigaction(SIGINT, &action, NULL);
		sigaction(SIGTERM, &action, NULL);
		err = watch__run(&args.watch, &stop);
	}
	config__free(&config);
	return log__exit_code(err);
}

const struct command command_watch = {
	.name = "watch",
	.run = run_watch,
	.argp = &watch_argp,
	.help = "watch all jobs of this host, and keep what led to an event",
	.traces = true,
};
