// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/probes.h"
#include "include/records.h"
#include "stepflame.skel.h"
#include "user/session/trace_events.h"

_Static_assert(sizeof(((struct program_knobs *)0)->fixed_names) == 8 * FIXED_NAMES, "room for every fixed name");

/* libbpf's messages are for developers; STEPFLAME_DEBUG=1 shows them. */
static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list args)
{
	return level == LIBBPF_WARN && getenv("STEPFLAME_DEBUG") ? vfprintf(stderr, fmt, args) : 0;
}

#define TIMELINE_RING_BYTES (32 << 20) /* some 400,000 spans between two polls */
#define SAMPLES_RING_BYTES  (4 << 20)  /* a job's stacks are all new at first */

/* Their programs are not loaded, and their maps are as small as can be. */
static void leave_operators_out(struct stepflame_bpf *skel)
{
	bpf_program__set_autoload(skel->progs.op_enter, false);
	bpf_program__set_autoload(skel->progs.node_enter, false);
	bpf_program__set_autoload(skel->progs.boxed_enter, false);
	bpf_program__set_autoload(skel->progs.op_exit, false);
	bpf_program__set_autoload(skel->progs.op_memory, false);
	bpf_map__set_max_entries(skel->maps.op_rows, 1);
	bpf_map__set_max_entries(skel->maps.op_procs, 1);
	bpf_map__set_max_entries(skel->maps.op_defs, 1);
	bpf_map__set_max_entries(skel->maps.node_classes, 1);
	bpf_map__set_max_entries(skel->maps.handles, 1);
	bpf_map__set_max_entries(skel->maps.groups, 1);
	bpf_map__set_max_entries(skel->maps.allocations, 1);
}

static void leave_calls_out(struct stepflame_bpf *skel)
{
	bpf_program__set_autoload(skel->progs.exact, false);
	bpf_program__set_autoload(skel->progs.exact_exit, false);
	bpf_map__set_max_entries(skel->maps.exact_threads, 1);
	bpf_map__set_max_entries(skel->maps.exact_free, 1);
	bpf_map__set_max_entries(skel->maps.call_rows, 1);
}

static void leave_gpu_calls_out(struct stepflame_bpf *skel, bool waits_too)
{
	bpf_map__set_max_entries(skel->maps.gpu_rows, 1);
	bpf_map__set_max_entries(skel->maps.gpu_handles, 1);
	if (!waits_too)
		return;
	bpf_program__set_autoload(skel->progs.gpu_enter, false);
	bpf_program__set_autoload(skel->progs.gpu_exit, false);
}

static void leave_samples_out(struct stepflame_bpf *skel)
{
	bpf_program__set_autoload(skel->progs.sample_timer, false);
	bpf_program__set_autoload(skel->progs.sample_switch, false);
	bpf_program__set_autoload(skel->progs.sample_waking, false);
	bpf_program__set_autoload(skel->progs.sample_threads, false);
	bpf_map__set_max_entries(skel->maps.stacks, 1);
	bpf_map__set_max_entries(skel->maps.arounds, 1);
}

static void leave_syscalls_out(struct stepflame_bpf *skel)
{
	bpf_program__set_autoload(skel->progs.syscall_enter, false);
	bpf_program__set_autoload(skel->progs.syscall_exit, false);
	bpf_program__set_autoload(skel->progs.page_added, false);
	bpf_program__set_autoload(skel->progs.syscall_unfinished, false);
	bpf_map__set_max_entries(skel->maps.syscall_rows, 1);
	bpf_map__set_max_entries(skel->maps.file_rows, 1);
	bpf_map__set_max_entries(skel->maps.pipe_rows, 1);
}

static void unset_attach_types(struct stepflame_bpf *skel)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, skel->obj) if (bpf_program__type(program) == BPF_PROG_TYPE_KPROBE)
		bpf_program__set_expected_attach_type(program, 0);
}

/*
 * The kernel looks at the attach type when it loads or when it attaches, by version: for perf uprobes it must be 0
 * (6.12 refuses others), for uprobe_multi what the section name says. So each way is tried whole.
 */
static int load_skeleton(const struct program_knobs *knobs, enum attach_backend backend, struct stepflame_bpf **out,
			 struct selftest *selftest)
{
	struct stepflame_bpf *skel = stepflame_bpf__open();
	int err;

