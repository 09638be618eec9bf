/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A recording in progress: BPF programs loaded, probes attached to the targets, records handed to a sink as they come.
 * One thread owns it. Freeing it (or the death of the process) leaves the targets as they were.
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

/* From where calls of CUDA and NCCL, and what the GPU does, are known. */
enum session_gpu { SESSION_GPU_OFF, SESSION_GPU_AUTO, SESSION_GPU_UPROBE, SESSION_GPU_CUPTI };

struct session_options {
	const char *const *actions; /* --action LIB:SYMBOL or FILE.py:QUALNAME, as given */
	size_t action_cnt;
	const char *step_at; /* --step-at NAME; NULL: none */
	uint64_t steps;      /* stop after so many steps; 0: no */
	enum session_children children;
	bool exact;         /* every call of a Python function */
	bool exact_force;   /* also where deep recursion would raise RecursionError */
	bool ops;           /* operators and autograd nodes too, */
	bool shapes;        /* told apart by the shapes of what they were given, */
	bool stacks;        /* by the line that called them, */
	bool modules;       /* and the module that did, */
	bool memory;        /* with what they allocated, */
	bool timeline;      /* and each span by itself */
	uint32_t frequency; /* of samples, a second; 0: none */
	bool syscalls;      /* system calls, and the files that they read and write */
	enum session_gpu gpu;
	bool gpu_windows;     /* what the GPU does is told in the schedule's windows alone */
	bool usage;           /* how busy the host's GPUs are, also with gpu off */
	bool inject;          /* the library that tells what the GPU does is brought into those that are attached */
	uint64_t live_ns;     /* for a view: a snapshot so often, of waits that go on too; 0: no */
	uint64_t schedule[5]; /* torch.profiler.schedule, by enum op_schedule_word; active 0: always */
};

/*
 * Takes one record, which is the session's after the call; NULL after each snapshot, when what came should reach the
 * file. 0 or -errno, which session__poll and session__finish return.
 */
typedef int (*session_sink)(const struct rec_hdr *record, void *ctx);

struct session_progress {
	uint64_t elapsed_ns; /* since the window opened; 0 before */
	uint64_t steps;
	uint64_t calls; /* spans counted so far, at the last snapshot */
	uint64_t lost;  /* sum of the counters that stand for losses */
	bool alive;     /* a target still runs */
	bool done;      /* every target has made its steps */
};

/* Does an --action name a Python function? */
bool session__is_python_action(const char *text);

/*
 * Loads the programs and runs the self-test. 0 or -errno, after a message with its fix: -EPERM no permission,
 * -EOPNOTSUPP a kernel without what is needed. Free with session__free.
 */
int session__new(const struct session_options *options, session_sink sink, void *ctx, struct session **out);
void session__free(struct session *s); /* accepts NULL */

/*
 * Attaches to a live process. 0 or -errno, after a message: -ESRCH none such, -EPERM not ours, -EOPNOTSUPP not a Python
 * with torch that is supported (with an --action that can be timed in it any process does), -EEXIST attached already.
 */
int session__attach(struct session *s, pid_t pid);

/* Follows a process that is yet to exec: probes come as its libraries are mapped. 0 or -errno. */
int session__follow(struct session *s, pid_t pid);

/* Opens the windows: from now on spans count. Called once, after the targets are attached. 0 or -errno. */
int session__open(struct session *s);

/* Waits for records up to timeout_ms, hands them on, attends to children and exits. 0 or -errno of the sink. */
int session__poll(struct session *s, int timeout_ms);
void session__progress(const struct session *s, struct session_progress *out);

/* Stacks and paths will be told of again. For a sink that has forgotten them (job__forget_stacks). */
void session__resend_stacks(struct session *s);

/*
 * Closes the windows, detaches, and hands the final aggregates, counters and costs to the sink. 0 or -errno of the
 * sink; or -ENOENT, after a message: what --step-at names never came.
 */
int session__finish(struct session *s);

/* What `record` and `doctor` say of a Python, by pid and version, with neither torch nor JAX: without samples, and with. */
#define NO_FRAMEWORK     "process %d is Python %s but has no torch and no JAX"
#define NO_FRAMEWORK_YET NO_FRAMEWORK " (yet): stepflame records samples of it, but no actions"
#define NO_FRAMEWORK_FIX "wait until it has imported torch or JAX, or start it with: stepflame record -- CMD"

#endif
