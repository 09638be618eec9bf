// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/proc/remote_stub.h"

#include <cpuid.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE_FLAGS        (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE)

#define AT(field)         [field] "i"(offsetof(struct remote_frame, field))
#define PAGE(name, field) [name] "i"(offsetof(struct remote_call, field))

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
			 AT(start), AT(pthread_create), AT(pthread_detach), PAGE(library, library), PAGE(entry, entry),
			 PAGE(mode, mode), PAGE(state, state), PAGE(result, result), PAGE(error, error),
			 PAGE(dlopen, dlopen), PAGE(dlsym, dlsym),
			 PAGE(dlerror, dlerror), [sigprocmask] "i"(SYS_rt_sigprocmask), [mmap] "i"(SYS_mmap),
			 [page_bytes] "i"(REMOTE_PAGE), [page_mode] "i"(PROT_READ | PROT_WRITE),
			 [page_flags] "i"(PAGE_FLAGS), [call_bytes] "i"(sizeof(struct remote_call)),
			 [error_bytes] "i"(sizeof(((struct remote_call *)0)->error) - 1), [begun] "i"(REMOTE_BEGUN),
			 [found] "i"(REMOTE_FOUND), [done] "i"(REMOTE_DONE), [failed] "i"(REMOTE_FAILED));
}

_Static_assert(sizeof(struct remote_call) <= REMOTE_PAGE, "it is one page");
_Static_assert(offsetof(struct remote_frame, vectors) % 64 == 0, "XSAVE wants it");
_Static_assert(offsetof(struct remote_frame, r15) == 0 && offsetof(struct remote_frame, rsp) == 15 * 8,
	       "they are popped");

/* Intel SDM, vol. 1, 13.2 and 13.4.3: the enabled components, in the standard form. */
uint32_t remote_stub__vector_bytes(void)
{
	uint32_t a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !__get_cpuid_count(13, 0, &a, &b, &c, &d))
		return 0;
	return b;
}
