// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds operators, boxed calls, and the autograd engine's functions in a torch library. In: its
 * symbols and code. Out: struct torch_ops, with probe sites. No state but the cache on disk.
 */
#include "user/runtime/torch/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/cache.h"
#include "user/lib/compare.h"
#include "user/runtime/torch/ops_private.h"
#include "user/x86/flow.h"

/*
 * ---- the classes that derive from torch::autograd::Node, by their type information, which needs no symbols ----
 *
 * Itanium C++ ABI 2.9.5: typeinfo {vtable of __si_class_type_info, name, base's typeinfo}, or for
 * several bases {vtable of __vmi_class_type_info, name, flags, count, {base's typeinfo,
 * offset}...}; 2.5.2: a vtable has {offset to top, typeinfo} before the address that objects hold.
 */

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
 * 0: this file does not say.
 */
static uint16_t sequence_nr_of(const struct elf *elf)
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

/* Fills node, node_cnt with these classes. Their names are allocated. 0 or -ENOMEM. */
static int find_nodes(const struct elf *elf, struct torch_node **node, size_t *node_cnt)
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

/*
 * Finds Node::operator() in a file without a symbol for it: the one function that
 * evaluate_function, at vaddr, calls and that checks for callbacks of RecordFunction. 0 or -ENOENT.
 */
static int find_call_of_node(const struct elf *elf, uint64_t vaddr, uint64_t size, struct function_range *out)
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

/* ---- the cache of what was found in a library: struct torch_ops, with names as offsets ---- */

#define WHAT "operators"

enum ops_cache_part { CODE, FUNCTIONS, NODES, SITES, NAMES, FACTS, PARTS };

struct facts {
	uint32_t unnamed_cnt, unplaced_cnt;
	uint16_t string_bytes, sequence_nr;
};

static const struct cache_part units[PARTS] = {
	[CODE].unit = sizeof(uint64_t),
	[FUNCTIONS].unit = sizeof(struct torch_fn),
	[NODES].unit = sizeof(struct torch_node),
	[SITES].unit = sizeof(struct site),
	[NAMES].unit = 1,
	[FACTS].unit = sizeof(struct facts),
};

static bool is_sound_function(const struct torch_fn *fn, const struct torch_ops *ops)
{
	uint64_t end = (uint64_t)fn->first_site + fn->exit_cnt + fn->unwind_cnt;

	if (fn->event > OP_TEXT || fn->subject >= OP_ARG_STACK || fn->policy > SITES_AFTER_WORK ||
	    fn->arg_cnt > OP_ARGS_MAX || end > ops->site_cnt || (uintptr_t)fn->name >= ops->names_size)
		return false;
	for (uint32_t i = 0; i < fn->arg_cnt; i++)
		if (fn->arg[i].kind >= OP_ARG__COUNT)
			return false;
	return true;
}

/* Turns the valid offsets into pointers. */
static bool resolve_name(struct torch_ops *ops)
{
	if (!ops->names_size || ops->names[ops->names_size - 1])
		return false;
	for (size_t i = 0; i < ops->fn_cnt; i++) {
		if (!is_sound_function(&ops->fn[i], ops))
			return false;
		ops->fn[i].name = ops->names + (uintptr_t)ops->fn[i].name;
	}
	for (size_t i = 0; i < ops->node_cnt; i++) {
		if ((uintptr_t)ops->node[i].name >= ops->names_size)
			return false;
		ops->node[i].name = ops->names + (uintptr_t)ops->node[i].name;
	}
	return true;
}

