// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "spots.h"

#include <errno.h>
#include <stdio.h>
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

static int add_file(struct spots *spots, uint32_t slot, uint32_t line, const struct sample *sample)
{
	uint32_t spot, file;

	return tallies__number(&spots->tallies, slot, line, &spot) ?:
	       intern__add(&spots->file_ids, sample->file, &file) ?:
	       tallies__add(&spots->files, spot, file, sample->weight_ns);
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
	err = tallies__add(&spots->tallies, slot, *number - 1, sample->weight_ns);
	return err || !sample->file ? err : add_file(spots, slot, *number - 1, sample);
}

int spots__top(const struct spots *spots, size_t slot_cnt, size_t cnt, struct spot *top)
{
	size_t spot_end = intern__end(&spots->tallies.keys);
	struct tally_top *found = calloc(slot_cnt * cnt + 1, sizeof(*found));
	struct tally_top *files = calloc(spot_end, sizeof(*files));
	int err = found && files ? 0 : -ENOMEM;

	if (err)
		goto out;
	tallies__top(&spots->tallies, slot_cnt, cnt, found);
	tallies__top(&spots->files, spot_end, 1, files);
	for (size_t i = 0; i < slot_cnt * cnt && !err; i++) {
		uint64_t key = intern__key(&spots->lines, found[i].value);
		const struct tally_top *file = &files[found[i].number];

		top[i] = (struct spot){.code = key >> 32, .line = key, .ns = found[i].sum};
		if (2 * file->sum >= found[i].sum)
			top[i].file = intern__key(&spots->file_ids, file->value);
	}
out:
	free(found);
	free(files);
	return err;
}

void spots__free(struct spots *spots)
{
	free(spots->by_stack.items);
	intern__free(&spots->lines);
	tallies__free(&spots->tallies);
	intern__free(&spots->file_ids);
	tallies__free(&spots->files);
}

char *spot__text(struct job *job, const struct spot *spot)
{
	struct code code = stacks__code(job__stacks(job), spot->code);
	const char *file = code.file ? job__name_or_lost(job, code.file) : "?", *slash;
	const char *name = code.name ? job__name_or_lost(job, code.name) : "?";
	char *text;

	if (!file || !name)
		return NULL;
	slash = strrchr(file, '/');
	return asprintf(&text, "%s:%u %s", slash ? slash + 1 : file, spot->line ?: code.first_line, name) < 0 ? NULL
													      : text;
}
