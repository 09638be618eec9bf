// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The target chooses its name (any bytes, ')' too), so nothing here trusts that. */
#include "user/proc/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/lib/array.h"
#include "user/proc/deputy.h"

#define OWN_MAX_BYTES (1u << 20) /* of what the kernel writes by itself: 65,536 groups are 0.5 MB */
#define PF_EXITING    0x00000004u
#define PF_KTHREAD    0x00200000u /* Linux include/linux/sched.h */

int proc__slurp_path(const char *path, size_t most, char **out, size_t *size)
{
	size_t used = 0, capacity = most < 16384 ? most : 16384;
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = -ENOMEM;
	char *data, *more;
	ssize_t got;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	data = malloc(capacity + 1);
	while (data) {
		got = read(fd, data + used, capacity - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			err = -errno;
			break;
		}
		if (got == 0) {
			err = 0;
			break;
		}
		used += (size_t)got;
		if (used < capacity)
			continue;
		if (capacity == most) {
			err = 0;
			break;
		}
		capacity = capacity < most / 2 ? capacity * 2 : most;
		more = realloc(data, capacity + 1);
		if (!more)
			break;
		data = more;
	}
	close(fd);
	if (err) {
		free(data);
		return err;
	}
	data[used] = 0;
	*out = data;
	*size = used;
	return 0;
}

static int slurp(pid_t pid, pid_t tid, const char *name, size_t most, char **out, size_t *size)
{
	char path[96];

	if (tid)
		snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, tid, name);
	else
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return proc__slurp_path(path, most, out, size);
}

int proc__slurp(pid_t pid, pid_t tid, const char *name, char **out, size_t *size)
{
	return slurp(pid, tid, name, OWN_MAX_BYTES, out, size);
}

int proc__numbers(const char *path, pid_t **out)
{
	struct array numbers = {0};
	DIR *dir = opendir(path);
	struct dirent *entry;
	int err = dir ? 0 : -errno;

	*out = NULL;
	while (!err && (entry = readdir(dir))) {
		pid_t *number;

		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		number = array__add(&numbers, sizeof(*number));
		if (number)
			*number = atoi(entry->d_name);
		else
			err = -ENOMEM;
	}
	if (dir)
		closedir(dir);
	if (err) {
		free(numbers.items);
		return err;
	}
	*out = numbers.items;
	return (int)numbers.cnt;
}

struct slurp_request {
	pid_t pid, tid;
	size_t most;
	char name[16];
};

static int slurp_in_deputy(const void *in, struct deputy_out *out)
{
	const struct slurp_request *r = in;
	char *data;
	int err = slurp(r->pid, r->tid, r->name, r->most, &data, &out->size);

	if (err)
		return err;
	memcpy(out->bytes, data, out->size);
	free(data);
	return 0;
}

int proc__slurp_memory(pid_t pid, pid_t tid, const char *name, size_t most, char **out, size_t *size)
{
	struct slurp_request request = {.pid = pid, .tid = tid, .most = most};
	const struct deputy_out *answer;
	int err;

	if (deputy__is_self())
		return slurp(pid, tid, name, most, out, size);
	snprintf(request.name, sizeof(request.name), "%s", name);
	err = deputy__run(pid, slurp_in_deputy, &request, sizeof(request), &answer);
	if (err)
		return err;
	*size = answer->size;
	*out = malloc(*size + 1);
	if (!*out)
		return -ENOMEM;
	memcpy(*out, answer->bytes, *size);
	(*out)[*size] = 0;
	return 0;
}

/*
 * "PID (COMM) S PPID ..." (proc(5)): COMM may hold any byte, ')' and newlines too, so it ends at
 * the last ')'.
 */
int proc_stat__parse(const char *data, size_t size, struct proc_stat *out)
{
	const char *name = memchr(data, '(', size), *end = memrchr(data, ')', size);
	size_t length;

	if (!name || !end || end < name)
		return -ESRCH;
	memset(out, 0, sizeof(*out));
	length = (size_t)(end - name - 1);
	if (length >= sizeof(out->comm))
		length = sizeof(out->comm) - 1;
	memcpy(out->comm, name + 1, length);
	out->processor = -1;
	return sscanf(end + 1,
		      " %c %d %*d %*d %*d %*d %u %" SCNu64 " %*u %" SCNu64 " %*u %" SCNu64 " %" SCNu64 /* 3..15 */
		      " %*d %*d %*d %*d %zu %*d %" SCNu64                                              /* 16..22 */
		      " %" SCNu64 " %" SCNu64 " %*u %*u %*u %" SCNu64                                  /* 23..28 */
		      " %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %d",                                   /* 29..39 */
		      &out->state, &out->parent, &out->flags, &out->minor_faults, &out->major_faults, &out->user_ticks,
		      &out->system_ticks, &out->thread_cnt, &out->start_time, &out->vm_bytes, &out->rss_pages,
		      &out->stack_start, &out->processor) >= 9
		       ? 0
		       : -ESRCH;
}

