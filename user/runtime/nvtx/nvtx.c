// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Searches a file for NVTX. In: an opened ELF file. Out: places of probes. No state. */
#include "user/runtime/nvtx/nvtx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/functions.h"
#include "user/runtime/nvtx/nvtx_private.h"
#include "user/x86/sites.h"

static const char *const calls[NVTX__COUNT] = {
	[NVTX_PUSH_A] = "nvtxRangePushA",
	[NVTX_PUSH_W] = "nvtxRangePushW",
	[NVTX_PUSH_EX] = "nvtxRangePushEx",
	[NVTX_POP] = "nvtxRangePop",
	[NVTX_DOMAIN_PUSH_EX] = "nvtxDomainRangePushEx",
	[NVTX_DOMAIN_POP] = "nvtxDomainRangePop",
};

#define INIT        "_impl_init_v" /* suffix of the function to which a function's pointer leads at first */
#define GLOBALS     "nvtxGlobals_v"
#define TABLES_MAX  16         /* copies of the table in a file */
#define TABLE_BYTES (4 << 10)  /* of one table, when its size is not known */
#define SWEEP_MAX   (1 << 20)  /* bytes of code to decode to find where an instruction begins, */
#define SWEPT_MAX   (64 << 20) /* and in all */
#define NAMED_MAX   1024       /* functions of each kind: there are some dozens, but a file may claim millions */

/* An NVTX function under its own name. */
struct nvtx_function {
	enum nvtx_call call;
	uint64_t start, size;
};

/* A pointer in a table. */
struct nvtx_slot {
	enum nvtx_call call;
	uint64_t vaddr, init, init_size;
	bool init_reads; /* init reads the pointer itself, so its call does not come back to the same place */
};

struct vaddr_range {
	uint64_t start, size;
};

struct nvtx_search {
	const struct elf *elf;
	struct decoder decoder;
	struct array functions, inits; /* struct nvtx_function */
	struct array internal;         /* NVTX's own code, which is not a call by the program */
	struct array slots;            /* struct nvtx_slot */
	struct vaddr_range table[TABLES_MAX];
	size_t table_cnt;
	struct array *places;
	size_t *missed;
	uint64_t swept; /* bytes of code decoded */
};

static int call_of(const char *name, size_t size)
{
	for (int i = 0; i < NVTX__COUNT; i++)
		if (strlen(calls[i]) == size && !memcmp(calls[i], name, size))
			return i;
	return -1;
}

static bool covers_address(uint64_t start, uint64_t size, uint64_t vaddr)
{
	return vaddr >= start && vaddr - start < size;
}

static int add_nvtx_function(struct array *array, enum nvtx_call call, const struct elf_symbol *symbol)
{
	const struct nvtx_function *f = array->items;
	struct nvtx_function *new;

	for (size_t i = 0; i < array->cnt; i++)
		if (f[i].start == symbol->vaddr)
			return 0;
	if (array->cnt == NAMED_MAX)
		return 0;
	new = array__add(array, sizeof(*new));
	if (!new)
		return -ENOMEM;
	*new = (struct nvtx_function){call, symbol->vaddr, symbol->size};
	return 0;
}

static int add_symbol(const struct elf_symbol *symbol, void *ctx)
{
	struct nvtx_search *s = ctx;
	const char *init;
	struct vaddr_range *range;
	int call;

	if (strncmp(symbol->name, "nvtx", 4))
		return 0;
	if (!symbol->function) {
		if (!strncmp(symbol->name, GLOBALS, strlen(GLOBALS)) && s->table_cnt < TABLES_MAX)
			s->table[s->table_cnt++] = (struct vaddr_range){symbol->vaddr, symbol->size ?: TABLE_BYTES};
		return 0;
	}
	call = call_of(symbol->name, strlen(symbol->name));
	if (call >= 0)
		return add_nvtx_function(&s->functions, call, symbol);
	if (!strstr(symbol->name, "_v") || s->internal.cnt == NAMED_MAX)
		return 0;
	range = array__add(&s->internal, sizeof(*range));
	if (!range)
		return -ENOMEM;
	*range = (struct vaddr_range){symbol->vaddr, symbol->size};
	init = strstr(symbol->name, INIT);
	call = init ? call_of(symbol->name, init - symbol->name) : -1;
	return call >= 0 ? add_nvtx_function(&s->inits, call, symbol) : 0;
}

