/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * UTF-8, checked: overlong forms, surrogates and code points above U+10FFFF are invalid (Unicode
 * 15, table 3-7).
 */
#ifndef STEPFLAME_USER_LIB_UTF8_H
#define STEPFLAME_USER_LIB_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xfffdu
#define UTF8_MAX         4 /* bytes of one code point */
#define UTF8_SHOWN_MAX   4 /* bytes that utf8__escape makes of one: "\x1b"; of three "\u202e"; of an invalid one U+FFFD */

/*
 * Returns the code point at *at (which must be below end), and moves *at past it. Invalid bytes
 * give UTF8_REPLACEMENT once per maximal subpart, as Python's errors="replace" does; *cut (may be
 * NULL) is set to 1 when only the end of a code point is missing.
 */
uint32_t utf8__next(const char **at, const char *end, int *cut);
/*
 * Writes a code point (UTF8_REPLACEMENT for an invalid one) to out, which has room for UTF8_MAX
 * bytes. Returns the number of bytes written.
 */
size_t utf8__put(char *out, uint32_t code_point);
/*
 * Copies at most `bytes` bytes of text, up to its first 0, to out as valid, 0-terminated UTF-8.
 * Never cuts a code point.
 */
void utf8__copy(char *out, size_t room, const char *text, size_t bytes);
/*
 * Returns UTF-8 text, malloc'ed, in which characters that could steer a terminal or hide text are
 * visible: C0 and C1 control characters and DEL as \x1b, line and paragraph separators and the
 * bidirectional controls as \u202e. NULL: no memory.
 */
char *utf8__escape(const char *text);
/* The same for one code point: writes at most 6 bytes, and UTF8_SHOWN_MAX per byte that it had. */
size_t utf8__put_shown(char *out, uint32_t code_point);
/* Does utf8__escape escape this character? */
bool utf8__steers(uint32_t code_point);

#endif
