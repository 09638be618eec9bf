// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "sums.h"

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* Of a call: inode 0 and dev its number. */
struct io_node {
	struct file_key key;
	size_t index;
};

static int compare(const void *a, const void *b)
{
	const struct file_key *x = a, *y = b;

	if (x->pid != y->pid)
		return ORDER(x->pid, y->pid);
	return x->dev != y->dev ? ORDER(x->dev, y->dev) : ORDER(x->inode, y->inode);
}

/* The item of a key, zeroed when it is new. NULL: no memory. */
static void *item_of(struct array *items, size_t item_bytes, void **tree, const struct file_key *key)
{
	struct io_node **found = tfind(key, tree, compare), *node;
	void *item;

	if (found)
		return (char *)items->items + (*found)->index * item_bytes;
	node = malloc(sizeof(*node));
	item = node ? array__add(items, item_bytes) : NULL;
	if (item) {
		*node = (struct io_node){*key, items->cnt - 1};
		if (tsearch(node, tree, compare))
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

int io__add(struct io *io, const struct rec_hdr *record)
{
	return record->type == REC_SYSCALL ? add_call(io, (const void *)record) : add_file(io, (const void *)record);
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

void io__free(struct io *io)
{
	tdestroy(io->calls_by_key, free);
	tdestroy(io->files_by_key, free);
	free(io->calls.items);
	free(io->files.items);
	*io = (struct io){0};
}

void io__add_call(struct syscall_val *sum, const struct syscall_val *val)
{
	sum->calls = sum__u64(sum->calls, val->calls);
	sum->errors = sum__u64(sum->errors, val->errors);
	sum->total_ns = sum__u64(sum->total_ns, val->total_ns);
	sum->bytes = sum__u64(sum->bytes, val->bytes);
	sum->unfinished = sum__u64(sum->unfinished, val->unfinished);
}

void io__add_file(struct file_val *sum, const struct file_val *val)
{
	sum->name = sum->name ?: val->name;
	sum->reads = sum__u64(sum->reads, val->reads);
	sum->writes = sum__u64(sum->writes, val->writes);
	sum->read_bytes = sum__u64(sum->read_bytes, val->read_bytes);
	sum->written_bytes = sum__u64(sum->written_bytes, val->written_bytes);
	sum->total_ns = sum__u64(sum->total_ns, val->total_ns);
	sum->disk_reads = sum__u64(sum->disk_reads, val->disk_reads);
	sum->faults = sum__u64(sum->faults, val->faults);
	sum->disk_bytes = sum__u64(sum->disk_bytes, val->disk_bytes);
	sum->last_ns = sum->last_ns > val->last_ns ? sum->last_ns : val->last_ns;
	sum->flags |= val->flags;
}
