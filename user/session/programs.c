// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "programs.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../include/probes.h"
#include "stepflame.skel.h"

_Static_assert(sizeof(((struct program_knobs *)0)->fixed_names) == 8 * FIXED_NAMES, "room for every fixed name");

/* libbpf's messages are for developers; STEPFLAME_DEBUG=1 shows them. */
static int print(enum libbpf_print_level level, const char *fmt, va_list args)
{
	return level == LIBBPF_WARN && getenv("STEPFLAME_DEBUG") ? vfprintf(stderr, fmt, args) : 0;
}

/*
 * The kernel looks at the attach type when it loads or when it attaches, by version: for perf uprobes it must be 0 (6.12 refuses others), for uprobe_multi
 * what the section name says. So each way is tried whole.
 */
static int load(const struct program_knobs *knobs, enum attach_backend backend, struct stepflame_bpf **out,
		struct selftest *selftest)
{
	struct stepflame_bpf *skel = stepflame_bpf__open();
	int err;

	if (!skel)
		return -errno;
	if (knobs) {
		memcpy((void *)skel->rodata->fixed_names, knobs->fixed_names, sizeof(knobs->fixed_names));
		skel->rodata->step_limit = knobs->step_limit;
		skel->rodata->py_call_cnt = knobs->py_call_cnt;
		skel->rodata->py_call_lengths = knobs->py_call_lengths;
	}
	if (backend == ATTACH_PERF)
		bpf_program__set_expected_attach_type(skel->progs.probe, 0);
	err = stepflame_bpf__load(skel);
	if (!err)
		err = selftest__run(skel, backend, selftest);
	if (err)
		stepflame_bpf__destroy(skel);
	else
		*out = skel;
	return err;
}

int programs__load(const struct program_knobs *knobs, struct stepflame_bpf **out, struct selftest *selftest)
{
	int err;

	libbpf_set_print(print);
	*out = NULL;
	err = load(knobs, ATTACH_MULTI, out, selftest);
	if (err && err != -EPERM)
		err = load(knobs, ATTACH_PERF, out, selftest);
	if (!err)
		return 0;
	/* The verifier says EACCES too; to root it cannot mean permission. */
	return err == -EPERM || (err == -EACCES && geteuid()) ? -EPERM : -EOPNOTSUPP;
}

void programs__explain(int err, const char **why, const char **fix)
{
	if (err == -EPERM) {
		*why = "may not load BPF programs: permission denied";
		*fix = "run it as root (sudo), or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE";
	} else if (access("/sys/kernel/btf/vmlinux", R_OK)) {
		*why = "this kernel has no type information (/sys/kernel/btf/vmlinux)";
		*fix = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y";
	} else {
		*why = "this kernel does not take the BPF programs";
		*fix = "use Linux 6.1 or later, with CONFIG_BPF_SYSCALL, CONFIG_UPROBES and CONFIG_UPROBE_EVENTS; "
		       "STEPFLAME_DEBUG=1 shows what the kernel says";
	}
}
