// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/lib/output.h"
#include "user/proc/deputy.h"
#include "user/watch/notify.h"
#include "user/watch/room.h"
#include "user/watch/state.h"

#define POLL_MS    100
#define LOOK_NS    2000000000ull
#define LOOK_SHARE 5              /* looks for jobs, with the attaches, take a fifth of a processor at most, */
#define LOOKED_MAX 60000000000ull /* once they have taken so much more */
#define METRICS_NS 5000000000ull

/* ---- the folder ---- */

static int refuse_folder(const char *path, int err)
{
	log__error("choose another folder with --state", "cannot use the folder %s: %s", path, strerror(-err));
	return err;
}

/* What is there is none of ours, as we make it. */
static int refuse_entry(const char *folder, const char *name, int err)
{
	log__error("move it away, or choose another folder with --state", "cannot use %s/%s: %s", folder, name,
		   strerror(-err));
	return err;
}

/* Only one may use the folder. */
static int lock_folder(struct watch *watch)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/lock", watch->options->state);
	watch->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (watch->lock < 0)
		return refuse_entry(watch->options->state, "lock", -errno);
	if (!flock(watch->lock, LOCK_EX | LOCK_NB))
		return 0;
	log__error("stop that one, or choose another folder with --state",
		   "another stepflame watches already, and uses %s", watch->options->state);
	return -EBUSY;
}

static int open_folder(struct watch *watch)
{
	const char *state = watch->options->state;
	struct output output;
	int err;

	snprintf(watch->ring_path, sizeof(watch->ring_path), "%s/ring.rec", state);
	snprintf(watch->events_path, sizeof(watch->events_path), "%s/events", state);
	snprintf(watch->metrics_path, sizeof(watch->metrics_path), "%s/metrics.prom", state);
	snprintf(watch->paused_path, sizeof(watch->paused_path), "%s/paused", state);
	snprintf(watch->paused_jobs_path, sizeof(watch->paused_jobs_path), "%s/paused-jobs", state);
	err = output__make_folder(watch->events_path, &output);
	if (err) {
		output__explain(watch->events_path, &output, err);
		return err;
	}
	err = lock_folder(watch);
	if (err)
		return err;
	err = control__open(&watch->control, state);
	if (err)
		return refuse_entry(state, CONTROL_NAME, err);
	return listener__open(&watch->listener, &watch->options->listen)
		       ?: push__open(&watch->push, &watch->options->push);
}

/* What the ring had so far may be what somebody looks for: it takes another name. */
static int open_ring(struct watch *watch)
{
	char before[PATH_MAX];
	int err;

	snprintf(before, sizeof(before), "%s/ring-before.rec", watch->options->state);
	if (rename(watch->ring_path, before) && errno != ENOENT)
		return refuse_entry(watch->options->state, "ring-before.rec", -errno);
	err = recording_writer__new(watch->ring_path, &watch->ring);
	if (err)
		return err;
	err = recording_writer__limit(watch->ring, watch->ring_path, watch->options->ring_bytes)
		      ?: recording_writer__keep_last(watch->ring, watch->ring_path, watch->options->last_ns);
	return err ? refuse_folder(watch->options->state, err) : 0;
}

/* ---- records ---- */

static int add_record(const struct rec_hdr *record, void *ctx)
{
	const struct rec_proc *proc = (const void *)record;
	struct watch *watch = ctx;

	if (trigger__add(watch->trigger, record, watch->now_ns) || metrics__add(&watch->metrics, record, watch->now_ns))
		return -ENOMEM;
	if (record && record->type == REC_PROC && proc->event == PROC_EXIT)
		watched_jobs__end(&watch->jobs, proc->pid);
	return record ? recording_writer__append(watch->ring, record) : recording_writer__mark(watch->ring);
}

/* ---- from time to time ---- */

/* A monitoring system that gets nothing for a while is no reason to end. */
static void write_metrics(struct watch *watch, const struct session_progress *progress)
{
	int err = metrics__write(&watch->metrics, &watch->jobs, progress, recording_writer__bytes(watch->ring),
				 watch->metrics_path);

	if (err && !watch->metrics_err)
		log__warn(NULL, "cannot write %s: %s", watch->metrics_path, strerror(-err));
	watch->metrics_err = err;
}

