// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The I/O report: system calls in the table of strace -c, with bytes; the files read and written;
 * and what DataLoader workers do for the steps (workers.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/io_rows.h"
#include "user/report/print/shape.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"
#include "user/report/workers.h"

#define DEFAULT_LIMIT 20

/* ---- tables ---- */

static json_t *or_blank(uint64_t cnt)
{
	return cnt ? json_integer(cnt) : json_string("");
}

/* all_ns: time of all calls. */
static int add_call_row(struct table *table, const struct syscall_val *val, uint64_t all_ns, uint32_t number,
			const char *name)
{
	char more[48] = "", *title;

	if (val->unfinished)
		snprintf(more, sizeof(more), " (and %" PRIu64 " not finished)", (uint64_t)val->unfinished);
	if (asprintf(&title, "%s%s", name, more) < 0)
		return -ENOMEM;

	const struct cell cells[] = {
		cell__new(NULL, 1, "% time", 6, 2, json_real(all_ns ? 100.0 * val->total_ns / all_ns : 0)),
		cell__new(NULL, 3, "usecs/call", 11, 2, json_real(val->calls ? val->total_ns / 1e3 / val->calls : 0)),
		cell__new(NULL, 5, "errors", 9, 0, or_blank(val->errors)),
		cell__new(NULL, 6, "bytes", 15, 0, or_blank(val->bytes)),
		cell__json("name:s", json_string(name)),
		cell__json("number:I", json_integer(number == SYSCALL_UNKNOWN ? -1 : (int)number)),
		cell__new("count:I", 4, "calls", 9, 0, json_integer(val->calls)),
		cell__json("errors:I", common__json_integer(val->errors)),
		cell__new("total_s:f", 2, "seconds", 11, 6, json_integer(val->total_ns)),
		cell__json("bytes:I", common__json_integer(val->bytes)),
		cell__json("unfinished:I", common__json_integer(val->unfinished)),
		cell__last(7, "syscall", title),
	};

	return TABLE_ADD(table, cells);
}

/* Takes path over; a NULL path means no memory. */
static int add_file_row(struct table *table, const struct file_val *val, bool path_known, char *path)
{
	const struct cell cells[] = {
		cell__json("path:s", path ? json_string(path) : NULL),
		cell__json("path_known:b", json_boolean(path_known)),
		cell__json("bytes:I", common__json_integer(val->read_bytes + val->written_bytes)),
		cell__new("reads:I", 2, "reads", 8, 0, json_integer(val->reads)),
		cell__new("read_bytes:I", 3, "bytes read", 13, 0, json_integer(val->read_bytes)),
		cell__new("writes:I", 6, "writes", 8, 0, json_integer(val->writes)),
		cell__new("written_bytes:I", 7, "bytes written", 13, 0, json_integer(val->written_bytes)),
		cell__new("total_s:f", 1, "seconds", 10, 6, json_integer(val->total_ns)),
		cell__json("disk_reads:I", common__json_integer(val->disk_reads)),
		cell__json("disk_faults:I", common__json_integer(val->faults)),
		cell__new(NULL, 4, "from disk", 9, 0, json_integer(val->disk_reads + val->faults)),
		cell__new("disk_bytes:I", 5, "disk bytes", 12, 0, json_integer(val->disk_bytes)),
		cell__last(8, "file", path),
	};

	return TABLE_ADD(table, cells);
}

static int add_call_rows(struct table *table, const struct io_rows *rows, size_t limit)
{
	char name[IO_NAME_MAX];
	int err = 0;

	for (size_t i = 0; i < rows->call_cnt && i < limit && !err; i++)
		err = add_call_row(table, &rows->calls[i].val, rows->call_sum.total_ns, rows->calls[i].key.number,
				   io_rows__call_name(rows->calls[i].key.number, name));
	return err;
}

static int add_file_rows(struct table *table, struct job *job, const struct io_rows *rows, size_t limit)
{
	int err = 0;

	for (size_t i = 0; i < rows->file_cnt && i < limit && !err; i++) {
		const struct file_val *val = &rows->files[i].file.val;
		bool known = job__name(job, val->name) && !(val->flags & (FILE_DIRECTORY | FILE_MOUNT_UNKNOWN));

		err = add_file_row(table, val, known, io_rows__row_path(job, &rows->files[i]));
	}
	return err;
}

/* ---- text ---- */

static int print_syscalls(const struct io_rows *rows, size_t limit, FILE *out)
{
	struct table table = {.out = out, .gap = " "};
	int err = add_call_rows(&table, rows, limit);

	table.ruled = true;
	err = err ?: add_call_row(&table, &rows->call_sum, rows->call_sum.total_ns, 0, "total");
	if (rows->call_cnt > limit)
		text__paragraph(out, "%zu more system calls (--limit %zu)", rows->call_cnt - limit, limit);
	return err;
}

static int print_files(struct job *job, const struct io_rows *rows, size_t limit, FILE *out)
{
	struct table table = {.out = out, .gap = " "};
	int err = add_file_rows(&table, job, rows, limit);
	size_t more = 0;

	table.ruled = true;
	err = err ?: add_file_row(&table, &rows->file_sum, false, strdup("total"));
	for (size_t i = limit; i < rows->file_cnt; i++)
		more += rows->files[i].cnt;
	if (more)
		text__paragraph(out, "%zu more files (--limit %zu)", more, limit);
	return err;
}

static int print_io_of(struct job *job, const struct report_options *options, const struct io_scope *scope,
		       const char *title, FILE *out)
{
	size_t limit = report_options__limit(options, DEFAULT_LIMIT);
	struct io_rows rows;
	int err = io_rows__collect(job, scope, options->sort, &rows);

	if (err)
		return err;
	if (title && rows.process_cnt)
		fprintf(out, "%s (%zu process%s)\n", title, rows.process_cnt, rows.process_cnt == 1 ? "" : "es");
	if (rows.call_cnt)
		err = print_syscalls(&rows, limit, out);
	if (rows.call_cnt && rows.file_cnt)
		fputc('\n', out);
	if (rows.file_cnt && !err)
		err = print_files(job, &rows, limit, out);
	if (rows.call_cnt || rows.file_cnt)
		fputc('\n', out);
	io_rows__release(&rows);
	return err;
}

static int print_roles(struct job *job, const struct report_options *options, FILE *out)
{
	static const struct {
		enum target_role role;
		const char *title;
	} roles[] = {
		{ROLE_MAIN, "main"},
		{ROLE_WORKER, "DataLoader workers"},
		{ROLE_CHILD, "other children"},
	};
	int err = 0;

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles) && !err; i++)
		err = print_io_of(job, options, &(struct io_scope){.role = roles[i].role, .kinds = true},
				  roles[i].title, out);
	return err;
}

