// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/export/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "user/lib/compare.h"

#define FILES_MAX  512
#define HEAD_BYTES 16384 /* of a trace, unpacked: its rank stands before its events */
#define RANK_KEY   "\"distributedInfo\": {\"rank\": "

static int by_pid(const void *a, const void *b)
{
	const struct export_rank *x = a, *y = b;

	return COMPARE(x->pid, y->pid);
}

static bool is_taken(const struct export_ranks *ranks, int rank)
{
	for (size_t i = 0; i < ranks->cnt; i++)
		if (ranks->items[i].rank == rank)
			return true;
	return false;
}

static void give_numbers(struct export_ranks *ranks)
{
	int next = 0;

	for (size_t i = 0; i < ranks->cnt; i++) {
		struct export_rank *item = &ranks->items[i];

		if (item->rank >= 0)
			continue;
		while (is_taken(ranks, next))
			next++;
		item->rank = next;
		item->given = ranks->any_given = true;
	}
}

int export_ranks__find(const struct job *job, struct export_ranks *out)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	*out = (struct export_ranks){.items = calloc(cnt + 1, sizeof(*out->items))};
	if (!out->items)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		if (job__is_main(job, targets[i].pid))
			out->items[out->cnt++] = (struct export_rank){targets[i].pid, targets[i].rank, false};
	qsort(out->items, out->cnt, sizeof(*out->items), by_pid);
	if (out->cnt > 1)
		give_numbers(out);
	return 0;
}

void export_ranks__release(struct export_ranks *ranks)
{
	free(ranks->items);
	*ranks = (struct export_ranks){0};
}

int export_ranks__of(const struct export_ranks *ranks, uint32_t pid)
{
	const struct export_rank key = {.pid = pid}, *found;

	found = ranks->cnt ? bsearch(&key, ranks->items, ranks->cnt, sizeof(key), by_pid) : NULL;
	return found ? found->rank : -1;
}

/* ---- other traces ---- */

/* Takes fd. -1: it has none, or is no trace. */
static int rank_of_trace(int fd)
{
	char head[HEAD_BYTES];
	struct stat st;
	const char *at;
	gzFile file;
	int size, rank = -1;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return -1;
	}
	file = gzdopen(fd, "rb"); /* also what is not compressed */
	if (!file) {
		close(fd);
		return -1;
	}
	size = gzread(file, head, sizeof(head) - 1);
	head[size < 0 ? 0 : size] = 0;
	at = strstr(head, RANK_KEY);
	if (at && sscanf(at + strlen(RANK_KEY), "%9d", &rank) != 1)
		rank = -1;
	gzclose(file);
	return rank;
}

static bool is_of_rank(int folder, const char *name, int rank)
{
	int fd;

	if (!compare__ends_with(name, ".json") && !compare__ends_with(name, ".json.gz"))
		return false;
	fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd >= 0 && rank_of_trace(fd) == rank;
}

char *export_ranks__other_trace(const char *path, int rank)
{
	const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
	char *folder = slash ? strndup(path, slash - path + 1) : strdup("."), *found = NULL;
	DIR *dir = folder ? opendir(folder) : NULL;
	struct dirent *entry;
	int left = FILES_MAX;

	while (dir && !found && left-- > 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, own) != 0 && is_of_rank(dirfd(dir), entry->d_name, rank))
			found = strdup(entry->d_name);
	if (dir)
		closedir(dir);
	free(folder);
	return found;
}
