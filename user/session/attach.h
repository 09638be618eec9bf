/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Links that hold probes in one process: one uprobe_multi link per file where the kernel has it (and filters it by
 * process rightly), perf uprobes below, one each.
 */
#ifndef STEPFLAME_ATTACH_H
#define STEPFLAME_ATTACH_H

#include <stddef.h>
#include <sys/types.h>

#include "probe_list.h"

struct bpf_program;

enum attach_backend { ATTACH_MULTI, ATTACH_PERF };

struct attachment; /* the links of one probe_list in one process */

/*
 * Attaches all of `list` in process pid (every thread; not its children). 0 or -errno; on error nothing stays attached.
 * -EPERM, -ESRCH the process went away, -EINVAL a bad offset. Free with attachment__free, which detaches.
 */
int attachment__new(struct bpf_program *program, enum attach_backend backend, pid_t pid, const struct probe_list *list,
		    struct attachment **out);

/*
 * Links that go together, on many threads: each waits for the kernel, a uprobe_multi link some 45 ms, a perf link up to
 * 150 ms. Begins zeroed.
 */
struct detachment {
	struct bpf_link **links;
	size_t cnt;
};

/* Takes attachments over, NULL ones too; the array stays the caller's, and has NULLs. Without memory they are gone at once. */
void detachment__add(struct detachment *d, struct attachment **attachments, size_t cnt);
/* Detaches all, and waits for that. Leaves it zeroed. */
void detachment__run(struct detachment *d);

/* Both. */
void attachment__free_all(struct attachment **attachments, size_t cnt);

#endif
