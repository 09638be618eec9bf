// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "landmarks.h"

#include <errno.h>
#include <string.h>

#include "../../include/probes.h"
#include "../log.h"

int landmarks__python(struct probe_list *list, const struct elf *elf, const struct py_functions *functions)
{
	int err;

	if (!functions->next)
		return -ENOENT;
	/* Without these two, exceptions inside an action and batch fetches are missed; the rest holds. */
	if (!functions->iternext ||
	    probe_list__add_function(list, elf, functions->iternext, 0, PROBE_PY_ITER, PROBE_PY_ITER_EXIT, 0, 0))
		log__warn(NULL, "the interpreter's __next__ slot was not found: rows of batch fetches will be missing");
	if (!functions->throw_ ||
	    probe_list__add_function(list, elf, functions->throw_, 0, PROBE_PY_THROW, PROBE_NONE, 0, 0))
		log__warn(NULL,
			  "the interpreter's generator throw() was not found: actions that raise are not counted");
	err = probe_list__add_function(list, elf, functions->next, 0, PROBE_PY_NEXT, PROBE_NONE, 0, 0);
	return err;
}

/* By the mangled names' beginnings: what follows differs with the C++ ABI and with c10::optional or std::optional. */
static const struct torch_landmark {
	const char *prefix;
	uint32_t enter, exit, fn;
} torch_landmarks[] = {
	{"_ZN5torch8autograd8profiler25record_function_enter_newE", PROBE_LABEL, PROBE_LABEL_EXIT, 0},
	{"_ZN2at14RecordFunction3endEv", PROBE_LABEL_END, PROBE_NONE, 0},
	{"_ZN5torch8autograd6Engine7executeE", PROBE_FN, PROBE_FN_EXIT, LANDMARK_FN_BACKWARD},
};

struct search {
	struct probe_list *list;
	const struct elf *elf;
	unsigned int found; /* bit per landmark */
	int err;
};

static int try_symbol(const struct elf_symbol *symbol, void *ctx)
{
	struct search *s = ctx;

	for (size_t i = 0; i < sizeof(torch_landmarks) / sizeof(torch_landmarks[0]); i++) {
		const struct torch_landmark *l = &torch_landmarks[i];
		uint32_t flags = strstr(symbol->name, "RKSs") ? COOKIE_OLD_STRING : 0;

		if (s->found & 1u << i || !symbol->function || strncmp(symbol->name, l->prefix, strlen(l->prefix)) ||
		    strstr(symbol->name, ".cold"))
			continue;
		s->found |= 1u << i;
		s->err = probe_list__add_function(s->list, s->elf, symbol->vaddr, symbol->size, l->enter, l->exit,
						  flags, l->fn);
		if (s->err)
			log__warn(NULL, "no probe can be placed in %s: its rows will be missing", symbol->name);
	}
	return s->found == (1u << sizeof(torch_landmarks) / sizeof(torch_landmarks[0])) - 1;
}

int landmarks__torch(struct probe_list *list, const struct elf *elf)
{
	struct search s = {.list = list, .elf = elf};

	elf__each_symbol(elf, try_symbol, &s);
	return s.found ? 0 : -ENOENT;
}
