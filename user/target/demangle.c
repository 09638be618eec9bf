/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names of C++ functions. In: a mangled symbol. Out: text. No state.
 * A name is read component by component; what comes behind it (the types of the arguments) is not read at all, and what
 * is inside it (template arguments, the function around a local class) is stepped over by skip_scope(), which knows only
 * how long each token is and which ones an 'E' ends.
 */
#include "target/demangle.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SCOPES_MAX 128 /* nested in one another; 30 in the deepest of torch */
#define DEPTH_MAX  32  /* of our own calls: local names in local names, enumerators in template arguments */

struct demangler {
	const char *at; /* ends in a NUL, which no rule takes */
	char *out;
	size_t used, size;
	const char *last; /* unqualified name, for constructors */
	size_t last_len;
	char unnamed[32];
	int depth;
};

static void put(struct demangler *d, const char *text, size_t len)
{
	size_t room = d->size - 1 - d->used;

	if (len > room)
		len = room;
	memcpy(d->out + d->used, text, len);
	d->used += len;
	d->out[d->used] = 0;
}

static void put_text(struct demangler *d, const char *text)
{
	put(d, text, strlen(text));
}

/* ---- tokens ---- */

static bool take(struct demangler *d, char c)
{
	if (*d->at != c)
		return false;
	d->at++;
	return true;
}

static void skip_digits(struct demangler *d)
{
	d->at += strspn(d->at, "0123456789");
}

/* "4call" */
static bool source_name(struct demangler *d, const char **name, size_t *len)
{
	size_t n = 0;

	while (isdigit((unsigned char)*d->at) && n < UINT16_MAX)
		n = n * 10 + (size_t)(*d->at++ - '0');
	if (!n || strnlen(d->at, n) < n)
		return false;
	*name = d->at;
	*len = n;
	d->at += n;
	return true;
}

/* "_" is the first, "0_" the second */
static bool ordinal(struct demangler *d, unsigned int *out)
{
	unsigned int n = 0;

	if (take(d, '_')) {
		*out = 1;
		return true;
	}
	while (isdigit((unsigned char)*d->at) && n < UINT16_MAX)
		n = n * 10 + (unsigned int)(*d->at++ - '0');
	*out = n + 2;
	return take(d, '_');
}

/* Behind the 'S': "t", "a", "_", "1Z_" */
static bool skip_substitution(struct demangler *d)
{
	if (*d->at && strchr("tabsiod", *d->at)) {
		d->at++;
		return true;
	}
	while (isdigit((unsigned char)*d->at) || isupper((unsigned char)*d->at))
		d->at++;
	return take(d, '_');
}

/* ---- stepping over ---- */

static bool skip_scope(struct demangler *d, char kind);

/*
 * Behind the 'L' of "Lb1E", "LN2at10ScalarTypeE6E", "LPv0E": type, then value. Arrays, and enumerations of functions, are not
 * understood.
 */
static bool skip_literal(struct demangler *d)
{
	const char *name;
	size_t len;
	bool ok = true;

	d->at += strspn(d->at, "PROKV");
	if (isdigit((unsigned char)*d->at))
		ok = source_name(d, &name, &len);
	else if (*d->at == 'N' || *d->at == 'F')
		ok = skip_scope(d, *d->at++);
	else if (take(d, 'S'))
		ok = skip_substitution(d) && (d->at[-1] != 't' || source_name(d, &name, &len));
	else if (take(d, 'T'))
		ok = skip_substitution(d);
	else if (take(d, 'D'))
		ok = *d->at && d->at++;
	else if (islower((unsigned char)*d->at))
		d->at++;
	else
		ok = false;
	if (ok && take(d, 'I'))
		ok = skip_scope(d, 'I');
	if (!ok)
		return false;
	d->at += strcspn(d->at, "E");
	return take(d, 'E');
}

/* What an expression begins with has two letters, of which the second can look like an opening one. */
static char skip_operator(struct demangler *d, char first)
{
	static const char openers[] = "cl cp il pi tl", others[] = "aN aS dV eO lS mI mL oR pL rM rS sZ";
	const char pair[] = {first, *d->at, 0};

	if (!pair[1])
		return 0;
	if (strstr(openers, pair)) {
		d->at++;
		return 'X';
	}
	if (strstr(others, pair))
		d->at++;
	return 0;
}

/* Behind an 'f', which may be a float: parameters in expressions: "fp_", "fpK0_", "fL0p_". */
static void skip_parameter(struct demangler *d)
{
	size_t level = *d->at == 'L' ? 1 + strspn(d->at + 1, "0123456789") : 0;

	if (level == 1 || d->at[level] != 'p')
		return;
	d->at += level + 1;
	d->at += strspn(d->at, "rVK");
	skip_digits(d);
	take(d, '_');
}

