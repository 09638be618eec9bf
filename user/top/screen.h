/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The terminal: lines drawn, keys read. While it is open, stderr is kept back, and printed when it closes. Where the
 * program ends by a fault instead, the terminal is put right all the same.
 */
#ifndef STEPFLAME_USER_TOP_SCREEN_H
#define STEPFLAME_USER_TOP_SCREEN_H

#include "user/top/lines.h"

struct screen;

/* Takes the terminal of stdin and stdout. 0 or -errno, after a message. */
int screen__open(struct screen **out);
void screen__close(struct screen *screen); /* accepts NULL */
void screen__size(const struct screen *screen, int *width, int *height);
void screen__draw(struct screen *screen, const struct array *lines);
/* A character or enum top_key; TOP_KEY_NONE when none is waiting. */
int screen__key(struct screen *screen);
/* Does the terminal, or what is in its place, take UTF-8? By LC_ALL, LC_CTYPE and LANG. */
bool screen__utf8(void);

#endif
