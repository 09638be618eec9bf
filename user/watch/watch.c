// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/lib/json.h"
#include "user/lib/log.h"
#include "user/lib/output.h"
#include "user/proc/deputy.h"
#include "user/recording/recording.h"
#include "user/report/summary.h"
#include "user/watch/control.h"
#include "user/watch/events.h"
#include "user/watch/jobs.h"
#include "user/watch/listener.h"
#include "user/watch/metrics.h"
#include "user/watch/push.h"

#define ROOM_BYTES     5000000000ull /* of the disk that shall stay free, or ROOM_PERCENT of it, if that is less */
#define ROOM_PERCENT   10
#define ROOM_AGAIN     1.2 /* times as much ends the shortage */

#define POLL_MS        100

#define SCAN_SHARE     5              /* looks for jobs, with the attaches, take a fifth of a processor at most, */
#define SCANS_TOOK_MAX 60000000000ull /* once they have taken so much more */
#define METRICS_NS     5000000000ull
#define HOUR_NS        3600000000000ull
#define SCAN_NS        2000000000ull

enum watch_pause {
	WATCH_RUNS,
	WATCH_PAUSE_ASKED, /* by the file `paused` */
	WATCH_PAUSE_ROOM,  /* the disk is nearly full */
};

struct watch {
	const struct watch_options *options;
	char ring_path[PATH_MAX], events_path[PATH_MAX], metrics_path[PATH_MAX];
	char paused_path[PATH_MAX], paused_jobs_path[PATH_MAX];
	int lock;
	enum watch_pause pause; /* there is neither a session nor a ring */
	struct control control;
	struct listener listener;
	struct push push;
	struct session *session;
	struct recording_writer *ring;
	struct trigger *trigger;
	struct watched_jobs jobs;
	struct events events;
	struct metrics metrics;
	int failed;      /* -errno of what somebody has asked for: the end */
	int metrics_err; /* of the last time they were written */
	uint64_t now_ns, next_scan_ns, next_metrics_ns, next_room_ns;
	uint64_t scans_took_ns, scanned_at_ns; /* what scans have taken, less what they may; at the last one */
	bool scans_late;
	bool short_of_room; /* at the last look */
	uint64_t event_ns;  /* when the first event that waits was seen; 0: there is none */
	struct {
		bool goes_on;
		enum trigger_kind kind;
		uint32_t pid;
	} keeping; /* the event that is being kept */
	uint64_t kept_cnt,
		kept_ns[WATCH_PER_HOUR_MAX]; /* events, and when the last ones were: each at its number modulo that */
};

/* ---- the service manager: what sd_notify(3) tells it ---- */

/* Returns whether it was sent. */
static bool send_state(const char *state, int flags)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t bytes = path ? strlen(path) : 0;
	bool sent;
	int fd;

	if (!bytes || bytes >= sizeof(address.sun_path))
		return false;
	memcpy(address.sun_path, path, bytes);
	if (path[0] == '@')
		address.sun_path[0] = 0; /* a name that is in no file system */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | flags, (const struct sockaddr *)&address,
		      offsetof(struct sockaddr_un, sun_path) + bytes) >= 0;
	close(fd);
	return sent;
}

/* state: "READY=1", for which it waits until the manager has it, or another. Does nothing where no manager listens. */
static void notify_service(const char *state)
{
	/* A service that is never ready is ended; the end of one waits for nobody. */
	send_state(state, strcmp(state, "READY=1") ? MSG_DONTWAIT : 0);
}

/* Says that the loop goes on, as often as the manager wants to hear it (WatchdogSec=), if it does. now_ns: CLOCK_MONOTONIC. */
static void notify_alive(uint64_t now_ns)
{
	static uint64_t next_ns;
	const char *usec = getenv("WATCHDOG_USEC");
	uint64_t patience_ns = usec ? strtoull(usec, NULL, 10) * 1000 : 0;

	if (!patience_ns || now_ns < next_ns)
		return;
	if (send_state("WATCHDOG=1", MSG_DONTWAIT))
		next_ns = now_ns + patience_ns / 2;
}

