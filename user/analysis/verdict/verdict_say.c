// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Questions and text output that all parts of a verdict share. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "user/analysis/verdict/verdict_private.h"
#include "user/lib/search.h"

void verdict__say(struct judge *j, struct array *list, const char *fmt, ...)
{
	va_list ap;
	char **slot;

	va_start(ap, fmt);
	slot = array__add(list, sizeof(*slot));
	if (slot && vasprintf(slot, fmt, ap) < 0)
		*slot = NULL;
	if (!slot || !*slot) {
		list->cnt -= slot != NULL;
		j->err = -ENOMEM;
	}
	va_end(ap);
}

/* Before a wait for a CPU, who ended the previous wait does not matter. */
bool verdict__one_waker(const struct blame_group *group)
{
	return group->waker_pid && group->waker_ns >= 0.5 * group->wait_ns && group->cause != CAUSE_RUN_QUEUE;
}

bool verdict__is_of_group(const struct judge *j, const struct blame_group *group, long step)
{
	size_t cnt = j->track->slow_cnt, at = SEARCH(i, 0, cnt, j->blame->steps[i].step < step);

	return step >= 0 && at < cnt && j->blame->steps[at].step == step &&
	       &j->blame->groups[j->blame->steps[at].group] == group;
}

bool verdict__failed(const struct job *job, uint32_t pid)
{
	const struct rec_proc *exit = job__exit(job, pid);

	return exit && exit->exit_code;
}
