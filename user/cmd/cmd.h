/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The commands, one file each. argv[0] is the command's name in usage messages ("stepflame
 * report"). Each returns the exit code. Each command has one argp, whose option table
 * drives parsing, --help, the man page and the shell completion.
 */
#ifndef STEPFLAME_USER_CMD_CMD_H
#define STEPFLAME_USER_CMD_CMD_H

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const struct argp *argp;
	const char *help; /* one line */
	bool traces;      /* looks at processes, and so needs capabilities */
	/*
	 * For completion: prints what the argument of an option can be, each word behind a
	 * space, where its table has no list of them; nothing: any. NULL: it has no such option.
	 */
	void (*print_choices)(const char *option, FILE *out);
};

/* In the order of --help. To add a command, add a file here with its struct command, and a line. */
#define STEPFLAME_COMMANDS(X) \
	X(record)             \
	X(report)             \
	X(flame)              \
	X(export)             \
	X(diff)               \
	X(merge)              \
	X(top)                \
	X(watch)              \
	X(dump)               \
	X(ps)                 \
	X(restore)            \
	X(doctor)

#define X(name) extern const struct command command_##name;
STEPFLAME_COMMANDS(X)
#undef X

extern const struct command *const commands[]; /* all of them, up to a NULL */

#endif
