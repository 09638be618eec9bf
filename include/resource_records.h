/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records of what processes and their machine use, of /proc, of what they may pay, and of their jobs: as in records.h. */
#ifndef STEPFLAME_INCLUDE_RESOURCE_RECORDS_H
#define STEPFLAME_INCLUDE_RESOURCE_RECORDS_H

#include "include/records.h"

enum resource_known {
	RESOURCES_MEMORY = 1, /* rss_bytes and shared_bytes; not of a process that has ended */
	RESOURCES_SWAP = 2,
	RESOURCES_DISK = 4,
	RESOURCES_NET = 8,
	RESOURCES_LEFT = 16,        /* left_bytes: of some records only */
	RESOURCES_LEFT_CGROUP = 32, /* left_bytes is what the limit of its cgroup leaves; else: the machine */
};

/* Times, faults and bytes are sums since the process began (network: its namespace). */
struct rec_resources {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u32 pid;
	__u32 known;              /* enum resource_known */
	__u64 user_ns, system_ns; /* CPU time of all its threads */
	__u64 minor_faults, major_faults;
	__u64 rss_bytes, shared_bytes, swap_bytes; /* shared: the part of rss that is of files or shared memory */
	__u64 read_bytes, written_bytes;           /* from and to disks */
	__u64 received_bytes, sent_bytes;          /* of all interfaces of its network namespace, loopback too */
	__u64 left_bytes;                          /* memory that can still be allocated */
};

/* The machine, at a look at its processes. CPU times are sums of all processors since it was started. */
struct rec_machine {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u32 pid; /* a process on it: tells machines apart in a merged recording */
	__u32 processors;
	__u64 busy_ns, idle_ns; /* idle: also what waits for a disk alone */
	__u64 memory_bytes, available_bytes;
	__u64 swap_bytes, swap_free_bytes;
};

/* What the cgroups of a process, and its affinity, limit: again where that has changed. */
struct rec_limits {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 processors;   /* on which it may run; 0: not known */
	__u64 memory_bytes; /* 0: no limit */
	__u64 milli_cpus;   /* CPU time a second that a quota gives, in ms; 0: no quota */
};

/* Of a cgroup with a quota, one in which a process is: counts since that was made. */
struct rec_throttle {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u32 pid;
	__u32 above;              /* how many levels above the process's own cgroup */
	__u64 group;              /* tells it from others */
	__u64 milli_cpus;         /* CPU time a second that the quota gives, in ms */
	__u64 periods, throttled; /* in which it had something to run; and used its quota up */
	__u64 throttled_ns;       /* how long it was used up, of all CPUs together */
};

/*
 * Of pages that a forked process shared with others when it was first looked at, a sample of those
 * that can be written: how many of them are its own by now. Those that it shares cost no memory.
 */
struct rec_copied {
	struct rec_hdr hdr;
	__u64 time_ns;
	__u32 pid;
	__u32 pages, copied; /* copied: of the sampled pages */
	__u32 pad;
	__u64 each_bytes; /* for how much memory each page stands */
};

enum shortage_known { SHORTAGE_CGROUP = 1, SHORTAGE_MACHINE = 2, SHORTAGE_SHM = 4 };

/* What was short when a process ended: where something was. */
struct rec_shortage {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 known;                     /* enum shortage_known: what follows */
	__u64 cgroup_kills;              /* processes of its cgroup that the kernel killed for want of memory, */
	__u64 machine_kills;             /* and of the machine, since the recording first saw it */
	__u64 shm_bytes, shm_free_bytes; /* of /dev/shm, as it or its parent sees it */
};

/*
 * The rests of a process: times without probes and samples, so that it pays no more than its budget,
 * or because somebody has paused it. One record as it begins, and again when it is over.
 */
struct rec_rest {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 cnt;           /* rests so far, this one included; 0: only says what the budget is */
	__u64 before_ns;     /* the sum of the rests before this one */
	__u64 from_ns;       /* this one */
	__u64 to_ns;         /* 0: it goes on */
	__u32 budget_micros; /* what it may pay, in microseconds a second of a thread; 0: any */
	__u32 pad;
};

/* The window of the recording of which merge has taken a main process; that of the merged one may be longer. */
struct rec_recorded {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 pad;
	__u64 from_ns;
	__u64 to_ns;
};

/*
 * How much longer the steps of a process take while it is recorded, measured against its rests of
 * --budget (user/session/sources/ticks.h). Shares are in microseconds a second.
 */
struct rec_overhead {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 pairs;            /* of a window and a rest that were compared */
	__u32 accounted_micros; /* what its hits and samples say, in windows */
	__u32 measured_micros;  /* in windows; 0: not longer */
	__u32 error_micros;     /* of the latter: 95 of 100 times it is off by no more */
	__u32 rest_micros;      /* what its ticks say, in rests */
};

/* What started a job: by it, and by the number that it gave, tables know a job again. */
#define STEPFLAME_LAUNCHERS(X)  \
	X(NONE, "none")         \
	X(TORCHRUN, "torchrun") \
	X(SLURM, "slurm")       \
	X(MPI, "mpi")           \
	X(CONTAINER, "container")

enum launcher {
#define X(id, name) LAUNCHER_##id,
	STEPFLAME_LAUNCHERS(X)
#undef X
		LAUNCHER__COUNT,
};

#define JOB_UID_UNKNOWN 0xffffffffu

/* Which job a training process is of, by what it says itself. Texts are not 0-terminated when full. */
struct rec_job {
	struct rec_hdr hdr;
	__u32 pid;
	__u32 uid;                              /* JOB_UID_UNKNOWN: not known */
	__u64 since_ns;                         /* from when on it is recorded */
	__u32 launcher;                         /* enum launcher */
	__s32 local_rank, world_size, restarts; /* -1: not known */
	char name[64];                          /* by which --job takes it; "": it has none */
	char id[64];                            /* of its launcher: run, job, namespace or container */
	char meets[80];                         /* "ADDRESS PORT" where its ranks meet; "": not said */
	char cgroup[192];
};

#endif
