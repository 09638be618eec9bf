/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Read-only view of an ELF file: symbols and bytes by address. Pointers: elf_relocs.c; tables of
 * CPython: elf_pytables.c; the mapped file: elf_image.c. In: a descriptor. Out: addresses and file
 * offsets. Lookups are cached at the first question, so one thread owns a struct elf.
 *
 * The file is hostile input, and may change while it is read: every address is checked against the
 * mapped size, headers are copied before they are checked, and tables and work have bounds. Not by
 * libelf: it copies tables and allocates for headers before anyone could refuse them.
 */
#include "user/elf/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "user/elf/elf_private.h"
#include "user/lib/clock.h"
#include "user/lib/compare.h"

static void add_load(struct elf *elf, const Elf64_Phdr *phdr)
{
	struct load *load = &elf->load[elf->load_cnt];

	if (elf->load_cnt == LOADS_MAX || phdr->p_offset >= elf->image.size ||
	    phdr->p_filesz > UINT64_MAX - phdr->p_vaddr)
		return;
	load->vaddr = phdr->p_vaddr;
	load->offset = phdr->p_offset;
	load->size = phdr->p_filesz;
	if (load->size > elf->image.size - load->offset)
		load->size = elf->image.size - load->offset;
	load->code = phdr->p_flags & PF_X;
	load->writable = phdr->p_flags & PF_W;
	if (load->size)
		elf->load_cnt++;
}

/*
 * Notes: namesz, descsz, type, then name and desc, each padded to the segment's alignment (4, or 8
 * for .note.gnu.property).
 */
static void read_build_id(struct elf *elf, const Elf64_Phdr *phdr)
{
	uint64_t align = phdr->p_align == 8 ? 8 : 4, pos = 0, end = phdr->p_filesz;
	const uint8_t *notes = elf->image.bytes + phdr->p_offset;

	while (end - pos >= 12) {
		uint64_t name_size = read_u32(notes + pos), desc_size = read_u32(notes + pos + 4);
		uint32_t type = read_u32(notes + pos + 8);
		uint64_t desc = (pos + 12 + name_size + align - 1) & ~(align - 1);
		uint64_t next = (desc + desc_size + align - 1) & ~(align - 1);

		if (desc > end || desc_size > end - desc)
			return;
		if (type == NT_GNU_BUILD_ID && name_size == 4 && !memcmp(notes + pos + 12, "GNU", 4) &&
		    desc_size <= BUILD_ID_MAX) {
			for (uint64_t i = 0; i < desc_size; i++)
				snprintf(elf->build_id + 2 * i, 3, "%02x", notes[desc + i]);
			return;
		}
		if (next > end)
			return;
		pos = next;
	}
}

static void read_segments(struct elf *elf)
{
	size_t notes = 0;

	for (size_t i = 0; i < elf->header.e_phnum; i++) {
		const Elf64_Phdr phdr = elf__program_header(elf, i);

		if (phdr.p_type == PT_LOAD)
			add_load(elf, &phdr);
		if (phdr.p_type == PT_NOTE && !elf->build_id[0] && phdr.p_offset < elf->image.size &&
		    phdr.p_filesz <= elf->image.size - phdr.p_offset && phdr.p_filesz <= NOTES_MAX - notes) {
			notes += phdr.p_filesz;
			read_build_id(elf, &phdr);
		}
	}
}

static int read_symtab(struct elf *elf, const Elf64_Shdr *section, struct symtab *out)
{
	struct symtab found = {};

	if (section->sh_link >= elf->header.e_shnum)
		return 0;
	const Elf64_Shdr strs = elf__section(elf, section->sh_link);
	found.entries = elf__table(elf, section, sizeof(Elf64_Sym), &found.cnt);
	found.strs = (const char *)elf__table(elf, &strs, 1, &found.strs_size);
	if (!found.entries || !found.strs || strs.sh_type != SHT_STRTAB)
		return 0;
	if (found.cnt > SYMBOLS_MAX)
		return -EFBIG;
	while (found.strs_size && found.strs[found.strs_size - 1])
		found.strs_size--;
	*out = found;
	return 0;
}

static int read_symtabs(struct elf *elf)
{
	int err = 0;

	for (size_t i = 0; i < elf->header.e_shnum && !err; i++) {
		const Elf64_Shdr section = elf__section(elf, i);

		if (section.sh_type == SHT_DYNSYM && !elf->dynsym.entries)
			err = read_symtab(elf, &section, &elf->dynsym);
		if (section.sh_type == SHT_SYMTAB && !elf->symtab.entries)
			err = err ?: read_symtab(elf, &section, &elf->symtab);
	}
	return err;
}

/* Is there a table of `cnt` headers in the file? */
static bool has_headers(const struct elf *elf, uint64_t offset, size_t cnt, size_t entry, size_t size)
{
	return !cnt || (entry == size && offset <= elf->image.size && cnt <= (elf->image.size - offset) / size);
}