int ops_cache__load(const struct elf *elf, const char *dir, struct torch_ops **out)
{
	struct cache_part part[PARTS];
	const struct facts *facts;
	struct torch_ops *ops;

	memcpy(part, units, sizeof(part));
	if (cache__load(elf, dir, WHAT, part, PARTS))
		return -ENOENT;
	facts = part[FACTS].data;
	ops = part[FACTS].cnt == 1 ? malloc(sizeof(*ops)) : NULL;
	if (!ops) {
		cache__release(part, PARTS);
		return -ENOENT;
	}
	*ops = (struct torch_ops){
		.fn = part[FUNCTIONS].data,
		.fn_cnt = part[FUNCTIONS].cnt,
		.site = part[SITES].data,
		.site_cnt = part[SITES].cnt,
		.node = part[NODES].data,
		.node_cnt = part[NODES].cnt,
		.names = part[NAMES].data,
		.names_size = part[NAMES].cnt,
		.unnamed_cnt = facts->unnamed_cnt,
		.unplaced_cnt = facts->unplaced_cnt,
		.string_bytes = facts->string_bytes,
		.sequence_nr = facts->sequence_nr,
	};
	free(part[CODE].data);
	free(part[FACTS].data);
	if (resolve_name(ops)) {
		*out = ops;
		return 0;
	}
	torch_ops__free(ops);
	return -ENOENT;
}

static void *copy_block(const void *from, size_t bytes)
{
	void *to = malloc(bytes + 1);

	return to && bytes ? memcpy(to, from, bytes) : to;
}

/* Writes the cache; a failure is silent. */
static void save_ops_cache(const struct elf *elf, const char *dir, const struct torch_ops *ops)
{
	struct torch_fn *fn = copy_block(ops->fn, ops->fn_cnt * sizeof(*fn));
	struct torch_node *node = copy_block(ops->node, ops->node_cnt * sizeof(*node));
	uint64_t *code = malloc((ops->fn_cnt + ops->site_cnt + 1) * sizeof(*code));
	struct facts facts = {ops->unnamed_cnt, ops->unplaced_cnt, ops->string_bytes, ops->sequence_nr};
	struct cache_part part[PARTS];

	if (!fn || !node || !code)
		goto out;
	for (size_t i = 0; i < ops->fn_cnt; i++) {
		fn[i].name = (const char *)(fn[i].name - ops->names);
		code[i] = fn[i].entry.offset;
	}
	for (size_t i = 0; i < ops->node_cnt; i++)
		node[i].name = (const char *)(node[i].name - ops->names);
	for (size_t i = 0; i < ops->site_cnt; i++)
		code[ops->fn_cnt + i] = ops->site[i].offset;
	memcpy(part, units, sizeof(part));
	part[CODE].data = code;
	part[CODE].cnt = ops->fn_cnt + ops->site_cnt;
	part[FUNCTIONS].data = fn;
	part[FUNCTIONS].cnt = ops->fn_cnt;
	part[NODES].data = node;
	part[NODES].cnt = ops->node_cnt;
	part[SITES].data = ops->site;
	part[SITES].cnt = ops->site_cnt;
	part[NAMES].data = ops->names;
	part[NAMES].cnt = ops->names_size;
	part[FACTS].data = &facts;
	part[FACTS].cnt = 1;
	cache__save(elf, dir, WHAT, part, PARTS);
out:
	free(fn);
	free(node);
	free(code);
}

#define OPS_PREFIX   "_ZN2at4_ops"
#define CALL_SUFFIX  "4callE"
#define CALL_BOXED   "_ZNK3c1010Dispatcher9callBoxedERKNS_14OperatorHandleEPSt6vectorINS_6IValueESaIS5_EE"
#define EVALUATE     "_ZN5torch8autograd6Engine17evaluate_functionE"
#define NODE_CALL    "_ZN5torch8autograd4NodeclE"
#define COLLECTIVE   "_ZN4c10d12ProcessGroup"                                  /* ::allreduce, ... */
#define COLLECTIVE_1 "_ZN4c10d3ops"                                            /* of torch 1 */
#define LABEL_ENTER  "_ZN5torch8autograd8profiler25record_function_enter_newE" /* takes a std::string */
#define VARIABLE     "_ZN5torch8autograd12VariableType12_GLOBAL__N_1"
#define TEXT_ENTER   "_pytorch_record_function_enter"
#define TEXT_EXIT    "_pytorch_record_function_exit"
#define OLD_OPTIONAL "3c108optionalI"

enum { RDI, RSI, RDX };

