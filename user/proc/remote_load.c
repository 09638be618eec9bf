// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What is written into the process, which thread runs it, where it goes, and in which order. The code goes after the end of some
 * library's code, into the rest of its last page, which is executable and all zeros; its data go on
 * the stopped thread's stack, below what the thread uses. Neither affects the process until the
 * thread's registers point there, which takes one system call.
 */
#include "user/proc/remote_load.h"

#include <cpuid.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "user/elf/elf.h"
#include "user/lib/clock.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"
#include "user/proc/task.h"

/*
 * ---- the code that is written, in two parts ----
 *
 * A thread of the process that was stopped in a system call runs the first part: it starts a new
 * thread and returns to that call by itself, with each register as it was, so the tracer need not
 * stay to restore anything. The new thread runs the second part: it loads a library and calls a
 * function of it. x86-64; position-independent; the registers point to all other data.
 */

#define PAGE_BYTES 4096

enum remote_state { REMOTE_NONE, REMOTE_BEGUN, REMOTE_FOUND /* the function is running */, REMOTE_DONE, REMOTE_FAILED };

/* A page that remains in the process. */
struct remote_call {
	uint64_t dlopen, dlsym, dlerror; /* addresses; dlerror may be 0 */
	int32_t mode;                    /* of dlopen */
	uint32_t state;                  /* enum remote_state */
	int32_t result;                  /* of the function; in REMOTE_FAILED of pthread_create, or 0 */
	uint32_t pad;
	char library[1024], entry[64];
	char error[512]; /* what dlerror said */
};

/*
 * Lies on the stack of the stopped thread, below what the thread uses, while it runs the first
 * part; rsp points to it.
 */
struct remote_frame {
	/*
	 * Registers with which the thread continues, in the order in which they are popped. A
	 * system call clobbers rcx and r11.
	 */
	uint64_t r15, r14, r13, r12, r10, r9, r8, rbp, rdi, rsi, rdx, rax, rbx, flags, rip, rsp;
	uint64_t pthread_create, pthread_detach, errno_location; /* addresses, */
	uint64_t start;                                          /* also of the second part, */
	uint64_t page;                                           /* and where the page is to be */
	uint64_t thread, all_signals, old_signals;
	struct remote_call call; /* for the page */
	/*
	 * The XSAVE area: its header, which must be zero, ends here; the whole has
	 * xsave_bytes().
	 */
	uint8_t vectors[576] __attribute__((aligned(64)));
};

/* The code, and where its second part begins. */
extern const char remote_stub[], remote_stub_start[], remote_stub_end[];

#define PAGE_FLAGS        (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE)

#define AT(field)         [field] "i"(offsetof(struct remote_frame, field))
#define CALL(name, field) [name] "i"(offsetof(struct remote_call, field))

/*
 * Never called: holds the code, in a data section. The first part blocks all signals, so that the
 * new thread begins with all of them blocked, and no handler of the program runs in between. `cld`
 * and the saved flags: a system call may be made with any flags.
 */
