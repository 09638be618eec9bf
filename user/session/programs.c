// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "include/probes.h"
#include "stepflame.skel.h"
#include "user/lib/capabilities.h"
#include "user/lib/clock.h"
#include "user/lib/compare.h"
#include "user/lib/percentile.h"
#include "user/proc/process.h"
#include "user/session/source.h"

/*
 * ---- the test: what uprobes can do and cost on this machine ----
 *
 * Probes a function of stepflame and calls it from a second thread: a process filter must count all
 * threads (before 6.10 the filter of uprobe_multi compares single threads). Takes some 20 ms.
 */

#define CALLS          25     /* in a row, */
#define BATCHES        5      /* and so often, */
#define BREAK_NS       500000 /* with this in between */
#define EVICTING_BYTES (256 << 10)
#define AFTER_MAX      4 /* times a hit: more was another program */

/* Begins with an instruction that the kernel emulates, like the sites of landmarks. */
void selftest_target(void);
__asm__(".text\n"
	".globl selftest_target\n"
	".type selftest_target, @function\n"
	"selftest_target:\n"
	"	push %rbp\n"
	"	pop %rbp\n"
	"	ret\n"
	".size selftest_target, . - selftest_target\n");

static int find_target_offset(struct dl_phdr_info *info, size_t size, void *ctx)
{
	uint64_t *offset = ctx, vaddr = (uint64_t)selftest_target - info->dlpi_addr;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && vaddr - p->p_vaddr < p->p_filesz)
			*offset = vaddr - p->p_vaddr + p->p_offset;
	}
	return 1; /* the first object is the program itself */
}

static int find_own_file(const struct mapping *map, void *ctx)
{
	struct probe_list *list = ctx;

	if ((uint64_t)selftest_target - map->start >= map->end - map->start)
		return 0;
	list->dev = map->dev;
	list->inode = map->inode;
	return 1;
}

static void do_nothing(void)
{
}

/* Code with many branches, always the same, as a training step is: a processor learns them. */
static void match_a_pattern(void)
{
	regex_t pattern;

	if (regcomp(&pattern, "a[bc]*(d|e)+f", REG_EXTENDED))
		return;
	(void)!regexec(&pattern, "xxabcbcdeeef", 0, NULL, 0);
	regfree(&pattern);
}

/*
 * Median time of a call with the work after it. Before each call, the loop does the work, and evicts
 * the kernel's trap handling from the first-level caches, as a training step does.
 */
static uint64_t median_ns(void (*call)(void), void (*work)(void))
{
	static volatile char evicting[EVICTING_BYTES];
	uint64_t ns[CALLS];

	for (int i = 0; i < CALLS; i++) {
		for (size_t k = 0; k < sizeof(evicting); k += 64)
			evicting[k]++;
		work();
		ns[i] = clock__ns(CLOCK_MONOTONIC);
		call();
		work();
		ns[i] = clock__ns(CLOCK_MONOTONIC) - ns[i];
	}
	qsort(ns, CALLS, sizeof(*ns), compare__u64);
	return ns[percentile__index(CALLS, 50)];
}

/* Of the batches the fastest: a neighbour on the same core makes some of them slow. */
static uint64_t least_ns(void (*call)(void), void (*work)(void))
{
	const struct timespec pause = {.tv_nsec = BREAK_NS};
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < BATCHES; i++) {
		uint64_t ns;

		nanosleep(&pause, NULL);
		ns = median_ns(call, work);
		least = MIN(least, ns);
	}
	return least;
}

struct call_times {
	uint64_t ns, with_work_ns;
};

static void *call_target(void *arg)
{
	*(struct call_times *)arg = (struct call_times){
		.ns = least_ns(selftest_target, do_nothing),
		.with_work_ns = least_ns(selftest_target, match_a_pattern),
	};
	return NULL;
}

static void call_getppid(void)
{
	syscall(SYS_getppid);
}

uint64_t selftest__call_ns(void)
{
	return least_ns(call_getppid, do_nothing);
}

static uint64_t beyond(uint64_t ns, uint64_t than_ns)
{
	return ns > than_ns ? ns - than_ns : 0;
}

static int test_probe(struct stepflame_bpf *skel, struct attacher *attacher, struct probe_list *list,
		      struct selftest *out)
{
	struct attachment *attachment;
	pthread_t thread;
	struct call_times probed, unprobed;
	uint64_t hit_ns, longer_ns;
	int err;

	call_target(&unprobed);
	err = attachment__new(skel->progs.probe, attacher, getpid(), list, &attachment);
	if (err)
		return err;
	skel->bss->test_hits = 0;
	err = -pthread_create(&thread, NULL, call_target, &probed);
	if (!err)
		pthread_join(thread, NULL);
	attachments__free(&attachment, 1);
	if (err)
		return err;
	if (skel->bss->test_hits != 2 * BATCHES * CALLS)
		return -EOPNOTSUPP;
	hit_ns = beyond(probed.ns, unprobed.ns);
	longer_ns = beyond(probed.with_work_ns, unprobed.with_work_ns);
	*out = (struct selftest){.attacher = *attacher,
				 .hit_ns = hit_ns,
				 .after_ns = MIN(beyond(longer_ns, hit_ns), AFTER_MAX * hit_ns),
				 .pid_level = skel->bss->test_level,
				 .pid_ns = skel->bss->test_ns};
	return 0;
}

/* 0 or -errno; -EOPNOTSUPP: hits are missing. */
static int run_selftest(struct stepflame_bpf *skel, enum attach_backend backend, struct selftest *out)
{
	struct attacher attacher = {.backend = backend, .cookies_fd = bpf_map__fd(skel->maps.probe_cookies)};
	struct probe_list list = {.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
	uint64_t offset = 0;
	int fd = list.fd, err = fd < 0 ? -errno : 0;

	dl_iterate_phdr(find_target_offset, &offset);
	process__each_mapping(getpid(), find_own_file, &list);
	err = err ?: probe_list__add(&list, offset, COOKIE(PROBE_TEST, 0, 0, 0)) ?: test_probe(skel, &attacher, &list, out);
	probe_list__release(&list);
	if (fd >= 0)
		close(fd);
	return err;
}

/* ---- the load ---- */

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
		err = run_selftest(skel, backend, selftest);
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
	if (err == -EINVAL &&
	    CAPABILITIES_FOR_PROGRAMS & ~capabilities__held()) /* the verifier does not know all helpers then */
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

bool programs__name_kernel(struct stepflame_bpf *skel, struct kernel_name *name)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = name, .ctx_size_in = sizeof(*name));

	return !bpf_prog_test_run_opts(bpf_program__fd(skel->progs.name_kernel), &opts) && name->text[0] != '0';
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
	uint64_t held = capabilities__held();
	static char why[160];
	char missing[64];

	if (capabilities__in_user_namespace())
		return "may not load BPF programs: in a user namespace no capability allows that";
	if (CAPABILITIES_FOR_PROGRAMS & ~held) {
		snprintf(why, sizeof(why), "may not load BPF programs: %s missing",
			 capabilities__names(CAPABILITIES_FOR_PROGRAMS & ~held, missing, sizeof(missing)));
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
