// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/rightless.h"

#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "user/lib/capabilities.h"

#define NOBODY 65534

void rightless__become_or_exit(const char *name, pid_t owner, const int *fds, int cnt, unsigned int files)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
	const struct rlimit most = {files, files}, none = {0, 0};

	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, name);
	for (int i = 0; i < cnt; i++)
		if (dup2(fds[i], RIGHTLESS_FD + i) < 0)
			_exit(EXIT_FAILURE);
	if (close_range(RIGHTLESS_FD + cnt, ~0U, 0))
		_exit(EXIT_FAILURE);
	setrlimit(RLIMIT_NOFILE, &most);
	setrlimit(RLIMIT_FSIZE, &none);
	/* Without CAP_SETUID it stays who it is, without capabilities. */
	if (!geteuid() && !setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY) &&
	    setresuid(NOBODY, NOBODY, NOBODY))
		_exit(EXIT_FAILURE);
	capabilities__drop();
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0);
	/* A child that keeps an event has the channel, too, and may be there for longer. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != owner)
		_exit(EXIT_SUCCESS);
}