__attribute__((used, noinline)) static void hold_code(void)
{
	__asm__ volatile(".pushsection .rodata\n"
			 ".globl remote_stub, remote_stub_start, remote_stub_end\n"
			 "remote_stub:\n"
			 "	mov %%rsp, %%rbx\n"
			 "	cld\n"
			 "	mov $-1, %%eax\n"
			 "	mov %%eax, %%edx\n"
			 "	xsave64 %c[vectors](%%rbx)\n"
			 "	call *%c[errno_location](%%rbx)\n"
			 "	mov %%rax, %%r13\n"
			 "	mov (%%rax), %%r12d\n"
			 "	mov %[sigprocmask], %%eax\n"
			 "	mov $2, %%edi\n" /* SIG_SETMASK */
			 "	lea %c[all_signals](%%rbx), %%rsi\n"
			 "	lea %c[old_signals](%%rbx), %%rdx\n"
			 "	mov $8, %%r10d\n"
			 "	syscall\n"
			 "	mov %[mmap], %%eax\n"
			 "	mov %c[page](%%rbx), %%rdi\n"
			 "	mov %[page_bytes], %%esi\n"
			 "	mov %[page_mode], %%edx\n"
			 "	mov %[page_flags], %%r10d\n"
			 "	mov $-1, %%r8\n"
			 "	xor %%r9d, %%r9d\n"
			 "	syscall\n"
			 "	cmp %c[page](%%rbx), %%rax\n"
			 "	jne 2f\n"
			 "	mov %%rax, %%rdi\n"
			 "	lea %c[call](%%rbx), %%rsi\n"
			 "	mov %[call_bytes], %%ecx\n"
			 "	rep movsb\n"
			 "	lea %c[thread](%%rbx), %%rdi\n"
			 "	xor %%esi, %%esi\n"
			 "	mov %c[start](%%rbx), %%rdx\n"
			 "	mov %c[page](%%rbx), %%rcx\n"
			 "	call *%c[pthread_create](%%rbx)\n"
			 "	test %%eax, %%eax\n"
			 "	jne 1f\n"
			 "	mov %c[thread](%%rbx), %%rdi\n"
			 "	call *%c[pthread_detach](%%rbx)\n"
			 "	jmp 2f\n"
			 "1:	mov %c[page](%%rbx), %%rcx\n"
			 "	mov %%eax, %c[result](%%rcx)\n"
			 "	movl %[failed], %c[state](%%rcx)\n"
			 "2:	mov %%r12d, (%%r13)\n"
			 "	mov %[sigprocmask], %%eax\n"
			 "	mov $2, %%edi\n"
			 "	lea %c[old_signals](%%rbx), %%rsi\n"
			 "	xor %%edx, %%edx\n"
			 "	mov $8, %%r10d\n"
			 "	syscall\n"
			 "	mov $-1, %%eax\n"
			 "	mov %%eax, %%edx\n"
			 "	xrstor64 %c[vectors](%%rbx)\n"
			 "	mov %%rbx, %%rsp\n"
			 "	pop %%r15\n"
			 "	pop %%r14\n"
			 "	pop %%r13\n"
			 "	pop %%r12\n"
			 "	pop %%r10\n"
			 "	pop %%r9\n"
			 "	pop %%r8\n"
			 "	pop %%rbp\n"
			 "	pop %%rdi\n"
			 "	pop %%rsi\n"
			 "	pop %%rdx\n"
			 "	pop %%rax\n"
			 "	pop %%rbx\n"
			 "	popfq\n"
			 "	pop %%rcx\n"
			 "	pop %%rsp\n" /* from here on nothing uses the frame */
			 "	jmp *%%rcx\n"
			 "remote_stub_start:\n"
			 "	push %%rbx\n"
			 "	mov %%rdi, %%rbx\n"
			 "	movl %[begun], %c[state](%%rbx)\n"
			 "	lea %c[library](%%rbx), %%rdi\n"
			 "	mov %c[mode](%%rbx), %%esi\n"
			 "	call *%c[dlopen](%%rbx)\n"
			 "	test %%rax, %%rax\n"
			 "	je 3f\n"
			 "	mov %%rax, %%rdi\n"
			 "	lea %c[entry](%%rbx), %%rsi\n"
			 "	call *%c[dlsym](%%rbx)\n"
			 "	test %%rax, %%rax\n"
			 "	je 3f\n"
			 "	movl %[found], %c[state](%%rbx)\n"
			 "	call *%%rax\n"
			 "	mov %%eax, %c[result](%%rbx)\n"
			 "	movl %[done], %c[state](%%rbx)\n"
			 "	jmp 6f\n"
			 "3:	mov %c[dlerror](%%rbx), %%rax\n"
			 "	test %%rax, %%rax\n"
			 "	je 5f\n"
			 "	call *%%rax\n"
			 "	test %%rax, %%rax\n"
			 "	je 5f\n"
			 "	mov %%rax, %%rsi\n"
			 "	lea %c[error](%%rbx), %%rdi\n"
			 "	mov %[error_bytes], %%ecx\n"
			 "4:	lodsb\n"
			 "	stosb\n"
			 "	test %%al, %%al\n"
			 "	je 5f\n"
			 "	dec %%ecx\n"
			 "	jne 4b\n"
			 "5:	movl %[failed], %c[state](%%rbx)\n"
			 "6:	xor %%eax, %%eax\n"
			 "	pop %%rbx\n"
			 "	ret\n"
			 "remote_stub_end:\n"
			 ".popsection\n" ::AT(vectors),
			 AT(errno_location), AT(all_signals), AT(old_signals), AT(page), AT(call), AT(thread),
			 AT(start), AT(pthread_create), AT(pthread_detach), CALL(library, library), CALL(entry, entry),
			 CALL(mode, mode), CALL(state, state), CALL(result, result), CALL(error, error),
			 CALL(dlopen, dlopen), CALL(dlsym, dlsym),
			 CALL(dlerror, dlerror), [sigprocmask] "i"(SYS_rt_sigprocmask), [mmap] "i"(SYS_mmap),
			 [page_bytes] "i"(PAGE_BYTES), [page_mode] "i"(PROT_READ | PROT_WRITE),
			 [page_flags] "i"(PAGE_FLAGS), [call_bytes] "i"(sizeof(struct remote_call)),
			 [error_bytes] "i"(sizeof(((struct remote_call *)0)->error) - 1), [begun] "i"(REMOTE_BEGUN),
			 [found] "i"(REMOTE_FOUND), [done] "i"(REMOTE_DONE), [failed] "i"(REMOTE_FAILED));
}

