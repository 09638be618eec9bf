/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Loads the BPF programs in the form that this kernel accepts. */
#ifndef STEPFLAME_USER_SESSION_PROGRAMS_H
#define STEPFLAME_USER_SESSION_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "user/session/attach.h"

struct stepflame_bpf;
struct proc_command;
struct kernel_name;
struct bpf_program;

/* What uprobes can do and cost on this machine, as a test on stepflame itself finds. */
struct selftest {
	struct attacher attacher;
	/* Cost of a probe on an emulated instruction, less the program's own time. */
	uint64_t hit_ns;
	/* How much longer code takes after a hit that it had learned before: branches, caches. */
	uint64_t after_ns;
	uint32_t pid_level; /* level of stepflame's pid namespace */
	uint64_t pid_ns;    /* its address in the kernel */
};

/*
 * Sets constants and map sizes before the programs load, and disables programs that are not needed.
 */
typedef void (*programs_configure)(struct stepflame_bpf *skel, enum attach_backend backend, void *ctx);

/*
 * Opens, configures, loads and tests the programs: for uprobe_multi links, or else (kernels before
 * 6.10) for tracefs events, or else for perf uprobes. configure NULL: load only what a test of the
 * kernel needs. The caller destroys *out with stepflame_bpf__destroy. 0 or -errno: -EPERM: no
 * permission; -ENOMEM; -EOPNOTSUPP: the kernel lacks support.
 */
int programs__load(programs_configure configure, void *ctx, struct stepflame_bpf **out, struct selftest *selftest);

/*
 * Runs the program `control`, which changes BPF's state of a process in place. 0; -ESRCH: BPF does
 * not know that pid; or -errno.
 */
int programs__command(struct stepflame_bpf *skel, const struct proc_command *command);

/* Sets the name of the kernel's function at name->address. false: the kernel knows none. */
bool programs__name_kernel(struct stepflame_bpf *skel, struct kernel_name *name);

/* Runs an iterator once over the host's threads. 0 or -errno. */
int programs__iterate(struct bpf_program *program);

/* The time of a cheap system call of this process now, in ns. Takes some 5 ms. */
uint64_t selftest__call_ns(void);

/* Sets *why and *fix to texts for the user: why programs__load failed, and how to fix that. */
void programs__explain(int err, const char **why, const char **fix);

#endif