/* Behind the 'D': 0 or the scope that begins, -1 when it is not understood. */
static int skip_special(struct demangler *d)
{
	char c = *d->at;

	if (!c)
		return -1;
	d->at++;
	if (c == 't' || c == 'T') /* decltype */
		return 'X';
	if (c == 'O' || c == 'w') /* noexcept, throw */
		return c == 'O' ? 'X' : 'D';
	if (c == 'v' || c == 'F') { /* vectors; _Float16 */
		skip_digits(d);
		return *d->at && strchr("_bx", *d->at++) ? 0 : -1;
	}
	return 0;
}

/* Behind "_", which tells apart local names that are the same: "_0", "__10_" */
static void skip_discriminator(struct demangler *d)
{
	if (take(d, '_')) {
		skip_digits(d);
		take(d, '_');
	} else if (isdigit((unsigned char)*d->at)) {
		d->at++;
	}
}

/* The token that begins with c, which was taken, in a scope: 0 or the scope that it begins, -1 not understood. */
static int skip_token(struct demangler *d, char c, char scope)
{
	unsigned int number;

	switch (c) {
	case 'N':
	case 'I':
	case 'J':
	case 'F':
	case 'Z':
	case 'X':
		return c;
	case 'L':
		/* In names 'L' says that what follows is static. */
		if (strchr("NZL", scope) && isdigit((unsigned char)*d->at))
			return 0;
		if (d->at[0] == '_' && d->at[1] == 'Z') {
			d->at += 2;
			return 'L';
		}
		return skip_literal(d) ? 0 : -1;
	case 'S':
		return skip_substitution(d) ? 0 : -1;
	case 'T':
		return strchr("stue", *d->at) || skip_substitution(d) ? 0 : -1;
	case 'A':
		skip_digits(d);
		take(d, '_');
		return 0;
	case 'D':
		return skip_special(d);
	case 'C': /* constructor: "C1", "CI2" */
		if (d->at[0] == 'I' && isdigit((unsigned char)d->at[1]))
			d->at++;
		if (isdigit((unsigned char)*d->at))
			d->at++;
		return 0;
	case 'U':
		if (take(d, 't'))
			return ordinal(d, &number) ? 0 : -1;
		return take(d, 'l') ? 'l' : 0;
	case '_':
		skip_discriminator(d);
		return 0;
	case 'f':
		skip_parameter(d);
		return 0;
	default:
		return scope == 'X' ? skip_operator(d, c) : 0;
	}
}

/* From behind the token that began a scope to behind the 'E' that ends it. */
static bool skip_scope(struct demangler *d, char kind)
{
	char scopes[SCOPES_MAX] = {kind};
	const char *name;
	size_t depth = 1, len;
	unsigned int number;
	bool ok = d->depth++ < DEPTH_MAX;

	while (ok && depth) {
		char c = *d->at;
		int scope = 0;

		if (isdigit((unsigned char)c)) {
			ok = source_name(d, &name, &len);
		} else if (c == 'E') {
			d->at++;
			ok = scopes[--depth] != 'l' || ordinal(d, &number);
		} else if (c) {
			d->at++;
			scope = skip_token(d, c, scopes[depth - 1]);
			ok = scope >= 0 && depth < SCOPES_MAX;
		} else {
			ok = false;
		}
		if (ok && scope)
			scopes[depth++] = (char)scope;
	}
	d->depth--;
	return ok;
}

/* ---- names ---- */

static bool encoding(struct demangler *d);

static bool source(struct demangler *d)
{
	const char *name;
	size_t len;

	if (!source_name(d, &name, &len))
		return false;
	if (len >= 10 && !strncmp(name, "_GLOBAL__N", 10)) {
		put_text(d, "(anonymous namespace)");
	} else {
		put(d, name, len);
	}
	d->last = name;
	d->last_len = len;
	return true;
}

static bool operator_name(struct demangler *d)
{
	static const char *const table[] = {
		"nw new", "na new[]", "dl delete", "da delete[]", "aw co_await", "ps+",   "ng-",   "ad&",
		"de*",    "co~",      "pl+",       "mi-",         "ml*",         "dv/",   "rm%",   "an&",
		"or|",    "eo^",      "aS=",       "pL+=",        "mI-=",        "mL*=",  "dV/=",  "rM%=",
		"aN&=",   "oR|=",     "eO^=",      "ls<<",        "rs>>",        "lS<<=", "rS>>=", "eq==",
		"ne!=",   "lt<",      "gt>",       "le<=",        "ge>=",        "ss<=>", "nt!",   "aa&&",
		"oo||",   "pp++",     "mm--",      "cm,",         "pm->*",       "pt->",  "cl()",  "ix[]",
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (strncmp(d->at, table[i], 2))
			continue;
		d->at += 2;
		put_text(d, "operator");
		put_text(d, table[i] + 2);
		return true;
	}
	if (strncmp(d->at, "li", 2))
		return false;
	d->at += 2;
	put_text(d, "operator\"\" ");
	return source(d);
}