/* ---- the room on the disk ---- */

bool room__is_short(uint64_t wanted, uint64_t total, uint64_t free, bool was_short)
{
	if (!wanted) {
		wanted = total / 100 * ROOM_PERCENT;
		if (wanted > ROOM_BYTES)
			wanted = ROOM_BYTES;
	}
	return free < wanted * (was_short ? ROOM_AGAIN : 1);
}

bool room__is_short_at(const char *folder, uint64_t wanted, bool was_short)
{
	struct statvfs disk;

	return !statvfs(folder, &disk) && room__is_short(wanted, (uint64_t)disk.f_blocks * disk.f_frsize,
							 (uint64_t)disk.f_bavail * disk.f_frsize, was_short);
}

/* ---- its CPU time ---- */

static uint64_t ns_of(const struct timeval *time)
{
	return time->tv_sec * 1000000000ull + time->tv_usec * 1000ull;
}

static uint64_t process_cpu_ns(pid_t pid)
{
	clockid_t clock;

	return pid && !clock_getcpuclockid(pid, &clock) ? clock__ns(clock) : 0;
}

/*
 * With its children: those that have ended, those that answer scrapers and push profiles, and the one that reads processes for
 * it. Never less than before: one of them may just have ended, and nobody has waited for it.
 */
static void note_cpu_time(struct watch *watch)
{
	uint64_t ns = clock__ns(CLOCK_PROCESS_CPUTIME_ID) + process_cpu_ns(watch->listener.child) +
		      process_cpu_ns(watch->push.sender);
	uint64_t of_deputy_ns = deputy__cpu_ns(), of_thread_ns = clock__ns(CLOCK_THREAD_CPUTIME_ID);
	struct rusage ended;

	getrusage(RUSAGE_CHILDREN, &ended);
	ns += ns_of(&ended.ru_utime) + ns_of(&ended.ru_stime);
	ns += of_deputy_ns > of_thread_ns ? of_deputy_ns - of_thread_ns : 0;
	if (ns > watch->metrics.cpu_ns)
		watch->metrics.cpu_ns = ns;
}

/* ---- what the one that watches says of itself and of its jobs: `watch status --json` ---- */

static json_t *process_json(const struct watched_process *process, const struct metrics *metrics, uint64_t now_ns)
{
	struct rank_progress progress;
	bool steps = metrics__progress(metrics, process->pid, &progress);
	json_t *rank = steps && progress.rank >= 0 ? json_integer(progress.rank) : json_null();
	/* It may have ended since the clock was read. */
	json_t *since = steps && progress.last_step_ns
				? json_real(now_ns > progress.last_step_ns ? (now_ns - progress.last_step_ns) / 1e9 : 0)
				: json_null();

	return json_pack("{s:i, s:o, s:I, s:o}", "pid", (int)process->pid, "rank", rank, "steps",
			 (json_int_t)(steps ? progress.steps : 0), "last_step_s", since);
}

static json_t *job_json(const struct watched_jobs *jobs, const struct watched_job *job, const struct metrics *metrics,
			uint64_t now_ns)
{
	const struct watched_process *all = jobs->processes.items;
	json_t *processes = json_array();

	for (size_t i = 0; i < jobs->processes.cnt; i++)
		if (all[i].job == job->number && all[i].attached && !all[i].ended)
			json_array_append_new(processes, process_json(&all[i], metrics, now_ns));
	return json_pack("{s:o, s:b, s:f, s:o}", "job", json__string(job->name), "paused", job->paused, "quiet_s",
			 job->quiet_until_ns > now_ns ? (job->quiet_until_ns - now_ns) / 1e9 : 0., "processes",
			 processes);
}

static json_t *events_json(const struct metrics *metrics)
{
	json_t *events = json_object();

	for (int kind = 0; kind < TRIGGER__COUNT; kind++)
		json_object_set_new(events, trigger_names[kind],
				    json_pack("{s:I, s:I}", "kept", (json_int_t)metrics->events[kind][1], "not_kept",
					      (json_int_t)metrics->events[kind][0]));
	return events;
}

