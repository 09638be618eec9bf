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

struct program_knobs {
	uint64_t fixed_names[16]; /* ids, by enum fixed_name */
	uint64_t step_limit;
	uint64_t step_at[2];                   /* ids of --step-at NAME; 0: none */
	uint64_t py_call_cnt, py_call_lengths; /* as bpf/maps.h has them */
	uint64_t op_schedule[5];               /* by enum op_schedule_word */
	bool ops, shapes, stacks, modules, timeline, exact, step_times, syscalls;
	uint64_t gpu_names[128]; /* ids of waits for the GPU, by enum gpu_api */
	bool gpu;                /* calls of CUDA and NCCL are counted */
	bool gpu_windows;        /* of CUPTI's, by the schedule */
	bool children;           /* forks are followed */
	uint32_t frequency;      /* of samples, a second; 0: none */
};

/*
 * Opens, loads and tests the programs: for uprobe_multi links, or else (kernels before 6.10) for events of
 * tracefs, or else for perf uprobes. *out is to be destroyed with stepflame_bpf__destroy. knobs may be NULL. 0 or -errno: -EPERM no permission, -EOPNOTSUPP this
 * kernel cannot.
 */
int programs__load(const struct program_knobs *knobs, struct stepflame_bpf **out, struct selftest *selftest);

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