static const struct nvtx_slot *find_slot(const struct nvtx_search *s, uint64_t vaddr)
{
	const struct nvtx_slot *slot = s->slots.items;

	for (size_t i = 0; i < s->slots.cnt; i++)
		if (slot[i].vaddr == vaddr)
			return &slot[i];
	return NULL;
}

/* Adds the words of the tables that point at the functions to which the pointers lead at first. */
static int add_slots(struct nvtx_search *s)
{
	const struct nvtx_function *init = s->inits.items;

	for (size_t t = 0; t < s->table_cnt; t++) {
		uint64_t bytes = s->table[t].size < TABLE_BYTES ? s->table[t].size : TABLE_BYTES, value;

		for (uint64_t at = s->table[t].start; bytes >= 8; at += 8, bytes -= 8) {
			struct nvtx_slot *slot;

			if (find_slot(s, at) || elf__pointer(s->elf, at, &value) || !value)
				continue;
			for (size_t i = 0; i < s->inits.cnt; i++) {
				if (init[i].start != value)
					continue;
				slot = array__add(&s->slots, sizeof(*slot));
				if (!slot)
					return -ENOMEM;
				*slot = (struct nvtx_slot){init[i].call, at, value, init[i].size, false};
			}
		}
	}
	return 0;
}

static bool is_internal_code(const struct nvtx_search *s, uint64_t vaddr)
{
	const struct vaddr_range *range = s->internal.items;

	for (size_t i = 0; i < s->internal.cnt; i++)
		if (covers_address(range[i].start, range[i].size, vaddr))
			return true;
	return false;
}

/* ---- places ---- */

static bool is_known_value(struct nvtx_value value)
{
	return value.base != NVTX_BASE_UNKNOWN;
}

/*
 * Does BPF get all it needs? Attributes that the code writes after the jump are not yet there at
 * the jump.
 */
static bool is_complete(enum nvtx_call call, const struct nvtx_arguments *a)
{
	switch (call) {
	case NVTX_PUSH_A:
	case NVTX_PUSH_W:
	case NVTX_DOMAIN_POP:
		return is_known_value(a->value[0]);
	case NVTX_PUSH_EX:
		return is_known_value(a->value[0]) && !a->stores;
	case NVTX_DOMAIN_PUSH_EX:
		return is_known_value(a->value[0]) && is_known_value(a->value[1]) && !a->stores;
	default:
		return true;
	}
}

/* Adds `place` and its `more` places, one after the other. */
static int add_places(struct nvtx_search *s, const struct nvtx_place *place)
{
	struct nvtx_place *known = s->places->items;
	bool more = true;

	for (size_t i = 0; i < s->places->cnt; i++) {
		if (known[i].offset != place->offset)
			continue;
		/* One jump serves two functions, and which of them runs is not known there. */
		if (memcmp(&known[i].site, &place->site, sizeof(place->site)))
			known[i].site.call = NVTX__COUNT;
		return 0;
	}
	for (; more; place++) {
		known = array__add(s->places, sizeof(*known));
		if (!known)
			return -ENOMEM;
		*known = *place;
		more = place->site.more;
	}
	return 0;
}

static void drop_ambiguous(struct nvtx_search *s)
{
	struct nvtx_place *place = s->places->items;
	bool follows = false, drop = false;
	size_t cnt = 0;

	for (size_t i = 0; i < s->places->cnt; i++) {
		if (!follows) {
			drop = place[i].site.call == NVTX__COUNT;
			*s->missed += drop;
		}
		follows = place[i].site.more;
		if (!drop)
			place[cnt++] = place[i];
	}
	s->places->cnt = cnt;
}

