// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The kernel takes a lock of the process for each read: so the deputy reads. */
#include "user/proc/shared_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "user/lib/saturating.h"
#include "user/proc/deputy.h"
#include "user/proc/pagemap.h"
#include "user/proc/process.h"

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
static int read_in_deputy(const void *in, struct deputy_out *out)
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
	int err = deputy__run(question->pid, read_in_deputy, question, sizeof(*question), out);

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
