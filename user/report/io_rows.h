/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rows of the I/O report: system calls and files of some processes, added up, in order. */
#ifndef STEPFLAME_USER_REPORT_IO_ROWS_H
#define STEPFLAME_USER_REPORT_IO_ROWS_H

#include "user/model/io.h"
#include "user/report/report.h"

/* Processes whose rows are added up: one, or with pid 0 all of a role. */
struct io_scope {
	uint32_t pid;
	enum target_role role;
	bool kinds; /* files of a kind (file_kind.h) are one row */
};

struct io_file_row {
	struct io_file file; /* of several the sum; key and name are those of one */
	char *kind;          /* malloc'ed; NULL: of none */
	size_t cnt;          /* files, by their inodes */
};

struct io_rows {
	struct io_call *calls; /* malloc'ed; key.pid is of one of the processes */
	size_t call_cnt;
	struct syscall_val call_sum;
	struct io_file_row *files; /* malloc'ed */
	size_t file_cnt;
	struct file_val file_sum;
	size_t process_cnt; /* that have rows */
};

extern const char *const io_rows__sort_keys[];

/* sort: one of the keys, NULL: the first. 0 or -ENOMEM. */
int io_rows__collect(struct job *job, const struct io_scope *scope, const char *sort, struct io_rows *out);
void io_rows__release(struct io_rows *rows);

/* All pids that have rows; malloc'ed. 0 or -ENOMEM. */
int io_rows__pids(const struct job *job, uint32_t **out, size_t *cnt);

/* "read", or "syscall 999", "unknown" in a buffer of IO_NAME_MAX. */
#define IO_NAME_MAX 24
const char *io_rows__call_name(uint32_t number, char *buffer);
/* What a file is called, with what its flags say; malloc'ed. NULL: no memory. */
char *io_rows__path(struct job *job, const struct io_file *file);
/* Of a row of several files its kind, and how many they are. */
char *io_rows__row_path(struct job *job, const struct io_file_row *row);
/* io_rows__path for the name of some file. */
char *io_rows__path_of_name(struct job *job, uint64_t name);

#endif
