/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Writes the manual pages from the option tables that parse the command line.
 *
 *   manual man          stepflame(1) on stdout
 *   manual man COMMAND  stepflame-COMMAND(1)
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/options.h"
#include "user/cmd/cmd.h"

/* Text for roff: a leading dot and backslashes mean something to it, and so does a plain hyphen in an option. */
static void put(const char *text)
{
	for (const char *c = text; *c; c++) {
		if (*c == '\\' || *c == '-')
			putchar('\\');
		if (c == text && (*c == '.' || *c == '\''))
			fputs("\\&", stdout);
		putchar(*c == '\v' ? '\n' : *c);
	}
}

static void put_option(const struct argp_option *o)
{
	puts(".TP");
	if (isprint(o->key))
		printf("\\fB\\-%c\\fR, ", o->key);
	fputs("\\fB\\-\\-", stdout);
	put(o->name);
	fputs("\\fR", stdout);
	if (o->arg) {
		bool optional = o->flags & OPTION_ARG_OPTIONAL;

		fputs(optional ? "[=\\fI" : "=\\fI", stdout);
		put(o->arg);
		fputs(optional ? "\\fR]" : "\\fR", stdout);
	}
	putchar('\n');
	put(o->doc);
	putchar('\n');
}

/* The description and the options of a command. */
static void put_command(const struct command *c)
{
	char doc[2048], *after;

	snprintf(doc, sizeof(doc), "%s", c->argp->doc ? c->argp->doc : "");
	after = strchr(doc, '\v');
	if (after)
		*after++ = 0;
	put(doc);
	putchar('\n');
	for (const struct argp_option *o = option_at(c->argp->options); o; o = option_at(o + 1))
		put_option(o);
	if (after) {
		puts(".PP");
		put(after);
		putchar('\n');
	}
}

/* "record [OPTION...] -p PID", for each of the ways to call it. */
static void put_synopsis(const struct command *c)
{
	char ways[256], *rest = ways, *way;

	snprintf(ways, sizeof(ways), "%s", c->argp->args_doc ? c->argp->args_doc : "");
	while ((way = strsep(&rest, "\n"))) {
		printf(".B stepflame %s\n[\\fIOPTION\\fR...] ", c->name);
		put(way);
		puts("\n.br");
	}
}

static void put_title(const char *name)
{
	fputs(".TH \"", stdout);
	for (const char *c = name; *c; c++)
		putchar(toupper(*c));
	puts("\" 1 \"\" \"stepflame " STEPFLAME_VERSION "\" \"User Commands\"");
}

static const struct {
	const char *name, *help;
} variables[] = {
	{"COLUMNS", "the width of a terminal, instead of what the terminal says."},
	{"NO_COLOR", "if it is set and not empty: no colours."},
	{"STEPFLAME_DEBUG", "if it is set: show what the kernel says of programs that it refuses."},
	{"STEPFLAME_INJECT",
	 "the path of libstepflame-inject.so, for record --gpu cupti and --inject; else it is looked "
	 "for beside the program, and in ../lib/stepflame."},
	{"STEPFLAME_PROBES",
	 "for tests: attach probes as an older kernel does, by events or by perf; multi is as a new "
	 "one does."},
	{"XDG_CACHE_HOME", "where the folder stepflame is, in which it remembers what it found in files of libraries "
			   "(without it: ~/.cache)."},
	{"XDG_RUNTIME_DIR",
	 "without root: where the folder stepflame is, in which record --exact says what restore has "
	 "to undo if it is killed (without it: /dev/shm)."},
};

static void put_manual(void)
{
	put_title("stepflame");
	puts(".SH NAME\nstepflame \\- watch a running PyTorch or Lightning training job from outside\n.SH SYNOPSIS");
	for (const struct command *c, *const *at = commands; (c = *at); at++)
		put_synopsis(c);
	puts(".B stepflame help\n[\\fICOMMAND\\fR]\n.SH COMMANDS");
	for (const struct command *c, *const *at = commands; (c = *at); at++) {
		printf(".SS \"stepflame %s\"\n", c->name);
		put_command(c);
	}
	puts(".SH EXIT STATUS\n"
	     "0 ok, 1 error, 2 usage, 3 permission, 4 target gone or not found, 5 kernel, Python or torch not "
	     "supported, 6\n.BR \"diff \\-\\-threshold\" :\nFILE2 is slower.\n.PP\n"
	     ".B record \\-\\- \\fICMD\\fR\n"
	     "passes on the status of the command: 127 when it was not found, 128 and the signal when one ended it.\n"
	     ".SH ENVIRONMENT");
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
		printf(".TP\n.B %s\n", variables[i].name);
		put(variables[i].help);
		putchar('\n');
	}
}

static int put_manual_of(const char *name)
{
	const struct command *const *at = commands, *c;
	char title[64];

	while (*at && strcmp((*at)->name, name))
		at++;
	c = *at;
	if (!c)
		return fprintf(stderr, "manual: there is no command '%s'\n", name), 2;
	snprintf(title, sizeof(title), "stepflame-%s", name);
	put_title(title);
	printf(".SH NAME\nstepflame\\-%s \\- ", name);
	put(c->help);
	puts("\n.SH SYNOPSIS");
	put_synopsis(c);
	puts(".SH DESCRIPTION");
	put_command(c);
	puts(".SH SEE ALSO\n.BR stepflame (1)");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "man"))
		put_manual();
	else if (argc == 3 && !strcmp(argv[1], "man"))
		return put_manual_of(argv[2]) ?: fflush(stdout) ? 1 : 0;
	else
		return fputs("usage: manual man [COMMAND]\n", stderr), 2;
	return fflush(stdout) ? 1 : 0;
}
