/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probes that come and go together on kernels without a uprobe_multi that filters by process: one event of tracefs may have
 * many uprobes, and a perf event holds it in one process. Perf uprobes wait 40 to 150 ms each as they go, one after the
 * other; this waits once.
 *
 * The event is there for all to see until it is removed; its breakpoints go with the perf event, whatever becomes of us.
 */
#ifndef STEPFLAME_USER_SESSION_TRACE_EVENTS_H
#define STEPFLAME_USER_SESSION_TRACE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* tracefs is mounted where it always is, and may be written to. */
bool trace_events__work(void);

/*
 * Makes event `number` of this process: uprobes at cnt different offsets of the open file fd. Returns its id, as perf events
 * want it, or -errno. trace_event__remove takes it away, once nobody uses it.
 */
int trace_event__make(uint32_t number, int fd, const uint64_t *offsets, size_t cnt);
void trace_event__remove(uint32_t number);

/* Removes those of processes that are gone. */
void trace_events__tidy(void);

/* A perf event of it in every thread of process pid: a file descriptor, or -errno. */
int trace_event__open(int id, pid_t pid);

#endif
