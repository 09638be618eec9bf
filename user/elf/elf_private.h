/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the files that implement struct elf: elf.c, elf_relocs.c, elf_pytables.c. No other file
 * includes this.
 */
#ifndef STEPFLAME_USER_ELF_ELF_PRIVATE_H
#define STEPFLAME_USER_ELF_ELF_PRIVATE_H

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LOADS_MAX    64 /* PT_LOAD segments; real files have 4 to 10 */
#define BUILD_ID_MAX 64

/* A PT_LOAD segment, clipped to what the file holds. */
struct load {
	uint64_t vaddr, offset, size;
	bool code, writable;
};

/* A symbol table with its strings, which end in a NUL. */
struct symtab {
	Elf_Data *data;
	size_t cnt;
	const char *strs;
	size_t strs_size;
};

enum reloc_kind {
	RELOC_VALUE,   /* the word becomes `value` */
	RELOC_UNKNOWN, /* the word depends on another object or on TLS */
};

struct reloc {
	uint64_t vaddr, value;
	const char *symbol; /* name of the symbol whose address the word becomes, or NULL */
	enum reloc_kind kind;
};

struct elf {
	const uint8_t *image;
	size_t size;
	Elf *handle;
	struct symtab dynsym, symtab;
	struct load load[LOADS_MAX];
	size_t load_cnt;
	struct reloc *reloc; /* by vaddr */
	size_t reloc_cnt;
	bool relocs_known;
	uint64_t *part; /* where split-off parts begin, ascending */
	size_t part_cnt;
	bool parts_known, dealloc_known;
	uint64_t dealloc;
	char build_id[2 * BUILD_ID_MAX + 1];
};

static inline uint64_t read_u64(const uint8_t *p)
{
	uint64_t value;

	memcpy(&value, p, sizeof(value));
	return value;
}

static inline uint32_t read_u32(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, sizeof(value));
	return value;
}

/*
 * elf__need_relocs fills elf->reloc once, sorted by vaddr. When there is no memory, the array stays
 * empty, and pointers are read as they lie in the file. elf__find_reloc returns the relocation of
 * the word at vaddr, or NULL, and fills elf->reloc itself.
 */
void elf__need_relocs(const struct elf *elf);
const struct reloc *elf__find_reloc(const struct elf *elf, uint64_t vaddr);

#endif
