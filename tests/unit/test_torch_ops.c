/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operators and autograd nodes: argument places, compared with what the ABI says by hand for operators of torch 1.13
 * and 2.15; names, sites and nodes of a small library that a C++ compiler builds; and the cache, whole, cut and with
 * bytes flipped.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/runtime/torch/ops.c"
#include "user/runtime/torch/ops.h"

static char dir[] = "/tmp/stepflame-ops-XXXXXX";
static char library[sizeof(dir) + 16], changed[sizeof(dir) + 16], cache[sizeof(dir) + 16];

/* What libtorch_cpu has, in small: handles made in functions of their own, and classes that derive from Node. */
static const char fixture[] =
	"#include <memory>\n"
	"#include <typeinfo>\n"
	"#include <vector>\n"
	"namespace at { struct Tensor { void *p; Tensor(const Tensor &); ~Tensor(); }; enum class RecordScope : char { "
	"F };\n"
	"void getStepCallbacksUnlessEmpty(RecordScope); }\n"
	"namespace c10 { struct Scalar; template <class T> struct ArrayRef { const T *p; unsigned long n; }; struct "
	"Unheard { int "
	"x[5]; };\n"
	"struct OperatorHandle { void *def, *at; ~OperatorHandle(); };\n"
	"struct IValue { long a, b; }; struct DispatchKeySet { unsigned long keys; };\n"
	"struct Dispatcher { OperatorHandle findSchemaOrThrow(const char *, const char *); void check(OperatorHandle "
	"&, const "
	"std::type_info &);\n"
	" void callBoxed(const OperatorHandle &, std::vector<IValue> *) const; };\n"
	"Dispatcher &dispatcher(); void *kernel(OperatorHandle &);\n"
	"void Dispatcher::callBoxed(const OperatorHandle &o, std::vector<IValue> *s) const { auto f = (void (*)(void "
	"*))kernel((OperatorHandle &)o); f(s); } }\n"
	"using namespace at; using namespace c10;\n"
	"#define OP(X, NAME, OVERLOAD, RET, PARAMS, ARGS) \\\n"
	" struct X { static RET call PARAMS; }; static __attribute__((noinline)) OperatorHandle create_##X() { auto h "
	"= "
	"dispatcher().findSchemaOrThrow(NAME, OVERLOAD); \\\n"
	"  dispatcher().check(h, typeid(RET PARAMS)); return h; } \\\n"
	" RET X::call PARAMS { static auto h = create_##X(); return ((RET(*) PARAMS)kernel(h)) ARGS; }\n"
	"namespace at { namespace _ops {\n"
	"OP(add_Tensor, \"aten::add\", \"Tensor\", Tensor, (const Tensor &a, const Tensor &b, const Scalar &c), (a, b, "
	"c))\n"
	"OP(add__Tensor, \"aten::add_\", \"Tensor\", Tensor &, (Tensor &a, const Tensor &b, const Scalar &c), (a, b, "
	"c))\n"
	"OP(relu, \"aten::relu\", \"\", Tensor, (const Tensor &a), (a))\n"
	"OP(_foreach_zero_, \"aten::_foreach_zero_\", \"\", void, (ArrayRef<Tensor> a), (a))\n"
	"OP(strange, \"aten::strange\", \"\", long, (const Tensor &a, Unheard b, const Tensor &c), (a, b, c))\n"
	"OP(liar, \"aten::truth\", \"\", long, (const Tensor &a), (a))\n"
	"} }\n"
	"namespace torch { namespace autograd {\n"
	"struct Node : std::enable_shared_from_this<Node> { virtual ~Node() {} virtual const char *name() { return 0; "
	"} long operator()(long); virtual long apply(long) = 0; };\n"
	"__attribute__((noinline, visibility(\"hidden\"))) long Node::operator()(long a) { "
	"getStepCallbacksUnlessEmpty(RecordScope::F); return "
	"apply(a) + 1; }\n"
	"struct TraceableFunction : Node {};\n"
	"struct Hook { virtual ~Hook() {} };\n"
	"struct AccumulateGrad : Node { long apply(long a) override { return a; } };\n"
	"struct Type { long a, b, c; const char *name; }; struct Object { long a; Type *type; };\n"
	"struct PyNode : Node { long apply(long a) override { return a + 2; } long member[5]; Object *object;\n"
	" const char *name() override { return object->type->name; } };\n"
	"namespace VariableType { namespace { __attribute__((noipa, used)) Tensor detach(DispatchKeySet k, const "
	"Tensor "
	"&a) { return ((Tensor(*)(const Tensor &))kernel(*(OperatorHandle *)k.keys))(a); } } }\n"
	"struct Both : Node, Hook { long apply(long a) override { return a + 4; } };\n"
	"template <class T> struct CppNode : Node { long apply(long a) override { return a + 3; } };\n"
	"namespace generated { struct MulBackward0 : TraceableFunction { long apply(long a) override { return a * 2; } "
	"}; }\n"
	"struct Engine { long evaluate_function(void *, Node *); };\n"
	"long Engine::evaluate_function(void *a, Node *n) { return (*n)(3) + 1; }\n"
	"Node *make(int i) { switch (i) { case 0: return new AccumulateGrad; case 1: return new PyNode; case 2: return "
	"new "
	"CppNode<int>; case 3: return new Both; }\n"
	" return new generated::MulBackward0; }\n"
	"} }\n"
	"struct _object; _object *called(_object *); _object *THPFunction_apply(_object *c, _object *a) { called(c); "
	"return called(a) ? c : a; }\n"
	"extern \"C\" { _object *_pytorch_record_function_enter(const char *name) { return called((_object *)name) ? 0 "
	": called(0); }\n"
	"void _pytorch_record_function_exit(_object *a) { if (a) { called(a); called(0); } } }\n";

