/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Read-only view of an ELF file: symbols, bytes by address, pointers as they are after relocation.
 * In: a path, usually through /proc/PID/root. Out: addresses and file offsets. The file is mapped whole and the
 * descriptor is closed; the relocation table is built at the first question that needs it, so one thread owns a struct elf.
 * The file is hostile input: libelf parses headers and tables, and every address is checked against the mapped size here.
 * What is not defended: a file that is truncated while it is mapped (SIGBUS), as for any reader of mapped files.
 */
#include "target/elf.h"

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

#define LOADS_MAX      64   /* PT_LOAD segments; real files have 4 to 10 */
#define TEXTS_MAX      1024 /* places where a method's name, or a text that ends in it, occurs */
#define BUILD_ID_MAX   64
#define METHOD_DEF_MAX 64

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
	const char *symbol; /* name of the symbol whose address comes here, NULL for none */
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

static uint64_t read_u64(const uint8_t *p)
{
	uint64_t value;

	memcpy(&value, p, sizeof(value));
	return value;
}

static uint32_t read_u32(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, sizeof(value));
	return value;
}

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
	void *map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
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

/* Notes: namesz, descsz, type, then name and desc, each padded to the segment's alignment (4, or 8 for .note.gnu.property). */
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

/* Symbol i of a table, or false when it is undefined, nameless or not an address (a section, a file, a TLS offset). */
static bool symbol_at(const struct symtab *table, size_t i, struct elf_symbol *out)
{
	GElf_Sym sym;

	if (!gelf_getsym(table->data, i, &sym) || sym.st_name >= table->strs_size)
		return false;
	int type = GELF_ST_TYPE(sym.st_info);
	if (sym.st_shndx == SHN_UNDEF || !table->strs[sym.st_name] || type == STT_SECTION || type == STT_FILE ||
	    type == STT_TLS)
		return false;
	*out = (struct elf_symbol){
		.name = table->strs + sym.st_name,
		.vaddr = sym.st_value,
		.size = sym.st_size,
		.function = type == STT_FUNC,
	};
	return true;
}

