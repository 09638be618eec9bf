/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Links that hold probes in one process: one uprobe_multi link per file where the kernel has it (and filters it by
 * process rightly); below, one perf event for all of a file where tracefs is there, else perf uprobes, one each.
 */
#ifndef STEPFLAME_USER_SESSION_ATTACH_H
#define STEPFLAME_USER_SESSION_ATTACH_H

#include <stddef.h>
#include <sys/types.h>

#include "user/session/probe_list.h"

struct bpf_program;

/* What helps where it is ATTACH_PERF. */
#define PROBES_TOGETHER "mount -t tracefs tracefs /sys/kernel/tracing, or use Linux 6.10 or later"

enum attach_backend { ATTACH_MULTI, ATTACH_EVENTS, ATTACH_PERF };

/* How probes are attached. Begins with all else zeroed; one a session. */
struct attacher {
	enum attach_backend backend;
	int cookies_fd;             /* ATTACH_EVENTS: of the map probe_cookies */
	uint32_t number, event_cnt; /* the last that was given to a list; events so far */
};

struct attachment; /* the links of one probe_list in one process */

/*
 * Attaches all of `list` in process pid (every thread; not its children). 0 or -errno; on error nothing stays attached.
 * -EPERM, -ESRCH the process went away, -EINVAL a bad offset, -ENOENT (ATTACH_EVENTS) the file is not mapped there. Free
 * with attachment__free_all, which detaches.
 */
int attachment__new(struct bpf_program *program, struct attacher *attacher, pid_t pid, struct probe_list *list,
		    struct attachment **out);

/* The list is attached nowhere, and will not be again: what BPF was told of it is taken back. */
void attacher__forget(const struct attacher *attacher, struct probe_list *list);

/* What is attached by one link. */
struct held {
	struct bpf_link *link;
	uint32_t event; /* of tracefs, to be removed; 0: none */
};

/*
 * Links that go together, on many threads: each waits for the kernel, a uprobe_multi link some 45 ms, a perf link up to
 * 150 ms, and perf links one after the other. Begins zeroed.
 */
struct detachment {
	struct held *held;
	size_t cnt;
};

/* Takes attachments over, NULL ones too; the array stays the caller's, and has NULLs. Without memory they are gone at once. */
void detachment__add(struct detachment *d, struct attachment **attachments, size_t cnt);
/* Detaches all, and waits for that. Leaves it zeroed. */
void detachment__run(struct detachment *d);

/* Both. */
void attachment__free_all(struct attachment **attachments, size_t cnt);

#endif
