// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/io_rows.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/place/place.h"
#include "user/lib/compare.h"
#include "user/report/common.h"

/* ---- kinds of files ---- */

/*
 * Generated names: those of Python's tempfile and multiprocessing, of torch's shared memory and
 * compiler, and of unnamed files; in folders for temporary files, also other names with numbers or
 * random letters. Deleted files of one folder are of one kind.
 */
#define DELETED " (deleted)" /* appended by bpf/file_path.h */

enum made_up {
	TEMPFILE, /* 8 of tempfile's letters, then the end or a suffix */
	HEX,      /* 8 hexadecimal digits */
	RANDOM,   /* 6 letters or digits, as mkdtemp(3) makes them */
	NUMBERS,  /* digits, and perhaps _ between them */
	TREE,     /* the folder and all files in it */
};

static const struct {
	const char *prefix;
	enum made_up made_up;
} names[] = {
	{"tmp", TEMPFILE},   {"pymp-", TEMPFILE},        {"psm_", HEX}, /* multiprocessing.shared_memory */
	{"torch_", NUMBERS}, {"torch-shm-dir-", RANDOM}, {"torchinductor_", TREE},
	{"#", NUMBERS}, /* O_TMPFILE */
};

static const char *const folders[] = {"/tmp/", "/var/tmp/", "/dev/shm/", "/run/shm/"};

static bool consists_of(const char *text, size_t len, const char *letters)
{
	return strspn(text, letters) >= len;
}

/* Returns how many bytes of a name's rest are generated; 0: none. */
static size_t made_up_bytes(enum made_up made_up, const char *rest, size_t len)
{
	static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
	static const char any[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

	switch (made_up) {
	case TEMPFILE:
		return len >= 8 && consists_of(rest, 8, lower) && (len == 8 || rest[8] == '.') ? 8 : 0;
	case HEX:
		return len == 8 && consists_of(rest, 8, "0123456789abcdef") ? 8 : 0;
	case RANDOM:
		return len == 6 && consists_of(rest, 6, any) ? 6 : 0;
	case NUMBERS:
		return len && consists_of(rest, len, "0123456789_") ? len : 0;
	case TREE:
		return 0;
	}
	return 0;
}

/*
 * In a folder for temporary files, the generated words of a name are those with a digit, or with a
 * capital letter after the first letter.
 */
static char *write_kind_words(char *out, const char *name, size_t len)
{
	for (size_t i = 0, end; i < len; i = end) {
		bool made_up = false;

		for (end = i; end < len && isalnum((unsigned char)name[end]); end++)
			made_up |= isdigit((unsigned char)name[end]) || (end > i && isupper((unsigned char)name[end]));
		end += end == i;
		if (made_up)
			*out++ = '*';
		else
			out = mempcpy(out, name + i, end - i);
	}
	return out;
}

static bool is_in_temporary(const char *path, const char *name)
{
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (strlen(folders[i]) == (size_t)(name - path) && !strncmp(path, folders[i], name - path))
			return true;
	return false;
}

/* *end: the end of the part of the path that was used. */
static char *write_made_up_name(char *out, const char *path, const char *name, const char **end)
{
	size_t len = strcspn(name, "/");

	*end = name + len;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t prefix = strlen(names[i].prefix), cut;

		if (len < prefix || strncmp(name, names[i].prefix, prefix))
			continue;
		if (names[i].made_up == TREE && **end) {
			*end += strlen(*end);
			return stpcpy(mempcpy(out, name, len), "/*");
		}
		cut = made_up_bytes(names[i].made_up, name + prefix, len - prefix);
		if (!cut)
			continue;
		out = stpcpy(mempcpy(out, name, prefix), "*");
		return mempcpy(out, name + prefix + cut, len - prefix - cut);
	}
	if (!**end && is_in_temporary(path, name))
		return write_kind_words(out, name, len);
	return mempcpy(out, name, len);
}

