// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/sender.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "user/lib/clock.h"
#include "user/lib/library.h"

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
	struct sender_told told;
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
	sender->told.waiting--;
	free(first);
}

/* fd: -1: this process had no room for it. */
static void add(struct sender *sender, const struct sender_profile *profile, int fd)
{
	struct stat st;
	bool sound = fd >= 0 && !fstat(fd, &st) && st.st_size > 0 && (uint64_t)st.st_size <= SENDER_PROFILE_BYTES;
	struct waiting *new = sound ? malloc(sizeof(*new) + st.st_size) : NULL;

	if (!new || pread(fd, new->data, st.st_size, 0) != st.st_size) {
		free(new);
		sender->told.lost++;
		return;
	}
	new->profile = *profile;
	new->profile.name[SENDER_NAME - 1] = 0;
	new->bytes = st.st_size;
	STAILQ_INSERT_TAIL(&sender->queue, new, next);
	sender->queue_bytes += new->bytes;
	sender->told.waiting++;
	while (sender->queue_bytes > SENDER_QUEUE_BYTES || sender->told.waiting > SENDER_QUEUE_MAX) {
		drop_first(sender);
		sender->told.lost++;
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
			add(sender, &profile, fd);
		if (fd >= 0)
			close(fd);
	}
}

static void tell(struct sender *sender)
{
	/* If there is no room, the next one says it. */
	(void)!send(sender->channel, &sender->told, sizeof(sender->told), MSG_DONTWAIT | MSG_NOSIGNAL);
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
	sender->told.error[0] = 0;
	if (code != CURLE_OK) {
		snprintf(sender->told.error, SENDER_ERROR, "%s", lib.curl_easy_strerror(code));
		return -EAGAIN;
	}
	lib.curl_easy_getinfo(sender->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 200 && status < 300)
		return 0;
	snprintf(sender->told.error, SENDER_ERROR, "the server answers with status %ld", status);
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
		sender->told.sent += !err;
		sender->told.lost += err != 0;
		drop_first(sender);
		sender->retry_ns = 0;
	}
	tell(sender);
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
