// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Definitions by number. The first definition of an id wins: an id is a hash of its content. */
#include "user/model/stacks.h"

#include "user/lib/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Copies 0 or more bytes; malloc'ed. NULL: no memory. */
static void *copy_bytes(const void *data, size_t bytes)
{
	void *out = malloc(bytes + 1);

	return out ? memcpy(out, data, bytes) : NULL;
}

/* The item of an id, by the id's number, in an array that grows with the numbers; NULL: no memory. */
static void *place_item(struct intern *ids, struct array *array, uint64_t id, size_t item_bytes)
{
	uint32_t number;

	if (intern__add(ids, id, &number) || array__grow(array, intern__end(ids), item_bytes))
		return NULL;
	return (char *)array->items + number * item_bytes;
}

static bool lines_ascend(const struct rec_code *record)
{
	for (uint32_t i = 1; i < record->line_cnt; i++)
		if (record->lines[i].offset <= record->lines[i - 1].offset)
			return false;
	return true;
}

static int stacks__add_code(struct stacks *stacks, const struct rec_code *record)
{
	size_t bytes = (size_t)record->line_cnt * sizeof(*record->lines);
	struct code *code;

	if (!record->id || bytes > record->hdr.size - sizeof(*record) || !lines_ascend(record))
		return -EINVAL;
	code = place_item(&stacks->code_ids, &stacks->codes, record->id, sizeof(*code));
	if (!code)
		return -ENOMEM;
	if (!code->known) {
		code->file = record->file;
		code->name = record->name;
		code->first_line = record->first_line;
		code->known = true;
	}
	/* A line table may be unreadable in one process and readable in another. */
	if (code->lines || !record->line_cnt)
		return 0;
	code->lines = copy_bytes(record->lines, bytes);
	code->line_cnt = code->lines ? record->line_cnt : 0;
	return code->lines ? 0 : -ENOMEM;
}

