/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The recording that a command reads. */
#ifndef STEPFLAME_INPUT_H
#define STEPFLAME_INPUT_H

#include "../recording/recording.h"

#define INPUT_DEFAULT "stepflame.rec"

/* recording__read, with a message for what went wrong. 0 or -errno, after the message. */
int input__read(const char *file, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx);

#endif
