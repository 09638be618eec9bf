// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/proc/proc_usage.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "user/lib/saturating.h"
#include "user/proc/deputy.h"
#include "user/proc/pagemap.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"
#include "user/proc/target_file.h"

#define STAT_BYTES    2048 /* 52 numbers and a name */
#define STATM_BYTES   256
#define IO_BYTES      1024
#define MACHINE_BYTES 4096 /* more than is parsed of the files of the machine */

/* ---- parsers ---- */

static uint64_t times(uint64_t number, uint64_t unit)
{
	uint64_t product;

	return __builtin_mul_overflow(number, unit, &product) ? UINT64_MAX : product;
}

/* "SIZE RESIDENT SHARED ...", in pages. */
int proc_usage__parse_statm(const char *text, size_t page_bytes, uint64_t *rss_bytes, uint64_t *shared_bytes)
{
	uint64_t size, rss, shared;

	text = proc__parse_number(text, &size);
	text = text ? proc__parse_number(text, &rss) : NULL;
	text = text ? proc__parse_number(text, &shared) : NULL;
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
			at = proc__parse_number(at, &numbers[cnt]);
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
	err = proc__parse_value(text, "read_bytes", &out->read_bytes)
		      ?: proc__parse_value(text, "write_bytes", &out->written_bytes);
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
	err = proc__parse_value(text, "VmSwap", bytes);
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
		text = proc__parse_number(text, &ticks[i]);
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
	err = proc__parse_value(text, "MemTotal", &out->memory_bytes)
		      ?: proc__parse_value(text, "MemAvailable", &out->available_bytes);
	proc__parse_value(text, "SwapTotal", &out->swap_bytes);
	proc__parse_value(text, "SwapFree", &out->swap_free_bytes);
	free(text);
	return err ?: read_cpu(out);
}

/* ---- pages that a child has copied: the kernel takes a lock of the process for each read, so the deputy reads ---- */

#define RANGES_MAX 4096
#define TRIED_MAX  1000 /* addresses; those that it shares are kept */
#define TRIED_EACH 6    /* for each that may be kept */
#define LEAST      8
#define PAGE_IS    (PAGE_IN_MEMORY | PAGE_OF_FILE | PAGE_EXCLUSIVE)

struct pages_question {
	pid_t pid;
	uint32_t cnt;
	uint64_t addresses[TRIED_MAX];
};
_Static_assert(sizeof(struct pages_question) <= DEPUTY_IN_BYTES, "more than the deputy takes");

/* Writes the word of each page; 0 where there is none. */
static int read_pages_in_deputy(const void *in, struct deputy_out *out)
{
	const struct pages_question *question = in;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", question->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (uint32_t i = 0; i < question->cnt; i++) {
		uint64_t word = 0;

		if (pread(fd, &word, sizeof(word), (off_t)(question->addresses[i] / PAGE * sizeof(word))) !=
		    sizeof(word))
			word = 0;
		memcpy(out->bytes + i * sizeof(word), &word, sizeof(word));
	}
	out->size = question->cnt * sizeof(uint64_t);
	close(fd);
	return 0;
}

/* The words of the pages of a question, valid until the next one. 0 or -errno. */
static int ask(const struct pages_question *question, const struct deputy_out **out)
{
	int err = deputy__run(question->pid, read_pages_in_deputy, question, sizeof(*question), out);

	return err ?: (*out)->size == question->cnt * sizeof(uint64_t) ? 0 : -EIO;
}

static uint64_t word_of(const struct deputy_out *answer, size_t i)
{
	uint64_t word;

	memcpy(&word, answer->bytes + i * sizeof(word), sizeof(word));
	return word;
}

/* Memory of its own, not of files, and not what is only reserved: more than the machine has. */
struct ranges {
	uint64_t most_pages; /* of one */
	struct {
		uint64_t start, pages;
	} items[RANGES_MAX];
	size_t cnt;
	uint64_t pages;
};

