// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/lib/capabilities.h"
#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/watch/http.h"

#define NOBODY       65534
#define OWN_FILES    14 /* that the child has besides connections, with what libevent opens */
#define AGAIN_NS     60000000000ull
#define ADDRESS_ONLY (AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE)

/* ---- the address ---- */

/* The caller frees what it returns with freeaddrinfo. NULL: that is no address. */
static struct addrinfo *find_address(const char *text)
{
	const struct addrinfo wanted = {.ai_flags = ADDRESS_ONLY, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 2];
	struct addrinfo *found;
	size_t bytes = colon ? (size_t)(colon - text) : 0;
	bool brackets;

	if (!bytes || bytes >= sizeof(host) || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    atoi(colon + 1) > UINT16_MAX || !atoi(colon + 1))
		return NULL;
	memcpy(host, text, bytes);
	host[bytes] = 0;
	brackets = host[0] == '[' && host[bytes - 1] == ']';
	if (brackets != !!strchr(host, ':'))
		return NULL;
	host[bytes - brackets] = 0;
	return getaddrinfo(host + brackets, colon + 1, &wanted, &found) ? NULL : found;
}

bool listener__is_address(const char *text)
{
	struct addrinfo *found = find_address(text);

	if (found)
		freeaddrinfo(found);
	return found;
}

static bool is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;

	return address->sa_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
					     : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* The descriptor or -errno. */
static int listening_socket(const struct addrinfo *address)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, err = 0;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, HTTP_WAITING))
		err = -errno;
	if (err && fd >= 0)
		close(fd);
	return err ?: fd;
}

static const char *fix_of(int err)
{
	switch (-err) {
	case EADDRINUSE:
		return "choose another port with --listen, or stop what has this one: ss -ltnp shows it";
	case EADDRNOTAVAIL:
	case EAFNOSUPPORT:
		return "name an address that this host has, with --listen: ip addr shows them";
	case EACCES:
		return "choose a port from 1024 on, with --listen";
	default:
		return NULL;
	}
}

/* ---- the token ---- */

static int refuse_token(const char *path, const char *why, const char *fix)
{
	log__error(fix, "cannot use the token in %s: %s", path, why);
	return -EINVAL;
}

static int read_token(struct listener *listener, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char text[LISTENER_TOKEN_MAX + 2];
	struct stat st;
	ssize_t got = -1;

	if (fd < 0 || fstat(fd, &st) || (S_ISREG(st.st_mode) && (got = read(fd, text, sizeof(text))) < 0)) {
		int err = errno;

		if (fd >= 0)
			close(fd);
		return refuse_token(path, strerror(err), "name a file that can be read with --token-file");
	}
	close(fd);
	if (got < 0)
		return refuse_token(path, "it is no regular file", "name a file with --token-file");
	if ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & (S_IRWXG | S_IRWXO))
		return refuse_token(path, "others may read or write it",
				    "chmod 600 FILE, and chown it to who runs this");
	while (got && strchr(" \t\r\n", text[got - 1]))
		got--;
	if (got < LISTENER_TOKEN_MIN || got > LISTENER_TOKEN_MAX)
		return refuse_token(path, "it has less than 16 characters, or more than 256",
				    "make one: head -c 32 /dev/urandom | base64 > FILE");
	for (ssize_t i = 0; i < got; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return refuse_token(path, "it has a blank, or what is not ASCII",
					    "write one word into the file");
	memcpy(listener->token, text, got);
	listener->token[got] = 0;
	return 0;
}

/* ---- the child ---- */

