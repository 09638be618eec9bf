// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/top/keys.h"

#include <string.h>

static void type_filter(struct top_state *state, int key)
{
	size_t length = strlen(state->filter);

	state->scroll = 0;
	if (key == '\n' || key == '\r') {
		state->typing = false;
	} else if (key == TOP_KEY_ESCAPE) {
		state->typing = false;
		*state->filter = 0;
	} else if ((key == TOP_KEY_BACKSPACE || key == '\b') && length) {
		state->filter[length - 1] = 0;
	} else if (key >= ' ' && key < TOP_KEY_BACKSPACE && length + 1 < sizeof(state->filter)) {
		state->filter[length] = key;
		state->filter[length + 1] = 0;
	}
}

/*
 * Returns how many rows a key scrolls down; below 0: up. Making the lines limits it to the rows
 * that exist.
 */
static long scroll_by(const struct top_state *state, int key)
{
	long page = state->height > 11 ? state->height - 9 : 2;

	switch (key) {
	case TOP_KEY_UP:
	case 'k':
		return -1;
	case TOP_KEY_DOWN:
	case 'j':
		return 1;
	case TOP_KEY_PAGE_UP:
		return -page;
	case TOP_KEY_PAGE_DOWN:
		return page;
	case TOP_KEY_HOME:
		return -(long)state->scroll;
	case TOP_KEY_END:
		return 1 << 24;
	default:
		return 0;
	}
}

static void show_view(struct top_state *state, int view)
{
	state->view = view;
	state->scroll = 0;
}

enum top_command top_state__key(struct top_state *state, int key)
{
	long scroll = (long)state->scroll + scroll_by(state, key);

	if (key == TOP_KEY_NONE || key == TOP_KEY_RESIZE)
		return TOP_GO_ON;
	if (state->typing) {
		type_filter(state, key);
		return TOP_GO_ON;
	}
	if (state->help && key != 'q') {
		state->help = false;
		return TOP_GO_ON;
	}
	state->scroll = scroll < 0 ? 0 : scroll;
	if (key >= '1' && key < '1' + TOP__VIEWS)
		show_view(state, key - '1');
	else if (key == '\t')
		show_view(state, (state->view + 1) % TOP__VIEWS);
	else if (key == TOP_KEY_BACK_TAB)
		show_view(state, (state->view + TOP__VIEWS - 1) % TOP__VIEWS);
	else if (key == 's' || key == '>')
		top_state__next_sort(state, 1);
	else if (key == '<')
		top_state__next_sort(state, -1);
	else if (key == 'p' || key == ' ')
		state->paused = !state->paused;
	else if (key == 'h' || key == '?')
		state->help = true;
	else if (key == '/')
		state->typing = true;
	else if (key == TOP_KEY_ESCAPE)
		*state->filter = 0;
	return key == 'q' ? TOP_QUIT : key == 'r' ? TOP_RESET : TOP_GO_ON;
}