static bool unnamed(struct demangler *d)
{
	unsigned int number;
	bool lambda = d->at[1] == 'l';

	if (!lambda && d->at[1] != 't')
		return false;
	d->at += 2;
	if ((lambda && !skip_scope(d, 'F')) || !ordinal(d, &number))
		return false;
	snprintf(d->unnamed, sizeof(d->unnamed), "{%s#%u}", lambda ? "lambda" : "unnamed", number);
	put_text(d, d->unnamed);
	d->last = d->unnamed;
	d->last_len = strlen(d->unnamed);
	return true;
}

static bool unqualified(struct demangler *d)
{
	const char *tag;
	size_t len;
	bool ok;

	take(d, 'L');
	if (isdigit((unsigned char)*d->at))
		ok = source(d);
	else if (*d->at == 'U')
		ok = unnamed(d);
	else
		ok = operator_name(d);
	while (ok && take(d, 'B')) {
		ok = source_name(d, &tag, &len);
		if (!ok)
			break;
		put_text(d, "[abi:");
		put(d, tag, len);
		put_text(d, "]");
	}
	return ok;
}

/* "St", and the abbreviated names of the standard library; S_ and its like cannot be told without reading types. */
static bool standard(struct demangler *d)
{
	static const char table[][16] = {"t",        "aallocator", "bbasic_string", "sstring",
					 "iistream", "oostream",   "diostream"};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (d->at[1] != table[i][0])
			continue;
		d->at += 2;
		put_text(d, i ? "std::" : "std");
		put_text(d, table[i] + 1);
		d->last = table[i] + 1;
		d->last_len = strlen(d->last);
		return true;
	}
	return false;
}

static bool template_args(struct demangler *d)
{
	d->at++;
	put_text(d, d->used && d->out[d->used - 1] == '<' ? " <...>" : "<...>"); /* operator< */
	return skip_scope(d, 'I');
}

/* "C1", "CI2" with the type that it is inherited from, "D0" */
static bool constructor(struct demangler *d)
{
	if (!d->last)
		return false;
	if (*d->at == 'D')
		put_text(d, "~");
	else if (d->at[1] == 'I')
		return false;
	if (!isdigit((unsigned char)d->at[1]))
		return false;
	d->at += 2;
	put(d, d->last, d->last_len);
	return true;
}

static bool component(struct demangler *d)
{
	switch (*d->at) {
	case 'S':
		return standard(d);
	case 'C':
	case 'D':
		return constructor(d);
	default:
		return unqualified(d);
	}
}

/* Behind the 'N': components to the 'E'. */
static bool nested(struct demangler *d)
{
	bool first = true;

	d->at += strspn(d->at, "HrVKRO");
	while (!take(d, 'E')) {
		if (*d->at == 'I') {
			if (first || !template_args(d))
				return false;
			continue;
		}
		if (take(d, 'M')) /* a lambda in the initialiser of a member */
			continue;
		if (!first)
			put_text(d, "::");
		first = false;
		if (d->at[0] == 'c' && d->at[1] == 'v') { /* conversion: its type, then the end of the name */
			d->at += 2;
			put_text(d, "operator cast");
			return skip_scope(d, 'N');
		}
		if (!component(d))
			return false;
	}
	return !first;
}

static bool name(struct demangler *d);

/* Behind the 'Z': the function around it, 'E', its own name or 's' for a string. */
static bool local(struct demangler *d)
{
	unsigned int number;

	if (!encoding(d) || !skip_scope(d, 'Z'))
		return false;
	if (take(d, 's'))
		return true;
	if (take(d, 'd') && !ordinal(d, &number)) /* in a default argument */
		return false;
	put_text(d, "::");
	return name(d);
}

static bool name(struct demangler *d)
{
	bool ok;

	if (take(d, 'N'))
		return nested(d);
	if (take(d, 'Z')) {
		ok = d->depth++ < DEPTH_MAX && local(d);
		d->depth--;
		return ok;
	}
	if (d->at[0] == 'S') {
		bool is_namespace = d->at[1] == 't';

		ok = standard(d);
		if (ok && is_namespace) {
			put_text(d, "::");
			ok = unqualified(d);
		}
	} else {
		ok = unqualified(d);
	}
	return ok && *d->at == 'I' ? template_args(d) : ok;
}

/* "h16_", "vn8_n24_": how a thunk moves `this`. */
static bool skip_offset(struct demangler *d)
{
	int numbers = take(d, 'h') ? 1 : take(d, 'v') ? 2 : 0;

	for (int i = 0; i < numbers; i++) {
		take(d, 'n');
		skip_digits(d);
		if (!take(d, '_'))
			return false;
	}
	return numbers > 0;
}

/* A name, and types of which nothing is read. Thunks have the name of what they call. */
static bool encoding(struct demangler *d)
{
	if (!take(d, 'T'))
		return name(d);
	if (take(d, 'W') || take(d, 'H')) /* what makes a thread_local variable */
		return name(d);
	if (take(d, 'c'))
		return skip_offset(d) && skip_offset(d) && name(d);
	return skip_offset(d) && name(d);
}

bool demangle__name(const char *mangled, char *out, size_t size)
{
	struct demangler d = {.at = mangled, .out = out, .size = size};

	return take(&d, '_') && take(&d, 'Z') && encoding(&d);
}
