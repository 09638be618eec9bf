/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rows of the I/O report: system calls and files, added up over processes, and sorted. */
#ifndef STEPFLAME_USER_REPORT_IO_ROWS_H
#define STEPFLAME_USER_REPORT_IO_ROWS_H

#include "user/model/io.h"
#include "user/report/report.h"

/* The processes whose rows are added up: one, or with pid 0 all that have a role. */
struct io_scope {
	uint32_t pid;
	enum target_role role;
	bool kinds; /* merge files of a kind into one row */
};

struct io_file_row {
	struct io_file file; /* for several files: their sum, with the key and name of one of them */
	char *kind;          /* malloc'ed; NULL: the file has no kind */
	size_t cnt;          /* number of files, by inode */
};

struct io_rows {
	struct io_call *calls; /* malloc'ed; key.pid is that of any one of the processes */
	size_t call_cnt;
	struct syscall_val call_sum;
	struct io_file_row *files; /* malloc'ed */
	size_t file_cnt;
	struct file_val file_sum;
	size_t process_cnt; /* processes that have rows */
};

extern const char *const io_rows__sort_keys[];

/* sort: a name in io_rows__sort_keys; NULL: the first. 0 or -ENOMEM. */
int io_rows__collect(struct job *job, const struct io_scope *scope, const char *sort, struct io_rows *out);
void io_rows__release(struct io_rows *rows);

/* Lists all pids that have rows; malloc'ed. 0 or -ENOMEM. */
int io_rows__pids(const struct job *job, uint32_t **out, size_t *cnt);

/* Returns "read", "syscall 999" or "unknown"; buffer has IO_NAME_MAX bytes. */
#define IO_NAME_MAX 24
const char *io_rows__call_name(uint32_t number, char *buffer);
/* The same for a row: where the row has several files, their kind and how many there are. */
char *io_rows__row_path(struct job *job, const struct io_file_row *row);
/* The same for the name of any file. */
char *io_rows__path_of_name(struct job *job, uint64_t name);

/*
 * Groups files whose paths differ only in a generated part, such as those that hold a worker's
 * tensors, into kinds.
 */

/*
 * Sets *kind to the path with stars for the generated parts ("/dev/shm/torch_*"), malloc'ed; NULL:
 * no part of the path is generated. 0 or -ENOMEM.
 */
int file_kind__of(const char *path, char **kind);

#endif
