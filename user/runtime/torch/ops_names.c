/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the schema name of an operator, from the code of at::_ops::X::call. In: that function. Out:
 * "aten::add.Tensor" and the mangled C++ type. No state.
 *
 * On its first call the function makes its handle, mostly in a function of its own
 * (create_X_typed_handle):
 *	lea  "aten::add"(%rip),%rdx
 *	lea  "Tensor"(%rip),%rcx
 *	call Dispatcher::findSchemaOrThrow
 *	mov  typeinfo@GOT(%rip),%rax or lea typeinfo(%rip),%rax
 * The struct X is named for the name and the overload, joined by '_'. That verifies a match, so the
 * bytes can be searched without decoding instructions.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/functions.h"
#include "user/runtime/torch/ops_private.h"
#include "user/x86/flow.h"

#define COLLECTIVES      "c10d::"
#define HELPER_BYTES_MAX 1024
#define MANGLED_MAX      4096

/* From libstdc++, whose header is C++ only. */
extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *size, int *status);

char *ops_names__demangle(const char *mangled)
{
	int status;

	return strnlen(mangled, MANGLED_MAX) < MANGLED_MAX ? __cxa_demangle(mangled, NULL, NULL, &status) : NULL;
}

static bool calls_find_schema(struct ops_names *names, uint64_t target)
{
	const char *import;

	if (names->own && target == names->own)
		return true;
	if (names->import)
		return target == names->import;
	import = flow__import(names->elf, target);
	if (!import || strcmp(import, FIND_SCHEMA))
		return false;
	names->import = target;
	return true;
}

/* The string whose address the last `lea x(%rip),%reg` before `end` loads. */
static const char *last_text(const struct elf *elf, const struct op_code *code, size_t end, uint8_t modrm)
{
	for (size_t i = end; i-- > 0;)
		if (i + 7 <= end && code->bytes[i] == 0x48 && code->bytes[i + 1] == 0x8d && code->bytes[i + 2] == modrm)
			return op_code__text(elf, op_code__target(code, i + 3));
	return NULL;
}

/* Joins both as in the struct's name, and compares. */
static bool is_joined(const char *name, const char *overload, const char *joined, size_t joined_len)
{
	const char *base = strstr(name, "::");
	char text[OP_NAME_MAX];
	int len;

	if (!joined)
		return !strncmp(name, COLLECTIVES, strlen(COLLECTIVES));
	if (!base)
		return false;
	len = snprintf(text, sizeof(text), "%s%s%s", base + 2, *overload ? "_" : "", overload);
	return len > 0 && (size_t)len == joined_len && !memcmp(text, joined, joined_len);
}

/* The mangled type, when the typeinfo of a function type, {vtable, "F...E"}, is at vaddr. */
static const char *type_of(const struct elf *elf, uint64_t vaddr)
{
	const char *text;
	uint64_t name;
	size_t len;

	if (elf__pointer(elf, vaddr + 8, &name))
		return NULL;
	text = op_code__text(elf, name);
	len = text ? strlen(text) : 0;
	return len > 2 && text[0] == 'F' && text[len - 1] == 'E' ? text : NULL;
}

/* The first function type to which the code refers: a helper has only one. */
static const char *find_type(const struct elf *elf, const struct op_code *code)
{
	for (size_t i = 0; i + 7 <= code->size; i++) {
		const uint8_t *b = code->bytes + i;
		const char *symbol, *type;

		if ((b[0] & 0xfb) != 0x48 || (b[2] & 0xc7) != 0x05)
			continue;
		if (b[1] == 0x8b) { /* mov slot(%rip),%reg */
			symbol = elf__slot_symbol(elf, op_code__target(code, i + 3));
			if (symbol && !strncmp(symbol, "_ZTIF", 5))
				return symbol + 4;
		} else if (b[1] == 0x8d) { /* lea x(%rip),%reg */
			type = type_of(elf, op_code__target(code, i + 3));
			if (type)
				return type;
		}
	}
	return NULL;
}

static int find_schema_in(struct ops_names *names, const struct op_code *code, const char *joined, size_t joined_len,
			  struct op_schema *out)
{
	uint64_t target;

	for (size_t i = 0; op_code__next_call(code, &i, &target); i++) {
		const char *name, *overload;

		if (!calls_find_schema(names, target))
			continue;
		name = last_text(names->elf, code, i, 0x15);
		overload = last_text(names->elf, code, i, 0x0d);
		if (!name || !overload || !is_joined(name, overload, joined, joined_len))
			continue;
		if (snprintf(out->name, sizeof(out->name), "%s%s%s", name, *overload ? "." : "", overload) >=
		    (int)sizeof(out->name))
			return -ENOENT;
		out->type = find_type(names->elf, code);
		return 0;
	}
	return -ENOENT;
}

/*
 * The same as ops_names__find, in the function at vaddr. Looks up the function's bounds last, since
 * that is slow where the unwind table does not cover it.
 */
static int find_in_helper(struct ops_names *names, uint64_t vaddr, const char *joined, size_t joined_len,
			  struct op_schema *out)
{
	struct op_code code = op_code__at(names->elf, vaddr, HELPER_BYTES_MAX);
	struct function_range range;

	if (find_schema_in(names, &code, joined, joined_len, out))
		return -ENOENT;
	if (functions__at(names->elf, vaddr, &range) || range.start != vaddr)
		return -ENOENT;
	if (code.size > range.end - vaddr)
		code.size = range.end - vaddr;
	return find_schema_in(names, &code, joined, joined_len, out);
}

int ops_names__find(struct ops_names *names, const char *joined, size_t joined_len, uint64_t vaddr, uint64_t size,
		    struct op_schema *out)
{
	struct op_code code = op_code__at(names->elf, vaddr, size);
	uint64_t target;

	if (!find_schema_in(names, &code, joined, joined_len, out))
		return 0;
	for (size_t i = 0; op_code__next_call(&code, &i, &target); i++) {
		if (!flow__import(names->elf, target) && !find_in_helper(names, target, joined, joined_len, out))
			return 0;
	}
	return -ENOENT;
}
