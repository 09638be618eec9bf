/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the classes of an ELF file that derive from torch::autograd::Node, by their type
 * information, which needs no symbols. In: relocated pointers. Out: vtables and names. No state.
 *
 * Itanium C++ ABI 2.9.5: typeinfo {vtable of __si_class_type_info, name, base's typeinfo}, or for
 * several bases {vtable of __vmi_class_type_info, name, flags, count, {base's typeinfo,
 * offset}...}; 2.5.2: a vtable has {offset to top, typeinfo} before the address that objects hold.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/runtime/torch/ops_private.h"
#include "user/x86/flow.h"

#define NODE_TYPE    "_ZTIN5torch8autograd4NodeE"
#define PYNODE       "torch::autograd::PyNode"
#define GENERATED    "torch::autograd::generated::"
#define SI_CLASS     "_ZTVN10__cxxabiv120__si_class_type_infoE"
#define VMI_CLASS    "_ZTVN10__cxxabiv121__vmi_class_type_infoE"
#define SI_BASE      16 /* bytes from the typeinfo to its base, or to the first of several */
#define VMI_BASE     24
#define DEPTH_MAX    8 /* levels of derivation to search */
#define NODES_MAX    OPS_MAX
#define TYPE_OFFSET  8  /* CPython: of ob_type in an object, */
#define TYPE_NAME    24 /* and of tp_name in a type; */
#define HEAD_LONGER  16 /* of a free-threaded one both are so much more */
#define VIRTUALS     16 /* functions of a vtable to search */
#define MEMBER_BYTES 32 /* of code between two loads that belong together */
#define CALLBACKS    "_ZN2at27getStepCallbacksUnlessEmptyE"

/* Typeinfos known to derive from Node, ascending; those found in the last round follow `sorted`. */
struct node_types {
	const struct elf *elf;
	uint64_t *type;
	size_t cnt, sorted;
	struct torch_node *node;
	size_t node_cnt;
};

static bool is_known_type(const struct node_types *types, uint64_t type)
{
	return types->sorted && bsearch(&type, types->type, types->sorted, sizeof(type), compare__u64);
}

static bool is_of_kind(const struct elf *elf, uint64_t type, const char *kind)
{
	const char *symbol = elf__slot_symbol(elf, type);

	return symbol && !strcmp(symbol, kind);
}

/*
 * A word that points at a known typeinfo makes the typeinfo around it a derived one, when the word
 * lies where a base does.
 */
static void add_derived(uint64_t vaddr, uint64_t value, const char *symbol, void *ctx)
{
	struct node_types *types = ctx;
	uint64_t type = vaddr - SI_BASE;

	if (!is_known_type(types, value) && !(symbol && !strcmp(symbol, NODE_TYPE)))
		return;
	if (!is_of_kind(types->elf, type, SI_CLASS)) {
		type = vaddr - VMI_BASE;
		if (!is_of_kind(types->elf, type, VMI_CLASS))
			return;
	}
	if (is_known_type(types, type) || types->cnt == NODES_MAX)
		return;
	types->type[types->cnt++] = type;
}

static int find_types(struct node_types *types)
{
	size_t before;

	types->type = calloc(NODES_MAX, sizeof(*types->type));
	if (!types->type)
		return -ENOMEM;
	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		before = types->cnt;
		elf__each_pointer(types->elf, add_derived, types);
		qsort(types->type, types->cnt, sizeof(*types->type), compare__u64);
		types->sorted = types->cnt;
		if (types->cnt == before)
			break;
	}
	return 0;
}

/*
 * The name as Node::name() returns it: generated classes return their own name, PyNode its Python
 * class, others the name from typeid.
 */
static char *node_type_name(const struct elf *elf, uint64_t type)
{
	const char *mangled;
	uint64_t name;
	char *text, *own;

	if (elf__pointer(elf, type + 8, &name))
		return NULL;
	mangled = op_code__text(elf, name);
	text = mangled ? ops_names__demangle(mangled + (*mangled == '*')) : NULL;
	if (!text)
		return NULL;
	if (!strcmp(text, PYNODE)) {
		*text = 0;
	} else if (!strncmp(text, GENERATED, strlen(GENERATED))) {
		own = text + strlen(GENERATED);
		memmove(text, own, strlen(own) + 1);
	}
	return text;
}

/* Whether the word at vaddr points at the typeinfo of the class with that mangled name. */
static bool points_at(const struct elf *elf, uint64_t vaddr, const char *name)
{
	uint64_t type, text_at;
	const char *text;

	if (elf__pointer(elf, vaddr, &type) || elf__pointer(elf, type + 8, &text_at))
		return false;
	text = op_code__text(elf, text_at);
	return text && !strcmp(text, name);
}

/*
 * The sequence number is Node's first member. It follows {vtable, reference counts} since Node has
 * its own counts; before, it followed {vtable, std::weak_ptr}.
 */
uint16_t ops_nodes__sequence_nr(const struct elf *elf)
{
	struct elf_symbol node;

	if (elf__symbol(elf, NODE_TYPE, &node))
		return 0;
	if (points_at(elf, node.vaddr + SI_BASE, "N3c1020intrusive_ptr_targetE"))
		return 16;
	return points_at(elf, node.vaddr + VMI_BASE, "St23enable_shared_from_thisIN5torch8autograd4NodeEE") ? 24 : 0;
}