static int read_header(struct elf *elf)
{
	Elf64_Ehdr *h = &elf->header;

	memcpy(h, elf->image.bytes, sizeof(*h));
	if (memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_ident[EI_CLASS] != ELFCLASS64 ||
	    h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_machine != EM_X86_64 ||
	    (h->e_type != ET_EXEC && h->e_type != ET_DYN) ||
	    !has_headers(elf, h->e_phoff, h->e_phnum, h->e_phentsize, sizeof(Elf64_Phdr)) ||
	    !has_headers(elf, h->e_shoff, h->e_shnum, h->e_shentsize, sizeof(Elf64_Shdr)))
		return -ENOEXEC;
	return h->e_phnum > SEGMENTS_MAX || h->e_shnum > SECTIONS_MAX ? -EFBIG : 0;
}

int elf__new_fd(int fd, struct elf **out)
{
	struct elf *elf = calloc(1, sizeof(*elf));
	int err;

	if (!elf) {
		close(fd);
		return -ENOMEM;
	}
	err = elf_image__map(&elf->image, fd);
	err = err ?: read_header(elf);
	if (!err) {
		elf->work = WORK_MIN + WORK_PER_BYTE * elf->image.size;
		read_segments(elf);
		err = read_symtabs(elf);
	}
	err = err ?: elf__error(elf);
	if (err)
		elf__free(elf);
	else
		*out = elf;
	return err;
}

int elf__new(const char *path, struct elf **out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */

	return fd < 0 ? -errno : elf__new_fd(fd, out);
}

int elf__error(const struct elf *elf)
{
	return elf->refused ? -EFBIG : elf_image__changed(&elf->image) ? -ESTALE : 0;
}

int elf__fd(const struct elf *elf)
{
	return elf->image.fd;
}

const struct stat *elf__stat(const struct elf *elf)
{
	return &elf->image.stat;
}

void elf__free(struct elf *elf)
{
	if (!elf)
		return;
	elf_image__release(&elf->image);
	free(elf->reloc);
	free(elf->part);
	free(elf);
}

const char *elf__build_id(const struct elf *elf)
{
	return elf->build_id;
}

/*
 * Reads symbol i of a table. Returns false when it is undefined, nameless or not an address (a
 * section, a file, a TLS offset).
 */
static bool symbol_at(const struct symtab *table, size_t i, struct elf_symbol *out)
{
	Elf64_Sym sym;

	memcpy(&sym, table->entries + i * sizeof(sym), sizeof(sym));
	if (sym.st_name >= table->strs_size)
		return false;
	int type = ELF64_ST_TYPE(sym.st_info);
	if (sym.st_shndx == SHN_UNDEF || !sym.st_name || type == STT_SECTION || type == STT_FILE || type == STT_TLS)
		return false;
	*out = (struct elf_symbol){
		.name = table->strs + sym.st_name,
		.vaddr = sym.st_value,
		.size = sym.st_size,
		.function = type == STT_FUNC,
	};
	return true;
}

static int each_of(const struct elf *elf, const struct symtab *table,
		   int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx)
{
	int ret = elf__spend(elf, 4 * table->cnt) ? 0 : -EFBIG;
	uint64_t begin = table->cnt > CHECK_EVERY ? clock__ns(CLOCK_THREAD_CPUTIME_ID) : 0;

	for (size_t i = 0; !ret && i < table->cnt; i++) {
		struct elf_symbol symbol;

		/* Names may be as long as the file, and share their ends. */
		if (i && i % CHECK_EVERY == 0 && clock__ns(CLOCK_THREAD_CPUTIME_ID) - begin > WALK_NS &&
		    !elf__spend(elf, UINT64_MAX))
			return -EFBIG;
		ret = symbol_at(table, i, &symbol) ? fn(&symbol, ctx) : 0;
	}
	return ret;
}

int elf__each_symbol(const struct elf *elf, int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx)
{
	int ret = each_of(elf, &elf->dynsym, fn, ctx);

	return ret ? ret : each_of(elf, &elf->symtab, fn, ctx);
}

size_t elf__symbol_cnt(const struct elf *elf)
{
	return elf->dynsym.cnt + elf->symtab.cnt;
}

int elf__each_symbol_once(const struct elf *elf, int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx)
{
	return each_of(elf, elf->symtab.cnt > elf->dynsym.cnt ? &elf->symtab : &elf->dynsym, fn, ctx);
}

static bool table_mentions(const struct elf *elf, const struct symtab *table, const char *text)
{
	return table->strs_size && elf__spend(elf, table->strs_size / 8) &&
	       memmem(table->strs, table->strs_size, text, strlen(text));
}

bool elf__mentions(const struct elf *elf, const char *text)
{
	return table_mentions(elf, &elf->dynsym, text) || table_mentions(elf, &elf->symtab, text);
}

uint64_t elf__name_offset(const struct elf *elf, const struct elf_symbol *symbol)
{
	return (const uint8_t *)symbol->name - elf->image.bytes;
}

struct by_name {
	const char *name;
	struct elf_symbol *out;
};

