// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/profiles.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "user/export/export.h"
#include "user/model/job.h"

struct reading {
	struct job *job;
	uint64_t from_ns, to_ns;
};

/* A profile says when it begins by what was dropped before. */
static int begin_at(struct job *job, uint64_t from_ns)
{
	struct rec_dropped dropped = {.hdr = {.type = REC_DROPPED, .size = sizeof(dropped)}, .time_ns = from_ns};

	return job__add(job, &dropped.hdr);
}

/* What a stack is made of, whose worker a process is, and samples of that time. */
static int take_record(const struct rec_hdr *record, void *ctx)
{
	const struct reading *reading = ctx;
	const struct rec_sample *sample = (const void *)record;

	switch (record->type) {
	case REC_SAMPLE:
		if (record->size < sizeof(*sample) || sample->time_ns < reading->from_ns ||
		    sample->time_ns >= reading->to_ns)
			return 0;
		break;
	case REC_HOST:
	case REC_TARGET:
	case REC_WINDOW:
	case REC_NAME:
	case REC_CODE:
	case REC_STACK:
	case REC_PATH:
		break;
	default:
		return 0;
	}
	return job__add(reading->job, record);
}

static int count_sample(const struct sample *sample, void *ctx)
{
	++*(size_t *)ctx;
	return 0;
}

/* What a server may take for a part of the list of labels is "_". */
static size_t put_label(char *name, size_t used, size_t size, const char *key, const char *value)
{
	used += snprintf(name + used, size - used, "%s%s=", name[used - 1] == '{' ? "" : ",", key);
	for (; *value && used < size - 1; value++)
		name[used++] = isalnum((unsigned char)*value) || strchr("-._:/", *value) ? *value : '_';
	name[used] = 0;
	return used;
}

static void name_profile(const struct watched_jobs *jobs, const struct metrics *metrics, uint32_t pid, bool workers,
			 char *name, size_t size)
{
	char job[WATCHED_NAME], host[HOST_NAME_MAX + 1] = "", rank[24];
	struct rank_progress progress;
	size_t used = snprintf(name, size, "stepflame{");

	if (metrics__progress(metrics, pid, &progress) && progress.rank >= 0)
		snprintf(rank, sizeof(rank), "%d", progress.rank);
	else
		snprintf(rank, sizeof(rank), "pid %u", pid);
	gethostname(host, sizeof(host) - 1);
	used = put_label(name, used, size - 1, "job", watched_jobs__name(jobs, pid, job));
	used = put_label(name, used, size - 1, "rank", rank);
	used = put_label(name, used, size - 1, "host", host);
	used = put_label(name, used, size - 1, "role", workers ? "workers" : "main");
	snprintf(name + used, size - used, "}");
}

/* The descriptor, or -errno. */
static int write_profile(struct job *job, const struct export_options *options)
{
	int fd = memfd_create("profile", MFD_CLOEXEC), stream_fd = fd < 0 ? -1 : dup(fd), err = fd < 0 ? -errno : 0;
	FILE *out = stream_fd < 0 ? NULL : export__open_gzip(stream_fd);

	err = err ?: !out ? -errno : export_pprof.write(job, NULL, options, out);
	if (out && (ferror(out) | fclose(out)))
		err = err ?: -EIO;
	if (err && fd >= 0)
		close(fd);
	return err ?: fd;
}

struct maker {
	const struct watched_jobs *jobs;
	const struct metrics *metrics;
	int (*fn)(const char *name, int fd, void *ctx);
	void *ctx;
};

/* Of a process, or of its workers together. 0, -errno, or what fn returned. */
static int make_profile(const struct maker *maker, struct job *job, uint32_t pid, bool workers)
{
	struct export_options options = {.pid = pid, .workers = workers, .name = "stepflame"};
	size_t samples = 0;
	char name[256];
	int fd, err = export__each_sample(job, &options, count_sample, &samples);

	if (err || !samples)
		return err;
	fd = write_profile(job, &options);
	if (fd < 0)
		return fd;
	name_profile(maker->jobs, maker->metrics, pid, workers, name, sizeof(name));
	return maker->fn(name, fd, maker->ctx);
}

int profiles__make(const struct recording_writer *ring, const struct watched_jobs *jobs, const struct metrics *metrics,
		   uint64_t from_ns, uint64_t to_ns, int (*fn)(const char *name, int fd, void *ctx), void *ctx)
{
	const struct maker maker = {jobs, metrics, fn, ctx};
	const struct watched_process *all = jobs->processes.items;
	struct reading reading = {.job = job__new(), .from_ns = from_ns, .to_ns = to_ns};
	int err = reading.job ? begin_at(reading.job, from_ns) ?: recording_writer__read(ring, take_record, &reading)
			      : -ENOMEM;

	for (size_t i = 0; i < jobs->processes.cnt && !err; i++)
		if (all[i].attached)
			err = make_profile(&maker, reading.job, all[i].pid, false)
				      ?: make_profile(&maker, reading.job, all[i].pid, true);
	job__free(reading.job);
	return err;
}
