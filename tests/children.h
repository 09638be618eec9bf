/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Children that a C test starts and looks at, and that end with it: end_child takes each away. */
#ifndef STEPFLAME_TESTS_CHILDREN_H
#define STEPFLAME_TESTS_CHILDREN_H

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A fork that does not outlive the test, should that fail. */
static inline pid_t fork_child(void)
{
	pid_t parent = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1); /* it has ended already */
	}
	return pid;
}

static inline void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* A child that runs body(arg), whose result goes to *done, and waits. */
static inline pid_t start_child(bool (*body)(void *arg), void *arg, bool *done)
{
	int ready[2];
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork_child();
	if (pid == 0) {
		byte = body(arg);
		(void)!write(ready[1], &byte, 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	*done = byte;
	return pid;
}

/*
 * A child that has executed `file`, sought in PATH; environ NULL: this process's. The pipe closes when the exec is
 * done.
 */
static inline pid_t start_program(const char *file, const char *const argv[], const char *const environ_[])
{
	int ready[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork_child();
	if (pid == 0) {
		execvpe(file, (char **)argv, environ_ ? (char **)environ_ : environ);
		(void)!write(ready[1], "", 1);
		_exit(127);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	return pid;
}

/* A child that executes argv[0]; *from is what it prints, to be closed by the caller. */
static inline pid_t start_printing(const char *const argv[], FILE **from)
{
	int out[2];
	pid_t pid;

	assert_int_equal(pipe(out), 0);
	pid = fork_child();
	if (pid == 0) {
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		execv(argv[0], (char **)argv);
		_exit(127);
	}
	close(out[1]);
	*from = fdopen(out[0], "r");
	assert_non_null(*from);
	return pid;
}

#endif
