// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The sample's stack and the stack at a span's end share the frames around the span: from the
 * outermost inwards, the same functions at the same instructions, except for the last shared frame,
 * which begins and ends the span. Of the stacks recorded for a span, the longest match counts:
 * stacks of other calls of the span share fewer frames. The stacks are sorted, so the best match is
 * next to the position of the sample's stack.
 */
#include "user/analysis/flame/inside.h"

#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/search.h"

struct inside {
	const struct stacks *stacks;
	struct around *arounds; /* by span, then by stack */
	size_t cnt;
};

/*
 * Compares from the outermost frame inwards. *shared: number of frames with the same functions up
 * to the first difference, including the frame that differs only in its instruction.
 */
static int compare_stacks(const struct stack *x, const struct stack *y, uint32_t *shared)
{
	uint32_t cnt = x->cnt < y->cnt ? x->cnt : y->cnt;

	*shared = 0;
	for (uint32_t i = 1; i <= cnt; i++) {
		const struct frame *a = &x->frames[x->cnt - i], *b = &y->frames[y->cnt - i];

		if (a->code != b->code)
			return COMPARE(a->code, b->code);
		*shared = i;
		if (a->offset != b->offset)
			return COMPARE(a->offset, b->offset);
	}
	return COMPARE(x->cnt, y->cnt);
}

static int compare_around_name(const struct around *x, const struct around *y)
{
	return x->name != y->name ? COMPARE(x->name, y->name) : COMPARE(x->kind, y->kind);
}

static int compare_around(const void *a, const void *b, void *stacks)
{
	const struct around *x = a, *y = b;
	struct stack of_x = stacks__stack(stacks, x->stack), of_y = stacks__stack(stacks, y->stack);
	int result = compare_around_name(x, y);

	return result ? result : compare_stacks(&of_x, &of_y, &(uint32_t){0});
}

uint32_t inside__frames(const struct inside *inside, const struct path_span *span, uint32_t stack, bool *known)
{
	const struct around key = {.name = span->name, .kind = span->kind, .stack = stack}, *all = inside->arounds;
	struct stack of_sample = stacks__stack(inside->stacks, stack);
	uint32_t around = 0;
	size_t low = SEARCH(i, 0, inside->cnt, compare_around(&all[i], &key, (void *)inside->stacks) < 0);
	for (size_t i = low ? low - 1 : 0; i <= low && i < inside->cnt && !of_sample.cut; i++) {
		struct stack other = stacks__stack(inside->stacks, all[i].stack);
		uint32_t shared = 0;

		if (!compare_around_name(&all[i], &key))
			compare_stacks(&of_sample, &other, &shared);
		around = shared > around ? shared : around;
	}
	*known = around || !of_sample.cnt;
	return of_sample.cnt - around;
}

struct inside *inside__new(const struct stacks *stacks, const struct samples *samples)
{
	struct inside *inside = calloc(1, sizeof(*inside));
	size_t cnt;
	const struct around *arounds = samples__arounds(samples, &cnt);

	if (!inside)
		return NULL;
	inside->stacks = stacks;
	inside->arounds = calloc(cnt + 1, sizeof(*inside->arounds));
	if (!inside->arounds) {
		free(inside);
		return NULL;
	}
	/*
	 * A span nested in one of the same name is part of that one. A stack without its outer
	 * frames cannot be compared.
	 */
	for (size_t i = 0; i < cnt; i++)
		if (!arounds[i].nested && !stacks__stack(stacks, arounds[i].stack).cut)
			inside->arounds[inside->cnt++] = arounds[i];
	if (inside->cnt)
		qsort_r(inside->arounds, inside->cnt, sizeof(*inside->arounds), compare_around, (void *)stacks);
	return inside;
}

void inside__free(struct inside *inside)
{
	if (!inside)
		return;
	free(inside->arounds);
	free(inside);
}
