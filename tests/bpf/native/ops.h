/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The process of native/job.h with its operators probed: the programs of bpf/ops.bpf.c, compiled here, share maps and
 * span stacks with the landmarks' one. Its window is open from the time 0.
 */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_OPS_H
#define STEPFLAME_TESTS_BPF_NATIVE_OPS_H

#include "tests/bpf/native/job.h"

#define LICENSE LICENSE_OF_OPS /* job.h has included a program with one of its own */
#include "bpf/ops.bpf.c"
#undef LICENSE

#define OP_SLOT_USED 3
#define OP_CNT       16
#define OP_ID(op)    (0xf3000000ULL + (op)) /* operators 2n and 2n + 1 are overloads of one name */
#define MERGED_ID(n) (0xf4000000ULL + (n) / 2)
#define MEMORY_ID    0xf5000000ULL
#define NODE_ID(n)   (0xf6000000ULL + (n)) /* name of a class of nodes */
#define NODE_CNT     8

static struct op_proc *op_proc;
static u64 nodes[NODE_CNT][2]; /* one of each class; the first word is the vtable */

static inline void ops__set_def(u32 op, const struct op_def *def)
{
	bpf_map_update_elem(&op_defs, &op, def, BPF_ANY);
}

static inline void ops__start(void)
{
	struct op_def memory = {.name = MEMORY_ID, .merged = MEMORY_ID};
	u32 slot = OP_SLOT_USED;

	job__start(12);
	job.proc->ops.slot = slot + 1;
	op_proc = bpf_map_lookup_elem(&op_procs, &slot);
	*op_proc = (struct op_proc){.pid = JOB_PID, .open = 1, .armed = 1, .index = 1, .counting = 1};
	for (u32 op = 0; op < OP_CNT; op++)
		ops__set_def(op, &(struct op_def){.name = OP_ID(op), .merged = MERGED_ID(op)});
	ops__set_def(OP_DEF_MEMORY, &memory);
	for (u32 n = 0; n < NODE_CNT; n++) {
		struct node_class class = {slot, 0x7f0000001000ULL + 16 * n};
		struct node_val val = {.name = NODE_ID(n)};

		nodes[n][0] = class.vtable;
		bpf_map_update_elem(&node_classes, &class, &val, BPF_ANY);
	}
	native__set_knob(&want_ops, 1);
	native__set_knob(&want_timeline, 0);
	native__set_knob(&want_shapes, 0);
	for (int i = 0; i < OP_SCHEDULE__COUNT; i++)
		native__set_knob(&op_schedule[i], 0);
}

static inline int ops_setup(void **state)
{
	(void)state;
	ops__start();
	return 0;
}

/* ---- what happens in the target ---- */

static inline u64 op_cookie(enum op_event event, u32 depth, u32 index)
{
	return COOKIE(event, OP_SLOT_USED, depth, index);
}

static inline void op__enter(u32 op, u64 frame)
{
	struct pt_regs regs = {.sp = frame - 40};

	native.cookie = op_cookie(OP_CALL, 40, op);
	op_enter(&regs);
}

static inline void op__exit(u64 frame)
{
	struct pt_regs regs = {.sp = frame - 8};

	native.cookie = op_cookie(OP_CALL, 8, 0);
	op_exit(&regs);
}

/* OP_EVALUATE of the engine, or OP_NODE. Ends by op__exit. */
static inline void node__enter(enum op_event event, u32 class, u64 frame)
{
	struct pt_regs regs = {.sp = frame - 16};

	*(event == OP_EVALUATE ? &regs.dx : &regs.di) = (u64)nodes[class];
	native.cookie = op_cookie(event, 16, event == OP_EVALUATE ? 2 : 0);
	node_enter(&regs);
}

/* An exception leaves an operator, at a place where the depth of its frame is not known, `sp` is. */
static inline void op__leave(u32 op, u64 sp)
{
	struct pt_regs regs = {.sp = sp};

	native.cookie = op_cookie(OP_CALL, COOKIE_DEPTH_UNKNOWN, op);
	op_exit(&regs);
}

static inline void op__run(u32 op, u64 ns, u64 frame)
{
	op__enter(op, frame);
	wait_ns(ns);
	op__exit(frame);
}

static inline void memory__hit(struct pt_regs regs, enum op_event event)
{
	regs.sp = STACK - (1 << 20); /* deeper than all */
	native.cookie = op_cookie(event, 8, 0);
	op_memory(&regs);
}

static inline void memory__allocate(u64 address, u64 bytes)
{
	memory__hit((struct pt_regs){.si = address, .dx = bytes}, OP_ALLOCATE);
}

static inline void memory__free(u64 address)
{
	memory__hit((struct pt_regs){.si = address}, OP_FREE);
}

static inline void memory__report(s64 bytes, u32 device)
{
	memory__hit((struct pt_regs){.di = 0x1000, .si = (u64)bytes, .r8 = device | 0xabc00}, OP_REPORT);
}

/* ---- what came out ---- */

struct op_find {
	const struct op_key *key;
	struct op_entry *row;
};

static inline bool op_find__visit(const void *index, void *value, void *arg)
{
	struct op_entry *row = value;
	struct op_find *find = arg;

	(void)index;
	if (!row->head.hash || memcmp(&row->key, find->key, sizeof(row->key)))
		return true;
	assert_null(find->row);
	find->row = row;
	return true;
}

static inline struct op_val *op_val__grouped(u32 kind, u64 name, u64 action, u64 group)
{
	struct op_key key = {.pid = JOB_PID, .kind = kind, .name = name, .action = action, .group = group};
	struct op_find find = {.key = &key};

	native_map__each(&op_rows, op_find__visit, &find);
	return find.row ? &find.row->val : NULL;
}

static inline struct op_val *op_val(u32 kind, u64 name, u64 action)
{
	return op_val__grouped(kind, name, action, 0);
}

static inline void expect_op(u32 kind, u64 name, u64 action, u64 calls, u64 total_ns, u64 self_ns)
{
	const struct op_val *val = op_val(kind, name, action);

	assert_non_null(val);
	assert_int_equal(val->calls, calls);
	assert_int_equal(val->total_ns, total_ns);
	assert_int_equal(val->self_ns, self_ns);
}

static inline void expect_bytes(u64 name, u32 memory, s64 self_bytes, s64 total_bytes)
{
	const struct op_val *val = op_val(SPAN_OP, name, 0);

	assert_non_null(val);
	assert_int_equal(val->self_bytes[memory], self_bytes);
	assert_int_equal(val->total_bytes[memory], total_bytes);
}

static inline bool op_row__count(const void *index, void *value, void *cnt)
{
	(void)index;
	*(u32 *)cnt += ((struct op_entry *)value)->val.calls != 0;
	return true;
}

/* Rows with calls. */
static inline u32 op_row_cnt(void)
{
	u32 cnt = 0;

	native_map__each(&op_rows, op_row__count, &cnt);
	return cnt;
}

#endif
