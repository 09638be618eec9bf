/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * System calls, files and pipes: takes REC_SYSCALL, REC_FILE and REC_PIPE, and returns the last
 * state of each key. Part of the job (job.h), which owns it.
 */
#ifndef STEPFLAME_USER_MODEL_IO_H
#define STEPFLAME_USER_MODEL_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/io_records.h"
#include "user/lib/map.h"

/* `before`: of earlier processes with this pid, in val too; `ended`: the process of the last record has ended. */
struct io_call {
	struct syscall_key key;
	struct syscall_val val, before;
	bool ended;
};

struct io_file {
	struct file_key key;
	struct file_val val, before;
	bool ended;
};

struct io_pipe {
	struct file_key key;
	struct pipe_val val;
};

struct io {
	struct map calls, files, pipes; /* struct io_call, struct io_file, struct io_pipe */
};

/*
 * Takes one of the three records; the caller has checked its size. 0, -ENOMEM, or -EINVAL for an
 * invalid record.
 */
int io__add(struct io *io, const struct rec_hdr *record);
/* In order of their first record. */
const struct io_call *io__calls(const struct io *io, size_t *cnt);
const struct io_file *io__files(const struct io *io, size_t *cnt);
const struct io_pipe *io__pipes(const struct io *io, size_t *cnt);
/* Frees all contents and leaves the struct empty. */
void io__free(struct io *io);

/* Adds the values of one process to a sum over several. */
void io__add_call(struct syscall_val *sum, const struct syscall_val *val);
void io__add_file(struct file_val *sum, const struct file_val *val);

#endif
