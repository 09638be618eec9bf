// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What others ask the one that watches for. In: requests. Out: objects, with "error" and "fix" where it is refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "user/watch/state.h"

static json_t *refusal(const char *fix, const char *fmt, ...)
{
	char text[CONTROL_REQUEST + 128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return json_pack("{s:o, s:s}", "error", json__string(text), "fix", fix);
}

static json_t *ends(const struct watch *watch)
{
	return refusal("look at its messages", "the one that watches ends: %s", strerror(-watch->failed));
}

/* 0 or -errno. */
static int set_paused(const struct watch *watch, bool paused)
{
	int fd;

	if (!paused)
		return unlink(watch->paused_path) && errno != ENOENT ? -errno : 0;
	fd = open(watch->paused_path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* NULL: *answer says why. name: NULL: the only job. */
static struct watched_job *find_job(struct watch *watch, const char *name, json_t **answer)
{
	struct watched_job *job;
	size_t cnt;

	if (watch->pause) {
		*answer = refusal(watch->pause == WATCH_PAUSE_ASKED ? "stepflame watch resume"
								    : "free some space on its disk",
				  "the watch is paused");
		return NULL;
	}
	job = watched_jobs__named(&watch->jobs, name, &cnt);
	if (!job && name)
		*answer = refusal("stepflame watch status shows the jobs",
				  cnt ? "several jobs go by '%s'" : "no job that runs goes by '%s'", name);
	else if (!job)
		*answer = refusal(cnt ? "name one: stepflame watch trigger JOB; stepflame watch status shows them"
				      : "wait until one runs",
				  "%zu jobs run", cnt);
	return job;
}

/* name: NULL: all jobs. */
static json_t *answer_pause(struct watch *watch, bool pause, const char *name)
{
	struct watched_job *job;
	json_t *refused;
	int err;

	if (name) {
		job = find_job(watch, name, &refused);
		if (!job)
			return refused;
		watch->failed = watched_jobs__pause(&watch->jobs, job, watch->session, pause);
		return watch->failed ? ends(watch)
				     : json_pack("{s:b, s:o}", "paused", pause, "job", json__string(job->name));
	}
	err = set_paused(watch, pause);
	if (err)
		return refusal("change the file by hand", "cannot change %s: %s", watch->paused_path, strerror(-err));
	watch->failed = watch__settle_pause(watch);
	return watch->failed ? ends(watch) : json_pack("{s:b}", "paused", watch->pause != WATCH_RUNS);
}

/* name: NULL: the only job. */
static json_t *answer_trigger(struct watch *watch, const char *name)
{
	json_t *refused;
	const struct watched_job *job = find_job(watch, name, &refused);
	char what[WATCHED_NAME + 32];

	if (!job)
		return refused;
	if (events__busy(&watch->events))
		return json_pack("{s:b}", "busy", 1);
	snprintf(what, sizeof(what), "job %s: asked for", job->name);
	watch->failed = watch__keep_job(watch, watch__process_of(watch, job), job->name, "asked", 0, what);
	if (watch->failed)
		return ends(watch);
	if (!watch->events.child)
		return refusal("look at the messages of the one that watches", "%s: it cannot be kept", what);
	return json_pack("{s:o}", "name", json__string(watch->events.last));
}

/* Is what was asked for before kept? Its summary is written last. */
static json_t *answer_kept(struct watch *watch, const char *name)
{
	char summary[PATH_MAX + CONTROL_REQUEST];

	if (!strcmp(name, watch->events.last) && events__busy(&watch->events))
		return json_pack("{s:b}", "busy", 1);
	snprintf(summary, sizeof(summary), "%s/%s.txt", watch->events_path, name);
	if (access(summary, F_OK))
		return refusal("look at the messages of the one that watches", "%s could not be kept", name);
	return json_object();
}

/* Does the request begin with that word? *job: what is behind it, or NULL. */
static bool asks(const char *request, const char *verb, const char **job)
{
	size_t bytes = strlen(verb);

	if (strncmp(request, verb, bytes) || (request[bytes] && request[bytes] != ' '))
		return false;
	*job = request[bytes] ? request + bytes + 1 : NULL;
	return true;
}

json_t *watch__answer(const char *request, void *ctx)
{
	struct watch *watch = ctx;
	const char *name;

	if (watch->failed)
		return ends(watch);
	if (!strcmp(request, "status"))
		return status__json(&watch->jobs, &watch->metrics, watch->now_ns,
				    watch->ring ? recording_writer__bytes(watch->ring) : 0, watch->pause);
	if (asks(request, "pause", &name) || asks(request, "resume", &name))
		return answer_pause(watch, *request == 'p', name);
	if (asks(request, "trigger", &name))
		return answer_trigger(watch, name);
	if (asks(request, "kept", &name) && name)
		return answer_kept(watch, name);
	return refusal("update the older of the two", "the one that watches does not know the request '%s'", request);
}