static int stacks__add_stack(struct stacks *stacks, const struct rec_stack *record)
{
	size_t bytes = (size_t)record->frame_cnt * sizeof(*record->frames);
	struct stack *stack;
	struct frame *frames;

	if (!record->id || record->frame_cnt > STACK_FRAMES_MAX || bytes > record->hdr.size - sizeof(*record))
		return -EINVAL;
	stack = place_item(&stacks->stack_ids, &stacks->stacks, record->id, sizeof(*stack));
	if (!stack)
		return -ENOMEM;
	if (stack->known)
		return 0;
	frames = calloc(record->frame_cnt + 1, sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	for (uint32_t i = 0; i < record->frame_cnt; i++) {
		frames[i].offset = record->frames[i].offset;
		if (stacks__code_number(stacks, record->frames[i].code, &frames[i].code)) {
			free(frames);
			return -ENOMEM;
		}
	}
	*stack = (struct stack){.frames = frames, .cnt = record->frame_cnt, .cut = record->cut, .known = true};
	return 0;
}

static int stacks__add_path(struct stacks *stacks, const struct rec_path *record)
{
	size_t bytes = (size_t)record->span_cnt * sizeof(*record->spans);
	struct path *path;

	if (!record->id || bytes > record->hdr.size - sizeof(*record))
		return -EINVAL;
	for (uint32_t i = 0; i < record->span_cnt; i++)
		if (record->spans[i].kind == SPAN_NONE || record->spans[i].kind >= SPAN__COUNT ||
		    !record->spans[i].name)
			return -EINVAL;
	path = place_item(&stacks->path_ids, &stacks->paths, record->id, sizeof(*path));
	if (!path)
		return -ENOMEM;
	if (path->known)
		return 0;
	path->spans = copy_bytes(record->spans, bytes);
	path->cnt = path->spans ? record->span_cnt : 0;
	path->known = path->spans;
	return path->known ? 0 : -ENOMEM;
}

static int stacks__add_installed(struct stacks *stacks, const struct rec_installed *record)
{
	uint64_t *path =
		stacks->installed.cnt < STACKS_INSTALLED_MAX ? array__add(&stacks->installed, sizeof(*path)) : NULL;

	if (path)
		*path = record->path;
	return path || stacks->installed.cnt == STACKS_INSTALLED_MAX ? 0 : -ENOMEM;
}

int stacks__add(struct stacks *stacks, const struct rec_hdr *record)
{
	switch (record->type) {
	case REC_CODE:
		return stacks__add_code(stacks, (const void *)record);
	case REC_STACK:
		return stacks__add_stack(stacks, (const void *)record);
	case REC_PATH:
		return stacks__add_path(stacks, (const void *)record);
	case REC_INSTALLED:
		return stacks__add_installed(stacks, (const void *)record);
	default:
		return -EINVAL;
	}
}

int stacks__code_number(struct stacks *stacks, uint64_t id, uint32_t *number)
{
	return intern__add(&stacks->code_ids, id, number);
}

int stacks__stack_number(struct stacks *stacks, uint64_t id, uint32_t *number)
{
	return intern__add(&stacks->stack_ids, id, number);
}

int stacks__path_number(struct stacks *stacks, uint64_t id, uint32_t *number)
{
	return intern__add(&stacks->path_ids, id, number);
}

int stacks__path_with(struct stacks *stacks, uint32_t path_number, const struct path_span *span, uint32_t depth,
		      uint32_t *number)
{
	struct path old = stacks__path(stacks, path_number), *new;
	uint64_t id = intern__key(&stacks->path_ids, path_number) ^ span->name;
	struct path_span *spans;

	*number = path_number;
	if (!old.known)
		return 0;
	if (depth > old.cnt)
		depth = old.cnt;
	/* A collision with another path is as unlikely as one between ids. */
	id = (id ^ id >> 31 ^ depth) * 0x9e3779b97f4a7c15ull | 1;
	new = place_item(&stacks->path_ids, &stacks->paths, id, sizeof(*new));
	if (!new || intern__add(&stacks->path_ids, id, number))
		return -ENOMEM;
	if (new->known)
		return 0;
	spans = calloc(old.cnt + 1, sizeof(*spans));
	if (!spans)
		return -ENOMEM;
	for (uint32_t i = 0; i <= old.cnt; i++)
		spans[i] = i < depth ? old.spans[i] : i > depth ? old.spans[i - 1] : *span;
	*new = (struct path){.spans = spans, .cnt = old.cnt + 1, .known = true};
	return 0;
}

void stacks__set_own(struct stacks *stacks, uint32_t number, bool is_own, bool is_standard)
{
	struct code *code = number < stacks->codes.cnt ? &((struct code *)stacks->codes.items)[number] : NULL;

	if (!code)
		return;
	code->is_own = is_own;
	code->is_standard = is_standard;
}

struct code stacks__code(const struct stacks *stacks, uint32_t number)
{
	if (number && number < stacks->codes.cnt)
		return ((const struct code *)stacks->codes.items)[number];
	return (struct code){.known = !number};
}

struct stack stacks__stack(const struct stacks *stacks, uint32_t number)
{
	if (number && number < stacks->stacks.cnt)
		return ((const struct stack *)stacks->stacks.items)[number];
	return (struct stack){.known = !number};
}

struct path stacks__path(const struct stacks *stacks, uint32_t number)
{
	if (number && number < stacks->paths.cnt)
		return ((const struct path *)stacks->paths.items)[number];
	return (struct path){.known = !number};
}

size_t stacks__code_end(const struct stacks *stacks)
{
	return intern__end(&stacks->code_ids);
}

size_t stacks__stack_end(const struct stacks *stacks)
{
	return intern__end(&stacks->stack_ids);
}

size_t stacks__path_end(const struct stacks *stacks)
{
	return intern__end(&stacks->path_ids);
}

uint32_t code__line(const struct code *code, uint32_t offset)
{
	/* The last entry that begins at or before the offset. */
	size_t low = SEARCH(i, 0, code->line_cnt, code->lines[i].offset <= offset);
	return low && code->lines[low - 1].line > 0 ? (uint32_t)code->lines[low - 1].line : 0;
}

void stacks__forget(struct stacks *stacks)
{
	struct stack *all = stacks->stacks.items;
	struct path *paths = stacks->paths.items;

	for (size_t i = 0; i < stacks->stacks.cnt; i++)
		free(all[i].frames);
	for (size_t i = 0; i < stacks->paths.cnt; i++)
		free(paths[i].spans);
	free(all);
	free(paths);
	intern__free(&stacks->stack_ids);
	intern__free(&stacks->path_ids);
	stacks->stacks = stacks->paths = (struct array){0};
}

void stacks__free(struct stacks *stacks)
{
	struct code *codes = stacks->codes.items;

	stacks__forget(stacks);
	for (size_t i = 0; i < stacks->codes.cnt; i++)
		free(codes[i].lines);
	free(codes);
	free(stacks->installed.items);
	intern__free(&stacks->code_ids);
	*stacks = (struct stacks){0};
}
