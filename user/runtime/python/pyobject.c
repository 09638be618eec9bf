/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads Python objects in a process, where anything may lie at an address. No state. */
#include "user/runtime/python/pyobject.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/utf8.h"
#include "user/proc/process.h"

#define CHARACTERS_MAX 4096

bool py_object__is(pid_t pid, const struct py_layout *layout, uint64_t address, const char *type)
{
	size_t size = strlen(type) + 1;
	uint64_t at, name;
	char text[16];

	return size <= sizeof(text) && !process__read_memory(pid, address + layout->object_type, &at, sizeof(at)) &&
	       !process__read_memory(pid, at + layout->type_name, &name, sizeof(name)) &&
	       !process__read_memory(pid, name, text, size) && !memcmp(text, type, size);
}

int py_object__str(pid_t pid, const struct py_layout *layout, uint64_t address, char **text)
{
	uint64_t length;
	uint32_t state, kind;
	uint8_t *data;
	char *out;
	int err;

	*text = NULL;
	if (!py_object__is(pid, layout, address, "str"))
		return -EINVAL;
	err = process__read_memory(pid, address + layout->str_length, &length, sizeof(length))
		      ?: process__read_memory(pid, address + layout->str_state, &state, sizeof(state));
	if (err)
		return err;
	kind = state >> layout->str_kind_shift & ((1u << layout->str_kind_bits) - 1);
	if (!(state >> layout->str_compact_shift & 1) || (kind != 1 && kind != 2 && kind != 4))
		return -EINVAL;
	if (length > CHARACTERS_MAX)
		length = CHARACTERS_MAX;
	address += state >> layout->str_ascii_shift & 1 ? layout->str_ascii_data : layout->str_compact_data;
	data = malloc(length * kind + 1);
	out = *text = malloc(length * UTF8_MAX + 1);
	err = data && out ? process__read_memory(pid, address, data, length * kind) : -ENOMEM;
	for (uint64_t i = 0; !err && i < length; i++) {
		uint32_t code = 0;

		memcpy(&code, data + i * kind, kind);
		out += utf8__put(out, code ? code : UTF8_REPLACEMENT);
	}
	free(data);
	if (err) {
		free(*text);
		*text = NULL;
	} else {
		*out = 0;
	}
	return err;
}
