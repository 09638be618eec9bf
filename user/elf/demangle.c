// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Names of C++ functions. In: a mangled symbol. Out: text. libiberty parses the symbol into a tree,
 * in time and memory linear in its length; this file prints only the branches that hold the
 * function's own name.
 */
#include "user/elf/demangle.h"

#include <libiberty/demangle.h>
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
