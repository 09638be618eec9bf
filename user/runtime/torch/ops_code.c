// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the code of an operator says of it: its schema's name, its type, and where its arguments are.
 * In: functions of an ELF file. No state.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/functions.h"
#include "user/runtime/torch/ops_private.h"
#include "user/x86/flow.h"
#include "user/x86/insn.h"

/* ---- bytes of a function, which are searched without decoding them; the caller must verify what is found ---- */

#define TEXT_MAX 4096

struct op_code op_code__at(const struct elf *elf, uint64_t vaddr, uint64_t size)
{
	struct op_code code = {.vaddr = vaddr};

	if (elf__is_code(elf, vaddr))
		code.bytes = elf__bytes(elf, vaddr, size, &code.size);
	return code;
}

/* The address that the 4 bytes at `at` encode, as the end of an instruction. */
static uint64_t target_at(const struct op_code *code, size_t at)
{
	int32_t distance;

	memcpy(&distance, code->bytes + at, sizeof(distance));
	return code->vaddr + at + sizeof(distance) + (int64_t)distance;
}

bool op_code__next_call(const struct op_code *code, size_t *at, uint64_t *target)
{
	for (; *at + 5 <= code->size; (*at)++) {
		if (code->bytes[*at] != 0xe8)
			continue;
		*target = target_at(code, *at + 1);
		return true;
	}
	return false;
}

const char *op_code__text(const struct elf *elf, uint64_t vaddr)
{
	size_t have;
	const char *text = (const char *)elf__bytes(elf, vaddr, TEXT_MAX, &have);

	return text && memchr(text, 0, have) ? text : NULL;
}

/*
 * Finds the schema name of an operator, from the code of at::_ops::X::call. In: that function. Out:
 * "aten::add.Tensor" and the mangled C++ type. No state.
 *
 * On its first call the function makes its handle, mostly in a function of its own
 * (create_X_typed_handle):
 *	lea  "aten::add"(%rip),%rdx
 *	lea  "Tensor"(%rip),%rcx
 *	call Dispatcher::findSchemaOrThrow
 *	mov  typeinfo@GOT(%rip),%rax or lea typeinfo(%rip),%rax
 * The struct X is named for the name and the overload, joined by '_'. That verifies a match, so the
 * bytes can be searched without decoding instructions.
 */

#define COLLECTIVES      "c10d::"
#define HELPER_BYTES_MAX 1024
#define MANGLED_MAX      4096

/* From libstdc++, whose header is C++ only. */
extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *size, int *status);

char *ops_names__demangle(const char *mangled)
{
	int status;

	return strnlen(mangled, MANGLED_MAX) < MANGLED_MAX ? __cxa_demangle(mangled, NULL, NULL, &status) : NULL;
}

static bool calls_find_schema(struct ops_names *names, uint64_t target)
{
	const char *import;

	if (names->own && target == names->own)
		return true;
	if (names->import)
		return target == names->import;
	import = flow__import(names->elf, target);
	if (!import || strcmp(import, FIND_SCHEMA))
		return false;
	names->import = target;
	return true;
}

/* The string whose address the last `lea x(%rip),%reg` before `end` loads. */
static const char *last_text(const struct elf *elf, const struct op_code *code, size_t end, uint8_t modrm)
{
	for (size_t i = end; i-- > 0;)
		if (i + 7 <= end && code->bytes[i] == 0x48 && code->bytes[i + 1] == 0x8d && code->bytes[i + 2] == modrm)
			return op_code__text(elf, target_at(code, i + 3));
	return NULL;
}

/* Joins both as in the struct's name, and compares. */
static bool is_joined(const char *name, const char *overload, const char *joined, size_t joined_len)
{
	const char *base = strstr(name, "::");
	char text[OP_NAME_MAX];
	int len;

	if (!joined)
		return !strncmp(name, COLLECTIVES, strlen(COLLECTIVES));
	if (!base)
		return false;
	len = snprintf(text, sizeof(text), "%s%s%s", base + 2, *overload ? "_" : "", overload);
	return len > 0 && (size_t)len == joined_len && !memcmp(text, joined, joined_len);
}

