// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What restricts stepflame on this machine: rights of the process, and settings of the kernel. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "user/cmd/doctor.h"
#include "user/lib/capabilities.h"
#include "user/lib/restrictions.h"

#define FOR_PROGRAMS (CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON))
#define AS_ROOT      "run it as root (sudo), or with the capabilities that docs/safety.md lists"

/* The first line of a file: "" if it cannot be read. */
static void read_line(const char *path, char *line, int size)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(line, size, file))
		line[0] = 0;
	line[strcspn(line, "\n")] = 0;
	if (file)
		fclose(file);
}

static void check_capabilities(struct doctor *d, uint64_t held)
{
	const uint64_t needed = FOR_PROGRAMS | CAPABILITY(CAP_SYS_PTRACE);
	char missing[80], all[160];

	capabilities__names(needed & ~held, missing, sizeof(missing));
	capabilities__names(held, all, sizeof(all));
	if (FOR_PROGRAMS & ~held)
		doctor__add(d, "capabilities", FAIL, AS_ROOT, "%s missing: no recording", missing);
	else if (capabilities__of_program())
		doctor__add(d, "capabilities", OK, NULL, "%s, of the program's file: for your own processes only", all);
	else if (needed & ~held)
		doctor__add(d, "capabilities", WARN, AS_ROOT, "%s missing: your own processes only", missing);
	else
		doctor__add(d, "capabilities", OK, NULL, "%s", all);
}

static void check_user_namespace(struct doctor *d)
{
	if (capabilities__in_user_namespace())
		doctor__add(d, "user namespace", FAIL,
			    "run it outside of the user namespace: on the host, or in a container without one",
			    "not the first one: no capability in it allows BPF");
	else
		doctor__add(d, "user namespace", OK, NULL, "the first one");
}

static void check_lockdown(struct doctor *d)
{
	enum lockdown mode = lockdown__mode();

	if (mode == LOCKDOWN_CONFIDENTIALITY)
		doctor__add(d, "lockdown", FAIL, "boot with lockdown=integrity or lockdown=none",
			    "confidentiality: BPF programs may not read memory");
	else
		doctor__add(d, "lockdown", OK, NULL, "%s",
			    mode == LOCKDOWN_INTEGRITY ? "integrity: does not restrict stepflame" : "none");
}

static void check_yama(struct doctor *d)
{
	int scope = yama__scope();

	if (scope >= YAMA_NOBODY)
		doctor__add(d, "Yama", FAIL, YAMA_FIX, "%d: nobody may read the memory of another process", scope);
	else if (scope && !(capabilities__held() & CAPABILITY(CAP_SYS_PTRACE)))
		doctor__add(d, "Yama", WARN, AS_ROOT, "%d: processes are readable only with CAP_SYS_PTRACE", scope);
	else
		doctor__add(d, "Yama", OK, NULL, "%d: does not restrict stepflame", scope);
}

static void check_selinux(struct doctor *d)
{
	char enforcing[8];

	read_line("/sys/fs/selinux/enforce", enforcing, sizeof(enforcing));
	if (enforcing[0] == '1')
		doctor__add(d, "SELinux", WARN,
			    "if something is denied, look for it with `ausearch -m avc -ts recent`, and allow it in "
			    "the policy "
			    "of the domain that runs stepflame (classes bpf, perf_event, process ptrace)",
			    "enforcing: its policy may deny what the capabilities allow");
	else
		doctor__add(d, "SELinux", OK, NULL, enforcing[0] ? "permissive: denies nothing" : "not enabled");
}

static void check_settings(struct doctor *d, uint64_t held)
{
	static const struct {
		const char *name, *path;
		uint64_t capability;
	} settings[] = {
		{"perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid", CAPABILITY(CAP_PERFMON)},
		{"unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled", CAPABILITY(CAP_BPF)},
	};
	char value[16], name[32];

	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		read_line(settings[i].path, value, sizeof(value));
		capabilities__names(settings[i].capability, name, sizeof(name));
		if (held & settings[i].capability)
			doctor__add(d, settings[i].name, OK, NULL, "%s: does not matter with %s", value, name);
		else
			doctor__add(d, settings[i].name, WARN, AS_ROOT,
				    "%s: stepflame needs %s, whatever this value is", value, name);
	}
}

/* Has a function of the kernel an address? Functions that this process may not see have the address 0. */
static bool sees_kernel_symbols(void)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	unsigned long long address = 0;
	char type = 0;

	/* Before the functions there are variables of each processor, at small addresses from 0 on. */
	while (file && fscanf(file, "%llx %c%*[^\n]", &address, &type) == 2 && tolower(type) != 't')
		;
	if (file)
		fclose(file);
	return address && tolower(type) == 't';
}

static void check_kernel_symbols(struct doctor *d)
{
	char value[16];

	read_line("/proc/sys/kernel/kptr_restrict", value, sizeof(value));
	if (sees_kernel_symbols())
		doctor__add(d, "kptr_restrict", OK, NULL, "%s: the kernel's functions have names", value);
	else
		doctor__add(d, "kptr_restrict", WARN,
			    "set kernel.kptr_restrict to 0 or 1 by sysctl, and run it as root or with CAP_SYSLOG",
			    "%s: the kernel's functions have no names in stacks", value);
}

void doctor__check_rights(struct doctor *d)
{
	uint64_t held = capabilities__held();

	check_capabilities(d, held);
	check_user_namespace(d);
	check_lockdown(d);
	check_yama(d);
	check_selinux(d);
	check_settings(d, held);
	check_kernel_symbols(d);
}
