/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds functions that the static tables of a CPython name: PyMethodDef and slotdefs. In: a mapped
 * file's segments and relocations. Out: a function's vaddr. No state. Works on stripped files, by a
 * search for the text and for the word that points at the text. Every address read is checked by
 * elf__ functions, or lies in a segment as elf.c clipped it.
 */
#include <errno.h>
#include <string.h>

#include "user/elf/elf.h"
#include "user/elf/elf_private.h"

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

		if (load->writable || !elf__spend(elf, load->size / 4))
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

	if (word < search->text_low || word > search->text_high || !elf__spend(search->elf, search->text_cnt))
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
	elf__need_relocs(elf);
	for (size_t i = 0; i < elf->reloc_cnt && search->text_cnt; i++) {
		if (elf->reloc[i].kind == RELOC_VALUE)
			try_entry(search, elf->reloc[i].vaddr, elf->reloc[i].value);
	}
	for (size_t i = 0; i < elf->load_cnt && search->text_cnt; i++) {
		const struct load *load = &elf->load[i];
		uint64_t skip = -load->vaddr & 7;

		for (; skip + 8 <= load->size && elf__spend(elf, 1); skip += 8) {
			uint64_t word = read_u64(elf->image.bytes + load->offset + skip);

			if (word >= search->text_low && word <= search->text_high &&
			    !elf__find_reloc(elf, load->vaddr + skip))
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
