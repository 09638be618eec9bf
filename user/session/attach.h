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
 * Detaches many at once: perf links take tens of ms each, in parallel. Accepts NULL entries; the array itself stays the
 * caller's.
 */
void attachment__free_all(struct attachment **attachments, size_t cnt);

#endif
