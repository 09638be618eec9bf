// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "user/lib/utf8.h"

int log__exit_code(int err)
{
	switch (err < 0 ? -err : err) {
	case 0:
		return SF_EXIT_OK;
	case EPERM:
	case EACCES:
		return SF_EXIT_PERMISSION;
	case ESRCH:
		return SF_EXIT_TARGET;
	case EOPNOTSUPP:
		return SF_EXIT_UNSUPPORTED;
	default:
		return SF_EXIT_ERROR;
	}
}

static void print_message(const char *prefix, const char *fix, const char *fmt, va_list ap)
{
	char text[2048], *shown, *shown_fix = fix ? utf8__escape(fix) : NULL;

	vsnprintf(text, sizeof(text), fmt, ap);
	shown = utf8__escape(text);
	fprintf(stderr, "stepflame: %s%s\n", prefix, shown ?: "out of memory");
	if (shown_fix)
		fprintf(stderr, "  fix: %s\n", shown_fix);
	free(shown_fix);
	free(shown);
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
