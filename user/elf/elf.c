/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Read-only view of an ELF file: symbols and bytes by address. Pointers: elf_relocs.c; tables of
 * CPython: elf_pytables.c. In: a path, usually through /proc/PID/root. Out: addresses and file
 * offsets. The file is mapped whole, and the descriptor is closed. Lookups are cached at the first
 * question, so one thread owns a struct elf.
 *
 * The file is hostile input: libelf parses headers and tables, and this code checks every address
 * against the mapped size. It does not defend against a file that is truncated while it is mapped
 * (SIGBUS), as no reader of mapped files does.
 */
#include "user/elf/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/elf/elf_private.h"
#include "user/lib/compare.h"

static int map_file(struct elf *elf, const char *path)
{
	struct stat st;
	int err = 0;
	/* O_NONBLOCK: a FIFO under the target's root must not hang us. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		err = -errno;
		goto out;
	}
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(Elf64_Ehdr)) {
		err = -ENOEXEC;
		goto out;
	}
	/*
	 * Not MAP_PRIVATE: the kernel would search the file in a private mapping for each of our
	 * 12,000 uprobes.
	 */
	void *map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		err = -errno;
		goto out;
	}
	elf->image = map;
	elf->size = st.st_size;
out:
	close(fd);
	return err;
}

static void add_load(struct elf *elf, const GElf_Phdr *phdr)
{
	struct load *load = &elf->load[elf->load_cnt];

	if (elf->load_cnt == LOADS_MAX || phdr->p_offset >= elf->size || phdr->p_filesz > UINT64_MAX - phdr->p_vaddr)
		return;
	load->vaddr = phdr->p_vaddr;
	load->offset = phdr->p_offset;
	load->size = phdr->p_filesz;
	if (load->size > elf->size - load->offset)
		load->size = elf->size - load->offset;
	load->code = phdr->p_flags & PF_X;
	load->writable = phdr->p_flags & PF_W;
	if (load->size)
		elf->load_cnt++;
}

/*
 * Notes: namesz, descsz, type, then name and desc, each padded to the segment's alignment (4, or 8
 * for .note.gnu.property).
 */
static void read_build_id(struct elf *elf, const GElf_Phdr *phdr)
{
	uint64_t align = phdr->p_align == 8 ? 8 : 4, pos = 0, end = phdr->p_filesz;
	const uint8_t *notes = elf->image + phdr->p_offset;

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

static int read_segments(struct elf *elf)
{
	size_t cnt;

	if (elf_getphdrnum(elf->handle, &cnt))
		return -ENOEXEC;
	for (size_t i = 0; i < cnt; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(elf->handle, i, &phdr))
			return -ENOEXEC;
		if (phdr.p_type == PT_LOAD)
			add_load(elf, &phdr);
		if (phdr.p_type == PT_NOTE && !elf->build_id[0] && phdr.p_offset < elf->size &&
		    phdr.p_filesz <= elf->size - phdr.p_offset)
			read_build_id(elf, &phdr);
	}
	return 0;
}

static void read_symtab(struct elf *elf, Elf_Scn *scn, const GElf_Shdr *shdr, struct symtab *out)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	Elf_Scn *strs_scn = elf_getscn(elf->handle, shdr->sh_link);
	Elf_Data *strs = strs_scn ? elf_getdata(strs_scn, NULL) : NULL;

	if (!data || !data->d_buf || data->d_type != ELF_T_SYM || !strs || !strs->d_buf)
		return;
	out->strs = strs->d_buf;
	out->strs_size = strs->d_size;
	while (out->strs_size && out->strs[out->strs_size - 1])
		out->strs_size--;
	out->data = data;
	out->cnt = data->d_size / sizeof(Elf64_Sym);
}

