/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The BPF programs, loaded in the form that this kernel takes. */
#ifndef STEPFLAME_USER_SESSION_PROGRAMS_H
#define STEPFLAME_USER_SESSION_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "user/session/selftest.h"

struct stepflame_bpf;
struct proc_command;
struct bpf_program;

/* Sets the knobs of programs that are not loaded yet, and leaves out those that are not wanted. */
typedef void (*programs_configure)(struct stepflame_bpf *skel, enum attach_backend backend, void *ctx);

/*
 * Opens, configures, loads and tests the programs: for uprobe_multi links, or else (kernels before 6.10) for events of
 * tracefs, or else for perf uprobes. configure NULL: only what a test of the kernel needs. *out is to be destroyed with
 * stepflame_bpf__destroy. 0 or -errno: -EPERM no permission, -EOPNOTSUPP this kernel cannot.
 */
int programs__load(programs_configure configure, void *ctx, struct stepflame_bpf **out, struct selftest *selftest);

/*
 * Runs the program `control`: changes in place what BPF knows of a process. 0, -ESRCH when it knows none of that pid,
 * or -errno.
 */
int programs__command(struct stepflame_bpf *skel, const struct proc_command *command);

/* Runs an iterator over the host's threads once. 0 or -errno. */
int programs__iterate(struct bpf_program *program);

/* Why it failed, and the fix, for a person. */
void programs__explain(int err, const char **why, const char **fix);

#endif