static int build(void **state)
{
	char command[512], path[sizeof(library)];
	FILE *f;

	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/f.cc", dir);
	snprintf(library, sizeof(library), "%s/f.so", dir);
	snprintf(changed, sizeof(changed), "%s/g.so", dir);
	snprintf(cache, sizeof(cache), "%s/cache", dir);
	f = fopen(path, "w");
	if (!f || fputs(fixture, f) < 0 || fclose(f))
		return -1;
	snprintf(command, sizeof(command),
		 "cd %s && c++ -w -O2 -fPIC -shared -Wl,--build-id=0x00ff10a6 f.cc -o f.so &&"
		 " c++ -w -O1 -fPIC -shared -Wl,--build-id=0x00ff10a6 f.cc -o g.so",
		 dir);
	if (system(command))
		library[0] = 0;
	return 0;
}

static int clean(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command) ? -1 : 0;
}

static struct elf *open_library(const char *path)
{
	struct elf *elf;

	if (!library[0]) {
		print_message("skipped: no C++ compiler (c++) that builds the fixture\n");
		skip();
	}
	assert_int_equal(elf__new(path, &elf), 0);
	return elf;
}

/*
 * T tensor, O and o optional tensor (std::, c10::), L tensor list, I int list, i int, P optional list, R list
 * reference, s symbolic int, - other; places: 0-5 registers, +i the i-th word on the stack.
 */
static int print_place(uint8_t place, char *out, size_t size)
{
	bool on_stack = place >= OP_ARG_STACK;

	return snprintf(out, size, on_stack ? "+%u" : "%u", place - (on_stack ? OP_ARG_STACK : 0));
}

static void print_args(const struct op_arg *arg, uint8_t cnt, char *out, size_t size)
{
	static const char letters[OP_ARG__COUNT] = "-TOLIiPRso";
	size_t used = 0;

	*out = 0;
	for (uint8_t i = 0; i < cnt; i++) {
		bool pair = arg[i].kind == OP_ARG_TENSOR_LIST || arg[i].kind == OP_ARG_INTS;

		used += snprintf(out + used, size - used, i ? " %c" : "%c", letters[arg[i].kind]);
		if (arg[i].kind)
			used += print_place(arg[i].place, out + used, size - used);
		if (pair) {
			used += snprintf(out + used, size - used, ",");
			used += print_place(arg[i].place2, out + used, size - used);
		}
	}
}

