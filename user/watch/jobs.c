// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/lib/output.h"
#include "user/proc/deputy.h"
#include "user/proc/environ.h"
#include "user/proc/proc.h"

#define ENDED_KEPT    512 /* processes that have ended, whose records may still be in the recording */
#define COMMAND_SHOWN 80
#define PAUSED_BYTES  (1 << 20)
#define LOOK_NS       1000000000ull  /* for so long a look may examine processes: many may not answer */
#define PARTIAL_NS    30000000000ull /* looks that never end keep a job from being watched for so long */
#define LAUNCHED_NS   6000000000ull  /* a launcher may look like a trainer for so long, while it ends */

static struct watched_process *process_of(const struct watched_jobs *jobs, uint32_t pid, uint64_t start_time)
{
	struct watched_process *all = jobs->processes.items;

	for (size_t i = 0; i < jobs->processes.cnt; i++)
		if (all[i].pid == pid && all[i].start_time == start_time)
			return &all[i];
	return NULL;
}

static struct watched_job *job_of(const struct watched_jobs *jobs, uint32_t number)
{
	struct watched_job *all = jobs->jobs.items;

	for (size_t i = 0; i < jobs->jobs.cnt; i++)
		if (all[i].number == number)
			return &all[i];
	return NULL;
}

struct watched_job *watched_jobs__of(const struct watched_jobs *jobs, uint32_t pid)
{
	const struct watched_process *all = jobs->processes.items;

	for (size_t i = jobs->processes.cnt; i-- > 0;) /* the last one with that pid */
		if (all[i].pid == pid && all[i].attached)
			return job_of(jobs, all[i].job);
	return NULL;
}

struct watched_job *watched_jobs__named(const struct watched_jobs *jobs, const char *name, size_t *cnt)
{
	char *end = NULL;
	unsigned long pid = name ? strtoul(name, &end, 10) : 0;
	const struct watched_job *by_pid =
		end && end != name && !*end && pid <= UINT32_MAX ? watched_jobs__of(jobs, pid) : NULL;
	struct watched_job *all = jobs->jobs.items, *found = NULL;

	*cnt = 0;
	for (size_t i = 0; i < jobs->jobs.cnt; i++) {
		if (!all[i].alive || (name && strcmp(name, all[i].name) && &all[i] != by_pid))
			continue;
		found = &all[i];
		++*cnt;
	}
	return *cnt == 1 ? found : NULL;
}

const char *watched_jobs__name(const struct watched_jobs *jobs, uint32_t pid, char name[WATCHED_NAME])
{
	const struct watched_job *job = watched_jobs__of(jobs, pid);

	if (job)
		snprintf(name, WATCHED_NAME, "%s", job->name);
	else
		snprintf(name, WATCHED_NAME, "pid %u", pid);
	return name;
}

int watched_jobs__part(const struct watched_jobs *jobs, uint32_t number, struct recording_part *part)
{
	const struct watched_process *all = jobs->processes.items;
	int err = 0;

	for (size_t i = 0; i < jobs->processes.cnt && !err; i++)
		if (all[i].job == number && all[i].attached)
			err = recording_part__add(part, all[i].pid);
	return err;
}

/* The job of another process of the same job that is known, or a new one. NULL: no memory. */
static struct watched_job *find_job(struct watched_jobs *jobs, const struct trainings *t,
				    const struct training *training)
{
	struct watched_job *job;

	for (size_t i = 0; i < t->cnt; i++) {
		const struct process *other = &t->items[i].process;
		const struct watched_process *known = process_of(jobs, other->pid, other->start_time);

		job = known && t->items[i].job == training->job ? job_of(jobs, known->job) : NULL;
		if (job)
			return job;
	}
	job = array__add(&jobs->jobs, sizeof(*job));
	if (!job)
		return NULL;
	job->number = ++jobs->job_cnt;
	job->unnamed = !job_id__name(&training->id, job->name, sizeof(job->name))[0];
	if (job->unnamed)
		snprintf(job->name, sizeof(job->name), "pid %d", training->process.pid);
	return job;
}

