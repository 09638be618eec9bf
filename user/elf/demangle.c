// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Names of C++ functions. In: a mangled symbol. Out: text. libiberty parses the symbol into a tree,
 * in time and memory linear in its length; this file prints only the branches that hold the
 * function's own name.
 */
#include "user/elf/demangle.h"

#include <ctype.h>
#include <libiberty/demangle.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOL_MAX 65536

struct text {
	char *out;
	size_t used, size;
};

static bool text__is_full(const struct text *text)
{
	return text->used + 1 >= text->size;
}

static bool text__put(struct text *text, const char *bytes, size_t len)
{
	size_t room = text->size - 1 - text->used;

	if (len > room)
		len = room;
	memcpy(text->out + text->used, bytes, len);
	text->used += len;
	text->out[text->used] = 0;
	return true;
}

static bool text__put_string(struct text *text, const char *string)
{
	return text__put(text, string, strlen(string));
}

static bool text__put_numbered(struct text *text, const char *what, long number)
{
	char string[48];

	return text__put(text, string, snprintf(string, sizeof(string), "{%s#%ld}", what, number + 1));
}

/* Writes "operator<<" for a leaf of the tree; only the library knows the structure of that leaf. */
static bool text__put_operator(struct text *text, struct demangle_component *leaf)
{
	size_t allocated;
	char *name = cplus_demangle_print(DMGL_NO_OPTS, leaf, 32, &allocated);
	bool ok = name && text__put_string(text, name);

	free(name);
	return ok;
}

static bool text__put_name(struct text *text, struct demangle_component *c);

static bool text__put_pair(struct text *text, struct demangle_component *c, const char *between)
{
	return text__put_name(text, c->u.s_binary.left) && text__put_string(text, between) &&
	       text__put_name(text, c->u.s_binary.right);
}

static bool text__put_template(struct text *text, struct demangle_component *c)
{
	if (!text__put_name(text, c->u.s_binary.left))
		return false;
	return text__put_string(text, text->used && text->out[text->used - 1] == '<' ? " <...>" : "<...>");
}

/* Returns false for a form that no function's name has. */
static bool text__put_name(struct text *text, struct demangle_component *c)
{
	if (!c)
		return false;
	if (text__is_full(text))
		return true;
	switch (c->type) {
	case DEMANGLE_COMPONENT_NAME:
		return text__put(text, c->u.s_name.s, c->u.s_name.len);
	case DEMANGLE_COMPONENT_SUB_STD:
		return text__put(text, c->u.s_string.string, c->u.s_string.len);
	case DEMANGLE_COMPONENT_QUAL_NAME:
	case DEMANGLE_COMPONENT_LOCAL_NAME:
		return text__put_pair(text, c, "::");
	case DEMANGLE_COMPONENT_TAGGED_NAME:
		return text__put_pair(text, c, "[abi:") && text__put_string(text, "]");
	case DEMANGLE_COMPONENT_TEMPLATE:
		return text__put_template(text, c);
	case DEMANGLE_COMPONENT_CTOR:
		return text__put_name(text, c->u.s_ctor.name);
	case DEMANGLE_COMPONENT_DTOR:
		return text__put_string(text, "~") && text__put_name(text, c->u.s_dtor.name);
	case DEMANGLE_COMPONENT_OPERATOR:
		return text__put_operator(text, c);
	case DEMANGLE_COMPONENT_EXTENDED_OPERATOR:
		return text__put_string(text, "operator ") && text__put_name(text, c->u.s_extended_operator.name);
	case DEMANGLE_COMPONENT_CAST:
	case DEMANGLE_COMPONENT_CONVERSION:
		return text__put_string(text, "operator cast");
	case DEMANGLE_COMPONENT_LAMBDA:
		return text__put_numbered(text, "lambda", c->u.s_unary_num.num);
	case DEMANGLE_COMPONENT_UNNAMED_TYPE:
		return text__put_numbered(text, "unnamed", c->u.s_number.number);
	case DEMANGLE_COMPONENT_DEFAULT_ARG:
		return text__put_name(text, c->u.s_unary_num.sub);
	case DEMANGLE_COMPONENT_TYPED_NAME:
	case DEMANGLE_COMPONENT_CLONE:
	case DEMANGLE_COMPONENT_THUNK:
	case DEMANGLE_COMPONENT_VIRTUAL_THUNK:
	case DEMANGLE_COMPONENT_COVARIANT_THUNK:
	case DEMANGLE_COMPONENT_CONST_THIS:
	case DEMANGLE_COMPONENT_VOLATILE_THIS:
	case DEMANGLE_COMPONENT_RESTRICT_THIS:
	case DEMANGLE_COMPONENT_REFERENCE_THIS:
	case DEMANGLE_COMPONENT_RVALUE_REFERENCE_THIS:
	case DEMANGLE_COMPONENT_TRANSACTION_SAFE:
		return text__put_name(text, c->u.s_binary.left);
	default:
		return false;
	}
}

bool demangle__name(const char *mangled, char *out, size_t size)
{
	struct text text = {.out = out, .size = size};
	struct demangle_component *tree;
	void *memory = NULL;
	bool ok;

	if (!size || strncmp(mangled, "_Z", 2) || strnlen(mangled, SYMBOL_MAX) == SYMBOL_MAX)
		return false;
	*out = 0;
	tree = cplus_demangle_v3_components(mangled, DMGL_PARAMS | DMGL_ANSI, &memory);
	ok = tree && text__put_name(&text, tree) && text.used;
	free(memory);
	return ok;
}

/* ---- kernels of CUDA ---- */

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

char *demangle__kernel(const char *mangled)
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

void demangle__kernel_to_keep(const char *mangled, char *out, size_t size)
{
	size_t hash_bytes = strlen(" #12345678");
	char *name;

	if (strlen(mangled) < size) {
		snprintf(out, size, "%s", mangled);
		return;
	}
	name = demangle__kernel(mangled);
	snprintf(out, size, "%.*s #%08x", size > hash_bytes ? (int)(size - 1 - hash_bytes) : 0, name ?: mangled,
		 hash_of(mangled));
	free(name);
}