static const struct {
	const char *ret, *symbol;
	bool old;
	const char *args;
} places[] = {
	{"at::Tensor", "_ZN2at4_ops3cat4callERKN3c108IListRefINS_6TensorEEEl", false, "R1 i2"},
	{"at::Tensor", "_ZN2at4_ops12index_Tensor4callERKNS_6TensorERKN3c104ListISt8optionalIS2_EEE", false, "T1 P2"},
	{"at::Tensor", "_ZN2at4_ops12index_Tensor4callERKNS_6TensorERKN3c104ListINS5_8optionalIS2_EEEE", true, "T1 P2"},
	{"void", "_ZN2at4_ops20_foreach_add__Scalar4callEN3c108ArrayRefINS_6TensorEEERKNS2_6ScalarE", false, "L0,1 -"},
	{"at::Tensor",
	 "_ZN2at4_ops11convolution4callERKNS_6TensorES4_RKSt8optionalIS2_EN3c108ArrayRefINS9_6SymIntEEESC_SC_bSC_SB_",
	 false, "T1 T2 O3 I4,5 I+0,+1 I+2,+3 i+4 I+5,+6 s+7"},
	{"at::Tensor",
	 "_ZN2at4_ops11convolution4callERKNS_6TensorES4_RKN3c108optionalIS2_EENS5_8ArrayRefIlEESB_SB_bSB_l", true,
	 "T1 T2 o3 I4,5 I+0,+1 I+2,+3 i+4 I+5,+6 i+7"},
	{"std::tuple<at::Tensor, at::Tensor, at::Tensor>",
	 "_ZN2at4_ops17native_batch_norm4callERKNS_6TensorERKSt8optionalIS2_ES8_S8_S8_bdd", false,
	 "T1 O2 O3 O4 O5 i+0 - -"},
	/* compute_log_sumexp in the last register; dropout_p in a vector register; is_causal on the stack */
	{"std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>",
	 "_ZN2at4_ops39_scaled_dot_product_efficient_attention4callERKNS_6TensorES4_S4_RKSt8optionalIS2_EbdbS5_IdE",
	 false, "T1 T2 T3 O4 i5 - i+0 -"},
	{"std::tuple<at::Tensor, at::Tensor, at::Tensor>",
	 "_ZN2at4_ops10lstm_input4callERKNS_6TensorEN3c108ArrayRefIS2_EES7_bldbbb", false,
	 "T1 L2,3 L4,5 i+0 i+1 - i+2 i+3 i+4"},
	/*
	 * 24 bytes on the stack, so keepdim is in %rdx; an optional array of 16 bytes in %rdx and %rcx, so it is in %r8
	 */
	{"at::Tensor",
	 "_ZN2at4_ops15sum_dim_IntList4callERKNS_6TensorEN3c1016OptionalArrayRefIlEEbSt8optionalINS5_10ScalarTypeEE",
	 false, "T1 - i2 -"},
	{"at::Tensor",
	 "_ZN2at4_ops15sum_dim_IntList4callERKNS_6TensorEN3c1016OptionalArrayRefIlEEbNS5_8optionalINS5_10ScalarTypeEEE",
	 true, "T1 - i4 -"},
	{"at::Tensor",
	 "_ZN2at4_ops19empty_memory_format4callEN3c108ArrayRefINS2_6SymIntEEESt8optionalINS2_10ScalarTypeEES6_INS2_"
	 "6LayoutEES6_INS2_6DeviceEES6_IbES6_INS2_12MemoryFormatEE",
	 false, "I1,2 - - - - -"},
	/* a list does not fit into the one register that is left: the register goes to the next that fits */
	{"at::Tensor&", "_ZN2at4_ops1x4callERNS_6TensorES3_S3_S3_S3_N3c108ArrayRefIlEEl", false,
	 "T0 T1 T2 T3 T4 I+0,+1 i5"},
	{"std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>",
	 "_ZN2at4_ops10_cudnn_rnn4callERKNS_6TensorEN3c108ArrayRefIS2_EElRKSt8optionalIS2_ES4_SB_lNS5_6SymIntESC_"
	 "lbdbbNS6_ISC_EESB_",
	 false, "T1 L2,3 i4 O5 T+0 O+1 i+2 s+3 s+4 i+5 i+6 - i+7 i+8 I+9,+10 O+11"},
	/* the most words on the stack of all operators */
	{"std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>",
	 "_ZN2at4_ops25mkldnn_rnn_layer_backward4callERKNS_6TensorES4_S4_S4_S4_S4_S4_S4_S4_S4_RKSt8optionalIS2_ES8_S8_"
	 "blllbbbN3c108ArrayRefIlEEbS4_",
	 false, "T1 T2 T3 T4 T5 T+0 T+1 T+2 T+3 T+4 O+5 O+6 O+7 i+8 i+9 i+10 i+11 i+12 i+13 i+14 I+15,+16 i+17 T+18"},
	/* farther than is looked at, which only integers of a made-up one are */
	{"void", "_ZN2at4_ops1x4callERKNS_6TensorEdN3c108ArrayRefIlEES7_S7_S7_S7_S7_S7_S7_S7_S7_S7_S7_S7_S7_S7_bS3_",
	 false,
	 "T0 - I1,2 I3,4 I+0,+1 I+2,+3 I+4,+5 I+6,+7 I+8,+9 I+10,+11 I+12,+13 I+14,+15 I+16,+17 I+18,+19 I+20,+21 "
	 "I+22,+23 - i5 -"},
	/* nine doubles: the last one is on the stack */
	{"void", "_ZN2at4_ops1x4callEdddddddddllllll", false, "- - - - - - - - - i0 i1 i2 i3 i4 i5"},
	{"void", "_ZN2at4_ops1x4callEdddddddddlllllll", false, "- - - - - - - - - i0 i1 i2 i3 i4 i5 i+1"},
	/* Behind a type that is not known nothing is known; a reference to one is an address. */
	{"void", "_ZN2at4_ops1x4callERKNS_6TensorE3FooS4_", false, "T0 - -"},
	{"void", "_ZN2at4_ops1x4callERKNS_6TensorERK3FooS4_", false, "T0 - T2"},
	{"void", "_ZN2at4_ops1x4callERKN3c108ArrayRefINS_6TensorEEEl", false, "- i1"},
	{"long", "_ZN2at4_ops1x4callEv", false, ""},
};

