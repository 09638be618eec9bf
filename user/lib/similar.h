/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What somebody may have meant who mistyped a word. In: that word, and the words that there are. */
#ifndef STEPFLAME_USER_LIB_SIMILAR_H
#define STEPFLAME_USER_LIB_SIMILAR_H

#include <stddef.h>

struct similar {
	const char *word; /* the caller sets it */
	const char *best; /* the most similar one so far; NULL: none is similar */
	size_t distance;  /* of that */
};

/* Looks at one more word that there is; of two that are as similar, the first one stays. */
void similar__try(struct similar *similar, const char *candidate);

/*
 * How many characters to insert, delete, replace, or swap with the next one, to make one word of the
 * other; SIZE_MAX where one is too long for a word.
 */
size_t similar__distance(const char *a, const char *b);

#endif
