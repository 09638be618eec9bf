/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probes that attach and detach together, on kernels without a uprobe_multi that filters by
 * process: one tracefs event may have many uprobes, and a perf event attaches it to one process.
 * Perf uprobes detach one after the other, 40 to 150 ms each; an event detaches all of its uprobes
 * in one such wait.
 *
 * The event stays in tracefs until trace_event__remove; its breakpoints vanish with the perf event,
 * even if stepflame dies.
 */
#ifndef STEPFLAME_USER_SESSION_TRACE_EVENTS_H
#define STEPFLAME_USER_SESSION_TRACE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Is tracefs mounted at its usual place, and writable? */
bool trace_events__work(void);
/* Is it mounted there, and may this process not write to it? */
bool trace_events__denied(void);

/*
 * Creates event `number` of this process: uprobes at cnt different offsets of the open file fd.
 * Returns its id for perf events, or -errno. The caller removes it with trace_event__remove after
 * its last use.
 */
int trace_event__make(uint32_t number, int fd, const uint64_t *offsets, size_t cnt);
void trace_event__remove(uint32_t number);

/* Removes the events of processes that have ended. */
void trace_events__remove_stale(void);

/* Opens a perf event of event `id` in every thread of process pid: a file descriptor, or -errno. */
int trace_event__open(int id, pid_t pid);

#endif