/* A process that does not answer in time, on a busy machine, tells its job at a later look. */
static void name_again(const struct watched_jobs *jobs, const struct watched_process *known,
		       const struct training *training)
{
	struct watched_job *job = known->attached ? job_of(jobs, known->job) : NULL;
	char name[WATCHED_NAME];

	if (!job || !job->unnamed || !job_id__name(&training->id, name, sizeof(name))[0])
		return;
	log__info("job %s is %s", job->name, name);
	snprintf(job->name, sizeof(job->name), "%s", name);
	job->unnamed = false;
}

/* Of a process whose environment cannot be read now nobody knows: -errno. */
static int opts_out(const struct process *process)
{
	char value[8];
	int err = process__environ(process->pid, WATCH_OPT_OUT, value, sizeof(value));

	return err == -ENOENT ? 0 : err ?: !strcmp(value, "0");
}

/* ---- jobs that are paused ---- */

/* NULL: there is none, or it is not what a watch writes. */
static FILE *open_paused(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	FILE *in = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= PAUSED_BYTES ? fdopen(fd, "r")
												   : NULL;

	if (fd >= 0 && !in)
		close(fd);
	return in;
}

static bool was_paused(const char *path, const struct process *process)
{
	FILE *in = open_paused(path);
	bool found = false;
	uint64_t start_time;
	uint32_t pid;

	while (in && !found && fscanf(in, "%" SCNu32 " %" SCNu64, &pid, &start_time) == 2)
		found = pid == (uint32_t)process->pid && start_time == process->start_time;
	if (in)
		fclose(in);
	return found;
}

/* Those of an earlier session that this one has not looked at yet. */
static void write_unknown(const struct watched_jobs *jobs, FILE *out)
{
	FILE *in = open_paused(jobs->paused_path);
	struct proc_stat stat;
	uint64_t start_time;
	uint32_t pid;

	while (in && fscanf(in, "%" SCNu32 " %" SCNu64, &pid, &start_time) == 2)
		if (!process_of(jobs, pid, start_time) && !proc__stat(pid, 0, &stat) && stat.start_time == start_time)
			fprintf(out, "%" PRIu32 " %" PRIu64 "\n", pid, start_time);
	if (in)
		fclose(in);
}

static int write_paused(const struct watched_jobs *jobs)
{
	const struct watched_process *all = jobs->processes.items;
	struct output output;
	int err = output__open(jobs->paused_path, &output);
	FILE *out;

	if (err)
		return err;
	out = fdopen(output.fd, "w");
	if (!out) {
		err = -errno;
		close(output.fd);
	} else {
		write_unknown(jobs, out);
	}
	for (size_t i = 0; !err && i < jobs->processes.cnt; i++)
		if (all[i].attached && !all[i].ended && job_of(jobs, all[i].job)->paused)
			fprintf(out, "%" PRIu32 " %" PRIu64 "\n", all[i].pid, all[i].start_time);
	if (out && fflush(out))
		err = -errno;
	err = err ?: output__keep(&output);
	if (out)
		fclose(out);
	output__release(&output);
	return err;
}

static void keep_paused(const struct watched_jobs *jobs)
{
	int err = write_paused(jobs);

	if (err)
		log__warn("pause the job again if this watch ends before it", "cannot write %s: %s", jobs->paused_path,
			  strerror(-err));
}

int watched_jobs__pause(struct watched_jobs *jobs, struct watched_job *job, struct session *session, bool pause)
{
	int err = 0;

	if (pause)
		err = session__pause(session, job->number);
	else
		session__resume(session, job->number);
	if (err)
		return err;
	job->paused = pause;
	keep_paused(jobs);
	log__info("job %s: %s", job->name, pause ? "is paused, and left alone" : "is watched again");
	return 0;
}

