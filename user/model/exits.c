// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/exits.h"

#include <errno.h>

struct exit {
	uint64_t pid;
	struct rec_proc record;
};

int exits__add(struct exits *exits, const struct rec_proc *record)
{
	const uint64_t pid = record->pid;
	struct exit *exit;

	if (record->event != PROC_EXIT)
		return 0;
	exit = MAP_ADD(&exits->by_pid, struct exit, &pid);
	if (!exit)
		return -ENOMEM;
	exit->record = *record;
	return 0;
}

bool exits__forget(struct exits *exits, __u32 pid)
{
	const uint64_t key = pid;
	struct exit *exit = MAP_FIND(&exits->by_pid, struct exit, &key);

	if (!exit || exit->record.event != PROC_EXIT)
		return false;
	exit->record.event = 0;
	return true;
}

const struct rec_proc *exits__find(const struct exits *exits, __u32 pid)
{
	const uint64_t key = pid;
	const struct exit *exit = MAP_FIND(&exits->by_pid, struct exit, &key);

	return exit && exit->record.event == PROC_EXIT ? &exit->record : NULL;
}

void exits__free(struct exits *exits)
{
	map__free(&exits->by_pid);
}
