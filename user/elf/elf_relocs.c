/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Pointers of an ELF file as they are after relocation. In: its RELA sections and .dynsym. Out:
 * values and names of symbols by address. The first question builds the table, which belongs to the
 * struct elf and to the thread that owns it.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>

#include "user/elf/elf.h"
#include "user/elf/elf_private.h"

/* What a relocation stores in its word, for load bias 0. */
static struct reloc reloc_of(const struct elf *elf, const Elf64_Rela *rela, bool dynamic_symbols)
{
	struct reloc reloc = {.vaddr = rela->r_offset, .kind = RELOC_UNKNOWN};
	uint32_t type = ELF64_R_TYPE(rela->r_info);
	Elf64_Sym sym;

	if (type == R_X86_64_RELATIVE) {
		reloc.value = rela->r_addend;
		reloc.kind = RELOC_VALUE;
		return reloc;
	}
	if (type != R_X86_64_64 && type != R_X86_64_GLOB_DAT && type != R_X86_64_JUMP_SLOT)
		return reloc;
	if (!dynamic_symbols || ELF64_R_SYM(rela->r_info) >= elf->dynsym.cnt)
		return reloc;
	memcpy(&sym, elf->dynsym.entries + ELF64_R_SYM(rela->r_info) * sizeof(sym), sizeof(sym));
	if (sym.st_name >= elf->dynsym.strs_size)
		return reloc;
	reloc.symbol = elf->dynsym.strs + sym.st_name;
	if (sym.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(sym.st_info) != STT_TLS &&
	    ELF64_ST_TYPE(sym.st_info) != STT_GNU_IFUNC) {
		reloc.value = sym.st_value + (type == R_X86_64_64 ? (uint64_t)rela->r_addend : 0);
		reloc.kind = RELOC_VALUE;
	}
	return reloc;
}

static int compare_relocs(const void *a, const void *b)
{
	const struct reloc *x = a, *y = b;

	return x->vaddr < y->vaddr ? -1 : x->vaddr > y->vaddr;
}

static int add_relocs(struct elf *elf, const Elf64_Shdr *section)
{
	bool dynamic =
		section->sh_link < elf->header.e_shnum && elf__section(elf, section->sh_link).sh_type == SHT_DYNSYM;
	size_t cnt;
	const uint8_t *entries = elf__table(elf, section, sizeof(Elf64_Rela), &cnt);
	struct reloc *grown;

	if (!entries || !cnt)
		return 0;
	if (cnt > RELOCS_MAX - elf->reloc_cnt || !elf__spend(elf, 32 * cnt)) {
		elf->refused = true;
		return -EFBIG;
	}
	grown = reallocarray(elf->reloc, elf->reloc_cnt + cnt, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	elf->reloc = grown;
	for (size_t i = 0; i < cnt; i++) {
		Elf64_Rela rela;

		memcpy(&rela, entries + i * sizeof(rela), sizeof(rela));
		elf->reloc[elf->reloc_cnt++] = reloc_of(elf, &rela, dynamic);
	}
	return 0;
}

/*
 * The dynamic relocations, sorted. RELR needs no entry: its addends lie in place, so the bytes in
 * the file are the answer. When there is no memory, the table stays empty, and pointers are read as
 * they lie in the file.
 */
void elf__need_relocs(const struct elf *const_elf)
{
	struct elf *elf = (struct elf *)const_elf; /* a cache: no answer changes by it */
	bool sorted = true;

	if (elf->relocs_known)
		return;
	elf->relocs_known = true;
	for (size_t i = 0; i < elf->header.e_shnum; i++) {
		const Elf64_Shdr section = elf__section(elf, i);

		if (section.sh_type == SHT_RELA && (section.sh_flags & SHF_ALLOC) && add_relocs(elf, &section))
			break;
	}
	for (size_t i = 1; i < elf->reloc_cnt && sorted; i++)
		sorted = elf->reloc[i - 1].vaddr <= elf->reloc[i].vaddr;
	if (!sorted)
		qsort(elf->reloc, elf->reloc_cnt, sizeof(*elf->reloc), compare_relocs);
}

const struct reloc *elf__find_reloc(const struct elf *elf, uint64_t vaddr)
{
	struct reloc key = {.vaddr = vaddr};

	elf__need_relocs(elf);
	if (!elf->reloc_cnt || !elf__spend(elf, 64))
		return NULL;
	return bsearch(&key, elf->reloc, elf->reloc_cnt, sizeof(*elf->reloc), compare_relocs);
}

int elf__pointer(const struct elf *elf, uint64_t vaddr, uint64_t *value)
{
	const struct reloc *reloc = elf__find_reloc(elf, vaddr);
	const uint8_t *bytes;
	size_t have;

	if (reloc) {
		*value = reloc->value;
		return reloc->kind == RELOC_VALUE ? 0 : -ENOENT;
	}
	bytes = elf__bytes(elf, vaddr, sizeof(*value), &have);
	if (!bytes || have < sizeof(*value))
		return -ENOENT;
	*value = read_u64(bytes);
	return 0;
}

const char *elf__slot_symbol(const struct elf *elf, uint64_t vaddr)
{
	const struct reloc *reloc = elf__find_reloc(elf, vaddr);

	return reloc ? reloc->symbol : NULL;
}

void elf__each_pointer(const struct elf *elf, void (*fn)(uint64_t vaddr, uint64_t value, const char *symbol, void *ctx),
		       void *ctx)
{
	elf__need_relocs(elf);
	for (size_t i = 0; i < elf->reloc_cnt && elf__spend(elf, 8); i++)
		fn(elf->reloc[i].vaddr, elf->reloc[i].value, elf->reloc[i].symbol, ctx);
}
