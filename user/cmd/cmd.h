/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The commands, one file each. argv[0] is the command's name in usage messages ("stepflame
 * report"). Each function returns the exit code. Each command has one argp, whose option table
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

/*
 * All commands, in the order of --help; an entry without a name ends the table. To add a command,
 * add a file here, its two lines below, and a line in commands.c.
 */
extern const struct command commands[];

int cmd_report(int argc, char **argv);
extern const struct argp cmd_report_argp;
void cmd_report__print_choices(const char *option, FILE *out);

int cmd_record(int argc, char **argv);
extern const struct argp cmd_record_argp;

int cmd_flame(int argc, char **argv);
extern const struct argp cmd_flame_argp;

int cmd_export(int argc, char **argv);
extern const struct argp cmd_export_argp;
void cmd_export__print_choices(const char *option, FILE *out);

int cmd_diff(int argc, char **argv);
extern const struct argp cmd_diff_argp;

int cmd_merge(int argc, char **argv);
extern const struct argp cmd_merge_argp;

int cmd_dump(int argc, char **argv);
extern const struct argp cmd_dump_argp;

int cmd_top(int argc, char **argv);
extern const struct argp cmd_top_argp;
void cmd_top__print_choices(const char *option, FILE *out);

int cmd_watch(int argc, char **argv);
extern const struct argp cmd_watch_argp;

int cmd_ps(int argc, char **argv);
extern const struct argp cmd_ps_argp;

int cmd_restore(int argc, char **argv);
extern const struct argp cmd_restore_argp;

int cmd_doctor(int argc, char **argv);
extern const struct argp cmd_doctor_argp;

#endif