/* The mangled type, when the typeinfo of a function type, {vtable, "F...E"}, is at vaddr. */
static const char *type_of(const struct elf *elf, uint64_t vaddr)
{
	const char *text;
	uint64_t name;
	size_t len;

	if (elf__pointer(elf, vaddr + 8, &name))
		return NULL;
	text = op_code__text(elf, name);
	len = text ? strlen(text) : 0;
	return len > 2 && text[0] == 'F' && text[len - 1] == 'E' ? text : NULL;
}

/* The first function type to which the code refers: a helper has only one. */
static const char *find_type(const struct elf *elf, const struct op_code *code)
{
	for (size_t i = 0; i + 7 <= code->size; i++) {
		const uint8_t *b = code->bytes + i;
		const char *symbol, *type;

		if ((b[0] & 0xfb) != 0x48 || (b[2] & 0xc7) != 0x05)
			continue;
		if (b[1] == 0x8b) { /* mov slot(%rip),%reg */
			symbol = elf__slot_symbol(elf, target_at(code, i + 3));
			if (symbol && !strncmp(symbol, "_ZTIF", 5))
				return symbol + 4;
		} else if (b[1] == 0x8d) { /* lea x(%rip),%reg */
			type = type_of(elf, target_at(code, i + 3));
			if (type)
				return type;
		}
	}
	return NULL;
}

static int find_schema_in(struct ops_names *names, const struct op_code *code, const char *joined, size_t joined_len,
			  struct op_schema *out)
{
	uint64_t target;

	for (size_t i = 0; op_code__next_call(code, &i, &target); i++) {
		const char *name, *overload;

		if (!calls_find_schema(names, target))
			continue;
		name = last_text(names->elf, code, i, 0x15);
		overload = last_text(names->elf, code, i, 0x0d);
		if (!name || !overload || !is_joined(name, overload, joined, joined_len))
			continue;
		if (snprintf(out->name, sizeof(out->name), "%s%s%s", name, *overload ? "." : "", overload) >=
		    (int)sizeof(out->name))
			return -ENOENT;
		out->type = find_type(names->elf, code);
		return 0;
	}
	return -ENOENT;
}

/*
 * The same as ops_names__find, in the function at vaddr. Looks up the function's bounds last, since
 * that is slow where the unwind table does not cover it.
 */
static int find_in_helper(struct ops_names *names, uint64_t vaddr, const char *joined, size_t joined_len,
			  struct op_schema *out)
{
	struct op_code code = op_code__at(names->elf, vaddr, HELPER_BYTES_MAX);
	struct function_range range;

	if (find_schema_in(names, &code, joined, joined_len, out))
		return -ENOENT;
	if (functions__at(names->elf, vaddr, &range) || range.start != vaddr)
		return -ENOENT;
	if (code.size > range.end - vaddr)
		code.size = range.end - vaddr;
	return find_schema_in(names, &code, joined, joined_len, out);
}

int ops_names__find(struct ops_names *names, const char *joined, size_t joined_len, uint64_t vaddr, uint64_t size,
		    struct op_schema *out)
{
	struct op_code code = op_code__at(names->elf, vaddr, size);
	uint64_t target;

	if (!find_schema_in(names, &code, joined, joined_len, out))
		return 0;
	for (size_t i = 0; op_code__next_call(&code, &i, &target); i++) {
		if (!flow__import(names->elf, target) && !find_in_helper(names, target, joined, joined_len, out))
			return 0;
	}
	return -ENOENT;
}

/*
 * Finds where an operator gets its arguments. In: a C++ function type as text. Out: places in
 * registers and on the stack. No state.
 *
 * System V ABI for x86-64, 3.2.3: a trivially copyable class of up to two eightbytes goes into
 * registers when enough are left for all of it; otherwise, or when it is larger, it goes on the
 * stack. A class that is not trivially copyable is passed by its address. Which class is which was
 * measured with g++ and the headers of torch 1.13, 2.5 and 2.15.
 */

