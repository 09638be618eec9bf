// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Whoever makes a cgroup chooses its name, and a container its mounts: paths that lead out of a mount are none. */
#include "user/proc/cgroup.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/lib/saturating.h"
#include "user/proc/proc.h"

#define MOUNTS_BYTES   (1u << 20)
#define CGROUPS_BYTES  65536
#define FILE_BYTES     8192
#define NO_LIMIT       (1ULL << 62) /* version 1 writes the largest number of pages */
#define PROCESSORS_MAX (1u << 20)
#define QUOTA_MAX      1e6 /* CPUs: more is no limit */

/* By version. */
static const struct {
	const char *limit, *used, *inactive, *active;
} memory_names[] = {
	{"memory.max", "memory.current", "inactive_file", "active_file"},
	{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"},
};

/* A file shorter than `most` bytes: one that is cut says something else. 0 or -errno. */
static int read_whole(const char *path, size_t most, char **out)
{
	size_t size;
	int err = proc__slurp_path(path, most, out, &size);

	if (err || size < most)
		return err;
	free(*out);
	*out = NULL;
	return -E2BIG;
}

/* ---- where the files are ---- */

/* Is the word in a list that commas part? */
static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, word, length) && (!at[length] || at[length] == ','))
			return true;
	}
	return false;
}

/* "ID:CONTROLLERS:PATH", of version 2 "0::PATH". A path may have any byte but a newline. */
static int find_path(const char *cgroups, const char *controller, char path[CGROUP_FOLDER_BYTES], bool *v1)
{
	int err = -ENOENT;

	for (const char *line = cgroups; line; line = strchr(line, '\n')) {
		const char *list, *colon;
		char names[256];
		bool unified;

		line += *line == '\n';
		list = line + strcspn(line, ":\n");
		colon = *list == ':' ? list + 1 + strcspn(list + 1, ":\n") : list;
		if (*colon != ':' || colon[1] != '/' || colon - list > (ptrdiff_t)sizeof(names))
			continue;
		snprintf(names, sizeof(names), "%.*s", (int)(colon - list - 1), list + 1);
		unified = !strncmp(line, "0::", 3);
		if (!unified && !has_word(names, controller))
			continue;
		*v1 = !unified;
		if (snprintf(path, CGROUP_FOLDER_BYTES, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1) >=
		    CGROUP_FOLDER_BYTES)
			return -ENAMETOOLONG;
		if (!unified) /* a controller has one hierarchy only */
			return 0;
		err = 0;
	}
	return err;
}

/*
 * "31 23 0:28 ROOT POINT rw,relatime shared:1 - cgroup cgroup rw,memory": ROOT is the cgroup that is
 * mounted, of a container often its own. Changes the line. Is that a mount of this path?
 */
static bool is_mount_of(char *line, const char *path, const char *controller, struct cgroup_folder *out)
{
	char *fields[6], *word = NULL, *kind, *options;
	size_t root_bytes;
	int length;

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		fields[i] = strsep(&line, " ");
	while ((word = strsep(&line, " ")) && strcmp(word, "-"))
		;
	kind = strsep(&line, " ");
	strsep(&line, " ");
	options = line;
	if (!options || strcmp(kind, out->v1 ? "cgroup" : "cgroup2") || (out->v1 && !has_word(options, controller)))
		return false;
	proc__unescape(fields[3]);
	proc__unescape(fields[4]);
	root_bytes = strcmp(fields[3], "/") ? strlen(fields[3]) : 0;
	if (strncmp(path, fields[3], root_bytes) || (path[root_bytes] && path[root_bytes] != '/'))
		return false;
	path += root_bytes;
	out->mount_bytes = strlen(fields[4]);
	length = snprintf(out->path, sizeof(out->path), "%s%s", fields[4], strcmp(path, "/") ? path : "");
	return length < (int)sizeof(out->path) && fields[4][0] == '/';
}

int cgroup_folder__find(const char *cgroups, const char *mounts, const char *controller, struct cgroup_folder *out)
{
	char path[CGROUP_FOLDER_BYTES];
	int err = find_path(cgroups, controller, path, &out->v1);
	bool found = false;

	out->above = false;
	/* the kernel shows ".." for what is outside of our cgroup namespace */
	if (err || proc__leads_up(path))
		return -ENOENT;
	for (const char *line = mounts; line && !found; line = strchr(line, '\n')) {
		char *copy;

		line += *line == '\n';
		copy = strndup(line, strcspn(line, "\n"));
		if (!copy)
			return -ENOMEM;
		found = strstr(copy, " - cgroup") && is_mount_of(copy, path, controller, out);
		free(copy);
	}
	return found ? 0 : -ENOENT;
}

