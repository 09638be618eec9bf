// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "spots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "stacks.h"

static bool is_users(const struct job *job, const struct code *code)
{
	const char *file = code->file ? job__name(job, code->file) : NULL;

	return file && *file != '<' && !strstr(file, "/site-packages/") && !strstr(file, "/dist-packages/") &&
	       !strstr(file, "/lib/python3");
}

/* The number of the line that stands for a stack, + 1. 0 or -ENOMEM. */
static int find_line(struct spots *spots, uint32_t stack_number, uint32_t *number)
{
	const struct stacks *stacks = job__stacks(spots->job);
	struct stack stack = stacks__stack(stacks, stack_number);
	const struct frame *frame = stack.cnt ? stack.frames : NULL;
	struct code code;
	int err;

	*number = 1; /* of no line */
	for (uint32_t i = 0; i < stack.cnt; i++) {
		code = stacks__code(stacks, stack.frames[i].code);
		if (!is_users(spots->job, &code))
			continue;
		frame = &stack.frames[i];
		break;
	}
	if (!frame)
		return 0;
	code = stacks__code(stacks, frame->code);
	err = intern__add(&spots->lines, (uint64_t)frame->code << 32 | code__line(&code, frame->offset), number);
	++*number;
	return err;
}

int spots__add(struct spots *spots, uint32_t slot, const struct sample *sample)
{
	uint32_t *number;
	int err = 0;

	if (array__grow(&spots->by_stack, stacks__stack_end(job__stacks(spots->job)), sizeof(*number)))
		return -ENOMEM;
	number = &((uint32_t *)spots->by_stack.items)[sample->stack];
	if (!*number)
		err = find_line(spots, sample->stack, number);
	if (err || *number == 1)
		return err;
	return tallies__add(&spots->tallies, slot, *number - 1, sample->weight_ns);
}

int spots__top(const struct spots *spots, size_t slot_cnt, size_t cnt, struct spot *top)
{
	struct tally_top *found = calloc(slot_cnt * cnt + 1, sizeof(*found));

	if (!found)
		return -ENOMEM;
	tallies__top(&spots->tallies, slot_cnt, cnt, found);
	for (size_t i = 0; i < slot_cnt * cnt; i++) {
		uint64_t key = intern__key(&spots->lines, found[i].value);

		top[i] = (struct spot){key >> 32, key, found[i].sum};
	}
	free(found);
	return 0;
}

void spots__free(struct spots *spots)
{
	free(spots->by_stack.items);
	intern__free(&spots->lines);
	tallies__free(&spots->tallies);
}