/* Returns a new object; NULL: no memory. */
static json_t *status_json(const struct watched_jobs *jobs, const struct metrics *metrics, uint64_t now_ns,
			   uint64_t ring_bytes, enum watch_pause pause)
{
	const struct watched_job *job = jobs->jobs.items;
	json_t *list = json_array();
	static const char *const by[] = {
		[WATCH_RUNS] = NULL, [WATCH_PAUSE_ASKED] = "file", [WATCH_PAUSE_ROOM] = "disk"};
	struct rusage used;

	for (size_t i = 0; i < jobs->jobs.cnt; i++)
		if (job[i].alive)
			json_array_append_new(list, job_json(jobs, &job[i], metrics, now_ns));
	getrusage(RUSAGE_SELF, &used);
	return json_pack("{s:s, s:s, s:b, s:s?, s:I, s:f, s:I, s:o, s:o}", "report", "watch", "stepflame",
			 STEPFLAME_VERSION, "paused", pause != WATCH_RUNS, "paused_by", by[pause], "ring_bytes",
			 (json_int_t)ring_bytes, "cpu_s", metrics->cpu_ns / 1e9, "rss_max_bytes",
			 (json_int_t)used.ru_maxrss * 1024, "events", events_json(metrics), "jobs", list);
}

/* ---- what is kept of jobs: of events, and what is asked for; children copy it (user/watch/events.h) ---- */

/*
 * May this one be kept? So many an hour, and none soon after another of the job, but for its first bad end.
 * job: NULL for a process that a watched one has started.
 */
static bool is_wanted(struct watch *watch, const struct watched_job *job, enum trigger_kind kind)
{
	if (job && watch->now_ns < job->quiet_until_ns && (kind != TRIGGER_END || job->end_kept))
		return false;
	if (watch->kept_cnt < watch->options->per_hour)
		return true;
	return watch->now_ns - watch->kept_ns[(watch->kept_cnt - watch->options->per_hour) % WATCH_PER_HOUR_MAX] >=
	       HOUR_NS;
}

static void count_kept(struct watch *watch)
{
	watch->kept_ns[watch->kept_cnt++ % WATCH_PER_HOUR_MAX] = watch->now_ns;
}

/* Has the event that was being kept been kept? If it was not, the next one of its job is no second one. */
static void settle_event(struct watch *watch)
{
	struct watched_job *job;

	if (!watch->keeping.goes_on || events__busy(&watch->events))
		return;
	watch->keeping.goes_on = false;
	watch->metrics.events[watch->keeping.kind][watch->events.kept]++;
	job = watch->events.kept ? NULL : watched_jobs__of(&watch->jobs, watch->keeping.pid);
	if (!job)
		return;
	job->quiet_until_ns = 0;
	job->end_kept = job->end_kept && watch->keeping.kind != TRIGGER_END;
}

/*
 * Begins to keep what the ring has of a process's job. name, kind: for the name of the file. since_ns: when it began. what: a
 * sentence. 0 or -errno that ends the session.
 */
static int keep_job(struct watch *watch, uint32_t pid, const char *name, const char *kind, uint64_t since_ns,
		    const char *what)
{
	const struct watched_job *job = watched_jobs__of(&watch->jobs, pid);
	struct recording_part part = {};
	int err = session__snapshot(watch->session) ?: recording_part__add(&part, pid);

	settle_event(watch);
	if (!err && job)
		err = watched_jobs__part(&watch->jobs, job->number, &part);
	if (!err && events__keep(&watch->events, watch->ring, &part, name, kind, since_ns, what))
		log__error(NULL, "%s: what led to it cannot be kept", what);
	recording_part__free(&part);
	return err;
}

