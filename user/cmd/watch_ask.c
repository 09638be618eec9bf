// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/watch_ask.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/json.h"
#include "user/lib/log.h"
#include "user/lib/utf8.h"
#include "user/report/common.h"
#include "user/watch/control.h"

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
static int ask(const struct watch_question *question, const char *request, json_t **answer)
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
	int err = ask(question, request, answer);

	for (int i = 0; !err && json_object_get(*answer, "busy"); i++) {
		json_decref(*answer);
		if (i == ASKED_SECONDS * ASKED_HZ)
			return explain(question, -ETIMEDOUT);
		wait_a_little();
		err = ask(question, request, answer);
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

int watch_ask(const struct watch_question *question)
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
