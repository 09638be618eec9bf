/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads by /proc/PID/task/TID, which stops nobody. In: a pid. Out: struct task. Owned by the thread that calls, which
 * task__read moves from one processor to another for a moment.
 */
#include "user/proc/task.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "include/waits.h"
#include "user/lib/compare.h"

#define FILE_BYTES 4096
#define ATTEMPTS   3

/* ---- /proc ---- */

/* /proc/PID/task/TID/NAME, 0-terminated and cut to FILE_BYTES - 1. 0 or -errno. */
static int task__file(pid_t pid, pid_t tid, const char *name, char text[FILE_BYTES])
{
	char path[96];
	size_t size;
	FILE *file;
	int err;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, tid, name);
	file = fopen(path, "re");
	if (!file)
		return errno == ENOENT ? -ESRCH : -errno;
	errno = 0;
	size = fread(text, 1, FILE_BYTES - 1, file);
	err = ferror(file) ? -(errno ?: EIO) : 0;
	fclose(file);
	text[size] = 0;
	return err;
}

/* "TID (NAME) S ..." (proc(5)): the state is field 3, the processor field 39. NAME may hold ") R". */
static int task__stat(pid_t pid, struct task *task)
{
	char text[FILE_BYTES], *name, *end;
	int err = task__file(pid, task->tid, "stat", text);

	if (err)
		return err;
	name = strchr(text, '(');
	end = strrchr(text, ')');
	if (!name || !end)
		return -ESRCH;
	*end = 0;
	snprintf(task->name, sizeof(task->name), "%s", name + 1);
	task->state = end[1] && end[2] ? end[2] : '?';
	task->processor = -1;
	end += 2;
	for (int field = 3; end && field < 39; field++)
		end = strchr(end + 1, ' ');
	if (end)
		task->processor = atoi(end);
	return 0;
}

/* "NUMBER 0xARG ... 0xSP 0xPC", "-1 0xSP 0xPC" of a thread that is blocked in none, or "running". */
static void task__read_syscall(pid_t pid, struct task *task)
{
	char text[FILE_BYTES];

	memset(task->args, 0, sizeof(task->args));
	if (task__file(pid, task->tid, "syscall", text) ||
	    sscanf(text, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64, &task->syscall,
		   &task->args[0], &task->args[1], &task->args[2], &task->args[3], &task->args[4],
		   &task->args[5]) < 1) {
		task->syscall = TASK_SYSCALL_UNKNOWN;
		if (!strncmp(text, "running", 7))
			task->state = 'R';
	}
}

/* "NSpid:\t12\t3": the last is the innermost namespace's. */
static void task__read_nstid(pid_t pid, struct task *task)
{
	char text[FILE_BYTES], *line, *end;

	task->nstid = task->tid;
	if (task__file(pid, task->tid, "status", text) || !(line = strstr(text, "\nNSpid:")))
		return;
	line += strlen("\nNSpid:");
	end = strchrnul(line, '\n');
	while (line < end && isspace((unsigned char)*line)) {
		line += strspn(line, " \t");
		task->nstid = atoi(line);
		line += strcspn(line, " \t\n");
	}
}

/* The file in which the kernel tells when a thread was last seen to run, by its processor's clock, in ms. Below 0: not told. */
static double task__ran_ms(pid_t pid, pid_t tid)
{
	char text[FILE_BYTES], *at;
	double ms;

	if (task__file(pid, tid, "sched", text) || !(at = strstr(text, "se.exec_start")) || !(at = strchr(at, ':')) ||
	    sscanf(at + 1, "%lf", &ms) != 1 || ms <= 0)
		return -1;
	return ms;
}

/*
 * That clock's time now. It stands still while the processor serves interrupts or its hypervisor others, so each
 * processor has its own, which is read there: as the time at which this thread, after a moment's sleep, was put on it.
 */
static double processor__now_ms(int processor)
{
	const struct timespec moment = {.tv_nsec = 1};
	cpu_set_t old, one;
	double now = -1;

	if (processor < 0 || processor >= CPU_SETSIZE || sched_getaffinity(0, sizeof(old), &old))
		return -1;
	CPU_ZERO(&one);
	CPU_SET(processor, &one);
	if (!sched_setaffinity(0, sizeof(one), &one)) {
		nanosleep(&moment, NULL);
		now = task__ran_ms(getpid(), gettid());
	}
	sched_setaffinity(0, sizeof(old), &old);
	return now;
}

