/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Read-only view of an x86-64 ELF file, stripped or not: symbols, code and relocated pointers. The
 * file is hostile input: every offset and size is checked, and a bad one gives -ENOEXEC or "not
 * found"; elf__error says whether the answers so far count. Addresses ("vaddr") are those of the
 * file; uprobes take file offsets.
 */
#ifndef STEPFLAME_USER_ELF_ELF_H
#define STEPFLAME_USER_ELF_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf;
struct stat;

struct elf_symbol {
	const char *name; /* mangled; owned by the struct elf */
	uint64_t vaddr;
	uint64_t size; /* 0 when the table does not say */
	bool function;
};

/*
 * elf__new_fd takes over the descriptor, on failure too. 0 or -errno: -ENOEXEC: not an ELF of this
 * machine; -EFBIG: larger than any library, or mostly holes; -ESTALE: it changes meanwhile. Free
 * with elf__free. elf__new opens a path whose owner may be trusted with it.
 */
int elf__new_fd(int fd, struct elf **out);
int elf__new(const char *path, struct elf **out);
/*
 * 0; -ESTALE: the file has changed since it was opened; -EFBIG: its tables, or the work for the
 * answers, are out of bounds. On error, drop all answers: from then on they say "not found".
 */
int elf__error(const struct elf *elf);
int elf__fd(const struct elf *elf);                  /* owned by elf */
const struct stat *elf__stat(const struct elf *elf); /* when it was opened */
void elf__free(struct elf *elf);                     /* accepts NULL */

/* The GNU build id as lower-case hex, or "" without one. Owned by elf. */
const char *elf__build_id(const struct elf *elf);

/*
 * elf__symbol finds the defined symbol of exactly that name, in .dynsym, then .symtab. 0 or
 * -ENOENT. elf__each_symbol calls fn for each defined symbol of .dynsym, then .symtab (names may
 * repeat), until fn returns nonzero, and returns that value, else 0. elf__each_symbol_once walks
 * the longer table only: a .symtab mostly has all that .dynsym has. Neither touches the names.
 */
int elf__symbol(const struct elf *elf, const char *name, struct elf_symbol *out);
int elf__each_symbol(const struct elf *elf, int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx);
int elf__each_symbol_once(const struct elf *elf, int (*fn)(const struct elf_symbol *symbol, void *ctx), void *ctx);

/* How many entries the symbol tables have that elf__each_symbol walks. */
size_t elf__symbol_cnt(const struct elf *elf);

/*
 * Whether `text` is part of the name of a symbol, defined or not. Faster than a walk over all
 * symbols.
 */
bool elf__mentions(const struct elf *elf, const char *text);

/* File offset of a symbol's name. */
uint64_t elf__name_offset(const struct elf *elf, const struct elf_symbol *symbol);

/*
 * Whether a symbol ("X.cold", "X.cold.3") says that a part which the compiler split off a function
 * begins at vaddr.
 */
bool elf__is_part(const struct elf *elf, uint64_t vaddr);

/*
 * Address and size of the first program header of that type (PT_DYNAMIC, PT_GNU_EH_FRAME, ...). 0
 * or -ENOENT.
 */
int elf__segment(const struct elf *elf, uint32_t type, uint64_t *vaddr, uint64_t *size);

/* File offset of a vaddr that is backed by the file. 0 or -ENOENT. */
int elf__offset(const struct elf *elf, uint64_t vaddr, uint64_t *offset);
/* vaddr of a file offset inside a PT_LOAD segment. 0 or -ENOENT. */
int elf__vaddr(const struct elf *elf, uint64_t offset, uint64_t *vaddr);
bool elf__is_code(const struct elf *elf, uint64_t vaddr); /* lies in an executable PT_LOAD */
/* The n-th range of code, counted from 0. Returns false when there are fewer. */
bool elf__code(const struct elf *elf, size_t n, uint64_t *vaddr, uint64_t *size);
/* The executable PT_LOAD that covers vaddr, clipped to what the file holds. 0 or -ENOENT. */
int elf__code_around(const struct elf *elf, uint64_t vaddr, uint64_t *start, uint64_t *size);

/*
 * The bytes at vaddr: *have is how many, at most `want`, fewer at the end of the segment. NULL when
 * the file does not back vaddr.
 */
const uint8_t *elf__bytes(const struct elf *elf, uint64_t vaddr, size_t want, size_t *have);

/* Is this text, with the 0 behind it, at vaddr? */
bool elf__text_is(const struct elf *elf, uint64_t vaddr, const char *text);

/*
 * The value of the pointer at vaddr after relocation with load bias 0: the addend of a RELATIVE
 * relocation (RELR too), or the value of a defined symbol's relocation, else the 8 bytes in the
 * file. 0 or -ENOENT (also when the value is known only at run time).
 */
int elf__pointer(const struct elf *elf, uint64_t vaddr, uint64_t *value);
/*
 * Name of the function or object whose address the dynamic linker stores at vaddr (a GOT or PLT
 * slot), or NULL.
 */
const char *elf__slot_symbol(const struct elf *elf, uint64_t vaddr);
/*
 * Calls fn, in ascending order of addresses, for each word that a relocation makes a pointer.
 * `value` is that of elf__pointer, 0 when it is known only at run time; `symbol` is NULL when the
 * relocation names no symbol. RELR relocations are left out.
 */
void elf__each_pointer(const struct elf *elf, void (*fn)(uint64_t vaddr, uint64_t value, const char *symbol, void *ctx),
		       void *ctx);

/*
 * Finds the function that a static PyMethodDef table names `method` with these flags, in a stripped
 * file too: searches read-only data for the text, then for a data word that points at the text and
 * is followed by a pointer into code and by `flags`. 0, -ENOENT, or -ENOTUNIQ when the matches name
 * several functions. (CPython Include/methodobject.h: ml_name, ml_meth, ml_flags, ml_doc.)
 */
int elf__method(const struct elf *elf, const char *method, int flags, uint64_t *vaddr);

/*
 * The same in the PyMethodDef array at `table` (vaddr): finds `method`, whatever its flags, among
 * at most 64 entries.
 */
int elf__method_in(const struct elf *elf, uint64_t table, const char *method, uint64_t *vaddr);

/*
 * Finds the function that CPython's static `slotdefs` table names for a dunder. An entry is {name,
 * offset, function, wrapper, doc[, ...]}: its first word points at the text `dunder`, the second is
 * `slot_offset`, the third points into code. 0, -ENOENT or -ENOTUNIQ. (CPython
 * Objects/typeobject.c: slotdefs.)
 */
int elf__slot(const struct elf *elf, const char *dunder, uint64_t slot_offset, uint64_t *vaddr);

/*
 * vaddr of the _Py_Dealloc that this file itself defines; 0: it defines no such function. Looked up
 * once.
 */
uint64_t elf__own_dealloc(const struct elf *elf);

#endif