/* mov disp(%base),%reg of 8 bytes. */
struct field_load {
	uint8_t base, reg;
	int32_t disp;
	size_t size; /* of the instruction; 0: it is another one */
};

static struct field_load load_at(const struct op_code *code, size_t at)
{
	const uint8_t *b = code->bytes + at;
	size_t have = code->size - at;
	struct field_load load = {0};
	int8_t disp8;

	if (have < 4 || (b[0] & 0xfa) != 0x48 || b[1] != 0x8b || (b[2] & 7) == 4)
		return load;
	load.base = (b[0] & 1) << 3 | (b[2] & 7);
	load.reg = (b[0] & 4) << 1 | (b[2] >> 3 & 7);
	if (b[2] >> 6 == 1) {
		memcpy(&disp8, b + 3, sizeof(disp8));
		load.disp = disp8;
		load.size = 4;
	} else if (b[2] >> 6 == 2 && have >= 7) {
		memcpy(&load.disp, b + 3, sizeof(load.disp));
		load.size = 7;
	}
	return load;
}

/* The member of `this` whose object->ob_type->tp_name a function reads. 0: it reads no such thing. */
static uint64_t named_member(const struct op_code *code)
{
	for (size_t i = 0; i < code->size; i++) {
		struct field_load type = load_at(code, i), name;
		int32_t longer = type.disp - TYPE_OFFSET;

		if (!type.size || (longer && longer != HEAD_LONGER))
			continue;
		name = load_at(code, i + type.size);
		if (!name.size || name.disp != TYPE_NAME + longer || name.base != type.reg)
			continue;
		for (size_t k = 1; k <= MEMBER_BYTES && k <= i; k++) {
			struct field_load member = load_at(code, i - k);

			if (member.size && member.size <= k && member.reg == type.base && member.disp > 0)
				return member.disp;
		}
	}
	return 0;
}

/* PyNode::name() is the first virtual function that reads such a member. */
static uint64_t object_of(const struct elf *elf, uint64_t vtable)
{
	uint64_t function, member = 0;

	for (unsigned i = 0; i < VIRTUALS && !member; i++) {
		struct function_range range;
		struct op_code code;

		if (elf__pointer(elf, vtable + 8 * i, &function) || !elf__is_code(elf, function) ||
		    functions__at(elf, function, &range) || range.start != function)
			continue; /* another file's */
		code = op_code__at(elf, function, range.end - range.start);
		member = named_member(&code);
	}
	return member;
}

/* A word that points at such a typeinfo, after a zero and before a function, belongs to a vtable. */
static void add_vtable(uint64_t vaddr, uint64_t value, const char *symbol, void *ctx)
{
	struct node_types *types = ctx;
	uint64_t top, first;
	char *name;

	if (!is_known_type(types, value) || elf__pointer(types->elf, vaddr - 8, &top) || top ||
	    elf__pointer(types->elf, vaddr + 8, &first) || !elf__is_code(types->elf, first))
		return;
	if (types->node_cnt == NODES_MAX)
		return;
	name = node_type_name(types->elf, value);
	if (name)
		types->node[types->node_cnt++] = (struct torch_node){
			.name = name,
			.vtable = vaddr + 8,
			.object = *name ? 0 : object_of(types->elf, vaddr + 8),
		};
}

int ops_nodes__find(const struct elf *elf, struct torch_node **node, size_t *node_cnt)
{
	struct node_types types = {.elf = elf};
	int err = find_types(&types);

	if (err)
		return err;
	types.node = calloc(NODES_MAX, sizeof(*types.node));
	if (types.node)
		elf__each_pointer(elf, add_vtable, &types);
	else
		err = -ENOMEM;
	free(types.type);
	*node = types.node;
	*node_cnt = types.node_cnt;
	return err;
}

static bool looks_for_callbacks(const struct elf *elf, const struct function_range *range)
{
	struct op_code code = op_code__at(elf, range->start, range->end - range->start);
	uint64_t target;

	for (size_t i = 0; op_code__next_call(&code, &i, &target); i++) {
		const char *import = flow__import(elf, target);

		if (import && !strncmp(import, CALLBACKS, strlen(CALLBACKS)))
			return true;
	}
	return false;
}

int ops_nodes__find_call(const struct elf *elf, uint64_t vaddr, uint64_t size, struct function_range *out)
{
	struct op_code code = op_code__at(elf, vaddr, size);
	struct function_range range, found = {0};
	uint64_t target;

	for (size_t i = 0; op_code__next_call(&code, &i, &target); i++) {
		if (!elf__is_code(elf, target) || flow__import(elf, target) || functions__at(elf, target, &range) ||
		    range.start != target || range.start == found.start || !looks_for_callbacks(elf, &range))
			continue;
		if (found.start)
			return -ENOENT; /* ambiguous */
		found = range;
	}
	*out = found;
	return found.start ? 0 : -ENOENT;
}
