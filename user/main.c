// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* stepflame COMMAND ...: finds the command and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "user/cmd/cmd.h"
#include "user/lib/capabilities.h"
#include "user/lib/log.h"
#include "user/lib/output.h"

static void print_help(FILE *out)
{
	fputs("Usage: stepflame COMMAND [OPTION...]\n"
	      "Watch a running PyTorch or Lightning job from outside.\n\n",
	      out);
	for (const struct command *c = commands; c->name; c++)
		fprintf(out, "  %-10s %s\n", c->name, c->help);
	fputs("\n  --help     this\n"
	      "  --version  the version\n\n"
	      "`stepflame COMMAND --help` explains a command.\n",
	      out);
}

static int end_of_output(void)
{
	if (!fflush(stdout))
		return SF_EXIT_OK;
	log__error("write it elsewhere", "cannot write the output: %s", strerror(errno));
	return SF_EXIT_ERROR;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	char full_name[64];
	int null = 0;

	while (null >= 0 && null < 3) /* standard files that the caller closed: no other file may take their numbers */
		null = open("/dev/null", O_RDONLY); /* a write to it fails, as before */
	if (null > 2)
		close(null);
	stdout = output__for_people(STDOUT_FILENO) ?: stdout;
	stderr = output__for_people(STDERR_FILENO) ?: stderr;
	argp_err_exit_status = SF_EXIT_USAGE;
	if (getuid() != geteuid()) {
		log__error("chmod u-s its file, and use sudo, or file capabilities (docs/safety.md)",
			   "stepflame does not run as a set-user-ID program: all users could write files as its owner");
		return SF_EXIT_PERMISSION;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		puts("stepflame " STEPFLAME_VERSION);
		return end_of_output();
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "-?") || !strcmp(name, "help")) {
		print_help(stdout);
		return end_of_output();
	}
	for (const struct command *c = commands; c->name; c++) {
		if (strcmp(c->name, name))
			continue;
		if (geteuid() && !c->traces)
			capabilities__drop(); /* what it reads and writes, its user may */
		snprintf(full_name, sizeof(full_name), "stepflame %s", name);
		argv[1] = full_name;
		return c->run(argc - 1, argv + 1);
	}
	if (*name)
		log__error(NULL, "no command is named '%s'", name);
	print_help(stderr);
	return SF_EXIT_USAGE;
}
