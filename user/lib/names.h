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
 * Returns the bytes of a name as UTF-8, malloc'ed; NULL: no memory. Bytes that are not valid in the
 * encoding become U+FFFD, as does U+0000, which a C string cannot hold. A name that was cut loses a
 * partial character at its end and gets "...".
 */
char *name__utf8(const char *bytes, size_t len, enum name_encoding encoding, bool cut);

/* Empty: all 0. */
struct names {
	struct map by_id; /* struct name, see names.c */
};

/* Adds a name. If the id already has a text, that text stays. 0 or -ENOMEM. */
int names__add(struct names *names, const struct rec_name *record);
/* Returns NULL for an unknown id. The text stays valid until names__free. */
const char *names__find(const struct names *names, uint64_t id);
/*
 * The same, but an unknown id gets a text that says so, valid until the next names__add. NULL: no
 * memory.
 */
const char *names__find_or_lost(struct names *names, uint64_t id);
/* Leaves it empty. */
void names__free(struct names *names);

#endif
