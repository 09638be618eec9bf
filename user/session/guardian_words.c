// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/guardian_words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "user/proc/process.h"

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

static int open_memory(const struct guarded_word *m)
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

int guarded_words__write(struct guarded_words *words, const struct guarded_word *m)
{
	int memory, err;

	if (words->cnt == WORDS_MAX)
		return -ENOSPC;
	/* The memory is opened before it is checked: after an exec in between, the file is of the old memory. */
	memory = open_memory(m);
	if (memory < 0)
		return memory;
	err = m->address % 8 || !is_writable(m->pid, m->address) ? -EFAULT : 0;
	err = err ?: change_word(memory, m->address, 0, m->value);
	if (err && err != -EALREADY) {
		close(memory);
		return err;
	}
	for (size_t i = 0; err && i < words->cnt; i++)
		if (words->word[i].at.pid == m->pid && words->word[i].at.start_time == m->start_time &&
		    words->word[i].at.address == m->address) {
			close(memory); /* a repeated request */
			return err;
		}
	words->word[words->cnt++] = (struct saved_word){*m, memory};
	return err;
}

/*
 * Restores the word in the process's descendants: a fork has the same memory, and stepflame may
 * have seen it too late.
 */
static void restore_forks(const struct guarded_word *m)
{
	pid_t *children = NULL;
	int cnt = process__children(m->pid, true, &children);

	for (int i = 0; i < cnt; i++) {
		struct guarded_word fork = *m;
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

static void restore_word(struct guarded_words *words, size_t i)
{
	struct saved_word *word = &words->word[i];

	change_word(word->memory, word->at.address, word->at.value, 0);
	close(word->memory);
	*word = words->word[--words->cnt];
}

void guarded_words__restore(struct guarded_words *words, pid_t pid)
{
	for (size_t i = words->cnt; i--;)
		if (words->word[i].at.pid == pid)
			restore_word(words, i);
}

void guarded_words__restore_all(struct guarded_words *words)
{
	while (words->cnt) {
		struct guarded_word m = words->word[words->cnt - 1].at;

		restore_word(words, words->cnt - 1);
		restore_forks(&m);
	}
}
