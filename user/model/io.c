// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/io.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "user/lib/saturating.h"

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

/* Of a call: inode 0 and dev its number. */
struct io_node {
	struct file_key key;
	size_t index;
};

static int compare_keys(const void *a, const void *b)
{
	const struct file_key *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	return x->dev != y->dev ? COMPARE(x->dev, y->dev) : COMPARE(x->inode, y->inode);
}

/* The item of a key, zeroed when it is new. NULL: no memory. */
static void *item_of(struct array *items, size_t item_bytes, void **tree, const struct file_key *key)
{
	struct io_node **found = tfind(key, tree, compare_keys), *node;
	void *item;

	if (found)
		return (char *)items->items + (*found)->index * item_bytes;
	node = malloc(sizeof(*node));
	item = node ? array__add(items, item_bytes) : NULL;
	if (item) {
		*node = (struct io_node){*key, items->cnt - 1};
		if (tsearch(node, tree, compare_keys))
			return item;
		items->cnt--;
	}
	free(node);
	return NULL;
}

static int add_call(struct io *io, const struct rec_syscall *record)
{
	struct file_key key = {.pid = record->key.pid, .dev = record->key.number};
	struct io_call *call;

	if (record->val.errors > record->val.calls)
		return -EINVAL;
	call = item_of(&io->calls, sizeof(*call), &io->calls_by_key, &key);
	if (!call)
		return -ENOMEM;
	*call = (struct io_call){record->key, record->val};
	return 0;
}

static int add_file(struct io *io, const struct rec_file *record)
{
	struct io_file *file;

	if (record->val.disk_reads > record->val.reads)
		return -EINVAL;
	file = item_of(&io->files, sizeof(*file), &io->files_by_key, &record->key);
	if (!file)
		return -ENOMEM;
	*file = (struct io_file){record->key, record->val};
	return 0;
}

static int add_pipe(struct io *io, const struct rec_pipe *record)
{
	struct io_pipe *pipe;

	if (record->val.active_cnt > record->val.messages)
		return -EINVAL;
	pipe = item_of(&io->pipes, sizeof(*pipe), &io->pipes_by_key, &record->key);
	if (!pipe)
		return -ENOMEM;
	*pipe = (struct io_pipe){record->key, record->val};
	return 0;
}

int io__add(struct io *io, const struct rec_hdr *record)
{
	if (record->type == REC_SYSCALL)
		return add_call(io, (const void *)record);
	return record->type == REC_FILE ? add_file(io, (const void *)record) : add_pipe(io, (const void *)record);
}

const struct io_call *io__calls(const struct io *io, size_t *cnt)
{
	*cnt = io->calls.cnt;
	return io->calls.items;
}

const struct io_file *io__files(const struct io *io, size_t *cnt)
{
	*cnt = io->files.cnt;
	return io->files.items;
}

const struct io_pipe *io__pipes(const struct io *io, size_t *cnt)
{
	*cnt = io->pipes.cnt;
	return io->pipes.items;
}

void io__free(struct io *io)
{
	tdestroy(io->calls_by_key, free);
	tdestroy(io->files_by_key, free);
	tdestroy(io->pipes_by_key, free);
	free(io->calls.items);
	free(io->files.items);
	free(io->pipes.items);
	*io = (struct io){0};
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
