/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Files that stepflame writes, as root and in folders in which others may write too.
 *
 * A file is made under a temporary name in its folder, with mode 0600, and then takes its own name,
 * which until then may be that of another file. What another user has put under that name is
 * neither written to nor followed.
 */
#ifndef STEPFLAME_USER_LIB_OUTPUT_H
#define STEPFLAME_USER_LIB_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

struct output {
	int fd;              /* to write to; the caller closes it */
	int folder;          /* -1: the file has its name */
	int unnamed;         /* a copy of fd for a file without a name; -1: it has one */
	const char *refused; /* why stepflame does not write there; NULL: errno says it */
	char name[NAME_MAX + 1];
	char temporary[32];
};

/* Is path standard output: "-", or "/dev/stdout"? */
bool output__is_stdout(const char *path);
/* Returns the name of path for messages. */
const char *output__name(const char *path);

/*
 * Opens path for writing: duplicates standard output; or opens a device or pipe of the user's; or
 * makes a file, which takes its name, and the place of another one, in output__keep. It belongs to
 * SUDO_UID:SUDO_GID when those are set. 0; or -errno with out->refused, for output__explain.
 */
int output__open(const char *path, struct output *out);
/*
 * Makes the folder, and those above it, where they are missing. What it makes belongs to
 * SUDO_UID:SUDO_GID when those are set. Like output__open, but there is nothing to release.
 */
int output__make_folder(const char *path, struct output *out);
/* Would output__open work? Opens and makes nothing. Like output__open. */
int output__check(const char *path, struct output *out);
/* Gives the file its name. 0 or -errno. */
int output__keep(struct output *out);
/* Ends an output that was opened, and deletes its file if that was not kept. */
void output__release(struct output *out);

/* Says on stderr why path cannot be written, and what to do. err: -errno of a function above. */
void output__explain(const char *path, const struct output *out, int err);

/*
 * Returns a stream to fd, which it does not own, for what people read: nothing that is written to it
 * can steer a terminal. What utf8.h escapes is escaped, but for tabs, newlines, and a carriage
 * return before one; whoever prints a text escapes those in it. NULL: no memory.
 */
FILE *output__for_people(int fd);

#endif