/* progress: NULL: it is paused, and there are none. */
static void tell_metrics(struct watch *watch, const struct session_progress *progress)
{
	if (watch->now_ns < watch->next_metrics_ns)
		return;
	watch->next_metrics_ns = watch->now_ns + METRICS_NS;
	if (progress)
		write_metrics(watch, progress);
	listener__tell(&watch->listener, progress ? watch->metrics_path : NULL, watch->now_ns);
}

/* 0 or -errno that ends the session. */
static int push_profiles(struct watch *watch)
{
	bool due = push__is_due(&watch->push, watch->now_ns);
	int err = due ? session__snapshot(watch->session) : 0;

	if (due && !err)
		push__now(&watch->push, watch->ring, &watch->jobs, &watch->metrics, watch->now_ns);
	watch->metrics.pushes = watch->options->push.url;
	watch->metrics.sent = push__sent(&watch->push);
	watch->metrics.lost = push__lost(&watch->push);
	return err;
}

/* Of a host with very many processes, or on which jobs come and go all the time. When may the next one be? */
static uint64_t pace_looks(struct watch *watch, uint64_t took_ns)
{
	uint64_t since_ns = watch->now_ns - watch->looked_at_ns, paid_ns = since_ns / LOOK_SHARE;

	watch->looked_ns = (watch->looked_ns > paid_ns ? watch->looked_ns - paid_ns : 0) + took_ns;
	watch->looked_at_ns = watch->now_ns;
	if (!watch->looked_ns)
		watch->looks_late = false;
	if (watch->looked_ns <= LOOKED_MAX)
		return 0;
	if (!watch->looks_late)
		log__warn("stepflame ps shows them",
			  "looks for new jobs less often: many processes that have torch come and go, or the host has "
			  "very many");
	watch->looks_late = true;
	return watch->now_ns + (watch->looked_ns - LOOKED_MAX) * LOOK_SHARE;
}

static int look_for_jobs(struct watch *watch)
{
	uint64_t begin_ns, late_ns;
	int got;

	if (watch->now_ns < watch->next_look_ns)
		return 0;
	begin_ns = deputy__cpu_ns();
	got = watched_jobs__look(&watch->jobs, watch->session);
	late_ns = pace_looks(watch, deputy__cpu_ns() - begin_ns);
	watch->next_look_ns = got > 0 ? 0 : watch->now_ns + LOOK_NS;
	if (watch->next_look_ns < late_ns)
		watch->next_look_ns = late_ns;
	return got < 0 ? got : 0;
}

/* Opens a ring and a session without jobs. */
static int begin(struct watch *watch)
{
	return open_ring(watch) ?: session__new(&watch->options->session, add_record, watch, &watch->session)
					  ?: session__open(watch->session);
}

static int end(struct watch *watch, bool finish)
{
	int err = finish && watch->session ? session__finish(watch->session) : 0, ring_err;

	session__free(watch->session);
	watch->session = NULL;
	ring_err = recording_writer__free(watch->ring);
	watch->ring = NULL;
	return err ?: ring_err;
}

/*
 * While no job runs, an old ring ends and a new one begins: it would keep what is known of the jobs
 * that have ended, up to the limits of user/recording/trim.h.
 */
static int renew(struct watch *watch, const struct session_progress *progress)
{
	if (progress->elapsed_ns < watch->options->renew_ns || watch->event_ns ||
	    !watched_jobs__all_ended(&watch->jobs))
		return 0;
	events__end(&watch->events);
	watched_jobs__free(&watch->jobs);
	return end(watch, true) ?: begin(watch);
}

/* ---- pauses ---- */

/* The last records still go to the ring, the metrics and the trigger; then nothing is left of the processes. */
static int pause_all(struct watch *watch)
{
	int err = end(watch, true);

	push__skip(&watch->push);
	watched_jobs__free(&watch->jobs);
	metrics__forget(&watch->metrics);
	trigger__free(watch->trigger);
	watch->trigger = trigger__new(&watch->options->trigger);
	watch->event_ns = 0;
	unlink(watch->metrics_path);
	watch->next_metrics_ns = 0;
	return err ?: watch->trigger ? 0 : -ENOMEM;
}

/* A file tells that somebody has asked for it, so that a pause outlasts this process, and needs no command. */
static enum watch_pause find_pause(struct watch *watch)
{
	if (!access(watch->paused_path, F_OK) || errno != ENOENT)
		return WATCH_PAUSE_ASKED;
	if (watch->now_ns >= watch->next_room_ns) {
		watch->next_room_ns = watch->now_ns + LOOK_NS;
		watch->short_of_room =
			room__is_short_at(watch->options->state, watch->options->leave_free, watch->short_of_room);
	}
	return watch->short_of_room ? WATCH_PAUSE_ROOM : WATCH_RUNS;
}