int file_kind__of(const char *path, char **kind)
{
	size_t len = strlen(path), tail = strlen(DELETED);
	bool deleted = len > tail && !strcmp(path + len - tail, DELETED);
	/*
	 * A star replaces at least one letter, except the star of a tree, which may follow the
	 * whole path.
	 */
	char *text = malloc(len + sizeof("*")), *out = text, *plain = strdup(path), *last;
	const char *at = plain;

	*kind = NULL;
	if (!text || !plain) {
		free(text);
		free(plain);
		return -ENOMEM;
	}
	if (deleted)
		plain[len - tail] = 0;
	while (*at) {
		if (*at == '/')
			*out++ = *at++;
		else
			out = write_made_up_name(out, plain, at, &at);
	}
	*out = 0;
	last = strrchr(text, '/');
	deleted = deleted && last && last[1];
	if (deleted)
		strcpy(last + 1, "*" DELETED);
	if (deleted || strcmp(text, plain) || !strncmp(path, "memfd:", strlen("memfd:")))
		*kind = text;
	else
		free(text);
	free(plain);
	return 0;
}

static bool in_scope(const struct job *job, const struct io_scope *scope, uint32_t pid)
{
	return scope->pid ? scope->pid == pid : common__target(job, pid).role == scope->role;
}

/* ---- rows of several processes to one ---- */

static int compare_number(const void *a, const void *b)
{
	const struct io_call *x = a, *y = b;

	return COMPARE(x->key.number, y->key.number);
}

static void merge_calls(struct io_rows *rows)
{
	size_t unique_cnt = 0;

	if (rows->call_cnt)
		qsort(rows->calls, rows->call_cnt, sizeof(*rows->calls), compare_number);
	for (size_t i = 0; i < rows->call_cnt; i++) {
		io__add_call(&rows->call_sum, &rows->calls[i].val);
		if (unique_cnt && rows->calls[unique_cnt - 1].key.number == rows->calls[i].key.number)
			io__add_call(&rows->calls[unique_cnt - 1].val, &rows->calls[i].val);
		else
			rows->calls[unique_cnt++] = rows->calls[i];
	}
	rows->call_cnt = unique_cnt;
}

static int compare_inode(const void *a, const void *b)
{
	const struct file_key *x = &((const struct io_file_row *)a)->file.key;
	const struct file_key *y = &((const struct io_file_row *)b)->file.key;

	return x->dev != y->dev ? COMPARE(x->dev, y->dev) : COMPARE(x->inode, y->inode);
}

static void merge_files(struct io_rows *rows)
{
	size_t unique_cnt = 0;

	if (rows->file_cnt)
		qsort(rows->files, rows->file_cnt, sizeof(*rows->files), compare_inode);
	for (size_t i = 0; i < rows->file_cnt; i++) {
		io__add_file(&rows->file_sum, &rows->files[i].file.val);
		if (unique_cnt && !compare_inode(&rows->files[unique_cnt - 1], &rows->files[i]))
			io__add_file(&rows->files[unique_cnt - 1].file.val, &rows->files[i].file.val);
		else
			rows->files[unique_cnt++] = rows->files[i];
	}
	rows->file_cnt = unique_cnt;
}

/* ---- rows of files of a kind to one ---- */

/* Returns the path of a file with what its flags add, malloc'ed. NULL: no memory. */
static char *io_rows__path(struct job *job, const struct io_file *file)
{
	const char *name = job__name(job, file->val.name), *more = file->val.flags & FILE_DIRECTORY ? "/*" : "";
	unsigned int major = file->key.dev >> 20, minor = file->key.dev & 0xfffff;
	char *path;
	int len;

	if (!name && file->val.flags == FILE_DISK)
		len = asprintf(&path, "(disk %u:%u, beside files: its file system's own)", major, minor);
	else if (!name)
		len = asprintf(&path, "(path not known: device %u:%u, inode %" PRIu64 ")", major, minor,
			       (uint64_t)file->key.inode);
	else if (file->val.flags & FILE_MOUNT_UNKNOWN)
		len = asprintf(&path, "(device %u:%u)%s%s", major, minor, name, more);
	else
		len = asprintf(&path, "%s%s", name, more);
	return len < 0 ? NULL : path;
}

