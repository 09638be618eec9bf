// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* In: REC_MODULES from the kernel, the session's names. Out: REC_NAMEs that are paths of modules. */
#include "user/session/sources/modules.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/names.h"

/* A module of a process. An address that an object of another class has next is another's. */
struct module {
	uint32_t pid;
	uint64_t object, type;
	uint32_t index; /* among those of its class */
};

struct class
{
	uint32_t pid;
	uint64_t type;
	uint32_t cnt;
};

struct modules {
	void *modules, *classes; /* trees (tsearch) */
};

static int compare_module(const void *a, const void *b)
{
	const struct module *x = a, *y = b;
	int order = COMPARE(x->pid, y->pid);

	order = order ?: COMPARE(x->object, y->object);
	return order ?: COMPARE(x->type, y->type);
}

static int compare_class(const void *a, const void *b)
{
	const struct class *x = a, *y = b;

	return COMPARE(x->pid, y->pid) ?: COMPARE(x->type, y->type);
}

/* The element of a tree that equals *key, made as a copy of it when there is none. NULL: no memory. */
static void *find_or_add(void **tree, const void *key, size_t bytes, int (*compare)(const void *, const void *))
{
	void **found = tsearch(key, tree, compare), *copy;

	if (!found || *found != key)
		return found ? *found : NULL;
	copy = malloc(bytes);
	if (!copy) {
		tdelete(key, tree, compare);
		return NULL;
	}
	memcpy(copy, key, bytes);
	*found = copy;
	return copy;
}

/* Its number, counted from 0. -ENOMEM. */
static int64_t module__index(struct modules *m, uint32_t pid, const struct rec_module *module)
{
	struct module key = {.pid = pid, .object = module->object, .type = module->type, .index = UINT32_MAX}, *known;
	struct class class_key = {.pid = pid, .type = module->type}, *class;

	known = find_or_add(&m->modules, &key, sizeof(key), compare_module);
	if (!known)
		return -ENOMEM;
	if (known->index == UINT32_MAX) {
		class = find_or_add(&m->classes, &class_key, sizeof(class_key), compare_class);
		if (!class)
			return -ENOMEM;
		known->index = class->cnt++;
	}
	return known->index;
}

int modules__path(struct session *s, struct modules **modules, const struct rec_modules *rec)
{
	_Alignas(struct rec_name) char room[sizeof(struct rec_name) + REC_NAME_MAX + 1] = {0};
	struct rec_name *name = (void *)room;
	struct modules *m = *modules ?: calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	*modules = m;
	name->hdr.type = REC_NAME;
	name->id = rec->id;
	for (uint32_t i = rec->module_cnt; i-- > 0;) {
		const char *type = names__find_or_lost(&s->names, rec->modules[i].type);
		int64_t index = module__index(m, rec->pid, &rec->modules[i]);

		if (!type || index < 0)
			return -ENOMEM;
		name->whole_bytes += snprintf(name->text + name->bytes, REC_NAME_MAX + 1 - name->bytes, "%s%s_%d",
					      name->bytes ? "/" : "", type, (int)index);
		name->bytes = name->whole_bytes < REC_NAME_MAX ? name->whole_bytes : REC_NAME_MAX;
	}
	name->cut = name->bytes < name->whole_bytes;
	name->hdr.size = sizeof(*name) + ((name->bytes + 7) & ~7u);
	return session__emit(s, &name->hdr);
}

void modules__free(struct modules *m)
{
	if (!m)
		return;
	tdestroy(m->modules, free);
	tdestroy(m->classes, free);
	free(m);
}