static void read_symtabs(struct elf *elf)
{
	for (Elf_Scn *scn = elf_nextscn(elf->handle, NULL); scn; scn = elf_nextscn(elf->handle, scn)) {
		GElf_Shdr shdr;

		if (!gelf_getshdr(scn, &shdr))
			continue;
		if (shdr.sh_type == SHT_DYNSYM && !elf->dynsym.data)
			read_symtab(elf, scn, &shdr, &elf->dynsym);
		if (shdr.sh_type == SHT_SYMTAB && !elf->symtab.data)
			read_symtab(elf, scn, &shdr, &elf->symtab);
	}
}

int elf__new(const char *path, struct elf **out)
{
	struct elf *elf = calloc(1, sizeof(*elf));
	GElf_Ehdr ehdr;
	int err;

	if (!elf)
		return -ENOMEM;
	err = map_file(elf, path);
	if (err)
		goto out;
	err = -ENOEXEC;
	if (elf_version(EV_CURRENT) == EV_NONE)
		goto out;
	/* libelf does not write to the image of an elf_memory() handle that is never updated. */
	elf->handle = elf_memory((char *)elf->image, elf->size);
	if (!elf->handle || elf_kind(elf->handle) != ELF_K_ELF || gelf_getclass(elf->handle) != ELFCLASS64)
		goto out;
	if (!gelf_getehdr(elf->handle, &ehdr) || ehdr.e_ident[EI_DATA] != ELFDATA2LSB || ehdr.e_machine != EM_X86_64 ||
	    (ehdr.e_type != ET_EXEC && ehdr.e_type != ET_DYN))
		goto out;
	err = read_segments(elf);
	if (err)
		goto out;
	read_symtabs(elf);
out:
	if (err) {
		elf__free(elf);
		return err;
	}
	*out = elf;
	return 0;
}

void elf__free(struct elf *elf)
{
	if (!elf)
		return;
	elf_end(elf->handle);
	if (elf->image)
		munmap((void *)elf->image, elf->size);
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
	Elf64_Sym sym; /* gelf_getsym takes twice as long, and there may be half a million symbols */

	memcpy(&sym, (const char *)table->data->d_buf + i * sizeof(sym), sizeof(sym));
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

static int each_of(const struct symtab *table, int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < table->cnt; i++) {
		struct elf_symbol symbol;

		ret = symbol_at(table, i, &symbol) ? fn(&symbol, ctx) : 0;
	}
	return ret;
}

int elf__each_symbol(const struct elf *elf, int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx)
{
	int ret = each_of(&elf->dynsym, fn, ctx);

	return ret ? ret : each_of(&elf->symtab, fn, ctx);
}

size_t elf__symbol_cnt(const struct elf *elf)
{
	return elf->dynsym.cnt + elf->symtab.cnt;
}

int elf__each_symbol_once(const struct elf *elf, int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx)
{
	return each_of(elf->symtab.cnt > elf->dynsym.cnt ? &elf->symtab : &elf->dynsym, fn, ctx);
}

static bool table_mentions(const struct symtab *table, const char *text)
{
	return table->strs_size && memmem(table->strs, table->strs_size, text, strlen(text));
}

bool elf__mentions(const struct elf *elf, const char *text)
{
	return table_mentions(&elf->dynsym, text) || table_mentions(&elf->symtab, text);
}

uint64_t elf__name_offset(const struct elf *elf, const struct elf_symbol *symbol)
{
	uintptr_t name = (uintptr_t)symbol->name, image = (uintptr_t)elf->image;

	/* libelf may have copied a table that is misaligned. */
	return name > image && name - image < elf->size ? name - image : 0;
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

	return elf__each_symbol(elf, match_name, &want) ? 0 : -ENOENT;
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
	size_t cnt;

	if (elf_getphdrnum(elf->handle, &cnt))
		return -ENOENT;
	for (size_t i = 0; i < cnt; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(elf->handle, i, &phdr) || phdr.p_type != type)
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
	if (!load)
		return NULL;
	uint64_t skip = vaddr - load->vaddr, left = load->size - skip;
	*have = want < left ? want : left;
	return elf->image + load->offset + skip;
}