static int add_checked_code(struct nvtx_search *s, enum nvtx_call call, uint64_t init, const struct nvtx_code *code)
{
	struct nvtx_place place[NVTX_MERGED_MAX] = {0};
	int64_t distance = (int64_t)(init - code->jump);
	uint64_t offset = 0;
	bool complete = elf__is_code(s->elf, code->jump) && !elf__offset(s->elf, code->jump, &offset) &&
			distance == (int32_t)distance;

	for (uint8_t i = 0; i < code->cnt; i++) {
		const struct nvtx_arguments *a = &code->call[i];

		complete = complete && is_complete(call, a);
		place[i] = (struct nvtx_place){
			.offset = offset,
			.site = {.call = call,
				 .pointer = code->pointer,
				 .more = i + 1 < code->cnt,
				 .init = i ? 0 : distance,
				 .argument = {a->value[0], a->value[1]}},
		};
	}
	if (complete)
		return add_places(s, place);
	++*s->missed;
	return 0;
}

/* Whether an instruction begins there, by decoding its function from the start. */
static bool begins_instruction(struct nvtx_search *s, uint64_t vaddr)
{
	struct function_range range;
	struct flow_node node;
	uint64_t at;

	if (functions__at(s->elf, vaddr, &range) || vaddr - range.start > SWEEP_MAX || s->swept > SWEPT_MAX)
		return false;
	s->swept += vaddr - range.start;
	for (at = range.start; at < vaddr; at += node.size) {
		decoder__node(&s->decoder, s->elf, at, SIZE_MAX, &node);
		if (node.kind == FLOW_BAD)
			return false;
	}
	return at == vaddr;
}

/* An instruction at vaddr seems to read, or take the address of, what lies at `target`. */
static int add_use(struct nvtx_search *s, uint64_t vaddr, uint64_t target)
{
	const struct nvtx_slot *slot = find_slot(s, target);
	struct nvtx_code code;
	bool in_table = false;

	for (size_t i = 0; i < s->table_cnt && !in_table; i++)
		in_table = covers_address(s->table[i].start, s->table[i].size, target);
	if (!slot && !in_table)
		return 0;
	for (size_t i = 0; i < s->slots.cnt; i++) {
		struct nvtx_slot *own = (struct nvtx_slot *)s->slots.items + i;

		if (covers_address(own->init, own->init_size, vaddr) && own->vaddr == target)
			own->init_reads = true;
	}
	if (is_internal_code(s, vaddr) || !begins_instruction(s, vaddr))
		return 0;
	if (nvtx_code__read(&s->decoder, s->elf, vaddr, &code)) {
		*s->missed += slot != NULL;
		return 0;
	}
	slot = find_slot(s, code.slot);
	return slot ? add_checked_code(s, slot->call, slot->init, &code) : 0;
}

/* mov or lea, of a 64-bit register, relative to %rip: REX.W, 8b or 8d, ModRM 00 reg 101, disp32. */
static int scan_code(struct nvtx_search *s, uint64_t start, const uint8_t *code, size_t size)
{
	int err = 0;

	for (size_t i = 0; i + 7 <= size && !err; i++) {
		int32_t disp;

		if ((code[i] & 0xfb) != 0x48 || (code[i + 1] & 0xf9) != 0x89 || !(code[i + 1] & 6) ||
		    code[i + 1] == 0x8f || (code[i + 2] & 0xc7) != 5)
			continue;
		memcpy(&disp, code + i + 3, sizeof(disp));
		err = add_use(s, start + i, start + i + 7 + disp);
	}
	return err;
}

