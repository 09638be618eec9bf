// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Chooses a thread of a process that can be stopped and diverted: one that waits in a system call
 * in which the program itself could as well have started a thread. Stops the thread by ptrace(2),
 * PTRACE_SEIZE. A thread that is released, or whose tracer dies, continues as if nothing had
 * happened: the kernel restarts its call.
 */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"
#include "user/proc/remote_private.h"
#include "user/proc/task.h"

#define STOP_NS     3000000000ULL /* a thread that waits stops as soon as it gets a processor */
#define STACK_CHUNK 65536
#define SCAN_BYTES  (8u << 20) /* of a stack */
#define USER_CS     0x33       /* 64-bit code */
#define NOT_MAIN    10

/* What an interrupted system call leaves in rax for the kernel's exit path (include/linux/errno.h). */
#define ERESTARTSYS           512
#define ERESTARTNOINTR        513
#define ERESTARTNOHAND        514
#define ERESTART_RESTARTBLOCK 516

/*
 * Calls that restart and end as they would have ended, in order of preference. When a call has a
 * time-out, the kernel remembers the end (RESTARTBLOCK) or has written back what is left.
 * epoll_wait is the exception, and comes last: it returns EINTR (signal(7)), and its time-out
 * begins anew.
 */
static const struct {
	long number;
	int rank;
	bool interrupted; /* we caused EINTR if no signal is pending */
} calls[] = {
	{SYS_poll, 2, false},   {SYS_ppoll, 2, false},     {SYS_clock_nanosleep, 2, false}, {SYS_nanosleep, 2, false},
	{SYS_select, 3, false}, {SYS_pselect6, 3, false},  {SYS_wait4, 3, false},           {SYS_waitid, 3, false},
	{SYS_read, 4, true},    {SYS_recvfrom, 4, true},   {SYS_recvmsg, 4, true},          {SYS_accept, 4, true},
	{SYS_accept4, 4, true}, {SYS_epoll_wait, 5, true}, {SYS_epoll_pwait, 5, true},
};

static int blocking_call_index(long number)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (calls[i].number == number)
			return (int)i;
	return -1;
}

/* ---- by /proc ---- */

/*
 * glibc waits for a lock by FUTEX_WAIT, and the thread may hold anything half done; condition
 * variables, semaphores and joins wait by FUTEX_WAIT_BITSET.
 */
