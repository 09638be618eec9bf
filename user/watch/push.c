// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/push.h"

#include <ctype.h>
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "user/export/export.h"
#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/model/job.h"
#include "user/watch/network.h"

#define SENDER_QUEUE_MAX 4096 /* profiles that wait */
#define SENDER_FILES     64   /* that it may open */

/* ---- what the ring has of a stretch of time, as profiles of each process that is watched, and of its workers ---- */

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
static size_t write_label(char *name, size_t used, size_t size, const char *key, const char *value)
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
	used = write_label(name, used, size - 1, "job", watched_jobs__name(jobs, pid, job));
	used = write_label(name, used, size - 1, "rank", rank);
	used = write_label(name, used, size - 1, "host", host);
	used = write_label(name, used, size - 1, "role", workers ? "workers" : "main");
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

/* Has another process its pid by now, whose profile would be the same? */
static bool is_used_again(const struct watched_jobs *jobs, size_t at)
{
	const struct watched_process *all = jobs->processes.items;

	for (size_t i = at + 1; i < jobs->processes.cnt; i++)
		if (all[i].attached && all[i].pid == all[at].pid)
			return true;
	return false;
}

/*
 * Makes them, and passes each to fn with its name ("stepflame{job=run-a,rank=0,host=h,role=main}") and a file in memory, which the callee closes,
 * until fn returns nonzero; then returns that. Times: CLOCK_MONOTONIC. Processes without a sample have none. 0 or -errno.
 */
static int make_profiles(const struct recording_writer *ring, const struct watched_jobs *jobs,
			 const struct metrics *metrics, uint64_t from_ns, uint64_t to_ns,
			 int (*fn)(const char *name, int fd, void *ctx), void *ctx)
{
	const struct maker maker = {jobs, metrics, fn, ctx};
	const struct watched_process *all = jobs->processes.items;
	struct reading reading = {.job = job__new(), .from_ns = from_ns, .to_ns = to_ns};
	int err = reading.job ? begin_at(reading.job, from_ns) ?: recording_writer__read(ring, take_record, &reading)
			      : -ENOMEM;

	for (size_t i = 0; i < jobs->processes.cnt && !err; i++)
		if (all[i].attached && !is_used_again(jobs, i))
			err = make_profile(&maker, reading.job, all[i].pid, false)
				      ?: make_profile(&maker, reading.job, all[i].pid, true);
	job__free(reading.job);
	return err;
}

/* ---- the sender, a process of its own ---- */

#define LIBRARY      "libcurl.so.4"
#define S            1000000000ull
#define PATIENCE_S   30L /* for one request */
#define CONNECT_S    10L
#define RETRY_MAX_NS (60 * S)
#define ANSWER_BYTES (64 << 10) /* of a server; more is none of ours */

#define FUNCTIONS(X)          \
	X(curl_global_init)   \
	X(curl_easy_init)     \
	X(curl_easy_setopt)   \
	X(curl_easy_perform)  \
	X(curl_easy_getinfo)  \
	X(curl_easy_cleanup)  \
	X(curl_easy_strerror) \
	X(curl_slist_append)  \
	X(curl_slist_free_all)

/* Written once, by sender__load. */
static struct {
#define X(name) __typeof__(name) *name;
	FUNCTIONS(X)
#undef X
} lib;

struct waiting {
	STAILQ_ENTRY(waiting) next;
	struct sender_profile profile;
	size_t bytes;
	char data[];
};

struct sender {
	int channel;
	const char *url;
	CURL *curl;
	struct curl_slist *headers;
	STAILQ_HEAD(, waiting) queue;
	uint64_t queue_bytes;
	size_t answer_bytes;
	uint64_t retry_ns, retry_at_ns;
	struct sender_progress progress;
	bool gone; /* the one that watches */
};

int sender__load(const char **why)
{
	static const struct library_function functions[] = {
#define X(name) {#name, (void **)&lib.name},
		FUNCTIONS(X)
#undef X
	};

	return library__load(LIBRARY, functions, sizeof(functions) / sizeof(*functions), why);
}

