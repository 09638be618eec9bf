// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/push.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/watch/rightless.h"
#include "user/watch/secret_file.h"

#define S            1000000000ull
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
static int start(struct push *push, uint64_t now_ns)
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
	err = start(push, clock__ns(CLOCK_MONOTONIC));
	if (err)
		log__error(NULL, "cannot push profiles: %s", strerror(-err));
	return err;
}

/* Says when it begins and ends to fail; what waits for longer than the queue has room is lost. */
static void hear(struct push *push)
{
	struct sender_told told;

	while (push->channel >= 0 && recv(push->channel, &told, sizeof(told), MSG_DONTWAIT) == sizeof(told)) {
		told.error[SENDER_ERROR - 1] = 0;
		push->told = told;
		if (*told.error && !push->fails)
			log__warn("look at the server, or choose another one with --push",
				  "cannot push profiles to %s: %s; keeps the last %llu MB of them", push->options.url,
				  told.error, SENDER_QUEUE_BYTES >> 20);
		else if (!*told.error && push->fails)
			log__info("pushes profiles to %s again", push->options.url);
		push->fails = *told.error;
	}
}

static void look_after(struct push *push, uint64_t now_ns)
{
	int status;

	hear(push);
	if (push->maker && waitpid(push->maker, &status, WNOHANG) == push->maker) {
		push->lost_before += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		push->maker = 0;
	}
	if (push->sender && waitpid(push->sender, &status, WNOHANG) == push->sender) {
		log__warn(NULL, "what pushes profiles has ended (%s %d); it is started again within a minute",
			  WIFSIGNALED(status) ? "signal" : "status",
			  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		hear(push);
		push->sent_before += push->told.sent;
		push->lost_before += push->told.lost + push->told.waiting;
		push->told = (struct sender_told){};
		push->sender = 0;
		close(push->channel);
		push->channel = -1;
	}
	if (!push->sender && now_ns >= push->started_ns + AGAIN_NS)
		start(push, now_ns);
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
	look_after(push, now_ns);
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
		making.lost += profiles__make(ring, jobs, metrics, push->from_ns, now_ns, hand_over, &making) != 0;
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
	return push->sent_before + push->told.sent;
}

uint64_t push__lost(const struct push *push)
{
	return push->lost_before + push->told.lost;
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
