/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The terminal: draws lines and reads keys. While the screen is open, it buffers stderr, and prints
 * it on closing. Where a fault ends the program, the screen restores the terminal all the same.
 */
#ifndef STEPFLAME_USER_TOP_SCREEN_H
#define STEPFLAME_USER_TOP_SCREEN_H

#include "user/top/lines.h"

struct screen;

/* Takes over the terminal of stdin and stdout. 0 or -errno, after a message. */
int screen__open(struct screen **out);
void screen__close(struct screen *screen); /* accepts NULL */
void screen__size(const struct screen *screen, int *width, int *height);
void screen__draw(struct screen *screen, const struct array *lines);
/* Returns a character or an enum top_key; TOP_KEY_NONE when no key is waiting. */
int screen__key(struct screen *screen);

#endif
