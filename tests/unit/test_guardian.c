/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The words of the guardian (user/session/guardian.h), on children of this test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/session/guardian.h"
#include "user/session/guardian_words.h"

#define VALUE 0x7f0012345678ULL

static const struct attacher no_probes;
static uint64_t word; /* the same address in every child */
static const uint64_t constant = 0;

/* A child that does nothing, as process__read sees it. */
static struct process child__start(void)
{
	struct process process;
	pid_t pid = fork();

	if (!pid) {
		pause();
		_exit(0);
	}
	assert_int_equal(process__read(pid, &process), 0);
	return process;
}

static void child__stop(struct process *process)
{
	kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
	process__release(process);
}

static uint64_t read_word(const struct process *process)
{
	uint64_t value = 1;

	assert_int_equal(process__read_memory(process->pid, (uint64_t)&word, &value, sizeof(value)), 0);
	return value;
}

static bool becomes(const struct process *process, uint64_t value)
{
	for (int i = 0; i < 500 && read_word(process) != value; i++)
		usleep(10000);
	return read_word(process) == value;
}

/* How many memories of processes the guardian has open. */
static int open_memories(void)
{
	pid_t *children = NULL;
	int cnt = process__children(getpid(), false, &children), found = 0;
	char path[64], to[64];

	for (int i = 0; i < cnt; i++)
		for (int fd = 0; fd < 64; fd++) {
			ssize_t length;

			snprintf(path, sizeof(path), "/proc/%d/fd/%d", children[i], fd);
			length = readlink(path, to, sizeof(to) - 1);
			to[length > 0 ? length : 0] = 0;
			found += length > 4 && !strcmp(to + length - 4, "/mem");
		}
	free(children);
	return found;
}

/* Children that look at the word for a while; kept[0] counts those that have it although kept[1] says it is restored. */
static void fork_for_a_while(uint64_t *kept)
{
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		if (!fork()) {
			if (!fork())
				usleep(1000);
			usleep(10000);
			if (__atomic_load_n(&kept[1], __ATOMIC_SEQ_CST) && *(volatile uint64_t *)&word)
				__atomic_add_fetch(&kept[0], 1, __ATOMIC_SEQ_CST);
			_exit(0);
		}
		usleep(300);
	}
}

/* Kills a process and its children, none of which notices another's end. */
static void stop_with_children(pid_t pid)
{
	pid_t *children = NULL;
	int cnt = process__children(pid, true, &children);

	for (int i = 0; i < cnt; i++)
		kill(children[i], SIGSTOP);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int i = 0; i < cnt; i++) {
		kill(children[i], SIGKILL);
		for (int wait = 0; wait < 500 && !kill(children[i], 0); wait++)
			usleep(10000);
	}
	free(children);
}

static void test_write_and_restore(void **state)
{
	struct process child = child__start();
	struct guardian *g;

	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	assert_int_equal(guardian__write(g, &child, (uint64_t)&word, VALUE), 0);
	assert_int_equal(read_word(&child), VALUE);
	assert_int_equal(guardian__write(g, &child, (uint64_t)&word, VALUE), -EALREADY);
	assert_int_equal(guardian__write(g, &child, (uint64_t)&word, VALUE + 8), -EBUSY);
	guardian__restore(g, &child);
	assert_int_equal(read_word(&child), 0);
	assert_int_equal(guardian__write(g, &child, (uint64_t)&word, VALUE), 0);
	guardian__free(g);
	assert_int_equal(read_word(&child), 0);
	child__stop(&child);
	(void)state;
}

static void test_refused(void **state)
{
	struct process child = child__start(), gone = child__start(), other = child;
	void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct process late = child__start();
	struct guardian *g;

	child__stop(&gone);
	other.start_time++;
	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	assert_int_equal(guardian__write(g, &late, (uint64_t)&constant, VALUE), -EFAULT);
	assert_int_equal(guardian__write(g, &late, (uint64_t)shared, VALUE), -EFAULT);
	assert_int_equal(guardian__write(g, &late, (uint64_t)&word + 1, VALUE), -EFAULT);
	assert_int_equal(guardian__write(g, &late, 0x1000, VALUE), -EFAULT);
	assert_int_equal(guardian__write(g, &other, (uint64_t)&word, VALUE), -ESRCH);
	assert_true(guardian__write(g, &gone, (uint64_t)&word, VALUE) < 0);
	guardian__free(g);
	assert_int_equal(read_word(&child), 0);
	child__stop(&child);
	child__stop(&late);
	munmap(shared, 4096);
	(void)state;
}

