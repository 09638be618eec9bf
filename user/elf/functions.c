/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Function bounds and landing pads from the unwind tables. In: an opened ELF file. Out: ranges by
 * vaddr. No state. Layouts: LSB core specification, "Exception Frames"; Itanium C++ ABI, "Exception
 * Handling Tables". The code reads only the encodings that GCC and Clang write for x86-64; others
 * give -ENOTSUP or "not found".
 */
#include "user/elf/functions.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "user/lib/search.h"

#define ENC_ABSPTR     0x00
#define ENC_ULEB128    0x01
#define ENC_UDATA4     0x03
#define ENC_SDATA4     0x0b
#define ENC_PCREL      0x10
#define ENC_DATAREL    0x30
#define ENC_OMIT       0xff

#define FDE_BYTES_MAX  256       /* read of one FDE */
#define PADS_BYTES_MAX (1 << 20) /* of one call-site table */

/* A reader over bytes at consecutive addresses; `bad` is set when it runs out, and stays set. */
struct unwind_reader {
	const uint8_t *at, *end;
	uint64_t vaddr;
	bool bad;
};

static struct unwind_reader unwind_reader__at(const struct elf *elf, uint64_t vaddr, size_t want)
{
	size_t have;
	const uint8_t *bytes = elf__bytes(elf, vaddr, want, &have);

	return (struct unwind_reader){.at = bytes, .end = bytes ? bytes + have : NULL, .vaddr = vaddr, .bad = !bytes};
}

static uint64_t unwind_reader__take(struct unwind_reader *r, size_t size)
{
	uint64_t value = 0;

	if (r->bad || (size_t)(r->end - r->at) < size) {
		r->bad = true;
		return 0;
	}
	memcpy(&value, r->at, size);
	r->at += size;
	r->vaddr += size;
	return value;
}

static uint64_t unwind_reader__take_uleb(struct unwind_reader *r)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte = unwind_reader__take(r, 1);

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
	r->bad = true;
	return 0;
}

/* A pointer in one of the encodings above; `data` is the base of ENC_DATAREL. */
static uint64_t unwind_reader__take_encoded(struct unwind_reader *r, uint8_t encoding, uint64_t data)
{
	uint64_t base = 0, here = r->vaddr, value = 0;

	if ((encoding & 0x70) == ENC_PCREL)
		base = here;
	else if ((encoding & 0x70) == ENC_DATAREL)
		base = data;
	else if (encoding & 0x70)
		r->bad = true;
	switch (encoding & 0x0f) {
	case ENC_ABSPTR:
		value = unwind_reader__take(r, 8);
		break;
	case ENC_ULEB128:
		value = unwind_reader__take_uleb(r);
		break;
	case ENC_UDATA4:
		value = unwind_reader__take(r, 4);
		break;
	case ENC_SDATA4:
		value = (uint64_t)(int64_t)(int32_t)unwind_reader__take(r, 4);
		break;
	default:
		r->bad = true;
	}
	return value ? base + value : 0; /* a zero means "none" in every encoding */
}

/* What a CIE's augmentation ("zPLR", ...) says about the encodings in its FDEs. */
struct cie {
	uint8_t pointer_encoding, lsda_encoding;
	bool has_data;
};

static int read_cie(const struct elf *elf, uint64_t vaddr, struct cie *out)
{
	struct unwind_reader r = unwind_reader__at(elf, vaddr, 64);
	char augmentation[8] = "";
	size_t len = 0;

	*out = (struct cie){ENC_ABSPTR, ENC_OMIT, false};
	unwind_reader__take(&r, 4); /* length */
	if (unwind_reader__take(&r, 4) != 0 || unwind_reader__take(&r, 1) != 1)
		return -ENOTSUP;
	do {
		if (len == sizeof(augmentation))
			return -ENOTSUP;
		augmentation[len] = unwind_reader__take(&r, 1);
	} while (augmentation[len++]);
	unwind_reader__take_uleb(&r); /* code alignment */
	unwind_reader__take_uleb(&r); /* data alignment; signed, but skipping it needs only its length */
	unwind_reader__take(&r, 1);   /* return address register */
	if (augmentation[0] == 'z') {
		out->has_data = true;
		unwind_reader__take_uleb(&r);
	}
	for (const char *c = augmentation + 1; augmentation[0] == 'z' && *c; c++) {
		if (*c == 'R')
			out->pointer_encoding = unwind_reader__take(&r, 1);
		else if (*c == 'L')
			out->lsda_encoding = unwind_reader__take(&r, 1);
		else if (*c == 'P')
			unwind_reader__take_encoded(&r, unwind_reader__take(&r, 1) & 0x7f, 0);
		else if (*c != 'S' && *c != 'B')
			return -ENOTSUP;
	}
	return r.bad ? -ENOTSUP : 0;
}

/*
 * Distance of the canonical frame address above %rsp at the start of a range, less the return
 * address. The unwind instructions of a function begin with the CIE's 8 bytes; those of a part
 * first say how large the frame is at its entry (0e = DW_CFA_def_cfa_offset, ...).
 */
