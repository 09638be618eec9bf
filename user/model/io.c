// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/io.h"

#include <errno.h>

#include "user/lib/saturating.h"

static int io__add_syscall(struct io *io, const struct rec_syscall *record)
{
	struct io_call *call;

	if (record->val.errors > record->val.calls)
		return -EINVAL;
	call = MAP_ADD(&io->calls, struct io_call, &record->key);
	if (!call)
		return -ENOMEM;
	if (call->ended)
		call->before = call->val;
	call->val = record->val;
	io__add_call(&call->val, &call->before);
	call->ended = record->hdr.flags & REC_ENDED;
	return 0;
}

static int io__add_file_record(struct io *io, const struct rec_file *record)
{
	struct io_file *file;

	if (record->val.disk_reads > record->val.reads)
		return -EINVAL;
	file = MAP_ADD(&io->files, struct io_file, &record->key);
	if (!file)
		return -ENOMEM;
	if (file->ended)
		file->before = file->val;
	file->val = record->val;
	io__add_file(&file->val, &file->before);
	file->ended = record->hdr.flags & REC_ENDED;
	return 0;
}

static int io__add_pipe(struct io *io, const struct rec_pipe *record)
{
	struct io_pipe *pipe;

	if (record->val.active_cnt > record->val.messages)
		return -EINVAL;
	pipe = MAP_ADD(&io->pipes, struct io_pipe, &record->key);
	if (!pipe)
		return -ENOMEM;
	*pipe = (struct io_pipe){record->key, record->val};
	return 0;
}

int io__add(struct io *io, const struct rec_hdr *record)
{
	if (record->type == REC_SYSCALL)
		return io__add_syscall(io, (const void *)record);
	return record->type == REC_FILE ? io__add_file_record(io, (const void *)record)
					: io__add_pipe(io, (const void *)record);
}

const struct io_call *io__calls(const struct io *io, size_t *cnt)
{
	*cnt = io->calls.items.cnt;
	return io->calls.items.items;
}

const struct io_file *io__files(const struct io *io, size_t *cnt)
{
	*cnt = io->files.items.cnt;
	return io->files.items.items;
}

const struct io_pipe *io__pipes(const struct io *io, size_t *cnt)
{
	*cnt = io->pipes.items.cnt;
	return io->pipes.items.items;
}

void io__free(struct io *io)
{
	map__free(&io->calls);
	map__free(&io->files);
	map__free(&io->pipes);
}

void io__add_call(struct syscall_val *sum, const struct syscall_val *val)
{
	sum->calls = saturating__add(sum->calls, val->calls);
	sum->errors = saturating__add(sum->errors, val->errors);
	sum->total_ns = saturating__add(sum->total_ns, val->total_ns);
	sum->bytes = saturating__add(sum->bytes, val->bytes);
	sum->unfinished = saturating__add(sum->unfinished, val->unfinished);
}

void io__add_file(struct file_val *sum, const struct file_val *val)
{
	sum->name = sum->name ?: val->name;
	sum->reads = saturating__add(sum->reads, val->reads);
	sum->writes = saturating__add(sum->writes, val->writes);
	sum->read_bytes = saturating__add(sum->read_bytes, val->read_bytes);
	sum->written_bytes = saturating__add(sum->written_bytes, val->written_bytes);
	sum->total_ns = saturating__add(sum->total_ns, val->total_ns);
	sum->disk_reads = saturating__add(sum->disk_reads, val->disk_reads);
	sum->faults = saturating__add(sum->faults, val->faults);
	sum->disk_bytes = saturating__add(sum->disk_bytes, val->disk_bytes);
	sum->last_ns = sum->last_ns > val->last_ns ? sum->last_ns : val->last_ns;
	sum->flags |= val->flags;
}
