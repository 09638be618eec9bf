/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * process__children: by the kernel's lists and by a look at every process, of children that the test starts: those of
 * threads, zombies, and those that stay among others that come and go.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/children.h"
#include "user/proc/process.h"

static bool have_two(void *pids)
{
	pid_t *shared = pids;

	for (int i = 0; i < 2; i++) {
		pid_t pid = fork_child();

		if (pid == 0) {
			for (;;)
				pause();
		}
		shared[i] = pid;
	}
	return true;
}

static bool holds(const pid_t *pids, int cnt, pid_t pid)
{
	for (int i = 0; i < cnt; i++) {
		if (pids[i] == pid)
			return true;
	}
	return false;
}

static void test_children(void **state)
{
	pid_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *pids, child;
	bool done;
	int cnt;

	child = start_child(have_two, shared, &done);
	/* The deputy is one, too. */
	cnt = process__children(getpid(), false, &pids);
	assert_true(holds(pids, cnt, child) && !holds(pids, cnt, shared[0]));
	free(pids);
	assert_int_equal(process__children(getpid(), true, &pids), cnt + 2);
	cnt += 2;
	assert_true(holds(pids, cnt, child) && holds(pids, cnt, shared[0]) && holds(pids, cnt, shared[1]));
	free(pids);
	assert_int_equal(process__children(shared[0], true, &pids), 0);
	free(pids);
	cnt = process__list(&pids);
	assert_true(cnt > 3);
	assert_true(holds(pids, cnt, getpid()) && holds(pids, cnt, shared[1]));
	free(pids);
	kill(shared[0], SIGKILL);
	kill(shared[1], SIGKILL);
	end_child(child);
	munmap(shared, 4096);
}

static int by_number(const void *a, const void *b)
{
	return *(const pid_t *)a - *(const pid_t *)b;
}

static pid_t pausing_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	return pid;
}

static void *fork_and_end(void *pid)
{
	*(pid_t *)pid = pausing_child();
	return NULL;
}

static void *fork_and_stay(void *pid)
{
	*(pid_t *)pid = pausing_child();
	pause();
	return NULL;
}

/* Children: two of its own, one of a thread that has ended, one of a thread that lives on; and a zombie. */
static bool have_all_kinds(void *pids)
{
	pid_t *shared = pids;
	pthread_t thread;

	have_two(shared);
	pthread_create(&thread, NULL, fork_and_end, &shared[2]);
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, fork_and_stay, &shared[3]);
	while (!*(volatile pid_t *)&shared[3])
		usleep(1000);
	shared[4] = fork();
	if (shared[4] == 0)
		_exit(0);
	waitid(P_PID, (id_t)shared[4], &(siginfo_t){0}, WEXITED | WNOWAIT);
	return true;
}

static void check_both_ways(pid_t pid, bool deep)
{
	pid_t *listed, *scanned;
	int cnt = process__children(pid, deep, &listed);

	assert_int_equal(process__scan_children(pid, deep, &scanned), cnt);
	if (cnt) { /* else a list may be NULL */
		qsort(listed, (size_t)cnt, sizeof(*listed), by_number);
		qsort(scanned, (size_t)cnt, sizeof(*scanned), by_number);
		assert_memory_equal(listed, scanned, (size_t)cnt * sizeof(*listed));
	}
	free(listed);
	free(scanned);
}

static void test_both_ways(void **state)
{
	pid_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *pids;
	bool done;
	pid_t child = start_child(have_all_kinds, shared, &done);

	assert_int_equal(process__children(child, true, &pids), 4);
	for (int i = 0; i < 4; i++)
		assert_true(holds(pids, 4, shared[i]));
	free(pids);
	for (int deep = 0; deep < 2; deep++) {
		check_both_ways(getpid(), deep);
		check_both_ways(child, deep);
		check_both_ways(shared[0], deep);
		check_both_ways(0x7fffffff, deep);
	}
	for (int i = 0; i < 4; i++)
		kill(shared[i], SIGKILL);
	end_child(child);
	munmap(shared, 4096);
}

/* It ends with its parent; pausing_child does not, which a thread may fork that ends. */
static pid_t going_child(void)
{
	pid_t pid = fork_child();

	while (pid == 0)
		pause();
	return pid;
}

#define STAY 8

/* Children that stay, each behind one that ends and is forked anew, over and over. */
static void fork_over_and_over(pid_t *shared)
{
	pid_t going[STAY];

	for (int i = 0; i < STAY; i++) {
		going[i] = going_child();
		shared[i + 1] = going_child();
	}
	__atomic_store_n(&shared[0], 1, __ATOMIC_SEQ_CST);
	for (int i = 0;; i = (i + 1) % STAY) {
		kill(going[i], SIGKILL);
		waitpid(going[i], NULL, 0);
		going[i] = going_child();
	}
}

static void test_others_come_and_go(void **state)
{
	pid_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *pids;
	pid_t child = fork_child();
	int cnt;

	if (child == 0)
		fork_over_and_over(shared);
	while (!__atomic_load_n(&shared[0], __ATOMIC_SEQ_CST))
		usleep(1000);
	for (int look = 0; look < 500; look++) {
		cnt = process__children(child, false, &pids);
		for (int i = 0; i < STAY; i++)
			assert_true(holds(pids, cnt, shared[i + 1]));
		free(pids);
	}
	end_child(child);
	munmap(shared, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_children),
		cmocka_unit_test(test_both_ways),
		cmocka_unit_test(test_others_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