/* Forgets the processes that ended first, and jobs without processes. */
static void forget_ended(struct watched_jobs *jobs)
{
	struct watched_process *all = jobs->processes.items;
	struct watched_job *job = jobs->jobs.items;
	size_t ended = 0, kept = 0;

	for (size_t i = 0; i < jobs->processes.cnt; i++)
		ended += all[i].ended;
	for (size_t i = 0; i < jobs->processes.cnt; i++) {
		bool goes = all[i].ended && ended > ENDED_KEPT;

		ended -= goes;
		if (!goes)
			all[kept++] = all[i];
	}
	jobs->processes.cnt = kept;
	kept = 0;
	for (size_t i = 0; i < jobs->jobs.cnt; i++) {
		bool used = false;

		for (size_t k = 0; k < jobs->processes.cnt && !used; k++)
			used = all[k].job == job[i].number;
		if (used)
			job[kept++] = job[i];
	}
	jobs->jobs.cnt = kept;
}

/* 0, also where the process is left out; or -errno that ends the session. */
static int attach(struct watched_jobs *jobs, const struct trainings *t, const struct training *training,
		  struct session *session)
{
	const struct process *process = &training->process;
	struct watched_job *job = find_job(jobs, t, training);
	struct watched_process *new = process_of(jobs, process->pid, process->start_time);
	char rank[32] = "";
	int err;

	if (job && !new)
		new = array__add(&jobs->processes, sizeof(*new));
	if (!job || !new)
		return -ENOMEM;
	*new = (struct watched_process){.pid = process->pid, .start_time = process->start_time, .job = job->number};
	if (training->rank.number >= 0)
		snprintf(rank, sizeof(rank), ", rank %d", training->rank.number);
	err = opts_out(process);
	if (err > 0) {
		log__info("process %d (%s) is left out: it has " WATCH_OPT_OUT "=0", process->pid, process->comm);
		return 0;
	}
	job->paused = job->paused || was_paused(jobs->paused_path, process);
	if (!err && job->paused)
		err = session__pause(session, job->number);
	err = err ?: session__attach(session, process->pid, job->number, true);
	if (err == -ENOMEM)
		return err;
	if (err == -ETIMEDOUT) {
		new->young = true;
		return 0;
	}
	if (err) {
		jobs->missed += err == -ESRCH;
		return 0; /* the session has said why */
	}
	new->attached = true;
	job->alive++;
	if (job->paused)
		keep_paused(jobs);
	log__info("job %s%s: watches process %d%s: %.*s", job->name, job->paused ? ", which is paused" : "",
		  process->pid, rank, COMMAND_SHOWN, process->command);
	return 0;
}

/* Remembers that a process launches ranks, if it does. 0 or -ENOMEM. */
static int note_launcher(struct watched_jobs *jobs, struct watched_process *known, const struct training *training,
			 uint64_t now_ns)
{
	if (training->role != TRAINING_LAUNCHER || (known && !known->launched_ns && !known->young))
		return 0;
	known = known ?: array__add(&jobs->processes, sizeof(*known));
	if (!known)
		return -ENOMEM;
	*known = (struct watched_process){
		.pid = training->process.pid, .start_time = training->process.start_time, .launched_ns = now_ns};
	return 0;
}

/* Launchers that have ended, and scripts that go on to do something else. */
static void forget_launchers(struct watched_jobs *jobs, uint64_t now_ns)
{
	struct watched_process *all = jobs->processes.items;
	size_t kept = 0;

	for (size_t i = 0; i < jobs->processes.cnt; i++)
		if (!all[i].launched_ns || now_ns - all[i].launched_ns < LAUNCHED_NS)
			all[kept++] = all[i];
	jobs->processes.cnt = kept;
}

/* Remembers one that may end at once. 0 or -ENOMEM. */
static int note_young(struct watched_jobs *jobs, const struct process *process)
{
	struct watched_process *new = array__add(&jobs->processes, sizeof(*new));

	if (!new)
		return -ENOMEM;
	*new = (struct watched_process){.pid = process->pid, .start_time = process->start_time, .young = true};
	return 0;
}