/* Functions that are not operators of the dispatcher, by the prefixes of their symbols. */
struct landmark {
	const char *symbol;
	uint8_t event;
	uint8_t subject;       /* OP_CALL: place of its one tensor */
	uint8_t clone_subject; /* place in GCC's clone of it, which drops an unused argument */
	const char *name;
};

static const struct landmark landmarks[] = {
	{CALL_BOXED, OP_BOXED, RSI, RDI, "Dispatcher::callBoxed"},
	{EVALUATE, OP_EVALUATE, RDX, RDX, "Engine::evaluate_function"},
	{NODE_CALL, OP_NODE, RSI, RSI, "Node::operator()"}, /* %rdi: where the result goes */
	{VARIABLE "6detachE", OP_CALL, RDX, RDX, "detach"},
	{VARIABLE "7detach_E", OP_CALL, RSI, RDI, "detach_"},
	{"_Z17THPFunction_applyP", OP_PYTHON, RDI, RDI, "THPFunction_apply"},
	{"_ZN12_GLOBAL__N_117THPFunction_applyE", OP_PYTHON, RDI, RDI, "THPFunction_apply"}, /* 2.15 */
	{TEXT_ENTER, OP_TEXT, RDI, RDI, TEXT_ENTER},
};

/* A function to analyse, before its sites are known. */
struct op_candidate {
	const char *symbol, *name; /* name NULL: the schema's name */
	uint64_t vaddr, size;
	uint8_t event, subject;
};

struct op_finder {
	const struct elf *elf;
	struct op_candidate *candidate;
	size_t candidate_cnt, candidate_cap;
	struct ops_names names;
	bool old_optional;
	bool bracketed; /* the function that ends OP_TEXT exists */
	struct torch_ops *ops;
	size_t site_cap;
};

/* "add_Tensor" from "_ZN2at4_ops10add_Tensor4callE...". NULL when the symbol is not an operator's. */
static const char *joined_name(const char *symbol, size_t *len)
{
	char *end;

	if (strncmp(symbol, OPS_PREFIX, strlen(OPS_PREFIX)))
		return NULL;
	*len = strtoul(symbol + strlen(OPS_PREFIX), &end, 10);
	if (!*len || *len >= OP_NAME_MAX || strnlen(end, *len) < *len ||
	    strncmp(end + *len, CALL_SUFFIX, strlen(CALL_SUFFIX)))
		return NULL;
	return end;
}

/*
 * Is this a function that calls one operator of the namespace c10d through a handle of its own?
 * These have no at::_ops.
 */
static bool is_collective(const char *symbol)
{
	return !strncmp(symbol, COLLECTIVE, strlen(COLLECTIVE)) || !strncmp(symbol, COLLECTIVE_1, strlen(COLLECTIVE_1));
}

/* Fills in what the entry of this function means. Returns false when it means nothing. */
static bool classify(const char *symbol, struct op_candidate *out)
{
	size_t len;

	if (joined_name(symbol, &len) || is_collective(symbol)) {
		out->event = OP_CALL;
		return true;
	}
	for (size_t i = 0; i < sizeof(landmarks) / sizeof(*landmarks); i++) {
		const struct landmark *landmark = &landmarks[i];

		if (strncmp(symbol, landmark->symbol, strlen(landmark->symbol)))
			continue;
		out->name = landmark->name;
		out->event = landmark->event;
		out->subject = strstr(symbol, ".isra.") ? landmark->clone_subject : landmark->subject;
		return true;
	}
	return false;
}

