/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Probes where processes push and pop NVTX ranges: bpf/nvtx.h. */
#ifndef STEPFLAME_USER_SESSION_NVTX_PROBES_H
#define STEPFLAME_USER_SESSION_NVTX_PROBES_H

#include "user/lib/array.h"
#include "user/session/state.h"

/*
 * Whether there are such places in a file, which is looked into once per session. False, too, when none of them is
 * understood.
 */
bool nvtx_probes__holds(struct session *s, const struct mapped_file *file);

/* Adds those places to the list, and their descriptions to the map nvtx_sites. */
void nvtx_probes__add(struct session *s, const struct mapped_file *file, struct probe_list *list);

/*
 * Takes them away when a process pays too much for them, for the rest of the recording. Called with the hits since it was
 * last called, and how long that is ago.
 */
void nvtx_probes__govern(struct session *s, struct target *t, uint64_t hits, uint64_t elapsed_ns);

void nvtx_probes__note(struct session *s); /* at the end: what was not understood */
void nvtx_probes__free(struct session *s);

#endif
