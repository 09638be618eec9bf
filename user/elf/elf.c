/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Read-only view of an ELF file: symbols, bytes by address, pointers, and functions that static tables
 * name. In: a descriptor. Out: addresses and file offsets. Lookups are cached at the first question, so
 * one thread owns a struct elf.
 *
 * The file is hostile input, and may change while it is read: every address is checked against the
 * mapped size, headers are copied before they are checked, and tables and work have bounds. Not by
 * libelf: it copies tables and allocates for headers before anyone could refuse them.
 */
#include "user/elf/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/lib/compare.h"

/* ---- the mapped file ---- */

#define PAGE      4096UL
#define FILE_MAX  (16ULL << 30)
#define HOLES_MAX (64LL << 20) /* linkers and copies leave holes of some MB */

/*
 * The bytes of the file, mapped for reading. Whoever may write to it may cut it while it is mapped:
 * then the bytes from there on become zeros, instead of a SIGBUS, and the image says so. One thread
 * makes, reads and frees images, and each stays where it is until it is released.
 */
struct elf_image {
	const uint8_t *bytes; /* NULL: not mapped */
	size_t size;
	int fd;                    /* open; owned */
	struct stat stat;          /* of the file when it was mapped */
	volatile sig_atomic_t cut; /* the file lost bytes that somebody read */
	struct elf_image *next;
};

static struct elf_image *images;  /* all that are mapped */
static struct sigaction previous; /* the action for SIGBUS that is not ours */

/* Replaces the lost rest of an image by zeros. A SIGBUS elsewhere meets the action before ours. */
static void survive_cut(int signal, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr & -PAGE;

	for (struct elf_image *image = images; image; image = image->next) {
		uintptr_t start = (uintptr_t)image->bytes;

		if (at < start || at - start >= image->size)
			continue;
		if (mmap((void *)at, start + image->size - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			 0) == MAP_FAILED)
			break;
		image->cut = 1;
		return;
	}
	sigaction(signal, &previous, NULL);
	(void)context;
}

/* For each image anew: a screen sets an action of its own while it is shown. */
static void watch_faults(void)
{
	struct sigaction action = {.sa_sigaction = survive_cut, .sa_flags = SA_SIGINFO}, now;

	sigaction(SIGBUS, NULL, &now);
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == survive_cut)
		return;
	previous = now;
	sigaction(SIGBUS, &action, NULL);
}

/* A file system that knows no holes has none. */
static bool is_sparse(int fd, off_t size)
{
	off_t holes = 0, data;

	for (off_t hole = lseek(fd, 0, SEEK_HOLE); hole >= 0 && hole < size; hole = lseek(fd, data, SEEK_HOLE)) {
		data = lseek(fd, hole, SEEK_DATA);
		if (data < 0)
			data = size;
		holes += data - hole;
		if (holes > HOLES_MAX || data == size)
			break;
	}
	return holes > HOLES_MAX;
}

/*
 * Takes over the descriptor, on failure too. 0; -ENOEXEC: no regular file, or too short for an ELF;
 * -EFBIG: larger than any library, or mostly holes, which cost nothing to make and much to read; or
 * -errno.
 */
