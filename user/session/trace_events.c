// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Uses the text files of tracefs. Keeps no state: stepflame's pid and a number make up the name of
 * an event.
 */
#include "user/session/trace_events.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "user/proc/proc.h"

#define GROUP      "stepflame"
#define LINE_BYTES 128

static const char *tracefs_dir(void)
{
	static const char *const places[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
	char path[64];

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(path, sizeof(path), "%s/uprobe_events", places[i]);
		if (!access(path, R_OK | W_OK))
			return places[i];
	}
	return NULL;
}

bool trace_events__work(void)
{
	return tracefs_dir();
}

/* Do not pass O_TRUNC: it would remove the events of all programs. */
static int open_uprobe_events(int flags)
{
	const char *dir = tracefs_dir();
	char path[64];
	int fd;

	if (!dir)
		return -ENOENT;
	snprintf(path, sizeof(path), "%s/uprobe_events", dir);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Writes whole lines; the kernel may accept only some of them per call. */
static int write_lines(const char *text, size_t size)
{
	int fd = open_uprobe_events(O_WRONLY | O_APPEND), err = fd < 0 ? fd : 0;

	while (!err && size) {
		ssize_t written = write(fd, text, size);

		if (written <= 0)
			err = written ? -errno : -EIO;
		else
			text += written, size -= written;
	}
	if (fd >= 0)
		close(fd);
	return err;
}

static int read_event_id(uint32_t number)
{
	char path[128];
	int id = -EIO;
	FILE *f;

	snprintf(path, sizeof(path), "%s/events/" GROUP "/p%d_%u/id", tracefs_dir() ?: "", getpid(), number);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	if (fscanf(f, "%d", &id) != 1)
		id = -EIO;
	fclose(f);
	return id;
}

int trace_event__make(uint32_t number, int fd, const uint64_t *offsets, size_t cnt)
{
	char *text = malloc(cnt * LINE_BYTES + 1);
	size_t size = 0;
	int err;

	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		size += snprintf(text + size, LINE_BYTES, "p:" GROUP "/p%d_%u /proc/self/fd/%d:0x%" PRIx64 "\n",
				 getpid(), number, fd, offsets[i]);
	err = write_lines(text, size);
	free(text);
	if (!err)
		err = read_event_id(number);
	if (err < 0)
		trace_event__remove(number);
	return err;
}

void trace_event__remove(uint32_t number)
{
	char line[LINE_BYTES];

	write_lines(line, snprintf(line, sizeof(line), "-:" GROUP "/p%d_%u\n", getpid(), number));
}

static bool is_running(pid_t pid)
{
	struct proc_stat stat;
	int err = proc__stat(pid, 0, &stat);

	return err ? err != -ENOENT && err != -ESRCH : !proc_stat__dead(&stat);
}

/*
 * Events with stepflame's own pid come from an earlier process: this one has not created events
 * yet. Reads all events before it removes any, since a removal moves the lines that are still
 * unread.
 */
void trace_events__remove_stale(void)
{
	int fd = open_uprobe_events(O_RDONLY), pid, last_pid = 0;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	uint32_t number, last_number = 0;
	char *line = NULL, *removals = NULL;
	size_t room = 0, size = 0;
	FILE *out = f ? open_memstream(&removals, &size) : NULL;

	while (out && getline(&line, &room, f) > 0) {
		if (sscanf(line, "p:" GROUP "/p%d_%u ", &pid, &number) != 2 || pid <= 0 ||
		    (pid == last_pid && number == last_number) || (pid != getpid() && is_running(pid)))
			continue;
		last_pid = pid;
		last_number = number;
		fprintf(out, "-:" GROUP "/p%d_%u\n", pid, number);
	}
	free(line);
	if (f)
		fclose(f);
	if (out && !fclose(out))
		for (char *at = removals, *end; (end = strchr(at, '\n')); at = end + 1)
			write_lines(at, end + 1 - at);
	free(removals);
}

int trace_event__open(int id, pid_t pid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = id,
	};
	int fd = syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}
