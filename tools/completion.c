/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Writes what completes stepflame's command lines, from the option tables that parse them.
 *
 *   completion bash  for share/bash-completion/completions/stepflame
 *   completion zsh   for share/zsh/site-functions/_stepflame
 *   completion fish  for share/fish/vendor_completions.d/stepflame.fish
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"
#include "user/cmd/cmd.h"

#define DESCRIPTION_MAX 76 /* bytes */

/* What --help explains beside the tables. */
static const struct argp_option common[] = {
	{"help", 'h', NULL, 0, "explain the options", 0},
	{"usage", 'u' + 256, NULL, 0, "print the options alone", 0},
	{0},
};

/* ---- what an option or a command takes ---- */

/* Whether the argument is one of some words, as "all|workers|none". */
static bool is_choice(const char *arg)
{
	for (const char *c = arg; *c; c++) {
		if (!islower(*c) && *c != '|')
			return false;
	}
	return true;
}

static bool is_file(const char *arg)
{
	return !strncmp(arg, "FILE", 4) || !strcmp(arg, "OUT") || !strncmp(arg, "LIB:", 4);
}

static bool is_pid(const char *arg)
{
	return !strncmp(arg, "PID", 3);
}

static bool takes_files(const struct command *c)
{
	return c->argp->args_doc && strstr(c->argp->args_doc, "FILE");
}

static bool takes_command(const struct command *c)
{
	return c->argp->args_doc && strstr(c->argp->args_doc, "-- CMD");
}

/* Calls put for each option of a command. */
static void each_option(const struct command *c, void (*put)(const struct command *, const struct argp_option *))
{
	const struct argp_option *tables[] = {c->argp->options, common};

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
		for (const struct argp_option *o = option_at(tables[i]); o; o = option_at(o + 1))
			put(c, o);
	}
}

/* ---- text inside single quotes ---- */

/* The beginning of an explanation, up to a semicolon, that fits a line. */
static void get_description(const char *doc, char line[DESCRIPTION_MAX + 4])
{
	size_t len = strcspn(doc, ";\v\n");
	bool cut = len > DESCRIPTION_MAX;

	if (cut) {
		for (len = DESCRIPTION_MAX; len && doc[len] != ' '; len--)
			;
	}
	snprintf(line, DESCRIPTION_MAX + 4, "%.*s%s", (int)len, doc, cut ? "..." : "");
}

/* A backslash before each of the special characters; a single quote as the shell wants it. */
static void put_quoted(const char *text, const char *special, const char *quote)
{
	for (const char *c = text; *c; c++) {
		if (*c == '\'') {
			fputs(quote, stdout);
			continue;
		}
		if (strchr(special, *c))
			putchar('\\');
		putchar(*c);
	}
}

/* ---- the words that an argument can be ---- */

/* malloc'ed, with a space before each; "": any. */
static char *words_of(const struct command *c, const struct argp_option *o)
{
	char *words = NULL;
	size_t bytes;
	FILE *out = open_memstream(&words, &bytes);

	if (!out)
		exit(1);
	if (o->arg && is_choice(o->arg)) {
		fputc(' ', out);
		for (const char *at = o->arg; *at; at++)
			fputc(*at == '|' ? ' ' : *at, out);
	} else if (o->arg && c->print_choices) {
		c->print_choices(o->name, out);
	}
	if (fclose(out))
		exit(1);
	return words;
}

/* ---- bash ---- */

static void put_bash_name(const struct command *c, const struct argp_option *o)
{
	printf(" --%s", o->name);
}

static void put_bash_choice(const struct command *c, const struct argp_option *o)
{
	char *words = words_of(c, o);

	if (*words && isprint(o->key))
		printf("\t%s:--%s|%s:-%c) words=\"%s\" ;;\n", c->name, o->name, c->name, o->key, words + 1);
	else if (*words)
		printf("\t%s:--%s) words=\"%s\" ;;\n", c->name, o->name, words + 1);
	free(words);
}

static void put_commands(void)
{
	for (const struct command *c, *const *at = commands; (c = *at); at++)
		printf(" %s", c->name);
}

static void put_bash(void)
{
	fputs("_stepflame() {\n\tlocal words= before=$3\n\t[ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD - "
	      "2]}\n"
	      "\tcase ${COMP_WORDS[1]} in\n",
	      stdout);
	for (const struct command *c, *const *at = commands; (c = *at); at++) {
		printf("\t%s) words=\"", c->name);
		each_option(c, put_bash_name);
		puts("\" ;;");
	}
	fputs("\thelp) words=\"", stdout);
	put_commands();
	puts("\" ;;\n\tesac\n\tcase ${COMP_WORDS[1]}:$before in");
	for (const struct command *c, *const *at = commands; (c = *at); at++)
		each_option(c, put_bash_choice);
	fputs("\tesac\n\t[ \"$COMP_CWORD\" -gt 1 ] || words=\"--help --version help", stdout);
	put_commands();
	puts("\"\n\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${2#=}\")\n}\n"
	     "complete -o default -F _stepflame stepflame");
}