static int32_t read_frame(struct unwind_reader *r)
{
	uint64_t cfa = 8;

	while (!r->bad && r->at < r->end) {
		uint8_t op = unwind_reader__take(r, 1);

		if ((op & 0xc0) == 0x40 || (op >= 0x01 && op <= 0x04)) /* advance_loc, set_loc */
			break;
		if ((op & 0xc0) == 0x80) { /* offset */
			unwind_reader__take_uleb(r);
		} else if (op == 0x0e) { /* def_cfa_offset */
			cfa = unwind_reader__take_uleb(r);
		} else if (op == 0x0c) { /* def_cfa */
			if (unwind_reader__take_uleb(r) != 7)
				return -1;
			cfa = unwind_reader__take_uleb(r);
		} else if (op == 0x2e) { /* GNU_args_size */
			unwind_reader__take_uleb(r);
		} else if (op && op != 0x0a && op != 0x0b && (op & 0xc0) != 0xc0) { /* nop, remember, restore */
			return -1;
		}
	}
	return r->bad || cfa < 8 || cfa > INT32_MAX ? -1 : (int32_t)(cfa - 8);
}

static int read_fde(const struct elf *elf, uint64_t vaddr, struct function_range *out)
{
	struct unwind_reader r = unwind_reader__at(elf, vaddr, FDE_BYTES_MAX);
	uint64_t length = unwind_reader__take(&r, 4), id_vaddr = r.vaddr, id = unwind_reader__take(&r, 4);
	struct cie cie;

	if (!r.bad && length >= 4 && length - 4 < (uint64_t)(r.end - r.at))
		r.end = r.at + (length - 4);
	if (r.bad || length == 0xffffffff || !id || read_cie(elf, id_vaddr - id, &cie))
		return -ENOTSUP;
	out->start = unwind_reader__take_encoded(&r, cie.pointer_encoding, 0);
	out->end = out->start + unwind_reader__take_encoded(&r, cie.pointer_encoding & 0x0f, 0);
	out->lsda = 0;
	if (cie.has_data && unwind_reader__take_uleb(&r) && cie.lsda_encoding != ENC_OMIT)
		out->lsda = unwind_reader__take_encoded(&r, cie.lsda_encoding, 0);
	if (r.bad || out->end <= out->start)
		return -ENOTSUP;
	out->frame = read_frame(&r);
	return 0;
}

/*
 * .eh_frame_hdr: version, three encodings, .eh_frame, count, then {function, FDE} sorted, as 32-bit
 * distances from the header.
 */
static int search_unwind(const struct elf *elf, uint64_t vaddr, struct function_range *out)
{
	uint64_t hdr, size;

	if (elf__segment(elf, PT_GNU_EH_FRAME, &hdr, &size))
		return -ENOENT;
	struct unwind_reader r = unwind_reader__at(elf, hdr, size);
	uint32_t encodings = unwind_reader__take(&r, 4);
	if (r.bad || (encodings & 0xff) != 1 || encodings >> 16 != (((ENC_DATAREL | ENC_SDATA4) << 8) | ENC_UDATA4))
		return -ENOENT;
	unwind_reader__take_encoded(&r, encodings >> 8 & 0xff, hdr);
	uint64_t cnt = unwind_reader__take(&r, 4);
	if (r.bad || cnt > (uint64_t)(r.end - r.at) / 8)
		return -ENOENT;

	const struct {
		int32_t function, fde;
	} __attribute__((packed)) *entries = (const void *)r.at;
	size_t low = SEARCH(i, 0, cnt, hdr + (int64_t)entries[i].function <= vaddr);
	if (!low || read_fde(elf, hdr + (int64_t)entries[low - 1].fde, out))
		return -ENOENT;
	return vaddr >= out->start && vaddr < out->end ? 0 : -ENOENT;
}

struct function_search {
	uint64_t vaddr;
	struct function_range *out;
};

static int match_cover(const struct elf_symbol *symbol, void *ctx)
{
	struct function_search *want = ctx;

	if (!symbol->function || want->vaddr < symbol->vaddr || want->vaddr - symbol->vaddr >= symbol->size ||
	    symbol->size > UINT64_MAX - symbol->vaddr)
		return 0;
	*want->out = (struct function_range){.start = symbol->vaddr, .end = symbol->vaddr + symbol->size, .frame = -1};
	return 1;
}

int functions__at(const struct elf *elf, uint64_t vaddr, struct function_range *out)
{
	struct function_search want = {vaddr, out};
	int err = search_unwind(elf, vaddr, out);

	if (err)
		err = elf__each_symbol(elf, match_cover, &want) == 1 ? 0 : -ENOENT;
	return err;
}

int functions__each_pad(const struct elf *elf, const struct function_range *range,
			void (*fn)(uint64_t vaddr, void *ctx), void *ctx)
{
	struct unwind_reader r = unwind_reader__at(elf, range->lsda, PADS_BYTES_MAX);
	uint64_t base = range->start;

	if (!range->lsda)
		return 0;
	uint8_t encoding = unwind_reader__take(&r, 1);
	if (encoding != ENC_OMIT)
		base = unwind_reader__take_encoded(&r, encoding, 0);
	if (unwind_reader__take(&r, 1) != ENC_OMIT) /* encoding of types */
		unwind_reader__take_uleb(&r);
	encoding = unwind_reader__take(&r, 1);
	uint64_t size = unwind_reader__take_uleb(&r);
	if (r.bad || size > (uint64_t)(r.end - r.at))
		return -ENOTSUP;
	r.end = r.at + size;
	while (r.at < r.end) {
		unwind_reader__take_encoded(&r, encoding, 0); /* where the calls begin */
		unwind_reader__take_encoded(&r, encoding, 0); /* and their length */
		uint64_t pad = unwind_reader__take_encoded(&r, encoding, 0);
		unwind_reader__take_uleb(&r); /* action */
		if (r.bad)
			return -ENOTSUP;
		if (pad)
			fn(base + pad, ctx);
	}
	return 0;
}