static int add_uses(struct nvtx_search *s)
{
	uint64_t start, size;
	int err = 0;

	for (size_t n = 0; s->slots.cnt && !err && elf__code(s->elf, n, &start, &size); n++) {
		size_t have;
		const uint8_t *code = elf__bytes(s->elf, start, size, &have);

		if (code)
			err = scan_code(s, start, code, have);
	}
	return err;
}

/*
 * Clears `init` of the places whose init reads the pointer itself: such an init's call does not
 * come back to the same place.
 */
static void settle_inits(struct nvtx_search *s)
{
	struct nvtx_place *place = s->places->items;
	const struct nvtx_slot *slot = s->slots.items;
	uint64_t vaddr;

	for (size_t i = 0; i < s->places->cnt; i++)
		for (size_t k = 0; k < s->slots.cnt; k++)
			if (slot[k].init_reads && !elf__vaddr(s->elf, place[i].offset, &vaddr) &&
			    place[i].site.call == slot[k].call && vaddr + place[i].site.init == slot[k].init)
				place[i].site.init = 0;
}

static bool has_nvtx_place(const struct nvtx_search *s, const struct nvtx_function *f)
{
	const struct nvtx_place *place = s->places->items;
	uint64_t vaddr;

	for (size_t i = 0; i < s->places->cnt; i++)
		if (!elf__vaddr(s->elf, place[i].offset, &vaddr) && covers_address(f->start, f->size ?: 1, vaddr))
			return true;
	return false;
}

/* Adds the entry of a function of another form; its arguments are those at its entry. */
static int add_entry(struct nvtx_search *s, const struct nvtx_function *f)
{
	static const struct nvtx_value first = {.base = 7 /* %rdi */}, second = {.base = 6};
	struct nvtx_place place = {.site = {.call = f->call, .pointer = NVTX_BASE_NONE, .argument = {first, second}}};
	struct sites sites;

	if (sites__find(s->elf, f->start, f->size, SITES_STRICT, &sites)) {
		++*s->missed;
		return 0;
	}
	place.offset = sites.entry.offset;
	return add_places(s, &place);
}

/* Adds functions whose table has no symbol, or that are compiled in another form. */
static int add_stripped_functions(struct nvtx_search *s)
{
	const struct nvtx_function *f = s->functions.items;
	int err = 0;

	for (size_t i = 0; i < s->functions.cnt && !err; i++) {
		struct nvtx_code code;
		uint64_t init;

		if (has_nvtx_place(s, &f[i]))
			continue;
		if (!nvtx_code__read(&s->decoder, s->elf, f[i].start, &code) &&
		    !elf__pointer(s->elf, code.slot, &init) && elf__is_code(s->elf, init))
			err = add_checked_code(s, f[i].call, init, &code);
		else
			err = add_entry(s, &f[i]);
	}
	return err;
}

int nvtx__find(const struct elf *elf, struct array *places, size_t *missed)
{
	struct nvtx_search s = {.elf = elf, .places = places, .missed = missed};
	int err;

	*missed = 0;
	if (!elf__mentions(elf, "nvtxRangePop") && !elf__mentions(elf, "nvtxDomainRangePop"))
		return 0;
	err = elf__each_symbol(elf, add_symbol, &s);
	if (!err && (s.functions.cnt || s.inits.cnt)) {
		err = decoder__open(&s.decoder);
		if (!err) {
			err = add_slots(&s) ?: add_uses(&s);
			settle_inits(&s);
			err = err ?: add_stripped_functions(&s);
			drop_ambiguous(&s);
			decoder__close(&s.decoder);
		}
	}
	free(s.functions.items);
	free(s.inits.items);
	free(s.internal.items);
	free(s.slots.items);
	return err;
}

bool nvtx__is_internal(const char *path)
{
	/* libtorch_cpu has no ranges, and is large. */
	static const char *const files[] = {"libtorch_cuda", "libtorch_cpu", "libtorch_nvshmem", "libnccl",
					    "libnvshmem"};
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (!strncmp(base, files[i], strlen(files[i])))
			return true;
	return false;
}