/* ---- zsh ---- */

static void put_zsh_text(const char *doc, const char *special)
{
	char line[DESCRIPTION_MAX + 4];

	get_description(doc, line);
	put_quoted(line, special, "'\\''");
}

/* ":TIME: " after an option: what its argument is, and what completes it. */
static void put_zsh_argument(const struct command *c, const struct argp_option *o)
{
	char *words = words_of(c, o);

	fputs(o->flags & OPTION_ARG_OPTIONAL ? "::" : ":", stdout);
	put_quoted(o->arg, ":", "'\\''");
	putchar(':');
	if (*words)
		printf("(%s)", words + 1);
	else
		fputs(is_file(o->arg) ? "_files" : is_pid(o->arg) ? "_pids" : " ", stdout);
	free(words);
}

static void put_zsh_option(const struct command *c, const struct argp_option *o)
{
	bool optional = o->flags & OPTION_ARG_OPTIONAL;

	/* what has an argument may come more than once */
	if (isprint(o->key) && o->arg)
		printf(" \\\n\t\t\t\\*{-%c+,--%s=}'[", o->key, o->name);
	else if (isprint(o->key))
		printf(" \\\n\t\t\t'(-%c --%s)'{-%c,--%s}'[", o->key, o->name, o->key, o->name);
	else
		printf(" \\\n\t\t\t'%s--%s%s[", o->arg ? "*" : "", o->name, optional ? "=-" : o->arg ? "=" : "");
	put_zsh_text(o->doc, "[]\\");
	putchar(']');
	if (o->arg)
		put_zsh_argument(c, o);
	putchar('\'');
}

static void put_zsh(void)
{
	puts("#compdef stepflame\n\nlocal curcontext=$curcontext state line\nlocal -a commands\n"
	     "typeset -A opt_args\ncommands=(");
	for (const struct command *c, *const *at = commands; (c = *at); at++) {
		printf("\t'%s:", c->name);
		put_zsh_text(c->help, "");
		puts("'");
	}
	puts("\t'help:explain a command'\n)\n"
	     "_arguments -C '(- *)'{-h,--help}'[list the commands]' '(- *)--version[print the version]' \\\n"
	     "\t'1: :->command' '*:: :->arguments' && return\n"
	     "case $state in\ncommand) _describe command commands ;;\narguments)\n\tcase $words[1] in\n"
	     "\thelp) _describe command commands ;;");
	for (const struct command *c, *const *at = commands; (c = *at); at++) {
		printf("\t%s)\n\t\t_arguments -s", c->name);
		each_option(c, put_zsh_option);
		if (takes_files(c))
			fputs(" \\\n\t\t\t'*:file:_files'", stdout);
		else if (takes_command(c))
			fputs(" \\\n\t\t\t'*::command:_normal'", stdout);
		puts("\n\t\t;;");
	}
	puts("\tesac\n\t;;\nesac");
}

/* ---- fish ---- */

static void put_fish_text(const char *doc)
{
	char line[DESCRIPTION_MAX + 4];

	get_description(doc, line);
	fputs(" -d '", stdout);
	put_quoted(line, "\\", "\\'");
	puts("'");
}

static void put_fish_option(const struct command *c, const struct argp_option *o)
{
	char *words = words_of(c, o);

	printf("complete -c stepflame -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name);
	if (isprint(o->key))
		printf(" -s %c", o->key);
	if (*words)
		printf("%s%s'", o->flags & OPTION_ARG_OPTIONAL ? " -f -a '" : " -x -a '", words + 1);
	else if (o->arg)
		fputs(is_file(o->arg) ? " -r -F" : is_pid(o->arg) ? " -x -a '(__fish_complete_pids)'" : " -x", stdout);
	free(words);
	put_fish_text(o->doc);
}

static void put_fish(void)
{
	puts("complete -c stepflame -f\n"
	     "complete -c stepflame -n __fish_use_subcommand -s h -l help -d 'list the commands'\n"
	     "complete -c stepflame -n __fish_use_subcommand -l version -d 'print the version'\n"
	     "complete -c stepflame -n __fish_use_subcommand -a help -d 'explain a command'");
	for (const struct command *c, *const *at = commands; (c = *at); at++) {
		printf("complete -c stepflame -n __fish_use_subcommand -a %s", c->name);
		put_fish_text(c->help);
		printf("complete -c stepflame -n '__fish_seen_subcommand_from help' -a %s\n", c->name);
	}
	for (const struct command *c, *const *at = commands; (c = *at); at++) {
		each_option(c, put_fish_option);
		if (takes_files(c) || takes_command(c))
			printf("complete -c stepflame -n '__fish_seen_subcommand_from %s' -F\n", c->name);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *shell;
		void (*put)(void);
	} shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};

	for (size_t i = 0; argc == 2 && i < sizeof(shells) / sizeof(*shells); i++) {
		if (!strcmp(argv[1], shells[i].shell)) {
			shells[i].put();
			return fflush(stdout) ? 1 : 0;
		}
	}
	return fputs("usage: completion bash | zsh | fish\n", stderr), 2;
}
