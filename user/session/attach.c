// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/probes.h"
#include "user/lib/map.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"

/*
 * ---- events of tracefs ----
 *
 * Probes that attach and detach together, on kernels without a uprobe_multi that filters by process:
 * one event may have many uprobes, and a perf event attaches it to one process. Perf uprobes detach
 * one after the other, 40 to 150 ms each; an event detaches all of its uprobes in one such wait. The
 * event stays in tracefs until it is removed; its breakpoints vanish with the perf event, even if
 * stepflame dies.
 *
 * There is no state: this process and a number make up the name of an event. Processes of several pid
 * namespaces may share one tracefs (pods, each with a PID 1), so a process is named by its namespace,
 * pid and start time.
 */

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

static void remove_event(uint32_t number)
{
	const struct event_owner self = this_process();
	char line[LINE_BYTES], event[EVENT_BYTES];

	write_lines(line, snprintf(line, sizeof(line), "-:%s\n", event_name(&self, number, event)));
}

/*
 * Creates event `number` of this process: uprobes at cnt different offsets of the open file fd.
 * Returns its id for perf events, or -errno.
 */
static int make_event(uint32_t number, int fd, const uint64_t *offsets, size_t cnt)
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
		remove_event(number);
	return err;
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

/* Opens a perf event of event `id` in every thread of process pid: a file descriptor, or -errno. */
static int open_event(int id, pid_t pid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = id,
	};
	int fd = syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* ---- links ---- */

#define DETACH_THREADS 64 /* each waits most of the time, for the processors to leave what it removes */
#define FD_PATH        32

/* A link and the tracefs event that it uses. */
struct probe_link {
	struct bpf_link *link;
	uint32_t event; /* number of the tracefs event to remove after the link; 0: no event */
};

struct attachment {
	size_t cnt;
	struct probe_link links[];
};

/* The kernel takes paths only: this one leads to the inode of the descriptor, whatever its name is. */
static const char *fd_path(int fd, char path[FD_PATH])
{
	snprintf(path, FD_PATH, "/proc/self/fd/%d", fd);
	return path;
}

static int attach_multi(struct attachment *a, struct bpf_program *program, pid_t pid, const struct probe_list *list)
{
	LIBBPF_OPTS(bpf_uprobe_multi_opts, opts, .offsets = list->offsets, .cookies = (const __u64 *)list->cookies,
		    .cnt = list->cnt);
	char path[FD_PATH];

	a->links[0].link = bpf_program__attach_uprobe_multi(program, pid, fd_path(list->fd, path), NULL, &opts);
	if (!a->links[0].link)
		return -errno;
	a->cnt = 1;
	return 0;
}

static int attach_perf(struct attachment *a, struct bpf_program *program, pid_t pid, const struct probe_list *list)
{
	for (size_t i = 0; i < list->cnt; i++) {
		LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = list->cookies[i]);
		char path[FD_PATH];

		a->links[i].link =
			bpf_program__attach_uprobe_opts(program, pid, fd_path(list->fd, path), list->offsets[i], &opts);
		if (!a->links[i].link)
			return -errno;
		a->cnt++;
	}
	return 0;
}

/* ---- by events of tracefs ---- */

/*
 * Where a process maps a probe. A tracefs event cannot have two probes at the same offset, so
 * probes at one offset go into different layers.
 */
struct probe_location {
	uint32_t layer; /* number of earlier probes in the list at the same offset */
	bool mapped;
	uint64_t bias; /* address minus file offset */
};

struct located_probes {
	const struct probe_list *list;
	struct probe_location *locations;
	bool any_mapped;
};

static int locate_probes(const struct mapping *map, void *ctx)
{
	const struct located_probes *p = ctx;

	if (!map->executable || map->dev != p->list->dev || map->inode != p->list->inode)
		return 0;
	for (size_t i = 0; i < p->list->cnt; i++) {
		uint64_t offset = p->list->offsets[i];

		if (p->locations[i].mapped || offset < map->offset || offset - map->offset >= map->end - map->start)
			continue;
		p->locations[i].mapped = ((struct located_probes *)ctx)->any_mapped = true;
		p->locations[i].bias = map->start - map->offset;
	}
	return 0;
}

struct counted_offset {
	uint64_t offset;
	uint32_t cnt;
};

static int find_layers(const struct probe_list *list, struct probe_location *locations)
{
	struct map counts = {};
	int err = 0;

	for (size_t i = 0; i < list->cnt && !err; i++) {
		const uint64_t offset = list->offsets[i];
		struct counted_offset *counted = MAP_ADD(&counts, struct counted_offset, &offset);

		if (counted)
			locations[i].layer = counted->cnt++;
		else
			err = -ENOMEM;
	}
	map__free(&counts);
	return err;
}