static int set_file_kind(struct job *job, struct io_file_row *row)
{
	char *path;
	int err;

	if (row->file.val.flags & FILE_DIRECTORY || !job__name(job, row->file.val.name))
		return 0;
	path = io_rows__path(job, &row->file);
	err = path ? file_kind__of(path, &row->kind) : -ENOMEM;
	free(path);
	return err;
}

static int compare_kind(const void *a, const void *b)
{
	const struct io_file_row *x = a, *y = b;
	int by_kind = strcmp(x->kind ?: "", y->kind ?: "");

	return by_kind ?: compare_inode(a, b);
}

/* 0 or -ENOMEM. */
static int merge_kinds(struct job *job, struct io_rows *rows)
{
	size_t unique_cnt = 0;

	for (size_t i = 0; i < rows->file_cnt; i++)
		if (set_file_kind(job, &rows->files[i]))
			return -ENOMEM;
	if (rows->file_cnt)
		qsort(rows->files, rows->file_cnt, sizeof(*rows->files), compare_kind);
	for (size_t i = 0; i < rows->file_cnt; i++) {
		struct io_file_row row = rows->files[i], *before = unique_cnt ? &rows->files[unique_cnt - 1] : NULL;

		rows->files[i].kind = NULL;
		if (before && before->kind && row.kind && !strcmp(before->kind, row.kind)) {
			io__add_file(&before->file.val, &row.file.val);
			before->cnt += row.cnt;
			free(row.kind);
		} else {
			rows->files[unique_cnt++] = row;
		}
	}
	rows->file_cnt = unique_cnt;
	return 0;
}

/* ---- order ---- */

struct io_order {
	struct job *job;
	size_t key; /* index into io_rows__sort_keys */
};

enum { BY_TIME, BY_CALLS, BY_ERRORS, BY_BYTES, BY_DISK, BY_NAME };
const char *const io_rows__sort_keys[] = {"time", "calls", "errors", "bytes", "disk", "name", NULL};

static uint64_t call_value(const struct io_call *call, size_t key)
{
	switch (key) {
	case BY_CALLS:
		return call->val.calls;
	case BY_ERRORS:
		return call->val.errors;
	case BY_BYTES:
		return call->val.bytes;
	}
	return call->val.total_ns;
}

static int compare_syscall(const void *a, const void *b, void *ctx)
{
	const struct io_order *order = ctx;
	const struct io_call *x = a, *y = b;
	char x_name[IO_NAME_MAX], y_name[IO_NAME_MAX];
	uint64_t x_value = call_value(x, order->key), y_value = call_value(y, order->key);

	if (order->key == BY_NAME)
		return strcmp(io_rows__call_name(x->key.number, x_name), io_rows__call_name(y->key.number, y_name));
	if (x_value != y_value)
		return COMPARE(y_value, x_value);
	return COMPARE(x->key.number, y->key.number);
}

static uint64_t file_value(const struct io_file *file, size_t key)
{
	switch (key) {
	case BY_CALLS:
		return file->val.reads + file->val.writes;
	case BY_BYTES:
		return file->val.read_bytes + file->val.written_bytes;
	case BY_DISK:
		return file->val.disk_bytes;
	}
	return file->val.total_ns;
}

static int compare_file(const void *a, const void *b, void *ctx)
{
	const struct io_order *order = ctx;
	const struct io_file *x = &((const struct io_file_row *)a)->file, *y = &((const struct io_file_row *)b)->file;
	const char *x_name = job__name(order->job, x->val.name), *y_name = job__name(order->job, y->val.name);
	uint64_t x_value = file_value(x, order->key), y_value = file_value(y, order->key);
	int by_name = strcmp(x_name ?: "", y_name ?: "");

	if (order->key != BY_NAME && x_value != y_value)
		return COMPARE(y_value, x_value);
	return by_name ?: compare_inode(a, b);
}

