/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls of CUDA and NCCL in a session: which files hold such functions, and the rows that bpf/gpu.bpf.c counts as
 * records, with the names of kernels. Used by the session's own files only.
 */
#ifndef STEPFLAME_USER_SESSION_GPU_PROBES_H
#define STEPFLAME_USER_SESSION_GPU_PROBES_H

#include "include/gpu_records.h"
#include "user/session/state.h"

/*
 * Prepares, after the programs are loaded. 0 or -errno, after a message: -EOPNOTSUPP --gpu uprobe was asked for, and
 * this kernel attaches probes one by one.
 */
int gpu_probes__new(struct session *s);
void gpu_probes__free(struct session *s);

/*
 * Has the file functions that are to be watched? By its symbols; with --gpu off, when waits alone are, by its name. Files
 * are looked into once.
 */
bool gpu_probes__holds(struct session *s, const struct mapped_file *file);
/* Probes on a file of the target were attached. */
void gpu_probes__found(struct session *s, struct target *t);
/* From now on each call of the process is told (REC_GPU_CALL), or no more. 0 or -errno. */
int gpu_probes__tell(struct session *s, const struct target *t, bool each);

/* A kernel was launched for the first time: its name is looked for while its process is there. */
void gpu_probes__object(struct session *s, const struct rec_gpu_object *rec);
/* REC_GPU, and the rows that changed since the last call. 0 or -errno of the sink. */
int gpu_probes__snapshot(struct session *s);
uint64_t gpu_probes__unnamed(const struct session *s); /* kernels whose name was not found */
/* At the beginning, on stderr: that a process has nothing of CUDA yet. */
void gpu_probes__say_missing(const struct session *s, const struct target *t);
/* At the end: which processes had nothing of CUDA. */
void gpu_probes__note(struct session *s);

#endif
