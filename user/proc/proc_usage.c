// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/proc/proc_usage.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/lib/saturating.h"
#include "user/proc/proc.h"

#define STAT_BYTES    2048 /* 52 numbers and a name */
#define STATM_BYTES   256
#define IO_BYTES      1024
#define MACHINE_BYTES 4096 /* more than is parsed of the files of the machine */

/* ---- parsers ---- */

const char *proc_usage__parse_number(const char *text, uint64_t *out)
{
	char *end;

	while (*text == ' ' || *text == '\t')
		text++;
	if (!isdigit((unsigned char)*text))
		return NULL;
	*out = strtoull(text, &end, 10);
	return end;
}

static uint64_t times(uint64_t number, uint64_t unit)
{
	uint64_t product;

	return __builtin_mul_overflow(number, unit, &product) ? UINT64_MAX : product;
}

int proc_usage__parse_value(const char *text, const char *key, uint64_t *out)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		const char *value, *rest;
		uint64_t number;

		line += *line == '\n';
		value = line + length;
		if (strncmp(line, key, length) || (*value != ':' && *value != ' '))
			continue;
		rest = proc_usage__parse_number(value + 1, &number);
		if (!rest)
			return -EINVAL;
		*out = strncmp(rest, " kB", 3) ? number : times(number, 1024);
		return 0;
	}
	return -EINVAL;
}

/* "SIZE RESIDENT SHARED ...", in pages. */
int proc_usage__parse_statm(const char *text, size_t page_bytes, uint64_t *rss_bytes, uint64_t *shared_bytes)
{
	uint64_t size, rss, shared;

	text = proc_usage__parse_number(text, &size);
	text = text ? proc_usage__parse_number(text, &rss) : NULL;
	text = text ? proc_usage__parse_number(text, &shared) : NULL;
	if (!text)
		return -EINVAL;
	*rss_bytes = times(rss, page_bytes);
	*shared_bytes = times(shared, page_bytes);
	return 0;
}

/*
 * Two lines of heads, then for each interface "NAME: BYTES and seven numbers for what it received,
 * BYTES and seven for what it sent". A name has no space and no ':'.
 */
int proc_usage__parse_net(const char *text, uint64_t *received, uint64_t *sent)
{
	uint64_t in = 0, out = 0;
	bool is_net = false;

	for (const char *line = text; line; line = strchr(line, '\n')) {
		uint64_t numbers[9];
		const char *at;
		int cnt = 0;

		line += *line == '\n';
		at = line + strcspn(line, ":|\n");
		is_net = is_net || *at == '|';
		if (*at != ':')
			continue;
		for (at++; at && cnt < 9; cnt += at != NULL)
			at = proc_usage__parse_number(at, &numbers[cnt]);
		if (cnt < 9)
			return -EINVAL;
		in = saturating__add(in, numbers[0]);
		out = saturating__add(out, numbers[8]);
	}
	if (!is_net)
		return -EINVAL;
	*received = in;
	*sent = out;
	return 0;
}

/* ---- files of a process ---- */

/* Reads a file of a process that may be open already. Returns bytes, with a 0 behind, or -errno. */
static ssize_t read_file(pid_t pid, const char *name, int *kept, bool keep, char *data, size_t size)
{
	int fd = *kept - 1, err;
	char path[64];
	ssize_t got;

	if (fd < 0) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return errno == ENOENT ? -ESRCH : -errno;
	}
	do
		got = pread(fd, data, size - 1, 0);
	while (got < 0 && errno == EINTR);
	err = errno;
	if (keep)
		*kept = fd + 1;
	else
		close(fd);
	if (got < 0)
		return -err;
	data[got] = 0;
	return got;
}

/* By the deputy: the kernel waits for an exec of the process. */
static int read_disk(pid_t pid, struct proc_usage *out)
{
	char *text;
	size_t size;
	int err = proc__slurp_memory(pid, 0, "io", IO_BYTES, &text, &size);

	if (err)
		return err;
	err = proc_usage__parse_value(text, "read_bytes", &out->read_bytes)
		      ?: proc_usage__parse_value(text, "write_bytes", &out->written_bytes);
	free(text);
	return err;
}

