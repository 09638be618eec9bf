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
#include "user/lib/similar.h"

static void print_help(FILE *out)
{
	fputs("Usage: stepflame COMMAND [OPTION...]\n"
	      "Watch a running PyTorch or Lightning job from outside.\n\n",
	      out);
	for (const struct command *c, *const *at = commands; (c = *at); at++)
		fprintf(out, "  %-10s %s\n", c->name, c->help);
	fputs("\n  --help     this, as -h does\n"
	      "  --version  the version\n\n"
	      "`stepflame help COMMAND` explains a command, as `stepflame COMMAND --help` does.\n"
	      "`stepflame fleet`, in the Python package, says what holds up jobs of many hosts.\n",
	      out);
}

static int end_of_output(void)
{
	if (!fflush(stdout))
		return SF_EXIT_OK;
	log__error("write it elsewhere", "cannot write the output: %s", strerror(errno));
	return SF_EXIT_ERROR;
}

static int run_command(const struct command *c, int argc, char **argv)
{
	char full_name[64];

	if (geteuid() && !c->traces)
		capabilities__drop(); /* what it reads and writes, its user may */
	snprintf(full_name, sizeof(full_name), "stepflame %s", c->name);
	argv[0] = full_name;
	return c->run(argc, argv);
}

static const struct command *find_command(const char *name)
{
	for (const struct command *c, *const *at = commands; (c = *at); at++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

static int refuse_name(const char *name)
{
	struct similar similar = {.word = name};
	bool option = name[0] == '-';
	const char *kind = option ? "option" : "command";

	for (const struct command *c, *const *at = commands; (c = *at) && !option; at++)
		similar__try(&similar, c->name);
	similar__try(&similar, option ? "--help" : "help");
	if (option)
		similar__try(&similar, "--version");
	if (!strcmp(name, "fleet")) {
		log__error("install stepflame's wheel with its extra [fleet] (docs/install.md), and run python3 -m "
			   "stepflame.fleet",
			   "fleet is in the Python package, which this program is not part of");
	} else if (similar.best) {
		log__error("`stepflame --help` lists the commands", "there is no %s '%s'; did you mean '%s'?", kind,
			   name, similar.best);
	} else if (option) {
		log__error("`stepflame --help` lists the commands, whose options stand behind them, and "
			   "`stepflame --version` prints the version",
			   "there is no option '%s'", name);
	} else {
		log__error(NULL, "there is no command '%s'", name);
		print_help(stderr);
	}
	return SF_EXIT_USAGE;
}

/* stepflame help [COMMAND] */
static int help(const char *name)
{
	char *argv[] = {NULL, "--help", NULL};
	const struct command *c = name ? find_command(name) : NULL;

	if (name && strcmp(name, "help"))
		return c ? run_command(c, 2, argv) : refuse_name(name);
	print_help(stdout);
	return end_of_output();
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	const struct command *command;
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
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "-?") || !strcmp(name, "help"))
		return help(argc > 2 ? argv[2] : NULL);
	command = find_command(name);
	if (command)
		return run_command(command, argc - 1, argv + 1);
	if (*name)
		return refuse_name(name);
	print_help(stderr);
	return SF_EXIT_USAGE;
}
