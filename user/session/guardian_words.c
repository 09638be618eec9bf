// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/guardian_words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "user/proc/proc.h"
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

static bool is_same_process(const struct guarded_word *m, pid_t pid, uint64_t start_time)
{
	return m->pid == pid && m->start_time == start_time;
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
	word_journal__set(&words->journal, words->cnt, m);
	err = m->address % 8 || !is_writable(m->pid, m->address) ? -EFAULT : 0;
	err = err ?: change_word(memory, m->address, 0, m->value);
	for (size_t i = 0; err == -EALREADY && i < words->cnt; i++)
		if (is_same_process(&words->word[i].at, m->pid, m->start_time) &&
		    words->word[i].at.address == m->address)
			goto not_ours; /* a repeated request */
	if (err && err != -EALREADY)
		goto not_ours;
	words->word[words->cnt++] = (struct saved_word){*m, memory};
	return err;
not_ours:
	word_journal__set(&words->journal, words->cnt, NULL);
	close(memory);
	return err;
}

static void restore_word(struct guarded_words *words, size_t i)
{
	struct saved_word *word = &words->word[i];

	change_word(word->memory, word->at.address, word->at.value, 0);
	close(word->memory);
	*word = words->word[--words->cnt];
	if (i < words->cnt)
		word_journal__set(&words->journal, i, &word->at);
	word_journal__set(&words->journal, words->cnt, NULL);
}

void guarded_words__restore(struct guarded_words *words, pid_t pid, uint64_t start_time)
{
	for (size_t i = words->cnt; i--;)
		if (is_same_process(&words->word[i].at, pid, start_time))
			restore_word(words, i);
}

/* ---- forks ---- */

/*
 * How long a fork that had copied the old word may take until it is in /proc: it copies under the
 * lock that a restore waits for.
 */
#define FORK_APPEARS_US 2000
#define LOOKS_MAX       100 /* a hostile process could set the word again and again */

/* Restores the word in one fork. Returns whether it was set. */
static bool restore_fork(const struct guarded_word *m, pid_t pid)
{
	struct guarded_word fork = *m;
	struct proc_stat stat;
	int memory = -1;
	bool was_set;

	if (proc__stat(pid, 0, &stat))
		return false;
	fork.pid = pid;
	fork.start_time = stat.start_time;
	if (is_writable(fork.pid, fork.address))
		memory = open_memory(&fork);
	if (memory < 0)
		return false;
	was_set = !change_word(memory, fork.address, fork.value, 0);
	close(memory);
	return was_set;
}

static int by_pid(const void *a, const void *b)
{
	const struct guarded_word *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Restores the words of one process (`cnt` of them) in its descendants. Returns whether one was set. */
static bool restore_descendants(const struct guarded_word *words, size_t cnt)
{
	pid_t *children = NULL;
	int child_cnt = process__children(words->pid, true, &children);
	bool was_set = false;

	for (int i = 0; i < child_cnt; i++)
		for (size_t k = 0; k < cnt; k++)
			was_set = restore_fork(&words[k], children[i]) || was_set;
	free(children);
	return was_set;
}

/*
 * A fork has the same memory, and stepflame may have seen it too late, or not yet. Looks until no
 * word is set in any: a fork may fork while the others are restored. Sorts the words, which are
 * restored in the processes themselves.
 */
static void restore_forks(struct guarded_word *words, size_t cnt)
{
	bool was_set = cnt;

	qsort(words, cnt, sizeof(*words), by_pid);
	for (int look = 0; was_set && look < LOOKS_MAX; look++) {
		was_set = false;
		usleep(FORK_APPEARS_US);
		for (size_t i = 0, next; i < cnt; i = next) {
			for (next = i + 1; next < cnt && words[next].pid == words[i].pid;)
				next++;
			was_set = restore_descendants(words + i, next - i) || was_set;
		}
	}
}

void guarded_words__restore_all(struct guarded_words *words)
{
	static struct guarded_word restored[WORDS_MAX];
	size_t cnt = words->cnt;

	for (size_t i = 0; i < cnt; i++)
		restored[i] = words->word[i].at;
	while (words->cnt)
		restore_word(words, words->cnt - 1);
	restore_forks(restored, cnt);
	word_journal__remove(&words->journal);
}

/* ---- what another guardian left ---- */

enum left_word guarded_word__look(const struct guarded_word *word, bool restore)
{
	struct guarded_word same = *word;
	enum left_word found = LEFT_UNREADABLE;
	int memory = open_memory(word);
	uint64_t now;

	if (memory < 0)
		return memory == -ESRCH ? LEFT_ENDED : LEFT_UNREADABLE;
	if (!is_writable(word->pid, word->address))
		found = LEFT_ENDED; /* another program */
	else if (pread(memory, &now, sizeof(now), (off_t)word->address) == sizeof(now))
		found = now == word->value ? LEFT_SET : now ? LEFT_CHANGED : LEFT_NULL;
	if (found == LEFT_SET && restore && change_word(memory, word->address, word->value, 0))
		found = LEFT_UNREADABLE;
	close(memory);
	if (restore && found != LEFT_UNREADABLE)
		restore_forks(&same, 1);
	return found;
}
