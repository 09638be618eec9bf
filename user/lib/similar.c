// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/similar.h"

#include <stdint.h>
#include <string.h>

#define WORD_MAX 32

static size_t smaller_of(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Optimal string alignment: rows[i][k] is the distance of the first i and k characters. */
size_t similar__distance(const char *a, const char *b)
{
	size_t length_a = strnlen(a, WORD_MAX + 1), length_b = strnlen(b, WORD_MAX + 1);
	size_t rows[WORD_MAX + 1][WORD_MAX + 1];

	if (length_a > WORD_MAX || length_b > WORD_MAX)
		return SIZE_MAX;
	for (size_t i = 0; i <= length_a; i++) {
		for (size_t k = 0; k <= length_b; k++) {
			if (!i || !k) {
				rows[i][k] = i + k;
				continue;
			}
			rows[i][k] = smaller_of(smaller_of(rows[i - 1][k], rows[i][k - 1]) + 1,
						rows[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				rows[i][k] = smaller_of(rows[i][k], rows[i - 2][k - 2] + 1);
		}
	}
	return rows[length_a][length_b];
}

/* A third of the characters may be wrong. */
void similar__try(struct similar *similar, const char *candidate)
{
	size_t distance = similar__distance(similar->word, candidate);

	if (distance > strlen(candidate) / 3 || (similar->best && distance >= similar->distance))
		return;
	similar->best = candidate;
	similar->distance = distance;
}