static int add_range(const struct mapping *map, void *ctx)
{
	struct ranges *ranges = ctx;
	uint64_t pages = map->end > map->start ? (map->end - map->start) / PAGE : 0;

	if (!map->writable || map->shared || map->inode || !pages || pages > ranges->most_pages ||
	    ranges->cnt == RANGES_MAX)
		return 0;
	ranges->items[ranges->cnt].start = map->start;
	ranges->items[ranges->cnt].pages = pages;
	ranges->pages = saturating__add(ranges->pages, ranges->items[ranges->cnt++].pages);
	return 0;
}

/* So many addresses, one in each of equally long parts of all ranges. */
static void spread(const struct ranges *ranges, size_t tried, struct pages_question *question)
{
	uint64_t part = ranges->pages / tried, before = 0, chance = (uint64_t)question->pid;
	size_t range = 0;

	for (uint64_t i = 0; i < tried; i++) {
		uint64_t page;

		chance = chance * 6364136223846793005ULL + 1442695040888963407ULL;
		page = i * part + (chance >> 33) % part;
		while (page - before >= ranges->items[range].pages)
			before += ranges->items[range++].pages;
		question->addresses[question->cnt++] = ranges->items[range].start + (page - before) * PAGE;
	}
}

int shared_pages__choose(pid_t pid, size_t most, struct shared_pages *out)
{
	static struct ranges ranges; /* 64 KiB */
	struct pages_question question = {.pid = pid};
	const struct deputy_out *answer;
	size_t shared = 0, tried;
	int err;

	*out = (struct shared_pages){0};
	most = most < SHARED_PAGES_MAX ? most : SHARED_PAGES_MAX;
	tried = most * TRIED_EACH < TRIED_MAX ? most * TRIED_EACH : TRIED_MAX;
	ranges.cnt = ranges.pages = 0;
	ranges.most_pages = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / PAGE;
	err = process__each_mapping(pid, add_range, &ranges);
	if (err || ranges.pages < TRIED_MAX)
		return err;
	spread(&ranges, tried, &question);
	err = ask(&question, &answer);
	for (size_t i = 0; !err && i < question.cnt; i++)
		if ((word_of(answer, i) & PAGE_IS) == PAGE_IN_MEMORY)
			question.addresses[shared++] = question.addresses[i];
	if (err || shared < LEAST)
		return err;
	out->cnt = shared < most ? shared : most;
	for (size_t i = 0; i < out->cnt; i++)
		out->addresses[i] = question.addresses[i * shared / out->cnt];
	out->each_bytes = ranges.pages / tried * PAGE * shared / out->cnt;
	return 0;
}

int shared_pages__copied(pid_t pid, const struct shared_pages *pages, size_t *copied)
{
	struct pages_question question = {.pid = pid, .cnt = pages->cnt};
	const struct deputy_out *answer;
	int err;

	memcpy(question.addresses, pages->addresses, pages->cnt * sizeof(*pages->addresses));
	err = ask(&question, &answer);
	*copied = 0;
	for (size_t i = 0; !err && i < pages->cnt; i++)
		*copied += (word_of(answer, i) & PAGE_IS) == (PAGE_IN_MEMORY | PAGE_EXCLUSIVE);
	return err;
}

/* ---- shared memory: whoever owns the process chooses what is mounted there, so the deputy looks ---- */

static int read_shm_in_deputy(const void *in, struct deputy_out *out)
{
	const pid_t *pid = in;
	int at = target_file__of(*pid, "dev/shm", O_DIRECTORY), err;
	struct shm_space space;
	struct statvfs fs;

	if (at < 0)
		return at;
	err = fstatvfs(at, &fs) ? -errno : 0;
	close(at);
	if (err)
		return err;
	space = (struct shm_space){(uint64_t)fs.f_blocks * fs.f_frsize, (uint64_t)fs.f_bavail * fs.f_frsize};
	memcpy(out->bytes, &space, sizeof(space));
	out->size = sizeof(space);
	return 0;
}

int shm__space(pid_t pid, struct shm_space *out)
{
	const struct deputy_out *answer;
	int err = deputy__run(pid, read_shm_in_deputy, &pid, sizeof(pid), &answer);

	if (!err)
		memcpy(out, answer->bytes, sizeof(*out));
	return err;
}