#define ARRAY_SIZE(x) (sizeof(x) / sizeof(*(x)))
#define OPTIONAL_LEN  (sizeof("std::optional") - 1)

#define INT_REGS      6
#define SSE_REGS      8

/* How an argument is passed: eightbytes in integer and vector registers, or only on the stack. */
struct arg_passing {
	uint8_t ints, floats, words; /* words: on the stack, when not in registers */
	uint8_t kind;                /* enum op_arg_kind */
};

#define WORD                          \
	{                             \
		1, 0, 1, OP_ARG_OTHER \
	}
#define PAIR                          \
	{                             \
		2, 0, 2, OP_ARG_OTHER \
	}
#define MEMORY3                       \
	{                             \
		0, 0, 3, OP_ARG_OTHER \
	}

/*
 * Matches types: the whole text or, when it ends in '<', a template. T? stands for std::optional
 * and c10::optional.
 */
struct type_rule {
	const char *text;
	struct arg_passing passing;
};

static const struct type_rule rules[] = {
	{"at::Tensor", {1, 0, 1, OP_ARG_TENSOR}},
	{"at::Tensor const&", {1, 0, 1, OP_ARG_TENSOR}},
	{"at::Tensor&", {1, 0, 1, OP_ARG_TENSOR}},
	{"T?<at::Tensor>", {1, 0, 1, OP_ARG_OPTIONAL}},
	{"T?<at::Tensor> const&", {1, 0, 1, OP_ARG_OPTIONAL}},
	{"c10::List<T?<at::Tensor> > const&", {1, 0, 1, OP_ARG_OPTIONAL_LIST}},
	{"c10::IListRef<at::Tensor> const&", {1, 0, 1, OP_ARG_TENSOR_LIST_REF}},
	{"c10::ArrayRef<at::Tensor>", {2, 0, 2, OP_ARG_TENSOR_LIST}},
	{"c10::ArrayRef<long>", {2, 0, 2, OP_ARG_INTS}},
	{"c10::ArrayRef<c10::SymInt>", {2, 0, 2, OP_ARG_INTS}},
	{"c10::ArrayRef<", PAIR},
	{"long", {1, 0, 1, OP_ARG_INT}},
	{"bool", {1, 0, 1, OP_ARG_INT}},
	{"c10::SymInt", {1, 0, 1, OP_ARG_INT_REF}},
	{"double", {0, 1, 1, OP_ARG_OTHER}},
	{"c10::ScalarType", WORD},
	{"c10::MemoryFormat", WORD},
	{"c10::Layout", WORD},
	{"c10::Device", WORD},
	{"c10::Stream", PAIR},
	{"at::Dimname", WORD},
	{"T?<long>", PAIR},
	{"T?<double>", {1, 1, 2, OP_ARG_OTHER}},
	{"T?<bool>", WORD},
	{"T?<c10::ScalarType>", WORD},
	{"T?<c10::MemoryFormat>", WORD},
	{"T?<c10::Layout>", WORD},
	{"T?<c10::Device>", WORD},
	{"T?<c10::SymInt>", WORD}, /* from here to std::vector: passed by address */
	{"T?<c10::Scalar>", WORD},
	{"T?<at::Generator>", WORD},
	{"at::Generator", WORD},
	{"c10::Storage", WORD},
	{"c10::Scalar", WORD},
	{"c10::List<", WORD},
	{"std::vector<", WORD},
	{"std::array<bool, 2ul>", WORD},
	{"std::array<bool, 3ul>", WORD},
	{"std::array<bool, 4ul>", WORD},
	{"std::basic_string_view<", PAIR},
	{"c10::basic_string_view<", PAIR},
	{"T?<std::basic_string_view<", MEMORY3},
	{"T?<c10::basic_string_view<", MEMORY3},
	{"T?<c10::ArrayRef<", MEMORY3},
	{"c10::OptionalArrayRef<", MEMORY3},
};

/*
 * Where c10::optional, the older one, differs: its flag comes first, it has no vector class, packs
 * an ArrayRef, and was not trivially copyable around a string.
 */