/* Those that are not attached to, and are not there any more: nobody tells of their end. */
static void forget_gone(struct watched_jobs *jobs, const struct trainings *t)
{
	struct watched_process *all = jobs->processes.items;
	size_t kept = 0;

	for (size_t i = 0; i < jobs->processes.cnt; i++) {
		const struct training *there = trainings__pid(t, all[i].pid);
		bool goes = !all[i].attached && !all[i].launched_ns &&
			    (!there || there->process.start_time != all[i].start_time);

		jobs->missed += goes && all[i].young;
		if (!goes)
			all[kept++] = all[i];
	}
	jobs->processes.cnt = kept;
}

/* Is it one to attach to? took_ns: since it was seen. 1, 0 or -ENOMEM. */
static int take_training(struct watched_jobs *jobs, const struct training *training, uint64_t took_ns)
{
	struct watched_process *known = process_of(jobs, training->process.pid, training->process.start_time);

	if (known && !known->young) {
		name_again(jobs, known, training);
		return 0;
	}
	if (known && deputy__refuses(known->pid))
		return 0;
	/* Nobody knows yet whether it will train, or is a launcher. */
	if (training->program == PROGRAM_IMPORTS || !training__is_target(training))
		return 0;
	if (process__age_ns(&training->process) < WATCHED_AGE_NS + took_ns)
		return known ? 0 : note_young(jobs, &training->process);
	return 1;
}

int watched_jobs__update(struct watched_jobs *jobs, struct session *session)
{
	const struct training *found = NULL;
	uint64_t now_ns = clock__ns(CLOCK_MONOTONIC);
	struct trainings *seen = &jobs->seen;
	int err = trainings__look_again(seen, LOOK_NS);

	if (err)
		return err;
	for (size_t i = 0; i < seen->cnt && !err; i++)
		err = note_launcher(jobs,
				    process_of(jobs, seen->items[i].process.pid, seen->items[i].process.start_time),
				    &seen->items[i], now_ns);
	forget_launchers(jobs, now_ns);
	forget_gone(jobs, seen);
	/* Who has started a process may be among those that were not looked at yet. */
	jobs->partial_ns = seen->stopped_at ? jobs->partial_ns ?: now_ns : 0;
	if (!err && jobs->partial_ns && now_ns - jobs->partial_ns < PARTIAL_NS)
		return 1;
	for (size_t i = 0; i < seen->cnt && !found && err >= 0; i++) {
		err = take_training(jobs, &seen->items[i], clock__ns(CLOCK_MONOTONIC) - now_ns);
		found = err > 0 ? &seen->items[i] : NULL;
	}
	err = found ? attach(jobs, seen, found, session) : err;
	forget_ended(jobs);
	return err ?: found || seen->stopped_at;
}

void watched_jobs__end(struct watched_jobs *jobs, uint32_t pid)
{
	struct watched_process *all = jobs->processes.items;

	for (size_t i = jobs->processes.cnt; i-- > 0;) {
		struct watched_job *job = job_of(jobs, all[i].job);

		if (all[i].pid != pid || all[i].ended || !all[i].attached || !job)
			continue;
		all[i].ended = true;
		if (!--job->alive)
			log__info("job %s has ended", job->name);
		return;
	}
}

bool watched_jobs__all_ended(const struct watched_jobs *jobs)
{
	const struct watched_process *all = jobs->processes.items;

	for (size_t i = 0; i < jobs->processes.cnt; i++)
		if (all[i].attached && !all[i].ended)
			return false;
	return jobs->processes.cnt;
}

void watched_jobs__free(struct watched_jobs *jobs)
{
	free(jobs->processes.items);
	free(jobs->jobs.items);
	trainings__release(&jobs->seen);
	*jobs = (struct watched_jobs){.paused_path = jobs->paused_path, .missed = jobs->missed};
}
