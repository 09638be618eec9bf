/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Writes the manual pages from the option tables that parse the command line.
 *
 *   manual man          stepflame(1) on stdout
 *   manual man COMMAND  stepflame-COMMAND(1)
 */
#include <ctype.h>
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
		fputs("=\\fI", stdout);
		put(o->arg);
		fputs("\\fR", stdout);
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

static void put_manual(void)
{
	put_title("stepflame");
	puts(".SH NAME\nstepflame \\- watch a running PyTorch or Lightning training job from outside\n.SH SYNOPSIS");
	for (const struct command *c = commands; c->name; c++)
		put_synopsis(c);
	puts(".B stepflame help\n[\\fICOMMAND\\fR]\n.SH COMMANDS");
	for (const struct command *c = commands; c->name; c++) {
		printf(".SS \"stepflame %s\"\n", c->name);
		put_command(c);
	}
	puts(".SH EXIT STATUS\n"
	     "0 ok, 1 error, 2 usage, 3 permission, 4 target gone or not found, 5 kernel, Python or torch not "
	     "supported.\n"
	     ".B record \\-\\- \\fICMD\\fR\n"
	     "passes on the status of the command: 127 when it was not found, 128 and the signal when one ended it.\n"
	     ".SH ENVIRONMENT\n.TP\n.B STEPFLAME_DEBUG\nshow what the kernel says of programs that it refuses.");
}

static int put_manual_of(const char *name)
{
	const struct command *c = commands;
	char title[64];

	while (c->name && strcmp(c->name, name))
		c++;
	if (!c->name)
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
