/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which function of an ELF file lies at a file offset, by its symbol tables. 12 bytes a function in memory; names stay
 * in the file, which is held open, and are read when asked for: a file that shrinks meanwhile costs names, not a
 * SIGBUS.
 */
#ifndef STEPFLAME_USER_ELF_FUNCTION_TABLE_H
#define STEPFLAME_USER_ELF_FUNCTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct function_table;

/*
 * 0 or -errno: -ENOEXEC not an ELF of this machine, -E2BIG more than max_cnt functions, or 4 GiB. A file without
 * symbols makes an empty table. Functions whose size is not known are left out.
 */
int function_table__load(const char *path, size_t max_cnt, struct function_table **out);
void function_table__free(struct function_table *table); /* accepts NULL */
size_t function_table__cnt(const struct function_table *table);

/*
 * The index of the function that covers the offset, of nested ones the innermost, or -1: none. A function with several
 * symbols has the one with the fewest leading underscores, then the shortest.
 */
int64_t function_table__find(const struct function_table *table, uint64_t offset);
uint64_t function_table__offset(const struct function_table *table, size_t index); /* of its first byte */
/* Its mangled name, as it is in the file, cut to `size` and 0-terminated. 0 or -errno. */
int function_table__name(const struct function_table *table, size_t index, char *name, size_t size);

/* Whether of two names of the same function `name` is the better one. */
bool function_name__is_better(const char *name, const char *than);

#endif
