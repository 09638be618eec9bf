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

void recording_part__free(struct recording_part *part)
{
	intern__free(&part->pids);
	intern__free(&part->ids);
	*part = (struct recording_part){};
}

/* ---- processes ---- */

static int find_processes(struct recording_part *part, const struct rec_hdr *record)
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

/* ---- what records refer to ---- */

static bool is_definition(uint16_t type)
{
	return type == REC_NAME || type == REC_CODE || type == REC_STACK || type == REC_PATH || type == REC_OP_GROUP ||
	       type == REC_MODULES;
}

/* That of a record of at least the size of its struct: the id is its first field. */
static uint64_t id_of(const struct rec_hdr *definition)
{
	uint64_t id;

	memcpy(&id, definition + 1, sizeof(id));
	return id;
}

static int add_id(struct recording_part *part, uint64_t id)
{
	uint32_t number;

	return id && intern__add(&part->ids, id, &number) ? -ENOMEM : 0;
}

/* Ids behind the struct: the first field of each item. */
static int add_items(struct recording_part *part, const struct rec_hdr *record, size_t from, size_t item_bytes)
{
	uint64_t id;
	int err = 0;

	for (size_t at = from; at + item_bytes <= record->size && !err; at += item_bytes) {
		memcpy(&id, (const char *)record + at, sizeof(id));
		err = add_id(part, id);
	}
	return err;
}

static int add_ids(struct recording_part *part, const struct rec_hdr *record,
		   const struct record_descriptor *descriptor)
{
	int err = 0;

	for (size_t i = 0; i < descriptor->field_cnt && !err; i++) {
		uint64_t id;

		if (descriptor->fields[i].kind != FIELD_ID)
			continue;
		memcpy(&id, (const char *)record + descriptor->fields[i].offset, sizeof(id));
		err = add_id(part, id);
	}
	if (err)
		return err;
	if (record->type == REC_STACK)
		return add_items(part, record, sizeof(struct rec_stack), sizeof(struct stack_frame));
	if (record->type == REC_PATH)
		return add_items(part, record, sizeof(struct rec_path), sizeof(struct path_span));
	return 0;
}

static int find_ids(struct recording_part *part, const struct rec_hdr *record)
{
	const struct record_descriptor *descriptor = record_descriptor__of(record->type);

	if (!descriptor || record->size < descriptor->bytes || !recording_part__has(part, record))
		return 0;
	/* Their ids are packed; those of modules stand behind other fields. */
	if (record->type == REC_SPANS || record->type == REC_MODULES)
		part->needs_all = true;
	return add_ids(part, record, descriptor);
}

bool recording_part__needs_reading(struct recording_part *part)
{
	size_t cnt = intern__end(&part->ids);
	bool more = part->reading < 2 || (cnt > part->id_cnt && !part->needs_all);

	part->reading++;
	part->id_cnt = cnt;
	return more;
}

int recording_part__scan(struct recording_part *part, const struct rec_hdr *record)
{
	return part->reading == 1 ? find_processes(part, record) : find_ids(part, record);
}

/* ---- what the part has ---- */

bool recording_part__has(const struct recording_part *part, const struct rec_hdr *record)
{
	const struct record_descriptor *descriptor = record_descriptor__of(record->type);
	uint32_t pid = 0;

	/* A machine is that of all processes. */
	if (!descriptor || record->size < descriptor->bytes || record->type == REC_MACHINE)
		return true;
	if (is_definition(record->type))
		return part->needs_all || intern__find(&part->ids, id_of(record));
	if (record->type == REC_AROUND)
		return intern__find(&part->ids, ((const struct rec_around *)record)->name);
	for (size_t i = 0; i < descriptor->field_cnt; i++) {
		const struct record_field *field = &descriptor->fields[i];

		if (field->kind != FIELD_PID)
			continue;
		memcpy(&pid, (const char *)record + field->offset, sizeof(pid));
		return intern__find(&part->pids, pid);
	}
	return true;
}