/* ---- processes ---- */

int io_rows__pids(const struct job *job, uint32_t **out, size_t *cnt)
{
	size_t call_cnt, file_cnt, all = 0;
	const struct io_call *calls = io__calls(job__io(job), &call_cnt);
	const struct io_file *files = io__files(job__io(job), &file_cnt);
	uint32_t *pids = calloc(call_cnt + file_cnt + 1, sizeof(*pids));

	*out = pids;
	*cnt = 0;
	if (!pids)
		return -ENOMEM;
	for (size_t i = 0; i < call_cnt; i++)
		pids[all++] = calls[i].key.pid;
	for (size_t i = 0; i < file_cnt; i++)
		pids[all++] = files[i].key.pid;
	qsort(pids, all, sizeof(*pids), compare__u32);
	for (size_t i = 0; i < all; i++)
		if (!*cnt || pids[*cnt - 1] != pids[i])
			pids[(*cnt)++] = pids[i];
	return 0;
}

/* ---- what the report reads ---- */

int io_rows__collect(struct job *job, const struct io_scope *scope, const char *sort, struct io_rows *out)
{
	size_t call_cnt, file_cnt;
	const struct io_call *calls = io__calls(job__io(job), &call_cnt);
	const struct io_file *files = io__files(job__io(job), &file_cnt);
	struct io_order order = {.job = job};
	size_t pid_cnt;
	uint32_t *pids;

	*out = (struct io_rows){.calls = calloc(call_cnt + 1, sizeof(*calls)),
				.files = calloc(file_cnt + 1, sizeof(*out->files))};
	if (!out->calls || !out->files || io_rows__pids(job, &pids, &pid_cnt)) {
		io_rows__release(out);
		return -ENOMEM;
	}
	for (size_t i = 0; i < call_cnt; i++)
		if (in_scope(job, scope, calls[i].key.pid))
			out->calls[out->call_cnt++] = calls[i];
	for (size_t i = 0; i < file_cnt; i++)
		if (in_scope(job, scope, files[i].key.pid))
			out->files[out->file_cnt++] = (struct io_file_row){.file = files[i], .cnt = 1};
	for (size_t i = 0; i < pid_cnt; i++)
		out->process_cnt += in_scope(job, scope, pids[i]);
	free(pids);
	merge_calls(out);
	merge_files(out);
	if (scope->kinds && merge_kinds(job, out)) {
		io_rows__release(out);
		return -ENOMEM;
	}
	while (sort && strcmp(sort, io_rows__sort_keys[order.key]))
		order.key++;
	qsort_r(out->calls, out->call_cnt, sizeof(*out->calls), compare_syscall, &order);
	qsort_r(out->files, out->file_cnt, sizeof(*out->files), compare_file, &order);
	return 0;
}

void io_rows__release(struct io_rows *rows)
{
	for (size_t i = 0; i < rows->file_cnt; i++)
		free(rows->files[i].kind);
	free(rows->calls);
	free(rows->files);
	*rows = (struct io_rows){0};
}

const char *io_rows__call_name(uint32_t number, char *buffer)
{
	const char *name = syscall__name(number);

	if (name)
		return name;
	if (number == SYSCALL_UNKNOWN)
		return "unknown";
	snprintf(buffer, IO_NAME_MAX, "syscall %" PRIu32, number);
	return buffer;
}

char *io_rows__row_path(struct job *job, const struct io_file_row *row)
{
	char *path;

	if (row->cnt == 1)
		return io_rows__path(job, &row->file);
	return asprintf(&path, "%s (%zu files)", row->kind, row->cnt) < 0 ? NULL : path;
}

char *io_rows__path_of_name(struct job *job, uint64_t name)
{
	size_t cnt;
	const struct io_file *files = io__files(job__io(job), &cnt);

	for (size_t i = 0; i < cnt; i++)
		if (files[i].val.name == name)
			return io_rows__path(job, &files[i]);
	return strdup(job__name_or_lost(job, name) ?: "");
}