static int match_name(const struct elf_symbol *symbol, void *ctx)
{
	const struct by_name *want = ctx;

	if (strcmp(symbol->name, want->name))
		return 0;
	*want->out = *symbol;
	return 1;
}

int elf__symbol(const struct elf *elf, const char *name, struct elf_symbol *out)
{
	struct by_name want = {name, out};

	return elf__each_symbol(elf, match_name, &want) == 1 ? 0 : -ENOENT;
}

uint64_t elf__own_dealloc(const struct elf *const_elf)
{
	struct elf *elf = (struct elf *)const_elf; /* a cache: no answer changes by it */
	struct elf_symbol symbol;

	if (!elf->dealloc_known) {
		elf->dealloc_known = true;
		elf->dealloc = elf__symbol(elf, "_Py_Dealloc", &symbol) ? 0 : symbol.vaddr;
	}
	return elf->dealloc;
}

static int count_part(const struct elf_symbol *symbol, void *ctx)
{
	struct elf *elf = ctx;
	const char *dot = strstr(symbol->name, ".cold");

	if (!dot || (dot[5] && dot[5] != '.'))
		return 0;
	/* Doubles the array at each power of two. */
	if (!(elf->part_cnt & (elf->part_cnt - 1))) {
		uint64_t *grown = reallocarray(elf->part, elf->part_cnt ? 2 * elf->part_cnt : 1, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		elf->part = grown;
	}
	elf->part[elf->part_cnt++] = symbol->vaddr;
	return 0;
}

bool elf__is_part(const struct elf *const_elf, uint64_t vaddr)
{
	struct elf *elf = (struct elf *)const_elf; /* a cache: no answer changes by it */

	if (!elf->parts_known) {
		elf->parts_known = true;
		elf__each_symbol(elf, count_part, elf);
		if (elf->part_cnt)
			qsort(elf->part, elf->part_cnt, sizeof(*elf->part), compare__u64);
	}
	return elf->part_cnt && bsearch(&vaddr, elf->part, elf->part_cnt, sizeof(*elf->part), compare__u64);
}

int elf__segment(const struct elf *elf, uint32_t type, uint64_t *vaddr, uint64_t *size)
{
	for (size_t i = 0; i < elf->header.e_phnum; i++) {
		const Elf64_Phdr phdr = elf__program_header(elf, i);

		if (phdr.p_type != type)
			continue;
		*vaddr = phdr.p_vaddr;
		*size = phdr.p_filesz;
		return 0;
	}
	return -ENOENT;
}

bool elf__code(const struct elf *elf, size_t n, uint64_t *vaddr, uint64_t *size)
{
	for (size_t i = 0; i < elf->load_cnt; i++) {
		if (!elf->load[i].code || n--)
			continue;
		*vaddr = elf->load[i].vaddr;
		*size = elf->load[i].size;
		return true;
	}
	return false;
}

static const struct load *load_of(const struct elf *elf, uint64_t vaddr)
{
	for (size_t i = 0; i < elf->load_cnt; i++) {
		const struct load *load = &elf->load[i];

		if (vaddr >= load->vaddr && vaddr - load->vaddr < load->size)
			return load;
	}
	return NULL;
}

int elf__offset(const struct elf *elf, uint64_t vaddr, uint64_t *offset)
{
	const struct load *load = load_of(elf, vaddr);

	if (!load)
		return -ENOENT;
	*offset = load->offset + (vaddr - load->vaddr);
	return 0;
}

int elf__vaddr(const struct elf *elf, uint64_t offset, uint64_t *vaddr)
{
	for (size_t i = 0; i < elf->load_cnt; i++) {
		const struct load *load = &elf->load[i];

		if (offset >= load->offset && offset - load->offset < load->size) {
			*vaddr = load->vaddr + (offset - load->offset);
			return 0;
		}
	}
	return -ENOENT;
}

bool elf__is_code(const struct elf *elf, uint64_t vaddr)
{
	const struct load *load = load_of(elf, vaddr);

	return load && load->code;
}

int elf__code_around(const struct elf *elf, uint64_t vaddr, uint64_t *start, uint64_t *size)
{
	const struct load *load = load_of(elf, vaddr);

	if (!load || !load->code)
		return -ENOENT;
	*start = load->vaddr;
	*size = load->size;
	return 0;
}

const uint8_t *elf__bytes(const struct elf *elf, uint64_t vaddr, size_t want, size_t *have)
{
	const struct load *load = load_of(elf, vaddr);

	*have = 0;
	if (!load || !elf__spend(elf, 128))
		return NULL;
	uint64_t skip = vaddr - load->vaddr, left = load->size - skip;
	*have = want < left ? want : left;
	return elf->image.bytes + load->offset + skip;
}

bool elf__text_is(const struct elf *elf, uint64_t vaddr, const char *text)
{
	size_t have, want = strlen(text) + 1;
	const uint8_t *bytes = elf__bytes(elf, vaddr, want, &have);

	return bytes && have == want && !memcmp(bytes, text, want);
}
