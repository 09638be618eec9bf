// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/lib/log.h"

/* Is text a number? */
static bool parse_id(const char *text, uid_t *out)
{
	char *end;
	unsigned long id = strtoul(text, &end, 10);

	*out = id;
	return *text >= '0' && *text <= '9' && !*end && *out == id && *out != (uid_t)-1;
}

int launch_user__find(const char *user, struct launch_user *out)
{
	const char *sudo_uid = geteuid() ? NULL : secure_getenv("SUDO_UID"), *sudo_gid = secure_getenv("SUDO_GID");
	const char *wanted = user ?: sudo_uid;
	const struct passwd *entry;
	bool number, known;

	*out = (struct launch_user){};
	if (!wanted)
		return 0;
	number = parse_id(wanted, &out->uid);
	entry = number ? getpwuid(out->uid) : getpwnam(wanted);
	known = entry || (number && !user && sudo_gid && parse_id(sudo_gid, &out->gid));
	if (!known) {
		log__error("name a user that `getent passwd` lists with --user NAME",
			   "cannot run the command as user %s: there is no such user", wanted);
		return -EINVAL;
	}
	if (entry) {
		out->uid = entry->pw_uid;
		out->gid = entry->pw_gid;
		out->name = strdup(entry->pw_name);
		out->home = strdup(entry->pw_dir);
	}
	out->other = out->uid != geteuid();
	if (!out->other || !geteuid())
		return 0;
	log__error("run stepflame with sudo, or leave out --user", "only root runs a command as another user");
	launch_user__release(out);
	return -EPERM;
}

void launch_user__release(struct launch_user *user)
{
	free(user->name);
	free(user->home);
	*user = (struct launch_user){};
}

static int become_user(const struct launch_user *user)
{
	if (!user->other)
		return 0;
	if ((user->name ? initgroups(user->name, user->gid) : setgroups(0, NULL)) ||
	    setresgid(user->gid, user->gid, user->gid) || setresuid(user->uid, user->uid, user->uid))
		return -1;
	if (!user->name)
		return 0;
	return setenv("HOME", user->home, 1) || setenv("USER", user->name, 1) || setenv("LOGNAME", user->name, 1);
}

int launch__fork(struct launch *c, char **argv, const struct launch_user *user)
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
		if (!become_user(user))
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