int elf__each_symbol(const struct elf *elf, int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx)
{
	const struct symtab *table[] = {&elf->dynsym, &elf->symtab};

	for (size_t t = 0; t < 2; t++) {
		for (size_t i = 0; i < table[t]->cnt; i++) {
			struct elf_symbol symbol;
			int ret = symbol_at(table[t], i, &symbol) ? fn(&symbol, ctx) : 0;

			if (ret)
				return ret;
		}
	}
	return 0;
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
	/* Doubled at each power of two. */
	if (!(elf->part_cnt & (elf->part_cnt - 1))) {
		uint64_t *grown = reallocarray(elf->part, elf->part_cnt ? 2 * elf->part_cnt : 1, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		elf->part = grown;
	}
	elf->part[elf->part_cnt++] = symbol->vaddr;
	return 0;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

bool elf__is_part(const struct elf *const_elf, uint64_t vaddr)
{
	struct elf *elf = (struct elf *)const_elf; /* a cache: no answer changes by it */

	if (!elf->parts_known) {
		elf->parts_known = true;
		elf__each_symbol(elf, count_part, elf);
		if (elf->part_cnt)
			qsort(elf->part, elf->part_cnt, sizeof(*elf->part), compare_addresses);
	}
	return elf->part_cnt && bsearch(&vaddr, elf->part, elf->part_cnt, sizeof(*elf->part), compare_addresses);
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

/* What a relocation leaves at its place, for load bias 0. */
static struct reloc reloc_of(const struct elf *elf, const GElf_Rela *rela, bool dynamic_symbols)
{
	struct reloc reloc = {.vaddr = rela->r_offset, .kind = RELOC_UNKNOWN};
	uint32_t type = GELF_R_TYPE(rela->r_info);
	GElf_Sym sym;

	if (type == R_X86_64_RELATIVE) {
		reloc.value = rela->r_addend;
		reloc.kind = RELOC_VALUE;
		return reloc;
	}
	if (type != R_X86_64_64 && type != R_X86_64_GLOB_DAT && type != R_X86_64_JUMP_SLOT)
		return reloc;
	if (!dynamic_symbols || !elf->dynsym.data || GELF_R_SYM(rela->r_info) >= elf->dynsym.cnt ||
	    !gelf_getsym(elf->dynsym.data, GELF_R_SYM(rela->r_info), &sym) || sym.st_name >= elf->dynsym.strs_size)
		return reloc;
	reloc.symbol = elf->dynsym.strs + sym.st_name;
	if (sym.st_shndx != SHN_UNDEF && GELF_ST_TYPE(sym.st_info) != STT_TLS &&
	    GELF_ST_TYPE(sym.st_info) != STT_GNU_IFUNC) {
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

static int add_relocs(struct elf *elf, Elf_Scn *scn, const GElf_Shdr *shdr)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	GElf_Shdr link;
	Elf_Scn *link_scn = elf_getscn(elf->handle, shdr->sh_link);
	bool dynamic = link_scn && gelf_getshdr(link_scn, &link) && link.sh_type == SHT_DYNSYM;

	if (!data || !data->d_buf || data->d_type != ELF_T_RELA)
		return 0;
	size_t cnt = data->d_size / sizeof(Elf64_Rela);
	struct reloc *grown = reallocarray(elf->reloc, elf->reloc_cnt + cnt, sizeof(*grown));
	if (!grown)
		return cnt ? -ENOMEM : 0;
	elf->reloc = grown;
	for (size_t i = 0; i < cnt; i++) {
		GElf_Rela rela;

		if (gelf_getrela(data, i, &rela))
			elf->reloc[elf->reloc_cnt++] = reloc_of(elf, &rela, dynamic);
	}
	return 0;
}

/*
 * The dynamic relocations, sorted. RELR needs no entry: its addends lie in place, so the bytes in the file are the answer.
 * Without memory the table stays empty, and pointers are read as they lie in the file.
 */
static void need_relocs(const struct elf *const_elf)
{
	struct elf *elf = (struct elf *)const_elf; /* a cache: no answer changes by it */
	bool sorted = true;

	if (elf->relocs_known)
		return;
	elf->relocs_known = true;
	for (Elf_Scn *scn = elf_nextscn(elf->handle, NULL); scn; scn = elf_nextscn(elf->handle, scn)) {
		GElf_Shdr shdr;

		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_RELA && (shdr.sh_flags & SHF_ALLOC) &&
		    add_relocs(elf, scn, &shdr))
			break;
	}
	for (size_t i = 1; i < elf->reloc_cnt && sorted; i++)
		sorted = elf->reloc[i - 1].vaddr <= elf->reloc[i].vaddr;
	if (!sorted)
		qsort(elf->reloc, elf->reloc_cnt, sizeof(*elf->reloc), compare_relocs);
}

static const struct reloc *find_reloc(const struct elf *elf, uint64_t vaddr)
{
	struct reloc key = {.vaddr = vaddr};

	need_relocs(elf);
	if (!elf->reloc_cnt)
		return NULL;
	return bsearch(&key, elf->reloc, elf->reloc_cnt, sizeof(*elf->reloc), compare_relocs);
}

int elf__pointer(const struct elf *elf, uint64_t vaddr, uint64_t *value)
{
	const struct reloc *reloc = find_reloc(elf, vaddr);
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
	const struct reloc *reloc = find_reloc(elf, vaddr);

	return reloc ? reloc->symbol : NULL;
}

static bool text_is(const struct elf *elf, uint64_t vaddr, const char *text)
{
	size_t have, want = strlen(text) + 1;
	const uint8_t *bytes = elf__bytes(elf, vaddr, want, &have);

	return bytes && have == want && !memcmp(bytes, text, want);
}

static int read_int(const struct elf *elf, uint64_t vaddr, uint32_t *value)
{
	size_t have;
	const uint8_t *bytes = elf__bytes(elf, vaddr, sizeof(*value), &have);

	if (!bytes || have < sizeof(*value))
		return -ENOENT;
	*value = read_u32(bytes);
	return 0;
}

/* A search for entries of a static table: {text, ..., function, ...} with one integer that must fit. */
struct entry_search {
	const struct elf *elf;
	uint64_t text[TEXTS_MAX]; /* ascending within a segment */
	size_t text_cnt;
	uint64_t text_low, text_high;
	unsigned function_at, int_at; /* bytes from the text's pointer */
	uint32_t int_value;
	uint64_t function;
	int err; /* -ENOENT, 0 or -ENOTUNIQ */
};

/*
 * Where the text lies in read-only segments. The linker merges tails, so "next" may be the end of "anext": what precedes
 * is not looked at.
 */
static void find_texts(struct entry_search *search, const char *text)
{
	const struct elf *elf = search->elf;
	size_t size = strlen(text) + 1;

	search->text_low = UINT64_MAX;
	for (size_t i = 0; i < elf->load_cnt; i++) {
		const struct load *load = &elf->load[i];
		const uint8_t *start = elf->image + load->offset, *end = start + load->size, *p = start;

		if (load->writable)
			continue;
		while (search->text_cnt < TEXTS_MAX && (p = memmem(p, end - p, text, size))) {
			uint64_t vaddr = load->vaddr + (p - start);

			search->text[search->text_cnt++] = vaddr;
			if (vaddr < search->text_low)
				search->text_low = vaddr;
			if (vaddr > search->text_high)
				search->text_high = vaddr;
			p++;
		}
	}
}

/* Takes the entry whose text pointer would be the word at vaddr, if it is one. */
static void try_entry(struct entry_search *search, uint64_t vaddr, uint64_t word)
{
	uint64_t function;
	uint32_t value;
	bool found = false;

	if (word < search->text_low || word > search->text_high)
		return;
	for (size_t i = 0; i < search->text_cnt && !found; i++)
		found = search->text[i] == word;
	if (!found || elf__pointer(search->elf, vaddr + search->function_at, &function) ||
	    !elf__is_code(search->elf, function) || read_int(search->elf, vaddr + search->int_at, &value) ||
	    value != search->int_value)
		return;
	if (search->err == -ENOENT)
		search->err = 0;
	else if (search->function != function)
		search->err = -ENOTUNIQ;
	search->function = function;
}

/* Tries every word of the file that is a pointer: relocated ones, then those in place (static executables, RELR). */
static int search_entries(struct entry_search *search, const char *text, uint64_t *vaddr)
{
	const struct elf *elf = search->elf;

	search->err = -ENOENT;
	find_texts(search, text);
	need_relocs(elf);
	for (size_t i = 0; i < elf->reloc_cnt && search->text_cnt; i++) {
		if (elf->reloc[i].kind == RELOC_VALUE)
			try_entry(search, elf->reloc[i].vaddr, elf->reloc[i].value);
	}
	for (size_t i = 0; i < elf->load_cnt && search->text_cnt; i++) {
		const struct load *load = &elf->load[i];
		uint64_t skip = -load->vaddr & 7;

		for (; skip + 8 <= load->size; skip += 8) {
			uint64_t word = read_u64(elf->image + load->offset + skip);

			if (word >= search->text_low && word <= search->text_high &&
			    !find_reloc(elf, load->vaddr + skip))
				try_entry(search, load->vaddr + skip, word);
		}
	}
	if (!search->err)
		*vaddr = search->function;
	return search->err;
}

/* PyMethodDef: const char *ml_name; PyCFunction ml_meth; int ml_flags; const char *ml_doc; 32 bytes. */
int elf__method(const struct elf *elf, const char *method, int flags, uint64_t *vaddr)
{
	struct entry_search search = {.elf = elf, .function_at = 8, .int_at = 16, .int_value = flags};

	return search_entries(&search, method, vaddr);
}

int elf__method_in(const struct elf *elf, uint64_t table, const char *method, uint64_t *vaddr)
{
	for (unsigned i = 0; i < METHOD_DEF_MAX; i++) {
		uint64_t entry = table + 32 * i, name, function;

		if (elf__pointer(elf, entry, &name) || !name)
			return -ENOENT;
		if (!text_is(elf, name, method))
			continue;
		if (elf__pointer(elf, entry + 8, &function) || !elf__is_code(elf, function))
			return -ENOENT;
		*vaddr = function;
		return 0;
	}
	return -ENOENT;
}

/* struct wrapperbase: const char *name; int offset; void *function; wrapperfunc wrapper; ... */
int elf__slot(const struct elf *elf, const char *dunder, uint64_t slot_offset, uint64_t *vaddr)
{
	struct entry_search search = {.elf = elf, .function_at = 16, .int_at = 8, .int_value = slot_offset};

	return search_entries(&search, dunder, vaddr);
}
