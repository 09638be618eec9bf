// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/elf/kernel_name.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/demangle.h"

#define NAME_BYTES 1024 /* more than REC_NAME_MAX, to which mangled names are cut */
#define NAMES_MAX  3    /* names of template arguments to print */

/* Names that say nothing about what a kernel computes. */
static bool is_dull(const char *name, size_t len)
{
	static const char *const dull[] = {"at",    "native", "c10",   "cuda",         "std",     "detail",
					   "array", "memory", "Array", "_GLOBAL__N_1", "cutlass", "integral_constant"};

	for (size_t i = 0; i < sizeof(dull) / sizeof(*dull); i++)
		if (strlen(dull[i]) == len && !memcmp(dull[i], name, len))
			return true;
	return false;
}

/*
 * A walk over a mangled name of the Itanium C++ ABI; it understands only what is needed to find
 * template arguments.
 */
struct name_walk {
	const char *at;
	unsigned int depth; /* of the groups that an E closes */
	unsigned int outer; /* depth of the first template arguments; 0: not there yet */
};

/* Parses a number into *value; returns the text after the number. */
static const char *number(const char *at, unsigned long *value)
{
	char *rest;

	*value = strtoul(at, &rest, 10);
	return rest;
}

/*
 * Steps over one character that begins no name, and what belongs to it. Returns false when the
 * first template arguments end.
 */
static bool step_over(struct name_walk *walk)
{
	const char at = *walk->at++;

	switch (at) {
	case 'L': /* a literal: Li512E, Lb1E, Lin1E */
		walk->at += strcspn(walk->at, "E_");
		walk->at += *walk->at == 'E';
		break;
	case 'S': /* S_, S0_, T1_, St */
	case 'T':
		while (isdigit((unsigned char)*walk->at) || isupper((unsigned char)*walk->at))
			walk->at++;
		break;
	case 'U': /* a lambda, or a type without a name */
		walk->depth += *walk->at == 'l';
		break;
	case 'I':
		walk->depth++;
		walk->outer = walk->outer ?: walk->depth;
		break;
	case 'N':
	case 'X':
	case 'J':
	case 'F':
	case 'Z':
		walk->depth++;
		break;
	case 'E':
		walk->depth -= walk->depth > 0;
		return !walk->outer || walk->depth >= walk->outer;
	}
	return true;
}

/* The next name in the first template arguments, *len its length; NULL at the end. */
static const char *next_name(struct name_walk *walk, size_t *len)
{
	while (*walk->at) {
		unsigned long bytes;
		const char *name = number(walk->at, &bytes);

		if (!isdigit((unsigned char)*walk->at)) {
			if (!step_over(walk))
				return NULL;
			continue;
		}
		walk->at = bytes <= strlen(name) ? name + bytes : name;
		*len = walk->at - name;
		if (*len && walk->outer)
			return name;
	}
	return NULL;
}

/* Writes the first names in the template arguments, separated by " ". */
static void write_arguments(const char *mangled, char *out, size_t size)
{
	struct name_walk walk = {.at = mangled + 2}; /* after _Z */
	const char *names[NAMES_MAX], *name;
	size_t lens[NAMES_MAX], len, used = 0;
	int cnt = 0;

	*out = 0;
	while (cnt < NAMES_MAX && (name = next_name(&walk, &len))) {
		bool known = is_dull(name, len);

		for (int i = 0; i < cnt && !known; i++)
			known = lens[i] == len && !memcmp(names[i], name, len);
		if (known || len + 2 > size - used)
			continue;
		used += snprintf(out + used, size - used, "%s%.*s", cnt ? " " : "", (int)len, name);
		names[cnt] = name;
		lens[cnt++] = len;
	}
}

char *kernel_name__for_people(const char *mangled)
{
	char name[NAME_BYTES], arguments[NAME_BYTES], *whole, *dots;

	if (!demangle__name(mangled, name, sizeof(name)))
		return strdup(mangled);
	dots = strstr(name, "<...>");
	write_arguments(mangled, arguments, sizeof(arguments));
	if (!dots || !*arguments)
		return strdup(name);
	if (asprintf(&whole, "%.*s<%s ...>%s", (int)(dots - name), name, arguments, dots + strlen("<...>")) < 0)
		return NULL;
	return whole;
}

/* FNV-1a, folded. */
static unsigned hash_of(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	while (*text)
		hash = (hash ^ (unsigned char)*text++) * 0x100000001b3ULL;
	return (unsigned)(hash ^ hash >> 32);
}

void kernel_name__to_keep(const char *mangled, char *out, size_t size)
{
	size_t hash_bytes = strlen(" #12345678");
	char *name;

	if (strlen(mangled) < size) {
		snprintf(out, size, "%s", mangled);
		return;
	}
	name = kernel_name__for_people(mangled);
	snprintf(out, size, "%.*s #%08x", size > hash_bytes ? (int)(size - 1 - hash_bytes) : 0, name ?: mangled,
		 hash_of(mangled));
	free(name);
}