static int keep_event(struct watch *watch, const struct trigger_event *event)
{
	struct watched_job *job = watched_jobs__of(&watch->jobs, event->pid);
	char text[SUMMARY_EVENT_BYTES], name[WATCHED_NAME], what[SUMMARY_EVENT_BYTES + WATCHED_NAME + 8];
	bool wanted = is_wanted(watch, job, event->kind);
	int err;

	watched_jobs__name(&watch->jobs, event->pid, name);
	snprintf(what, sizeof(what), "job %s: %s", name, summary_text__event(event, text));
	if (!wanted) {
		watch->metrics.events[event->kind][false]++;
		log__info("%s. Not kept: enough was, in the last time", what);
		return 0;
	}
	count_kept(watch);
	if (job) {
		job->quiet_until_ns = watch->now_ns + watch->options->quiet_ns;
		job->end_kept |= event->kind == TRIGGER_END;
	}
	err = keep_job(watch, event->pid, name, trigger_names[event->kind], event->start_ns, what);
	watch->keeping.goes_on = true; /* or could not begin */
	watch->keeping.kind = event->kind;
	watch->keeping.pid = event->pid;
	return err;
}

/* Keeps the next event, if there is one and it may be kept. 0 or -errno that ends the session. */
static int keep_next_event(struct watch *watch)
{
	const struct trigger_event *event = trigger__check(watch->trigger, watch->now_ns);
	int err;

	settle_event(watch);
	if (!event->seen)
		return 0;
	watch->event_ns = watch->event_ns ?: watch->now_ns;
	if (watch->now_ns - watch->event_ns < TRIGGER_GOES_ON_NS || events__busy(&watch->events))
		return 0;
	if (event->unreported)
		log__warn(NULL, "%" PRIu64 " more events came while %d waited to be kept: these are not",
			  event->unreported, TRIGGER_EVENTS_MAX);
	err = keep_event(watch, event);
	trigger__take(watch->trigger);
	watch->event_ns = trigger__check(watch->trigger, watch->now_ns)->seen ? watch->now_ns : 0;
	return err;
}

/* The ring keeps what tells of an event until that is kept, too: from when on. */
static uint64_t kept_from(const struct watch *watch)
{
	const struct trigger_event *event = trigger__check(watch->trigger, watch->now_ns);

	return event->seen && event->start_ns < watch->now_ns ? event->start_ns : watch->now_ns;
}

/* A process that is recorded; 0: there is none. */
static uint32_t recorded_process(const struct watch *watch, const struct watched_job *job)
{
	const struct watched_process *all = watch->jobs.processes.items;

	for (size_t i = 0; i < watch->jobs.processes.cnt; i++)
		if (all[i].job == job->number && all[i].attached && !all[i].ended)
			return all[i].pid;
	return 0;
}

/* What is usual is kept, too, to compare with. One job at a time. 0 or -errno that ends the session. */
static int keep_regularly(struct watch *watch)
{
	struct watched_job *job = watch->jobs.jobs.items;
	char what[WATCHED_NAME + 32];
	uint32_t pid;

	if (!watch->options->keep_every_ns || events__busy(&watch->events))
		return 0;
	for (size_t i = 0; i < watch->jobs.jobs.cnt; i++) {
		pid = recorded_process(watch, &job[i]);
		if (!job[i].regular_ns)
			job[i].regular_ns = watch->now_ns;
		if (!pid || job[i].paused || watch->now_ns - job[i].regular_ns < watch->options->keep_every_ns)
			continue;
		job[i].regular_ns = watch->now_ns;
		snprintf(what, sizeof(what), "job %s: as it is now", job[i].name);
		return keep_job(watch, pid, job[i].name, "regular", 0, what);
	}
	return 0;
}

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

/* ---- the ring and the session; pauses ---- */

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

/* Opens a ring and a session without jobs. */
static int begin_session(struct watch *watch)
{
	return open_ring(watch) ?: session__new(&watch->options->session, add_record, watch, &watch->session)
					  ?: session__open(watch->session);
}

static int end_session(struct watch *watch, bool finish)
{
	int err = finish && watch->session ? session__finish(watch->session) : 0, ring_err;

	session__free(watch->session);
	watch->session = NULL;
	ring_err = recording_writer__free(watch->ring);
	watch->ring = NULL;
	return err ?: ring_err;
}