static _Noreturn void become_server(const struct listener *listener, int socket, int channel, pid_t owner)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
	const struct rlimit files = {HTTP_CLIENTS + OWN_FILES, HTTP_CLIENTS + OWN_FILES}, none = {0, 0};

	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, "stepflame-http");
	if (dup2(socket, 3) < 0 || dup2(channel, 4) < 0 || close_range(5, ~0U, 0))
		_exit(EXIT_FAILURE);
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_FSIZE, &none);
	/* Without CAP_SETUID it stays who it is, without capabilities. */
	if (!geteuid() && !setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY) &&
	    setresuid(NOBODY, NOBODY, NOBODY))
		_exit(EXIT_FAILURE);
	capabilities__drop();
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_PDEATHSIG,
	      SIGKILL); /* a child that keeps an event has the channel, too, and may be there for longer */
	if (getppid() != owner)
		_exit(EXIT_SUCCESS);
	_exit(http__serve(3, 4, *listener->token ? listener->token : NULL) ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* 0 or -errno. socket: it listens, and may not be 3 or 4. */
static int fork_server(struct listener *listener, int socket)
{
	int channels[2], err = 0;
	pid_t owner = getpid();

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels))
		return -errno;
	listener->child = fork();
	if (!listener->child)
		become_server(listener, socket, fcntl(channels[1], F_DUPFD_CLOEXEC, 5), owner);
	if (listener->child < 0) {
		err = -errno;
		listener->child = 0;
		close(channels[0]);
	} else {
		listener->channel = channels[0];
	}
	close(channels[1]);
	return err;
}

/* Only the child keeps the socket, so that nobody else has the address when it has ended. */
static int start(struct listener *listener)
{
	struct addrinfo *address = find_address(listener->address);
	int socket = address ? listening_socket(address) : -ENOMEM, high, err;

	listener->started_ns = clock__ns(CLOCK_MONOTONIC);
	if (address)
		freeaddrinfo(address);
	if (socket < 0)
		return socket;
	high = fcntl(socket, F_DUPFD_CLOEXEC, 5);
	err = high < 0 ? -errno : fork_server(listener, high);
	if (high >= 0)
		close(high);
	close(socket);
	return err;
}

static bool is_open(const char *address)
{
	struct addrinfo *found = find_address(address);
	bool open = !found || !is_loopback(found->ai_addr);

	if (found)
		freeaddrinfo(found);
	return open;
}

int listener__open(struct listener *listener, const char *address, const char *token_file)
{
	int err;

	*listener = (struct listener){.address = address, .channel = -1};
	if (!address)
		return 0;
	if (!token_file && is_open(address)) {
		log__error("--token-file FILE, or listen on 127.0.0.1 behind a proxy that has TLS",
			   "will not listen on %s: whoever reaches it could read the metrics", address);
		return -EINVAL;
	}
	err = token_file ? read_token(listener, token_file) : 0;
	if (err)
		return err;
	err = start(listener);
	if (err)
		log__error(fix_of(err), "cannot listen on %s: %s", address, strerror(-err));
	return err;
}

/* ---- from time to time ---- */

/* Its end is no reason to end; but what ends it may do so again. */
static void look_after(struct listener *listener, uint64_t now_ns)
{
	int status;

	if (listener->child && waitpid(listener->child, &status, WNOHANG) == listener->child) {
		log__warn(NULL, "what answers at %s has ended (%s %d); it is started again within a minute",
			  listener->address, WIFSIGNALED(status) ? "signal" : "status",
			  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		listener->child = 0;
		close(listener->channel);
		listener->channel = -1;
	}
	if (!listener->child && now_ns >= listener->started_ns + AGAIN_NS)
		start(listener);
}

void listener__tell(struct listener *listener, const char *path, uint64_t now_ns)
{
	char kind = HTTP_NO_METRICS, control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
	struct iovec data = {&kind, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	struct cmsghdr *part;
	int fd;

	if (!listener->address)
		return;
	look_after(listener, now_ns);
	if (listener->channel < 0)
		return;
	fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	if (fd >= 0) {
		kind = HTTP_METRICS;
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		part = CMSG_FIRSTHDR(&message);
		*part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(part), &fd, sizeof(fd));
	}
	if (sendmsg(listener->channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		/* It is busy, or has ended: it will be told the next time. */
	}
	if (fd >= 0)
		close(fd);
}

void listener__close(struct listener *listener)
{
	if (!listener->address)
		return;
	if (listener->channel >= 0)
		close(listener->channel);
	if (listener->child) {
		kill(listener->child, SIGKILL);
		waitpid(listener->child, NULL, 0);
	}
	*listener = (struct listener){};
}
