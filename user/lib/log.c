// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/lib/columns.h"
#include "user/lib/utf8.h"

#define FURTHER_LINES 2 /* columns by which those of a message are indented */

int log__exit_code(int err)
{
	switch (err < 0 ? -err : err) {
	case 0:
		return SF_EXIT_OK;
	case EPERM:
	case EACCES:
	case ELIBACC:
		return SF_EXIT_PERMISSION;
	case ESRCH:
		return SF_EXIT_TARGET;
	case EOPNOTSUPP:
		return SF_EXIT_UNSUPPORTED;
	default:
		return SF_EXIT_ERROR;
	}
}

static void print_text(const char *who, const char *prefix, const char *text, size_t width, size_t hang)
{
	char *shown = utf8__escape(text), *line = NULL;

	if (shown && asprintf(&line, "%s%s%s", who, prefix, shown) < 0)
		line = NULL;
	columns__print(stderr, 0, line ?: "stepflame: out of memory", width, hang);
	free(line);
	free(shown);
}

static void print_message(const char *prefix, const char *fix, const char *fmt, va_list ap)
{
	size_t width = columns__of_terminal(STDERR_FILENO);
	char text[2048];

	vsnprintf(text, sizeof(text), fmt, ap);
	print_text("stepflame: ", prefix, text, width, FURTHER_LINES);
	if (fix)
		print_text("  fix: ", "", fix, width, strlen("  fix: "));
}

#define PRINT(prefix, fix)                               \
	do {                                             \
		va_list ap;                              \
                                                         \
		va_start(ap, fmt);                       \
		print_message((prefix), (fix), fmt, ap); \
		va_end(ap);                              \
	} while (0)

void log__error(const char *fix, const char *fmt, ...)
{
	PRINT("error: ", fix);
}

void log__warn(const char *fix, const char *fmt, ...)
{
	PRINT("warning: ", fix);
}

void log__info(const char *fmt, ...)
{
	PRINT("", NULL);
}
