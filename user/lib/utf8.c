// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t utf8__next(const char **at, const char *end, int *cut)
{
	const unsigned char *s = (const unsigned char *)*at, *stop = (const unsigned char *)end;
	unsigned char lead = *s++, low = 0x80, high = 0xbf;
	uint32_t code = lead;
	int more = 0;

	if (lead >= 0xc2 && lead <= 0xdf) {
		more = 1;
		code = lead & 0x1f;
	} else if (lead >= 0xe0 && lead <= 0xef) {
		more = 2;
		code = lead & 0x0f;
		low = lead == 0xe0 ? 0xa0 : low;   /* overlong */
		high = lead == 0xed ? 0x9f : high; /* surrogates */
	} else if (lead >= 0xf0 && lead <= 0xf4) {
		more = 3;
		code = lead & 0x07;
		low = lead == 0xf0 ? 0x90 : low;   /* overlong */
		high = lead == 0xf4 ? 0x8f : high; /* above U+10FFFF */
	} else if (lead >= 0x80) {
		code = UTF8_REPLACEMENT;
	}
	for (; more; more--, low = 0x80, high = 0xbf) {
		if (s == stop && cut)
			*cut = 1;
		if (s == stop || *s < low || *s > high) {
			code = UTF8_REPLACEMENT;
			break;
		}
		code = code << 6 | (*s++ & 0x3f);
	}
	*at = (const char *)s;
	return code;
}

size_t utf8__put(char *out, uint32_t code)
{
	if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		code = UTF8_REPLACEMENT;
	if (code < 0x80) {
		out[0] = code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = 0xc0 | code >> 6;
		out[1] = 0x80 | (code & 0x3f);
		return 2;
	}
	if (code < 0x10000) {
		out[0] = 0xe0 | code >> 12;
		out[1] = 0x80 | (code >> 6 & 0x3f);
		out[2] = 0x80 | (code & 0x3f);
		return 3;
	}
	out[0] = 0xf0 | code >> 18;
	out[1] = 0x80 | (code >> 12 & 0x3f);
	out[2] = 0x80 | (code >> 6 & 0x3f);
	out[3] = 0x80 | (code & 0x3f);
	return 4;
}

void utf8__copy(char *out, size_t room, const char *text, size_t bytes)
{
	const char *at = text, *end = text + strnlen(text, bytes);
	size_t used = 0;

	while (at < end) {
		char one[UTF8_MAX];
		int cut = 0;
		size_t n = utf8__put(one, utf8__next(&at, end, &cut));

		/* A text that fills its field was cut at its end: omit a partial code point. */
		if (used + n >= room || cut)
			break;
		memcpy(out + used, one, n);
		used += n;
	}
	out[used] = 0;
}

static bool is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

bool utf8__steers(uint32_t code)
{
	return is_control(code) || code == 0x61c || code == 0x200e || code == 0x200f ||
	       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

size_t utf8__put_shown(char *out, uint32_t code)
{
	char text[8];
	int bytes;

	if (!utf8__steers(code))
		return utf8__put(out, code);
	bytes = snprintf(text, sizeof(text), is_control(code) ? "\\x%02x" : "\\u%04x", code);
	memcpy(out, text, bytes); /* without its end */
	return bytes;
}

char *utf8__escape(const char *text)
{
	const char *at = text, *end = text + strlen(text);
	char *escaped = malloc(UTF8_SHOWN_MAX * (end - text) + 1), *out = escaped;

	if (!escaped)
		return NULL;
	while (at < end)
		out += utf8__put_shown(out, utf8__next(&at, end, NULL));
	*out = 0;
	return escaped;
}
