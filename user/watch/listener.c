// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/watch/http.h"
#include "user/watch/rightless.h"
#include "user/watch/secret_file.h"
#include "user/watch/tls.h"

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

/* ---- files ---- */

static int read_token(struct listener *listener, const char *path)
{
	int fd = secret_file__open("token", path, "--token-file", true);
	char text[LISTENER_TOKEN_MAX + 2];
	ssize_t got;

	if (fd < 0)
		return fd;
	got = read(fd, text, sizeof(text));
	close(fd);
	while (got > 0 && strchr(" \t\r\n", text[got - 1]))
		got--;
	if (got < LISTENER_TOKEN_MIN || got > LISTENER_TOKEN_MAX)
		return secret_file__refuse("token", path, "it has less than 16 characters, or more than 256",
					   "make one: head -c 32 /dev/urandom | base64 > FILE");
	for (ssize_t i = 0; i < got; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return secret_file__refuse("token", path, "it has a blank, or what is not ASCII",
						   "write one word into the file");
	memcpy(listener->token, text, got);
	listener->token[got] = 0;
	return 0;
}

/* ---- the child ---- */

static _Noreturn void become_server(const struct listener *listener, int socket, int channel, pid_t owner)
{
	const int fds[] = {socket, channel};

	rightless__become_or_exit("stepflame-http", owner, fds, 2, HTTP_CLIENTS + OWN_FILES);
	_exit(http__serve(RIGHTLESS_FD, RIGHTLESS_FD + 1, *listener->token ? listener->token : NULL,
			  listener->options.cert_file)
		      ? EXIT_FAILURE
		      : EXIT_SUCCESS);
}

/* 0 or -errno. */
static int send_files(const struct listener *listener, char kind, const int *fds, size_t cnt)
{
	char control[CMSG_SPACE(sizeof(int) * HTTP_FDS)] __attribute__((aligned(8))) = {0};
	struct iovec data = {&kind, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	struct cmsghdr *part;

	if (cnt) {
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(sizeof(*fds) * cnt);
		part = CMSG_FIRSTHDR(&message);
		*part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(*fds) * cnt), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(part), fds, sizeof(*fds) * cnt);
	}
	return sendmsg(listener->channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
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
	struct addrinfo *address = find_address(listener->options.address);
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

/* ---- the certificate ---- */

static struct listener_stamp stamp_of(const char *path)
{
	struct listener_stamp stamp = {0};
	struct stat st;

	if (!stat(path, &st))
		stamp = (struct listener_stamp){st.st_dev, st.st_ino, st.st_size,
						st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec};
	return stamp;
}

static bool is_same(const struct listener_stamp *a, const struct listener_stamp *b)
{
	return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes && a->changed_ns == b->changed_ns;
}

/* The child has no rights to open them. 0, or -errno after a message. */
static int send_certificate(struct listener *listener)
{
	const struct listener_options *options = &listener->options;
	int fds[HTTP_FDS], err;

	listener->cert = stamp_of(options->cert_file);
	listener->key = stamp_of(options->key_file);
	fds[0] = secret_file__open("certificate", options->cert_file, "--tls-cert", false);
	if (fds[0] < 0)
		return fds[0];
	fds[1] = secret_file__open("key", options->key_file, "--tls-key", true);
	err = fds[1] < 0 ? fds[1] : send_files(listener, HTTP_TLS, fds, HTTP_FDS);
	if (fds[1] >= 0) {
		close(fds[1]);
		if (err)
			log__warn(NULL, "cannot hand over the certificate in %s: %s", options->cert_file,
				  strerror(-err));
	}
	close(fds[0]);
	return err;
}

/* What the child says of the last one. flags: MSG_DONTWAIT, or 0. 1: it is used; 0: nothing yet; or -EINVAL after a message. */
static int hear_certificate(const struct listener *listener, int flags, const char *otherwise)
{
	char why[HTTP_WHY];
	ssize_t got = recv(listener->channel, why, sizeof(why) - 1, flags);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got == 1)
		return 1;
	why[got > 0 ? got : 0] = 0;
	log__error("name a certificate and its key, both as PEM, with --tls-cert and --tls-key",
		   "cannot use the certificate in %s with the key in %s: %s%s", listener->options.cert_file,
		   listener->options.key_file, got > 0 ? why : "what would use it has ended", otherwise);
	return -EINVAL;
}

/* Files that took their place, as those do that a certificate is renewed with. */
static void renew_certificate(struct listener *listener)
{
	const struct listener_options *options = &listener->options;
	struct listener_stamp cert, key;

	if (!options->cert_file)
		return;
	if (hear_certificate(listener, MSG_DONTWAIT, "; goes on with the one of before") > 0)
		log__info("uses the certificate that is in %s now", options->cert_file);
	cert = stamp_of(options->cert_file);
	key = stamp_of(options->key_file);
	if (!is_same(&cert, &listener->cert) || !is_same(&key, &listener->key))
		send_certificate(listener);
}

static bool is_open(const char *address)
{
	struct addrinfo *found = find_address(address);
	bool open = !found || !is_loopback(found->ai_addr);

	if (found)
		freeaddrinfo(found);
	return open;
}

/* 0, or -errno after a message. */
static int check_options(const struct listener_options *options)
{
	const char *why;

	if (!options->cert_file != !options->key_file) {
		log__error("--tls-cert FILE --tls-key FILE", "TLS needs both a certificate and its key");
		return -EINVAL;
	}
	if (!options->token_file && is_open(options->address)) {
		log__error("--token-file FILE, or listen on 127.0.0.1",
			   "will not listen on %s: whoever reaches it could read the metrics", options->address);
		return -EINVAL;
	}
	if (!options->cert_file && !options->cleartext && is_open(options->address)) {
		log__error("--tls-cert FILE --tls-key FILE; or --tls off, where nobody can read what goes over that "
			   "network",
			   "will not listen on %s without TLS: the token would go over the network as it is",
			   options->address);
		return -EINVAL;
	}
	if (options->cert_file && tls__load(&why)) {
		log__error("apt install libevent-openssl-2.1-7", "cannot use TLS: %s", why);
		return -ENOENT;
	}
	return 0;
}

int listener__open(struct listener *listener, const struct listener_options *options)
{
	int err;

	*listener = (struct listener){.options = *options, .channel = -1};
	if (!options->address)
		return 0;
	err = check_options(options);
	if (!err && options->token_file)
		err = read_token(listener, options->token_file);
	if (err)
		return err;
	err = start(listener);
	if (err) {
		log__error(fix_of(err), "cannot listen on %s: %s", options->address, strerror(-err));
		return err;
	}
	if (options->cert_file)
		err = send_certificate(listener) ?: hear_certificate(listener, 0, "") < 0 ? -EINVAL : 0;
	if (err)
		listener__close(listener);
	return err;
}

/* ---- from time to time ---- */

/* Its end is no reason to end; but what ends it may do so again. */
static void look_after(struct listener *listener, uint64_t now_ns)
{
	int status;

	if (listener->child && waitpid(listener->child, &status, WNOHANG) == listener->child) {
		log__warn(NULL, "what answers at %s has ended (%s %d); it is started again within a minute",
			  listener->options.address, WIFSIGNALED(status) ? "signal" : "status",
			  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		listener->child = 0;
		close(listener->channel);
		listener->channel = -1;
	}
	if (!listener->child && now_ns >= listener->started_ns + AGAIN_NS && !start(listener) &&
	    listener->options.cert_file)
		send_certificate(listener);
}

void listener__tell(struct listener *listener, const char *path, uint64_t now_ns)
{
	int fd;

	if (!listener->options.address)
		return;
	look_after(listener, now_ns);
	if (listener->channel < 0)
		return;
	renew_certificate(listener);
	fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	/* If it is busy, or has ended, it will be told the next time. */
	send_files(listener, fd >= 0 ? HTTP_METRICS : HTTP_NO_METRICS, &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
}

void listener__close(struct listener *listener)
{
	if (!listener->options.address)
		return;
	if (listener->channel >= 0)
		close(listener->channel);
	if (listener->child) {
		kill(listener->child, SIGKILL);
		waitpid(listener->child, NULL, 0);
	}
	*listener = (struct listener){};
}