static const struct type_rule old_rules[] = {
	{"T?<at::Tensor>", {1, 0, 1, OP_ARG_OPTIONAL_OLD}},
	{"T?<at::Tensor> const&", {1, 0, 1, OP_ARG_OPTIONAL_OLD}},
	{"T?<double>", PAIR},
	{"T?<c10::basic_string_view<", WORD},
	{"T?<c10::ArrayRef<", PAIR},
	{"c10::OptionalArrayRef<", PAIR},
};

/*
 * Types returned in registers, besides references; those of `by_address` are returned through a
 * hidden first argument.
 */
static const char *const in_registers[] = {"void", "bool", "long", "double", "c10::ScalarType", "c10::QScheme"};
static const char *const by_address[] = {
	"at::Tensor", "c10::Scalar", "c10::SymInt", "c10::SymBool", "T?<at::Tensor>", "std::vector<", "std::tuple<",
};

/* Whether a rule's text covers a type. */
static bool covers_type(const char *rule, const char *type, size_t len)
{
	for (; *rule && len; rule++, type++, len--) {
		if (!strncmp(rule, "T?", 2) && len > OPTIONAL_LEN &&
		    (!strncmp(type, "std::optional", OPTIONAL_LEN) || !strncmp(type, "c10::optional", OPTIONAL_LEN))) {
			rule += 2;
			type += OPTIONAL_LEN;
			len -= OPTIONAL_LEN;
		}
		if (*rule != *type)
			return false;
	}
	return !*rule && (!len || (rule[-1] == '<' && type[len - 1] == '>'));
}

static bool is_reference(const char *type, size_t len)
{
	return len && (type[len - 1] == '&' || type[len - 1] == '*');
}

static bool is_one_of(const char *const *rule, size_t cnt, const char *type, size_t len)
{
	for (size_t i = 0; i < cnt; i++)
		if (covers_type(rule[i], type, len))
			return true;
	return false;
}

/* For references, only rules for one whole type hold: a template's rule covers its values. */
static const struct arg_passing *find_rule(const struct type_rule *rule, size_t cnt, const char *type, size_t len)
{
	for (size_t i = 0; i < cnt; i++)
		if (covers_type(rule[i].text, type, len) &&
		    (!is_reference(type, len) || rule[i].text[strlen(rule[i].text) - 1] == '&'))
			return &rule[i].passing;
	return NULL;
}

static const struct arg_passing *find_passing(const char *type, size_t len, bool old)
{
	static const struct arg_passing address = WORD;
	const struct arg_passing *how = old ? find_rule(old_rules, ARRAY_SIZE(old_rules), type, len) : NULL;

	if (!how)
		how = find_rule(rules, ARRAY_SIZE(rules), type, len);
	return how ? how : is_reference(type, len) ? &address : NULL;
}

/* Length of the text up to a `stop` outside all brackets, or to the end. */
static size_t span_to(const char *text, const char *stop)
{
	int depth = 0;
	size_t i;

	for (i = 0; text[i] && (depth || !strchr(stop, text[i])); i++) {
		if (text[i] == '<' || text[i] == '(')
			depth++;
		else if (text[i] == '>' || text[i] == ')')
			depth--;
	}
	return i;
}

/* The registers and stack words taken so far. */
struct cursor {
	unsigned ints, floats, words; /* taken */
};

static uint8_t take_int(struct cursor *at, bool fits)
{
	return fits ? at->ints++ : OP_ARG_STACK + at->words++;
}

static struct op_arg place_argument(struct cursor *at, const struct arg_passing *how)
{
	bool fits = how->ints + how->floats && at->ints + how->ints <= INT_REGS && at->floats + how->floats <= SSE_REGS;
	struct op_arg arg = {.kind = how->kind};

