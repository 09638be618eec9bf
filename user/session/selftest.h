/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Measures what uprobes can do and cost on this machine, by probing stepflame itself. */
#ifndef STEPFLAME_USER_SESSION_SELFTEST_H
#define STEPFLAME_USER_SESSION_SELFTEST_H

#include <stdint.h>

#include "user/session/attach.h"

struct stepflame_bpf;

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
 * Probes a function of stepflame and calls it from a second thread: a process filter must count all
 * threads (before 6.10 the filter of uprobe_multi compares single threads). Takes some 20 ms. 0 or
 * -errno; -EOPNOTSUPP: hits are missing.
 */
int selftest__run(struct stepflame_bpf *skel, enum attach_backend backend, struct selftest *out);
/* The time of a cheap system call of this process now, in ns. Takes some 5 ms. */
uint64_t selftest__call_ns(void);

#endif