/* ---- the queue ---- */

static void drop_first(struct sender *sender)
{
	struct waiting *first = STAILQ_FIRST(&sender->queue);

	STAILQ_REMOVE_HEAD(&sender->queue, next);
	sender->queue_bytes -= first->bytes;
	sender->progress.waiting--;
	free(first);
}

/* fd: -1: this process had no room for it. */
static void queue_profile(struct sender *sender, const struct sender_profile *profile, int fd)
{
	struct stat st;
	bool sound = fd >= 0 && !fstat(fd, &st) && st.st_size > 0 && (uint64_t)st.st_size <= SENDER_PROFILE_BYTES;
	struct waiting *new = sound ? malloc(sizeof(*new) + st.st_size) : NULL;

	if (!new || pread(fd, new->data, st.st_size, 0) != st.st_size) {
		free(new);
		sender->progress.lost++;
		return;
	}
	new->profile = *profile;
	new->profile.name[SENDER_NAME - 1] = 0;
	new->bytes = st.st_size;
	STAILQ_INSERT_TAIL(&sender->queue, new, next);
	sender->queue_bytes += new->bytes;
	sender->progress.waiting++;
	while (sender->queue_bytes > SENDER_QUEUE_BYTES || sender->progress.waiting > SENDER_QUEUE_MAX) {
		drop_first(sender);
		sender->progress.lost++;
	}
}

/* Takes all messages that are there; `busy`: but for the first in the queue, which is being sent, nothing may go. */
static void take_messages(struct sender *sender)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct sender_profile profile;
	struct iovec data = {&profile, sizeof(profile)};
	const struct cmsghdr *part;
	ssize_t got;
	int fd;

	for (;;) {
		struct msghdr message = {
			.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

		got = recvmsg(sender->channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0) {
			sender->gone = true;
			return;
		}
		part = CMSG_FIRSTHDR(&message);
		fd = -1;
		if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(part), sizeof(fd));
		if (got == sizeof(profile))
			queue_profile(sender, &profile, fd);
		if (fd >= 0)
			close(fd);
	}
}

