/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Caches what was found in a torch library. In and out: struct torch_ops, by user/elf/cache.h, with
 * names as offsets. No state.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/cache.h"
#include "user/runtime/torch/ops_private.h"

#define WHAT "operators"

enum ops_cache_part { CODE, FUNCTIONS, NODES, SITES, NAMES, FACTS, PARTS };

struct facts {
	uint32_t unnamed_cnt, unplaced_cnt;
	uint16_t string_bytes, sequence_nr;
};

static const struct cache_part units[PARTS] = {
	[CODE].unit = sizeof(uint64_t),
	[FUNCTIONS].unit = sizeof(struct torch_fn),
	[NODES].unit = sizeof(struct torch_node),
	[SITES].unit = sizeof(struct site),
	[NAMES].unit = 1,
	[FACTS].unit = sizeof(struct facts),
};

static bool is_sound_function(const struct torch_fn *fn, const struct torch_ops *ops)
{
	uint64_t end = (uint64_t)fn->first_site + fn->exit_cnt + fn->unwind_cnt;

	if (fn->event > OP_TEXT || fn->subject >= OP_ARG_STACK || fn->policy > SITES_AFTER_WORK ||
	    fn->arg_cnt > OP_ARGS_MAX || end > ops->site_cnt || (uintptr_t)fn->name >= ops->names_size)
		return false;
	for (uint32_t i = 0; i < fn->arg_cnt; i++)
		if (fn->arg[i].kind >= OP_ARG__COUNT)
			return false;
	return true;
}

/* Turns the valid offsets into pointers. */
static bool resolve_name(struct torch_ops *ops)
{
	if (!ops->names_size || ops->names[ops->names_size - 1])
		return false;
	for (size_t i = 0; i < ops->fn_cnt; i++) {
		if (!is_sound_function(&ops->fn[i], ops))
			return false;
		ops->fn[i].name = ops->names + (uintptr_t)ops->fn[i].name;
	}
	for (size_t i = 0; i < ops->node_cnt; i++) {
		if ((uintptr_t)ops->node[i].name >= ops->names_size)
			return false;
		ops->node[i].name = ops->names + (uintptr_t)ops->node[i].name;
	}
	return true;
}

int ops_cache__load(const struct elf *elf, const char *dir, struct torch_ops **out)
{
	struct cache_part part[PARTS];
	const struct facts *facts;
	struct torch_ops *ops;

	memcpy(part, units, sizeof(part));
	if (cache__load(elf, dir, WHAT, part, PARTS))
		return -ENOENT;
	facts = part[FACTS].data;
	ops = part[FACTS].cnt == 1 ? malloc(sizeof(*ops)) : NULL;
	if (!ops) {
		cache__release(part, PARTS);
		return -ENOENT;
	}
	*ops = (struct torch_ops){
		.fn = part[FUNCTIONS].data,
		.fn_cnt = part[FUNCTIONS].cnt,
		.site = part[SITES].data,
		.site_cnt = part[SITES].cnt,
		.node = part[NODES].data,
		.node_cnt = part[NODES].cnt,
		.names = part[NAMES].data,
		.names_size = part[NAMES].cnt,
		.unnamed_cnt = facts->unnamed_cnt,
		.unplaced_cnt = facts->unplaced_cnt,
		.string_bytes = facts->string_bytes,
		.sequence_nr = facts->sequence_nr,
	};
	free(part[CODE].data);
	free(part[FACTS].data);
	if (resolve_name(ops)) {
		*out = ops;
		return 0;
	}
	torch_ops__free(ops);
	return -ENOENT;
}

static void *copy_block(const void *from, size_t bytes)
{
	void *to = malloc(bytes + 1);

	return to && bytes ? memcpy(to, from, bytes) : to;
}

void ops_cache__save(const struct elf *elf, const char *dir, const struct torch_ops *ops)
{
	struct torch_fn *fn = copy_block(ops->fn, ops->fn_cnt * sizeof(*fn));
	struct torch_node *node = copy_block(ops->node, ops->node_cnt * sizeof(*node));
	uint64_t *code = malloc((ops->fn_cnt + ops->site_cnt + 1) * sizeof(*code));
	struct facts facts = {ops->unnamed_cnt, ops->unplaced_cnt, ops->string_bytes, ops->sequence_nr};
	struct cache_part part[PARTS];

	if (!fn || !node || !code)
		goto out;
	for (size_t i = 0; i < ops->fn_cnt; i++) {
		fn[i].name = (const char *)(fn[i].name - ops->names);
		code[i] = fn[i].entry.offset;
	}
	for (size_t i = 0; i < ops->node_cnt; i++)
		node[i].name = (const char *)(node[i].name - ops->names);
	for (size_t i = 0; i < ops->site_cnt; i++)
		code[ops->fn_cnt + i] = ops->site[i].offset;
	memcpy(part, units, sizeof(part));
	part[CODE].data = code;
	part[CODE].cnt = ops->fn_cnt + ops->site_cnt;
	part[FUNCTIONS].data = fn;
	part[FUNCTIONS].cnt = ops->fn_cnt;
	part[NODES].data = node;
	part[NODES].cnt = ops->node_cnt;
	part[SITES].data = ops->site;
	part[SITES].cnt = ops->site_cnt;
	part[NAMES].data = ops->names;
	part[NAMES].cnt = ops->names_size;
	part[FACTS].data = &facts;
	part[FACTS].cnt = 1;
	cache__save(elf, dir, WHAT, part, PARTS);
out:
	free(fn);
	free(node);
	free(code);
}