/* Types are tested as text of the demangled symbol: "RET (PARAMS)". */
static void type_of(const char *ret, const char *symbol, char *out, size_t size)
{
	char *text = ops_names__demangle(symbol);

	assert_non_null(text);
	snprintf(out, size, "%s %s", ret, strstr(text, "::call(") + 6);
	free(text);
}

static void places_are_those_of_the_abi(void **state)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		struct op_arg arg[OP_ARGS_MAX] = {0};
		char type[2048], args[256];
		uint8_t cnt = 0;

		type_of(places[i].ret, places[i].symbol, type, sizeof(type));
		assert_int_equal(ops_abi__args(type, places[i].old, arg, &cnt), 0);
		print_args(arg, cnt, args, sizeof(args));
		assert_string_equal(args, places[i].args);
	}
}

static void types_that_are_not_understood(void **state)
{
	static const char *const bad[] = {
		"",
		"long",
		"long (",
		"long (long",
		"long (long,",
		"long ()x",
		"3 (long)",
		"Foo (long)",
		"Foo<int> (long)",
		"at::Tensor>> (long)",
		"long (,long)",
		"long (c10::ArrayRef<long)",
		")(",
		"long () const",
	};
	struct op_arg arg[OP_ARGS_MAX];
	uint8_t cnt;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(ops_abi__args(bad[i], false, arg, &cnt), -ENOTSUP);
	/* no end of arguments, and texts cut anywhere */
	char many[2048] = "void (";
	for (int i = 0; i < 100; i++)
		strcat(many, "long, ");
	strcat(many, "long)");
	assert_int_equal(ops_abi__args(many, false, arg, &cnt), 0);
	assert_int_equal(cnt, OP_ARGS_MAX);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		char type[2048];

		type_of(places[i].ret, places[i].symbol, type, sizeof(type));
		for (size_t end = strlen(type) - 1; end; end--) {
			char *cut = strndup(type, end);

			ops_abi__args(cut, false, arg, &cnt);
			free(cut);
		}
	}
}

static const struct torch_fn *function_of(const struct torch_ops *ops, enum op_event event, const char *name)
{
	for (size_t i = 0; i < ops->fn_cnt; i++)
		if (ops->fn[i].event == event && (!name || !strcmp(ops->fn[i].name, name)))
			return &ops->fn[i];
	return NULL;
}

