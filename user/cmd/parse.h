/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The command line of a command: argp, with what all commands have in common (-h as --help), and
 * with what may have been meant by a long option that there is not.
 */
#ifndef STEPFLAME_USER_CMD_PARSE_H
#define STEPFLAME_USER_CMD_PARSE_H

#include <argp.h>

/* Like argp_parse, which ends the program after --help and after a usage error. */
void parse__or_die(const struct argp *argp, int argc, char **argv, unsigned int flags, void *input);

#endif
