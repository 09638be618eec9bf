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
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/session/guardian.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_restore),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