static void assert_args(const struct torch_ops *ops, const char *name, const char *want)
{
	const struct torch_fn *fn = function_of(ops, OP_CALL, name);
	char args[256];

	assert_non_null(fn);
	print_args(fn->arg, fn->arg_cnt, args, sizeof(args));
	assert_string_equal(args, want);
	assert_true(fn->exit_cnt > 0);
	assert_true(fn->first_site + fn->exit_cnt + fn->unwind_cnt <= ops->site_cnt);
}

static void check_fixture(const struct torch_ops *ops)
{
	assert_args(ops, "aten::add.Tensor", "T1 T2 -");
	assert_args(ops, "aten::add_.Tensor", "T0 T1 -");
	assert_args(ops, "aten::relu", "T1");
	assert_args(ops, "aten::_foreach_zero_", "L0,1");
	assert_args(ops, "aten::strange", "T0 - -");
	/* A name that is not the struct's is none. */
	assert_null(function_of(ops, OP_CALL, "aten::truth"));
	assert_int_equal(ops->unnamed_cnt, 1);
	assert_int_equal(ops->unplaced_cnt, 0);
	assert_non_null(function_of(ops, OP_EVALUATE, NULL));
	assert_int_equal(function_of(ops, OP_EVALUATE, NULL)->subject, 2);
	assert_int_equal(function_of(ops, OP_NODE, NULL)->subject, 1);
	assert_int_equal(function_of(ops, OP_BOXED, NULL)->subject, 1);
	assert_args(ops, "detach", "T2");
	assert_int_equal(function_of(ops, OP_PYTHON, NULL)->subject, 0);
	assert_int_equal(function_of(ops, OP_TEXT, NULL)->subject, 0);
	assert_int_equal(ops->sequence_nr, 24);
}

static void operators_of_a_library(void **state)
{
	struct elf *elf = open_library(library);
	struct torch_ops *ops;

	assert_int_equal(torch_ops__find(elf, NULL, &ops), 0);
	check_fixture(ops);
	torch_ops__free(ops);
	elf__free(elf);
}

static void nodes_of_a_library(void **state)
{
	static const struct {
		const char *symbol, *name;
	} want[] = {
		{"_ZTVN5torch8autograd9generated12MulBackward0E", "MulBackward0"},
		{"_ZTVN5torch8autograd14AccumulateGradE", "torch::autograd::AccumulateGrad"},
		{"_ZTVN5torch8autograd7CppNodeIiEE", "torch::autograd::CppNode<int>"},
		{"_ZTVN5torch8autograd4BothE", "torch::autograd::Both"},
		{"_ZTVN5torch8autograd6PyNodeE", ""},
	};
	struct elf *elf = open_library(library);
	struct torch_ops *ops;

	assert_int_equal(torch_ops__find(elf, NULL, &ops), 0);
	assert_int_equal(ops->node_cnt, sizeof(want) / sizeof(*want));
	for (size_t i = 0; i < ops->node_cnt; i++) {
		struct elf_symbol symbol;
		size_t k = 0;

		assert_int_equal(elf__symbol(elf, want[i].symbol, &symbol), 0);
		while (k < ops->node_cnt && ops->node[k].vtable != symbol.vaddr + 16)
			k++;
		assert_true(k < ops->node_cnt);
		assert_string_equal(ops->node[k].name, want[i].name);
		/* vtable, weak_ptr, five members */
		assert_int_equal(ops->node[k].object, *want[i].name ? 0 : 64);
	}
	torch_ops__free(ops);
	elf__free(elf);
}

/* Node::operator() is found by its symbol, and without it by what evaluate_function calls. */
static void node_call_without_a_symbol(void **state)
{
	struct elf *elf = open_library(library);
	struct elf_symbol evaluate, call;
	struct function_range range;

	assert_int_equal(elf__symbol(elf, "_ZN5torch8autograd6Engine17evaluate_functionEPvPNS0_4NodeE", &evaluate), 0);
	assert_int_equal(elf__symbol(elf, "_ZN5torch8autograd4NodeclEl", &call), 0);
	assert_int_equal(find_call_of_node(elf, evaluate.vaddr, evaluate.size, &range), 0);
	assert_int_equal(range.start, call.vaddr);
	elf__free(elf);
}

