// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/flame/functions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct function_node {
	struct node_key {
		uint32_t file, name; /* texts */
		uint64_t line;
	} key;
	struct function function;
};

static int number_function(struct functions *functions, const struct function *function, uint32_t *number)
{
	struct node_key key = {.line = function->line};
	struct function_node *node;
	uint32_t qualname;
	char *const *texts;

	if (map__add_text(&functions->texts, function->file, &key.file) ||
	    map__add_text(&functions->texts, function->name, &key.name) ||
	    map__add_text(&functions->texts, function->qualname, &qualname))
		return -ENOMEM;
	node = MAP_ADD(&functions->by_key, struct function_node, &key);
	if (!node)
		return -ENOMEM;
	texts = functions->texts.items.items;
	if (!node->function.file)
		node->function = (struct function){texts[key.file], key.line, texts[key.name], texts[qualname]};
	*number = MAP_INDEX(&functions->by_key, node) + 1;
	return 0;
}

int functions__builtin(struct functions *functions, const char *prefix, const char *text, uint32_t *number)
{
	char *name;
	int err;

	if (!text || asprintf(&name, "<%s%s>", prefix, text) < 0)
		return -ENOMEM;
	err = number_function(functions, &(struct function){FUNCTION_BUILTIN_FILE, 0, name, name}, number);
	free(name);
	return err;
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
	return number_function(functions, &key, number);
}

int functions__code(struct functions *functions, uint32_t code_number, uint32_t *number)
{
	const struct stacks *stacks = job__stacks(functions->job);
	struct code code = stacks__code(stacks, code_number);
	uint32_t *cached;
	int err = 0;

	if (array__grow(&functions->code_numbers, stacks__code_end(stacks), sizeof(*cached)))
		return -ENOMEM;
	cached = &((uint32_t *)functions->code_numbers.items)[code_number];
	if (!*cached && code_number && code.known)
		err = number_known(functions, &code, cached);
	else if (!*cached)
		err = functions__builtin(functions, "function ", code_number ? "lost" : "not readable", cached);
	*number = *cached;
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
	uint32_t symbol, *cached;
	int err = intern__add(&functions->symbols, name_id, &symbol);

	*number = 0;
	if (err || !name_id)
		return err;
	if (array__grow(&functions->symbol_numbers, intern__end(&functions->symbols), sizeof(*cached)))
		return -ENOMEM;
	cached = &((uint32_t *)functions->symbol_numbers.items)[symbol];
	if (!*cached)
		err = functions__builtin(functions, "", job__name_or_lost(functions->job, name_id), cached);
	*number = *cached;
	return err;
}

const struct function *functions__get(const struct functions *functions, uint32_t number)
{
	return &((const struct function_node *)functions->by_key.items.items)[number - 1].function;
}

size_t functions__end(const struct functions *functions)
{
	return functions->by_key.items.cnt + 1;
}

void functions__free(struct functions *functions)
{
	map__free(&functions->by_key);
	map__free_texts(&functions->texts);
	free(functions->code_numbers.items);
	intern__free(&functions->symbols);
	free(functions->symbol_numbers.items);
	*functions = (struct functions){0};
}
