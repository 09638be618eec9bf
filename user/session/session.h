/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A recording in progress: it loads the BPF programs, attaches probes to the targets and hands
 * records to a sink as they come. One thread owns it. Freeing it, or the death of stepflame, leaves
 * the targets as they were.
 */
#ifndef STEPFLAME_USER_SESSION_SESSION_H
#define STEPFLAME_USER_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/records.h"

struct session;

enum session_children { CHILDREN_ALL, CHILDREN_WORKERS, CHILDREN_NONE };

/* The source of CUDA and NCCL calls and of GPU activity. */
enum session_gpu { SESSION_GPU_OFF, SESSION_GPU_AUTO, SESSION_GPU_UPROBE, SESSION_GPU_CUPTI };

struct session_options {
	const char *const *actions; /* --action LIB:SYMBOL or FILE.py:QUALNAME, as given */
	size_t action_cnt;
	const char *step_at; /* --step-at NAME; NULL: none */
	const char *opt_out; /* children started with this variable at 0 are left out; NULL: none */
	uint64_t steps;      /* stop after this many steps; 0: no limit */
	enum session_children children;
	bool exact;         /* count every call of a Python function */
	bool exact_force;   /* also where deep recursion would raise RecursionError */
	bool ops;           /* record operators and autograd nodes; the next five apply to these */
	bool shapes;        /* group by the shapes of the inputs */
	bool stacks;        /* group by the calling line */
	bool modules;       /* group by the calling module */
	bool memory;        /* record allocations */
	bool timeline;      /* emit each span */
	uint32_t frequency; /* samples per second; 0: no samples */
	bool syscalls;      /* system calls, and the files that they read and write */
	enum session_gpu gpu;
	bool gpu_windows;     /* record GPU activity only in the windows of the schedule */
	bool usage;           /* record usage of the host's GPUs, also with gpu off */
	bool usage_of_users;  /* the same, but only once a target has CUDA's driver mapped */
	bool inject;          /* inject the library for GPU activity into attached processes */
	bool step_times;      /* each step boundary, also without samples */
	double budget;        /* what a process may pay, of the time of a thread: 0.01; 0: any */
	uint64_t snapshot_ns; /* longest time between snapshots; 0: a quarter of an hour */
	/* For a live view: interval of snapshots, which include waits in progress; 0: no view. */
	uint64_t live_ns;
	/* torch.profiler.schedule, by enum op_schedule_word; active 0: no schedule. */
	uint64_t schedule[5];
};

/*
 * Takes one record, which the session still owns; NULL after each snapshot, when the sink should
 * flush to the file. 0 or -errno, which session__poll and session__finish return.
 */
typedef int (*session_sink)(const struct rec_hdr *record, void *ctx);

struct session_progress {
	uint64_t now_ns;     /* CLOCK_MONOTONIC */
	uint64_t elapsed_ns; /* since the window opened; 0 before */
	uint64_t steps;
	uint64_t calls; /* spans counted so far, at the last snapshot */
	uint64_t lost;  /* sum of the counters of losses */
	bool alive;     /* at least one target still runs */
	bool done;      /* every target has finished its steps */
};

/* Does an --action name a Python function? */
bool session__is_python_action(const char *text);

/*
 * Loads the programs and runs the self-test. 0 or -errno, after a message with the fix: -EPERM: no
 * permission; -ENOMEM; -EOPNOTSUPP: the kernel lacks support. Free with session__free.
 */
int session__new(const struct session_options *options, session_sink sink, void *ctx, struct session **out);
void session__free(struct session *s); /* accepts NULL */

/*
 * Attaches to a live process. 0 or -errno, after a message: -ESRCH: no such process; -EPERM: not
 * ours; -EOPNOTSUPP: not a supported Python with torch (any process will do if an --action can be
 * timed in it); -EEXIST: already attached. group: processes of one number rest together, for the
 * budget. may_end: that it is no longer there (-ESRCH) is no error,
 * and the session can go on without it.
 */
int session__attach(struct session *s, pid_t pid, uint32_t group, bool may_end);

/*
 * Follows a process before its exec: the session attaches probes as the process maps libraries. 0
 * or -errno.
 */
int session__follow(struct session *s, pid_t pid);

/*
 * Leaves the processes of a group alone, those too that it gets later: no probe and no sample, until
 * session__resume. The recording says so as of a rest of --budget. 0 or -ENOMEM.
 */
int session__pause(struct session *s, uint32_t group);
void session__resume(struct session *s, uint32_t group); /* does nothing if it is not paused */

/*
 * Opens the windows: BPF counts spans from now on. Call once, after attaching the targets. 0 or
 * -errno.
 */
int session__open(struct session *s);

/*
 * Waits up to timeout_ms for records, passes them to the sink, handles forks and exits. 0 or -errno
 * of the sink.
 */
int session__poll(struct session *s, int timeout_ms);
void session__progress(const struct session *s, struct session_progress *out);
/*
 * Takes a snapshot now, with the elapsed part of the waits that are in progress, so that what the
 * sink has so far tells of this moment. 0 or -errno of the sink.
 */
int session__snapshot(struct session *s);

/* Makes BPF emit stacks and paths again, for a sink that has dropped them (job__forget_stacks). */
void session__resend_stacks(struct session *s);

/* Puts a message for the reader of the reports into the recording. */
void session__note(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Closes the windows, detaches, and hands the final aggregates, counters and costs to the sink. 0
 * or -errno of the sink; -ENOENT, after a message: no span had the name in --step-at.
 */
int session__finish(struct session *s);

/*
 * Messages of `record` and `doctor` for a Python (pid, version) without torch and JAX: without
 * samples, and with.
 */
#define NO_FRAMEWORK     "process %d is Python %s but has no torch and no JAX"
#define NO_FRAMEWORK_YET NO_FRAMEWORK " (yet): stepflame records samples of it, but no actions"
#define NO_FRAMEWORK_FIX "wait until it has imported torch or JAX, or start it with: stepflame record -- CMD"

#endif