static void task__read_blocked(pid_t pid, struct task *task)
{
	double ran, now;

	task->blocked_s = -1;
	if (task->state == 'R')
		return;
	ran = task__ran_ms(pid, task->tid);
	now = ran < 0 ? -1 : processor__now_ms(task->processor);
	if (now >= 0)
		task->blocked_s = now > ran ? (now - ran) / 1e3 : 0;
}

/* A state and a system call that belong together: read again when the thread went on in between. */
int task__read(pid_t pid, pid_t tid, struct task *out)
{
	int err = 0;

	memset(out, 0, sizeof(*out));
	out->tid = tid;
	for (int i = 0; !err && i < ATTEMPTS; i++) {
		err = task__stat(pid, out);
		if (!err)
			task__read_syscall(pid, out);
		if (out->state != 'R' || out->syscall == TASK_SYSCALL_UNKNOWN)
			break;
	}
	if (err)
		return err;
	if (out->state == 'R')
		out->syscall = TASK_SYSCALL_UNKNOWN;
	task__read_nstid(pid, out);
	task__read_blocked(pid, out);
	return 0;
}

/* "NS-ON-CPU NS-IN-QUEUE RUNS", first: a thread that runs and falls asleep then is one that waits, too. */
int task__waits(pid_t pid, pid_t tid, pid_t *nstid, uint64_t *runs)
{
	struct task task = {.tid = tid};
	char text[FILE_BYTES];
	int err = task__file(pid, tid, "schedstat", text);

	if (!err && sscanf(text, "%*u %*u %" SCNu64, runs) != 1)
		err = -EINVAL;
	err = err ?: task__stat(pid, &task);
	if (err)
		return err;
	task__read_nstid(pid, &task);
	*nstid = task.nstid;
	return task.state == 'S' || task.state == 'D' ? 0 : -EAGAIN;
}

static int by_number(const void *a, const void *b)
{
	const pid_t *x = a, *y = b;

	return COMPARE(*x, *y);
}

int task__list(pid_t pid, pid_t **out)
{
	pid_t *tids = NULL, *more, tid;
	struct dirent *entry;
	char path[64];
	int cnt = 0;
	DIR *dir;

	*out = NULL;
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	while ((entry = readdir(dir))) {
		tid = atoi(entry->d_name);
		if (tid <= 0)
			continue;
		more = reallocarray(tids, (size_t)cnt + 1, sizeof(*tids));
		if (!more) {
			closedir(dir);
			free(tids);
			return -ENOMEM;
		}
		tids = more;
		tids[cnt++] = tid;
	}
	closedir(dir);
	if (!cnt)
		return -ESRCH;
	qsort(tids, (size_t)cnt, sizeof(*tids), by_number);
	*out = tids;
	return cnt;
}

/* ---- what it means ---- */

const char *task__state(const struct task *task)
{
	switch (task->state) {
	case 'R':
		return "running";
	case 'S':
		return "sleeping";
	case 'D':
		return "disk";
	case 'T':
		return "stopped";
	case 't':
		return "traced";
	case 'Z':
		return "zombie";
	case 'X':
	case 'x':
		return "dead";
	case 'I':
		return "idle";
	case 'P':
		return "parked";
	default:
		return "unknown";
	}
}

const char *task__syscall(const struct task *task)
{
	switch (task->syscall) {
#define X(id, name, number, rule)                                                                   \
	case number: {                                                                              \
		_Static_assert(number == SYS_##name, "is not the number of that call on this CPU"); \
		return #name;                                                                       \
	}
		STEPFLAME_SYSCALLS(X)
#undef X
	}
	return NULL;
}

static uint32_t fd__mode(pid_t pid, uint64_t fd)
{
	struct stat file;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, (int)fd);
	return stat(path, &file) ? 0 : file.st_mode;
}

enum wait_cause task__cause(pid_t pid, const struct task *task, const struct py_process *py)
{
	uint64_t arg0 = task->args[0];
	uint32_t rule;

	if (task->state != 'S' && task->state != 'D')
		return CAUSE_NONE;
	if (task->syscall == TASK_NO_SYSCALL)
		return CAUSE_PAGE_FAULT;
	if (task->syscall < 0)
		return CAUSE_UNKNOWN;
	rule = syscall__rule((uint32_t)task->syscall);
	return rule__cause(rule, arg0, task->args[1], rule__wants_file(rule) ? fd__mode(pid, arg0) : 0,
			   task->state == 'D', py && arg0 - py->gil_address < py->gil_bytes);
}
