// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/capabilities.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS _LINUX_CAPABILITY_U32S_3

static const struct {
	int number;
	const char *name;
} names[] = {
	{CAP_BPF, "CAP_BPF"},
	{CAP_PERFMON, "CAP_PERFMON"},
	{CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
	{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
	{CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
	{CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE"},
	{CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
};

static void get_capabilities(struct __user_cap_data_struct data[WORDS])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	memset(data, 0, WORDS * sizeof(*data));
	syscall(SYS_capget, &header, data);
}

static void set_capabilities(const struct __user_cap_data_struct data[WORDS])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	syscall(SYS_capset, &header, data);
}

static uint64_t effective(const struct __user_cap_data_struct data[WORDS])
{
	return data[0].effective | (uint64_t)data[1].effective << 32;
}

static void change_effective(struct __user_cap_data_struct data[WORDS], uint64_t set)
{
	data[0].effective = set;
	data[1].effective = set >> 32;
	set_capabilities(data);
}

uint64_t capabilities__held(void)
{
	struct __user_cap_data_struct data[WORDS];
	uint64_t held;

	get_capabilities(data);
	held = effective(data);
	if (held & CAPABILITY(CAP_SYS_ADMIN))
		held |= CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON) | CAPABILITY(CAP_CHECKPOINT_RESTORE);
	return held;
}

const char *capabilities__names(uint64_t set, char *text, size_t size)
{
	size_t used = 0;

	text[0] = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && used < size; i++)
		if (set & CAPABILITY(names[i].number))
			used += snprintf(text + used, size - used, "%s%s", used ? ", " : "", names[i].name);
	return text;
}

bool capabilities__of_program(void)
{
	return getauxval(AT_SECURE);
}

bool capabilities__in_user_namespace(void)
{
	unsigned int inside = 0, outside = 0, cnt = ~0U;
	FILE *map = fopen("/proc/self/uid_map", "re");
	bool first =
		!map || (fscanf(map, "%u %u %u", &inside, &outside, &cnt) == 3 && !inside && !outside && cnt == ~0U);

	if (map)
		fclose(map);
	return !first;
}

uint64_t capabilities__lower(uint64_t set)
{
	struct __user_cap_data_struct data[WORDS];
	uint64_t before;

	get_capabilities(data);
	before = effective(data);
	change_effective(data, before & ~set);
	return before & set;
}

void capabilities__raise(uint64_t set)
{
	struct __user_cap_data_struct data[WORDS];

	get_capabilities(data);
	change_effective(data, effective(data) | set);
}

/* Taking a capability out of the permitted ones takes it out of the ambient ones, too. */
void capabilities__drop(void)
{
	const struct __user_cap_data_struct none[WORDS] = {};

	set_capabilities(none);
}

/* ---- what settings of the kernel forbid to root, too ---- */

/* "none [integrity] confidentiality" */
enum lockdown lockdown__mode(void)
{
	FILE *file = fopen("/sys/kernel/security/lockdown", "re");
	char modes[64] = "";

	if (file) {
		if (!fgets(modes, sizeof(modes), file))
			modes[0] = 0;
		fclose(file);
	}
	if (strstr(modes, "[confidentiality]"))
		return LOCKDOWN_CONFIDENTIALITY;
	return strstr(modes, "[integrity]") ? LOCKDOWN_INTEGRITY : LOCKDOWN_NONE;
}

/* 0 where there is no such setting. */
static int setting(const char *path)
{
	FILE *file = fopen(path, "re");
	int value = 0;

	if (file) {
		if (fscanf(file, "%d", &value) != 1)
			value = 0;
		fclose(file);
	}
	return value;
}

bool perf_events__denied(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.exclude_kernel = 1,
	};
	int fd;

	if (setting("/proc/sys/kernel/perf_event_paranoid") <= 2)
		return false;
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM;
	close(fd);
	return false;
}

int yama__scope(void)
{
	return setting("/proc/sys/kernel/yama/ptrace_scope");
}
