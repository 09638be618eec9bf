/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files that a setting names. */
#ifndef STEPFLAME_USER_WATCH_SECRET_FILE_H
#define STEPFLAME_USER_WATCH_SECRET_FILE_H

#include <stdbool.h>

/*
 * Opens a regular file; secret: that nobody but root and its owner, who runs this, may read or write. what: "token"; option: that names it.
 * The descriptor, or -EINVAL after a message.
 */
int secret_file__open(const char *what, const char *path, const char *option, bool secret);
/* Says that such a file is none. -EINVAL. */
int secret_file__refuse(const char *what, const char *path, const char *why, const char *fix);

#endif
