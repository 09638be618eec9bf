/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Pipes: finds the pipe of a call, and counts what each process does with it, in a map that user
 * space reads.
 */
#ifndef STEPFLAME_BPF_PIPES_H
#define STEPFLAME_BPF_PIPES_H

#include "bpf/files.h"

#define PIPE_ROWS     16384
#define MESSAGE_BYTES 4

/* LRU: unused pipes make room, since user space has read their rows. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PIPE_ROWS);
	__type(key, struct file_key);
	__type(value, struct pipe_val);
} pipe_rows __weak SEC(".maps");

/* The key of an open file's pipe. False: the file is not a pipe. */
static __always_inline bool pipe__at(struct file_key *key, const struct file *file, u32 pid)
{
	const struct inode *inode = BPF_CORE_READ(file, f_inode);

	if ((BPF_CORE_READ(inode, i_mode) & MODE_TYPE) != MODE_FIFO)
		return false;
	key->pid = pid;
	key->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	key->inode = BPF_CORE_READ(inode, i_ino);
	return true;
}

static __always_inline void pipe__add_message(struct pipe_val *row, struct proc *proc, u64 inode, u64 now)
{
	bool again = proc->io.last_pipe == inode;

	if (row->messages && (again || row->rows == proc->io.pipe_rows)) {
		row->active_ns += now - row->last_ns;
		row->active_cnt++;
	}
	proc->io.pipe_rows += again;
	proc->io.last_pipe = inode;
	row->rows = proc->io.pipe_rows;
	row->first_ns = row->first_ns ?: now;
	row->messages++;
}

/* A call that read or wrote `bytes` bytes of a pipe has ended. */
static __always_inline void pipe__add(struct proc *proc, const struct file_key *key, bool writes, s64 bytes, u64 now)
{
	struct pipe_val *row, empty = {};

	if (bytes <= 0 || (!writes && bytes != MESSAGE_BYTES))
		return;
	row = bpf_map_lookup_elem(&pipe_rows, key);
	if (!row) {
		bpf_map_update_elem(&pipe_rows, key, &empty, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&pipe_rows, key);
	}
	if (!row)
		return;
	if (writes)
		__sync_fetch_and_add(&row->writes, 1);
	else
		pipe__add_message(row, proc, key->inode, now);
	row->last_ns = now;
}

#endif
