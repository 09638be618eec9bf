/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What an operator was given (bpf/shapes.h): calls with tensors, lists and numbers in registers and on a stack, all in
 * this process's memory. What is read must be what was put there, and what cannot be read must be no number.
 */
#include "tests/bpf/native/ops.h"

#include "user/lib/words.h"

#define OP    0
#define SIZES 64 /* in an object of this test's, beginning with what nobody reads */
#define BAD   FAKEPY_NO_ADDRESS

/* c10/core/TensorImpl.h from sizes_and_strides_ on. */
struct tensor {
	u8 head[SIZES];
	u64 dim_cnt;
	union {
		s64 inside[10];
		s64 *outside;
	};
	u64 storage_offset, numel;
	u16 dtype, pad[3];
	u64 key_set;
};

_Static_assert(offsetof(struct tensor, dtype) - SIZES == 104 && offsetof(struct tensor, key_set) - SIZES == 112,
	       "as torch has them");

#define TENSOR(type, ...)                                                      \
	((struct tensor){.dim_cnt = sizeof((s64[]){0, ##__VA_ARGS__}) / 8 - 1, \
			 .inside = {__VA_ARGS__},                              \
			 .numel = 1,                                           \
			 .dtype = type,                                        \
			 .pad = {0xa5a5, 0xa5a5, 0xa5a5},                      \
			 .key_set = 1})

static struct op_def def;
static u64 stack_words[OP_PLACES]; /* of the call: at FRAME its return address */

static int shapes_setup(void **state)
{
	(void)state;
	ops__start();
	native__set_knob(&want_shapes, 1);
	tensor_sizes = SIZES;
	def = (struct op_def){.name = OP_ID(OP), .merged = MERGED_ID(OP)};
	return 0;
}

static void argument(enum op_arg_kind kind, u32 place, u32 place2)
{
	def.args[def.arg_cnt++] = (struct op_arg){.kind = kind, .place = place, .place2 = place2};
	def.on_stack |= place >= OP_ARG_STACK || place2 >= OP_ARG_STACK;
}

/* Calls it with those in rdi, rsi, rdx, rcx, and what is on the stack. Returns the group of its row. */
static u64 call(u64 di, u64 si, u64 dx, u64 cx)
{
	u64 frame = (u64)stack_words, group;
	struct pt_regs regs = {.sp = frame - 40, .di = di, .si = si, .dx = dx, .cx = cx, .r8 = 8, .r9 = 9};

	ops__set_def(OP, &def);
	native.cookie = op_cookie(OP_CALL, 40, OP);
	op_enter(&regs);
	assert_int_equal(depth(), 1);
	group = job__thread()->spans[0].op.group;
	wait_ns(1);
	op__exit(frame);
	if (group)
		assert_non_null(op_val__grouped(SPAN_OP, OP_ID(OP), 0, group));
	return group;
}

static const struct rec_op_group *find_group(u64 id)
{
	const struct rec_op_group *rec, *found = NULL;

	for (u32 n = 0; (rec = record(REC_OP_GROUP, n)); n++) {
		assert_int_equal(rec->hdr.size, sizeof(*rec) + 8 * rec->word_cnt);
		assert_int_equal(rec->source | rec->module, 0);
		assert_int_equal(words__check((const uint64_t *)rec->words, rec->word_cnt),
				 0); /* what a reader says to it */
		if (rec->id != id)
			continue;
		assert_null(found); /* sent once */
		found = rec;
	}
	return found;
}

static void expect_words(u64 group, const u64 *words, u32 cnt)
{
	const struct rec_op_group *rec = find_group(group);

	assert_non_null(rec);
	assert_int_equal(rec->word_cnt, cnt);
	assert_memory_equal(rec->words, words, 8 * cnt);
}

#define EXPECT(group, ...) expect_words(group, (u64[]){__VA_ARGS__}, sizeof((u64[]){__VA_ARGS__}) / 8)
#define HEAD(dtype, cnt)   (OP_WORD_TENSOR | (u64)(dtype) << 8 | (u64)(cnt) << 32)

static void test_tensors(void **state)
{
	struct tensor scalar = TENSOR(7), one = TENSOR(6, 128), two = TENSOR(4, 3, 0), five = TENSOR(15, 1, 2, 3, 4, 5),
		      six = TENSOR(11);
	struct tensor *a = &one, *b = &scalar, *c = &two, *d = &five, *e = &six;
	s64 sizes[6] = {9, 8, 7, 6, 5, 4};

	six.dim_cnt = 6;
	six.outside = sizes;
	for (u32 i = 0; i < 4; i++)
		argument(OP_ARG_TENSOR, i, 0);
	EXPECT(call((u64)&a, (u64)&b, (u64)&c, (u64)&d), HEAD(6, 1), 128, HEAD(7, 0), HEAD(4, 2), 3, 0, HEAD(15, 5), 1,
	       2, 3, 4, 5);
	EXPECT(call((u64)&e, (u64)&d, (u64)&e, (u64)&b), HEAD(11, 6), 9, 8, 7, 6, 5, 4, HEAD(15, 5), 1, 2, 3, 4, 5,
	       HEAD(11, 6), 9, 8, 7, 6, 5, 4, HEAD(7, 0));
	expect_counters(CNT__COUNT);
}

static void test_undefined(void **state)
{
	struct {
		struct tensor *tensor;
		u64 engaged;
	} optional;
	struct tensor undefined = TENSOR(0), one = TENSOR(6, 2), *a = &undefined, *b = &one, *none = NULL;

	undefined.key_set = 0;
	argument(OP_ARG_TENSOR, 0, 0);
	argument(OP_ARG_TENSOR, 1, 0);
	argument(OP_ARG_OPTIONAL, 2, 0);
	optional.tensor = b;
	optional.engaged = 0xa5a5a5a500;
	EXPECT(call((u64)&a, (u64)&b, (u64)&optional, 0), OP_WORD_NONE, HEAD(6, 1), 2, OP_WORD_NONE);
	optional.engaged = 0xa5a5a5a501;
	EXPECT(call((u64)&none, (u64)&b, (u64)&optional, 0), OP_WORD_NONE, HEAD(6, 1), 2, HEAD(6, 1), 2);
	expect_counters(CNT__COUNT);
}

static void test_lists(void **state)
{
	struct tensor a = TENSOR(6, 1, 2), b = TENSOR(6), *list[] = {&a, &b, &a};
	struct {
		struct tensor **tensors;
		u64 cnt;
		u32 tag, pad;
	} ref = {list, 2, 0, ~0u};

	argument(OP_ARG_TENSOR_LIST, 0, 1);
	argument(OP_ARG_TENSOR_LIST_REF, 2, 0);
	EXPECT(call((u64)list, 3, (u64)&ref, 0), OP_WORD_TENSOR_LIST | 3ULL << 32, HEAD(6, 2), 1, 2, HEAD(6, 0),
	       HEAD(6, 2), 1, 2, OP_WORD_TENSOR_LIST | 2ULL << 32, HEAD(6, 2), 1, 2, HEAD(6, 0));
	ref.tag = 1; /* of another union */
	EXPECT(call((u64)list, 0, (u64)&ref, 0), OP_WORD_TENSOR_LIST, OP_WORD_NONE);
	expect_counters(CNT__COUNT);
}

static void test_numbers(void **state)
{
	s64 stride[2] = {2, -3}, symbol = 77;

	argument(OP_ARG_INTS, 0, 1);
	argument(OP_ARG_INT, 2, 0);
	argument(OP_ARG_INT_REF, 3, 0);
	argument(OP_ARG_OTHER, 4, 0);
	argument(OP_ARG_OPTIONAL_LIST, 5, 0);
	EXPECT(call((u64)stride, 2, 5, BAD), OP_WORD_NONE, OP_WORD_NONE, OP_WORD_NONE, OP_WORD_NONE, OP_WORD_NONE);
	def.wants_ints = 1;
	EXPECT(call((u64)stride, 2, -5, (u64)&symbol), OP_WORD_INTS | 2ULL << 32, 2, -3, OP_WORD_INT | 1ULL << 32, -5,
	       OP_WORD_INT | 1ULL << 32, 77, OP_WORD_NONE, OP_WORD_NONE);
	expect_counters(CNT__COUNT);
}

static void test_stack(void **state)
{
	struct tensor a = TENSOR(6, 4), *tensor = &a;
	s64 ints[3] = {7, 8, 9};

	argument(OP_ARG_INT, 5, 0);
	argument(OP_ARG_TENSOR, OP_ARG_STACK, 0);
	argument(OP_ARG_INTS, OP_ARG_STACK + 1, OP_ARG_STACK + 2);
	argument(OP_ARG_INT, OP_PLACES - 1, 0);
	def.wants_ints = 1;
	memset(stack_words, 0xa5, sizeof(stack_words));
	stack_words[1] = (u64)&tensor;
	stack_words[2] = (u64)ints;
	stack_words[3] = 3;
	stack_words[OP_PLACES - OP_ARG_STACK] = 1234; /* of the last place */
	EXPECT(call(0, 0, 0, 0), OP_WORD_INT | 1ULL << 32, 9, HEAD(6, 1), 4, OP_WORD_INTS | 3ULL << 32, 7, 8, 9,
	       OP_WORD_INT | 1ULL << 32, 1234);
	expect_counters(CNT__COUNT);
}

/* Nothing that cannot be read is a number, and each such is counted. */
static void test_bad(void **state)
{
	struct tensor far = TENSOR(6), *tensors[] = {&far, (struct tensor *)BAD}, *bad = (struct tensor *)BAD;

	far.dim_cnt = 6;
	far.outside = (s64 *)BAD;
	argument(OP_ARG_TENSOR, 0, 0);
	argument(OP_ARG_OPTIONAL, 1, 0);
	EXPECT(call(BAD, BAD, 0, 0), OP_WORD_OPAQUE, OP_WORD_OPAQUE);
	expect_counters(CNT_BAD_READ, 2, CNT__COUNT);
	argument(OP_ARG_TENSOR_LIST, 2, 3);
	EXPECT(call((u64)&tensors[0], (u64) & (u64[]){BAD, 1}, (u64)tensors, 2), OP_WORD_OPAQUE, OP_WORD_OPAQUE,
	       OP_WORD_TENSOR_LIST | 2ULL << 32, OP_WORD_OPAQUE, OP_WORD_OPAQUE);
	expect_counters(CNT_BAD_READ, 6, CNT__COUNT);
	EXPECT(call((u64)&bad, (u64) & (u64[]){BAD, 0}, BAD, 1), OP_WORD_OPAQUE, OP_WORD_NONE,
	       OP_WORD_TENSOR_LIST | 1ULL << 32, OP_WORD_OPAQUE);
	expect_counters(CNT_BAD_READ, 8, CNT__COUNT);
	def.arg_cnt = 0;
	def.wants_ints = 1;
	argument(OP_ARG_INTS, 0, 1);
	argument(OP_ARG_INT_REF, 2, 0);
	argument(OP_ARG_TENSOR_LIST_REF, 3, 0);
	EXPECT(call(BAD, 1, BAD, BAD), OP_WORD_OPAQUE, OP_WORD_OPAQUE, OP_WORD_OPAQUE);
	expect_counters(CNT_BAD_READ, 11, CNT__COUNT);
}

/* A stack that cannot be read says nothing of any argument. */
static void test_bad_stack(void **state)
{
	struct pt_regs regs = {.sp = BAD};

	argument(OP_ARG_INT, OP_ARG_STACK, 0);
	def.wants_ints = 1;
	ops__set_def(OP, &def);
	native.cookie = op_cookie(OP_CALL, 0, OP);
	op_enter(&regs);
	op__exit(BAD);
	expect_op(SPAN_OP, OP_ID(OP), 0, 1, 0, 0);
	assert_null(record(REC_OP_GROUP, 0));
	expect_counters(CNT_BAD_READ, 1, CNT__COUNT);
}

/* More dimensions than are kept are no shape: a tensor of fewer would have that one. */
static void test_many_dims(void **state)
{
	s64 sizes[SHAPE_DIMS + 1];
	u64 words[SHAPE_DIMS + 1] = {HEAD(6, SHAPE_DIMS)};
	struct tensor a = TENSOR(6), *tensor = &a;

	for (u64 i = 0; i < SHAPE_DIMS; i++)
		words[1 + i] = (u64)(sizes[i] = (s64)i);
	a.outside = sizes;
	a.dim_cnt = SHAPE_DIMS;
	argument(OP_ARG_TENSOR, 0, 0);
	expect_words(call((u64)&tensor, 0, 0, 0), words, SHAPE_DIMS + 1);
	expect_counters(CNT__COUNT);
	a.dim_cnt = SHAPE_DIMS + 1;
	EXPECT(call((u64)&tensor, 0, 0, 0), OP_WORD_OPAQUE);
	a.dim_cnt = ~0ULL;
	EXPECT(call((u64)&tensor, 0, 0, 0), OP_WORD_OPAQUE);
	expect_counters(CNT_SHAPES_CUT, 2, CNT__COUNT);
}

/*
 * A list of more tensors than are looked at, and arguments of more words than there is room for: the last word says so.
 */
static void test_cut(void **state)
{
	struct tensor a = TENSOR(6), flat = TENSOR(6), *tensor = &flat, *list[LIST_MAX + 1];
	s64 sizes[SHAPE_DIMS] = {0};
	const struct rec_op_group *rec;

	a.outside = sizes;
	for (u32 i = 0; i < LIST_MAX + 1; i++)
		list[i] = &flat;
	argument(OP_ARG_TENSOR_LIST, 0, 1);
	argument(OP_ARG_TENSOR, 2, 0);
	rec = find_group(call((u64)list, LIST_MAX, (u64)&tensor, 0));
	assert_int_equal(rec->word_cnt, 1 + LIST_MAX + 1);
	expect_counters(CNT__COUNT);
	rec = find_group(call((u64)list, LIST_MAX + 1, (u64)&tensor, 0));
	assert_int_equal(rec->word_cnt, 1 + LIST_MAX + 1);
	assert_int_equal(rec->words[LIST_MAX + 1], OP_WORD_CUT);
	for (u32 dims = INLINE_DIMS + 1; dims <= SHAPE_DIMS; dims++) {
		a.dim_cnt = dims;
		for (u32 i = 0; i < LIST_MAX; i++)
			list[i] = &a;
		native__empty_ring();
		rec = find_group(call((u64)list, LIST_MAX, (u64)&tensor, 0));
		assert_in_range(rec->word_cnt, 1, SHAPE_WORDS + SHAPE_DIMS + 1);
		if (1 + LIST_MAX * (1 + dims) < SHAPE_WORDS)
			assert_int_equal(rec->words[rec->word_cnt - 1], HEAD(6, 0));
		else
			assert_int_equal(rec->words[rec->word_cnt - 1], OP_WORD_CUT);
	}
}

/* A number's value is never cut from its head. */
static void test_cut_at_number(void **state)
{
	struct tensor six = TENSOR(6), many = TENSOR(6), *tensor = &many, *list[LIST_MAX];
	s64 sizes[SHAPE_DIMS] = {0};
	const struct rec_op_group *rec;
	u32 last = SHAPE_WORDS - 1;

	for (u32 i = 0; i < LIST_MAX; i++)
		list[i] = &six;
	six.outside = many.outside = sizes;
	six.dim_cnt = 6;
	many.dim_cnt = last - (1 + LIST_MAX * 7) - 1;
	argument(OP_ARG_TENSOR_LIST, 0, 1);
	argument(OP_ARG_TENSOR, 2, 0);
	argument(OP_ARG_INT, 3, 0);
	def.wants_ints = 1;
	rec = find_group(call((u64)list, LIST_MAX, (u64)&tensor, 77));
	assert_int_equal(rec->word_cnt, last + 2);
	assert_int_equal(rec->words[last + 1], 77);
	expect_counters(CNT__COUNT);
	argument(OP_ARG_INT, 3, 0);
	rec = find_group(call((u64)list, LIST_MAX, (u64)&tensor, 77));
	assert_int_equal(rec->word_cnt, last + 3);
	assert_int_equal(rec->words[last + 2], OP_WORD_CUT);
	expect_counters(CNT_SHAPES_CUT, 1, CNT__COUNT);
}

/* A node's inputs: a std::vector<Tensor>. */
static void test_node_inputs(void **state)
{
	struct tensor one = TENSOR(6, 4), nested = TENSOR(6, 4), *list[] = {&one, &nested};
	u64 vector[3] = {(u64)list, (u64)(list + 2), (u64)(list + 2)};
	struct pt_regs regs = {.sp = FRAME(1), .di = (u64)nodes[0], .dx = (u64)vector};
	struct thread *t;

	nested.key_set = 1 << 25;
	native.cookie = op_cookie(OP_NODE, 0, 0);
	node_enter(&regs);
	t = job__thread();
	EXPECT(t->spans[0].op.group, HEAD(6, 1), 4, OP_WORD_OPAQUE);
	expect_counters(CNT__COUNT);
	op__exit(FRAME(1));
	native.cookie = op_cookie(OP_NODE, 0, 0);
	regs.dx = BAD;
	node_enter(&regs);
	assert_int_equal(t->spans[0].op.group, 0);
	expect_counters(CNT_BAD_READ, 1, CNT__COUNT);
}

static void test_groups(void **state)
{
	struct tensor a = TENSOR(6, 2), *tensor = &a;
	u64 first, second;
	u8 one = 1;

	argument(OP_ARG_TENSOR, 0, 0);
	native.ring_full = true;
	assert_int_equal(call((u64)&tensor, 0, 0, 0), 0); /* nobody would know the id */
	expect_counters(CNT_RING_FULL, 1, CNT__COUNT);
	native.ring_full = false;
	first = call((u64)&tensor, 0, 0, 0);
	assert_int_not_equal(first, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(call((u64)&tensor, 0, 0, 0), first);
	a.inside[0] = 3;
	second = call((u64)&tensor, 0, 0, 0);
	assert_int_not_equal(first, second);
	EXPECT(first, HEAD(6, 1), 2);
	EXPECT(second, HEAD(6, 1), 3);
	assert_int_equal(op_val__grouped(SPAN_OP, OP_ID(OP), 0, first)->calls, 4);
	op_proc->open = 0; /* it will have no row */
	assert_int_equal(call((u64)&tensor, 0, 0, 0), 0);
	op_proc->open = 1;
	for (u64 i = 1; native_map__cnt(&groups) < GROUPS_MAX; i++)
		bpf_map_update_elem(&groups, &i, &one, BPF_ANY);
	a.inside[0] = 4;
	assert_int_equal(call((u64)&tensor, 0, 0, 0), 0);
	expect_counters(CNT_RING_FULL, 1, CNT_GROUPS_FULL, 1, CNT__COUNT);
	expect_op(SPAN_OP, OP_ID(OP), 0, 2, 2, 2);
	a.inside[0] = 3;
	assert_int_equal(call((u64)&tensor, 0, 0, 0), second);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, shapes_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(tensors),   TEST(undefined), TEST(lists), TEST(numbers),       TEST(stack),       TEST(bad),
		TEST(bad_stack), TEST(many_dims), TEST(cut),   TEST(cut_at_number), TEST(node_inputs), TEST(groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
