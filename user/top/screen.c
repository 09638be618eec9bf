// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/top/screen.h"

#include <errno.h>
#include <ncurses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include "user/lib/log.h"
#include "user/top/lines.h"

#include <term.h> /* last, as it defines macros such as `lines` */

struct screen {
	SCREEN *curses;
	FILE *out;    /* the terminal; NULL: none */
	int messages; /* memfd that replaces stderr; -1: none */
	int stderr_copy;
	bool colour;
};

/* Global, as the fault handler gets no argument. The handler may call neither curses nor stdio. */
static struct {
	struct termios termios;
	char reset[128]; /* returns to the main screen and to plain text */
	size_t bytes;
} restore;

enum { PAIR_HOT = 1, PAIR_WARN };

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

static void on_fault(int signal)
{
	if (write(STDOUT_FILENO, restore.reset, restore.bytes) < 0) {
		/* A failed write leaves nothing else to do. */
	}
	tcsetattr(STDOUT_FILENO, TCSANOW, &restore.termios);
	raise(signal); /* SA_RESETHAND: the default action now ends the program */
}

static void add_reset(const char *capability)
{
	const char *text = tigetstr(capability);
	size_t bytes = text && text != (char *)-1 ? strlen(text) : 0;

	if (bytes && restore.bytes + bytes <= sizeof(restore.reset)) {
		memcpy(restore.reset + restore.bytes, text, bytes);
		restore.bytes += bytes;
	}
}

static void catch_faults(void)
{
	struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_RESETHAND | SA_NODEFER};

	restore.bytes = 0;
	add_reset("sgr0");
	add_reset("rmkx");
	add_reset("cnorm");
	add_reset("rmcup");
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigaction(faults[i], &action, NULL);
}

static void release_faults(void)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		signal(faults[i], SIG_DFL);
}

/* The screen would draw over messages, so buffer them. */
static void keep_stderr(struct screen *screen)
{
	screen->stderr_copy = dup(STDERR_FILENO);
	screen->messages = screen->stderr_copy < 0 ? -1 : memfd_create("messages", MFD_CLOEXEC);
	if (screen->messages >= 0)
		dup2(screen->messages, STDERR_FILENO);
}

static void print_stderr(struct screen *screen)
{
	char text[4096];
	ssize_t bytes;

	if (screen->messages >= 0) {
		dup2(screen->stderr_copy, STDERR_FILENO);
		lseek(screen->messages, 0, SEEK_SET);
		while ((bytes = read(screen->messages, text, sizeof(text))) > 0)
			if (write(STDERR_FILENO, text, bytes) < 0)
				break;
		close(screen->messages);
	}
	if (screen->stderr_copy >= 0)
		close(screen->stderr_copy);
}

/* Yellow and reverse differ for any colour vision; terminals without colours get bold. */
static void set_colours(struct screen *screen)
{
	const char *no_color = getenv("NO_COLOR");

	screen->colour = has_colors() && !(no_color && *no_color) && start_color() == OK && use_default_colors() == OK;
	if (screen->colour) {
		init_pair(PAIR_HOT, COLOR_YELLOW, -1);
		init_pair(PAIR_WARN, COLOR_MAGENTA, -1);
	}
}

static void close_out(struct screen *screen)
{
	if (screen->out)
		fclose(screen->out);
}

int screen__open(struct screen **out)
{
	struct screen *screen = calloc(1, sizeof(*screen));
	const char *term = getenv("TERM");

	*out = NULL;
	if (!screen)
		return -ENOMEM;
	tcgetattr(STDOUT_FILENO, &restore.termios);
	screen->out = fdopen(dup(STDOUT_FILENO), "w"); /* stdout itself escapes */
	screen->curses = screen->out ? newterm(NULL, screen->out, stdin) : NULL;
	if (!screen->curses) {
		log__error("set TERM to the terminal's type, such as xterm-256color, or use --batch",
			   "the terminal '%s' is not known", term ?: "");
		close_out(screen);
		free(screen);
		return -ENOTTY;
	}
	keep_stderr(screen);
	catch_faults();
	set_colours(screen);
	set_escdelay(25);
	cbreak();
	noecho();
	nonl();
	curs_set(0);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	*out = screen;
	return 0;
}

void screen__close(struct screen *screen)
{
	if (!screen)
		return;
	endwin();
	delscreen(screen->curses);
	close_out(screen);
	release_faults();
	print_stderr(screen);
	free(screen);
}

void screen__size(const struct screen *screen, int *width, int *height)
{
	getmaxyx(stdscr, *height, *width);
}

static attr_t style_attributes(const struct screen *screen, enum top_style style)
{
	switch (style) {
	case STYLE_TITLE:
	case STYLE_COLUMNS:
		return A_BOLD;
	case STYLE_HOT:
		return A_BOLD | (screen->colour ? COLOR_PAIR(PAIR_HOT) : 0);
	case STYLE_WARN:
		return screen->colour ? COLOR_PAIR(PAIR_WARN) : A_BOLD;
	default:
		return A_NORMAL;
	}
}

void screen__draw(struct screen *screen, const struct array *picture)
{
	const struct top_line *all = picture->items;

	erase();
	for (size_t i = 0; i < picture->cnt && (int)i < LINES; i++) {
		attrset(style_attributes(screen, all[i].style));
		mvaddstr(i, 0, all[i].text);
		attrset(A_NORMAL);
		if (all[i].mark_cnt && (int)all[i].mark_at < COLS)
			mvchgat(i, all[i].mark_at, all[i].mark_cnt, A_REVERSE, 0, NULL);
	}
	refresh();
}

int screen__key(struct screen *screen)
{
	static const struct {
		int curses, key;
	} keys[] = {
		{ERR, TOP_KEY_NONE},
		{KEY_UP, TOP_KEY_UP},
		{KEY_DOWN, TOP_KEY_DOWN},
		{KEY_PPAGE, TOP_KEY_PAGE_UP},
		{KEY_NPAGE, TOP_KEY_PAGE_DOWN},
		{KEY_HOME, TOP_KEY_HOME},
		{KEY_END, TOP_KEY_END},
		{KEY_BTAB, TOP_KEY_BACK_TAB},
		{KEY_BACKSPACE, TOP_KEY_BACKSPACE},
		{KEY_ENTER, '\n'},
		{KEY_RESIZE, TOP_KEY_RESIZE},
		{KEY_RIGHT, '>'},
		{KEY_LEFT, '<'},
	};
	int key = getch();

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (keys[i].curses == key)
			return keys[i].key;
	return key < 128 ? key : TOP_KEY_RESIZE; /* a key without effect */
}
