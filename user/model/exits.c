// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/exits.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "user/lib/compare.h"

static int compare_exits(const void *a, const void *b)
{
	return COMPARE(((const struct rec_proc *)a)->pid, ((const struct rec_proc *)b)->pid);
}

int exits__add(struct exits *exits, const struct rec_proc *record)
{
	struct rec_proc **known, *exit;

	if (record->event != PROC_EXIT)
		return 0;
	known = tfind(record, &exits->by_pid, compare_exits);
	if (known) {
		**known = *record;
		return 0;
	}
	exit = malloc(sizeof(*exit));
	if (!exit)
		return -ENOMEM;
	*exit = *record;
	if (tsearch(exit, &exits->by_pid, compare_exits))
		return 0;
	free(exit);
	return -ENOMEM;
}

const struct rec_proc *exits__find(const struct exits *exits, __u32 pid)
{
	const struct rec_proc key = {.pid = pid};
	struct rec_proc *const *known = tfind(&key, &exits->by_pid, compare_exits);

	return known ? *known : NULL;
}

void exits__free(struct exits *exits)
{
	tdestroy(exits->by_pid, free);
	*exits = (struct exits){0};
}
