// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/network.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/lib/capabilities.h"
#include "user/lib/log.h"

/* ---- libraries ---- */

int library__load(const char *file, const struct library_function *functions, size_t cnt, const char **why)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	size_t found = 0;

	while (library && found < cnt && (*functions[found].function = dlsym(library, functions[found].name)))
		found++;
	if (library && found == cnt)
		return 0;
	*why = dlerror();
	return -ENOENT;
}

/* ---- files that a setting names ---- */

int secret_file__refuse(const char *what, const char *path, const char *why, const char *fix)
{
	log__error(fix, "cannot use the %s in %s: %s", what, path, why);
	return -EINVAL;
}

int secret_file__open(const char *what, const char *path, const char *option, bool secret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char fix[64];
	struct stat st;
	int err = 0;

	snprintf(fix, sizeof(fix), "name a file that can be read with %s", option);
	if (fd < 0 || fstat(fd, &st))
		err = secret_file__refuse(what, path, strerror(errno), fix);
	else if (!S_ISREG(st.st_mode))
		err = secret_file__refuse(what, path, "it is no regular file", fix);
	else if (secret && ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & (S_IRWXG | S_IRWXO)))
		err = secret_file__refuse(what, path, "others may read or write it",
					  "chmod 600 FILE, and chown it to who runs this");
	if (err && fd >= 0)
		close(fd);
	return err ?: fd;
}

/* ---- children ---- */

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
