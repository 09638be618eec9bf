/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the cgroups of a process limit: its memory, its CPU time, its processors. In: /proc/PID/cgroup,
 * where cgroups are mounted, and their files: of version 1, of version 2, or of both beside each other.
 */
#ifndef STEPFLAME_USER_PROC_CGROUP_H
#define STEPFLAME_USER_PROC_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cgroup_limits {
	uint64_t memory_bytes;      /* the limit that leaves least, of this cgroup or one above; 0: none */
	uint64_t memory_left_bytes; /* what it leaves, with the page cache that the kernel can drop */
	double cpus;                /* the least CPU time a second that a quota gives; 0: none */
	uint32_t processors;        /* on which it may run, by the cpuset; 0: not known */
};

/* A look at some processes, which reads the mounts once, and the limits of the last cgroup. All zeros: a new one. */
struct cgroup_look {
	const char *root; /* the folder that has "proc" and the mounts, for tests; NULL: "/" */
	char *mounts, *cgroups;
	struct cgroup_limits limits;
};

#define CGROUP_QUOTAS_MAX 4

/* A cgroup with a quota of CPU time, that of a process or one above. */
struct cgroup_quota {
	char *file;          /* where the kernel counts how often the quota was used up; owned */
	uint64_t group;      /* tells it from others */
	uint32_t above;      /* how many levels above the cgroup of the process */
	uint32_t milli_cpus; /* CPU time a second that it gives, in ms */
};

/* Since the cgroup was made. */
struct cgroup_throttle {
	uint64_t periods, throttled; /* of the quota, in which it had something to run; used up in so many */
	uint64_t throttled_ns;       /* how long it was used up, of all CPUs together */
};

/* 0 or -errno; limits that cannot be read are none. */
int cgroup_look__limits(struct cgroup_look *look, pid_t pid, struct cgroup_limits *out);
void cgroup_look__release(struct cgroup_look *look);

/*
 * Finds the file in which the kernel counts the processes of this process's cgroup that it has killed
 * for want of memory, that of a limit or the machine's: as the look names it, malloc'ed. NULL: none.
 */
char *cgroup_look__kills_file(struct cgroup_look *look, pid_t pid);
/* What it counts. false: it is gone, or makes no sense. */
bool cgroup__kills(const char *file, uint64_t *out);

/* The cgroups with a quota, lowest first; the caller frees each with cgroup_quotas__release. Their number. */
size_t cgroup_look__quotas(struct cgroup_look *look, pid_t pid, struct cgroup_quota quotas[CGROUP_QUOTAS_MAX]);
void cgroup_quotas__release(struct cgroup_quota *quotas, size_t cnt);
/* false: its cgroup is gone, or the file makes no sense. */
bool cgroup_quota__throttle(const struct cgroup_quota *quota, struct cgroup_throttle *out);

#define CGROUP_FOLDER_BYTES 4096

/* The folder of a cgroup. */
struct cgroup_folder {
	char path[CGROUP_FOLDER_BYTES];
	size_t mount_bytes; /* of the path: where it is mounted; no folder above that is a cgroup */
	bool v1, above;     /* above: the process is in one below it */
};

/*
 * Finds the folder where a controller ("memory") limits a process. cgroups: its file /proc/PID/cgroup;
 * mounts: our /proc/self/mountinfo. 0, or -ENOENT: none that we can see.
 */
int cgroup_folder__find(const char *cgroups, const char *mounts, const char *controller, struct cgroup_folder *out);
/* How many processors a list "0-3,8" has; 0: it makes no sense. */
uint32_t cgroup__count_processors(const char *list);

#endif
