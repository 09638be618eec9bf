// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int launch__fork(struct launch *c, char **argv)
{
	int go[2], failed[2];
	char byte;

	if (pipe2(go, O_CLOEXEC) || pipe2(failed, O_CLOEXEC))
		return -errno;
	c->pid = fork();
	if (c->pid < 0)
		return -errno;
	if (!c->pid) {
		setpgid(0, 0);
		signal(SIGPIPE, SIG_DFL);
		close(go[1]);
		if (read(go[0], &byte, 1) != 1)
			_exit(1); /* stepflame gave up */
		execvp(argv[0], argv);
		byte = errno;
		if (write(failed[1], &byte, 1) < 0)
			_exit(126);
		_exit(byte == ENOENT ? 127 : 126);
	}
	close(go[0]);
	close(failed[1]);
	c->go = go[1];
	c->failed = failed[0];
	return 0;
}

int launch__release(struct launch *c)
{
	char byte = 0;

	if (write(c->go, &byte, 1) != 1)
		return -errno;
	return read(c->failed, &byte, 1) == 1 ? -byte : 0;
}

void launch__close(struct launch *c)
{
	if (c->pid <= 0)
		return;
	close(c->go);
	close(c->failed);
}

void launch__reap(struct launch *c, bool wait)
{
	if (c->pid > 0 && !c->ended && waitpid(c->pid, &c->status, wait ? 0 : WNOHANG) == c->pid)
		c->ended = true;
}

int launch__exit_code(const struct launch *c)
{
	return WIFSIGNALED(c->status) ? 128 + WTERMSIG(c->status) : WEXITSTATUS(c->status);
}
