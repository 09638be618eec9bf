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
#include "stepflame.skel.h"
#include "user/lib/capabilities.h"
#include "user/lib/restrictions.h"
#include "user/session/source.h"
#include "user/session/trace_events.h"

/* libbpf's messages are for developers; STEPFLAME_DEBUG=1 shows them. */
static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list args)
{
	return level == LIBBPF_WARN && secure_getenv("STEPFLAME_DEBUG") ? vfprintf(stderr, fmt, args) : 0;
}

static void unset_attach_types(struct stepflame_bpf *skel)
{
	struct bpf_program *program;

	bpf_object__for_each_program (program, skel->obj)
		if (bpf_program__type(program) == BPF_PROG_TYPE_KPROBE)
			bpf_program__set_expected_attach_type(program, 0);
}

/*
 * Loads the programs for one backend. Kernels check a program's attach type when they load it or
 * when they attach it, depending on the version: for perf uprobes it must be 0 (6.12 refuses
 * others), for uprobe_multi it must match the section name. So each backend needs its own load.
 */
static int load_skeleton(programs_configure configure, void *ctx, enum attach_backend backend,
			 struct stepflame_bpf **out, struct selftest *selftest)
{
	struct stepflame_bpf *skel = stepflame_bpf__open();
	int err;

	if (!skel)
		return -errno;
	if (configure)
		configure(skel, backend, ctx);
	else {
		bpf_map__set_max_entries(skel->maps.paths, 1);
		bpf_map__set_max_entries(skel->maps.codes, 1);
		SOURCES_CALL(configure, NULL, skel, backend);
	}
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

int programs__load(programs_configure configure, void *ctx, struct stepflame_bpf **out, struct selftest *selftest)
{
	static const struct {
		enum attach_backend backend;
		const char *name;
	} backends[] = {{ATTACH_MULTI, "multi"}, {ATTACH_EVENTS, "events"}, {ATTACH_PERF, "perf"}};
	const char *forced = secure_getenv("STEPFLAME_PROBES"); /* for tests */
	int err = -EOPNOTSUPP;

	libbpf_set_print(print_libbpf);
	*out = NULL;
	for (size_t i = 0; i < sizeof(backends) / sizeof(*backends) && err && err != -EPERM && err != -ENOMEM; i++) {
		if (forced && strcmp(forced, backends[i].name))
			continue;
		if (backends[i].backend == ATTACH_EVENTS && !trace_events__work())
			continue;
		if (backends[i].backend == ATTACH_EVENTS)
			trace_events__remove_stale();
		err = load_skeleton(configure, ctx, backends[i].backend, out, selftest);
	}
	if (!err || err == -ENOMEM)
		return err;
	if (err == -EOPNOTSUPP && trace_events__denied())
		return -EPERM;
	/* The verifier also returns EACCES; for root that cannot mean a missing permission. */
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

static const char *why_denied(void)
{
	const uint64_t programs = CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON);
	uint64_t held = capabilities__held();
	static char why[160];
	char missing[64];

	if (capabilities__in_user_namespace())
		return "may not load BPF programs: in a user namespace no capability allows that";
	if (programs & ~held) {
		snprintf(why, sizeof(why), "may not load BPF programs: %s missing",
			 capabilities__names(programs & ~held, missing, sizeof(missing)));
		return why;
	}
	if (trace_events__denied())
		return "may not place probes, as this kernel needs tracefs for that: CAP_DAC_OVERRIDE missing";
	if (perf_events__denied())
		return "may not place probes: " PERF_EVENTS_DENIED;
	if (!(held & CAPABILITY(CAP_SYS_ADMIN)))
		return "may not place probes, which without tracefs this kernel allows administrators only: "
		       "CAP_SYS_ADMIN missing";
	return "may not load BPF programs, although it has the capabilities: a security module (SELinux), or a filter "
	       "of system calls (seccomp, as of containers), refuses";
}

static const char *how_to_permit(void)
{
	if (capabilities__in_user_namespace())
		return "run it outside of the user namespace: on the host, or in a container without one";
	if (perf_events__denied())
		return PERF_EVENTS_FIX "; stepflame doctor says what else restricts it";
	return "run it as root (sudo), or with the capabilities that docs/safety.md lists; stepflame doctor says what "
	       "else restricts it";
}

void programs__explain(int err, const char **why, const char **fix)
{
	if (err == -EPERM) {
		*why = why_denied();
		*fix = how_to_permit();
	} else if (err == -ENOMEM) {
		*why = "there is not enough memory for the BPF programs";
		*fix = "give stepflame 100 MB: raise the limit of its container or cgroup, or ulimit -v";
	} else if (lockdown__mode() == LOCKDOWN_CONFIDENTIALITY) {
		/* The verifier does not know the helpers that read memory: no -EPERM. */
		*why = "the kernel is locked down for confidentiality: BPF programs may not read memory";
		*fix = "boot with lockdown=integrity or lockdown=none";
	} else if (access("/sys/kernel/btf/vmlinux", R_OK)) {
		*why = "this kernel has no type information (/sys/kernel/btf/vmlinux)";
		*fix = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y";
	} else {
		*why = "this kernel refuses the BPF programs";
		*fix = "use Linux 6.1 or later, with CONFIG_BPF_SYSCALL, CONFIG_UPROBES and CONFIG_UPROBE_EVENTS; "
		       "STEPFLAME_DEBUG=1 shows what the kernel says";
	}
}