	if (!fits && OP_ARG_STACK + at->words + how->words > OP_PLACES)
		arg.kind = OP_ARG_OTHER; /* beyond what stepflame reads */
	if (how->ints && arg.kind != OP_ARG_OTHER) {
		arg.place = take_int(at, fits);
		arg.place2 = how->ints > 1 ? take_int(at, fits) : 0;
	} else if (fits) {
		at->ints += how->ints;
	} else {
		at->words += how->words;
	}
	if (fits)
		at->floats += how->floats;
	return arg;
}

int ops_abi__args(const char *type, bool old_optional, struct op_arg arg[OP_ARGS_MAX], uint8_t *arg_cnt)
{
	size_t ret = span_to(type, "("), len;
	struct cursor at = {0};
	const struct arg_passing *how;
	bool known = true;
	const char *param = type + ret;

	if (*param != '(')
		return -ENOTSUP;
	while (ret && type[ret - 1] == ' ')
		ret--;
	if (is_one_of(by_address, ARRAY_SIZE(by_address), type, ret) && !is_reference(type, ret))
		at.ints = 1;
	else if (!is_reference(type, ret) && !is_one_of(in_registers, ARRAY_SIZE(in_registers), type, ret))
		return -ENOTSUP;
	*arg_cnt = 0;
	for (param++; *param != ')'; param += len + (param[len] == ',')) {
		param += strspn(param, " ");
		len = span_to(param, ",)");
		if (!param[len] || !len)
			return -ENOTSUP;
		if (*arg_cnt == OP_ARGS_MAX)
			return 0;
		how = known ? find_passing(param, len, old_optional) : NULL;
		known = how;
		arg[(*arg_cnt)++] = known ? place_argument(&at, how) : (struct op_arg){.kind = OP_ARG_OTHER};
	}
	return param[1] ? -ENOTSUP : 0;
}

/*
 * ---- copies of c10::Dispatcher::callBoxed, in a file that does not name them ----
 *
 * They are local functions, which stripping leaves without a symbol. Such a copy asks for a
 * profiler's callbacks and, when there are some, reports the operator to them with the values of its
 * stack (ATen/core/dispatch/Dispatcher.h): it calls two exported functions. Other functions that call
 * both have the handle of one operator of their own. A copy instead first follows its first argument,
 * the handle, to the operator's definition, and reads there which arguments decide the dispatch.
 */

#define CALLBACKS    "_ZN2at27getStepCallbacksUnlessEmpty"
#define TELL         "_ZN3c1010Dispatcher17runRecordFunctionE"
#define VALUES       "8ArrayRefI" /* TELL also exists without this argument */
#define PROLOGUE_MAX 48           /* instructions */
#define OPERATOR_MIN 256          /* bytes of a definition before what decides the dispatch: names, schema */
#define RDI          7

static bool is_tell(const char *symbol)
{
	return symbol && !strncmp(symbol, TELL, strlen(TELL)) && strstr(symbol, VALUES);
}

static bool is_callbacks(const char *symbol)
{
	return symbol && !strncmp(symbol, CALLBACKS, strlen(CALLBACKS));
}

struct exported {
	bool (*is)(const char *symbol);
	uint64_t vaddr;
};

static int find_exported(const struct elf_symbol *symbol, void *ctx)
{
	struct exported *exported = ctx;

	if (!symbol->function || !exported->is(symbol->name))
		return 0;
	exported->vaddr = symbol->vaddr;
	return 1;
}

/* mov disp(%base),%reg of 8 bytes: the register, or -1. */
static int loaded(const uint8_t *b, size_t size, uint8_t base, int32_t *disp)
{
	bool wide = (b[0] & 0xf8) == 0x48 && b[1] == 0x8b;

	if (!wide || size < 3 || ((b[0] & 1) << 3 | (b[2] & 7)) != base || (b[2] & 7) == 4)
		return -1;
	*disp = 0;
	if (b[2] >> 6 == 2 && size == 7)
		memcpy(disp, b + 3, sizeof(*disp));
	else if (b[2] >> 6 || size != 3)
		return -1;
	return (b[0] & 4) << 1 | (b[2] >> 3 & 7);
}