_Static_assert(sizeof(struct remote_call) <= PAGE_BYTES, "it is one page");
_Static_assert(offsetof(struct remote_frame, vectors) % 64 == 0, "XSAVE wants it");
_Static_assert(offsetof(struct remote_frame, r15) == 0 && offsetof(struct remote_frame, rsp) == 15 * 8,
	       "they are popped");

/* Bytes that XSAVE writes on this machine; 0: no XSAVE. Intel SDM, vol. 1, 13.2 and 13.4.3: the enabled components. */
static uint32_t xsave_bytes(void)
{
	uint32_t a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !__get_cpuid_count(13, 0, &a, &b, &c, &d))
		return 0;
	return b;
}

/*
 * ---- the thread that runs it ----
 *
 * One that waits in a system call in which the program itself could as well have started a thread. It
 * is stopped by ptrace(2), PTRACE_SEIZE. A thread that is released, or whose tracer dies, continues as
 * if nothing had happened: the kernel restarts its call.
 */

#define RESTORERS_MAX 4

/* What the checks of a process's stacks need. */
struct remote_view {
	uint64_t restorers[RESTORERS_MAX]; /* addresses to which its signal handlers return */
	size_t restorer_cnt;
	size_t stack_bytes; /* that must be free below what a thread uses */
};

/* A waiting thread, as /proc describes it. */
struct remote_thread {
	pid_t tid;
	int rank; /* the lower the better */
	long syscall;
	uint64_t args[6], sp, pc;
};

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

/* The threads that may be stopped, the best first, malloc'ed into *out. Count, or -errno. */
static int list_threads(pid_t pid, struct remote_thread **out)
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

/* 0; -EAGAIN: it may be in a signal handler or in the loader, or has little stack left; or -errno. */
static int check_stack(pid_t pid, const struct remote_thread *thread, const struct remote_view *view)
{
	struct stack_search stack = {.thread = thread, .in_loader = true};
	int err = process__each_mapping(pid, find_stack_mapping, &stack);

	if (err)
		return err;
	if (stack.in_loader || !stack.end || thread->sp - stack.start < view->stack_bytes)
		return -EAGAIN;
	return scan_stack(pid, &stack, view);
}

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

/* Releases the thread with these registers. */
static void release_thread(const struct remote_thread *thread, const struct user_regs_struct *regs)
{
	ptrace(PTRACE_SETREGS, thread->tid, NULL, regs);
	ptrace(PTRACE_DETACH, thread->tid, NULL, NULL);
}

/*
 * Stops the thread in the call that it was seen in. Returns its registers, and those with which the
 * call restarts in *again. 0 (the caller must call release_thread), -EAGAIN: the thread has moved on,
 * and was released; -EACCES: it has a seccomp filter, and was released; -EBUSY, -EPERM; -ETIMEDOUT: it
 * does not stop.
 */
static int stop_thread(pid_t pid, const struct remote_thread *thread, struct user_regs_struct *regs,
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
	release_thread(thread, (long)regs->rax == -EINTR ? again : regs);
	return err;
}

/* ---- where the code goes ---- */

#define CODE_ALIGN     16
#define RED_ZONE       128   /* bytes below the stack pointer that a function may use (System V ABI, x86-64) */
#define CALLEE_BYTES   65536 /* of stack, for pthread_create */
#define GAP_PAGES      64    /* between mappings; the page goes into the middle of such a gap */
#define LIBRARIES_FROM 0x7f0000000000ULL /* not between the program and its heap */
#define ATTEMPTS       100
#define ATTEMPT_NS     50000000L
#define BEGIN_NS       3000000000ULL
#define LOAD_NS        15000000000ULL
#define LIBC_DLOPEN    0x80000000u /* __RTLD_DLOPEN, of glibc's include/dlfcn.h */

