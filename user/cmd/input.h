/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The recording that a command reads. */
#ifndef STEPFLAME_USER_CMD_INPUT_H
#define STEPFLAME_USER_CMD_INPUT_H

#include <stdbool.h>

#include "user/recording/recording.h"

#define INPUT_DEFAULT "stepflame.rec"

/* "-", which can be read once. */
bool input__is_stdin(const char *file);
/* What messages call it. */
const char *input__name(const char *file);
/*
 * recording__read, with a message for what went wrong. 0 or -errno, after the message: of a file that is cut or damaged -ENODATA, when
 * nothing that can be reported came before; else 0, after a warning.
 */
int input__read(const char *file, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx);
/* The same of a file that was read before: its end is known, and no message comes for it. */
int input__read_again(const char *file, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx);

#endif
