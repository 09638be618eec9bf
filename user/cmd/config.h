/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Options of a command from a file, as lines NAME = VALUE (.ini, read with libinih): the long options
 * of its argp, whose parser takes the values as it takes those of the command line. In: a file which
 * only root, or the user who calls, may write. Out: what the parser sets, or a message for each thing
 * that is wrong.
 */
#ifndef STEPFLAME_USER_CMD_CONFIG_H
#define STEPFLAME_USER_CMD_CONFIG_H

#include <argp.h>
#include <stdbool.h>

#include "user/lib/array.h"

/* Set all but the last field. */
struct config {
	const struct argp *argp;
	void *input;         /* of its parser */
	const char *section; /* the only one that the file may have */
	const int *never;    /* keys of options with an argument that the file may not have; 0 ends them */
	int many;            /* key of the option that it may have several times */
	struct array lines;  /* the parser's values point there until config__free */
};

/*
 * Reads the file; none at all is right where it need not exist. The parser is not told of the begin or
 * end. 0; or, after messages, -EINVAL, -ENOMEM or -errno: then *input is not to be used.
 */
int config__read(struct config *config, const char *path, bool must_exist);
void config__free(struct config *config);

#endif