static void say_pause(const struct watch *watch, const char *what)
{
	if (watch->pause == WATCH_PAUSE_ASKED)
		log__info("pauses, and %s, while there is %s", what, watch->paused_path);
	else
		log__warn("free some space, or choose another folder with --state; --leave-free says how much is for "
			  "others",
			  "pauses, and %s: the disk of %s is nearly full", what, watch->options->state);
}

int watch__settle_pause(struct watch *watch)
{
	enum watch_pause before = watch->pause;
	int err = 0;

	watch->pause = find_pause(watch);
	if (watch->pause == before)
		return 0;
	if (!watch->pause) {
		log__info("goes on: %s",
			  before == WATCH_PAUSE_ASKED ? "the file that paused it is gone" : "the disk has room again");
		return begin(watch);
	}
	if (!before)
		err = pause_all(watch);
	say_pause(watch, "has left all jobs");
	return err;
}

/* ---- together ---- */

/* One turn of the loop: 0 or -errno. */
static int watch_for_a_while(struct watch *watch, struct session_progress *progress)
{
	int err = session__poll(watch->session, POLL_MS);

	session__progress(watch->session, progress);
	watch->now_ns = progress->now_ns;
	err = err ?: recording_writer__tick(watch->ring, watch__kept_from(watch)) ?: look_for_jobs(watch) ?: watch__look_for_events(watch);
	err = err ?: watch__keep_regularly(watch) ?: push_profiles(watch);
	events__busy(&watch->events);
	tell_metrics(watch, progress);
	return err ?: renew(watch, progress);
}

static int run(struct watch *watch, const volatile sig_atomic_t *stop)
{
	const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
	uint64_t duration_ns = watch->options->duration_ns, start_ns = clock__ns(CLOCK_MONOTONIC);
	struct session_progress progress = {};
	int err = 0;

	while (!err && !*stop && (!duration_ns || watch->now_ns < start_ns + duration_ns)) {
		if (watch->pause) {
			events__busy(&watch->events);
			nanosleep(&pause, NULL);
			watch->now_ns = clock__ns(CLOCK_MONOTONIC);
			tell_metrics(watch, NULL);
		} else {
			err = watch_for_a_while(watch, &progress);
		}
		notify__alive(watch->now_ns);
		err = err ?: watch__settle_pause(watch);
		if (!err)
			control__serve(&watch->control, watch__answer, watch);
		err = err ?: watch->failed;
	}
	return err;
}

int watch__run(const struct watch_options *options, const volatile sig_atomic_t *stop)
{
	struct watch watch = {
		.options = options, .lock = -1, .control.fd = -1, .trigger = trigger__new(&options->trigger)};
	int err, end_err;

	watch.jobs.paused_path = watch.paused_jobs_path;
	watch.events = (struct events){.folder = watch.events_path, .max_bytes = options->kept_bytes};
	err = watch.trigger ? open_folder(&watch) : -ENOMEM;
	if (!err) {
		watch.now_ns = clock__ns(CLOCK_MONOTONIC);
		watch.pause = find_pause(&watch);
		err = watch.pause ? 0 : begin(&watch);
	}
	if (!err) {
		log__info("watches the training jobs of this host; what happens is kept in %s", watch.events_path);
		if (watch.pause) {
			unlink(watch.metrics_path); /* of one that was killed */
			say_pause(&watch, "leaves all jobs alone");
		}
		notify__service("READY=1");
		err = run(&watch, stop);
		notify__service("STOPPING=1");
		unlink(watch.metrics_path); /* nobody keeps it up to date any more */
		if (err)
			log__error(err == -ENOSPC ? "free some space, or choose another folder with --state" : NULL,
				   "cannot go on watching: %s", strerror(-err));
	}
	end_err = end(&watch, !err);
	control__close(&watch.control);
	listener__close(&watch.listener);
	push__close(&watch.push);
	events__end(&watch.events);
	trigger__free(watch.trigger);
	metrics__free(&watch.metrics);
	watched_jobs__free(&watch.jobs);
	if (watch.lock >= 0)
		close(watch.lock);
	return err ?: end_err;
}
