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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/proc/deputy.h"
#include "user/session/guardian.h"

/* Does no process answer? The guardian, a fork, sees it, too. */
static bool *silent;

static int run_or_not(pid_t pid, deputy_work work, const void *in, size_t in_bytes, const struct deputy_out **out)
{
	return silent && *silent ? -ETIMEDOUT : deputy__run(pid, work, in, in_bytes, out);
}

#define deputy__run run_or_not
#include "user/session/guardian_words.c"
#undef deputy__run

#define VALUE 0x7f0012345678ULL

static const struct attacher no_probes;
/* An interpreter and the pointer to it, at the same addresses in every child. */
static struct {
	uint64_t next, word;
} interpreter;
static void *volatile head = &interpreter;
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

/* at: where the interpreter of the process is. */
static int write_from(struct guardian *g, const struct process *process, uint64_t at, uint64_t address, uint64_t value)
{
	struct word_origin origin = {.head = (uint64_t)&head, .next = 0, .word = address - at};

	for (size_t i = 0; i < process->file_cnt; i++) {
		const struct mapped_file *file = &process->files[i];

		if (file->is_program) {
			origin.dev = file->dev;
			origin.inode = file->inode;
			origin.base = file->base;
		}
	}
	return guardian__write(g, process, &origin, address, value);
}

static int write_at(struct guardian *g, const struct process *process, uint64_t address, uint64_t value)
{
	return write_from(g, process, (uint64_t)&interpreter, address, value);
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

	assert_int_equal(process__read_memory(process->pid, (uint64_t)&interpreter.word, &value, sizeof(value)), 0);
	return value;
}

static bool becomes(const struct process *process, uint64_t value)
{
	for (int i = 0; i < 500 && read_word(process) != value; i++)
		usleep(10000);
	return read_word(process) == value;
}

