// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 4096

enum guard_command { GUARD_WRITE, GUARD_RESTORE, GUARD_END };

/* A request from stepflame to the guardian, which answers with an int. */
struct guard_request {
	enum guard_command command;
	pid_t pid;
	uint64_t start_time, address, value;
};

/*
 * A word to restore. `memory` is an open /proc/PID/mem: after an exec it still refers to the old
 * memory, so that a restore cannot change the new program.
 */
struct target_word {
	struct guard_request request;
	int memory;
};

struct guardian {
	pid_t pid;
	int socket;
};

struct target_words {
	struct target_word word[WORDS_MAX];
	size_t cnt;
};

static int allows_word(const struct mapping *map, void *ctx)
{
	const uint64_t *address = ctx;

	return *address >= map->start && *address + 8 <= map->end && map->writable && !map->shared;
}

/*
 * Is the address in private writable memory? A write through /proc/PID/mem would get around the
 * protection of any other memory.
 */
static bool is_writable(pid_t pid, uint64_t address)
{
	return process__each_mapping(pid, allows_word, &address) > 0;
}

/*
 * Changes a word in one aligned store, since the target may read it at any time. -EBUSY: the value
 * is not `from`; -EALREADY: it already is `to`.
 */
static int change_word(int memory, uint64_t address, uint64_t from, uint64_t to)
{
	uint64_t now;

	if (pread(memory, &now, sizeof(now), (off_t)address) != sizeof(now))
		return -EFAULT;
	if (now == to && from != to)
		return -EALREADY;
	if (now != from)
		return -EBUSY;
	return pwrite(memory, &to, sizeof(to), (off_t)address) == sizeof(to) ? 0 : -EFAULT;
}

static int open_memory(const struct guard_request *m)
{
	const struct process process = {.pid = m->pid, .start_time = m->start_time};
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", m->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (process__alive(&process)) /* so this is not the memory of a later process */
		return fd;
	close(fd);
	return -ESRCH;
}

static int target_words__write(struct target_words *words, const struct guard_request *m)
{
	int memory, err;

	if (words->cnt == WORDS_MAX)
		return -ENOSPC;
	if (m->address % 8 || !is_writable(m->pid, m->address))
		return -EFAULT;
	memory = open_memory(m);
	if (memory < 0)
		return memory;
	err = change_word(memory, m->address, 0, m->value);
	if (err && err != -EALREADY) {
		close(memory);
		return err;
	}
	for (size_t i = 0; err && i < words->cnt; i++)
		if (words->word[i].request.pid == m->pid && words->word[i].request.address == m->address) {
			close(memory); /* a repeated request */
			return err;
		}
	words->word[words->cnt++] = (struct target_word){*m, memory};
	return err;
}

/*
 * Restores the word in the process's descendants: a fork has the same memory, and stepflame may
 * have seen it too late.
 */
static void restore_forks(const struct guard_request *m)
{
	pid_t *children = NULL;
	int cnt = process__children(m->pid, true, &children);

	for (int i = 0; i < cnt; i++) {
		struct guard_request fork = *m;
		struct process process;
		int memory;

		if (process__read(children[i], &process))
			continue;
		fork.pid = children[i];
		fork.start_time = process.start_time;
		process__release(&process);
		memory = is_writable(fork.pid, fork.address) ? open_memory(&fork) : -1;
		if (memory < 0)
			continue;
		change_word(memory, fork.address, fork.value, 0);
		close(memory);
	}
	free(children);
}

static void target_words__restore(struct target_words *words, size_t i)
{
	struct target_word *word = &words->word[i];

	change_word(word->memory, word->request.address, word->request.value, 0);
	close(word->memory);
	*word = words->word[--words->cnt];
}

static void target_words__restore_all(struct target_words *words)
{
	while (words->cnt) {
		struct guard_request m = words->word[words->cnt - 1].request;

		target_words__restore(words, words->cnt - 1);
		restore_forks(&m);
	}
}

static void serve_requests(int socket)
{
	static struct target_words words;
	struct guard_request m;

	while (recv(socket, &m, sizeof(m), 0) == sizeof(m)) {
		int answer = 0;

		if (m.command == GUARD_WRITE) {
			answer = target_words__write(&words, &m);
		} else if (m.command == GUARD_RESTORE) {
			for (size_t i = words.cnt; i--;)
				if (words.word[i].request.pid == m.pid)
					target_words__restore(&words, i);
		} else {
			target_words__restore_all(&words);
		}
		if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
			break;
	}
	target_words__restore_all(&words);
}

/*
 * Closes all files of stepflame in the guardian: they would keep the probes attached, and a reader
 * of stepflame's output would wait for the guardian to end.
 */
static void become_guardian(int socket)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP};

	setsid();
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, "stepflame-guard");
	if (socket)
		close_range(0, socket - 1, 0);
	close_range(socket + 1, ~0U, 0);
	if (chdir("/"))
		_exit(1);
}

int guardian__new(struct guardian **out)
{
	struct guardian *g = calloc(1, sizeof(*g));
	int sockets[2], err;

	*out = NULL;
	if (!g)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		goto fail;
	g->pid = fork();
	if (g->pid < 0) {
		close(sockets[0]);
		close(sockets[1]);
		goto fail;
	}
	if (!g->pid) {
		become_guardian(sockets[1]);
		serve_requests(sockets[1]);
		_exit(0);
	}
	close(sockets[1]);
	g->socket = sockets[0];
	*out = g;
	return 0;
fail:
	err = -errno;
	free(g);
	return err;
}

/* Sends a request and waits for the answer, even if a signal interrupts the wait. */
static int ask_guardian(struct guardian *g, const struct guard_request *m)
{
	ssize_t got;
	int answer;

	if (send(g->socket, m, sizeof(*m), MSG_NOSIGNAL) != sizeof(*m))
		return -errno;
	do
		got = recv(g->socket, &answer, sizeof(answer), 0);
	while (got < 0 && errno == EINTR);
	return got == sizeof(answer) ? answer : -EPIPE;
}

int guardian__write(struct guardian *g, const struct process *process, uint64_t address, uint64_t value)
{
	const struct guard_request m = {GUARD_WRITE, process->pid, process->start_time, address, value};

	return ask_guardian(g, &m);
}

void guardian__restore(struct guardian *g, const struct process *process)
{
	const struct guard_request m = {.command = GUARD_RESTORE, .pid = process->pid};

	ask_guardian(g, &m);
}

int guardian__free(struct guardian *g)
{
	const struct guard_request m = {.command = GUARD_END};
	int err;

	if (!g)
		return 0;
	err = ask_guardian(g, &m);
	close(g->socket);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(g);
	return err;
}
