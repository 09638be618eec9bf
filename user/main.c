// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* stepflame COMMAND ...: finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "log.h"

/* A new command is a file in cmd/, its two lines in cmd/cmd.h, and a line here. */
static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{"record", cmd_record, "attach to a running job, or start one, and record it"},
	{"ps", cmd_ps, "list the training processes of this host"},
	{"doctor", cmd_doctor, "check what this machine and a process let stepflame do"},
	{"report", cmd_report, "print a report of a recording"},
};

#define COMMAND_CNT (sizeof(commands) / sizeof(*commands))

static void print_help(FILE *out)
{
	fputs("Usage: stepflame COMMAND [OPTION...]\n"
	      "Watch a running PyTorch or Lightning job from outside.\n\n",
	      out);
	for (size_t i = 0; i < COMMAND_CNT; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
	fputs("\n  --help     this\n"
	      "  --version  the version\n\n"
	      "`stepflame COMMAND --help` explains a command.\n",
	      out);
}

static int end_of_output(void)
{
	return fflush(stdout) ? SF_EXIT_ERROR : SF_EXIT_OK;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	char full_name[64];

	argp_err_exit_status = SF_EXIT_USAGE;
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		puts("stepflame " STEPFLAME_VERSION);
		return end_of_output();
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "-?") || !strcmp(name, "help")) {
		print_help(stdout);
		return end_of_output();
	}
	for (size_t i = 0; i < COMMAND_CNT; i++) {
		if (strcmp(commands[i].name, name))
			continue;
		snprintf(full_name, sizeof(full_name), "stepflame %s", name);
		argv[1] = full_name;
		return commands[i].run(argc - 1, argv + 1);
	}
	if (*name)
		log__error(NULL, "no command is named '%s'", name);
	print_help(stderr);
	return SF_EXIT_USAGE;
}
