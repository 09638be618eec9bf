// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/events.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "user/analysis/live/trigger.h"
#include "user/lib/log.h"
#include "user/lib/output.h"
#include "user/report/report.h"
#include "user/report/summary.h"

#define NICE      10
#define NAME_MOST 40 /* characters of a job's name in that of a file */
#define RECORDING ".rec"

struct copy {
	struct recording_part *part;
	struct recording_writer *writer;
	struct job *job;
	uint64_t record_cnt, at; /* at the first reading; read so far: meanwhile the ring grows */
};

static int count_record(const struct rec_hdr *record, void *ctx)
{
	struct copy *copy = ctx;

	copy->record_cnt++;
	return recording_part__scan(copy->part, record);
}

static int scan_record(const struct rec_hdr *record, void *ctx)
{
	struct copy *copy = ctx;

	return copy->at++ < copy->record_cnt ? recording_part__scan(copy->part, record) : 0;
}

static int append_record(const struct rec_hdr *record, void *ctx)
{
	struct copy *copy = ctx;
	struct rec_window window;

	if (copy->at++ >= copy->record_cnt || !recording_part__has(copy->part, record))
		return 0;
	/* The steps of the process with most, which may be of another job: the boundaries tell. */
	if (record->type == REC_WINDOW && record->size == sizeof(window)) {
		window = *(const struct rec_window *)record;
		window.steps = 0;
		record = &window.hdr;
	}
	return recording_writer__append(copy->writer, record);
}

static int read_ring(const struct recording_writer *ring, int (*fn)(const struct rec_hdr *record, void *ctx),
		     struct copy *copy)
{
	copy->at = 0;
	return recording_writer__read(ring, fn, copy);
}

static int add_to_job(const struct rec_hdr *record, void *ctx)
{
	struct copy *copy = ctx;

	return job__add(copy->job, record);
}

static bool is_taken(const char *folder, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s" RECORDING, folder, name);
	return !access(path, F_OK);
}

/*
 * "20261127-120305-JOB-slow": what sorts by time, and needs no quotes in a shell. One of the same second, which two jobs whose names begin
 * alike may have, gets a number.
 */
static void name_event(const char *folder, const char *job, const char *kind, char *name, size_t size)
{
	char word[NAME_MOST + 1];
	time_t now = time(NULL);
	struct tm tm;
	size_t used;

	snprintf(word, sizeof(word), "%s", job);
	for (char *c = word; *c; c++)
		*c = isalnum((unsigned char)*c) || strchr("._", *c) ? *c : '-';
	gmtime_r(&now, &tm);
	used = strftime(name, size, "%Y%m%d-%H%M%S", &tm);
	used += snprintf(name + used, size - used, "-%s-%s", word, kind);
	for (int i = 2; is_taken(folder, name); i++)
		snprintf(name + used, size - used, "-%d", i);
}

/* ---- the summary ---- */

/* One line for the log, malloc'ed; NULL: no memory. kind: of the event, which began at since_ns. */
static char *verdict_of(struct job *job, const char *kind, uint64_t since_ns)
{
	const struct report_options options = {.limit = -1};
	const struct outside_part *stall;
	struct summary summary;
	char *text = NULL, ns[32];

	if (summary__new(job, &options, &summary))
		return NULL;
	stall = summary__stall(&summary);
	if (!summary.track)
		text = strdup("no whole step is in it");
	else if (stall && asprintf(&text, "stalled for %s: mostly %s", summary_text__duration(stall->ns, ns),
				   stall->cause ? summary_text__cause(stall->cause) : "running") < 0)
		text = NULL;
	else if (!strcmp(kind, trigger_names[TRIGGER_STRAGGLER]))
		text = summary__straggler_since(&summary, since_ns);
	else if (!stall && !strcmp(kind, trigger_names[TRIGGER_SLOWER]) && summary__slowdown_group(&summary))
		text = summary__slowdown_why(&summary);
	else if (!stall)
		text = summary_text__limit(&summary.of);
	summary__release(&summary);
	return text;
}

