/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The recording that a command reads. */
#ifndef STEPFLAME_USER_CMD_INPUT_H
#define STEPFLAME_USER_CMD_INPUT_H

#include <stdbool.h>

#include "user/recording/recording.h"

#define INPUT_DEFAULT "stepflame.rec"

/* Is it "-", standard input? A command can read that once only. */
bool input__is_stdin(const char *file);
/* Returns the name of the file for messages. */
const char *input__name(const char *file);
/*
 * Calls recording__read and prints a message for what went wrong. 0 or -errno, after the message.
 * For a cut or damaged file: -ENODATA when no record before the damage can be reported; else 0,
 * after a warning.
 */
int input__read(const char *file, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx);
/* The same for a file that was read before: prints no second message about its end. */
int input__read_again(const char *file, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx);

#endif