static int op_finder__add_candidate(const struct elf_symbol *symbol, void *ctx)
{
	struct op_candidate candidate = {.symbol = symbol->name, .vaddr = symbol->vaddr, .size = symbol->size};
	struct op_finder *finder = ctx;

	if (!symbol->function || *symbol->name != '_' || !elf__is_code(finder->elf, symbol->vaddr))
		return 0;
	if (!strcmp(symbol->name, FIND_SCHEMA))
		finder->names.own = symbol->vaddr;
	if (!strncmp(symbol->name, LABEL_ENTER, strlen(LABEL_ENTER)))
		finder->ops->string_bytes = strstr(symbol->name, "RKSs") ? 8 : 32;
	if (!classify(symbol->name, &candidate) || strstr(symbol->name, ".cold") ||
	    finder->candidate_cnt == 2 * OPS_MAX)
		return 0;
	finder->old_optional = finder->old_optional || strstr(symbol->name, OLD_OPTIONAL);
	if (finder->candidate_cnt == finder->candidate_cap) {
		size_t cap = finder->candidate_cap ? 2 * finder->candidate_cap : 4096;
		struct op_candidate *grown = reallocarray(finder->candidate, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		finder->candidate = grown;
		finder->candidate_cap = cap;
	}
	finder->candidate[finder->candidate_cnt++] = candidate;
	return 0;
}

static int compare_candidates(const void *a, const void *b)
{
	const struct op_candidate *x = a, *y = b;

	return x->vaddr < y->vaddr ? -1 : x->vaddr > y->vaddr;
}

static unsigned count_stepped(const struct sites *sites)
{
	unsigned cnt = !sites->entry.emulated;

	for (uint32_t i = 0; i < sites->exit_cnt; i++)
		cnt += !sites->exit[i].emulated;
	return cnt;
}

/*
 * Finds the exit of a function that begins what another function ends, called from the same frame:
 * the other's entry.
 */
static int find_bracket(const struct elf *elf, const struct op_candidate *candidate, struct sites *out)
{
	struct elf_symbol symbol;
	struct sites end;
	int err = elf__symbol(elf, TEXT_EXIT, &symbol);

	err = err ?: sites__find(elf, symbol.vaddr, symbol.size, SITES_STRICT, &end);
	err = err ?: sites__find(elf, candidate->vaddr, candidate->size, SITES_STRICT, out);
	if (err)
		return err;
	out->exit[0] = end.entry;
	out->exit_cnt = 1;
	out->unwind_cnt = 0;
	return 0;
}

/*
 * Finds the sites after all that the function does or, when the kernel would single-step these,
 * those after its work.
 */
static int find_end_sites(const struct elf *elf, const struct op_candidate *candidate, struct sites *out,
			  uint8_t *policy)
{
	struct sites after;
	int err;

	*policy = SITES_STRICT;
	if (candidate->event == OP_TEXT)
		return find_bracket(elf, candidate, out);
	err = sites__find(elf, candidate->vaddr, candidate->size, SITES_STRICT, out);
	if (!err && !count_stepped(out))
		return 0;
	if (!sites__find(elf, candidate->vaddr, candidate->size, SITES_AFTER_WORK, &after) &&
	    (err || count_stepped(&after) < count_stepped(out))) {
		*out = after;
		*policy = SITES_AFTER_WORK;
		err = 0;
	}
	return err;
}

static int op_finder__add_sites(struct op_finder *finder, const struct sites *sites, struct torch_fn *fn)
{
	struct torch_ops *ops = finder->ops;
	size_t cnt = sites->exit_cnt + sites->unwind_cnt;

	if (ops->site_cnt + cnt > finder->site_cap) {
		size_t cap = 2 * (ops->site_cnt + cnt);
		struct site *grown = reallocarray(ops->site, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		ops->site = grown;
		finder->site_cap = cap;
	}
	fn->entry = sites->entry;
	fn->first_site = ops->site_cnt;
	fn->exit_cnt = sites->exit_cnt;
	fn->unwind_cnt = sites->unwind_cnt;
	fn->stepped = count_stepped(sites);
	memcpy(ops->site + ops->site_cnt, sites->exit, sites->exit_cnt * sizeof(*sites->exit));
	memcpy(ops->site + ops->site_cnt + sites->exit_cnt, sites->unwind, sites->unwind_cnt * sizeof(*sites->unwind));
	ops->site_cnt += cnt;
	return 0;
}

/*
 * Finds the argument places. The function's symbol gives its parameters but not its return type;
 * the type against which its handle is checked gives both, and must agree on the parameters.
 * Whatever is not certain stays unknown.
 */
static void find_args(const struct op_finder *finder, const char *symbol, const char *mangled_type, struct torch_fn *fn)
{
	char *whole = ops_names__demangle(symbol), *type = mangled_type ? ops_names__demangle(mangled_type) : NULL;
	const char *params = whole ? strstr(whole, "::call(") : NULL, *same;

	if (params && type) {
		params += strlen("::call");
		same = strlen(type) > strlen(params) ? type + strlen(type) - strlen(params) : "";
		if (strcmp(same, params) || ops_abi__args(type, finder->old_optional, fn->arg, &fn->arg_cnt)) {
			fn->arg_cnt = 0;
			memset(fn->arg, 0, sizeof(fn->arg));
		}
	}
	free(whole);
	free(type);
}

static int op_finder__add_function(struct op_finder *finder, const struct op_candidate *candidate)
{
	struct torch_ops *ops = finder->ops;
	struct torch_fn *fn = &ops->fn[ops->fn_cnt];
	struct op_schema schema;
	struct sites sites;
	const char *joined;
	size_t len = 0;

	*fn = (struct torch_fn){.event = candidate->event, .subject = candidate->subject};
	if (candidate->name && candidate->event == OP_CALL) {
		fn->arg[0] = (struct op_arg){.kind = OP_ARG_TENSOR, .place = candidate->subject};
		fn->arg_cnt = 1;
	} else if (!candidate->name) {
		joined = joined_name(candidate->symbol, &len);
		if (ops_names__find(&finder->names, joined, len, candidate->vaddr, candidate->size, &schema)) {
			ops->unnamed_cnt += joined != NULL; /* the others are methods of many kinds */
			return 0;
		}
		if (joined)
			find_args(finder, candidate->symbol, schema.type, fn);
	}
	if (find_end_sites(finder->elf, candidate, &sites, &fn->policy)) {
		ops->unplaced_cnt++;
		return 0;
	}
	if (fn->event == OP_TEXT) { /* 2.5 has two functions that begin, and one that ends */
		sites.exit_cnt = finder->bracketed ? 0 : sites.exit_cnt;
		finder->bracketed = true;
	}
	if (op_finder__add_sites(finder, &sites, fn))
		return -ENOMEM;
	fn->name = strdup(candidate->name ? candidate->name : schema.name);
	if (!fn->name)
		return -ENOMEM;
	ops->fn_cnt++;
	return 0;
}

static int compare_functions(const void *a, const void *b)
{
	const struct torch_fn *x = a, *y = b;

	return x->event != y->event ? (int)x->event - y->event : strcmp(x->name, y->name);
}

static int compare_node_vtables(const void *a, const void *b)
{
	const struct torch_node *x = a, *y = b;

	return x->vtable < y->vtable ? -1 : x->vtable > y->vtable;
}

/* Node::operator() is a local function, which a stripped file does not name. 0 or -ENOMEM. */
static int find_node_call(struct op_finder *finder)
{
	const struct op_candidate *evaluate = NULL;
	struct elf_symbol symbol = {.name = NODE_CALL, .function = true};
	struct function_range range;

	for (size_t i = 0; i < finder->candidate_cnt; i++) {
		if (finder->candidate[i].event == OP_NODE)
			return 0;
		if (finder->candidate[i].event == OP_EVALUATE)
			evaluate = &finder->candidate[i];
	}
	if (!evaluate || find_call_of_node(finder->elf, evaluate->vaddr, evaluate->size, &range))
		return 0;
	symbol.vaddr = range.start;
	symbol.size = range.end - range.start;
	return op_finder__add_candidate(&symbol, finder);
}

/* callBoxed without `this`, as GCC clones it for its own file. */
static int add_boxed(uint64_t vaddr, uint64_t size, void *finder)
{
	const struct elf_symbol symbol = {.name = CALL_BOXED ".isra.", .vaddr = vaddr, .size = size, .function = true};

	return op_finder__add_candidate(&symbol, finder);
}

/* A stripped file does not name Dispatcher::callBoxed either. 0 or -ENOMEM. */
static int find_boxed(struct op_finder *finder)
{
	for (size_t i = 0; i < finder->candidate_cnt; i++)
		if (finder->candidate[i].event == OP_BOXED)
			return 0;
	return finder->candidate_cnt ? ops_boxed__find(finder->elf, add_boxed, finder) : 0;
}

static int find_op_functions(struct op_finder *finder)
{
	struct torch_ops *ops = finder->ops;
	int err = elf__each_symbol(finder->elf, op_finder__add_candidate, finder);

	err = err ?: find_node_call(finder);
	err = err ?: find_boxed(finder);
	if (err)
		return err;
	ops->fn = calloc(finder->candidate_cnt + 1, sizeof(*ops->fn));
	if (!ops->fn)
		return -ENOMEM;
	if (finder->candidate_cnt)
		qsort(finder->candidate, finder->candidate_cnt, sizeof(*finder->candidate), compare_candidates);
	for (size_t i = 0; i < finder->candidate_cnt && !err; i++)
		/* .symtab repeats .dynsym */
		if (!i || finder->candidate[i].vaddr != finder->candidate[i - 1].vaddr)
			err = op_finder__add_function(finder, &finder->candidate[i]);
	qsort(ops->fn, ops->fn_cnt, sizeof(*ops->fn), compare_functions);
	return err;
}

/* Moves all names into one allocation. */
static int pack_names(struct torch_ops *ops)
{
	size_t used = 0;

	for (size_t i = 0; i < ops->fn_cnt; i++)
		ops->names_size += strlen(ops->fn[i].name) + 1;
	for (size_t i = 0; i < ops->node_cnt; i++)
		ops->names_size += strlen(ops->node[i].name) + 1;
	ops->names = malloc(ops->names_size + 1);
	if (!ops->names)
		return -ENOMEM;
	for (size_t i = 0; i < ops->fn_cnt + ops->node_cnt; i++) {
		const char **name = i < ops->fn_cnt ? &ops->fn[i].name : &ops->node[i - ops->fn_cnt].name;
		size_t size = strlen(*name) + 1;

		memcpy(ops->names + used, *name, size);
		free((char *)*name);
		*name = ops->names + used;
		used += size;
	}
	return 0;
}

static int op_finder__find_all(const struct elf *elf, struct torch_ops *ops)
{
	struct op_finder finder = {.elf = elf, .names.elf = elf, .ops = ops};
	int err = find_op_functions(&finder);

	err = err ?: find_nodes(elf, &ops->node, &ops->node_cnt);
	ops->sequence_nr = sequence_nr_of(elf);
	if (ops->node_cnt)
		qsort(ops->node, ops->node_cnt, sizeof(*ops->node), compare_node_vtables);
	free(finder.candidate);
	return err ?: pack_names(ops);
}

int torch_ops__find(const struct elf *elf, const char *cache_dir, struct torch_ops **out)
{
	struct torch_ops *ops;
	int err;

	if (!ops_cache__load(elf, cache_dir, out))
		return 0;
	ops = calloc(1, sizeof(*ops));
	if (!ops)
		return -ENOMEM;
	err = op_finder__find_all(elf, ops);
	if (!err && !ops->fn_cnt && !ops->node_cnt)
		err = -ENOENT;
	if (err) {
		torch_ops__free(ops);
		return err;
	}
	save_ops_cache(elf, cache_dir, ops);
	*out = ops;
	return 0;
}

void torch_ops__free(struct torch_ops *ops)
{
	if (!ops)
		return;
	/* Until they are packed, names are allocated one by one. */
	for (size_t i = 0; !ops->names && i < ops->fn_cnt; i++)
		free((char *)ops->fn[i].name);
	for (size_t i = 0; !ops->names && i < ops->node_cnt; i++)
		free((char *)ops->node[i].name);
	free(ops->fn);
	free(ops->site);
	free(ops->node);
	free(ops->names);
	free(ops);
}
