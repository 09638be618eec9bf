/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the files that implement struct elf: elf.c, elf_relocs.c, elf_pytables.c. No other file
 * includes this.
 */
#ifndef STEPFLAME_USER_ELF_ELF_PRIVATE_H
#define STEPFLAME_USER_ELF_ELF_PRIVATE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "user/elf/elf_image.h"

#define LOADS_MAX    64 /* PT_LOAD segments; real files have 4 to 10 */
#define SEGMENTS_MAX 256
#define SECTIONS_MAX 4096
#define SYMBOLS_MAX  4000000 /* of a table; torch has 550,000 */
#define RELOCS_MAX   1500000 /* torch has 360,000 */
#define NOTES_MAX    65536   /* bytes of all note segments together */
/*
 * Work that the questions about a file may cause, in about ns, so that hostile tables end the search,
 * and not the day. The search for torch's operators needs a twentieth of it.
 */
#define WORK_MIN      (1ULL << 29)
#define WORK_PER_BYTE 8
#define WALK_NS       5000000000ULL /* of CPU, for one walk over all symbols; torch's takes 0.1 s */
#define CHECK_EVERY   1024          /* symbols */
#define BUILD_ID_MAX  64

/* A PT_LOAD segment, clipped to what the file holds. */
struct load {
	uint64_t vaddr, offset, size;
	bool code, writable;
};

/* A symbol table with its strings, which end in a NUL. */
struct symtab {
	const uint8_t *entries; /* Elf64_Sym, of any alignment; NULL: no table */
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
	struct elf_image image;
	Elf64_Ehdr header;
	uint64_t work; /* that is left */
	bool refused;  /* its tables or its work are out of bounds */
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

/* Takes from the file's work. false: there is none left. */
static inline bool elf__spend(const struct elf *const_elf, uint64_t work)
{
	struct elf *elf = (struct elf *)const_elf; /* no answer changes by it, until there is none */

	if (work > elf->work)
		elf->refused = true;
	elf->work -= elf->refused ? elf->work : work;
	return !elf->refused;
}

/* The i-th header. The caller knows that there are so many. */
static inline Elf64_Phdr elf__program_header(const struct elf *elf, size_t i)
{
	Elf64_Phdr header;

	memcpy(&header, elf->image.bytes + elf->header.e_phoff + i * sizeof(header), sizeof(header));
	return header;
}

static inline Elf64_Shdr elf__section(const struct elf *elf, size_t i)
{
	Elf64_Shdr header;

	memcpy(&header, elf->image.bytes + elf->header.e_shoff + i * sizeof(header), sizeof(header));
	return header;
}

/* The content of a section that lies in the file and is a table of entries of that size, or NULL. */
static inline const uint8_t *elf__table(const struct elf *elf, const Elf64_Shdr *section, size_t entry, size_t *cnt)
{
	*cnt = section->sh_size / entry;
	if (section->sh_type == SHT_NOBITS || section->sh_offset > elf->image.size ||
	    section->sh_size > elf->image.size - section->sh_offset)
		return NULL;
	return elf->image.bytes + section->sh_offset;
}

/*
 * elf__need_relocs fills elf->reloc once, sorted by vaddr. When there is no memory, the array stays
 * empty, and pointers are read as they lie in the file. elf__find_reloc returns the relocation of
 * the word at vaddr, or NULL, and fills elf->reloc itself.
 */
void elf__need_relocs(const struct elf *elf);
const struct reloc *elf__find_reloc(const struct elf *elf, uint64_t vaddr);

#endif