/* Lists the processes that have rows, with their target records. malloc'ed. 0 or -ENOMEM. */
static int list_io_processes(const struct job *job, struct rec_target **out, size_t *cnt)
{
	uint32_t *pids;
	size_t pid_cnt;
	int err = io_rows__pids(job, &pids, &pid_cnt);

	*out = NULL;
	*cnt = 0;
	err = err ?: processes__list(job, pids, pid_cnt, out, cnt);
	free(pids);
	return err;
}

static int print_io_processes(struct job *job, const struct report_options *options, FILE *out)
{
	struct rec_target *targets;
	size_t cnt;
	int err = list_io_processes(job, &targets, &cnt);

	for (size_t i = 0; i < cnt && !err; i++) {
		common__process(&targets[i], out);
		err = print_io_of(job, options, &(struct io_scope){.pid = targets[i].pid, .kinds = true}, NULL, out);
	}
	free(targets);
	return err;
}

static char *why_no_io(struct job *job, const struct report_options *options)
{
	size_t cnt;

	io__calls(job__io(job), &cnt);
	return cnt ? NULL
		   : strdup("This recording has no system calls and files: stepflame record --syscalls counts them.");
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	char *why = why_no_io(job, options);
	int err;

	if (why)
		text__paragraph(out, "%s", why);
	free(why);
	err = options->per_rank ? print_io_processes(job, options, out) : print_roles(job, options, out);
	err = err ?: report_workers__text(job, out);
	return common__end(err, job, out);
}

/* ---- JSON ---- */

static json_t *json_process(struct job *job, const struct report_options *options, const struct rec_target *target)
{
	const struct io_scope scope = {.pid = target->pid};
	json_t *process = common__json_process(target, "syscalls", json_array());
	struct table calls = table__json(process, "syscalls"), files = table__json(process, "files");
	size_t limit = report_options__limit(options, 0);
	struct io_rows rows;
	int failed = io_rows__collect(job, &scope, options->sort, &rows);

	failed = failed ?: add_call_rows(&calls, &rows, limit) ?: add_file_rows(&files, job, &rows, limit);
	io_rows__release(&rows);
	return common__json_unless_failed(process, failed);
}

static int add_blank_call(struct job *job, struct table *table)
{
	return add_call_row(table, &(struct syscall_val){0}, 0, 0, "");
}

static int add_blank_file(struct job *job, struct table *table)
{
	return add_file_row(table, &(struct file_val){0}, false, strdup(""));
}

SHAPE_ROW(syscall_shape, "syscall", add_blank_call);
SHAPE_ROW(file_shape, "file", add_blank_file);
SHAPE(io_process_shape, "io_of_process", "@process syscalls:[syscall] files:[file]");
SHAPE_REPORT(io_shape, "io", "io", "@report processes:[io_of_process] workers:[loader]");

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_call(void)
{
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_first(list, add_blank_call(NULL, &table));
}

static int print_json(struct job *job, const struct report_options *options, FILE *out)
{
	static const char *const path[] = {"processes", "syscalls", NULL};
	json_t *object = common__json(job, "io"), *processes = json_array();
	struct rec_target *targets;
	size_t cnt;
	int failed = list_io_processes(job, &targets, &cnt);

	for (size_t i = 0; i < cnt; i++)
		failed |= json_array_append_new(processes, json_process(job, options, &targets[i]));
	free(targets);
	failed |= json_object_set_new(object, "processes", processes);
	failed |= json_object_set_new(object, "workers", report_workers__json(job));
	return common__print_object(common__json_unless_failed(object, failed), options, path, blank_call(), out);
}

const struct report_ops report_io = {
	.name = "io",
	.sort_keys = io_rows__sort_keys,
	.text = print_text,
	.json = print_json,
	.why_empty = why_no_io,
};
