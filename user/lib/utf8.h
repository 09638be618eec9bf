/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * UTF-8, checked: overlong forms, surrogates and code points above U+10FFFF are invalid (Unicode
 * 15, table 3-7).
 */
#ifndef STEPFLAME_USER_LIB_UTF8_H
#define STEPFLAME_USER_LIB_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xfffdu
#define UTF8_MAX         4 /* bytes of one code point */

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

#endif
