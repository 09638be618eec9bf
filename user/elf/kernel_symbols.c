/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Functions of the kernel. In: a file like /proc/kallsyms. Out: names. No other state. */
#include "user/elf/kernel_symbols.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/function_table.h"
#include "user/lib/search.h"

#define NAMES_MAX_BYTES (64u << 20)
/*
 * kallsyms gives no sizes, so a function ends where the next symbol begins. Code that was loaded
 * after the list was read (a module, a BPF program) must not be taken for the function before it,
 * so a function also ends after this many bytes.
 */
#define FUNCTION_MAX_BYTES 65536

struct kernel_symbol {
	uint64_t address;
	uint32_t name; /* offset in names; 0: not a function */
};

struct kernel_symbols {
	size_t cnt, capacity;
	struct kernel_symbol *symbols; /* by address, no two the same */
	size_t names_size, names_capacity;
	char *names;
};

static bool grow_array(void **array, size_t *capacity, size_t need, size_t item)
{
	size_t wanted = *capacity ? *capacity : 4096;
	void *grown;

	if (need <= *capacity)
		return true;
	while (wanted < need)
		wanted *= 2;
	grown = reallocarray(*array, wanted, item);
	if (!grown)
		return false;
	*array = grown;
	*capacity = wanted;
	return true;
}

/* "ffffffff81000000 T _stext", "ffffffffc0401000 t ext4_readahead	[ext4]" */
static int parse_kallsyms_line(struct kernel_symbols *s, char *line)
{
	char *at, *name, *module;
	uint64_t address = strtoull(line, &at, 16);
	size_t len;
	char type;

	if (!address || at[0] != ' ' || !at[1] || at[2] != ' ')
		return 0;
	type = at[1];
	name = at + 3;
	name[strcspn(name, "\n")] = 0;
	module = strchr(name, '\t');
	if (module)
		*module = ' ';
	len = strchr("tTwW", type) ? strlen(name) + 1 : 0;
	if (s->names_size + len > NAMES_MAX_BYTES)
		return -EFBIG;
	if (!grow_array((void **)&s->symbols, &s->capacity, s->cnt + 1, sizeof(*s->symbols)) ||
	    !grow_array((void **)&s->names, &s->names_capacity, s->names_size + len + 1, 1))
		return -ENOMEM;
	if (!s->names_size)
		s->names[s->names_size++] = 0;
	s->symbols[s->cnt++] = (struct kernel_symbol){address, len ? (uint32_t)s->names_size : 0};
	memcpy(s->names + s->names_size, name, len);
	s->names_size += len;
	return 0;
}

static int compare_symbol_addresses(const void *a, const void *b)
{
	uint64_t x = ((const struct kernel_symbol *)a)->address, y = ((const struct kernel_symbol *)b)->address;

	return x < y ? -1 : x > y;
}

/*
 * Leaves one symbol for each address and only the first of consecutive data symbols, and gives the
 * spare memory back.
 */
static void merge_symbols(struct kernel_symbols *s)
{
	struct kernel_symbol *last = s->symbols, *shrunk;
	char *names;

	qsort(s->symbols, s->cnt, sizeof(*s->symbols), compare_symbol_addresses);
	for (size_t i = 1; i < s->cnt; i++) {
		const struct kernel_symbol *next = &s->symbols[i];

		if (next->address == last->address) {
			if (next->name &&
			    (!last->name || function_name__is_better(s->names + next->name, s->names + last->name)))
				last->name = next->name;
		} else if (next->name || last->name) {
			*++last = *next;
		}
	}
	s->cnt = (size_t)(last - s->symbols) + 1;
	shrunk = reallocarray(s->symbols, s->cnt, sizeof(*shrunk));
	if (shrunk)
		s->symbols = shrunk;
	names = realloc(s->names, s->names_size);
	if (names)
		s->names = names;
}

int kernel_symbols__new(const char *path, struct kernel_symbols **out)
{
	struct kernel_symbols *s = calloc(1, sizeof(*s));
	size_t room = 0;
	char *line = NULL;
	FILE *file;
	int err = 0;

	if (!s)
		return -ENOMEM;
	file = fopen(path, "re");
	if (!file)
		err = -errno;
	while (!err && getline(&line, &room, file) > 0)
		err = parse_kallsyms_line(s, line);
	if (!err && !s->cnt)
		err = -EPERM;
	if (file)
		fclose(file);
	free(line);
	if (err) {
		kernel_symbols__free(s);
		return err;
	}
	merge_symbols(s);
	*out = s;
	return 0;
}

void kernel_symbols__free(struct kernel_symbols *s)
{
	if (!s)
		return;
	free(s->symbols);
	free(s->names);
	free(s);
}

const char *kernel_symbols__find(const struct kernel_symbols *s, uint64_t ip)
{
	size_t low = SEARCH(i, 0, s->cnt, s->symbols[i].address <= ip);
	if (!low || !s->symbols[low - 1].name || ip - s->symbols[low - 1].address >= FUNCTION_MAX_BYTES)
		return NULL;
	return s->names + s->symbols[low - 1].name;
}
