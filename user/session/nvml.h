/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How busy the host's GPUs are, once a second, as NVML (libnvidia-ml.so.1, found at run time) tells: REC_GPU_USAGE.
 *
 * A process of its own asks it. A call of NVML may wait for the driver for seconds, or for good when a GPU is broken, and a
 * thread in such a call could keep stepflame from ending; nor does a crash in the vendor's library end the recording.
 */
#ifndef STEPFLAME_USER_SESSION_NVML_H
#define STEPFLAME_USER_SESSION_NVML_H

#include "user/session/state.h"

/*
 * Starts it, when GPUs, or how busy they are, are asked for. Before there are probes and maps, which its process would keep open. 0 or -errno; no
 * library and no driver are no error.
 */
int nvml__new(struct session *s);
void nvml__tend(struct session *s); /* hands on what was told since, without waiting */
void nvml__end(struct session *s);  /* what is left, and a note if it does not answer */
void nvml__free(struct session *s);

/* What its process used: CPU time since it began, and memory now. 0: there is none. */
uint64_t nvml__cpu_ns(const struct session *s);
uint64_t nvml__rss_bytes(const struct session *s);

#endif