/* What the process has set itself, in place of ours, is left alone. */
static void test_changed(void **state)
{
	struct process child = child__start();
	struct guardian *g, *another;

	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	assert_int_equal(guardian__new(&no_probes, NULL, 0, &another), 0);
	assert_int_equal(guardian__write(g, &child, (uint64_t)&word, VALUE), 0);
	guardian__restore(g, &child);
	assert_int_equal(guardian__write(another, &child, (uint64_t)&word, VALUE + 8), 0);
	assert_int_equal(guardian__write(g, &child, (uint64_t)&word, VALUE), -EBUSY);
	guardian__free(g);
	assert_int_equal(read_word(&child), VALUE + 8);
	guardian__free(another);
	assert_int_equal(read_word(&child), 0);
	child__stop(&child);
	(void)state;
}

/* Its owner is killed: the words are put back all the same. */
static void test_killed(void **state)
{
	int ready[2];
	pid_t owner;
	struct process child = child__start();
	char byte;

	assert_int_equal(pipe(ready), 0);
	owner = fork();
	if (!owner) {
		struct guardian *g;

		if (!guardian__new(&no_probes, NULL, 0, &g) && !guardian__write(g, &child, (uint64_t)&word, VALUE) &&
		    write(ready[1], "", 1))
			pause();
		_exit(1);
	}
	close(ready[1]); /* or the read never ends if the owner does */
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(read_word(&child), VALUE);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	assert_true(becomes(&child, 0));
	child__stop(&child);
	close(ready[0]);
	(void)state;
}

/* The words of a process that has ended are forgotten: there is room for others, and no file stays open. */
static void test_ended(void **state)
{
	struct guardian *g;

	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	for (int i = 0; i < 20; i++) {
		struct process child = child__start();

		assert_int_equal(guardian__write(g, &child, (uint64_t)&word, VALUE), 0);
		kill(child.pid, SIGKILL);
		waitpid(child.pid, NULL, 0);
		guardian__restore(g, &child);
		assert_int_equal(open_memories(), 0);
		process__release(&child);
	}
	guardian__free(g);
	(void)state;
}

/* A process with the pid of one that has ended keeps its own word. */
static void test_pid_reused(void **state)
{
	struct process child = child__start(), earlier = child;
	struct guardian *g;

	earlier.start_time--;
	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	assert_int_equal(guardian__write(g, &child, (uint64_t)&word, VALUE), 0);
	guardian__restore(g, &earlier);
	assert_int_equal(read_word(&child), VALUE);
	guardian__free(g);
	assert_int_equal(read_word(&child), 0);
	child__stop(&child);
	(void)state;
}

/* Forks that fork again and again while the words are restored: none keeps it. */
static void test_forks(void **state)
{
	uint64_t *kept = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct process process;
	struct guardian *g;
	pid_t pid = fork();

	if (!pid)
		fork_for_a_while(kept);
	assert_int_equal(process__read(pid, &process), 0);
	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(guardian__write(g, &process, (uint64_t)&word, VALUE), 0);
		usleep(5000);
		assert_int_equal(guardian__restore_all(g), 0);
		__atomic_store_n(&kept[1], 1, __ATOMIC_SEQ_CST); /* from now on no child may have it */
		usleep(30000);
		__atomic_store_n(&kept[1], 0, __ATOMIC_SEQ_CST);
	}
	guardian__free(g);
	assert_int_equal(kept[0], 0);
	child__stop(&process);
	munmap(kept, 4096);
	(void)state;
}

static bool count_word(const struct guarded_word *left, void *ctx)
{
	int *cnt = ctx;

	*cnt += left->address == (uint64_t)&word;
	return guarded_word__look(left, true) != LEFT_UNREADABLE;
}

/* The owner and the guardian are killed at once: another one finds the word, once, and restores it. */
static void test_both_killed(void **state)
{
	struct process child = child__start();
	int ready[2], cnt = 0;
	pid_t owner;
	char byte;

	assert_int_equal(pipe(ready), 0);
	owner = fork();
	if (!owner) {
		struct guardian *g;

		if (!guardian__new(&no_probes, NULL, 0, &g) && !guardian__write(g, &child, (uint64_t)&word, VALUE) &&
		    !guardian__journal_error(g) && write(ready[1], "", 1))
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	word_journal__each_left(count_word, &cnt);
	assert_int_equal(cnt, 0); /* its guardian lives */
	stop_with_children(owner);
	assert_int_equal(read_word(&child), VALUE);
	word_journal__each_left(count_word, &cnt);
	assert_int_equal(cnt, 1);
	assert_int_equal(read_word(&child), 0);
	word_journal__each_left(count_word, &cnt);
	assert_int_equal(cnt, 1);
	child__stop(&child);
	close(ready[0]);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_restore),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_pid_reused),
		cmocka_unit_test(test_forks),
		cmocka_unit_test(test_both_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
