/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Links that attach probes to one process: one uprobe_multi link per file, if the kernel has it and
 * filters it by process correctly; on older kernels one perf event per file, if tracefs is mounted;
 * else one perf uprobe per probe.
 */
#ifndef STEPFLAME_USER_SESSION_ATTACH_H
#define STEPFLAME_USER_SESSION_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "user/session/probe_list.h"

struct bpf_program;

/* The advice for users of ATTACH_PERF. */
#define PROBES_TOGETHER "mount -t tracefs tracefs /sys/kernel/tracing, or use Linux 6.10 or later"

enum attach_backend { ATTACH_MULTI, ATTACH_EVENTS, ATTACH_PERF };

/* How a session attaches probes. Set the first two fields and zero the rest. */
struct attacher {
	enum attach_backend backend;
	int cookies_fd;             /* for ATTACH_EVENTS: the map probe_cookies */
	uint32_t number, event_cnt; /* last list number in use; tracefs events created so far */
};

struct attachment; /* the links of one probe_list in one process */

/*
 * Attaches all of `list` to process pid: to every thread, but not to its children. 0 or -errno; on
 * error nothing stays attached. -EPERM; -ESRCH: the process has ended; -EINVAL: a bad offset;
 * -ENOENT (ATTACH_EVENTS): the process does not map the file. attachments__free detaches and
 * frees *out.
 */
int attachment__new(struct bpf_program *program, struct attacher *attacher, pid_t pid, struct probe_list *list,
		    struct attachment **out);

/*
 * Removes breakpoints at the places of `list` from all processes, except where a tracer that runs
 * uses them: when the last use of a place in a process ends, the kernel removes its breakpoint, also
 * one that a parent had at a fork, or an earlier tracer left. So this attaches the list where no code
 * can run into it, and detaches it. 0 or -errno; -EBUSY: this kernel cannot do that for a file that
 * stepflame itself maps.
 */
int attachment__clean(struct bpf_program *program, struct attacher *attacher, struct probe_list *list);

/*
 * Removes the list's entries from the map probe_cookies. The list must not be attached anywhere,
 * now or later.
 */
void attacher__forget(const struct attacher *attacher, struct probe_list *list);

/*
 * Detaches and frees attachments (NULL accepted), waits until that is done, and sets the caller's
 * array to NULLs. Many threads detach together, since each detach waits for the kernel: some 45 ms
 * for a uprobe_multi link, up to 150 ms for a perf link, and perf links detach one after the other.
 */
void attachments__free(struct attachment **attachments, size_t cnt);

/* ---- ATTACH_EVENTS ---- */

/* Is tracefs mounted at its usual place, and writable? */
bool trace_events__work(void);
/* Is it mounted there, and may this process not write to it? */
bool trace_events__denied(void);
/* Removes the events of processes that have ended. */
void trace_events__remove_stale(void);

#endif