/* Those of the first `cnt` probes. */
static void delete_cookies(const struct attacher *attacher, const struct probe_list *list, size_t cnt, uint32_t number,
			   const struct probe_location *locations)
{
	for (size_t i = 0; i < cnt; i++) {
		struct probe_place place = {.list = number + locations[i].layer, .offset = list->offsets[i]};

		bpf_map_delete_elem(attacher->cookies_fd, &place);
	}
}

/* Tells BPF the cookie of each probe by layer and offset. 0 or -errno; -EEXIST: the number is another list's. */
static int add_cookies(const struct attacher *attacher, const struct probe_list *list, uint32_t number,
		       const struct probe_location *locations)
{
	for (size_t i = 0; i < list->cnt; i++) {
		struct probe_place place = {.list = number + locations[i].layer, .offset = list->offsets[i]};

		if (bpf_map_update_elem(attacher->cookies_fd, &place, &list->cookies[i], BPF_NOEXIST)) {
			int err = -errno;

			delete_cookies(attacher, list, i, number, locations);
			return err;
		}
	}
	return 0;
}

/*
 * Numbers the list, once, and its layers: by the next numbers, or from 1 on again by those of lists
 * that are forgotten. Lists without a common offset may share one. 0 or -errno; -ENOSPC: too many lists.
 */
static int number_list(struct attacher *attacher, struct probe_list *list, const struct probe_location *locations)
{
	uint32_t layers = 1, number = attacher->number + 1;
	int err = -EEXIST;

	for (size_t i = 0; i < list->cnt; i++)
		layers = locations[i].layer >= layers ? locations[i].layer + 1 : layers;
	if (layers >= PROBE_LISTS)
		return -ENOSPC;
	for (uint32_t tries = 0; err == -EEXIST && tries < PROBE_LISTS; tries++, number++) {
		number = number + layers > PROBE_LISTS ? 1 : number;
		err = add_cookies(attacher, list, number, locations);
		if (!err) {
			attacher->number = number + layers - 1;
			list->number = number;
		}
	}
	return err == -EEXIST ? -ENOSPC : err;
}

void attacher__forget(const struct attacher *attacher, struct probe_list *list)
{
	struct probe_location *locations = list->number ? calloc(list->cnt, sizeof(*locations)) : NULL;

	if (locations && !find_layers(list, locations))
		delete_cookies(attacher, list, list->cnt, list->number, locations);
	free(locations);
	list->number = 0;
}

/* Attaches the probes that have the layer and bias of *like, as one tracefs event. */
static int attach_event(struct attachment *a, struct bpf_program *program, struct attacher *attacher, pid_t pid, int fd,
			const struct located_probes *located, const struct probe_location *like)
{
	LIBBPF_OPTS(bpf_perf_event_opts, opts, .bpf_cookie = like->bias | (located->list->number + like->layer));
	uint64_t *offsets = calloc(located->list->cnt, sizeof(*offsets));
	struct probe_link *entry = &a->links[a->cnt];
	int id, perf_fd = -ENOMEM;
	size_t cnt = 0;

	for (size_t i = 0; offsets && i < located->list->cnt; i++) {
		const struct probe_location *p = &located->locations[i];

		if (p->mapped && p->layer == like->layer && p->bias == like->bias)
			offsets[cnt++] = located->list->offsets[i];
	}
	if (offsets) {
		id = make_event(attacher->event_cnt + 1, fd, offsets, cnt);
		perf_fd = id < 0 ? id : open_event(id, pid);
		entry->event = id < 0 ? 0 : ++attacher->event_cnt;
		a->cnt += id >= 0;
	}
	free(offsets);
	if (perf_fd < 0)
		return perf_fd;
	entry->link = bpf_program__attach_perf_event_opts(program, perf_fd, &opts);
	if (entry->link)
		return 0;
	id = -errno;
	close(perf_fd);
	return id;
}

static bool is_first_of_event(const struct probe_location *locations, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (locations[k].mapped && locations[k].layer == locations[i].layer &&
		    locations[k].bias == locations[i].bias)
			return false;
	return locations[i].mapped;
}

static int attach_events(struct attachment *a, struct bpf_program *program, struct attacher *attacher, pid_t pid,
			 struct probe_list *list)
{
	struct located_probes located = {.list = list, .locations = calloc(list->cnt, sizeof(*located.locations))};
	int err = 0;

	if (!located.locations)
		err = -ENOMEM;
	if (!err)
		err = find_layers(list, located.locations);
	if (!err)
		err = process__each_mapping(pid, locate_probes, &located);
	if (!err && !located.any_mapped)
		err = -ENOENT;
	if (!err && !list->number)
		err = number_list(attacher, list, located.locations);
	for (size_t i = 0; i < list->cnt && !err; i++)
		if (is_first_of_event(located.locations, i))
			err = attach_event(a, program, attacher, pid, list->fd, &located, &located.locations[i]);
	free(located.locations);
	return err;
}

