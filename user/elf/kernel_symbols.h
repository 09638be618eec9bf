/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of the kernel, its modules and BPF programs, as /proc/kallsyms lists them when it is
 * read.
 */
#ifndef STEPFLAME_USER_ELF_KERNEL_SYMBOLS_H
#define STEPFLAME_USER_ELF_KERNEL_SYMBOLS_H

#include <stdint.h>

struct kernel_symbols;

/* 0 or -errno (-EPERM: kernel.kptr_restrict hides the addresses). Reads some 10 MB, once. */
int kernel_symbols__new(const char *path, struct kernel_symbols **out);
void kernel_symbols__free(struct kernel_symbols *symbols); /* accepts NULL */

/* "tcp_sendmsg", "ext4_readahead [ext4]", or NULL. Owned by symbols. */
const char *kernel_symbols__find(const struct kernel_symbols *symbols, uint64_t ip);

#endif
