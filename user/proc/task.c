/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads threads from /proc/PID/task/TID, without stopping them. In: a pid. Out: struct task. Owned
 * by the calling thread, which task__read moves to another processor for a moment.
 */
#include "user/proc/task.h"

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
#include "user/proc/deputy.h"
#include "user/proc/proc.h"

#define ATTEMPTS 3

/* ---- /proc ---- */

static int task__stat(pid_t pid, struct task *task)
{
	struct proc_stat stat;
	int err = proc__stat(pid, task->tid, &stat);

	if (err)
		return err;
	memcpy(task->name, stat.comm, sizeof(task->name));
	task->state = stat.state;
	task->processor = stat.processor;
	return 0;
}

static void task__read_syscall(pid_t pid, struct task *task)
{
	struct proc_syscall call;
	int err = proc__syscall(pid, task->tid, &call);

	memcpy(task->args, call.args, sizeof(task->args));
	task->syscall = call.field_cnt > 0 ? call.number : TASK_SYSCALL_UNKNOWN;
	if (!err && call.field_cnt <= 0)
		task->state = 'R';
}

static void task__read_nstid(pid_t pid, struct task *task)
{
	struct proc_status status;

	task->nstid = proc__status(pid, task->tid, &status) ? task->tid : status.nspid;
}

/*
 * The time at which the kernel last saw a thread run, in ms of its processor's clock. Below 0: not
 * known.
 */
static double task__ran_ms(pid_t pid, pid_t tid)
{
	char *text, *at;
	double ms = -1;
	size_t size;

	if (proc__slurp(pid, tid, "sched", &text, &size))
		return -1;
	at = strstr(text, "se.exec_start");
	at = at ? strchr(at, ':') : NULL;
	if (!at || sscanf(at + 1, "%lf", &ms) != 1 || ms <= 0)
		ms = -1;
	free(text);
	return ms;
}

/*
 * The current time of a processor's clock. The clock stands still while the processor serves
 * interrupts, or while its hypervisor serves others, so each processor has its own. To read it,
 * this thread sleeps for a moment and takes the time at which it was put on that processor.
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

/* Reads both again when the thread ran in between. */
int task__read_call(pid_t pid, pid_t tid, struct task *out)
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
	return 0;
}

int task__read(pid_t pid, pid_t tid, struct task *out)
{
	int err = task__read_call(pid, tid, out);

	if (err)
		return err;
	task__read_nstid(pid, out);
	task__read_blocked(pid, out);
	return 0;
}

int task__runs(pid_t pid, pid_t tid, uint64_t *runs)
{
	size_t size;
	char *text;
	int err = proc__slurp(pid, tid, "schedstat", &text, &size);

	if (err)
		return err;
	err = sscanf(text, "%*u %*u %" SCNu64, runs) == 1 ? 0 : -EINVAL;
	free(text);
	return err;
}

/* Reads the runs first: a thread that still runs then and falls asleep afterwards waits, too. */
int task__waits(pid_t pid, pid_t tid, pid_t *nstid, uint64_t *runs)
{
	struct task task = {.tid = tid};
	int err = task__runs(pid, tid, runs) ?: task__stat(pid, &task);

	if (err)
		return err;
	if (task.state != 'S' && task.state != 'D')
		return -EAGAIN;
	task__read_nstid(pid, &task);
	*nstid = task.nstid;
	return 0;
}

int task__list(pid_t pid, pid_t **out)
{
	char path[64];
	int cnt;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	cnt = proc__numbers(path, out);
	if (!cnt || cnt == -ENOENT)
		return -ESRCH;
	if (cnt > 0)
		qsort(*out, (size_t)cnt, sizeof(**out), compare__pid);
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

/* Returns the mode; 0: not known. */
static int mode_in_deputy(const void *in, struct deputy_out *out)
{
	struct stat file;

	(void)out;
	return stat(in, &file) ? 0 : (int)file.st_mode;
}

static uint32_t fd__mode(pid_t pid, uint64_t fd)
{
	char path[64];
	int mode;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, (int)fd);
	mode = deputy__run(pid, mode_in_deputy, path, sizeof(path), NULL);
	return mode < 0 ? 0 : (uint32_t)mode;
}

enum wait_cause task__cause(pid_t pid, const struct task *task, const struct py_process *py)
{
	const __u64 args[3] = {task->args[0], task->args[1], task->args[2]};
	uint32_t rule;

	if (task->state != 'S' && task->state != 'D')
		return CAUSE_NONE;
	if (task->syscall == TASK_NO_SYSCALL)
		return cause__without_call(task->state == 'D');
	if (task->syscall < 0)
		return CAUSE_UNKNOWN;
	rule = syscall__rule((uint32_t)task->syscall);
	return rule__cause(rule, args, rule__wants_file(rule) ? fd__mode(pid, args[0]) : 0, task->state == 'D',
			   py && args[0] - py->gil_address < py->gil_bytes);
}
