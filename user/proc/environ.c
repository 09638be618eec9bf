/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads environments. In: /proc/PID/environ, or the process's memory, while it may change them.
 * Out: values. No state.
 */
#include "user/proc/environ.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/elf.h"
#include "user/proc/deputy.h"
#include "user/proc/proc.h"

#define ENVIRON_BYTES (8u << 20) /* Linux allows 6 MiB of arguments and environment */
#define VARIABLES_MAX 16384
#define STRING_BYTES  (128u << 10) /* Linux allows as much when it starts a program (MAX_ARG_STRLEN) */
#define CHUNK_BYTES   256u         /* of a string, by one read */
#define PAGE          4096ul

/* ---- what is looked for ---- */

struct search {
	const struct environ_value *values;
	size_t cnt, found_cnt;
	bool *found; /* the first one of a name counts */
};

/* The value of a variable in "NAME=VALUE"; NULL: it is another variable's. */
static const char *variable_value(const char *entry, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(entry, name, length) && entry[length] == '=' ? entry + length + 1 : NULL;
}

static void take_variable(struct search *search, const char *entry)
{
	for (size_t i = 0; i < search->cnt; i++) {
		const char *value = search->found[i] ? NULL : variable_value(entry, search->values[i].name);

		if (!value)
			continue;
		snprintf(search->values[i].value, search->values[i].size, "%s", value);
		search->found[i] = true;
		search->found_cnt++;
	}
}

/* data: size bytes "NAME=VALUE\0NAME=VALUE\0", with a 0 behind them. Returns how many variables it has. 0 or -ENOMEM. */
static int search_data(const char *data, size_t size, const struct environ_value *values, size_t cnt, size_t *found_cnt)
{
	struct search search = {.values = values, .cnt = cnt, .found = calloc(cnt, sizeof(bool))};

	if (!search.found)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		values[i].value[0] = 0;
	for (const char *entry = data; entry < data + size && search.found_cnt < cnt; entry += strlen(entry) + 1)
		take_variable(&search, entry);
	*found_cnt = search.found_cnt;
	free(search.found);
	return 0;
}

/* ---- as it was started ---- */

static int search_first(pid_t pid, const struct environ_value *values, size_t cnt, size_t *found_cnt)
{
	size_t size;
	char *data;
	int err = proc__slurp_memory(pid, 0, "environ", ENVIRON_BYTES, &data, &size);

	if (err)
		return err;
	err = search_data(data, size, values, cnt, found_cnt);
	free(data);
	return err;
}

int process__environs(pid_t pid, const struct environ_value *values, size_t cnt)
{
	size_t found_cnt;

	return search_first(pid, values, cnt, &found_cnt);
}

int process__environ(pid_t pid, const char *name, char *value, size_t size)
{
	const struct environ_value wanted = {name, value, size};
	size_t found_cnt;

	return search_first(pid, &wanted, 1, &found_cnt) ?: found_cnt ? 0 : -ENOENT;
}

/* ---- as it is now ---- */

struct memory_environ {
	pid_t pid;
	uint64_t variable; /* address of `environ`, a char ** */
};

/* Appends the string to the answer. 0 or -errno; then the answer is as before. */
static int append_string(pid_t pid, uint64_t address, struct deputy_out *out)
{
	size_t start = out->size;

	while (out->size - start < STRING_BYTES && out->size + CHUNK_BYTES <= ENVIRON_BYTES) {
		size_t chunk = PAGE - address % PAGE < CHUNK_BYTES ? PAGE - address % PAGE : CHUNK_BYTES;
		char *at = out->bytes + out->size, *end;

		if (process__read_memory(pid, address, at, chunk))
			break;
		end = memchr(at, 0, chunk);
		if (end) {
			out->size = (size_t)(end - out->bytes) + 1;
			return 0;
		}
		out->size += chunk;
		address += chunk;
	}
	out->size = start;
	return -EFAULT;
}

/* A pointer or string that cannot be read ends or leaves out: the process may have changed it meanwhile. */
static int read_strings_in_deputy(const void *in, struct deputy_out *out)
{
	const struct memory_environ *r = in;
	uint64_t array, string;
	int err = process__read_memory(r->pid, r->variable, &array, sizeof(array));

	for (size_t i = 0; !err && array && i < VARIABLES_MAX; i++) {
		err = process__read_memory(r->pid, array + i * sizeof(string), &string, sizeof(string));
		if (!err && !string)
			break;
		if (!err)
			append_string(r->pid, string, out);
	}
	return out->size ? 0 : err ?: -ENOENT;
}

/* The address of `environ` in a file that defines it; 0: it does not. */
static uint64_t find_variable(const struct mapped_file *file)
{
	static const char *const names[] = {"environ", "__environ"};
	struct elf_symbol symbol;
	uint64_t first, address = 0;
	struct elf *elf;

	if (!file || mapped_file__elf(file, &elf))
		return 0;
	for (size_t i = 0; !address && i < sizeof(names) / sizeof(*names); i++)
		if (!elf__symbol(elf, names[i], &symbol) && !symbol.function && !elf__vaddr(elf, 0, &first))
			address = file->base - first + symbol.vaddr;
	if (elf__error(elf))
		address = 0;
	elf__free(elf);
	return address;
}

static const struct mapped_file *find_program(const struct process *process)
{
	for (size_t i = 0; i < process->file_cnt; i++)
		if (process->files[i].is_program)
			return &process->files[i];
	return NULL;
}

/* A program that uses `environ` may have its own copy, which then is everybody's (R_X86_64_COPY). */
static uint64_t find_environ(const struct process *process)
{
	return find_variable(find_program(process)) ?: find_variable(process__file(process, "libc.so."))
	       ?: find_variable(process__file(process, "libc-2."))
	       ?: find_variable(process__file(process, "ld-musl-"));
}

int process__environs_now(const struct process *process, const struct environ_value *values, size_t cnt)
{
	struct memory_environ request = {.pid = process->pid, .variable = find_environ(process)};
	const struct deputy_out *answer;
	size_t found_cnt;

	if (!request.variable || deputy__run(process->pid, read_strings_in_deputy, &request, sizeof(request), &answer))
		return process__environs(process->pid, values, cnt);
	return search_data(answer->bytes, answer->size, values, cnt, &found_cnt);
}