struct library_loader {
	const struct process *process;
	struct remote_load *out;
	struct remote_view view;
	struct remote_frame frame; /* filled as far as possible before a thread is chosen */
	uint64_t code;             /* where the code goes */
	uint32_t vector_bytes;
	bool filtered; /* a thread was left alone for its seccomp filter */
};

__attribute__((format(printf, 3, 4))) static int fail(struct library_loader *l, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->out->why, sizeof(l->out->why), fmt, ap);
	va_end(ap);
	return err;
}

struct wanted_symbol {
	const char *name;
	uint64_t *address;
};

static const char *mapped_base_name(const struct mapped_file *file)
{
	const char *slash = strrchr(file->path, '/');

	return slash ? slash + 1 : file->path;
}

static bool is_glibc(const struct mapped_file *file)
{
	static const char *const names[] = {"libc.so.6", "libc-2.", "libpthread", "libdl.so", "libdl-2."};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(mapped_base_name(file), names[i], strlen(names[i])))
			return true;
	return false;
}

/*
 * Finds where signal handlers return to: mov $15, %rax; syscall
 * (sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c).
 */
static void find_restorers(struct remote_view *view, const struct elf *elf, uint64_t bias)
{
	static const uint8_t restorer[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	uint64_t vaddr, size;

	for (size_t n = 0; elf__code(elf, n, &vaddr, &size); n++) {
		size_t have = 0;
		const uint8_t *code = elf__bytes(elf, vaddr, size, &have), *at = code, *end = code + have;

		while (code && view->restorer_cnt < RESTORERS_MAX &&
		       (at = memmem(at, end - at, restorer, sizeof(restorer)))) {
			view->restorers[view->restorer_cnt++] = bias + vaddr + (at - code);
			at++;
		}
	}
}

/* Opens the file and finds its load bias. 0 or -errno. */
static int open_file(const struct mapped_file *file, struct elf **elf, uint64_t *bias)
{
	uint64_t first;

	*elf = NULL;
	if (mapped_file__elf(file, elf))
		return -ENOENT;
	if (elf__vaddr(*elf, 0, &first)) {
		elf__free(*elf);
		return -ENOEXEC;
	}
	*bias = file->base - first;
	return 0;
}

static int find_libc_functions(struct library_loader *l)
{
	struct remote_frame *f = &l->frame;
	uint64_t libc_dlopen = 0, libc_dlsym = 0;
	const struct wanted_symbol wanted[] = {
		{"pthread_create", &f->pthread_create},
		{"pthread_detach", &f->pthread_detach},
		{"__errno_location", &f->errno_location},
		{"dlopen", &f->call.dlopen},
		{"dlsym", &f->call.dlsym},
		{"dlerror", &f->call.dlerror},
		{"__libc_dlopen_mode", &libc_dlopen}, /* before 2.34, in programs without libdl */
		{"__libc_dlsym", &libc_dlsym},
	};

	for (size_t i = 0; i < l->process->file_cnt; i++) {
		const struct mapped_file *file = &l->process->files[i];
		struct elf_symbol symbol;
		struct elf *elf;
		uint64_t bias;

		if (!is_glibc(file) || open_file(file, &elf, &bias))
			continue;
		for (size_t k = 0; k < sizeof(wanted) / sizeof(*wanted); k++)
			if (!*wanted[k].address && !elf__symbol(elf, wanted[k].name, &symbol))
				*wanted[k].address = bias + symbol.vaddr;
		find_restorers(&l->view, elf, bias);
		elf__free(elf);
	}
	f->call.mode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
	if (!f->call.dlopen || !f->call.dlsym) {
		f->call.dlopen = libc_dlopen;
		f->call.dlsym = libc_dlsym;
		f->call.dlerror = 0;
		f->call.mode = (int)(RTLD_NOW | LIBC_DLOPEN);
	}
	if (!f->pthread_create || !f->pthread_detach || !f->errno_location || !f->call.dlopen || !f->call.dlsym ||
	    !l->view.restorer_cnt)
		return fail(l, -EOPNOTSUPP, "it has no supported GNU C library");
	return 0;
}

/* Finds the rest of the last page of a file's code: 0 when it is large enough and unused. */
static int find_room_in(struct library_loader *l, const struct mapped_file *file, size_t bytes)
{
	static const uint8_t zeros[PAGE_BYTES];
	uint64_t bias, vaddr, size, start, end;
	uint8_t now[PAGE_BYTES];
	struct elf *elf;
	int err = open_file(file, &elf, &bias);

	if (err)
		return err;
	err = -ENOENT;
	for (size_t n = 0; err && elf__code(elf, n, &vaddr, &size); n++) {
		start = (vaddr + size + CODE_ALIGN - 1) / CODE_ALIGN * CODE_ALIGN;
		end = (vaddr + size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
		if (start + bytes > end || process__read_memory(l->process->pid, bias + start, now, end - start) ||
		    memcmp(now, zeros, end - start))
			continue;
		l->code = bias + start;
		err = 0;
	}
	elf__free(elf);
	return err;
}

struct gap {
	uint64_t end; /* of the previous mapping */
	bool grows;
	uint64_t found;
	uint64_t code;
	bool code_runs;
};

static int find_room_before(const struct mapping *map, void *ctx)
{
	struct gap *gap = ctx;
	const char *name = map->name ?: "";

	if (gap->code >= map->start && gap->code < map->end)
		gap->code_runs = map->executable;
	if (!gap->found && gap->end >= LIBRARIES_FROM && !gap->grows && strcmp(name, "[stack]") &&
	    map->start > gap->end && map->start - gap->end >= GAP_PAGES * PAGE_BYTES)
		gap->found = gap->end + GAP_PAGES / 2 * PAGE_BYTES;
	gap->end = map->end;
	gap->grows = !strcmp(name, "[heap]");
	return 0;
}

static int find_room(struct library_loader *l)
{
	size_t bytes = remote_stub_end - remote_stub;
	struct gap gap = {0};
	int err = -ENOENT;

	for (int pass = 0; pass < 2 && err; pass++)
		for (size_t i = 0; i < l->process->file_cnt && err; i++)
			if (is_glibc(&l->process->files[i]) == !pass)
				err = find_room_in(l, &l->process->files[i], bytes);
	if (err)
		return fail(l, -EOPNOTSUPP, "none of its libraries has %zu bytes to spare at the end of its code",
			    bytes);
	gap.code = l->code;
	err = process__each_mapping(l->process->pid, find_room_before, &gap);
	if (err)
		return err;
	if (!gap.code_runs || !gap.found)
		return fail(l, -EOPNOTSUPP, "its memory is not laid out as expected");
	l->frame.page = gap.found;
	l->frame.start = l->code + (remote_stub_start - remote_stub);
	return 0;
}

/* ---- writing ---- */

static int write_code(const struct library_loader *l, pid_t tid)
{
	size_t bytes = remote_stub_end - remote_stub;

	for (size_t at = 0; at < bytes; at += 8) {
		uint64_t word = 0;

		memcpy(&word, remote_stub + at, bytes - at < 8 ? bytes - at : 8);
		if (ptrace(PTRACE_POKEDATA, tid, (void *)(l->code + at), (void *)word))
			return -errno;
	}
	return 0;
}

/* Writes the frame to the stack, and its address to *at. */
static int write_frame(struct library_loader *l, const struct user_regs_struct *again, uint64_t *at)
{
	uint64_t bytes = offsetof(struct remote_frame, vectors) + l->vector_bytes;
	struct remote_frame *f = &l->frame;
	struct iovec here = {f, sizeof(*f)}, there = {NULL, sizeof(*f)};

	f->r15 = again->r15;
	f->r14 = again->r14;
	f->r13 = again->r13;
	f->r12 = again->r12;
	f->r10 = again->r10;
	f->r9 = again->r9;
	f->r8 = again->r8;
	f->rbp = again->rbp;
	f->rdi = again->rdi;
	f->rsi = again->rsi;
	f->rdx = again->rdx;
	f->rax = again->rax;
	f->rbx = again->rbx;
	f->flags = again->eflags;
	f->rip = again->rip;
	f->rsp = again->rsp;
	f->all_signals = ~0ULL;
	*at = (again->rsp - RED_ZONE - bytes) & ~63ULL;
	there.iov_base = (void *)*at;
	return process_vm_writev(l->process->pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof(*f) ? 0 : -EFAULT;
}

/* Stops that thread and starts it on the stub. -EAGAIN: try another thread, or later. */
static int send_off(struct library_loader *l, const struct remote_thread *thread)
{
	struct user_regs_struct regs, again, off;
	uint64_t began, frame;
	int err = check_stack(l->process->pid, thread, &l->view);

	if (err)
		return err;
	began = clock__ns(CLOCK_MONOTONIC);
	err = stop_thread(l->process->pid, thread, &regs, &again);
	if (err == -EACCES) {
		l->filtered = true;
		return -EAGAIN;
	}
	if (err)
		return err;
	err = write_code(l, thread->tid) ?: write_frame(l, &again, &frame);
	off = again;
	if (!err) {
		off.rip = l->code;
		off.rsp = frame;
	}
	release_thread(thread, err ? (long)regs.rax == -EINTR ? &again : &regs : &off);
	if (err)
		return fail(l, -EOPNOTSUPP, "its memory cannot be written: %s", strerror(-err));
	l->out->tid = thread->tid;
	l->out->stopped_ns = clock__ns(CLOCK_MONOTONIC) - began;
	return 0;
}

static int send_any_off(struct library_loader *l)
{
	struct remote_thread *threads;
	int cnt = list_threads(l->process->pid, &threads), err = -EAGAIN;

	if (cnt < 0)
		return cnt;
	for (int i = 0; i < cnt && err == -EAGAIN; i++)
		err = send_off(l, &threads[i]);
	free(threads);
	return err;
}

/* ---- the new thread ---- */

static int judge_call(struct library_loader *l, const struct remote_call *call)
{
	char error[sizeof(call->error)];

	l->out->result = call->result;
	if (call->state == REMOTE_DONE)
		return 0;
	memcpy(error, call->error, sizeof(error));
	error[sizeof(error) - 1] = 0;
	if (call->result)
		return fail(l, -EAGAIN, "it cannot start a thread: %s", strerror(call->result));
	return fail(l, -ENOENT, "it cannot load the library%s%s", *error ? ": " : "", error);
}

static int wait_for_it(struct library_loader *l)
{
	const struct timespec moment = {.tv_nsec = 500000};
	struct remote_call call = {0};
	uint64_t began = clock__ns(CLOCK_MONOTONIC), waited;

	do {
		nanosleep(&moment, NULL);
		waited = clock__ns(CLOCK_MONOTONIC) - began;
		if (process__read_memory(l->process->pid, l->frame.page, &call, sizeof(call)))
			call.state = REMOTE_NONE;
		l->out->loaded_ns = waited;
		if (call.state == REMOTE_DONE || call.state == REMOTE_FAILED)
			return judge_call(l, &call);
		if (!process__alive(l->process))
			return fail(l, -ESRCH, "it ended");
	} while (waited < (call.state == REMOTE_NONE ? BEGIN_NS : LOAD_NS));
	return fail(l, -ETIMEDOUT, "%s",
		    call.state == REMOTE_NONE    ? "its thread has not started to load the library"
		    : call.state == REMOTE_BEGUN ? "it is still being loaded: another thread may be in the loader"
						 : "the library is loaded, but its start-up has not finished");
}

int remote__load(const struct process *process, const char *library, const char *entry, struct remote_load *out)
{
	const struct timespec pause = {.tv_nsec = ATTEMPT_NS};
	struct library_loader l = {.process = process, .out = out, .vector_bytes = xsave_bytes()};
	int err;

	memset(out, 0, sizeof(*out));
	if (strlen(library) >= sizeof(l.frame.call.library) || strlen(entry) >= sizeof(l.frame.call.entry))
		return fail(&l, -ENAMETOOLONG, "the path is too long");
	if (!l.vector_bytes)
		return fail(&l, -EOPNOTSUPP, "this processor has no XSAVE");
	strcpy(l.frame.call.library, library);
	strcpy(l.frame.call.entry, entry);
	l.view.stack_bytes = sizeof(l.frame) + l.vector_bytes + CALLEE_BYTES;
	err = find_libc_functions(&l) ?: find_room(&l);
	if (err)
		return err;
	for (int i = 0; i < ATTEMPTS; i++) {
		err = send_any_off(&l);
		if (err != -EAGAIN)
			break;
		nanosleep(&pause, NULL);
	}
	if (err == -EAGAIN && l.filtered)
		return fail(&l, err,
			    "each of its threads that can be stopped has a seccomp filter, which may kill it for "
			    "a system call that it never made before");
	if (err == -EAGAIN)
		return fail(&l, err, "none of its threads waited where stepflame can stop it safely");
	if (err == -ETIMEDOUT)
		return fail(&l, err, "a thread of it did not stop");
	if (err)
		return err == -EOPNOTSUPP ? err : fail(&l, err, "its threads cannot be stopped: %s", strerror(-err));
	return wait_for_it(&l);
}