/* ---- the files ---- */

/* The text of a file, malloc'ed. NULL: it cannot be read. */
static char *read_file(const struct cgroup_look *look, const char *folder, const char *name)
{
	char path[2 * CGROUP_FOLDER_BYTES], *text;
	int length = snprintf(path, sizeof(path), "%s%s/%s", look->root ?: "", folder, name);

	return length < (int)sizeof(path) && !read_whole(path, FILE_BYTES, &text) ? text : NULL;
}

/* false: the file has no number, as "max" and -1 are none. */
static bool read_number(const struct cgroup_look *look, const char *folder, const char *name, uint64_t *out)
{
	char *text = read_file(look, folder, name);
	bool is_number = text && proc__parse_number(text, out);

	free(text);
	return is_number;
}

/* Goes to the cgroup above. false: there is none. */
static bool go_up(struct cgroup_folder *folder)
{
	char *slash = strrchr(folder->path + folder->mount_bytes, '/');

	if (slash)
		*slash = 0;
	folder->above = true;
	return slash;
}

/* Of one cgroup. */
static void add_memory(const struct cgroup_look *look, const struct cgroup_folder *folder, struct cgroup_limits *out)
{
	uint64_t limit, used, left, inactive = 0, active = 0, counts;
	char *stat;

	/* before Linux 5.11, a cgroup of version 1 may not count those below it */
	if (folder->v1 && folder->above && read_number(look, folder->path, "memory.use_hierarchy", &counts) && !counts)
		return;
	if (!read_number(look, folder->path, memory_names[folder->v1].limit, &limit) || limit >= NO_LIMIT ||
	    !read_number(look, folder->path, memory_names[folder->v1].used, &used))
		return;
	stat = read_file(look, folder->path, "memory.stat");
	if (stat) {
		proc__parse_value(stat, memory_names[folder->v1].inactive, &inactive);
		proc__parse_value(stat, memory_names[folder->v1].active, &active);
		free(stat);
	}
	inactive = saturating__add(inactive, active);
	used = used > inactive ? used - inactive : 0;
	left = limit > used ? limit - used : 0;
	if (!out->memory_bytes || left < out->memory_left_bytes) {
		out->memory_bytes = limit;
		out->memory_left_bytes = left;
	}
}

/* CPU time a second. false: no quota. */
static bool read_quota(const struct cgroup_look *look, const struct cgroup_folder *folder, double *cpus)
{
	uint64_t quota = 0, period = 0;
	const char *rest;
	char *text;

	if (folder->v1) {
		if (!read_number(look, folder->path, "cpu.cfs_quota_us", &quota) ||
		    !read_number(look, folder->path, "cpu.cfs_period_us", &period))
			return false;
	} else {
		text = read_file(look, folder->path, "cpu.max"); /* "QUOTA PERIOD" */
		rest = text ? proc__parse_number(text, &quota) : NULL;
		rest = rest ? proc__parse_number(rest, &period) : NULL;
		free(text);
		if (!rest)
			return false;
	}
	*cpus = period ? (double)quota / period : 0;
	return period;
}

static void add_quota(const struct cgroup_look *look, const struct cgroup_folder *folder, struct cgroup_limits *out)
{
	double cpus;

	if (read_quota(look, folder, &cpus) && (!out->cpus || cpus < out->cpus))
		out->cpus = cpus;
}

uint32_t cgroup__count_processors(const char *list)
{
	uint64_t first, last, end = 0;
	uint32_t cnt = 0;

	for (;; list++) {
		if (!isdigit((unsigned char)*list))
			return 0;
		list = proc__parse_number(list, &first);
		last = first;
		if (*list == '-')
			list = proc__parse_number(list + 1, &last);
		if (!list || first < end || last < first || last >= PROCESSORS_MAX)
			return 0;
		cnt += last - first + 1;
		end = last + 1;
		if (*list != ',')
			return !*list || *list == '\n' ? cnt : 0;
	}
}

/* What a cgroup really has is less than what all above it have. */
static void add_processors(const struct cgroup_look *look, const struct cgroup_folder *folder,
			   struct cgroup_limits *out)
{
	char *list;

	if (out->processors)
		return;
	list = read_file(look, folder->path, folder->v1 ? "cpuset.effective_cpus" : "cpuset.cpus.effective");
	out->processors = list ? cgroup__count_processors(list) : 0;
	free(list);
}

static const struct {
	const char *name;
	void (*add)(const struct cgroup_look *look, const struct cgroup_folder *folder, struct cgroup_limits *out);
} controllers[] = {
	{"memory", add_memory},
	{"cpu", add_quota},
	{"cpuset", add_processors},
};