int attachment__new(struct bpf_program *program, struct attacher *attacher, pid_t pid, struct probe_list *list,
		    struct attachment **out)
{
	struct attachment *a;
	int err;

	*out = NULL;
	if (!list->cnt)
		return 0;
	a = calloc(1, sizeof(*a) + list->cnt * sizeof(a->links[0]));
	if (!a)
		return -ENOMEM;
	if (attacher->backend == ATTACH_MULTI)
		err = attach_multi(a, program, pid, list);
	else if (attacher->backend == ATTACH_EVENTS)
		err = attach_events(a, program, attacher, pid, list);
	else
		err = attach_perf(a, program, pid, list);
	if (err) {
		attachments__free(&a, 1);
		return err;
	}
	*out = a;
	return 0;
}

/* ---- breakpoints that nobody uses ---- */

/* A tracefs event in stepflame itself; wherever it maps the file, no breakpoint is in the code. */
static int attach_unmapped(struct attachment *a, struct bpf_program *program, struct attacher *attacher,
			   struct probe_list *list)
{
	struct located_probes located = {.list = list, .locations = calloc(list->cnt, sizeof(*located.locations))};
	int err = located.locations ? find_layers(list, located.locations) : -ENOMEM;

	for (size_t i = 0; i < list->cnt && !err; i++)
		located.locations[i].mapped = !located.locations[i].layer;
	if (!err)
		err = attach_event(a, program, attacher, getpid(), list->fd, &located,
				   &(struct probe_location){.mapped = true});
	free(located.locations);
	return err;
}

static int is_of_list(const struct mapping *map, void *ctx)
{
	const struct probe_list *list = ctx;

	return map->dev == list->dev && map->inode == list->inode;
}

/*
 * In whom? A process that has ended maps nothing, but only uprobe_multi accepts it. Otherwise
 * stepflame itself, if it does not map the file.
 */
int attachment__clean(struct bpf_program *program, struct attacher *attacher, struct probe_list *list)
{
	struct attachment *a = calloc(1, sizeof(*a) + list->cnt * sizeof(a->links[0]));
	int err = a ? 0 : -ENOMEM;
	pid_t ended;

	if (!err && attacher->backend == ATTACH_MULTI) {
		ended = fork();
		if (!ended)
			_exit(0);
		err = ended < 0 || waitid(P_PID, ended, &(siginfo_t){}, WEXITED | WNOWAIT) ? -errno : 0;
		err = err ?: attach_multi(a, program, ended, list);
		if (ended > 0)
			waitpid(ended, NULL, 0);
	} else if (!err) {
		err = process__each_mapping(getpid(), is_of_list, list);
		err = err ? -EBUSY : 0;
		if (!err && attacher->backend == ATTACH_EVENTS)
			err = attach_unmapped(a, program, attacher, list);
		else if (!err)
			err = attach_perf(a, program, getpid(), list);
	}
	attachments__free(&a, 1);
	return err;
}

static void destroy_link(struct probe_link *entry)
{
	bpf_link__destroy(entry->link);
	if (entry->event)
		remove_event(entry->event);
}

struct detach_work {
	struct probe_link **links;
	size_t cnt, next;
};

static void *detach_links(void *arg)
{
	struct detach_work *work = arg;

	for (;;) {
		size_t i = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);

		if (i >= work->cnt)
			return NULL;
		destroy_link(work->links[i]);
	}
}

/* Without memory for the list of all links, detaches them one after the other. */
void attachments__free(struct attachment **attachments, size_t cnt)
{
	struct detach_work work = {};
	pthread_t threads[DETACH_THREADS];
	size_t link_cnt = 0, started = 0;

	for (size_t i = 0; i < cnt; i++)
		link_cnt += attachments[i] ? attachments[i]->cnt : 0;
	work.links = calloc(link_cnt, sizeof(*work.links));
	for (size_t i = 0; i < cnt; i++)
		for (size_t k = 0; attachments[i] && k < attachments[i]->cnt; k++)
			if (work.links)
				work.links[work.cnt++] = &attachments[i]->links[k];
			else
				destroy_link(&attachments[i]->links[k]);
	while (started < DETACH_THREADS && started + 1 < work.cnt &&
	       !pthread_create(&threads[started], NULL, detach_links, &work))
		started++;
	detach_links(&work);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	free(work.links);
	for (size_t i = 0; i < cnt; i++) {
		free(attachments[i]);
		attachments[i] = NULL;
	}
}