int proc__stat(pid_t pid, pid_t tid, struct proc_stat *out)
{
	char *data;
	size_t size;
	int err = proc__slurp(pid, tid, "stat", &data, &size);

	if (err)
		return err;
	err = proc_stat__parse(data, size, out);
	free(data);
	return err;
}

bool proc_stat__dead(const struct proc_stat *stat)
{
	return stat->state == 'Z' || stat->state == 'X' || stat->state == 'x';
}

bool proc_stat__exits(const struct proc_stat *stat)
{
	return proc_stat__dead(stat) || stat->flags & PF_EXITING;
}

bool proc_stat__is_program(const struct proc_stat *stat)
{
	return !proc_stat__dead(stat) && !(stat->flags & PF_KTHREAD);
}

/*
 * Value of "KEY:" in a file "status". The first line is the name, whose newlines the kernel
 * escapes.
 */
static const char *status__value(const char *status, const char *key)
{
	size_t length = strlen(key);

	for (const char *line = status; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, length) && line[length] == ':')
			return line + length + 1;
	}
	return NULL;
}

static int status__number(const char *status, const char *key)
{
	const char *value = status__value(status, key);

	return value ? atoi(value) : 0;
}

static uint64_t status__bits(const char *status, const char *key)
{
	const char *value = status__value(status, key);

	return value ? strtoull(value, NULL, 16) : 0;
}

/* "Tgid:\t12", "NSpid:\t12\t3" and "SigBlk:\t0000000000010000". */
int proc__status(pid_t pid, pid_t tid, struct proc_status *out)
{
	const char *value;
	char *status;
	size_t size;
	int err;

	err = proc__slurp(pid, tid, "status", &status, &size);
	if (err)
		return err;
	out->tgid = status__number(status, "Tgid");
	out->tracer = status__number(status, "TracerPid");
	out->seccomp = status__number(status, "Seccomp");
	value = status__value(status, "Uid");
	if (!value || sscanf(value, "%u %u %u %u", &out->uids[0], &out->uids[1], &out->uids[2], &out->uids[3]) != 4)
		memset(out->uids, 0, sizeof(out->uids));
	out->nspid = tid ?: out->tgid;
	value = status__value(status, "NSpid");
	while (value && *value && *value != '\n') {
		out->nspid = atoi(value);
		value += strspn(value, " \t");
		value += strcspn(value, " \t\n");
	}
	out->pending = status__bits(status, "SigPnd") | status__bits(status, "ShdPnd");
	out->blocked = status__bits(status, "SigBlk");
	free(status);
	return out->tgid > 0 ? 0 : -ESRCH;
}

/*
 * "NUMBER 0xARG ... 0xSP 0xPC", "-1 0xSP 0xPC" of a thread that is blocked outside system calls, or
 * "running".
 */
int proc__syscall(pid_t pid, pid_t tid, struct proc_syscall *out)
{
	uint64_t *args = out->args;
	char *text;
	size_t size;
	int err;

	memset(out, 0, sizeof(*out));
	err = proc__slurp_memory(pid, tid, "syscall", 4096, &text, &size);
	if (err)
		return err;
	out->field_cnt = sscanf(
		text,
		"%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64,
		&out->number, &args[0], &args[1], &args[2], &args[3], &args[4], &args[5], &out->sp, &out->pc);
	free(text);
	return 0;
}

const char *proc__parse_number(const char *text, uint64_t *out)
{
	char *end;

	while (*text == ' ' || *text == '\t')
		text++;
	if (!isdigit((unsigned char)*text))
		return NULL;
	*out = strtoull(text, &end, 10);
	return end;
}

int proc__parse_value(const char *text, const char *key, uint64_t *out)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		const char *value, *rest;
		uint64_t number;

		line += *line == '\n';
		value = line + length;
		if (strncmp(line, key, length) || (*value != ':' && *value != ' '))
			continue;
		rest = proc__parse_number(value + 1, &number);
		if (!rest)
			return -EINVAL;
		if (!strncmp(rest, " kB", 3) && __builtin_mul_overflow(number, 1024, &number))
			number = UINT64_MAX;
		*out = number;
		return 0;
	}
	return -EINVAL;
}

void proc__unescape(char *text)
{
	char *out = text;

	while (*text) {
		if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' && text[2] <= '7' &&
		    text[3] >= '0' && text[3] <= '7') {
			*out++ = (text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0');
			text += 4;
		} else {
			*out++ = *text++;
		}
	}
	*out = 0;
}

bool proc__leads_up(const char *path)
{
	for (const char *at = path; at; at = strchr(at, '/')) {
		at += *at == '/';
		if (at[0] == '.' && at[1] == '.' && (!at[2] || at[2] == '/'))
			return true;
	}
	return false;
}
