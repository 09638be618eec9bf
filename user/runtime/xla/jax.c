// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/runtime/xla/jax.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/functions.h"
#include "user/proc/target_file.h"

const struct mapped_file *jax__file(const struct process *process)
{
	return process__file(process, "libjax_common.so") ?: process__file(process, "xla_extension.so");
}

void jax__version(const struct process *process, const struct mapped_file *library, char *version, size_t size)
{
	char path[PATH_MAX + 64];
	const char *slash = strrchr(library->path, '/');
	int dir = slash ? slash - library->path : 0;

	snprintf(path, sizeof(path), "%.*s/version.py", dir, library->path);
	/* `_version = "0.10.2"`; the file computes its __version__. */
	if (!target_file__version(process->pid, path, "_version", version, size))
		snprintf(version, size, "?");
}

#define TABLE_HEAD    40   /* bytes in front of the functions */
#define FUNCTIONS_MIN 71   /* reaches the last wanted function */
#define TABLE_MAX     4096 /* bytes; version 0.54 has 880, 0.112 1,160 or so */
#define VERSION_BYTES 24
#define MINOR_MAX     9999
#define DATA_MAX      (64u << 20) /* of a plugin's data to search: plugins for CUDA have 5 MB */
#define GET_PJRT_API  "GetPjrtApi"

struct plugin_data {
	uint64_t dev, inode;
	uint64_t last_end; /* end of the last mapping of the file, or of the anonymous one after it */
	size_t cnt, bytes;
	struct {
		uint64_t start, end;
	} range[16];
};

/*
 * Collects where the file's data lie: its mappings without code, and the anonymous memory right
 * after them.
 */
static int add_mapping(const struct mapping *map, void *ctx)
{
	struct plugin_data *data = ctx;
	bool own = map->inode && map->inode == data->inode && map->dev == data->dev;
	bool behind = !map->inode && data->last_end && map->start == data->last_end;

	if (!own && !behind) {
		data->last_end = 0;
		return 0;
	}
	data->last_end = own ? map->end : 0;
	if (map->executable || data->cnt == sizeof(data->range) / sizeof(*data->range) ||
	    map->end - map->start > DATA_MAX - data->bytes)
		return 0;
	data->bytes += map->end - map->start;
	data->range[data->cnt].start = map->start;
	data->range[data->cnt++].end = map->end;
	return 0;
}

/* May a table begin there? `word` is followed by TABLE_HEAD bytes at least. */
static bool is_head(const uint64_t *word)
{
	uint32_t major = word[4], minor = word[4] >> 32;

	return word[2] == VERSION_BYTES && !(word[0] % 8) && word[0] >= TABLE_HEAD + 8 * FUNCTIONS_MIN &&
	       word[0] <= TABLE_MAX && !major && minor && minor <= MINOR_MAX;
}

/*
 * Each function must lie in the plugin's own code; a plugin may leave out functions that stepflame
 * does not probe.
 */
static bool read_pjrt_table(const struct process *process, const struct mapped_file *file, const struct elf *elf,
			    uint64_t address, struct pjrt_table *out)
{
	static const unsigned int place[] = {
#define X(id, place) place,
		STEPFLAME_PJRT_FUNCTIONS(X)
#undef X
	};
	uint64_t word[TABLE_MAX / 8], size;

	if (process__read_memory(process->pid, address, word, TABLE_HEAD) || !is_head(word))
		return false;
	size = word[0];
	if (process__read_memory(process->pid, address, word, size) || !is_head(word) || word[0] != size)
		return false;
	for (size_t i = TABLE_HEAD / 8; i < size / 8; i++)
		if (word[i] && !elf__is_code(elf, word[i] - file->base))
			return false;
	out->minor = word[4] >> 32;
	/*
	 * Each address must begin a function, by the file's tables: a probe elsewhere could lie in
	 * the middle of an instruction.
	 */
	for (int i = 0; i < PJRT_FN__COUNT; i++) {
		struct function_range range;

		out->fn[i] = word[TABLE_HEAD / 8 + place[i]] - file->base;
		if (functions__at(elf, out->fn[i], &range) || range.start != out->fn[i] || range.frame)
			return false;
	}
	return true;
}

#define CHUNK_WORDS 8192
#define HEAD_WORDS  (TABLE_HEAD / 8)

/* Searches one range. A page that cannot be read, or is not there, is skipped with its chunk. */
static int search_range(const struct process *process, const struct mapped_file *file, const struct elf *elf,
			uint64_t start, uint64_t end, uint64_t *word, struct pjrt_table *found, int cnt)
{
	struct pjrt_table table;

	for (uint64_t at = start; at + TABLE_HEAD <= end; at += 8 * (CHUNK_WORDS - HEAD_WORDS + 1)) {
		uint64_t bytes = end - at < 8 * CHUNK_WORDS ? (end - at) & ~7ULL : 8 * CHUNK_WORDS;

		if (process__read_memory(process->pid, at, word, bytes))
			continue;
		for (size_t i = 0; i + HEAD_WORDS <= bytes / 8; i++) {
			if (!is_head(word + i) || !read_pjrt_table(process, file, elf, at + 8 * i, &table))
				continue;
			if (cnt && memcmp(table.fn, found->fn, sizeof(table.fn)))
				return -ENOENT; /* ambiguous */
			*found = table;
			cnt++;
		}
	}
	return cnt;
}

/* Is the file a plugin? A plugin exports GetPjrtApi. */
static bool is_plugin(const struct elf *elf)
{
	struct elf_symbol symbol;

	return !elf__symbol(elf, GET_PJRT_API, &symbol) && elf__is_code(elf, symbol.vaddr);
}

int pjrt__find(const struct process *process, const struct mapped_file *file, const struct elf *elf,
	       struct pjrt_table *out)
{
	struct plugin_data data = {.dev = file->dev, .inode = file->inode};
	uint64_t *word;
	int cnt = 0, err;

	if (!is_plugin(elf))
		return -ENXIO;
	err = process__each_mapping(process->pid, add_mapping, &data);
	if (err)
		return err;
	word = malloc(8 * CHUNK_WORDS);
	if (!word)
		return -ENOMEM;
	for (size_t i = 0; i < data.cnt && cnt >= 0; i++)
		cnt = search_range(process, file, elf, data.range[i].start, data.range[i].end, word, out, cnt);
	free(word);
	return cnt > 0 ? 0 : -ENOENT;
}