int proc_usage__read(pid_t pid, struct proc_files *files, bool keep, struct proc_usage *out, uint64_t *failed)
{
	const uint64_t tick_ns = 1000000000ULL / sysconf(_SC_CLK_TCK);
	char data[STAT_BYTES];
	struct proc_stat stat;
	ssize_t got;
	int err;

	memset(out, 0, sizeof(*out));
	/* First what is found by the pid: if the open file is then still the process's, that was, too. */
	err = read_disk(pid, out);
	out->has_disk = !err;
	got = read_file(pid, "stat", &files->stat, keep, data, sizeof(data));
	if (got < 0)
		return got;
	if (proc_stat__parse(data, got, &stat))
		return -ESRCH;
	*failed += err && err != -ESRCH;
	out->ended = proc_stat__dead(&stat);
	out->start_time = stat.start_time;
	out->user_ns = times(stat.user_ticks, tick_ns);
	out->system_ns = times(stat.system_ticks, tick_ns);
	out->minor_faults = stat.minor_faults;
	out->major_faults = stat.major_faults;
	if (out->ended)
		return 0;
	got = read_file(pid, "statm", &files->statm, keep, data, STATM_BYTES);
	err = got < 0 ? (int)got
		      : proc_usage__parse_statm(data, sysconf(_SC_PAGESIZE), &out->rss_bytes, &out->shared_bytes);
	*failed += err && err != -ESRCH;
	out->has_memory = !err && out->rss_bytes; /* 0: it is ending, and has given its memory back */
	return 0;
}

void proc_files__close(struct proc_files *files)
{
	if (files->stat)
		close(files->stat - 1);
	if (files->statm)
		close(files->statm - 1);
	*files = (struct proc_files){0};
}

int proc_usage__swap(pid_t pid, uint64_t *bytes)
{
	char *text;
	size_t size;
	int err = proc__slurp(pid, 0, "status", &text, &size);

	if (err)
		return err;
	err = proc_usage__parse_value(text, "VmSwap", bytes);
	free(text);
	return err;
}

int proc_usage__network(pid_t pid, uint64_t *received, uint64_t *sent)
{
	char *text;
	size_t size;
	int err = proc__slurp(pid, 0, "net/dev", &text, &size);

	if (err)
		return err;
	err = proc_usage__parse_net(text, received, sent);
	free(text);
	return err;
}

/* ---- the machine ---- */

/* "cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL GUEST ...": the guests' time is in USER and NICE, too. */
int proc_usage__parse_cpu(const char *text, uint64_t *busy_ticks, uint64_t *idle_ticks)
{
	uint64_t ticks[8], busy = 0;

	if (strncmp(text, "cpu ", 4))
		return -EINVAL;
	text += 4;
	for (int i = 0; i < 8; i++) {
		text = proc_usage__parse_number(text, &ticks[i]);
		if (!text)
			return -EINVAL;
		if (i != 3 && i != 4)
			busy = saturating__add(busy, ticks[i]);
	}
	*busy_ticks = busy;
	*idle_ticks = saturating__add(ticks[3], ticks[4]);
	return 0;
}

static int read_cpu(struct machine_usage *out)
{
	const uint64_t tick_ns = 1000000000ULL / sysconf(_SC_CLK_TCK);
	char *text;
	size_t size;
	int err = proc__slurp_path("/proc/stat", MACHINE_BYTES, &text, &size);

	if (err)
		return err;
	err = proc_usage__parse_cpu(text, &out->busy_ns, &out->idle_ns);
	out->busy_ns = times(out->busy_ns, tick_ns);
	out->idle_ns = times(out->idle_ns, tick_ns);
	free(text);
	return err;
}

int proc_usage__machine(struct machine_usage *out)
{
	char *text;
	size_t size;
	int err = proc__slurp_path("/proc/meminfo", MACHINE_BYTES, &text, &size);

	*out = (struct machine_usage){0};
	if (err)
		return err;
	err = proc_usage__parse_value(text, "MemTotal", &out->memory_bytes)
		      ?: proc_usage__parse_value(text, "MemAvailable", &out->available_bytes);
	proc_usage__parse_value(text, "SwapTotal", &out->swap_bytes);
	proc_usage__parse_value(text, "SwapFree", &out->swap_free_bytes);
	free(text);
	return err ?: read_cpu(out);
}