static int write_summary(struct job *job, const char *recording, const char *path)
{
	const struct report_options options = {.limit = -1, .file = recording};
	struct output output;
	int err = output__open(path, &output);
	FILE *out;

	if (err)
		return err;
	out = fdopen(output.fd, "w");
	err = out ? report_summary.text(job, &options, out) : -errno;
	if (!err && fflush(out))
		err = -errno;
	err = err ?: output__keep(&output);
	output__release(&output);
	if (out)
		fclose(out);
	return err;
}

/* ---- what goes for it ---- */

static int is_event(const struct dirent *entry)
{
	const char *ending = strrchr(entry->d_name, '.');

	return ending && (!strcmp(ending, RECORDING) || !strcmp(ending, ".txt"));
}

static uint64_t bytes_of(int folder, const char *name)
{
	struct stat st;

	return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ? 0 : st.st_size;
}

/* Deletes the oldest events until all together have no more than max_bytes; the newest stays. */
static void make_room(const char *path, uint64_t max_bytes)
{
	struct dirent **entries;
	DIR *folder = opendir(path);
	int cnt = folder ? scandir(path, &entries, is_event, alphasort) : -1;
	uint64_t bytes = 0;

	for (int i = 0; i < cnt; i++)
		bytes += bytes_of(dirfd(folder), entries[i]->d_name);
	for (int i = 0; i < cnt; i++) {
		uint64_t own = bytes_of(dirfd(folder), entries[i]->d_name);

		if (bytes > max_bytes && i < cnt - 2 && !unlinkat(dirfd(folder), entries[i]->d_name, 0))
			bytes -= own;
		free(entries[i]);
	}
	if (cnt >= 0)
		free(entries);
	if (folder)
		closedir(folder);
}

/* ---- the child ---- */

static int copy_ring(const struct events *events, const struct recording_writer *ring, struct copy *copy,
		     const char *path)
{
	int err = 0, end_err;

	while (!err && recording_part__needs_reading(copy->part))
		err = read_ring(ring, copy->record_cnt ? scan_record : count_record, copy);
	err = err ?: recording_writer__new(path, &copy->writer);
	if (err)
		return err;
	err = read_ring(ring, append_record, copy) ?: recording_writer__mark(copy->writer);
	end_err = recording_writer__free(copy->writer);
	if (err || end_err)
		return err ?: end_err;
	copy->job = job__new();
	return copy->job ? recording__read(path, add_to_job, copy, NULL) : -ENOMEM;
}

static int run_child(const struct events *events, const struct recording_writer *ring, struct recording_part *part,
		     const char *name, const char *kind, uint64_t since_ns, const char *what)
{
	char path[PATH_MAX], text[PATH_MAX];
	struct copy copy = {.part = part};
	char *verdict;
	int err;

	setpriority(PRIO_PROCESS, 0, NICE);
	snprintf(path, sizeof(path), "%s/%s" RECORDING, events->folder, name);
	snprintf(text, sizeof(text), "%s/%s.txt", events->folder, name);
	err = copy_ring(events, ring, &copy, path) ?: write_summary(copy.job, path, text);
	if (err) {
		log__error(NULL, "%s: what led to it cannot be kept as %s: %s", what, path, strerror(-err));
		return err;
	}
	verdict = verdict_of(copy.job, kind, since_ns);
	log__info("%s. Kept as %s: %s", what, path, verdict ?: "");
	make_room(events->folder, events->max_bytes);
	return 0;
}

static void reap_child(struct events *events, int flags)
{
	int status = 0;
	pid_t ended = events->child ? waitpid(events->child, &status, flags) : 0;

	if (!ended)
		return;
	events->kept = ended == events->child && status == 0;
	events->child = 0;
}

bool events__busy(struct events *events)
{
	reap_child(events, WNOHANG);
	return events->child;
}

void events__end(struct events *events)
{
	reap_child(events, 0);
}

int events__keep(struct events *events, const struct recording_writer *ring, struct recording_part *part,
		 const char *job, const char *kind, uint64_t since_ns, const char *what)
{
	events__end(events);
	name_event(events->folder, job, kind, events->last, sizeof(events->last));
	events->kept = false;
	events->child = fork();
	if (events->child < 0) {
		events->child = 0;
		return -errno;
	}
	if (!events->child)
		_exit(run_child(events, ring, part, events->last, kind, since_ns, what) ? EXIT_FAILURE : EXIT_SUCCESS);
	return 0;
}
