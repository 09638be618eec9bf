// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* In: REC_MODULES, the session's names. Out: REC_NAMEs that are paths of modules. */
#include "user/session/sources/modules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/map.h"
#include "user/lib/names.h"

struct class_key {
	uint64_t pid, type;
};

struct class
{
	struct class_key key;
	uint32_t cnt;
};

/*
 * A module of a process. The class is part of the key: an object of another class at the same
 * address is another module.
 */
struct module_key {
	uint64_t pid, object, type;
};

struct module {
	struct module_key key;
	uint32_t number; /* among modules of its class, from 1 on; 0: not assigned yet */
};

struct modules {
	struct map modules, classes;
};

/* The number of a module within its class, from 0 on; or -ENOMEM. */
static int64_t module__index(struct modules *m, uint32_t pid, const struct rec_module *rec)
{
	struct class_key class_key = {pid, rec->type};
	struct module_key key = {pid, rec->object, rec->type};
	struct module *module = MAP_ADD(&m->modules, struct module, &key);
	struct class *class = MAP_ADD(&m->classes, struct class, &class_key);

	if (!module || !class)
		return -ENOMEM;
	if (!module->number)
		module->number = ++class->cnt;
	return module->number - 1;
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
	map__free(&m->modules);
	map__free(&m->classes);
	free(m);
}