static void send_progress(struct sender *sender)
{
	/* If there is no room, the next one says it. */
	(void)!send(sender->channel, &sender->progress, sizeof(sender->progress), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- requests ---- */

/* "URL?name=...": what is no letter or digit in the name is written as %XX. Returns url. */
static const char *full_url(const struct sender *sender, const struct sender_profile *profile, char *url, size_t size)
{
	char name[SENDER_NAME * 3 + 1];
	size_t used = 0;

	for (const char *c = profile->name; *c; c++)
		used += snprintf(name + used, sizeof(name) - used, isalnum((unsigned char)*c) ? "%c" : "%%%02X",
				 (unsigned char)*c);
	snprintf(url, size, "%s%cname=%s&from=%" PRIu64 "&until=%" PRIu64 "&format=pprof", sender->url,
		 strchr(sender->url, '?') ? '&' : '?', name, profile->from_s, profile->to_s);
	return url;
}

static size_t take_answer(char *data, size_t size, size_t cnt, void *ctx)
{
	struct sender *sender = ctx;

	sender->answer_bytes += size * cnt;
	return sender->answer_bytes > ANSWER_BYTES ? 0 : size * cnt;
}

/* Comes about once a second: a server that hangs keeps nobody waiting. What is being sent has been taken out of the queue. */
static int on_progress(void *ctx, curl_off_t down, curl_off_t downloaded, curl_off_t up, curl_off_t uploaded)
{
	struct sender *sender = ctx;

	take_messages(sender);
	return sender->gone;
}

/* May the same request succeed later? */
static bool is_lasting(long status)
{
	return status >= 400 && status < 500 && status != 408 && status != 429;
}

/* 0; -EAGAIN: to be tried again; or -EPERM: it will not be taken. */
static int post(struct sender *sender, const struct waiting *item)
{
	char url[4096];
	CURLcode code;
	long status = 0;

	sender->answer_bytes = 0;
	lib.curl_easy_setopt(sender->curl, CURLOPT_URL, full_url(sender, &item->profile, url, sizeof(url)));
	lib.curl_easy_setopt(sender->curl, CURLOPT_POSTFIELDS, item->data);
	lib.curl_easy_setopt(sender->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)item->bytes);
	code = lib.curl_easy_perform(sender->curl);
	sender->progress.error[0] = 0;
	if (code != CURLE_OK) {
		snprintf(sender->progress.error, SENDER_ERROR, "%s", lib.curl_easy_strerror(code));
		return -EAGAIN;
	}
	lib.curl_easy_getinfo(sender->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 200 && status < 300)
		return 0;
	snprintf(sender->progress.error, SENDER_ERROR, "the server answers with status %ld", status);
	return is_lasting(status) ? -EPERM : -EAGAIN;
}

static void send_first(struct sender *sender)
{
	struct waiting *item = STAILQ_FIRST(&sender->queue);
	int err;

	/* Meanwhile others may come, and the oldest go. */
	STAILQ_REMOVE_HEAD(&sender->queue, next);
	err = post(sender, item);
	STAILQ_INSERT_HEAD(&sender->queue, item, next);
	if (err == -EAGAIN) {
		sender->retry_ns = sender->retry_ns ? sender->retry_ns * 2 : S;
		if (sender->retry_ns > RETRY_MAX_NS)
			sender->retry_ns = RETRY_MAX_NS;
		sender->retry_at_ns = clock__ns(CLOCK_MONOTONIC) + sender->retry_ns;
	} else {
		sender->progress.sent += !err;
		sender->progress.lost += err != 0;
		drop_first(sender);
		sender->retry_ns = 0;
	}
	send_progress(sender);
}

static int set_up(struct sender *sender, char *const *headers)
{
	struct curl_slist *list = lib.curl_slist_append(NULL, "Content-Type: application/octet-stream"), *longer = list;

	for (; list && *headers; headers++, list = longer ?: list)
		longer = lib.curl_slist_append(list, *headers);
	sender->headers = list;
	sender->curl = list && longer && !lib.curl_global_init(CURL_GLOBAL_DEFAULT) ? lib.curl_easy_init() : NULL;
	if (!sender->curl)
		return -ENOMEM;
	lib.curl_easy_setopt(sender->curl, CURLOPT_HTTPHEADER, list);
	lib.curl_easy_setopt(sender->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	lib.curl_easy_setopt(sender->curl, CURLOPT_NOSIGNAL, 1L);
	lib.curl_easy_setopt(sender->curl, CURLOPT_TIMEOUT, PATIENCE_S);
	lib.curl_easy_setopt(sender->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
	lib.curl_easy_setopt(sender->curl, CURLOPT_USERAGENT, "stepflame/" STEPFLAME_VERSION);
	lib.curl_easy_setopt(sender->curl, CURLOPT_WRITEFUNCTION, take_answer);
	lib.curl_easy_setopt(sender->curl, CURLOPT_WRITEDATA, sender);
	lib.curl_easy_setopt(sender->curl, CURLOPT_NOPROGRESS, 0L);
	lib.curl_easy_setopt(sender->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	lib.curl_easy_setopt(sender->curl, CURLOPT_XFERINFODATA, sender);
	return 0;
}

int sender__run(int channel, const char *url, char *const *headers)
{
	struct sender sender = {.channel = channel, .url = url, .queue = STAILQ_HEAD_INITIALIZER(sender.queue)};
	struct pollfd readable = {.fd = channel, .events = POLLIN};
	int err = set_up(&sender, headers);

	while (!err && !sender.gone) {
		uint64_t now_ns = clock__ns(CLOCK_MONOTONIC);
		bool waits = STAILQ_EMPTY(&sender.queue) || now_ns < sender.retry_at_ns;

		if (!waits)
			send_first(&sender);
		else
			poll(&readable, 1, 1000);
		take_messages(&sender);
	}
	while (!STAILQ_EMPTY(&sender.queue))
		drop_first(&sender);
	if (sender.curl)
		lib.curl_easy_cleanup(sender.curl);
	lib.curl_slist_free_all(sender.headers);
	return err;
}

/* ---- the one that watches ---- */

#define AGAIN_NS     (60 * S)
#define HAND_OVER_MS 10000 /* that the sender may take to take one */
#define URL_MAX      1024
#define NICE         10
#define LOST_MAX     255 /* that an exit status tells */

bool push__is_url(const char *text)
{
	size_t scheme = !strncmp(text, "http://", 7) ? 7 : !strncmp(text, "https://", 8) ? 8 : 0;
	size_t host = scheme ? strcspn(text + scheme, "/?") : 0;

	for (const char *c = text; *c; c++)
		if (*c <= ' ' || *c > '~' || *c == '#')
			return false;
	return host && strlen(text) <= URL_MAX && !memchr(text + scheme, '@', host);
}

/* ---- the sender ---- */

/* 0, or -EINVAL after a message. */
static int read_headers(struct push *push, const char *path)
{
	int fd = secret_file__open("headers", path, "--push-headers", true), cnt = 0;
	ssize_t got;
	char *rest;

	if (fd < 0)
		return fd;
	got = read(fd, push->headers, PUSH_HEADER_BYTES + 1);
	close(fd);
	if (got < 0 || got > PUSH_HEADER_BYTES)
		return secret_file__refuse("headers", path, got < 0 ? strerror(errno) : "it has more than 4 KB", NULL);
	push->headers[got] = 0;
	for (char *line = strtok_r(push->headers, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
		for (const char *c = line; *c; c++)
			if ((unsigned char)*c < ' ' || *c == 127)
				return secret_file__refuse("headers", path, "it has a control character",
							   "write lines NAME: VALUE");
		if (cnt == SENDER_HEADERS || !strchr(line, ':') || *line == ':')
			return secret_file__refuse("headers", path, "it has more than 16 lines, or one without a colon",
						   "write lines NAME: VALUE");
		push->lines[cnt++] = line;
	}
	return 0;
}

/* 0 or -errno. */
static int start_sender(struct push *push, uint64_t now_ns)
{
	int channels[2], high;
	pid_t owner = getpid();

	push->started_ns = now_ns;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels))
		return -errno;
	push->sender = fork();
	if (!push->sender) {
		high = fcntl(channels[1], F_DUPFD_CLOEXEC, RIGHTLESS_FD + 1);
		rightless__become_or_exit("stepflame-push", owner, &high, 1, SENDER_FILES);
		_exit(sender__run(RIGHTLESS_FD, push->options.url, push->lines) ? EXIT_FAILURE : EXIT_SUCCESS);
	}
	close(channels[1]);
	if (push->sender < 0) {
		push->sender = 0;
		close(channels[0]);
		return -EAGAIN;
	}
	push->channel = channels[0];
	return 0;
}

int push__open(struct push *push, const struct push_options *options)
{
	const char *why;
	int err;

	*push = (struct push){.options = *options, .channel = -1};
	if (!options->url)
		return 0;
	if (sender__load(&why)) {
		log__error("apt install libcurl4", "cannot push profiles: %s", why);
		return -ENOENT;
	}
	err = options->headers_file ? read_headers(push, options->headers_file) : 0;
	if (err)
		return err;
	err = start_sender(push, clock__ns(CLOCK_MONOTONIC));
	if (err)
		log__error(NULL, "cannot push profiles: %s", strerror(-err));
	return err;
}

/* Says when it begins and ends to fail; what waits for longer than the queue has room is lost. */
static void receive_progress(struct push *push)
{
	struct sender_progress progress;

	while (push->channel >= 0 &&
	       recv(push->channel, &progress, sizeof(progress), MSG_DONTWAIT) == sizeof(progress)) {
		progress.error[SENDER_ERROR - 1] = 0;
		push->progress = progress;
		if (*progress.error && !push->fails)
			log__warn("look at the server, or choose another one with --push",
				  "cannot push profiles to %s: %s; keeps the last %llu MB of them", push->options.url,
				  progress.error, SENDER_QUEUE_BYTES >> 20);
		else if (!*progress.error && push->fails)
			log__info("pushes profiles to %s again", push->options.url);
		push->fails = *progress.error;
	}
}

static void reap_children(struct push *push, uint64_t now_ns)
{
	int status;

	receive_progress(push);
	if (push->maker && waitpid(push->maker, &status, WNOHANG) == push->maker) {
		push->lost_before += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		push->maker = 0;
	}
	if (push->sender && waitpid(push->sender, &status, WNOHANG) == push->sender) {
		log__warn(NULL, "what pushes profiles has ended (%s %d); it is started again within a minute",
			  WIFSIGNALED(status) ? "signal" : "status",
			  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		receive_progress(push);
		push->sent_before += push->progress.sent;
		push->lost_before += push->progress.lost + push->progress.waiting;
		push->progress = (struct sender_progress){};
		push->sender = 0;
		close(push->channel);
		push->channel = -1;
	}
	if (!push->sender && now_ns >= push->started_ns + AGAIN_NS)
		start_sender(push, now_ns);
}

/* ---- profiles ---- */

struct making {
	const struct push *push;
	uint64_t from_s, to_s;
	int lost;
};

static int hand_over(const char *name, int fd, void *ctx)
{
	char control[CMSG_SPACE(sizeof(fd))] __attribute__((aligned(8))) = {0};
	struct making *making = ctx;
	struct sender_profile profile = {.from_s = making->from_s, .to_s = making->to_s};
	struct iovec data = {&profile, sizeof(profile)};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct pollfd writable = {.fd = making->push->channel, .events = POLLOUT};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	snprintf(profile.name, sizeof(profile.name), "%s", name);
	*part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(part), &fd, sizeof(fd));
	if (poll(&writable, 1, HAND_OVER_MS) != 1 ||
	    sendmsg(making->push->channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		making->lost += making->lost < LOST_MAX;
	close(fd);
	return 0;
}

bool push__is_due(struct push *push, uint64_t now_ns)
{
	if (!push->options.url)
		return false;
	reap_children(push, now_ns);
	if (!push->next_ns) {
		push->next_ns = now_ns + push->options.every_ns;
		push->from_ns = now_ns;
	}
	return now_ns >= push->next_ns && !push->maker && push->sender;
}

void push__now(struct push *push, const struct recording_writer *ring, const struct watched_jobs *jobs,
	       const struct metrics *metrics, uint64_t now_ns)
{
	const uint64_t zero_ns = clock__ns(CLOCK_REALTIME) - clock__ns(CLOCK_MONOTONIC);
	struct making making = {.push = push, (push->from_ns + zero_ns) / S, (now_ns + zero_ns) / S};
	pid_t child = fork();

	if (!child) {
		setpriority(PRIO_PROCESS, 0, NICE);
		making.lost += make_profiles(ring, jobs, metrics, push->from_ns, now_ns, hand_over, &making) != 0;
		_exit(making.lost < LOST_MAX ? making.lost : LOST_MAX);
	}
	push->maker = child < 0 ? 0 : child;
	push->from_ns = now_ns;
	push->next_ns = now_ns + push->options.every_ns;
}

void push__skip(struct push *push)
{
	push->next_ns = 0;
}

uint64_t push__sent(const struct push *push)
{
	return push->sent_before + push->progress.sent;
}

uint64_t push__lost(const struct push *push)
{
	return push->lost_before + push->progress.lost;
}

void push__close(struct push *push)
{
	pid_t children[] = {push->maker, push->sender};

	if (!push->options.url)
		return;
	if (push->channel >= 0)
		close(push->channel);
	for (size_t i = 0; i < sizeof(children) / sizeof(*children); i++) {
		if (!children[i])
			continue;
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	*push = (struct push){};
}