/* The one file of the cache, read whole. */
static char cache_file[PATH_MAX];

static uint8_t *read_cache(size_t *size)
{
	char pattern[PATH_MAX];
	uint8_t *bytes;
	glob_t found;
	struct stat st;

	snprintf(pattern, sizeof(pattern), "%s/*", cache);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	snprintf(cache_file, sizeof(cache_file), "%s", found.gl_pathv[0]);
	globfree(&found);
	assert_int_equal(stat(cache_file, &st), 0);
	*size = st.st_size;
	bytes = malloc(*size);
	int fd = open(cache_file, O_RDONLY);
	assert_int_equal(read(fd, bytes, *size), *size);
	close(fd);
	return bytes;
}

static void write_cache(const uint8_t *bytes, size_t size)
{
	int fd = open(cache_file, O_WRONLY | O_TRUNC);

	assert_int_equal(write(fd, bytes, size), size);
	close(fd);
}

static void cache_is_the_same(void **state)
{
	struct elf *elf = open_library(library);
	struct torch_ops *first, *second;

	assert_int_equal(ops_cache__load(elf, cache, &second), -ENOENT);
	assert_int_equal(torch_ops__find(elf, cache, &first), 0);
	assert_int_equal(ops_cache__load(elf, cache, &second), 0);
	check_fixture(second);
	assert_int_equal(first->fn_cnt, second->fn_cnt);
	assert_int_equal(first->node_cnt, second->node_cnt);
	assert_int_equal(first->site_cnt, second->site_cnt);
	for (size_t i = 0; i < first->fn_cnt; i++) {
		assert_string_equal(first->fn[i].name, second->fn[i].name);
		assert_int_equal(first->fn[i].entry.offset, second->fn[i].entry.offset);
	}
	for (size_t i = 0; i < first->site_cnt; i++)
		assert_int_equal(first->site[i].offset, second->site[i].offset);
	for (size_t i = 0; i < first->node_cnt; i++)
		assert_string_equal(first->node[i].name, second->node[i].name);
	torch_ops__free(first);
	torch_ops__free(second);
	elf__free(elf);
}

static void bad_caches_are_ignored_and_written_anew(void **state)
{
	struct elf *elf = open_library(library), *other = open_library(changed);
	struct torch_ops *ops;
	uint8_t *good;
	size_t size;

	good = read_cache(&size);
	for (size_t i = 0; i < size; i += 1 + i / 64) {
		good[i] ^= 1 << (i % 8);
		write_cache(good, size);
		good[i] ^= 1 << (i % 8);
		assert_int_equal(ops_cache__load(elf, cache, &ops), -ENOENT);
		write_cache(good, i);
		assert_int_equal(ops_cache__load(elf, cache, &ops), -ENOENT);
	}
	assert_int_equal(torch_ops__find(elf, cache, &ops), 0);
	torch_ops__free(ops);
	assert_int_equal(ops_cache__load(elf, cache, &ops), 0);
	torch_ops__free(ops);
	/* same build id, other code; a file that others could have written; no directory */
	assert_int_equal(ops_cache__load(other, cache, &ops), -ENOENT);
	assert_int_equal(chmod(cache_file, 0666), 0);
	assert_int_equal(ops_cache__load(elf, cache, &ops), -ENOENT);
	assert_int_equal(torch_ops__find(elf, "/proc/nowhere/at/all", &ops), 0);
	torch_ops__free(ops);
	free(good);
	elf__free(elf);
	elf__free(other);
}

static void nothing_of_torch(void **state)
{
	struct torch_ops *ops;
	struct elf *elf;

	assert_int_equal(elf__new("/proc/self/exe", &elf), 0);
	assert_int_equal(torch_ops__find(elf, NULL, &ops), -ENOENT);
	elf__free(elf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_those_of_the_abi),
		cmocka_unit_test(types_that_are_not_understood),
		cmocka_unit_test(operators_of_a_library),
		cmocka_unit_test(nodes_of_a_library),
		cmocka_unit_test(node_call_without_a_symbol),
		cmocka_unit_test(cache_is_the_same),
		cmocka_unit_test(bad_caches_are_ignored_and_written_anew),
		cmocka_unit_test(nothing_of_torch),
	};

	return cmocka_run_group_tests(tests, build, clean);
}
