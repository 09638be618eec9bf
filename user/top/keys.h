/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What keys do to the state of the screen. */
#ifndef STEPFLAME_USER_TOP_KEYS_H
#define STEPFLAME_USER_TOP_KEYS_H

#include "user/top/lines.h"

/* Keys that are not ASCII characters. */
enum top_key {
	TOP_KEY_NONE = 0,
	TOP_KEY_ESCAPE = 27,
	TOP_KEY_BACKSPACE = 127,
	TOP_KEY_UP = 256,
	TOP_KEY_DOWN,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_BACK_TAB,
	TOP_KEY_RESIZE,
};

enum top_command { TOP_GO_ON, TOP_QUIT, TOP_RESET };

enum top_command top_state__key(struct top_state *state, int key);

#endif