/* Reads the mounts, where the look has not done so, and the cgroups of a process, malloc'ed. 0 or -errno. */
static int read_cgroups(struct cgroup_look *look, pid_t pid, char **cgroups)
{
	char path[512];
	int err = 0;

	snprintf(path, sizeof(path), "%s/proc/self/mountinfo", look->root ?: "");
	if (!look->mounts)
		err = read_whole(path, MOUNTS_BYTES, &look->mounts);
	snprintf(path, sizeof(path), "%s/proc/%d/cgroup", look->root ?: "", pid);
	return err ?: read_whole(path, CGROUPS_BYTES, cgroups);
}

char *cgroup_look__kills_file(struct cgroup_look *look, pid_t pid)
{
	struct cgroup_folder folder;
	char *cgroups, *file = NULL;

	if (read_cgroups(look, pid, &cgroups))
		return NULL;
	if (!cgroup_folder__find(cgroups, look->mounts, "memory", &folder) &&
	    asprintf(&file, "%s%s/%s", look->root ?: "", folder.path,
		     folder.v1 ? "memory.oom_control" : "memory.events") < 0)
		file = NULL;
	free(cgroups);
	return file;
}

bool cgroup__kills(const char *file, uint64_t *out)
{
	char *text;
	bool has;

	if (read_whole(file, FILE_BYTES, &text))
		return false;
	has = !proc__parse_value(text, "oom_kill", out);
	free(text);
	return has;
}

/* false: its quota, or how often that was used up, is not known. */
static bool set_quota(const struct cgroup_look *look, const struct cgroup_folder *folder, struct cgroup_quota *out)
{
	struct stat stat_of;
	double cpus;

	if (!read_quota(look, folder, &cpus) || cpus < 0.001 || cpus >= QUOTA_MAX ||
	    asprintf(&out->file, "%s%s/cpu.stat", look->root ?: "", folder->path) < 0)
		return false;
	if (stat(out->file, &stat_of)) {
		free(out->file);
		return false;
	}
	out->group = stat_of.st_ino;
	out->milli_cpus = cpus * 1000;
	return true;
}

size_t cgroup_look__quotas(struct cgroup_look *look, pid_t pid, struct cgroup_quota quotas[CGROUP_QUOTAS_MAX])
{
	struct cgroup_folder folder;
	uint32_t above = 0;
	char *cgroups;
	size_t cnt = 0;

	if (read_cgroups(look, pid, &cgroups))
		return 0;
	if (!cgroup_folder__find(cgroups, look->mounts, "cpu", &folder))
		do {
			quotas[cnt].above = above++;
			cnt += set_quota(look, &folder, &quotas[cnt]);
		} while (go_up(&folder) && cnt < CGROUP_QUOTAS_MAX);
	free(cgroups);
	return cnt;
}

void cgroup_quotas__release(struct cgroup_quota *quotas, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		free(quotas[i].file);
}

bool cgroup_quota__throttle(const struct cgroup_quota *quota, struct cgroup_throttle *out)
{
	uint64_t us = 0;
	char *text;
	bool has;

	if (read_whole(quota->file, FILE_BYTES, &text))
		return false;
	has = !proc__parse_value(text, "nr_periods", &out->periods) &&
	      !proc__parse_value(text, "nr_throttled", &out->throttled);
	/* version 2 has microseconds, version 1 nanoseconds */
	if (!proc__parse_value(text, "throttled_usec", &us))
		has = has && !__builtin_mul_overflow(us, 1000, &out->throttled_ns);
	else
		has = has && !proc__parse_value(text, "throttled_time", &out->throttled_ns);
	free(text);
	return has;
}

int cgroup_look__limits(struct cgroup_look *look, pid_t pid, struct cgroup_limits *out)
{
	struct cgroup_folder folder;
	char *cgroups;
	int err = read_cgroups(look, pid, &cgroups);

	if (err)
		return err;
	if (!look->cgroups || strcmp(look->cgroups, cgroups)) {
		look->limits = (struct cgroup_limits){0};
		for (size_t i = 0; i < sizeof(controllers) / sizeof(*controllers); i++) {
			if (cgroup_folder__find(cgroups, look->mounts, controllers[i].name, &folder))
				continue;
			do
				controllers[i].add(look, &folder, &look->limits);
			while (go_up(&folder));
		}
		free(look->cgroups);
		look->cgroups = cgroups;
	} else {
		free(cgroups);
	}
	*out = look->limits;
	return 0;
}

void cgroup_look__release(struct cgroup_look *look)
{
	free(look->mounts);
	free(look->cgroups);
	look->mounts = look->cgroups = NULL;
}
