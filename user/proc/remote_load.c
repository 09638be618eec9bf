// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What is written into the process, where, and in which order. The code goes after the end of some
 * library's code, into the rest of its last page, which is executable and all zeros; its data go on
 * the stopped thread's stack, below what the thread uses. Neither affects the process until the
 * thread's registers point there, which takes one system call.
 */
#include "user/proc/remote_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <time.h>

#include "user/elf/elf.h"
#include "user/lib/clock.h"
#include "user/proc/remote_private.h"
#include "user/proc/remote_stub.h"

#define PAGE           4096
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

/* ---- what is there ---- */

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
	static const uint8_t zeros[PAGE];
	uint64_t bias, vaddr, size, start, end;
	uint8_t now[PAGE];
	struct elf *elf;
	int err = open_file(file, &elf, &bias);

	if (err)
		return err;
	err = -ENOENT;
	for (size_t n = 0; err && elf__code(elf, n, &vaddr, &size); n++) {
		start = (vaddr + size + CODE_ALIGN - 1) / CODE_ALIGN * CODE_ALIGN;
		end = (vaddr + size + PAGE - 1) / PAGE * PAGE;
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
	    map->start > gap->end && map->start - gap->end >= GAP_PAGES * PAGE)
		gap->found = gap->end + GAP_PAGES / 2 * PAGE;
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
	int err = remote_thread__check(l->process->pid, thread, &l->view);

	if (err)
		return err;
	began = clock__ns(CLOCK_MONOTONIC);
	err = remote_thread__stop(l->process->pid, thread, &regs, &again);
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
	remote_thread__release(thread, err ? (long)regs.rax == -EINTR ? &again : &regs : &off);
	if (err)
		return fail(l, -EOPNOTSUPP, "its memory cannot be written: %s", strerror(-err));
	l->out->tid = thread->tid;
	l->out->stopped_ns = clock__ns(CLOCK_MONOTONIC) - began;
	return 0;
}

static int send_any_off(struct library_loader *l)
{
	struct remote_thread *threads;
	int cnt = remote_thread__list(l->process->pid, &threads), err = -EAGAIN;

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
	struct library_loader l = {.process = process, .out = out, .vector_bytes = remote_stub__vector_bytes()};
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
