// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where a process fetches batches: in an action, since Lightning has one for each kind of loop;
 * else at the innermost Python line outside the DataLoader's code, combined with whether it is in
 * an evaluation: one line may serve both.
 */
#include "user/analysis/loader/loader_place.h"

#include <string.h>

#include "include/name_hash.h"
#include "user/analysis/place/place.h"
#include "user/model/stacks.h"

#define LOADER_FOLDER "/torch/utils/data/"

static bool is_loaders(const struct job *job, const struct code *code)
{
	const char *file = code->file ? job__name(job, code->file) : NULL;

	return file && strstr(file, LOADER_FOLDER);
}

static uint64_t innermost_action(const struct job *job, uint32_t number)
{
	struct path path = stacks__path(job__stacks(job), number);

	for (uint32_t i = path.cnt; i > 0; i--)
		if (path.spans[i - 1].kind == SPAN_ACTION)
			return path.spans[i - 1].name;
	return 0;
}

struct loader_place loader_place__of(const struct job *job, const struct steps *steps, const struct sample *sample)
{
	const struct stacks *stacks = job__stacks(job);
	struct stack stack = stacks__stack(stacks, sample->stack);
	struct loader_place place = {.action = innermost_action(job, sample->path),
				     .validation = steps__phase(steps, sample->path) == PHASE_VALIDATION};
	uint64_t hash = name_hash__add(name_hash__add(name_hash__seed(0, 0), place.validation), place.action);
	uint32_t outside = stack.cnt;

	while (outside > 0) {
		struct code code = stacks__code(stacks, stack.frames[outside - 1].code);

		if (is_loaders(job, &code))
			break;
		outside--;
	}
	for (uint32_t i = outside; i < stack.cnt; i++) {
		struct code code = stacks__code(stacks, stack.frames[i].code);
		uint32_t line = code__line(&code, stack.frames[i].offset);

		if (!place.action)
			hash = name_hash__add(hash, (uint64_t)stack.frames[i].code << 32 | line);
		if (!place.code && place__is_users(job, stack.frames[i].code)) {
			place.code = stack.frames[i].code;
			place.line = line ?: code.first_line;
		}
	}
	place.key = name_hash__end(hash);
	return place;
}
