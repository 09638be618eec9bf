// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* ELF files: tables, relocations, .eh_frame, exception tables, names. The input is a file. */
#include "user/elf/elf.h"
#include "tests/fuzz/fuzz.h"
#include "user/elf/demangle.h"
#include "user/elf/functions.h"
#include "user/proc/symbols.c"

#define SYMBOLS_MAX 200

struct walk {
	const struct elf *elf;
	size_t cnt;
};

static void on_pad(uint64_t vaddr, void *ctx)
{
}

static void walk_function(const struct elf *elf, uint64_t vaddr)
{
	struct function_range range;

	if (functions__at(elf, vaddr, &range))
		return;
	FUZZ_CHECK(range.start <= vaddr && vaddr < range.end);
	functions__each_pad(elf, &range, on_pad, NULL);
}

static int on_symbol(const struct elf_symbol *symbol, void *ctx)
{
	struct walk *walk = ctx;
	uint64_t offset, value;
	char name[512];
	size_t have;

	demangle__name(symbol->name, name, sizeof(name));
	demangle__kernel_to_keep(symbol->name, name, sizeof(name));
	elf__name_offset(walk->elf, symbol);
	elf__offset(walk->elf, symbol->vaddr, &offset);
	elf__pointer(walk->elf, symbol->vaddr, &value);
	elf__bytes(walk->elf, symbol->vaddr, symbol->size, &have);
	elf__is_part(walk->elf, symbol->vaddr);
	walk_function(walk->elf, symbol->vaddr);
	return ++walk->cnt == SYMBOLS_MAX;
}

static void on_pointer(uint64_t vaddr, uint64_t value, const char *symbol, void *ctx)
{
	struct walk *walk = ctx;
	uint64_t again;

	if (symbol)
		walk->cnt += strlen(symbol);
	if (walk->cnt++ > SYMBOLS_MAX)
		return;
	elf__pointer(walk->elf, vaddr, &again);
	elf__slot_symbol(walk->elf, vaddr);
}

static void walk_functions(int fd)
{
	struct function_table *table;
	char name[64];

	if (function_table__load(fd, 1000, &table))
		return;
	for (size_t i = 0; i < table->cnt && i < SYMBOLS_MAX; i++) {
		function_table__find(table, table->functions[i].offset);
		function_table__name(table, i, name, sizeof(name));
	}
	function_table__free(table);
}

static void walk_elf(const struct elf *elf)
{
	struct walk walk = {.elf = elf};
	uint64_t vaddr, size, start;

	elf__build_id(elf);
	elf__mentions(elf, "_impl_init");
	elf__symbol_cnt(elf);
	elf__each_symbol(elf, on_symbol, &walk);
	walk.cnt = 0;
	elf__each_symbol_once(elf, on_symbol, &walk);
	walk.cnt = 0;
	elf__each_pointer(elf, on_pointer, &walk);
	for (uint32_t type = 0; type < 8; type++)
		elf__segment(elf, type, &vaddr, &size);
	for (size_t i = 0; elf__code(elf, i, &vaddr, &size) && i < 4; i++) {
		elf__code_around(elf, vaddr, &start, &size);
		for (uint64_t at = 0; at < size && at < 256; at += 16)
			walk_function(elf, start + at);
	}
	elf__method(elf, "next", 0x80, &vaddr);
	elf__slot(elf, "__next__", 224, &vaddr);
	elf__own_dealloc(elf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf *elf;
	char path[32];
	int fd = fuzz__file(data, size, path);

	if (!elf__new(path, &elf)) {
		walk_elf(elf);
		elf__free(elf);
	}
	walk_functions(fd); /* which closes it */
	return 0;
}
