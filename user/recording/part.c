// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/recording/part.h"

#include <errno.h>
#include <string.h>

#include "user/recording/descriptors.h"

int recording_part__add(struct recording_part *part, uint32_t pid)
{
	uint32_t number;

	return intern__add(&part->pids, pid, &number) ? -ENOMEM : 0;
}

int recording_part__look(struct recording_part *part, const struct rec_hdr *record)
{
	const struct rec_target *target = (const void *)record;
	const struct rec_proc *proc = (const void *)record;
	uint32_t pid, parent;

	if (record->type == REC_TARGET && record->size >= sizeof(*target) && target->role != ROLE_MAIN) {
		pid = target->pid;
		parent = target->parent_pid;
	} else if (record->type == REC_PROC && record->size >= sizeof(*proc) && proc->event == PROC_FORK) {
		pid = proc->pid;
		parent = proc->parent_pid;
	} else {
		return 0;
	}
	return intern__find(&part->pids, parent) ? recording_part__add(part, pid) : 0;
}

bool recording_part__has(const struct recording_part *part, const struct rec_hdr *record)
{
	const struct record_descriptor *descriptor = record_descriptor__of(record->type);
	uint32_t pid = 0;

	/* What later records refer to by an id is of any process that has it; a machine is of all. */
	if (!descriptor || descriptor->keep == KEEP_FIRST || record->type == REC_MACHINE)
		return true;
	for (size_t i = 0; i < descriptor->field_cnt; i++) {
		const struct record_field *field = &descriptor->fields[i];

		if (field->kind != FIELD_PID || record->size < field->offset + sizeof(pid))
			continue;
		memcpy(&pid, (const char *)record + field->offset, sizeof(pid));
		return intern__find(&part->pids, pid);
	}
	return true;
}

void recording_part__free(struct recording_part *part)
{
	intern__free(&part->pids);
}
