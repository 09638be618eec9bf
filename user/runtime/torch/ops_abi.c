/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds where an operator gets its arguments. In: a C++ function type as text. Out: places in
 * registers and on the stack. No state.
 *
 * System V ABI for x86-64, 3.2.3: a trivially copyable class of up to two eightbytes goes into
 * registers when enough are left for all of it; otherwise, or when it is larger, it goes on the
 * stack. A class that is not trivially copyable is passed by its address. Which class is which was
 * measured with g++ and the headers of torch 1.13, 2.5 and 2.15.
 */
#include <errno.h>
#include <string.h>

#include "user/runtime/torch/ops_private.h"

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