	if (!skel)
		return -errno;
	if (knobs) {
		memcpy((void *)skel->rodata->fixed_names, knobs->fixed_names, sizeof(knobs->fixed_names));
		skel->rodata->step_limit = knobs->step_limit;
		memcpy((void *)skel->rodata->step_at, knobs->step_at, sizeof(knobs->step_at));
		skel->rodata->py_call_cnt = knobs->py_call_cnt;
		skel->rodata->py_call_lengths = knobs->py_call_lengths;
		memcpy((void *)skel->rodata->op_schedule, knobs->op_schedule, sizeof(knobs->op_schedule));
		memcpy((void *)skel->rodata->gpu_names, knobs->gpu_names, sizeof(knobs->gpu_names));
		skel->rodata->want_gpu = knobs->gpu;
		skel->rodata->want_gpu_windows = knobs->gpu_windows;
		skel->rodata->want_timeline = knobs->timeline;
		skel->rodata->want_step_times = knobs->step_times;
		skel->rodata->want_children = knobs->children;
		skel->rodata->want_shapes = knobs->shapes;
		skel->rodata->want_stacks = knobs->stacks;
		skel->rodata->want_modules = knobs->modules;
		skel->rodata->sample_period_ns = knobs->frequency ? 1000000000 / knobs->frequency : 0;
		skel->rodata->wait_threshold_ns = WAIT_THRESHOLD_NS;
	}
	if (knobs && knobs->timeline)
		bpf_map__set_max_entries(skel->maps.ring, TIMELINE_RING_BYTES);
	else if (knobs && knobs->frequency)
		bpf_map__set_max_entries(skel->maps.ring, SAMPLES_RING_BYTES);
	if (!knobs || !knobs->frequency)
		leave_samples_out(skel);
	if (!knobs || !knobs->syscalls)
		leave_syscalls_out(skel);
	if (!knobs || !knobs->ops || backend == ATTACH_PERF) /* which cannot attach so many */
		leave_operators_out(skel);
	if (!knobs || !knobs->exact)
		leave_calls_out(skel);
	if (!knobs || !knobs->gpu || backend == ATTACH_PERF)
		leave_gpu_calls_out(skel, !knobs || backend == ATTACH_PERF);
	if (!knobs || !(knobs->frequency || knobs->exact))
		bpf_map__set_max_entries(skel->maps.paths, 1);
	if (!knobs || !(knobs->frequency || knobs->exact || knobs->stacks || knobs->modules))
		bpf_map__set_max_entries(skel->maps.codes, 1);
	if (backend == ATTACH_EVENTS)
		skel->rodata->cookies_by_place = 1;
	else
		bpf_map__set_max_entries(skel->maps.probe_cookies, 1);
	if (backend != ATTACH_MULTI)
		unset_attach_types(skel);
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
	static const struct {
		enum attach_backend backend;
		const char *name;
	} ways[] = {{ATTACH_MULTI, "multi"}, {ATTACH_EVENTS, "events"}, {ATTACH_PERF, "perf"}};
	const char *only = getenv("STEPFLAME_PROBES"); /* for tests */
	int err = -EOPNOTSUPP;

	libbpf_set_print(print_libbpf);
	*out = NULL;
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways) && err && err != -EPERM; i++) {
		if (only && strcmp(only, ways[i].name))
			continue;
		if (ways[i].backend == ATTACH_EVENTS && !trace_events__work())
			continue;
		if (ways[i].backend == ATTACH_EVENTS)
			trace_events__tidy();
		err = load_skeleton(knobs, ways[i].backend, out, selftest);
	}
	if (!err)
		return 0;
	/* The verifier says EACCES too; to root it cannot mean permission. */
	return err == -EPERM || (err == -EACCES && geteuid()) ? -EPERM : -EOPNOTSUPP;
}

int programs__command(struct stepflame_bpf *skel, const struct proc_command *command)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = command, .ctx_size_in = sizeof(*command));
	int err = bpf_prog_test_run_opts(bpf_program__fd(skel->progs.control), &opts);

	return err ?: opts.retval ? -ESRCH : 0;
}

int programs__iterate(struct bpf_program *program)
{
	struct bpf_link *link = bpf_program__attach_iter(program, NULL);
	int err = 0, fd;
	char nothing[64];

	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0 || read(fd, nothing, sizeof(nothing)) < 0)
		err = -errno;
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	return err;
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
