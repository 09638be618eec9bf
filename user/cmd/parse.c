// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/parse.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/log.h"
#include "user/lib/similar.h"
#include "user/lib/utf8.h"

#define NAME_MAX_BYTES 64

enum { OPT_USAGE = 0x300 };

static const struct argp_option common_options[] = {
	{"help", 'h', NULL, 0, "this help", -1},
	{"usage", OPT_USAGE, NULL, 0, "the options alone", -1},
	{NULL, '?', NULL, OPTION_HIDDEN, NULL, -1},
	{0},
};

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'h':
	case '?':
		argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
		return 0;
	case OPT_USAGE:
		argp_state_help(state, state->out_stream, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp common_argp = {.options = common_options, .parser = parse_common};

/* ---- long options that there are not ---- */

static bool is_end(const struct argp_option *option)
{
	return !option->name && !option->key && !option->doc && !option->group;
}

/* Does an option take the next word of the command line as its argument? */
static bool takes_next(const struct argp_option *option)
{
	return option->arg && !(option->flags & OPTION_ARG_OPTIONAL);
}

/* The long option that the beginning of a name means; or NULL, with what may have been meant. */
static const struct argp_option *find_long(const struct argp_option *options, const char *name, struct similar *similar)
{
	for (const struct argp_option *o = options; o && !is_end(o); o++) {
		if (o->name && !strncmp(o->name, name, strlen(name)))
			return o;
		if (o->name && !(o->flags & OPTION_HIDDEN))
			similar__try(similar, o->name);
	}
	return NULL;
}

/* Is the last of the short options in "-abc" one that takes the next word? */
static bool short_takes_next(const struct argp_option *options, const char *word)
{
	for (const char *c = word + 1; *c; c++)
		for (const struct argp_option *o = options; o && !is_end(o); o++)
			if (o->key == *c && takes_next(o))
				return !c[1];
	return false;
}

static void refuse_option(const char *program, const char *name, const char *meant)
{
	char *shown = utf8__escape(name);

	fprintf(stderr, "%s: there is no option '--%s'; did you mean '--%s'?\n", program, shown ?: "", meant);
	fprintf(stderr, "Try `%s --help' for more information.\n", program);
	free(shown);
	exit(SF_EXIT_USAGE);
}

/* Only where it can say what was meant: all else argp finds. */
static void check_long_options(const struct argp *argp, int argc, char **argv, bool in_order)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		struct similar similar = {0};
		const struct argp_option *option;
		char name[NAME_MAX_BYTES];

		if (argv[i][0] != '-' && in_order)
			return;
		if (argv[i][0] != '-' || argv[i][1] != '-') {
			i += argv[i][0] == '-' && short_takes_next(argp->options, argv[i]);
			continue;
		}
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(argv[i] + 2, "="), argv[i] + 2);
		similar.word = name;
		option = find_long(argp->options, name, &similar) ?: find_long(common_options, name, &similar);
		if (!option && similar.best)
			refuse_option(argv[0], name, similar.best);
		i += option && takes_next(option) && !strchr(argv[i], '=');
	}
}

void parse__or_die(const struct argp *argp, int argc, char **argv, unsigned int flags, void *input)
{
	const struct argp_child children[] = {{.argp = &common_argp, .group = -1}, {0}};
	struct argp whole = *argp;

	check_long_options(argp, argc, argv, flags & ARGP_IN_ORDER);
	whole.children = children;
	argp_parse(&whole, argc, argv, flags | ARGP_NO_HELP, NULL, input);
}