/* Children that look at the word for a while; kept[0] counts those that have it although kept[1] says it is restored. */
static void fork_for_a_while(uint64_t *kept)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		if (!fork()) {
			pid_t child = fork();

			usleep(child ? 10000 : 11000);
			if (__atomic_load_n(&kept[1], __ATOMIC_SEQ_CST) && *(volatile uint64_t *)&interpreter.word)
				__atomic_add_fetch(&kept[0], 1, __ATOMIC_SEQ_CST);
			if (child > 0)
				waitpid(child, NULL, 0); /* an orphan would be no descendant any more */
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
	assert_int_equal(write_at(g, &child, (uint64_t)&interpreter.word, VALUE), 0);
	assert_int_equal(read_word(&child), VALUE);
	assert_int_equal(write_at(g, &child, (uint64_t)&interpreter.word, VALUE), -EALREADY);
	assert_int_equal(write_at(g, &child, (uint64_t)&interpreter.word, VALUE + 8), -EBUSY);
	guardian__restore(g, &child);
	assert_int_equal(read_word(&child), 0);
	assert_int_equal(write_at(g, &child, (uint64_t)&interpreter.word, VALUE), 0);
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
	assert_int_equal(write_at(g, &late, (uint64_t)&constant, VALUE), -EFAULT);
	assert_int_equal(write_at(g, &late, (uint64_t)shared, VALUE), -EFAULT);
	assert_int_equal(write_at(g, &late, (uint64_t)&interpreter.word + 1, VALUE), -EFAULT);
	assert_int_equal(write_at(g, &late, 0x1000, VALUE), -EFAULT);
	assert_int_equal(write_at(g, &other, (uint64_t)&interpreter.word, VALUE), -ESRCH);
	assert_true(write_at(g, &gone, (uint64_t)&interpreter.word, VALUE) < 0);
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
	assert_int_equal(write_at(g, &child, (uint64_t)&interpreter.word, VALUE), 0);
	guardian__restore(g, &child);
	assert_int_equal(write_at(another, &child, (uint64_t)&interpreter.word, VALUE + 8), 0);
	assert_int_equal(write_at(g, &child, (uint64_t)&interpreter.word, VALUE), -EBUSY);
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

		if (!guardian__new(&no_probes, NULL, 0, &g) &&
		    !write_at(g, &child, (uint64_t)&interpreter.word, VALUE) && write(ready[1], "", 1))
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

/* Its forks, as those that keep an event, have all of its files, and go on for a while. */
static void test_killed_with_fork(void **state)
{
	struct process child = child__start();
	int ready[2], stay[2];
	pid_t owner;
	char byte;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(stay), 0);
	owner = fork();
	if (!owner) {
		struct guardian *g;

		close(stay[1]);
		if (guardian__new(&no_probes, NULL, 0, &g) || write_at(g, &child, (uint64_t)&interpreter.word, VALUE))
			_exit(1);
		if (!fork()) /* until the test closes its end */
			_exit(write(ready[1], "", 1) != 1 || read(stay[0], &byte, 1) != 0);
		pause();
		_exit(1);
	}
	close(ready[1]);
	close(stay[0]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	assert_true(becomes(&child, 0));
	child__stop(&child);
	close(stay[1]);
	close(ready[0]);
}

/* ---- a process that calls exec ---- */

#define PLACE ((uint64_t *)0x10000000) /* of something else in each program */

/* Another program: it has its own value there, and says so. */
static int run_other(const char *value, int ready)
{
	uint64_t *page = mmap(PLACE, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (page != PLACE)
		return 1;
	*page = strtoull(value, NULL, 0);
	if (write(ready, "", 1) != 1)
		return 1;
	pause();
	return 0;
}

/* A child whose interpreter is there; it calls exec when it is told by `go`. */
static struct process child__start_there(const char *value, const int ready[2], int go)
{
	char byte, fd[16];
	struct process process;
	pid_t pid = fork();

	if (!pid) {
		snprintf(fd, sizeof(fd), "%d", ready[1]);
		head = mmap(PLACE, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		if (head == PLACE && write(ready[1], "", 1) == 1 && read(go, &byte, 1) == 1)
			execl("/proc/self/exe", "other", value, fd, NULL);
		_exit(1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(process__read(pid, &process), 0);
	return process;
}

static uint64_t value_there(const struct process *process)
{
	uint64_t value = 1;

	assert_int_equal(process__read_memory(process->pid, (uint64_t)PLACE, &value, sizeof(value)), 0);
	return value;
}

/* In between, the process becomes a program with the same value at the same address. */
static void check_exec(const char *other, bool before)
{
	uint64_t value = strtoull(other, NULL, 0);
	int ready[2], go[2];
	struct process child;
	struct guardian *g;
	char byte;

	assert_int_equal(pipe(ready) ?: pipe(go), 0);
	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	child = child__start_there(other, ready, go[0]);
	if (!before)
		assert_int_equal(write_from(g, &child, (uint64_t)PLACE, (uint64_t)PLACE, VALUE), 0);
	assert_int_equal(write(go[1], "", 1), 1);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	if (before)
		assert_int_equal(write_from(g, &child, (uint64_t)PLACE, (uint64_t)PLACE, VALUE), -ESRCH);
	assert_int_equal(value_there(&child), value);
	guardian__free(g);
	assert_int_equal(value_there(&child), value);
	child__stop(&child);
}

static void test_exec(void **state)
{
	check_exec("0", true);
	check_exec("0x7f0012345678", false);
	(void)state;
}

/* A process with the pid of one that has ended keeps its own word. */
static void test_pid_reused(void **state)
{
	struct process child = child__start(), earlier = child;
	struct guardian *g;

	earlier.start_time--;
	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	assert_int_equal(write_at(g, &child, (uint64_t)&interpreter.word, VALUE), 0);
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
		assert_int_equal(write_at(g, &process, (uint64_t)&interpreter.word, VALUE), 0);
		usleep(5000);
		assert_int_equal(guardian__restore_all(g), 0);
		__atomic_store_n(&kept[1], 1, __ATOMIC_SEQ_CST); /* from now on no child may have it */
		usleep(30000);
		__atomic_store_n(&kept[1], 0, __ATOMIC_SEQ_CST);
	}
	guardian__free(g);
	child__stop(&process);
	assert_int_equal(kept[0], 0);
	munmap(kept, 4096);
	(void)state;
}

static bool count_word(const struct guarded_word *left, void *ctx)
{
	int *cnt = ctx;

	*cnt += left->address == (uint64_t)&interpreter.word;
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

		if (!guardian__new(&no_probes, NULL, 0, &g) &&
		    !write_at(g, &child, (uint64_t)&interpreter.word, VALUE) && !guardian__journal_error(g) &&
		    write(ready[1], "", 1))
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

/* Of a process that does not answer at the end, the word stays set: that is said, and the journal still has it. */
static void test_silent(void **state)
{
	struct process child = child__start();
	struct guardian *g;
	int cnt = 0;

	(void)state;
	silent = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(guardian__new(&no_probes, NULL, 0, &g), 0);
	assert_int_equal(write_at(g, &child, (uint64_t)&interpreter.word, VALUE), 0);
	*silent = true;
	guardian__restore(g, &child);
	assert_int_equal(guardian__restore_all(g), -ETIMEDOUT);
	*silent = false;
	assert_int_equal(read_word(&child), VALUE);
	guardian__free(g);
	word_journal__each_left(count_word, &cnt);
	assert_int_equal(cnt, 1);
	assert_int_equal(read_word(&child), 0);
	word_journal__each_left(count_word, &cnt);
	assert_int_equal(cnt, 1);
	child__stop(&child);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_restore), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_changed),           cmocka_unit_test(test_killed),
		cmocka_unit_test(test_killed_with_fork),  cmocka_unit_test(test_exec),
		cmocka_unit_test(test_pid_reused),        cmocka_unit_test(test_forks),
		cmocka_unit_test(test_both_killed),       cmocka_unit_test(test_silent),
	};

	if (argc == 3)
		return run_other(argv[1], atoi(argv[2]));

	return cmocka_run_group_tests(tests, NULL, NULL);
}
