// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The I/O report: system calls in strace -c's table, with bytes; the files read and written; and what the DataLoader's
 * workers did for the steps (workers.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/report/common.h"
#include "user/report/io_rows.h"
#include "user/report/text.h"
#include "user/report/workers.h"

#define DEFAULT_LIMIT 20

static size_t limit_of(const struct report_options *options, int default_limit)
{
	int limit = options->limit < 0 ? default_limit : options->limit;

	return limit ? (size_t)limit : SIZE_MAX;
}

/* ---- text ---- */

static void print_call(FILE *out, const struct syscall_val *val, uint64_t all_ns, const char *name)
{
	char errors[24] = "", bytes[24] = "";

	if (val->errors)
		snprintf(errors, sizeof(errors), "%" PRIu64, (uint64_t)val->errors);
	if (val->bytes)
		snprintf(bytes, sizeof(bytes), "%" PRIu64, (uint64_t)val->bytes);
	fprintf(out, "%6.2f %11.6f %11.2f %9" PRIu64 " %9s %15s %s", all_ns ? 100.0 * val->total_ns / all_ns : 0,
		val->total_ns / 1e9, val->calls ? val->total_ns / 1e3 / val->calls : 0, (uint64_t)val->calls, errors,
		bytes, name);
	if (val->unfinished)
		fprintf(out, " (and %" PRIu64 " not finished)", (uint64_t)val->unfinished);
	fputc('\n', out);
}

static void print_calls(const struct io_rows *rows, size_t limit, FILE *out)
{
	static const char *const dashes =
		"------ ----------- ----------- --------- --------- --------------- ----------------\n";
	char name[IO_NAME_MAX];

	fputs("% time     seconds  usecs/call     calls    errors           bytes syscall\n", out);
	fputs(dashes, out);
	for (size_t i = 0; i < rows->call_cnt && i < limit; i++)
		print_call(out, &rows->calls[i].val, rows->call_sum.total_ns,
			   io_rows__call_name(rows->calls[i].key.number, name));
	fputs(dashes, out);
	print_call(out, &rows->call_sum, rows->call_sum.total_ns, "total");
	if (rows->call_cnt > limit)
		text__paragraph(out, "%zu more system calls (--limit %zu)", rows->call_cnt - limit, limit);
}

static void print_file(FILE *out, const struct file_val *val, const char *path)
{
	fprintf(out, "%11.6f %9" PRIu64 " %15" PRIu64 " %9" PRIu64 " %15" PRIu64 " %9" PRIu64 " %15" PRIu64 " ",
		val->total_ns / 1e9, (uint64_t)val->reads, (uint64_t)val->read_bytes,
		(uint64_t)(val->disk_reads + val->faults), (uint64_t)val->disk_bytes, (uint64_t)val->writes,
		(uint64_t)val->written_bytes);
	text__line(out, "%s", path);
}

static int print_files(struct job *job, const struct io_rows *rows, size_t limit, FILE *out)
{
	static const char *const dashes = "----------- --------- --------------- --------- --------------- --------- "
					  "--------------- ----------------\n";
	size_t more = 0;

	fputs("    seconds     reads      bytes read from disk bytes from disk    writes   bytes written file\n", out);
	fputs(dashes, out);
	for (size_t i = 0; i < rows->file_cnt && i < limit; i++) {
		char *path = io_rows__row_path(job, &rows->files[i]);

		if (!path)
			return -ENOMEM;
		print_file(out, &rows->files[i].file.val, path);
		free(path);
	}
	fputs(dashes, out);
	print_file(out, &rows->file_sum, "total");
	for (size_t i = limit; i < rows->file_cnt; i++)
		more += rows->files[i].cnt;
	if (more)
		text__paragraph(out, "%zu more files (--limit %zu)", more, limit);
	return 0;
}

static int print_scope(struct job *job, const struct report_options *options, const struct io_scope *scope,
		       const char *title, FILE *out)
{
	size_t limit = limit_of(options, DEFAULT_LIMIT);
	struct io_rows rows;
	int err = io_rows__collect(job, scope, options->sort, &rows);

	if (err)
		return err;
	if (title && rows.process_cnt)
		fprintf(out, "%s (%zu process%s)\n", title, rows.process_cnt, rows.process_cnt == 1 ? "" : "es");
	if (rows.call_cnt)
		print_calls(&rows, limit, out);
	if (rows.call_cnt && rows.file_cnt)
		fputc('\n', out);
	if (rows.file_cnt)
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
		err = print_scope(job, options, &(struct io_scope){.role = roles[i].role, .kinds = true},
				  roles[i].title, out);
	return err;
}

/* Processes that have rows, as the recording introduces them. malloc'ed. 0 or -ENOMEM. */
static int list_processes(const struct job *job, struct rec_target **out, size_t *cnt)
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

static int print_processes(struct job *job, const struct report_options *options, FILE *out)
{
	struct rec_target *targets;
	size_t cnt;
	int err = list_processes(job, &targets, &cnt);

	for (size_t i = 0; i < cnt && !err; i++) {
		common__process(&targets[i], out);
		err = print_scope(job, options, &(struct io_scope){.pid = targets[i].pid, .kinds = true}, NULL, out);
	}
	free(targets);
	return err;
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	size_t cnt;
	int err;

	io__calls(job__io(job), &cnt);
	if (!cnt)
		text__paragraph(out,
				"This recording has no system calls. Was it made with --no-syscalls, or by an older "
				"stepflame? Record again: stepflame record -p PID");
	err = options->per_rank ? print_processes(job, options, out) : print_roles(job, options, out);
	err = err ?: report_workers__text(job, out);
	if (err)
		return err;
	common__text(job, out);
	return common__flush(out);
}

/* ---- JSON ---- */

static json_t *json_call(const struct io_call *call)
{
	const struct syscall_val *val = &call->val;
	char name[IO_NAME_MAX];

	return json_pack("{s:s, s:I, s:I, s:I, s:f, s:I, s:I}", "name", io_rows__call_name(call->key.number, name),
			 "number", (json_int_t)(call->key.number == SYSCALL_UNKNOWN ? -1 : (int)call->key.number),
			 "count", (json_int_t)val->calls, "errors", (json_int_t)val->errors, "total_s",
			 val->total_ns / 1e9, "bytes", (json_int_t)val->bytes, "unfinished",
			 (json_int_t)val->unfinished);
}

static json_t *json_file(struct job *job, const struct io_file *file)
{
	const struct file_val *val = &file->val;
	char *path = io_rows__path(job, file);
	json_t *row = json_pack("{s:s?, s:b, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I}", "path", path, "path_known",
				job__name(job, val->name) && !(val->flags & (FILE_DIRECTORY | FILE_MOUNT_UNKNOWN)),
				"bytes", (json_int_t)(val->read_bytes + val->written_bytes), "reads",
				(json_int_t)val->reads, "read_bytes", (json_int_t)val->read_bytes, "writes",
				(json_int_t)val->writes, "written_bytes", (json_int_t)val->written_bytes, "total_s",
				val->total_ns / 1e9, "disk_reads", (json_int_t)val->disk_reads, "disk_faults",
				(json_int_t)val->faults, "disk_bytes", (json_int_t)val->disk_bytes);

	free(path);
	return row;
}

static json_t *json_process(struct job *job, const struct report_options *options, const struct rec_target *target)
{
	const struct io_scope scope = {.pid = target->pid};
	json_t *calls = json_array(), *files = json_array(), *process;
	size_t limit = limit_of(options, 0);
	struct io_rows rows;
	int failed = io_rows__collect(job, &scope, options->sort, &rows);

	for (size_t i = 0; i < rows.call_cnt && i < limit; i++)
		failed |= json_array_append_new(calls, json_call(&rows.calls[i]));
	for (size_t i = 0; i < rows.file_cnt && i < limit; i++)
		failed |= json_array_append_new(files, json_file(job, &rows.files[i].file));
	io_rows__release(&rows);
	process = common__json_process(target, "syscalls", calls);
	failed |= json_object_set_new(process, "files", files);
	return common__json_unless_failed(process, failed);
}

static int print_json(struct job *job, const struct report_options *options, FILE *out)
{
	json_t *object = common__json(job, "io"), *processes = json_array();
	struct rec_target *targets;
	size_t cnt;
	int failed = list_processes(job, &targets, &cnt);

	for (size_t i = 0; i < cnt; i++)
		failed |= json_array_append_new(processes, json_process(job, options, &targets[i]));
	free(targets);
	failed |= json_object_set_new(object, "processes", processes);
	failed |= json_object_set_new(object, "workers", report_workers__json(job));
	return common__print_json(common__json_unless_failed(object, failed), out);
}

const struct report_ops report_io = {
	.name = "io",
	.sort_keys = io_rows__sort_keys,
	.text = print_text,
	.json = print_json,
};
