/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What walks have sent (bpf/pystack.h), as a report reads it: the records in the ring go through the model's own
 * tables.
 */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_SEEN_H
#define STEPFLAME_TESTS_BPF_NATIVE_SEEN_H

#include "tests/bpf/native/job.h"

#include "bpf/pystack.h"
#include "user/lib/names.h"
#include "user/model/stacks.h"

struct seen {
	struct names names;
	struct stacks stacks;
};

static inline struct seen seen__read(void)
{
	struct seen seen = {0};
	const struct rec_hdr *rec;

	for (u32 i = 0; (rec = record(REC_NAME, i)); i++)
		assert_int_equal(names__add(&seen.names, (const void *)rec), 0);
	for (u32 type = REC_CODE; type <= REC_PATH; type++)
		for (u32 i = 0; (rec = record(type, i)); i++)
			assert_int_equal(stacks__add(&seen.stacks, rec), 0);
	return seen;
}

static inline void seen__free(struct seen *seen)
{
	names__free(&seen->names);
	stacks__free(&seen->stacks);
}

/* A stack that was sent. */
static inline struct stack seen__stack(struct seen *seen, u64 id)
{
	struct stack stack;
	u32 number;

	assert_int_equal(stacks__stack_number(&seen->stacks, id, &number), 0);
	stack = stacks__stack(&seen->stacks, number);
	assert_true(stack.known);
	return stack;
}

static inline struct code seen__code(const struct seen *seen, const struct frame *frame)
{
	struct code code = stacks__code(&seen->stacks, frame->code);

	assert_true(code.known && code.file && code.name);
	return code;
}

static inline const char *seen__text(const struct seen *seen, u64 name)
{
	const char *text = names__find(&seen->names, name);

	assert_non_null(text);
	return text;
}

static inline u32 records(u32 type)
{
	u32 cnt = 0;

	while (record(type, cnt))
		cnt++;
	return cnt;
}

#endif