static int image__map(struct elf_image *image, int fd)
{
	uint8_t *map;

	*image = (struct elf_image){.fd = fd};
	if (fstat(fd, &image->stat))
		return -errno;
	if (!S_ISREG(image->stat.st_mode) || image->stat.st_size < (off_t)sizeof(Elf64_Ehdr))
		return -ENOEXEC;
	image->size = image->stat.st_size;
	if (image->size > FILE_MAX || is_sparse(fd, image->stat.st_size))
		return -EFBIG;
	watch_faults();
	/*
	 * A page of zeros behind it ends every text, even if the file's own end is overwritten
	 * later. Not MAP_PRIVATE: the kernel would search the file in a private mapping for each of our
	 * 12,000 uprobes.
	 */
	map = mmap(NULL, image->size + PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return -errno;
	image->bytes = map;
	if (mmap(map, image->size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return -errno;
	image->next = images;
	images = image;
	return 0;
}

/* Accepts an image whose image__map failed. */
static void image__release(struct elf_image *image)
{
	for (struct elf_image **at = &images; *at; at = &(*at)->next)
		if (*at == image) {
			*at = image->next;
			break;
		}
	if (image->bytes)
		munmap((void *)image->bytes, image->size + PAGE);
	close(image->fd);
}

/* Has the file's content changed since it was mapped, as far as its size and times say? */
static bool image__changed(const struct elf_image *image)
{
	const struct stat *was = &image->stat;
	struct stat now;

	return image->cut || fstat(image->fd, &now) || now.st_size != was->st_size ||
	       now.st_mtim.tv_sec != was->st_mtim.tv_sec || now.st_mtim.tv_nsec != was->st_mtim.tv_nsec;
}

/* ---- its tables ---- */

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

/* Takes from the file's work. false: there is none left. */
static bool spend(const struct elf *const_elf, uint64_t work)
{
	struct elf *elf = (struct elf *)const_elf; /* no answer changes by it, until there is none */

	if (work > elf->work)
		elf->refused = true;
	elf->work -= elf->refused ? elf->work : work;
	return !elf->refused;
}

/* The i-th header. The caller knows that there are so many. */
static Elf64_Phdr program_header(const struct elf *elf, size_t i)
{
	Elf64_Phdr header;

	memcpy(&header, elf->image.bytes + elf->header.e_phoff + i * sizeof(header), sizeof(header));
	return header;
}

static Elf64_Shdr section_header(const struct elf *elf, size_t i)
{
	Elf64_Shdr header;

	memcpy(&header, elf->image.bytes + elf->header.e_shoff + i * sizeof(header), sizeof(header));
	return header;
}

/* The content of a section that lies in the file and is a table of entries of that size, or NULL. */
static const uint8_t *section_table(const struct elf *elf, const Elf64_Shdr *section, size_t entry, size_t *cnt)
{
	*cnt = section->sh_size / entry;
	if (section->sh_type == SHT_NOBITS || section->sh_offset > elf->image.size ||
	    section->sh_size > elf->image.size - section->sh_offset)
		return NULL;
	return elf->image.bytes + section->sh_offset;
}

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
		const Elf64_Phdr phdr = program_header(elf, i);

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
	const Elf64_Shdr strs = section_header(elf, section->sh_link);
	found.entries = section_table(elf, section, sizeof(Elf64_Sym), &found.cnt);
	found.strs = (const char *)section_table(elf, &strs, 1, &found.strs_size);
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
		const Elf64_Shdr section = section_header(elf, i);

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
	err = image__map(&elf->image, fd);
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
	return elf->refused ? -EFBIG : image__changed(&elf->image) ? -ESTALE : 0;
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
	image__release(&elf->image);
	free(elf->reloc);
	free(elf->part);
	free(elf);
}

const char *elf__build_id(const struct elf *elf)
{
	return elf->build_id;
}

/* ---- symbols ---- */

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
	int ret = spend(elf, 4 * table->cnt) ? 0 : -EFBIG;
	uint64_t begin = table->cnt > CHECK_EVERY ? clock__ns(CLOCK_THREAD_CPUTIME_ID) : 0;

	for (size_t i = 0; !ret && i < table->cnt; i++) {
		struct elf_symbol symbol;

		/* Names may be as long as the file, and share their ends. */
		if (i && i % CHECK_EVERY == 0 && clock__ns(CLOCK_THREAD_CPUTIME_ID) - begin > WALK_NS &&
		    !spend(elf, UINT64_MAX))
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
	return table->strs_size && spend(elf, table->strs_size / 8) &&
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

/* ---- bytes by address ---- */

int elf__segment(const struct elf *elf, uint32_t type, uint64_t *vaddr, uint64_t *size)
{
	for (size_t i = 0; i < elf->header.e_phnum; i++) {
		const Elf64_Phdr phdr = program_header(elf, i);

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
	if (!load || !spend(elf, 128))
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

/* ---- pointers, as they are after relocation ---- */

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
		section->sh_link < elf->header.e_shnum && section_header(elf, section->sh_link).sh_type == SHT_DYNSYM;
	size_t cnt;
	const uint8_t *entries = section_table(elf, section, sizeof(Elf64_Rela), &cnt);
	struct reloc *grown;

	if (!entries || !cnt)
		return 0;
	if (cnt > RELOCS_MAX - elf->reloc_cnt || !spend(elf, 32 * cnt)) {
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
static void need_relocs(const struct elf *const_elf)
{
	struct elf *elf = (struct elf *)const_elf; /* a cache: no answer changes by it */
	bool sorted = true;

	if (elf->relocs_known)
		return;
	elf->relocs_known = true;
	for (size_t i = 0; i < elf->header.e_shnum; i++) {
		const Elf64_Shdr section = section_header(elf, i);

		if (section.sh_type == SHT_RELA && (section.sh_flags & SHF_ALLOC) && add_relocs(elf, &section))
			break;
	}
	for (size_t i = 1; i < elf->reloc_cnt && sorted; i++)
		sorted = elf->reloc[i - 1].vaddr <= elf->reloc[i].vaddr;
	if (!sorted)
		qsort(elf->reloc, elf->reloc_cnt, sizeof(*elf->reloc), compare_relocs);
}

/* The relocation of the word at vaddr, or NULL. */
static const struct reloc *find_reloc(const struct elf *elf, uint64_t vaddr)
{
	struct reloc key = {.vaddr = vaddr};

	need_relocs(elf);
	if (!elf->reloc_cnt || !spend(elf, 64))
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

void elf__each_pointer(const struct elf *elf, void (*fn)(uint64_t vaddr, uint64_t value, const char *symbol, void *ctx),
		       void *ctx)
{
	need_relocs(elf);
	for (size_t i = 0; i < elf->reloc_cnt && spend(elf, 8); i++)
		fn(elf->reloc[i].vaddr, elf->reloc[i].value, elf->reloc[i].symbol, ctx);
}

/*
 * ---- functions that CPython's static tables name: PyMethodDef and slotdefs ----
 *
 * In stripped files too: by a search for the text, and for the word that points at it.
 */

#define TEXTS_MAX      1024 /* places where a method's name, or a text that ends in it, occurs */
#define METHOD_DEF_MAX 64

static int read_int(const struct elf *elf, uint64_t vaddr, uint32_t *value)
{
	size_t have;
	const uint8_t *bytes = elf__bytes(elf, vaddr, sizeof(*value), &have);

	if (!bytes || have < sizeof(*value))
		return -ENOENT;
	*value = read_u32(bytes);
	return 0;
}

/*
 * A search for entries of a static table: {text, ..., function, ...} with one integer that must
 * fit.
 */
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
 * Finds the text in read-only segments. The linker merges tails, so "next" may be the end of
 * "anext": the byte before the text may be anything.
 */
static void find_texts(struct entry_search *search, const char *text)
{
	const struct elf *elf = search->elf;
	size_t size = strlen(text) + 1;

	search->text_low = UINT64_MAX;
	for (size_t i = 0; i < elf->load_cnt; i++) {
		const struct load *load = &elf->load[i];
		const uint8_t *start = elf->image.bytes + load->offset, *end = start + load->size, *p = start;

		if (load->writable || !spend(elf, load->size / 4))
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

/* Takes the entry whose text pointer is the word at vaddr, if there is such an entry. */
static void try_entry(struct entry_search *search, uint64_t vaddr, uint64_t word)
{
	uint64_t function;
	uint32_t value;
	bool found = false;

	if (word < search->text_low || word > search->text_high || !spend(search->elf, search->text_cnt))
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

/*
 * Tries every word of the file that is a pointer: relocated ones, then those in place (static
 * executables, RELR).
 */
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

		for (; skip + 8 <= load->size && spend(elf, 1); skip += 8) {
			uint64_t word = read_u64(elf->image.bytes + load->offset + skip);

			if (word >= search->text_low && word <= search->text_high &&
			    !find_reloc(elf, load->vaddr + skip))
				try_entry(search, load->vaddr + skip, word);
		}
	}
	if (!search->err)
		*vaddr = search->function;
	return search->err;
}

/*
 * PyMethodDef: const char *ml_name; PyCFunction ml_meth; int ml_flags; const char *ml_doc; 32
 * bytes.
 */
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
		if (!elf__text_is(elf, name, method))
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
