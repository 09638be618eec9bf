/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Figures as people read them: "%.3g" makes "1.23e+03" of 1234. */
#ifndef STEPFLAME_USER_LIB_DIGITS_H
#define STEPFLAME_USER_LIB_DIGITS_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DIGITS_BYTES 32

/* Below and above these, nobody reads zeros: such figures are of a damaged recording. */
#define DIGITS_MIN 1e-9
#define DIGITS_MAX 1e15

/* So many significant digits, as "%.*g" has them, but all of those before the point: "0.0123", "1234", "12346". Returns out. */
static inline const char *digits__put(char out[DIGITS_BYTES], double value, int cnt)
{
	double size = fabs(value);

	snprintf(out, DIGITS_BYTES, "%.*g", cnt, value);
	if (!strchr(out, 'e') || !(size >= DIGITS_MIN && size < DIGITS_MAX))
		return out;
	if (size >= 1) {
		snprintf(out, DIGITS_BYTES, "%.0f", value);
		return out;
	}
	snprintf(out, DIGITS_BYTES, "%.*f", cnt - 1 - (int)floor(log10(size)), value);
	for (size_t end = strlen(out); out[end - 1] == '0'; end--)
		out[end - 1] = 0;
	return out;
}

/* For an argument of a printf: lasts as long as the block in which it is. */
#define DIGITS(value, cnt) digits__put((char[DIGITS_BYTES]){0}, value, cnt)

#endif
