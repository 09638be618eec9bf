/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Messages on stderr, and the exit codes for errors. The function that knows the context prints the
 * message, once.
 */
#ifndef STEPFLAME_USER_LIB_LOG_H
#define STEPFLAME_USER_LIB_LOG_H

enum exit_code {
	SF_EXIT_OK = 0,
	SF_EXIT_ERROR = 1,
	SF_EXIT_USAGE = 2,
	SF_EXIT_PERMISSION = 3,
	SF_EXIT_TARGET = 4,      /* target gone or not found */
	SF_EXIT_UNSUPPORTED = 5, /* kernel, Python or torch not supported */
	SF_EXIT_SLOWER = 6,      /* diff: slower than the threshold allows */
};

/*
 * Returns the exit code for a -errno: EPERM and EACCES 3, ESRCH 4, EOPNOTSUPP 5, 0 is 0, all others
 * 1.
 */
int log__exit_code(int err);

/*
 * Prints one message: "stepflame: error: WHAT AND WHY", then "  fix: FIX" unless fix is NULL. fmt
 * says what failed and why. Both are escaped (utf8.h), as they may have texts of a target.
 */
void log__error(const char *fix, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log__warn(const char *fix, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log__info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
