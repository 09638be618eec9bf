// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Uses the text files of tracefs. Keeps no state: this process and a number make up the name of an
 * event. Processes of several pid namespaces may share one tracefs (pods, each with a PID 1), so a
 * process is named by its namespace, pid and start time.
 */
#include "user/session/trace_events.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "user/proc/proc.h"

#define GROUP       "stepflame"
#define LINE_BYTES  192
#define EVENT_BYTES 96

/* NULL with errno: EACCES if it is there. */
static const char *tracefs_dir(void)
{
	static const char *const places[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
	char path[64];
	int err = ENOENT;

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(path, sizeof(path), "%s/uprobe_events", places[i]);
		/* access() would ask for the real user, who has no capabilities */
		if (!faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS))
			return places[i];
		err = errno == EACCES ? EACCES : err;
	}
	errno = err;
	return NULL;
}

bool trace_events__work(void)
{
	return tracefs_dir();
}

bool trace_events__denied(void)
{
	return !tracefs_dir() && errno == EACCES;
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

struct event_owner {
	uint64_t namespace, start_time; /* start_time: in ticks since the boot of the machine */
	pid_t pid;                      /* in that namespace */
};

static struct event_owner this_process(void)
{
	struct event_owner owner = {.pid = getpid()};
	struct proc_stat status;
	struct stat st;

	if (!stat("/proc/self/ns/pid", &st))
		owner.namespace = st.st_ino;
	if (!proc__stat(owner.pid, 0, &status))
		owner.start_time = status.start_time;
	return owner;
}

static const char *event_name(const struct event_owner *owner, uint32_t number, char name[EVENT_BYTES])
{
	snprintf(name, EVENT_BYTES, GROUP "/p%d_%" PRIu64 "_%" PRIu64 "_%u", owner->pid, owner->start_time,
		 owner->namespace, number);
	return name;
}

static int read_event_id(const char *event)
{
	char path[64 + EVENT_BYTES];
	int id = -EIO;
	FILE *f;

	snprintf(path, sizeof(path), "%s/events/%s/id", tracefs_dir() ?: "", event);
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
	const struct event_owner self = this_process();
	char *text = malloc(cnt * LINE_BYTES + 1), event[EVENT_BYTES];
	size_t size = 0;
	int err;

	if (!text)
		return -ENOMEM;
	event_name(&self, number, event);
	for (size_t i = 0; i < cnt; i++)
		size += snprintf(text + size, LINE_BYTES, "p:%s /proc/self/fd/%d:0x%" PRIx64 "\n", event, fd,
				 offsets[i]);
	err = write_lines(text, size);
	free(text);
	if (!err)
		err = read_event_id(event);
	if (err < 0)
		trace_event__remove(number);
	return err;
}

void trace_event__remove(uint32_t number)
{
	const struct event_owner self = this_process();
	char line[LINE_BYTES], event[EVENT_BYTES];

	write_lines(line, snprintf(line, sizeof(line), "-:%s\n", event_name(&self, number, event)));
}

static bool is_running(const struct event_owner *owner)
{
	struct proc_stat stat;
	int err = proc__stat(owner->pid, 0, &stat);

	return err ? err != -ENOENT && err != -ESRCH : !proc_stat__dead(&stat) && stat.start_time == owner->start_time;
}

/*
 * Leaves the events of other pid namespaces: their processes cannot be seen from here. Reads all
 * events before it removes any, since a removal moves the lines that are still unread.
 */
void trace_events__remove_stale(void)
{
	const struct event_owner self = this_process();
	struct event_owner seen = {}; /* the owner of the line before, which often has hundreds */
	bool runs = false;
	int fd = open_uprobe_events(O_RDONLY);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char *line = NULL, *removals = NULL, event[EVENT_BYTES], last[EVENT_BYTES] = "";
	size_t room = 0, size = 0;
	FILE *out = f ? open_memstream(&removals, &size) : NULL;

	while (out && getline(&line, &room, f) > 0) {
		struct event_owner owner;
		uint32_t number;

		if (sscanf(line, "p:" GROUP "/p%d_%" SCNu64 "_%" SCNu64 "_%u ", &owner.pid, &owner.start_time,
			   &owner.namespace, &number) != 4 ||
		    !strcmp(event_name(&owner, number, event), last) || owner.namespace != self.namespace)
			continue;
		if (owner.pid != seen.pid || owner.start_time != seen.start_time) {
			seen = owner;
			runs = is_running(&owner);
		}
		if (runs)
			continue;
		strcpy(last, event);
		fprintf(out, "-:%s\n", event);
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