static int thread_rank(const struct remote_thread *thread)
{
	int call = blocking_call_index(thread->syscall);

	if (thread->syscall == SYS_futex)
		return (thread->args[1] & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET ? -1 : thread->args[3] ? 1 : 0;
	return call < 0 ? -1 : calls[call].rank;
}

/* Parses a waiting thread; the file of a thread that runs, or sleeps in no call, has fewer fields. */
static bool read_waiting_thread(pid_t pid, pid_t tid, struct remote_thread *out)
{
	struct proc_syscall call;

	if (proc__syscall(pid, tid, &call) || call.field_cnt != 9)
		return false;
	out->tid = tid;
	out->syscall = call.number;
	memcpy(out->args, call.args, sizeof(out->args));
	out->sp = call.sp;
	out->pc = call.pc;
	return true;
}

static int compare_ranks(const void *a, const void *b)
{
	const struct remote_thread *x = a, *y = b;

	return x->rank - y->rank;
}

int remote_thread__list(pid_t pid, struct remote_thread **out)
{
	pid_t *tids;
	int cnt = task__list(pid, &tids), found = 0;

	if (cnt < 0)
		return cnt;
	*out = calloc(cnt ?: 1, sizeof(**out));
	for (int i = 0; *out && i < cnt; i++) {
		struct remote_thread *thread = &(*out)[found];

		if (!read_waiting_thread(pid, tids[i], thread))
			continue;
		thread->rank = thread_rank(thread);
		if (thread->rank < 0)
			continue;
		thread->rank += tids[i] == pid ? NOT_MAIN : 0;
		found++;
	}
	free(tids);
	if (!*out)
		return -ENOMEM;
	qsort(*out, found, sizeof(**out), compare_ranks);
	return found;
}

struct stack_search {
	const struct remote_thread *thread;
	uint64_t start, end;
	bool in_loader;
};

static int find_stack_mapping(const struct mapping *map, void *ctx)
{
	const char *slash = map->name ? strrchr(map->name, '/') : NULL;
	struct stack_search *stack = ctx;

	if (stack->thread->sp >= map->start && stack->thread->sp < map->end) {
		stack->start = map->start;
		stack->end = map->end;
	}
	if (stack->thread->pc >= map->start && stack->thread->pc < map->end)
		stack->in_loader = !slash || !strncmp(slash, "/ld-", 4) || !strncmp(slash, "/ld.", 4);
	return 0;
}

/*
 * The kernel's struct rt_sigframe: where the handler returns to, uc_flags, uc_link (0), uc_stack,
 * and the registers, cs among them. The return address alone proves nothing: it may be left over
 * from a struct sigaction. Unreadable memory counts as a frame.
 */
static bool is_signal_frame(pid_t pid, uint64_t address)
{
	uint64_t words[25];

	return process__read_memory(pid, address, words, sizeof(words)) ||
	       (!words[2] && (words[24] & 0xffff) == USER_CS);
}

/* Does the stack hold a signal handler's frame? */
static int scan_stack(pid_t pid, const struct stack_search *stack, const struct remote_view *view)
{
	static uint64_t words[STACK_CHUNK / 8];
	uint64_t at = stack->thread->sp & ~7ULL, end = stack->end;

	if (end - at > SCAN_BYTES)
		end = at + SCAN_BYTES;
	while (at < end) {
		size_t bytes = end - at < sizeof(words) ? end - at : sizeof(words);

		if (process__read_memory(pid, at, words, bytes))
			return -EAGAIN;
		for (size_t i = 0; i < bytes / 8; i++)
			for (size_t k = 0; k < view->restorer_cnt; k++)
				if (words[i] == view->restorers[k] && is_signal_frame(pid, at + 8 * i))
					return -EAGAIN;
		at += bytes;
	}
	return 0;
}

int remote_thread__check(pid_t pid, const struct remote_thread *thread, const struct remote_view *view)
{
	struct stack_search stack = {.thread = thread, .in_loader = true};
	int err = process__each_mapping(pid, find_stack_mapping, &stack);

	if (err)
		return err;
	if (stack.in_loader || !stack.end || thread->sp - stack.start < view->stack_bytes)
		return -EAGAIN;
	return scan_stack(pid, &stack, view);
}

/* ---- by ptrace ---- */

/* Whether a signal is pending for this thread, or for its process. */
static bool has_signal(pid_t pid, pid_t tid)
{
	struct proc_status status;

	return proc__status(pid, tid, &status) || (status.pending & ~status.blocked);
}

/* May a filter of its own kill this thread for a system call? Each thread may have another. */
static bool has_filter(pid_t pid, pid_t tid)
{
	struct proc_status status;

	return proc__status(pid, tid, &status) || status.seccomp;
}

/*
 * Computes the registers with which the interrupted call restarts. Returns false when no call was
 * interrupted, or it has ended.
 */
static bool begin_again(const struct user_regs_struct *regs, bool quiet, struct user_regs_struct *again)
{
	int call = blocking_call_index((long)regs->orig_rax);

	*again = *regs;
	switch (-(long)regs->rax) {
	case ERESTARTSYS:
	case ERESTARTNOINTR:
	case ERESTARTNOHAND:
		again->rax = regs->orig_rax;
		break;
	case ERESTART_RESTARTBLOCK:
		again->rax = SYS_restart_syscall;
		break;
	case EINTR:
		if (!quiet || call < 0 || !calls[call].interrupted)
			return false;
		again->rax = regs->orig_rax;
		break;
	default:
		return false;
	}
	again->rip -= 2; /* of `syscall` */
	again->orig_rax = -1;
	return true;
}

/*
 * glibc's thread control block begins with its own address, and has it again at 16
 * (sysdeps/x86_64/nptl/tls.h).
 */
static bool is_glibc_thread(pid_t pid, uint64_t tcb)
{
	uint64_t words[3];

	return !process__read_memory(pid, tcb, words, sizeof(words)) && words[0] == tcb && words[2] == tcb;
}

static bool is_where_it_was(pid_t pid, const struct remote_thread *thread, const struct user_regs_struct *regs)
{
	static const uint8_t instruction[2] = {0x0f, 0x05}; /* syscall */
	uint8_t code[2];

	return regs->cs == USER_CS && (long)regs->orig_rax == thread->syscall && regs->rsp == thread->sp &&
	       regs->rip == thread->pc && !process__read_memory(pid, regs->rip - 2, code, sizeof(code)) &&
	       !memcmp(code, instruction, sizeof(code)) && is_glibc_thread(pid, regs->fs_base);
}

/* Returns 0 when the thread is in the stop that was asked for. */
static int wait_for_stop(pid_t tid)
{
	const struct timespec moment = {.tv_nsec = 20000};
	uint64_t end = 0, at;
	int status;
	pid_t got;

	do {
		got = waitpid(tid, &status, __WALL | WNOHANG);
		at = clock__ns(CLOCK_MONOTONIC);
		end = end ?: at + STOP_NS;
		if (!got)
			nanosleep(&moment, NULL);
	} while (!got && at < end);
	if (!got)
		return -ETIMEDOUT;
	if (got < 0 || !WIFSTOPPED(status))
		return -EAGAIN; /* it has ended */
	if (status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) == SIGTRAP)
		return 0;
	if (status >> 16 == PTRACE_EVENT_STOP) { /* SIGSTOP and the like: the thread stays stopped */
		ptrace(PTRACE_DETACH, tid, NULL, NULL);
		return -EBUSY;
	}
	ptrace(PTRACE_DETACH, tid, NULL, (void *)(long)WSTOPSIG(status)); /* deliver the signal */
	return -EAGAIN;
}

int remote_thread__stop(pid_t pid, const struct remote_thread *thread, struct user_regs_struct *regs,
			struct user_regs_struct *again)
{
	bool quiet;
	int err;

	if (ptrace(PTRACE_SEIZE, thread->tid, NULL, NULL))
		return errno == ESRCH ? -EAGAIN : -errno;
	if (ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL))
		return -EAGAIN;
	err = wait_for_stop(thread->tid);
	if (err)
		return err;
	if (ptrace(PTRACE_GETREGS, thread->tid, NULL, regs)) {
		ptrace(PTRACE_DETACH, thread->tid, NULL, NULL);
		return -EAGAIN;
	}
	quiet = !has_signal(pid, thread->tid);
	if (!begin_again(regs, quiet, again)) {
		ptrace(PTRACE_DETACH, thread->tid, NULL, NULL);
		return -EAGAIN;
	}
	err = !quiet || !is_where_it_was(pid, thread, regs) ? -EAGAIN : has_filter(pid, thread->tid) ? -EACCES : 0;
	if (!err)
		return 0;
	/* The kernel restarts all calls except those that it ended with EINTR. */
	remote_thread__release(thread, (long)regs->rax == -EINTR ? again : regs);
	return err;
}

void remote_thread__release(const struct remote_thread *thread, const struct user_regs_struct *regs)
{
	ptrace(PTRACE_SETREGS, thread->tid, NULL, regs);
	ptrace(PTRACE_DETACH, thread->tid, NULL, NULL);
}
