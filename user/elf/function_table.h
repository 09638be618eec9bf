/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the function of an ELF file at a file offset, by its symbol tables. A function takes 12
 * bytes of memory. The names stay in the file, which stays open and is read on demand: when the
 * file shrinks, names are lost, but no SIGBUS is raised.
 */
#ifndef STEPFLAME_USER_ELF_FUNCTION_TABLE_H
#define STEPFLAME_USER_ELF_FUNCTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct function_table;

/*
 * Takes over the descriptor, on failure too. 0 or -errno: those of elf__new_fd; -ENOEXEC not an
 * ELF of this machine, -E2BIG more than max_cnt functions, or 4 GiB. A file without symbols gives
 * an empty table. Functions of unknown size are left out.
 */
int function_table__load(int fd, size_t max_cnt, struct function_table **out);
void function_table__free(struct function_table *table); /* accepts NULL */
size_t function_table__cnt(const struct function_table *table);

/*
 * The index of the function that covers the offset, the innermost of nested ones; -1 when no
 * function covers it. A function with several symbols takes the one with the fewest leading
 * underscores, then the shortest.
 */
int64_t function_table__find(const struct function_table *table, uint64_t offset);
uint64_t function_table__offset(const struct function_table *table, size_t index); /* of its first byte */
/* The function's mangled name, as it is in the file, cut to `size` and 0-terminated. 0 or -errno. */
int function_table__name(const struct function_table *table, size_t index, char *name, size_t size);

/* Whether `name` is the better of two names of the same function. */
bool function_name__is_better(const char *name, const char *than);

#endif
