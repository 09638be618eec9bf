// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/functions.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"

struct node {
	struct function function; /* first: what compare looks at */
	uint32_t number;
	char *made; /* the name, where it is not the job's; owned */
};

static int compare_functions(const void *a, const void *b)
{
	const struct function *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	if (order)
		return order;
	return x->line != y->line ? COMPARE(x->line, y->line) : strcmp(x->file, y->file);
}

/* made (may be NULL) is taken over. */
static int number_function(struct functions *functions, const struct function *key, char *made, uint32_t *number)
{
	struct node **found = tfind(key, &functions->by_key, compare_functions), *node, **slot;

	if (found) {
		free(made);
		*number = (*found)->number;
		return 0;
	}
	node = malloc(sizeof(*node));
	slot = node ? array__add(&functions->by_number, sizeof(*slot)) : NULL;
	if (!slot) {
		free(node);
		free(made);
		return -ENOMEM;
	}
	*node = (struct node){*key, functions->by_number.cnt, made};
	*slot = node;
	if (!tsearch(node, &functions->by_key, compare_functions)) {
		functions->by_number.cnt--;
		free(node);
		free(made);
		return -ENOMEM;
	}
	*number = node->number;
	return 0;
}

int functions__builtin(struct functions *functions, const char *prefix, const char *text, uint32_t *number)
{
	char *name;

	if (!text || asprintf(&name, "<%s%s>", prefix, text) < 0)
		return -ENOMEM;
	return number_function(functions, &(struct function){FUNCTION_BUILTIN_FILE, 0, name, name}, name, number);
}

static int number_known(struct functions *functions, const struct code *code, uint32_t *number)
{
	struct function key = {.file = "?", .line = code->first_line, .qualname = "?"};
	const char *dot;

	if (code->file)
		key.file = job__name_or_lost(functions->job, code->file);
	if (code->name)
		key.qualname = job__name_or_lost(functions->job, code->name);
	if (!key.file || !key.qualname)
		return -ENOMEM;
	/* cProfile, and so Lightning, shows co_name. */
	dot = strrchr(key.qualname, '.');
	key.name = dot && dot[1] ? dot + 1 : key.qualname;
	return number_function(functions, &key, NULL, number);
}

int functions__code(struct functions *functions, uint32_t code_number, uint32_t *number)
{
	const struct stacks *stacks = job__stacks(functions->job);
	struct code code = stacks__code(stacks, code_number);
	uint32_t *kept;
	int err = 0;

	if (array__grow(&functions->code_numbers, stacks__code_end(stacks), sizeof(*kept)))
		return -ENOMEM;
	kept = &((uint32_t *)functions->code_numbers.items)[code_number];
	if (!*kept && code_number && code.known)
		err = number_known(functions, &code, kept);
	else if (!*kept)
		err = functions__builtin(functions, "function ", code_number ? "lost" : "not readable", kept);
	*number = *kept;
	return err;
}

int functions__stack(struct functions *functions, const struct stack *stack)
{
	uint32_t number;
	int err = 0;

	for (uint32_t i = stack->cnt; i > 0 && !err; i--)
		err = functions__code(functions, stack->frames[i - 1].code, &number);
	return err;
}

int functions__symbol(struct functions *functions, uint64_t name_id, uint32_t *number)
{
	uint32_t symbol, *kept;
	int err = intern__add(&functions->symbols, name_id, &symbol);

	*number = 0;
	if (err || !name_id)
		return err;
	if (array__grow(&functions->symbol_numbers, intern__end(&functions->symbols), sizeof(*kept)))
		return -ENOMEM;
	kept = &((uint32_t *)functions->symbol_numbers.items)[symbol];
	if (!*kept)
		err = functions__builtin(functions, "", job__name_or_lost(functions->job, name_id), kept);
	*number = *kept;
	return err;
}

const struct function *functions__get(const struct functions *functions, uint32_t number)
{
	return &((struct node *const *)functions->by_number.items)[number - 1]->function;
}

size_t functions__end(const struct functions *functions)
{
	return functions->by_number.cnt + 1;
}

static void free_node(void *item)
{
	struct node *node = item;

	free(node->made);
	free(node);
}

void functions__free(struct functions *functions)
{
	tdestroy(functions->by_key, free_node);
	free(functions->by_number.items);
	free(functions->code_numbers.items);
	intern__free(&functions->symbols);
	free(functions->symbol_numbers.items);
	*functions = (struct functions){0};
}