/* The last records still go to the ring, the metrics and the trigger; then nothing is left of the processes. */
static int pause_all(struct watch *watch)
{
	int err = end_session(watch, true);

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
		watch->next_room_ns = watch->now_ns + SCAN_NS;
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

/* Finds out whether it has to pause, and pauses or goes on. 0 or -errno. */
static int settle_pause(struct watch *watch)
{
	enum watch_pause before = watch->pause;
	int err = 0;

	watch->pause = find_pause(watch);
	if (watch->pause == before)
		return 0;
	if (!watch->pause) {
		log__info("goes on: %s",
			  before == WATCH_PAUSE_ASKED ? "the file that paused it is gone" : "the disk has room again");
		return begin_session(watch);
	}
	if (!before)
		err = pause_all(watch);
	say_pause(watch, "has left all jobs");
	return err;
}

/* ---- what others ask it for: an object, with "error" and "fix" where it is refused ---- */

static json_t *refusal(const char *fix, const char *fmt, ...)
{
	char text[CONTROL_REQUEST + 128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return json_pack("{s:o, s:s}", "error", json__string(text), "fix", fix);
}

static json_t *end_answer(const struct watch *watch)
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
		return watch->failed ? end_answer(watch)
				     : json_pack("{s:b, s:o}", "paused", pause, "job", json__string(job->name));
	}
	err = set_paused(watch, pause);
	if (err)
		return refusal("change the file by hand", "cannot change %s: %s", watch->paused_path, strerror(-err));
	watch->failed = settle_pause(watch);
	return watch->failed ? end_answer(watch) : json_pack("{s:b}", "paused", watch->pause != WATCH_RUNS);
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
	watch->failed = keep_job(watch, recorded_process(watch, job), job->name, "asked", 0, what);
	if (watch->failed)
		return end_answer(watch);
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
static bool is_request(const char *request, const char *verb, const char **job)
{
	size_t bytes = strlen(verb);

	if (strncmp(request, verb, bytes) || (request[bytes] && request[bytes] != ' '))
		return false;
	*job = request[bytes] ? request + bytes + 1 : NULL;
	return true;
}

/* Of a struct watch, as control__serve wants it. */
static json_t *answer_request(const char *request, void *ctx)
{
	struct watch *watch = ctx;
	const char *name;

	if (watch->failed)
		return end_answer(watch);
	if (!strcmp(request, "status")) {
		note_cpu_time(watch);
		return status_json(&watch->jobs, &watch->metrics, watch->now_ns,
				   watch->ring ? recording_writer__bytes(watch->ring) : 0, watch->pause);
	}
	if (is_request(request, "pause", &name) || is_request(request, "resume", &name))
		return answer_pause(watch, *request == 'p', name);
	if (is_request(request, "trigger", &name))
		return answer_trigger(watch, name);
	if (is_request(request, "kept", &name) && name)
		return answer_kept(watch, name);
	return refusal("update the older of the two", "the one that watches does not know the request '%s'", request);
}

/* ---- from time to time ---- */

/* A monitoring system that gets nothing for a while is no reason to end. */
static void write_metrics(struct watch *watch, const struct session_progress *progress)
{
	int err;

	note_cpu_time(watch);
	err = metrics__write(&watch->metrics, &watch->jobs, progress, recording_writer__bytes(watch->ring),
			     watch->metrics_path);
	if (err && !watch->metrics_err)
		log__warn(NULL, "cannot write %s: %s", watch->metrics_path, strerror(-err));
	watch->metrics_err = err;
}

/* progress: NULL: it is paused, and there are none. */
static void publish_metrics(struct watch *watch, const struct session_progress *progress)
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
static uint64_t pace_scans(struct watch *watch, uint64_t took_ns)
{
	uint64_t since_ns = watch->now_ns - watch->scanned_at_ns, paid_ns = since_ns / SCAN_SHARE;

	watch->scans_took_ns = (watch->scans_took_ns > paid_ns ? watch->scans_took_ns - paid_ns : 0) + took_ns;
	watch->scanned_at_ns = watch->now_ns;
	if (!watch->scans_took_ns)
		watch->scans_late = false;
	if (watch->scans_took_ns <= SCANS_TOOK_MAX)
		return 0;
	if (!watch->scans_late)
		log__warn("stepflame ps shows them",
			  "looks for new jobs less often: many processes that have torch come and go, or the host has "
			  "very many");
	watch->scans_late = true;
	return watch->now_ns + (watch->scans_took_ns - SCANS_TOOK_MAX) * SCAN_SHARE;
}

static int scan_for_jobs(struct watch *watch)
{
	uint64_t begin_ns, late_ns;
	int got;

	if (watch->now_ns < watch->next_scan_ns)
		return 0;
	begin_ns = deputy__cpu_ns();
	got = watched_jobs__update(&watch->jobs, watch->session);
	late_ns = pace_scans(watch, deputy__cpu_ns() - begin_ns);
	watch->next_scan_ns = got > 0 ? 0 : watch->now_ns + SCAN_NS;
	if (watch->next_scan_ns < late_ns)
		watch->next_scan_ns = late_ns;
	return got < 0 ? got : 0;
}

/*
 * While no job runs, an old ring ends and a new one begins: it would keep what is known of the jobs
 * that have ended, up to the limits of user/recording/trim.h.
 */
static int renew_ring(struct watch *watch, const struct session_progress *progress)
{
	if (progress->elapsed_ns < watch->options->renew_ns || watch->event_ns ||
	    !watched_jobs__all_ended(&watch->jobs) || events__busy(&watch->events))
		return 0;
	metrics__name(&watch->metrics, &watch->jobs);
	watched_jobs__free(&watch->jobs);
	return end_session(watch, true) ?: begin_session(watch);
}

/* ---- together ---- */

/* One turn of the loop: 0 or -errno. */
static int watch_for_a_while(struct watch *watch, struct session_progress *progress)
{
	int err = session__poll(watch->session, POLL_MS);

	session__progress(watch->session, progress);
	watch->now_ns = progress->now_ns;
	err = err ?: recording_writer__tick(watch->ring, kept_from(watch)) ?: scan_for_jobs(watch) ?: keep_next_event(watch);
	err = err ?: keep_regularly(watch) ?: push_profiles(watch);
	events__busy(&watch->events);
	publish_metrics(watch, progress);
	return err ?: renew_ring(watch, progress);
}

static int run_loop(struct watch *watch, const volatile sig_atomic_t *stop)
{
	const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
	uint64_t duration_ns = watch->options->duration_ns, start_ns = clock__ns(CLOCK_MONOTONIC);
	struct session_progress progress = {};
	int err = 0;

	while (!err && !*stop && (!duration_ns || watch->now_ns < start_ns + duration_ns)) {
		if (watch->pause) {
			settle_event(watch);
			events__busy(&watch->events);
			nanosleep(&pause, NULL);
			watch->now_ns = clock__ns(CLOCK_MONOTONIC);
			publish_metrics(watch, NULL);
		} else {
			err = watch_for_a_while(watch, &progress);
		}
		notify_alive(watch->now_ns);
		err = err ?: settle_pause(watch);
		if (!err)
			control__serve(&watch->control, answer_request, watch);
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
		err = watch.pause ? 0 : begin_session(&watch);
	}
	if (!err) {
		log__info("watches the training jobs of this host; what happens is kept in %s", watch.events_path);
		if (watch.pause) {
			unlink(watch.metrics_path); /* of one that was killed */
			say_pause(&watch, "leaves all jobs alone");
		}
		notify_service("READY=1");
		err = run_loop(&watch, stop);
		notify_service("STOPPING=1");
		unlink(watch.metrics_path); /* nobody keeps it up to date any more */
		if (err)
			log__error(err == -ENOSPC ? "free some space, or choose another folder with --state" : NULL,
				   "cannot go on watching: %s", strerror(-err));
	}
	end_err = end_session(&watch, !err);
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
