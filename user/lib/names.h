/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Interned names: id -> text. */
#ifndef STEPFLAME_USER_LIB_NAMES_H
#define STEPFLAME_USER_LIB_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/records.h"
#include "user/lib/map.h"

/*
 * The bytes of a name as UTF-8, malloc'ed; NULL: no memory. What is not a character in its encoding becomes U+FFFD, and
 * so does U+0000, which a C string cannot hold. A cut name loses a piece of a character at its end and gets "..."
 * instead.
 */
char *name__utf8(const char *bytes, size_t len, enum name_encoding encoding, bool cut);

/* Empty: all 0. */
struct names {
	struct map by_id; /* struct name, see names.c */
};

/* Adds a name; the first text of an id stays. 0 or -ENOMEM. */
int names__add(struct names *names, const struct rec_name *record);
/* NULL when it never came. Stays until names__free. */
const char *names__find(const struct names *names, uint64_t id);
/* The same, but a name that never came gets a text that says so, which stays until a names__add. NULL: no memory. */
const char *names__find_or_lost(struct names *names, uint64_t id);
/* Leaves it empty. */
void names__free(struct names *names);

#endif
