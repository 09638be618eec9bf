/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What those that talk to the network share, listener.c and push.c: libraries, secrets, children without rights. */
#ifndef STEPFLAME_USER_WATCH_NETWORK_H
#define STEPFLAME_USER_WATCH_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ---- a shared library that is loaded when it is wanted: linked, it would cost each command its start ---- */

struct library_function {
	const char *name;
	void **function; /* a pointer to the function */
};

/* Sets all functions. 0, or -ENOENT with *why, a text of the loader's that is valid until its next one. */
int library__load(const char *file, const struct library_function *functions, size_t cnt, const char **why);

/* ---- files that a setting names ---- */

/*
 * Opens a regular file; secret: that nobody but root and its owner, who runs this, may read or write. what: "token"; option: that names it.
 * The descriptor, or -EINVAL after a message.
 */
int secret_file__open(const char *what, const char *path, const char *option, bool secret);
/* Says that such a file is none. -EINVAL. */
int secret_file__refuse(const char *what, const char *path, const char *why, const char *fix);

/* ---- what children become before they talk to the network ---- */

#define RIGHTLESS_FD 3 /* the descriptors that it keeps are this one and those behind it */

/*
 * Becomes nobody, without capabilities, that opens so many files at most, writes none, and ends with `owner`, its parent. fds: what it
 * keeps besides stdin, stdout and stderr, as RIGHTLESS_FD, RIGHTLESS_FD + 1, ...; each is above these. Does not return where that fails.
 */
void rightless__become_or_exit(const char *name, pid_t owner, const int *fds, int cnt, unsigned int files);

#endif