/* Does the function first follow %rdi? */
static bool follows_handle(struct decoder *decoder, const struct elf *elf, const struct function_range *range)
{
	int definition = -1;
	uint64_t at = range->start;

	for (int i = 0; i < PROLOGUE_MAX && at < range->end; i++) {
		struct flow_node node;
		const uint8_t *bytes;
		size_t have;
		int32_t disp;

		decoder__node(decoder, elf, at, range->end - at, &node);
		bytes = elf__bytes(elf, at, node.size, &have);
		if (node.kind != FLOW_PLAIN || !bytes || have < node.size)
			return false;
		if (definition < 0) {
			definition = loaded(bytes, node.size, RDI, &disp);
			if (definition >= 0 && disp)
				return false;
		} else if (loaded(bytes, node.size, definition, &disp) >= 0) {
			return disp >= OPERATOR_MIN;
		}
		at += node.size;
	}
	return false;
}

struct boxed_search {
	const struct elf *elf;
	uint64_t callbacks, tell; /* vaddr when this file defines it; 0: the file imports it */
	struct decoder decoder;
	int (*fn)(uint64_t vaddr, uint64_t size, void *ctx);
	void *ctx;
	uint64_t last; /* the last function that was checked */
};

static bool range_calls(const struct boxed_search *search, const struct function_range *range, uint64_t own,
			bool (*is)(const char *))
{
	struct op_code code = op_code__at(search->elf, range->start, range->end - range->start);
	uint64_t target;

	for (size_t i = 0; op_code__next_call(&code, &i, &target); i++)
		if ((own && target == own) || is(flow__import(search->elf, target)))
			return true;
	return false;
}

/* A call of TELL at vaddr. */
static int check_function(struct boxed_search *search, uint64_t vaddr)
{
	struct function_range range;

	if (functions__at(search->elf, vaddr, &range) || range.start == search->last)
		return 0;
	search->last = range.start;
	if (!range_calls(search, &range, search->callbacks, is_callbacks) ||
	    !follows_handle(&search->decoder, search->elf, &range))
		return 0;
	return search->fn(range.start, range.end - range.start, search->ctx);
}

/* The PLT entry of TELL: jmp *slot(%rip), before which there may be an endbr64. 0: none. */
static uint64_t find_plt_entry(const struct boxed_search *search, const struct op_code *code)
{
	static const uint8_t jump[] = {0xff, 0x25};
	const uint8_t *at = code->bytes, *end = at + code->size;

	for (; (at = memmem(at, end - at, jump, sizeof(jump))) && end - at >= 6; at++) {
		size_t slot_at = at - code->bytes + sizeof(jump);

		if (is_tell(elf__slot_symbol(search->elf, target_at(code, slot_at))))
			return code->vaddr + (at - code->bytes);
	}
	return 0;
}

static int search_code(struct boxed_search *search, const struct op_code *code)
{
	uint64_t entry = find_plt_entry(search, code), target;
	int err = 0;

	if (!entry && !search->tell)
		return 0;
	for (size_t i = 0; !err && op_code__next_call(code, &i, &target); i++)
		if ((search->tell && target == search->tell) ||
		    (entry - target <= 5 && is_tell(flow__import(search->elf, target))))
			err = check_function(search, code->vaddr + i);
	return err;
}

int ops_boxed__find(const struct elf *elf, int (*fn)(uint64_t vaddr, uint64_t size, void *ctx), void *ctx)
{
	struct exported callbacks = {.is = is_callbacks}, tell = {.is = is_tell};
	struct boxed_search search = {.elf = elf, .fn = fn, .ctx = ctx};
	uint64_t vaddr, size;
	int err;

	elf__each_symbol(elf, find_exported, &callbacks);
	elf__each_symbol(elf, find_exported, &tell);
	search.callbacks = callbacks.vaddr;
	search.tell = tell.vaddr;
	err = decoder__open(&search.decoder);
	if (err)
		return err;
	for (size_t i = 0; !err && elf__code(elf, i, &vaddr, &size); i++) {
		struct op_code code = op_code__at(elf, vaddr, size);

		err = search_code(&search, &code);
	}
	decoder__close(&search.decoder);
	return err;
}
