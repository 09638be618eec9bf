// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/loader/worker_stacks.h"

#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/model/stacks.h"

static bool is_of_file(const struct job *job, uint32_t code, const char *file)
{
	return compare__ends_with(job__name(job, stacks__code(job__stacks(job), code).file), file);
}

static bool is_function_of_file(const struct job *job, uint32_t code, const char *file, const char *name)
{
	const char *text = job__name(job, stacks__code(job__stacks(job), code).name),
		   *dot = text ? strrchr(text, '.') : NULL;

	return text && !strcmp(dot ? dot + 1 : text, name) && is_of_file(job, code, file);
}

/*
 * _worker_loop (torch/utils/data/_utils/worker.py, 1.8 to 2.15, and torchdata's copy) calls get on its index queue;
 * _feed, in a thread of its own, waits on a condition. A batch has arrived when the process takes
 * over the memory of its tensors, for which the worker passes a descriptor.
 */
enum loop_function {
	LOOP_NONE,
	LOOP_WORKER,
	LOOP_FEED,
	LOOP_GET,
	LOOP_WAIT,
	LOOP_TAKE,
	LOOP_BEGIN,   /* makes an iterator of a DataLoader, which starts its workers, if it has some */
	LOOP_END,     /* ends them */
	LOOP_LOADER,  /* any other function of the DataLoader */
	LOOP_PROCESS, /* of multiprocessing, which starts processes, and waits for their ends */
};

/* Before Python 3.11 names have no class. */
static enum loop_function loader_function(const struct job *job, uint32_t code)
{
	static const char *const files[] = {"torch/utils/data/dataloader.py",
					    "torchdata/stateful_dataloader/stateful_dataloader.py"};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		if (!is_of_file(job, code, files[i]))
			continue;
		if (is_function_of_file(job, code, files[i], "__init__"))
			return LOOP_BEGIN;
		return is_function_of_file(job, code, files[i], "_shutdown_workers") ? LOOP_END : LOOP_LOADER;
	}
	return LOOP_NONE;
}

static bool is_of_processes(const struct job *job, uint32_t number)
{
	struct code code = stacks__code(job__stacks(job), number);
	const char *file = job__name(job, code.file);

	return file && strstr(file, "multiprocessing/") && !code.is_own;
}

static enum loop_function loop_function(const struct job *job, uint32_t code)
{
	if (is_function_of_file(job, code, "torch/utils/data/_utils/worker.py", "_worker_loop") ||
	    is_function_of_file(job, code, "torchdata/stateful_dataloader/worker.py", "_worker_loop"))
		return LOOP_WORKER;
	if (is_function_of_file(job, code, "multiprocessing/queues.py", "_feed"))
		return LOOP_FEED;
	if (is_function_of_file(job, code, "multiprocessing/queues.py", "get"))
		return LOOP_GET;
	if (is_function_of_file(job, code, "multiprocessing/resource_sharer.py", "detach"))
		return LOOP_TAKE;
	if (is_function_of_file(job, code, "threading.py", "wait"))
		return LOOP_WAIT;
	return is_of_processes(job, code) ? LOOP_PROCESS : loader_function(job, code);
}

/*
 * Where a DataLoader starts its workers it also calls iter() of its sampler, and without workers of its data set: what
 * these do is no start of workers.
 */
static bool is_start(enum loop_function function, enum loop_function called)
{
	return function == LOOP_END || (function == LOOP_BEGIN && (called == LOOP_PROCESS || called == LOOP_GET));
}

static enum worker_stack classify_stack(const struct stack *stack, const uint8_t *functions)
{
	enum worker_stack found = STACK_OTHER;
	uint8_t called_by_loader = LOOP_NONE; /* by the functions of the DataLoader around it */

	for (uint32_t f = 0; f < stack->cnt; f++) {
		uint8_t function = functions[stack->frames[f].code];
		uint8_t called = f ? functions[stack->frames[f - 1].code] : LOOP_NONE;

		if ((function == LOOP_WORKER && called == LOOP_GET) || (function == LOOP_FEED && called == LOOP_WAIT))
			return STACK_IDLE;
		if (function == LOOP_WORKER || function == LOOP_FEED)
			found = STACK_WORKS;
		else if (function == LOOP_TAKE)
			found = STACK_TAKES;
		else if (found == STACK_OTHER && is_start(function, called_by_loader))
			found = STACK_STARTS;
		if (function != LOOP_BEGIN && function != LOOP_LOADER)
			called_by_loader = function;
	}
	return found;
}

uint8_t *worker_stacks__new(const struct job *job)
{
	const struct stacks *stacks = job__stacks(job);
	size_t end = stacks__stack_end(stacks), code_end = stacks__code_end(stacks);
	uint8_t *functions = calloc(code_end, sizeof(*functions)), *found = calloc(end, sizeof(*found));

	for (size_t i = 0; functions && i < code_end; i++)
		functions[i] = loop_function(job, i);
	for (size_t i = 0; found && functions && i < end; i++) {
		struct stack stack = stacks__stack(stacks, i);

		found[i] = classify_stack(&stack, functions);
	}
	if (!functions) {
		free(found);
		found = NULL;
	}
	free(functions);
	return found;
}

/*
 * _IterableDatasetFetcher.fetch (torch/utils/data/_utils/fetch.py). Before Python 3.11 the name has no class; the function
 * begins in line 26 or 27 of torch 1.13 and 2.6, that of _MapDatasetFetcher in line 53 or 49.
 */
#define STREAM_LAST_LINE 40

static bool makes_of_stream(const struct job *job, uint32_t number)
{
	struct code code = stacks__code(job__stacks(job), number);
	const char *name = job__name(job, code.name);

	if (!name || !is_function_of_file(job, number, "torch/utils/data/_utils/fetch.py", "fetch"))
		return false;
	return strchr(name, '.') ? !strncmp(name, "_Iterable", strlen("_Iterable"))
				 : code.first_line <= STREAM_LAST_LINE;
}

bool *worker_stacks__streams(const struct job *job)
{
	const struct stacks *stacks = job__stacks(job);
	size_t end = stacks__stack_end(stacks), code_end = stacks__code_end(stacks);
	bool *functions = calloc(code_end, sizeof(*functions)), *found = calloc(end, sizeof(*found));

	for (size_t i = 0; functions && i < code_end; i++)
		functions[i] = makes_of_stream(job, i);
	for (size_t i = 0; found && functions && i < end; i++) {
		struct stack stack = stacks__stack(stacks, i);

		for (uint32_t f = 0; f < stack.cnt && !found[i]; f++)
			found[i] = functions[stack.frames[f].code];
	}
	if (!functions) {
		free(found);
		found = NULL;
	}
	free(functions);
	return found;
}
